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
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    best, which = 0.0, 0
    for number in range(len(starts) - 1):
        start, end = starts[number], starts[number + 1]
        if end == start:
            continue
        norm = K1 * (1 - B + B * (end - start) / usual)
        score = 0.0
        for word, found in enumerate(places.body):
            times = _BODY * sum(start <= place < end for place in found) if found else 0.0
            times += _TITLE * places.title[word]
            if times:
                score += rarities[word] * times * (K1 + 1) / (times + norm)
        if score > best:
            best, which = score, number
    return best, which


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
