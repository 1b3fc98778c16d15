"""Files as MCP resources, for any surface: listed page by page, read and completed by path under one URI scheme.

They are returned as the protocol's own objects, which nothing between here and the wire looks into.
"""

import base64
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote, unquote

from notewright.engine.library import Library
from notewright.engine.read import fetch, list_files
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound, TooLarge
from notewright.index.base import IndexedFile, Selection
from notewright.notes.path import NotePath
from notewright.notes.times import format_utc
from notewright.surfaces.base import Call
from notewright.surfaces.perform import replace_surrogates

PAGE = 100


@dataclass(frozen=True)
class NoteResources:
    """`note:///Projects/Tea.md`. With several workspaces the path begins with the workspace's name.

    `whole_library=False` (Second Brain) shows the bound workspace only, and never a workspace's name.
    """

    base: str = "note:///"
    notes_only: bool = True
    audience: tuple[Literal["user", "assistant"], ...] = ()
    whole_library: bool = True

    @property
    def template(self) -> dict[str, Any]:
        """The form of the URIs (RFC 6570)."""
        shaped = {"uriTemplate": self.base + "{path}", "name": "Note", "mimeType": "text/markdown"}
        return shaped | {"description": "A note, by its path"} | self._annotations()

    def list(self, call: Call, cursor: str | None) -> tuple[Sequence[dict[str, Any]], str | None]:
        """One page and the cursor of the next; Invalid for a cursor that is not ours."""
        number, offset = 0, 0  # of the workspace, and of its files on the pages before
        if cursor is not None:
            parts = re.fullmatch(r"(\d{1,9})-(\d{1,9})", cursor, re.ASCII)
            if parts is None:
                raise Invalid("this cursor is not one of ours", hint="list from the beginning", what="cursor")
            number, offset = int(parts[1]), int(parts[2])
        workspaces = self._workspaces(call)
        if not workspaces[number:]:
            return [], None
        workspace = workspaces[number]
        listed = self.list_files(workspace, offset, PAGE + 1)
        found = [self._resource(call.library, workspace, entry) for entry in listed[:PAGE]]
        if len(listed) > PAGE:
            return found, f"{number}-{offset + PAGE}"
        return found, f"{number + 1}-0" if workspaces[number + 1 :] else None

    def read(self, call: Call, uri: str) -> dict[str, Any]:
        """The content, as text or else as bytes; NotFound where nothing is."""
        workspace, path = self._resolve(call, uri)
        data, mime = self.read_bytes(workspace, path), _guess_mime_type(path)
        if mime == "text/markdown":
            return {"uri": uri, "mimeType": mime, "text": data.decode("utf-8", "replace").removeprefix("\ufeff")}
        try:
            return {"uri": uri, "mimeType": mime, "text": data.decode("utf-8")}
        except UnicodeDecodeError:
            return {"uri": uri, "mimeType": mime, "blob": base64.b64encode(data).decode()}

    def complete(self, call: Call, argument: str, begun: str) -> Sequence[str]:
        """Paths that begin with `begun`, or whose last part does, case ignored."""
        if argument != "path":
            return []
        found: list[str] = []
        for workspace in self._workspaces(call):
            prefix = self._prefix(call.library, workspace)
            if not begun.startswith(prefix) and not prefix.startswith(begun):
                continue
            start = begun.removeprefix(prefix).lower() if begun.startswith(prefix) else ""
            paths = ((file.path, file.path.lower()) for file in self.list_files(workspace, 0, None))
            matching = (
                path for path, key in paths if key.startswith(start) or key.rpartition("/")[2].startswith(start)
            )
            found += [prefix + path for path in islice(matching, PAGE + 1)]
        return found

    def list_files(self, workspace: Workspace, offset: int, limit: int | None) -> Sequence[IndexedFile]:
        """The files the caller may see, by path."""
        sees = workspace.access.visibility
        chosen = Selection(notes_only=self.notes_only, sort="path", offset=offset, limit=limit, visible=sees)
        return list_files(workspace, chosen)[0]

    def read_bytes(self, workspace: Workspace, path: str) -> bytes:
        """The bytes of a file; NotFound where nothing is, TooLarge beyond what an answer may hold."""
        try:
            data, limit = fetch(workspace, NotePath.parse(path)).data, workspace.limits.note_bytes
        except Invalid:
            raise NotFound(f"nothing can be at {path}", what="file", path=path) from None
        if len(data) > limit:
            raise TooLarge(f"{path} is larger than {limit} bytes", size=len(data), limit=limit)
        return data

    def make_uri(self, library: Library, workspace: Workspace, path: str) -> str:
        """The URI of a file for this client."""
        return self.base + quote(self._prefix(library, workspace) + path)

    def _workspaces(self, call: Call) -> tuple[Workspace, ...]:
        return call.workspaces if self.whole_library else (call.workspace,)

    def _prefix(self, library: Library, workspace: Workspace) -> str:
        several = self.whole_library and len(library.workspaces()) > 1
        return f"{workspace.name}/" if several else ""

    def _resource(self, library: Library, workspace: Workspace, entry: IndexedFile) -> dict[str, Any]:
        return {
            "uri": self.make_uri(library, workspace, entry.path),
            "name": replace_surrogates(entry.path.name),
            "mimeType": _guess_mime_type(entry.path),
            "size": entry.size,
            **self._annotations(lastModified=format_utc(entry.modified_ns / 1e9)),
        }

    def _annotations(self, **more: str) -> dict[str, Any]:
        noted = ({"audience": list(self.audience)} if self.audience else {}) | more
        return {"annotations": noted} if noted else {}

    def _resolve(self, call: Call, uri: str) -> tuple[Workspace, str]:
        """The workspace and path a URI names; the path may be encoded or not."""
        named = unquote(uri.removeprefix(self.base)) if uri.startswith(self.base) else ""
        for workspace in self._workspaces(call):
            prefix = self._prefix(call.library, workspace)
            if named.startswith(prefix) and named != prefix:
                return workspace, named.removeprefix(prefix)
        raise NotFound(f"there is no resource {uri}", what="file", path=uri)


def _guess_mime_type(path: str) -> str:
    if path.lower().endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"
