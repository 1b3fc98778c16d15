"""The ranking: what each kind of evidence says about each note, and the one place where it is added up.

    score = 1/2 (note as written + note by stems)
          + 1/4 (best section as written + by stems)
          + 0.3 best linking sentence, by stems
          + what the linking sentences add to the note's own words
          + the name, where every word of it is in the question
          + 2 how much the words in its tags tell, times the square of their share of the question: a tag is worth more
            than a mention in passing, however long the note; as one word of a long question it tells little
    then a tenth of what the neighbours by links have is spread over each note,
    and the few notes that hold every word come onto the first page.

Numbers from bm25 are larger for better matches here. A ranking made elsewhere (by meaning, say) joins as one more
`ScoreList` in `rank`.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from heapq import nlargest

from notewright.index.base import Occurrences, SearchEvidence, WordMatches
from notewright.lazy_dataclass import NamedTuple

NOTE, SECTION = 0.5, 0.25  # of each of: as written, by stems
MENTION, SAID = 0.3, 1.0
TAGGED = 2.0
PAGE = 10  # hits of a first page
SILENT = 0.6  # of what others say of a note that says nothing itself
OTHER_NAME = 0.8  # an alias counts so much of a title
SPREAD = 0.1
K1, B = 1.2, 0.75  # as FTS5 has them
_TITLE, _BODY, _SAID = 1.6, 0.4, 0.5  # the weight of one occurrence
_LEAST = 1e-6  # what a word in half of all notes or more still tells, as in FTS5


class ScoreList(NamedTuple):
    """One list of notes with what they score in it."""

    weight: float
    scores: Mapping[int, float]


class Ranking(NamedTuple):
    """Scores of notes, and for each the number of its best section."""

    scores: dict[int, float]
    sections: dict[int, int]


def rank(evidence: SearchEvidence) -> Ranking:
    """Everything but the neighbours, which are those of the best."""
    lists: list[ScoreList] = []
    sections: dict[int, int] = {}
    for words in evidence.by_words:
        share = 2 / len(evidence.by_words)  # where no word has other forms, both ways are one
        best = best_sections(words.found, words.starts, evidence.total, words.having)
        sections.update({note: which for note, (_, which) in best.items()})
        lists += [
            ScoreList(NOTE * share, words.scores),
            ScoreList(SECTION * share, {note: score for note, (score, _) in best.items()}),
        ]
    words = evidence.by_words[-1]
    rarities = [rarity(evidence.total, count) for count in words.having]
    gains = mention_scores(evidence.said, words.found, evidence.lengths, rarities)
    lists += [
        ScoreList(MENTION, damp_unmatched(evidence.best_mention, words.scores)),
        ScoreList(SAID, damp_unmatched(gains, words.scores)),
        ScoreList(1.0, name_scores(evidence)),
        ScoreList(TAGGED, tag_scores(words, rarities)),
    ]
    return Ranking(fuse(lists), sections)


def fuse(lists: Iterable[ScoreList]) -> dict[int, float]:
    """All of them added up."""
    scores: defaultdict[int, float] = defaultdict(float)
    for part in lists:
        for note, score in part.scores.items():
            scores[note] += part.weight * score
    return dict(scores)


def rarity(among: float, having: float) -> float:
    """How much a word tells that so many among so many have: bm25's, as in FTS5."""
    if having >= among:
        return _LEAST
    return max(_LEAST, math.log((among - having + 0.5) / (having + 0.5)))


def name_rarity(notes: int, having: int) -> float:
    """The same for words of a name, where common words tell a little too."""
    return math.log(1 + (notes - having + 0.5) / (having + 0.5)) if having <= notes else 0.0


def _gain(rare: float, weight: float, norm: float) -> float:
    return rare * weight * (K1 + 1) / (weight + norm)


def _norm(length: float, usual: float) -> float:
    return K1 * (1 - B + B * length / usual)


# ---- sections -----------------------------------------------------------------------------------------


def best_sections(
    notes: Mapping[int, Occurrences], starts: Mapping[int, Sequence[int]], total: int, having: Sequence[int]
) -> dict[int, tuple[float, int]]:
    """What the best section of each note scores, and which it is.

    `starts` are the numbers of the first words of each note's sections, `total` how many notes there are in all and
    `having` how many have each word. How many sections have it is estimated from these notes.
    """
    counted = {note: _counted(found.body, starts[note]) for note, found in notes.items()}
    for note, found in notes.items():
        if found.tags and not counted[note]:  # tagged and none of the words in its text: the title counts all the same
            counted[note] = {0: {}}
    usual, per_note = _usual(starts[note] for note in notes)
    spread_of = _sections_a_note(notes, counted, starts, len(having))
    rarities = [rarity(total * per_note, count * share) for count, share in zip(having, spread_of, strict=True)]
    return {note: _best(counted[note], found.title, starts[note], usual, rarities) for note, found in notes.items()}


def _counted(body: Mapping[int, Sequence[int]], starts: Sequence[int]) -> dict[int, dict[int, int]]:
    """For each section that has any of the words, how often which. Places and starts ascend."""
    last = len(starts) - 2
    if not last:
        return {0: {word: len(places) for word, places in body.items()}} if body else {}
    counts: dict[int, dict[int, int]] = {}
    for word, places in body.items():
        at, end = 0, len(places)
        while at < end:
            section = bisect_right(starts, places[at]) - 1
            if section >= last:
                section, beyond = last, end
            elif at + 1 == end:
                beyond = end
            else:
                beyond = bisect_left(places, starts[section + 1], at + 1)
            if section in counts:
                counts[section][word] = beyond - at
            else:
                counts[section] = {word: beyond - at}
            at = beyond
    return counts


def _usual(all_starts: Iterable[Sequence[int]]) -> tuple[float, float]:
    """The average length of a section, and of sections in a note."""
    notes = words = sections = 0
    for starts in all_starts:
        notes += 1
        words += starts[-1]
        sections += max(1, len(set(starts)) - 1)  # empty ones begin where the next does
    return (max(words / sections, 1.0), sections / notes) if sections else (1.0, 1.0)


def _sections_a_note(
    notes: Mapping[int, Occurrences],
    counted: Mapping[int, Mapping[int, Mapping[int, int]]],
    starts: Mapping[int, Sequence[int]],
    words: int,
) -> list[float]:
    """In how many sections of a note that has it a word is, on average; in all where the title has it."""
    having, sections = [0] * words, [0] * words
    for note, found in notes.items():
        title = found.title
        for word in found.body:
            having[word] += 1
        for word in title:
            if word not in found.body:
                having[word] += 1
            sections[word] += max(1, len(starts[note]) - 1)
        for present in counted[note].values():
            for word in present:
                if word not in title:
                    sections[word] += 1
    return [many / some if some else 1.0 for many, some in zip(sections, having, strict=True)]


def _best(
    counts: Mapping[int, Mapping[int, int]],
    title: Mapping[int, int],
    starts: Sequence[int],
    usual: float,
    rarities: Sequence[float],
) -> tuple[float, int]:
    best, which = 0.0, 0
    titled = {word: _TITLE * times for word, times in title.items()} if title else title
    for section, words in counts.items():
        norm = _norm(starts[section + 1] - starts[section], usual)
        score = 0.0
        for word, times in words.items():
            weight = _BODY * times + titled[word] if word in titled else _BODY * times
            score += rarities[word] * weight / (weight + norm)
        if titled:
            for word, weight in titled.items():
                if word not in words:
                    score += rarities[word] * weight / (weight + norm)
        if score > best or (score == best and section < which):
            best, which = score, section
    return best * (K1 + 1), which


# ---- linking sentences --------------------------------------------------------------------------------


def mention_scores(
    said: Mapping[int, Mapping[int, int]],
    notes: Mapping[int, Occurrences],
    lengths: Mapping[int, int],
    rarities: Sequence[float],
) -> dict[int, float]:
    """What each note would score more, were the words others link to it with among its own. `said` counts them."""
    usual = max(sum(lengths.values()) / len(lengths), 1.0) if lengths else 1.0
    gains: dict[int, float] = {}
    for note, words in said.items():
        norm, own = _norm(lengths.get(note, usual), usual), notes.get(note)
        gains[note] = 0.0
        for word, times in words.items():
            before = _BODY * len(own.body.get(word, ())) + _TITLE * own.title.get(word, 0) if own else 0.0
            gains[note] += _gain(rarities[word], before + _SAID * times, norm) - _gain(rarities[word], before, norm)
    return gains


def damp_unmatched(scores: Mapping[int, float], speaking: Container[int]) -> dict[int, float]:
    """Less for notes that have none of the words themselves: who asks for a word wants to see it."""
    return {note: score if note in speaking else SILENT * score for note, score in scores.items()}


# ---- names and tags -----------------------------------------------------------------------------------


def name_scores(evidence: SearchEvidence) -> dict[int, float]:
    """Notes whose whole name is in the question, each with how much the words of that name tell."""
    words = evidence.by_words[-1]
    rarities = [name_rarity(evidence.total, count) for count in words.having]
    found = {
        note: sum(rarities[word] for word in where.title) for note, where in words.found.items() if where.whole_title
    }
    for note, is_filename, numbers in evidence.names:
        score = (1.0 if is_filename else OTHER_NAME) * sum({rarities[number] for number in numbers})
        found[note] = max(found.get(note, 0.0), score)
    return found


def tag_scores(words: WordMatches, rarities: Sequence[float]) -> dict[int, float]:
    """Notes tagged with words of the question: how much these tell, as far as the question is about nothing else."""
    whole = sum(rarities)
    told = {note: sum(rarities[word] for word in found.tags) for note, found in words.found.items() if found.tags}
    return {note: much * (much / whole) ** 2 for note, much in told.items()}


# ---- who holds every word -----------------------------------------------------------------------------


def lift(scores: Mapping[int, float], whole: Sequence[int]) -> dict[int, float]:
    """Whoever remembers the words of a note sees it on the first page: the few that have all of them score enough for
    it, even if titles and links say more for many others."""
    first = nlargest(PAGE, scores, key=scores.__getitem__) if whole else ()
    low = [note for note in whole if note not in first]
    if not low:
        return dict(scores)
    last = nlargest(PAGE - len(low) + 1, scores.values())[-1]
    return {**scores, **dict.fromkeys(low, math.nextafter(last, math.inf))}


# ---- neighbours ---------------------------------------------------------------------------------------


def neighbour_scores(scores: Mapping[int, float], links: Iterable[tuple[int, int]]) -> dict[int, float]:
    """What the notes at the other ends of these links score, for the notes at either end."""
    edges = set(links)
    given: defaultdict[int, float] = defaultdict(float)
    for source, target in edges:
        if target not in scores:  # as most are that a map of hundreds of notes links to
            given[target] += scores[source]
        elif source < target or (target, source) not in edges:  # two that link to each other are neighbours once
            given[target] += scores[source]
            given[source] += scores[target]
    return given


def unreachable(scores: Mapping[int, float], given: Mapping[int, float], page: int) -> set[int]:
    """The notes that are not among the first so many, whatever their degree: neighbours only ever add to a score."""
    if len(scores) < page:
        return set()
    last = nlargest(page, scores.values())[-1]
    return {note for note, neighbours in given.items() if scores.get(note, 0.0) + SPREAD * neighbours < last}


def spread(scores: Mapping[int, float], given: Mapping[int, float], degrees: Mapping[int, int]) -> dict[int, float]:
    """Each note's score with a share of what its neighbours have, where its degree is known; one without a score of its
    own may come in."""
    after = dict(scores)
    for note, neighbours in given.items():
        degree = degrees.get(note, 0)
        after[note] = scores.get(note, 0.0) + (SPREAD * neighbours / math.sqrt(degree) if degree else 0.0)
    return after
