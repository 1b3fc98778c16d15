"""A prefix of a bucket as plain objects: for whoever writes keys that nobody else does, as backups and moves do.

Nothing here compares before it writes: what must not be lost goes through the store.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from notewright.lazy_dataclass import NamedTuple

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ListedObject(NamedTuple):
    """What a listing says of an object. Equal ETags in one service: equal bytes. A tuple: there is one for every
    object, and a dict is four times as large."""

    key: str  # below the prefix that was asked for
    etag: str
    size: int
    modified_ns: int


class Objects(Protocol):
    """Keys are below the prefix. Problems are those of the store; NotFound for a key that is not there."""

    service: str  # the same for all buckets that can be copied between
    bucket: str
    prefix: str
    refuses_writes: str | None  # why nothing can be written, in words

    @property
    def location(self) -> str:
        """As people write it: s3://bucket/prefix."""
        ...

    def may_write(self) -> bool:
        """This machine is the one that may, and the service takes it."""
        ...

    def at(self, folder: str) -> "Objects":
        """A folder as a prefix of its own."""
        ...

    def below(self, folder: str = "") -> list[ListedObject]:
        """Everything below a folder."""
        ...

    def folders(self) -> list[str]:
        """The names directly below the prefix that have something below them, in order."""
        ...

    def exists(self, key: str) -> bool: ...

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """Unavailable where it is larger."""
        ...

    def put(self, key: str, data: bytes) -> str:
        """Write over whatever is there; the new ETag."""
        ...

    def copy(self, source: "Objects", key: str, to: str) -> bool:
        """Copy an object inside the service, with its metadata. False where that cannot be done, or it is gone: then it
        has to be read and written."""
        ...

    def remove(self, key: str) -> None:
        """Gone already is success."""
        ...

    def each(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        """All of them, several at once."""
        ...
