"""Files as MCP resources, for any surface: listed page by page, read and completed by path under one URI scheme."""

import base64
import binascii
import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol
from urllib.parse import quote, unquote

from notewright.engine.library import Library
from notewright.engine.read import fetch, listing
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound, TooLarge
from notewright.index.base import Selection
from notewright.notes.path import NotePath
from notewright.surfaces.base import Call, Contents, Resource, Template

PAGE = 100


@dataclass(frozen=True, slots=True)
class ListedResource:
    """A file as a listing shows it."""

    path: str
    size: int
    modified: float  # seconds since 1970


class ResourceSource(Protocol):
    """Where the files come from; it answers only with what the workspace's caller may see."""

    def page(self, workspace: Workspace, offset: int, limit: int) -> Sequence[ListedResource]:
        """By path."""
        ...

    def read(self, workspace: Workspace, path: str) -> bytes:
        """NotFound where nothing is; TooLarge beyond what an answer may hold."""
        ...

    def begun(self, workspace: Workspace, start: str, limit: int) -> Sequence[str]:
        """Paths that begin so, or whose last part does, case ignored."""
        ...


@dataclass(frozen=True, slots=True)
class IndexedFiles:
    """The files the engine has filed: notes, or everything."""

    notes_only: bool = True

    def page(self, workspace: Workspace, offset: int, limit: int) -> Sequence[ListedResource]:
        found, _ = listing(workspace, self._selection(workspace, offset, limit))
        return [ListedResource(filed.path, filed.size, filed.modified_ns / 1e9) for filed in found]

    def read(self, workspace: Workspace, path: str) -> bytes:
        try:
            data, limit = fetch(workspace, NotePath.parse(path)).data, workspace.limits.note_bytes
        except Invalid:
            raise NotFound(f"nothing can be at {path}", what="file", path=path) from None
        if len(data) > limit:
            raise TooLarge(f"{path} is larger than {limit} bytes", size=len(data), limit=limit)
        return data

    def begun(self, workspace: Workspace, start: str, limit: int) -> Sequence[str]:
        wanted = start.lower()
        found, _ = listing(workspace, self._selection(workspace, 0, None))
        return [
            filed.path
            for filed in found
            if filed.path.lower().startswith(wanted) or filed.path.rpartition("/")[2].lower().startswith(wanted)
        ][:limit]

    def _selection(self, workspace: Workspace, offset: int, limit: int | None) -> Selection:
        return Selection(
            notes_only=self.notes_only, sort="path", offset=offset, limit=limit, visible=workspace.access.visibility
        )


@dataclass(frozen=True)
class NoteResources:
    """`note:///Projects/Tea.md`. With several workspaces the path begins with the workspace's name.

    `whole_library=False` (Second Brain) shows the bound workspace only, and never a workspace's name.
    """

    base: str = "note:///"
    source: ResourceSource = field(default_factory=IndexedFiles)
    name: str = "Note"
    description: str = "A note, by its path"
    audience: tuple[Literal["user", "assistant"], ...] = ()
    whole_library: bool = True

    @property
    def templates(self) -> tuple[Template, ...]:
        return (Template(self.base + "{path}", self.name, self.description, audience=self.audience),)

    def list(self, call: Call, cursor: str | None) -> tuple[Sequence[Resource], str | None]:
        number, offset = _place(cursor)
        workspaces = self._workspaces(call)
        if not workspaces[number:]:
            return [], None
        workspace = workspaces[number]
        listed = self.source.page(workspace, offset, PAGE + 1)
        found = [self._resource(call.library, workspace, entry) for entry in listed[:PAGE]]
        if len(listed) > PAGE:
            return found, _cursor(number, offset + PAGE)
        return found, _cursor(number + 1, 0) if workspaces[number + 1 :] else None

    def read(self, call: Call, uri: str) -> Contents:
        workspace, path = self._found(call, uri)
        data, mime = self.source.read(workspace, path), _mime(path)
        if mime == "text/markdown":
            return Contents(uri, data.decode("utf-8", "replace").removeprefix("\ufeff"), mime)
        try:
            return Contents(uri, data.decode("utf-8"), mime)
        except UnicodeDecodeError:
            return Contents(uri, data, mime)

    def complete(self, call: Call, template: str, argument: str, begun: str) -> Sequence[str]:
        if template != self.templates[0].uri or argument != "path":
            return []
        found: list[str] = []
        for workspace in self._workspaces(call):
            prefix = self._prefix(call.library, workspace)
            start = begun.removeprefix(prefix) if begun.startswith(prefix) else "" if prefix.startswith(begun) else None
            if start is not None:
                found += [prefix + path for path in self.source.begun(workspace, start, PAGE + 1)]
        return found

    def uri(self, library: Library, workspace: Workspace, path: str) -> str:
        return self.base + quote(self._prefix(library, workspace) + path)

    def _workspaces(self, call: Call) -> tuple[Workspace, ...]:
        return call.workspaces if self.whole_library else (call.workspace,)

    def _prefix(self, library: Library, workspace: Workspace) -> str:
        several = self.whole_library and len(library.workspaces()) > 1
        return f"{workspace.name}/" if several else ""

    def _resource(self, library: Library, workspace: Workspace, entry: ListedResource) -> Resource:
        modified = datetime.fromtimestamp(int(entry.modified), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = entry.path.rpartition("/")[2]
        uri = self.uri(library, workspace, entry.path)
        return Resource(uri, name, _mime(entry.path), entry.size, modified, self.audience)

    def _found(self, call: Call, uri: str) -> tuple[Workspace, str]:
        """The workspace and path a URI names; the path may be encoded or not."""
        named = unquote(uri.removeprefix(self.base)) if uri.startswith(self.base) else ""
        for workspace in self._workspaces(call):
            prefix = self._prefix(call.library, workspace)
            if named.startswith(prefix) and named != prefix:
                return workspace, named.removeprefix(prefix)
        raise NotFound(f"there is no resource {uri}", what="file", path=uri)


def _mime(path: str) -> str:
    if path.lower().endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _cursor(number: int, offset: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([number, offset]).encode()).decode()


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (binascii.Error, ValueError):
        place = None
    match place:
        case [int(number), int(offset)] if number >= 0 and offset >= 0:
            return number, offset
    raise Invalid("this cursor is not one of ours", hint="list from the beginning", what="cursor")
