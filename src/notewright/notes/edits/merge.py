"""Two changes to one text, put together where they do not touch the same place.

Used when an editor changed a note under a change set, and to take a change back out of a note that went on living.

A wrong text is worse than none. So only pieces that stay in every shortest difference count as unchanged (of two equal
lines, of which one is new, neither is known to be the old one), and a result must hold every word as often as the two
changes say and must not give a third text when one of them is taken back.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

_MAX_CELLS = 250_000  # of the tables that compare repeated pieces; larger stretches count as changed as a whole
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS = re.compile(r"\w+|\r\n|\s|[^\w\s]")
_CUTS: tuple[Callable[[str], list[str]], ...] = (_LINES.findall, _WORDS.findall)
_Pair = tuple[int, int]  # places of one piece in both texts


@dataclass(frozen=True, slots=True)
class _Change:
    """`base[start:end]` became `new`."""

    start: int
    end: int
    new: tuple[str, ...]

    def clashes_with(self, later: "_Change") -> bool:
        """Do both want the same place? Changes that only touch do not, unless both insert there, or one inserts what
        the other has just there: that may be one insertion or two."""
        if later.start != self.end:
            return later.start < self.end
        if self.start == self.end:
            return later.end == later.start or later.new[: len(self.new)] == self.new
        return later.start == later.end and self.new[-len(later.new) :] == later.new


def merge(base: str, ours: str, theirs: str) -> str | None:
    """The text with both changes, line by line and then word by word, or None where that is not certain.

    Both orders give the same. Taking one change back out (`merge(ours, base, merged)`) gives the other alone, or None.
    """
    both = _merge_by(base, ours, theirs, _CUTS)
    if both is None or ours in (base, theirs) or theirs == base:
        return both
    if _merge_by(ours, base, both, _CUTS) not in (None, theirs) or _merge_by(theirs, base, both, _CUTS) not in (
        None,
        ours,
    ):
        return None
    # every word must be there as often as the changes say: none lost, none doubled, no two grown together
    found = Counter(_LINES.findall(both)) + Counter(_LINES.findall(base))
    wanted = Counter(_LINES.findall(ours)) + Counter(_LINES.findall(theirs))
    return both if _count_words(found - wanted) == _count_words(wanted - found) else None


def holds_change(base: str, ours: str, theirs: str) -> bool:
    """Whether every line that `ours` changed is changed in `theirs` in the same way."""
    lines = _LINES.findall(base)
    return set(_find_changes(lines, _LINES.findall(ours))) <= set(_find_changes(lines, _LINES.findall(theirs)))


def _count_words(lines: Counter[str]) -> Counter[str]:
    return Counter(word for line in lines.elements() for word in _WORDS.findall(line))


def _merge_by(base: str, ours: str, theirs: str, cuts: Sequence[Callable[[str], list[str]]]) -> str | None:
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if not cuts:
        return None
    cut = cuts[0]
    pieces = cut(base)
    sides = _find_changes(pieces, cut(ours)), _find_changes(pieces, cut(theirs))
    text, place = list[str](), 0
    for start, end, *groups in _group_clashing(*sides):
        one, other = (_apply_changes(pieces, start, end, group) for group in groups)
        became = _merge_by("".join(pieces[start:end]), one, other, cuts[1:] if all(groups) else ())
        if became is None:
            return None
        text += [*pieces[place:start], became]
        place = end
    return "".join([*text, *pieces[place:]])


def _group_clashing(
    ours: list[_Change], theirs: list[_Change]
) -> Iterator[tuple[int, int, list[_Change], list[_Change]]]:
    """Stretches of the base in order, with the changes of either side in them that clash."""
    both = [*((change, 0) for change in ours), *((change, 1) for change in theirs)]
    both.sort(key=lambda each: (each[0].start, each[0].end))
    sides: tuple[list[_Change], list[_Change]] = ([], [])
    start = end = 0
    for change, side in both:
        other = sides[1 - side]
        if any(sides) and change.start >= end and not (other and other[-1].clashes_with(change)):
            yield start, end, *sides
            sides = ([], [])
        if not any(sides):
            start = end = change.start
        sides[side].append(change)
        end = max(end, change.end)
    if any(sides):
        yield start, end, *sides


def _apply_changes(pieces: list[str], start: int, end: int, changes: Iterable[_Change]) -> str:
    """What one side made of a stretch of the base."""
    text, place = list[str](), start
    for change in changes:
        text += [*pieces[place : change.start], *change.new]
        place = change.end
    return "".join([*text, *pieces[place:end]])


# ---- differences --------------------------------------------------------------------------------------


def _find_changes(base: list[str], other: list[str]) -> list[_Change]:
    """What lies between the pieces that are certainly the same ones."""
    changes, old, new = list[_Change](), 0, 0
    for here, there in (*_match_pieces(base, other), (len(base), len(other))):
        if here > old or there > new:
            changes.append(_Change(old, here, tuple(other[new:there])))
        old, new = here + 1, there + 1
    return changes


def _match_pieces(base: list[str], other: list[str]) -> Iterator[_Pair]:
    """Pieces that are certainly the same: those that are once in both texts and in the same order, and between two of
    them those that every longest common subsequence pairs alike."""
    cells, old, new = _MAX_CELLS, 0, 0
    for here, there in (*_match_unique(base, other), (len(base), len(other))):
        one, two = base[old:here], other[new:there]
        pairs = _match_without_table(one, two, cells)
        if pairs is None:
            cells -= len(one) * len(two)
            pairs = _match_by_table(one, two)
        yield from ((old + i, new + j) for i, j in pairs)
        if here < len(base):
            yield here, there
        old, new = here + 1, there + 1


def _match_unique(base: list[str], other: list[str]) -> list[_Pair]:
    """Where pieces are that both texts hold once, but for those that changed places with another one."""
    mine, yours = Counter(base), Counter(other)
    places = {piece: place for place, piece in enumerate(other) if yours[piece] == 1}
    pairs = [(place, places[piece]) for place, piece in enumerate(base) if mine[piece] == 1 and piece in places]
    there = [place for _, place in pairs]
    before = accumulate(there, max)
    after = list(accumulate(reversed(there), min))[::-1]
    return [pair for pair, most, least in zip(pairs, before, after, strict=True) if most == least == pair[1]]


def _match_without_table(base: list[str], other: list[str], cells: int) -> Iterable[_Pair] | None:
    """The certain pairs where no table is needed, or where it would be too large; None where it is needed."""
    if base == other:
        return ((place, place) for place in range(len(base)))
    if not base or not other:
        return ()
    swapped = len(base) > len(other)
    pairs = _match_inside(other, base) if swapped else _match_inside(base, other)
    if pairs is not None and swapped:
        pairs = [(there, here) for here, there in pairs]
    return () if pairs is None and len(base) * len(other) > cells else pairs


def _match_inside(few: list[str], many: list[str]) -> list[_Pair] | None:
    """The certain pairs where all of `few` is in `many` in this order: the first way to find it meets the last one."""
    first, last = _find_first(few, many), _find_first(few[::-1], many[::-1])
    if first is None or last is None:
        return None
    end = len(many) - 1
    return [(at, one) for at, (one, other) in enumerate(zip(first, reversed(last), strict=True)) if one == end - other]


def _find_first(few: list[str], many: list[str]) -> list[int] | None:
    places, rest = list[int](), iter(enumerate(many))
    for piece in few:
        place = next((place for place, other in rest if other == piece), None)
        if place is None:
            return None
        places.append(place)
    return places


def _match_by_table(base: list[str], other: list[str]) -> list[_Pair]:
    """The pairs that every longest common subsequence has: those that are alone in their rank."""
    after = [[0] * (len(other) + 1)]
    for piece in reversed(base):
        below, row = after[-1], [0] * (len(other) + 1)
        for j in range(len(other) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if piece == other[j] else max(below[j], row[j + 1])
        after.append(row)
    after.reverse()
    ranks: dict[int, list[_Pair]] = {}
    before = [0] * (len(other) + 1)
    for i, piece in enumerate(base):
        row = [0]
        for j, there in enumerate(other):
            if piece != there:
                row.append(max(before[j + 1], row[j]))
                continue
            row.append(before[j] + 1)
            if row[-1] + after[i + 1][j + 1] == after[0][0]:
                ranks.setdefault(before[j], []).append((i, j))
        before = row
    return [pairs[0] for _, pairs in sorted(ranks.items()) if len(pairs) == 1]
