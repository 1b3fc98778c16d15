"""The ranking: what each kind of evidence says about each note, and the one place where it is added up.

    score = 1/2 (note as written + note by stems)
          + 1/4 (best section as written + by stems)
          + 0.15 (best linking sentence as written + by stems)
          + the name, where every word of it is in the question
    then a tenth of what the neighbours by links have is spread over each note.

Numbers from bm25 are larger for better matches here. A ranking made elsewhere (by meaning, say) joins as one more
`Evidence` in `fused`.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

NOTE, SECTION, MENTION = 0.5, 0.25, 0.15  # of each of: as written, by stems
OTHER_NAME = 0.8  # an alias counts so much of a title
SPREAD = 0.1
K1, B = 1.2, 0.75  # as FTS5 has them
_TITLE, _BODY = 1.6, 0.4


@dataclass(frozen=True, slots=True)
class Places:
    """Where the words of a question stand in one note: for each word its places in the body and times in the title."""

    body: Sequence[Sequence[int]]
    title: Sequence[int]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One list of notes with what they score in it."""

    weight: float
    scores: Mapping[int, float]


def rarity(notes: int, having: int) -> float:
    """How much a word tells that so many of the notes have."""
    return math.log(1 + (notes - having + 0.5) / (having + 0.5)) if having <= notes else 0.0


def best_section(places: Places, starts: Sequence[int], rarities: Sequence[float], usual: float) -> tuple[float, int]:
    """What the best section of a note scores, and which it is. `usual` is the length of a section like any other."""
    counts: defaultdict[int, dict[int, int]] = defaultdict(dict)  # section: how often which word
    for word, found in enumerate(places.body):
        if found:
            for section, times in _by_section(found, starts):
                counts[section][word] = times
    titled = {word: _TITLE * times for word, times in enumerate(places.title) if times}
    best, which = 0.0, 0
    for section, words in counts.items():
        norm = K1 * (1 - B + B * (starts[section + 1] - starts[section]) / usual)
        score = 0.0
        for word in words.keys() | titled.keys():
            times = _BODY * words.get(word, 0) + titled.get(word, 0.0)
            score += rarities[word] * times * (K1 + 1) / (times + norm)
        if score > best or (score == best and section < which):
            best, which = score, section
    return best, which


def _by_section(found: Sequence[int], starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The sections a word is in, each with how often. Places and starts ascend."""
    at = 0
    while at < len(found):
        section = bisect_right(starts, found[at]) - 1
        if section >= len(starts) - 1:  # the count of words and FTS5 disagree: what is beyond is in the last
            yield len(starts) - 2, len(found) - at
            return
        beyond = bisect_left(found, starts[section + 1], at)
        yield section, beyond - at
        at = beyond


def usual_length(all_starts: Iterable[Sequence[int]]) -> float:
    """The average length of these notes' sections."""
    words = sections = 0
    for starts in all_starts:
        words += starts[-1]
        sections += sum(1 for place in range(len(starts) - 1) if starts[place] < starts[place + 1])
    return max(words / sections, 1.0) if sections else 1.0


def fused(evidence: Iterable[Evidence]) -> dict[int, float]:
    """All evidence added up."""
    scores: defaultdict[int, float] = defaultdict(float)
    for part in evidence:
        for note, score in part.scores.items():
            scores[note] += part.weight * score
    return dict(scores)


def spread(
    scores: Mapping[int, float], neighbours: Mapping[int, Iterable[int]], degrees: Mapping[int, int]
) -> dict[int, float]:
    """Each note's score with a share of its neighbours'; a neighbour without a score of its own may come in."""
    after = dict(scores)
    for note, near in neighbours.items():
        degree = degrees.get(note, 0)
        if degree:
            given = sum(scores.get(other, 0.0) for other in near)
            after[note] = scores.get(note, 0.0) + SPREAD * given / math.sqrt(degree)
    return after
