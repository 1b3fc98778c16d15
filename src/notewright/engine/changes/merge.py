"""Merges a change of ours with what another program made of the same file.

`notes/edits/merge.py` merges two changes to one text. After a crash we often do not know whether the other's text holds
our change already; merging again would insert it twice. So we check that first.
"""

import re
from collections import Counter

from notewright.notes.edits.merge import holds_change, merge

_LINE = re.compile(rb"[^\n]+")
_WORD = re.compile(rb"\w+|[^\w\s]")


def merge_change(before: bytes, after: bytes, theirs: bytes) -> bytes | None:
    """`theirs` with our change from `before` to `after` in it once, or None where both touch the same place or one of
    them is not text."""
    lines, words = _contains_change(before, after, theirs, _LINE), _contains_change(before, after, theirs, _WORD)
    if lines and words is not False:
        return theirs
    applied = merge_texts(before, after, theirs)
    if lines is False and (applied is not None or not words):
        return applied
    if merge_texts(after, before, theirs) in (None, theirs):
        return applied
    # It can be reverted, so it may well be there. If it can be applied too, the words decide.
    return theirs if applied is None or words else applied


def without_change(before: bytes, after: bytes, now: bytes) -> bytes | None:
    """`now` with our change from `before` to `after` reverted, or None where that is not certain. Words that occur
    often are no evidence."""
    try:
        old, new, text = before.decode(), after.decode(), now.decode()
    except UnicodeDecodeError:
        return None
    left = text if holds_change(new, old, text) else merge(new, old, text)
    return None if left is None else left.encode()


def has_change(before: bytes, after: bytes, theirs: bytes) -> bool | None:
    """Whether our change is in `theirs`; None where neither lines nor words decide it."""
    lines, words = _contains_change(before, after, theirs, _LINE), _contains_change(before, after, theirs, _WORD)
    if lines is None or words is None:
        return words if lines is None else lines
    return lines if lines == words else None


def _contains_change(before: bytes, after: bytes, theirs: bytes, pieces: "re.Pattern[bytes]") -> bool | None:
    """Whether `theirs` has our change, by the count of the pieces it adds and removes; None where that is not clear."""
    old, new, now = (Counter(pieces.findall(data)) for data in (before, after, theirs))
    changed = [piece for piece in old.keys() | new.keys() if old[piece] != new[piece]]
    with_it = all(_has_reached(now[piece], new[piece], old[piece]) for piece in changed)
    without = all(_has_reached(now[piece], old[piece], new[piece]) for piece in changed)
    return with_it if with_it != without else None


def has_lost_place(before: bytes, after: bytes, theirs: bytes) -> bool:
    """Whether both the words that our change removes and those it inserts are gone: it cannot be placed any more."""
    old, new, now = (Counter(_WORD.findall(data)) for data in (before, after, theirs))
    removed, inserted = old - new, new - old
    left = any(now[word] > new[word] for word in removed) or any(now[word] > old[word] for word in inserted)
    return bool(removed and inserted) and not left


def _has_reached(now: int, end: int, other: int) -> bool:
    """Whether a count is that of one `end` of the change, or still further from the `other` end."""
    return now >= end if end > other else now <= end


def merge_texts(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes to `base` in one text, without checking whether one contains the other."""
    *_, last = base.splitlines(keepends=True) or [b""]
    if not theirs.endswith(b"\n") and last.endswith(b"\n") and not ours.endswith(last):
        # `theirs` lost the last line end and we changed the end too: two lines must not become one.
        theirs += b"\r\n" if last.endswith(b"\r\n") else b"\n"
    try:
        text = merge(base.decode(), ours.decode(), theirs.decode())
    except UnicodeDecodeError:
        return None
    return None if text is None else text.encode()
