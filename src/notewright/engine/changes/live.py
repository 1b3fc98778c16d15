"""What people do in live documents, as change sets: in the history like any tool's, and undoable."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from notewright.engine.changes.commit import Plan, Put, commit
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor, Past
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version

if TYPE_CHECKING:
    from notewright.stores.live.documents import LiveDocuments

SURFACE = "live"
_LOOKED_AT = 5  # changes of a note, newest first, among which that of another process is looked for


def follow(ws: Workspace, documents: "LiveDocuments") -> None:
    """From now on what is typed in the documents becomes changes of this workspace."""

    def save(path: NotePath, data: bytes, old: Stored, typists: Sequence[Actor]) -> None:
        commit(ws.by(_together(typists)), Plan((Put(path, data, old),), f"typed in {path}"))

    def origin(path: NotePath, version: Version) -> Version | None:
        """Of which version one of our processes made this one."""
        for change in ws.ledger.past(Past(path=path, limit=_LOOKED_AT)):
            for step in change.steps:
                if step.path == path and step.after == version:
                    return step.before
        return None

    documents.save_through(save, origin)


def _together(typists: Sequence[Actor]) -> Actor:
    """All who typed between two saves, as one."""
    users = ", ".join(dict.fromkeys(one.user for one in typists if one and one.user))
    clients = ", ".join(dict.fromkeys(one.client for one in typists if one and one.client))
    return Actor(users, clients, SURFACE, "type")
