"""What links are looked up in: the names there are."""

from collections.abc import Sequence
from typing import Protocol

from notewright.notes.path import NotePath


class Names(Protocol):
    """What is there to be linked to. Keys are made by `link_key`, `path_key` and `slug_key`."""

    def bearing(self, key: str) -> Sequence[NotePath]:
        """Every path whose last segment, with or without `.md`, has this key."""

    def aliased(self, key: str) -> Sequence[NotePath]:
        """Every note with an alias of this key."""
        return ()

    def titled(self, key: str) -> Sequence[NotePath]:
        """Every note with a title of this key."""
        return ()

    def slugged(self, slug: str) -> Sequence[NotePath]:
        """Every note that bears this slug: by its path first, then by alias, by title, by its last segment."""
        return ()
