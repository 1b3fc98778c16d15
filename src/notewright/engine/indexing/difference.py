"""How the index differs from the store, told by a listing and the stamps of what was filed; pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from notewright.stores.base import Entry

FRESH_GRAIN_NS = 2_000_000_000  # an edit within the clock's grain of a walk would be missed: such files are read again
FEW = 10  # below this a vault may shrink as it likes
LATER = "it is large and not indexed yet: only its name is known"  # the problem of a note that is filed without a stamp


class IndexDifference(NamedTuple):
    """What must be filed and dropped for the index to equal the store."""

    file: tuple[Entry, ...]
    drop: tuple[str, ...]
    seen: int
    known: int

    @property
    def implausible(self) -> bool:
        """The root turned empty or lost a third of its notes at once: a mount that went away looks like this."""
        return self.known >= FEW and (self.seen == 0 or len(self.drop) * 3 > self.known)


def plan(entries: Iterable[Entry], known: Mapping[str, str], now_ns: int | None) -> IndexDifference:
    """Compare a listing with the index's stamps. Without a time the stamps are no times either, and always tell."""
    file: list[Entry] = []
    left = dict(known)
    seen = 0
    for entry in entries:
        if entry.kind == "folder":
            continue
        seen += 1
        stamp = left.pop(entry.path, None)
        is_recent = now_ns is not None and now_ns - entry.modified_ns < FRESH_GRAIN_NS
        if stamp != entry.stamp or is_recent:
            file.append(entry)
    return IndexDifference(tuple(file), tuple(left), seen, len(known))
