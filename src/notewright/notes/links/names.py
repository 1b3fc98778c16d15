"""What links are looked up in: the protocol, and files of one name."""

from collections.abc import Sequence
from typing import Literal, Protocol

from notewright.notes.path import NotePath, path_key

OtherName = Literal["alias", "title", "slug"]
FEW = 8  # files of one name that are compared one by one


class Namesakes(list[NotePath]):
    """Files that a name may mean, as `x.md` and `b/X.md` for `x`. Of many, those that a link may mean are found in a
    table that is made once, when nothing more is appended: a folder of `index.md` in each of its folders has as many
    links as files."""

    _by_ending: dict[int, dict[str, list[NotePath]]] | None = None  # by the number of segments, 0 for all of a path

    @property
    def are_many(self) -> bool:
        return len(self) > FEW

    def with_key(self, key: str) -> list[NotePath]:
        """Those whose whole path has this key."""
        if not self.are_many:
            return [path for path in self if path_key(path) == key]
        return self._table(0).get(key, [])

    def shortest_below(self, key: str) -> list[NotePath]:
        """Of those in any folder whose path ends with this key, the shortest."""
        if not self.are_many:
            return _shortest([path for path in self if path_key(path).endswith("/" + key)])
        return self._table(key.count("/") + 1).get(key, [])

    def _table(self, segments: int) -> dict[str, list[NotePath]]:
        tables = self._by_ending = self._by_ending or {}
        if segments not in tables:
            table: dict[str, list[NotePath]] = {}
            for path in self:
                pieces = path_key(path).split("/")
                if len(pieces) > segments:
                    table.setdefault("/".join(pieces[-segments:]), []).append(path)
            tables[segments] = {key: _shortest(paths) for key, paths in table.items()} if segments else table
        return tables[segments]


def _shortest(paths: list[NotePath]) -> list[NotePath]:
    least = min(map(len, paths), default=0)
    return [path for path in paths if len(path) == least]


class Names(Protocol):
    """The names that links are looked up in. Keys are made by `link_key`, `path_key` and `slug_key`."""

    def by_name(self, key: str) -> Sequence[NotePath]:
        """Every path whose last segment, with or without `.md`, has this key."""

    def by_other_name(self, kind: OtherName, key: str) -> Sequence[NotePath]:
        """Every note with such a name of this key. Slugs match by path first, then alias, title, last segment."""
        return ()
