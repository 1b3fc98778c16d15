"""Two changes to one text, put together where they do not touch the same place.

Used when an editor changed a note under a change set, and to take a change back out of a note that went on living.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_MANY = 2000  # above so many pieces a rougher difference is quick enough
_WORDS = re.compile(r"\w+|\s|[^\w\s]")


@dataclass(frozen=True, slots=True)
class _Change:
    """`base[start:end]` became `new`."""

    start: int
    end: int
    new: Sequence[str]
    side: int

    def clashes(self, other: "_Change") -> bool:
        """Do both want the same place? Changes that only touch do not, unless both insert at one point."""
        if self.start == self.end == other.start == other.end:
            return True
        if self.start == self.end:
            return other.start < self.start < other.end
        if other.start == other.end:
            return self.start < other.start < self.end
        return max(self.start, other.start) < min(self.end, other.end)


def merge(base: str, ours: str, theirs: str) -> str | None:
    """The text with both changes, line by line and then word by word, or None where they overlap."""
    return _merged(base, ours, theirs, (_lines, _words))


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _words(text: str) -> list[str]:
    return _WORDS.findall(text)


def _merged(base: str, ours: str, theirs: str, cuts: Sequence[Callable[[str], list[str]]]) -> str | None:
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    if not cuts:
        return None
    pieces = cuts[0](base)
    yours = _changes(pieces, cuts[0](theirs), 1)
    mine = [change for change in _changes(pieces, cuts[0](ours), 0) if not _is_there(change, yours)]
    changes = [*mine, *yours]
    merged, place = "", 0
    for group in _groups(changes):
        start, end = group[0].start, max(change.end for change in group)
        was = "".join(pieces[start:end])
        became = _merged(was, _side(pieces, group, 0), _side(pieces, group, 1), cuts[1:] if len(group) > 1 else ())
        if became is None:
            return None
        merged += "".join(pieces[place:start]) + became
        place = end
    return merged + "".join(pieces[place:])


def _is_there(change: _Change, others: list[_Change]) -> bool:
    """Whether what we put in stands at that place already, at the edge of what they changed there: put in twice, a
    change is put in once."""
    if change.start != change.end:
        return False
    size, new = len(change.new), list(change.new)
    return any(
        (other.start < other.end == change.start and list(other.new[-size:]) == new)
        or (other.end > other.start == change.start and list(other.new[:size]) == new)
        for other in others
    )


def _changes(base: list[str], other: list[str], side: int) -> list[_Change]:
    head = _common(base, other)
    tail = _common(base[head:][::-1], other[head:][::-1])
    old, new = base[head : len(base) - tail], other[head : len(other) - tail]
    codes = SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > _MANY).get_opcodes()
    return [_Change(head + a, head + b, new[c:d], side) for kind, a, b, c, d in codes if kind != "equal"]


def _common(one: list[str], other: list[str]) -> int:
    count = 0
    for mine, yours in zip(one, other, strict=False):
        if mine != yours:
            break
        count += 1
    return count


def _groups(changes: list[_Change]) -> Iterator[list[_Change]]:
    """Changes in order, those that clash together."""
    group: list[_Change] = []
    for change in sorted(changes, key=lambda change: (change.start, change.end, change.side)):
        if group and any(change.clashes(other) for other in group if other.side != change.side):
            group.append(change)
        elif group and change.start < max(other.end for other in group):
            group.append(change)  # an earlier clash reaches this far
        else:
            if group:
                yield group
            group = [change]
    if group:
        yield group


def _side(pieces: list[str], group: list[_Change], side: int) -> str:
    """What one side made of the stretch of base that a group covers."""
    place, text = group[0].start, ""
    for change in group:
        if change.side == side:
            text += "".join(pieces[place : change.start]) + "".join(change.new)
            place = change.end
    return text + "".join(pieces[place : max(change.end for change in group)])
