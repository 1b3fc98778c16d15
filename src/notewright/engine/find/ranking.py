"""The ranking: scores each kind of evidence for each note, and adds the scores up in one place.

    score = 1/2 (note as written + note by stems)
          + 1/4 (best section as written + by stems)
          + 0.3 best linking sentence, by stems
          + what the note would gain if the linking sentences were among its own words
          + the name, where every word of it is in the question
          + 2 rarity of the words in its tags, times the square of their share of the question: a tag is worth more
            than a mention in passing, however long the note; as one word of a long question it is worth little
    then each note gets a tenth of the scores of its neighbours by links,
    and the few notes that hold every word are raised onto the first page.

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

NOTE_WEIGHT, SECTION_WEIGHT = 0.5, 0.25  # of each list: as written, by stems
MENTION_WEIGHT, MENTION_GAIN_WEIGHT = 0.3, 1.0
TAG_WEIGHT = 2.0
PAGE_HITS = 10  # hits of a first page
UNMATCHED_FACTOR = 0.6  # for linking sentences to a note that holds none of the words itself
OTHER_NAME_FACTOR = 0.8  # the weight of an alias, where a file name has 1
NEIGHBOUR_SHARE = 0.1
K1, B = 1.2, 0.75  # of bm25, as in FTS5
_TITLE_WEIGHT, _BODY_WEIGHT, _MENTION_WEIGHT = 1.6, 0.4, 0.5  # the weight of one occurrence
_MIN_RARITY = 1e-6  # of a word in half of all notes or more, as in FTS5


class ScoreList(NamedTuple):
    """The scores of notes by one kind of evidence, and its weight."""

    weight: float
    scores: Mapping[int, float]


class Ranking(NamedTuple):
    """The scores of notes, and the number of the best section of each."""

    scores: dict[int, float]
    sections: dict[int, int]


def rank(evidence: SearchEvidence) -> Ranking:
    """Rank notes by all evidence but their neighbours, which are looked up for the best of these only."""
    lists: list[ScoreList] = []
    sections: dict[int, int] = {}
    for words in evidence.by_words:
        share = 2 / len(evidence.by_words)  # where no word has other forms, there is one list instead of two
        best = find_best_sections(words.found, words.starts, evidence.total, words.having)
        sections.update({note: which for note, (_, which) in best.items()})
        lists += [
            ScoreList(NOTE_WEIGHT * share, words.scores),
            ScoreList(SECTION_WEIGHT * share, {note: score for note, (score, _) in best.items()}),
        ]
    words = evidence.by_words[-1]
    rarities = [rarity(evidence.total, count) for count in words.having]
    gains = score_mentions(evidence.mentioned, words.found, evidence.lengths, rarities)
    lists += [
        ScoreList(MENTION_WEIGHT, damp_unmatched(evidence.best_mention, words.scores)),
        ScoreList(MENTION_GAIN_WEIGHT, damp_unmatched(gains, words.scores)),
        ScoreList(1.0, score_names(evidence)),
        ScoreList(TAG_WEIGHT, score_tags(words, rarities)),
    ]
    return Ranking(fuse(lists), sections)


def fuse(lists: Iterable[ScoreList]) -> dict[int, float]:
    """Add up weighted scores by note."""
    scores: defaultdict[int, float] = defaultdict(float)
    for part in lists:
        for note, score in part.scores.items():
            scores[note] += part.weight * score
    return dict(scores)


def rarity(among: float, having: float) -> float:
    """The weight of a word that `having` of `among` notes have: the idf of bm25, as in FTS5."""
    if having >= among:
        return _MIN_RARITY
    return max(_MIN_RARITY, math.log((among - having + 0.5) / (having + 0.5)))


def name_rarity(notes: int, having: int) -> float:
    """The same for words of a name, where common words keep a little weight."""
    return math.log(1 + (notes - having + 0.5) / (having + 0.5)) if having <= notes else 0.0


def _gain(rare: float, weight: float, norm: float) -> float:
    return rare * weight * (K1 + 1) / (weight + norm)


def _norm(length: float, usual: float) -> float:
    return K1 * (1 - B + B * length / usual)


# ---- sections -----------------------------------------------------------------------------------------


def find_best_sections(
    notes: Mapping[int, Occurrences], starts: Mapping[int, Sequence[int]], total: int, having: Sequence[int]
) -> dict[int, tuple[float, int]]:
    """The score of the best section of each note, and its number.

    `starts` are the numbers of the first words of each note's sections, `total` how many notes there are in all and
    `having` how many have each word. How many sections have it is estimated from these notes.
    """
    counted = {note: _count_by_section(found.body, starts[note]) for note, found in notes.items()}
    for note, found in notes.items():
        if found.tags and not counted[note]:  # a tag and no word in its text: the title counts all the same
            counted[note] = {0: {}}
    usual, per_note = _find_averages(starts[note] for note in notes)
    spread_of = _count_sections_per_note(notes, counted, starts, len(having))
    idf = [rarity(total * per_note, count * share) for count, share in zip(having, spread_of, strict=True)]
    return {note: _find_best(counted[note], found.title, starts[note], usual, idf) for note, found in notes.items()}


def _count_by_section(body: Mapping[int, Sequence[int]], starts: Sequence[int]) -> dict[int, dict[int, int]]:
    """Count each word in each section that has any. Places and starts ascend."""
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


def _find_averages(all_starts: Iterable[Sequence[int]]) -> tuple[float, float]:
    """The average length of a section, and number of sections in a note."""
    notes = words = sections = 0
    for starts in all_starts:
        notes += 1
        words += starts[-1]
        sections += max(1, len(set(starts)) - 1)  # empty ones begin where the next does
    return (max(words / sections, 1.0), sections / notes) if sections else (1.0, 1.0)


def _count_sections_per_note(
    notes: Mapping[int, Occurrences],
    counted: Mapping[int, Mapping[int, Mapping[int, int]]],
    starts: Mapping[int, Sequence[int]],
    words: int,
) -> list[float]:
    """How many sections of a note have each word, on average over notes that have it; all if the title has it."""
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


def _find_best(
    counts: Mapping[int, Mapping[int, int]],
    title: Mapping[int, int],
    starts: Sequence[int],
    usual: float,
    rarities: Sequence[float],
) -> tuple[float, int]:
    best, which = 0.0, 0
    titled = {word: _TITLE_WEIGHT * times for word, times in title.items()} if title else title
    for section, words in counts.items():
        norm = _norm(starts[section + 1] - starts[section], usual)
        score = 0.0
        for word, times in words.items():
            weight = _BODY_WEIGHT * times + titled[word] if word in titled else _BODY_WEIGHT * times
            score += rarities[word] * weight / (weight + norm)
        if titled:
            for word, weight in titled.items():
                if word not in words:
                    score += rarities[word] * weight / (weight + norm)
        if score > best or (score == best and section < which):
            best, which = score, section
    return best * (K1 + 1), which


# ---- linking sentences --------------------------------------------------------------------------------


def score_mentions(
    mentioned: Mapping[int, Mapping[int, int]],
    notes: Mapping[int, Occurrences],
    lengths: Mapping[int, int],
    idf: Sequence[float],
) -> dict[int, float]:
    """How much each note would gain if the words of sentences that link to it were its own. `mentioned` counts them."""
    usual = max(sum(lengths.values()) / len(lengths), 1.0) if lengths else 1.0
    gains: dict[int, float] = {}
    for note, words in mentioned.items():
        norm, own = _norm(lengths.get(note, usual), usual), notes.get(note)
        gains[note] = 0.0
        for word, times in words.items():
            before = _BODY_WEIGHT * len(own.body.get(word, ())) + _TITLE_WEIGHT * own.title.get(word, 0) if own else 0.0
            gains[note] += _gain(idf[word], before + _MENTION_WEIGHT * times, norm) - _gain(idf[word], before, norm)
    return gains


def damp_unmatched(scores: Mapping[int, float], matched: Container[int]) -> dict[int, float]:
    """Lower the scores of notes that have none of the words themselves: a reader expects to see a word he searched."""
    return {note: score if note in matched else UNMATCHED_FACTOR * score for note, score in scores.items()}


# ---- names and tags -----------------------------------------------------------------------------------


def score_names(evidence: SearchEvidence) -> dict[int, float]:
    """Score notes whose whole name is in the question by the rarity of the words of that name."""
    words = evidence.by_words[-1]
    rarities = [name_rarity(evidence.total, count) for count in words.having]
    found = {
        note: sum(rarities[word] for word in where.title) for note, where in words.found.items() if where.whole_title
    }
    for note, is_filename, numbers in evidence.names:
        score = (1.0 if is_filename else OTHER_NAME_FACTOR) * sum({rarities[number] for number in numbers})
        found[note] = max(found.get(note, 0.0), score)
    return found


def score_tags(words: WordMatches, rarities: Sequence[float]) -> dict[int, float]:
    """Score notes tagged with words of the question by the rarity of these, damped by the rest of the question."""
    whole = sum(rarities)
    sums = {note: sum(rarities[word] for word in found.tags) for note, found in words.found.items() if found.tags}
    return {note: tagged * (tagged / whole) ** 2 for note, tagged in sums.items()}


# ---- notes that hold every word -----------------------------------------------------------------------


def raise_whole_matches(scores: Mapping[int, float], whole: Sequence[int]) -> dict[int, float]:
    """Raise the few notes that hold every word just onto the first page: who remembers a note's words finds it there,
    even if many others score higher by titles and links."""
    first = nlargest(PAGE_HITS, scores, key=scores.__getitem__) if whole else ()
    low = [note for note in whole if note not in first]
    if not low:
        return dict(scores)
    last = nlargest(PAGE_HITS - len(low) + 1, scores.values())[-1]
    return {**scores, **dict.fromkeys(low, math.nextafter(last, math.inf))}


# ---- neighbours ---------------------------------------------------------------------------------------


def score_neighbours(scores: Mapping[int, float], links: Iterable[tuple[int, int]]) -> dict[int, float]:
    """For the notes at either end of these links: the sum of the scores at the other ends."""
    edges = set(links)
    given: defaultdict[int, float] = defaultdict(float)
    for source, target in edges:
        if target not in scores:  # as most notes are that a map of hundreds of notes links to
            given[target] += scores[source]
        elif source < target or (target, source) not in edges:  # two that link to each other are neighbours once
            given[target] += scores[source]
            given[source] += scores[target]
    return given


def find_unreachable(scores: Mapping[int, float], given: Mapping[int, float], page: int) -> set[int]:
    """The notes that cannot reach the first page, whatever their degree: neighbours only ever add to a score."""
    if len(scores) < page:
        return set()
    last = nlargest(page, scores.values())[-1]
    return {note for note, neighbours in given.items() if scores.get(note, 0.0) + NEIGHBOUR_SHARE * neighbours < last}


def add_shares(scores: Mapping[int, float], given: Mapping[int, float], degrees: Mapping[int, int]) -> dict[int, float]:
    """Add to each note's score a share of its neighbours' scores, where its degree is known; a note without a score of
    its own may come in."""
    after = dict(scores)
    for note, neighbours in given.items():
        degree = degrees.get(note, 0)
        after[note] = scores.get(note, 0.0) + (NEIGHBOUR_SHARE * neighbours / math.sqrt(degree) if degree else 0.0)
    return after
