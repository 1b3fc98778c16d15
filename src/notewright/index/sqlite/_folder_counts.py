"""How many notes are in each folder and below it, remembered until something is filed: to count them, every file's row
is read, and a listing shows a few of them."""

from collections import defaultdict
from collections.abc import Sequence

from notewright.index.base import Visibility
from notewright.index.sqlite.queries import folders
from notewright.index.sqlite.schema import Connection

MOST_READERS = 16  # who see different notes
State = tuple[str, int]  # a generation and its serial
Counts = Sequence[tuple[str, int]]


class FolderCounts:
    """Of one index. What several threads count at once is counted twice, no more."""

    def __init__(self) -> None:
        self._kept: tuple[State, dict[Visibility, dict[str, Counts]]] = (("", -1), {})  # by the folder above

    def inside(self, con: Connection, folder: str, visible: Visibility) -> Counts:
        """The folders directly in this one that hold files or folders of files, with the notes in and below each."""
        state = (con.name, con.number("select value from meta where key='serial'"))
        kept, known = self._kept
        if kept != state or len(known) >= MOST_READERS:
            known = {}
        if visible not in known:
            known = {**known, visible: _by_parent(folders(con, visible=visible))}
            self._kept = (state, known)
        return known[visible].get(folder, ())


def _by_parent(counts: Counts) -> dict[str, Counts]:
    found: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for folder, count in counts:
        found[folder.rpartition("/")[0]].append((folder, count))
    return dict(found)
