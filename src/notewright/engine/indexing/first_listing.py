"""Which files there are while all of them are indexed for the first time, ready to be asked about."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from notewright.index.base import Visibility, with_parents
from notewright.notes.path import NotePath, path_key


class FirstListing:
    """Paths by name, and the folders with their notes: no call looks through all of them while notes are parsed."""

    def __init__(self, paths: Iterable[NotePath]) -> None:
        self._named: defaultdict[str, list[NotePath]] = defaultdict(list)
        own: defaultdict[str, int] = defaultdict(int)
        for path in paths:
            self._named[path_key(path.name)].append(path)
            own[path.folder] += path.is_note
        self._folders = with_parents(own)

    def by_name(self, key: str) -> list[NotePath]:
        """Paths whose last segment, with or without `.md`, has this key."""
        return sorted(path for name in (key, key + ".md") for path in self._named.get(name, ()))

    def folders(self, visible: Visibility) -> list[tuple[str, int]]:
        """Every folder that holds files, with how many notes are in it and below."""
        if visible.test is None:
            return self._folders
        return FirstListing(filter(visible.test, self._paths()))._folders

    def _paths(self) -> Iterator[NotePath]:
        for paths in self._named.values():
            yield from paths
