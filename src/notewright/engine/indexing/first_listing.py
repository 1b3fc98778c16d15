"""A listing of all files by name and folder, for calls that come while they are indexed for the first time."""

from collections import defaultdict
from collections.abc import Iterable

from notewright.index.base import Visibility, add_to_parents
from notewright.notes.path import NotePath, path_key

FOLD_NAMES = 10  # whose case is folded in one call


class FirstListing:
    """All paths, searchable by name, and the folders with their numbers of notes. The names are one text: it takes half
    the time of a dict to make, and a name is found among 100,000 in 2 to 4 ms."""

    def __init__(self, paths: Iterable[NotePath]) -> None:
        self._paths = list(paths)
        names = [path.rpartition("/")[2] for path in self._paths]
        # Some at a time: one call for all would keep every other thread waiting, and most are ASCII, which is quicker.
        some = ("\n".join(names[at : at + FOLD_NAMES]) for at in range(0, len(names), FOLD_NAMES))
        self._keys = "\n".join(("", *map(path_key.__wrapped__, some), ""))  # path_key itself would cache these texts
        self._folders = _count_notes(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def find_by_name(self, key: str) -> list[NotePath]:
        """Paths whose last segment, with or without `.md`, has this key."""
        found = []
        for line in (f"\n{key}\n", f"\n{key}.md\n"):
            number, before, at = 0, 0, self._keys.find(line)
            while at >= 0:
                number += self._keys.count("\n", before, at)
                found.append(self._paths[number])
                before, at = at, self._keys.find(line, at + 1)
        return sorted(found)

    def subfolders(self, folder: str, visible: Visibility) -> list[tuple[str, int]]:
        """Folders one level down that hold files, with how many notes are in each and below."""
        if visible.test is not None:
            return subfolders(self._paths, folder, visible)
        return _one_level(self._folders, folder)


def subfolders(paths: Iterable[NotePath], folder: str, visible: Visibility) -> list[tuple[str, int]]:
    """The same, of paths that are not kept."""
    inside, test = f"{folder}/" if folder else "", visible.test
    if test is not None:
        paths = (path for path in paths if path.startswith(inside) and test(path))
    return _one_level(_count_notes(paths), folder)


def _one_level(folders: Iterable[tuple[str, int]], folder: str) -> list[tuple[str, int]]:
    return [(inner, count) for inner, count in folders if inner.rpartition("/")[0] == folder]


def _count_notes(paths: Iterable[NotePath]) -> list[tuple[str, int]]:
    own = defaultdict[str, int](int)
    for path in paths:
        own[path.rpartition("/")[0]] += path[-3:].lower() == ".md"  # as `is_note`, in half the time
    return add_to_parents(own)
