"""Which files there are while all of them are indexed for the first time, ready to be asked about."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from notewright.index.base import Visibility, with_parents
from notewright.notes.path import NotePath, path_key

TOGETHER = 10  # names that are folded in one call


class FirstListing:
    """Paths to be asked for by name, and the folders with their notes, without a look at each while notes are parsed.
    The names are one text: it takes half the time of a dict to make, and one of 100,000 is found in 2 to 4 ms."""

    def __init__(self, paths: Iterable[NotePath]) -> None:
        self._paths = list(paths)
        names = [path.rpartition("/")[2] for path in self._paths]
        # Some at a time: one call for all would keep every other thread waiting, and most are ASCII, which is quicker.
        some = ("\n".join(names[at : at + TOGETHER]) for at in range(0, len(names), TOGETHER))
        self._keys = "\n".join(("", *map(path_key.__wrapped__, some), ""))  # itself it would remember these texts
        self._folders = _counted(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def by_name(self, key: str) -> list[NotePath]:
        """Paths whose last segment, with or without `.md`, has this key."""
        return sorted(self._paths[at] for name in (key, key + ".md") for at in self._places(f"\n{name}\n"))

    def _places(self, line: str) -> Iterator[int]:
        number, before, at = 0, 0, self._keys.find(line)
        while at >= 0:
            number += self._keys.count("\n", before, at)
            yield number
            before, at = at, self._keys.find(line, at + 1)

    def subfolders(self, folder: str, visible: Visibility) -> list[tuple[str, int]]:
        """Folders one level down that hold files, with how many notes are in each and below."""
        if visible.test is not None:
            return subfolders(self._paths, folder, visible)
        return _one_level(self._folders, folder)


def subfolders(paths: Iterable[NotePath], folder: str, visible: Visibility) -> list[tuple[str, int]]:
    """The same of paths that are asked about once."""
    inside, test = f"{folder}/" if folder else "", visible.test
    if test is not None:
        paths = (path for path in paths if path.startswith(inside) and test(path))
    return _one_level(_counted(paths), folder)


def _one_level(folders: Iterable[tuple[str, int]], folder: str) -> list[tuple[str, int]]:
    return [(inner, count) for inner, count in folders if inner.rpartition("/")[0] == folder]


def _counted(paths: Iterable[NotePath]) -> list[tuple[str, int]]:
    own = defaultdict[str, int](int)
    for path in paths:
        own[path.rpartition("/")[0]] += path[-3:].lower() == ".md"  # as `is_note`, in half the time
    return with_parents(own)
