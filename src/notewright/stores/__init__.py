"""Where notes live. A store holds bytes of files and nothing of ours; it supplies compare-and-swap and no more.

Every implementation passes `tests/stores/test_contract.py`. What is all-or-nothing across several files is the
engine's business (`engine/changes.py`), written once over `stage`, `write` and `delete`.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from notewright.notes import NotePath

Version = str  # opaque outside the store, compared for equality only; on a folder the SHA-256 of the bytes
OpId = str  # names one change set: a call repeated with the same id is the same call


@dataclass(frozen=True, slots=True)
class Entry:
    """What a listing knows of a file without reading it."""

    path: NotePath
    kind: Literal["file", "folder", "symlink", "placeholder"]  # placeholder: its bytes are in some cloud
    stamp: str  # equal stamps: nothing changed since. Cheap, never a hash of the content
    size: int
    modified_ns: int
    target: str | None = None  # where a symlink points, as written
    mode: int | None = None
    accessed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as it was at one moment."""

    data: bytes
    version: Version
    entry: Entry


class Store(Protocol):
    """Eight promises. All calls may come from any thread; paths have passed `NotePath.parse`.

    Raises NotFound, Exists, Conflict, Forbidden, NoSpace, Busy, Unavailable and nothing else. A path with a segment
    that begins with a dot is refused as NotFound, except where `hidden` says otherwise.
    """

    identity: str  # the same in every process that opens the same notes; a safe file name

    def entries(self) -> Iterator[Entry]:
        """Every visible file, folder by folder, complete and cheap. A symlink to a file beneath the root is one entry
        of kind symlink (never followed twice); those that lead out are absent."""
        ...

    def children(self, folder: str, *, hidden: bool = False) -> list[Entry]:
        """What is directly in a folder, sub-folders and broken symlinks included. NotFound without such a folder."""
        ...

    def stat(self, path: NotePath) -> Entry:
        """The entry of one file or folder."""
        ...

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        """Its bytes, whole: a file that an editor has just truncated is waited for."""
        ...

    def stage(self, path: NotePath, data: bytes, *, op: OpId) -> None:
        """Lay new bytes beside, durably, so that a `write` of the same op cannot fail for want of space. Optional."""
        ...

    def write(
        self,
        path: NotePath,
        data: bytes,
        *,
        seen: Version | None,
        op: OpId,
        settled: bool = False,
        hidden: bool = False,
    ) -> Stored:
        """Replace what was seen (None: nothing may be there) by `data`, durably, or Conflict / Exists and nothing
        changed. Repeating it with the same op after it happened is success. `settled`: the caller knows the bytes seen
        to be whole (we wrote them ourselves), so a recent change need not be waited out."""
        ...

    def delete(self, path: NotePath, *, seen: Version, op: OpId) -> None:
        """Remove what was seen, or Conflict. Already gone is success. `settle` removes folders it leaves empty."""
        ...

    def settle(self, op: OpId, *, emptied: tuple[str, ...] = ()) -> None:
        """Nothing more will come of `op`: make its renames durable, remove what it laid beside, and of the folders
        named those that are empty."""
        ...

    def sweep(self) -> None:
        """Remove what dead processes laid beside. Called under `lock` before the first answer."""
        ...

    def lock(self, *, timeout: float = 10.0) -> AbstractContextManager[None]:
        """Alone with the notes among all our threads and processes; Busy after `timeout`. Held for one change set."""
        ...

    def changes(self, stop: threading.Event) -> Iterator[frozenset[NotePath] | None]:
        """Hints of what changed from now on, until `stop`; None means: I may have missed some, look at everything."""
        ...

    def healthy(self) -> bool:
        """The notes can be reached (the folder is there and is the one that was opened)."""
        ...

    def close(self) -> None: ...


def version_of(data: bytes) -> Version:
    """The version of bytes kept by a store that versions by content."""
    return hashlib.sha256(data).hexdigest()


__all__ = ["Entry", "OpId", "Store", "Stored", "Version", "version_of"]
