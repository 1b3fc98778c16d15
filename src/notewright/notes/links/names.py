"""The protocol of what links are looked up in."""

from collections.abc import Sequence
from typing import Literal, Protocol

from notewright.notes.path import NotePath

OtherName = Literal["alias", "title", "slug"]


class Names(Protocol):
    """The names that links are looked up in. Keys are made by `link_key`, `path_key` and `slug_key`."""

    def by_name(self, key: str) -> Sequence[NotePath]:
        """Every path whose last segment, with or without `.md`, has this key."""

    def by_other_name(self, kind: OtherName, key: str) -> Sequence[NotePath]:
        """Every note with such a name of this key. Slugs match by path first, then alias, title, last segment."""
        return ()
