"""What the sync server needs of live documents (`stores/live/`), and who may open which of them."""

from collections.abc import Callable
from typing import Protocol

from notewright.engine.access import Access
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound, ReadOnly
from notewright.ledger.base import Actor
from notewright.notes.path import NotePath

RELAY_CHARS = 36  # of an id: the part that all documents of a folder share


class LiveDocument(Protocol):
    """One document that is open. Every call may block; the callbacks come from any thread and must not."""

    id: str

    def vector(self) -> bytes: ...

    def update_since(self, vector: bytes | None = None) -> bytes: ...

    def apply(self, update: bytes, *, by: Actor, source: object = None) -> None: ...

    def listen(
        self, told: Callable[[bytes], None], *, source: object = None, ended: Callable[[str], None] = ...
    ) -> Callable[[], None]: ...

    def when_durable(self, then: Callable[[], None]) -> None: ...


class LiveFolder(Protocol):
    """The live documents of one workspace. Every call may block."""

    folder_id: str

    def path_of(self, doc_id: str) -> NotePath | None: ...

    def id_of(self, path: NotePath) -> str: ...

    def new(self, doc_id: str | None = None) -> str: ...

    def open(self, doc_id: str) -> LiveDocument: ...

    def release(self, document: LiveDocument) -> None: ...


def folder_of(ws: Workspace) -> LiveFolder:
    """The live documents of a workspace; NotFound where it has none."""
    live: LiveFolder | None = ws.live
    if live is None:
        raise _missing()
    return live


def workspace_of(library: Library, doc_id: str) -> Workspace:
    """Whose document this would be, of those workspaces that the caller may see: its id tells."""
    for ws in library.workspaces():
        if ws.live is not None and ws.live.folder_id[:RELAY_CHARS] == doc_id[:RELAY_CHARS]:
            return ws
    raise _missing()


def may_write(ws: Workspace, doc_id: str) -> bool:
    """Whether the caller may also change a document; NotFound if they may not see it, or it is not there.

    The folder document names every file: it is for those from whom nothing is hidden. So is a document that has no path
    yet, of which no rule can say anything.
    """
    live, access = folder_of(ws), ws.access
    path = None if doc_id == live.folder_id else live.path_of(doc_id)
    if path is None:
        if access.hide or not (doc_id == live.folder_id or access.writes_all):
            raise _missing()
        return access.writes_all
    if not access.sees(path):
        raise _missing()
    return _may_write(access, path)


def _may_write(access: Access, path: NotePath) -> bool:
    try:
        access.may_write(path)
    except (ReadOnly, Forbidden):
        return False
    return True


def _missing() -> NotFound:
    return NotFound("there is no such document", what="document")
