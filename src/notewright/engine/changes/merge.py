"""Merging a change of ours with what another program made of the same file.

`notes/edits/merge.py` merges two changes to one text. After a crash we often do not know whether the other's text holds
our change already; merging it again would put it in twice. So we first look.
"""

import re
from collections import Counter

from notewright.notes.edits.merge import holds_change, merge

_LINE = re.compile(rb"[^\n]+")
_WORD = re.compile(rb"\w+|[^\w\s]")


def merge_change(before: bytes, after: bytes, theirs: bytes) -> bytes | None:
    """`theirs` with our change from `before` to `after` in it once, or None where both touch the same place or one of
    them is not text."""
    lines, words = _holds(before, after, theirs, _LINE), _holds(before, after, theirs, _WORD)
    if lines and words is not False:
        return theirs
    put_in = merge_texts(before, after, theirs)
    if lines is False and (put_in is not None or not words):
        return put_in
    if merge_texts(after, before, theirs) in (None, theirs):
        return put_in
    # It can be taken out, so it may well be there. If it can be put in too, the words decide.
    return theirs if put_in is None or words else put_in


def without_change(before: bytes, after: bytes, now: bytes) -> bytes | None:
    """`now` with our change from `before` to `after` taken back: what is there without it, or None where that is not
    certain. Nothing is guessed from words that are there often."""
    try:
        old, new, text = before.decode(), after.decode(), now.decode()
    except UnicodeDecodeError:
        return None
    left = text if holds_change(new, old, text) else merge(new, old, text)
    return None if left is None else left.encode()


def has_change(before: bytes, after: bytes, theirs: bytes) -> bool | None:
    """Is our change in `theirs`? None where neither lines nor words say."""
    lines, words = _holds(before, after, theirs, _LINE), _holds(before, after, theirs, _WORD)
    if lines is None or words is None:
        return words if lines is None else lines
    return lines if lines == words else None


def _holds(before: bytes, after: bytes, theirs: bytes, pieces: "re.Pattern[bytes]") -> bool | None:
    """Is our change in it, judging by the pieces that it adds and removes? None where that does not say."""
    old, new, now = (Counter(pieces.findall(data)) for data in (before, after, theirs))
    changed = [piece for piece in old.keys() | new.keys() if old[piece] != new[piece]]
    with_it = all(_beyond(now[piece], new[piece], old[piece]) for piece in changed)
    without = all(_beyond(now[piece], old[piece], new[piece]) for piece in changed)
    return with_it if with_it != without else None


def has_lost_place(before: bytes, after: bytes, theirs: bytes) -> bool:
    """Are both the words that our change takes out and those it puts in gone? Then it has no place any more."""
    old, new, now = (Counter(_WORD.findall(data)) for data in (before, after, theirs))
    taken_out, put_in = old - new, new - old
    left = any(now[word] > new[word] for word in taken_out) or any(now[word] > old[word] for word in put_in)
    return bool(taken_out and put_in) and not left


def _beyond(now: int, end: int, other: int) -> bool:
    """As many as at one end of the change, or further away from the other."""
    return now >= end if end > other else now <= end


def merge_texts(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes to `base` in one text, without looking whether one holds the other."""
    *_, last = base.splitlines(keepends=True) or [b""]
    if not theirs.endswith(b"\n") and last.endswith(b"\n") and not ours.endswith(last):
        # `theirs` lost the last line end and we changed the end too: two lines must not become one.
        theirs += b"\r\n" if last.endswith(b"\r\n") else b"\n"
    try:
        text = merge(base.decode(), ours.decode(), theirs.decode())
    except UnicodeDecodeError:
        return None
    return None if text is None else text.encode()
