"""Which documents there are, by what their host says, and who may open which of them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from notewright.engine.access import Access
from notewright.errors import Forbidden, NotFound, ReadOnly
from notewright.notes.path import NotePath

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
RELAY_CHARS = 36  # of an id: the part that all documents of a folder share


@dataclass(frozen=True, slots=True)
class DocumentNames:
    """What the host of a workspace knows of some ids. None: it has no path yet, or there is no such document."""

    folder_id: str
    paths: Mapping[str, NotePath | None]

    @property
    def scope(self) -> str:
        """What the ids of all documents of this folder begin with."""
        return self.folder_id[:RELAY_CHARS] + "-"

    def may_begin(self, doc_id: str) -> bool:
        """A client that makes a note opens its document by an id of its own, before the folder document has it."""
        part = doc_id.removeprefix(self.scope)
        return doc_id.startswith(self.scope) and self.paths.get(doc_id) is None and _UUID.fullmatch(part) is not None

    def may_hold(self, doc_id: str) -> bool:
        return doc_id.startswith(self.scope) or self.paths.get(doc_id) is not None


def may_write(access: Access, doc_id: str, names: DocumentNames) -> bool:
    """Whether the caller may also change a document; NotFound if they may not see it.

    The folder document names every file: it is for those from whom nothing is hidden. So is a document that has no path
    yet, of which no rule can say anything.
    """
    path = names.paths.get(doc_id)
    if path is None:
        if access.hide or not (doc_id == names.folder_id or access.writes_all):
            raise no_such_document()
        return access.writes_all
    if not access.sees(path):
        raise no_such_document()
    try:
        access.may_write(path)
    except (ReadOnly, Forbidden):
        return False
    return True


def no_such_document(hint: str = "") -> NotFound:
    return NotFound("there is no such document", hint=hint, what="document")
