"""Files as MCP resources."""

from typing import Any, cast

import pytest

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound
from notewright.index.base import IndexedFile
from notewright.notes.path import NotePath
from notewright.surfaces.base import Call
from notewright.surfaces.resources import NoteResources


class Files(NoteResources):
    """The same few files in every workspace, with the workspace's name in them."""

    paths = ("A b/Tee #1.md", "logo.png", "note.md", "table.csv")

    def list_files(self, workspace: Workspace, offset: int, limit: int | None) -> list[IndexedFile]:
        paths = self.paths[offset:] if limit is None else self.paths[offset : offset + limit]
        return [IndexedFile(NotePath(path), "", "", 3, 1_700_000_000_900_000_000, "") for path in paths]

    def read_bytes(self, workspace: Workspace, path: str) -> bytes:
        if path not in self.paths:
            raise NotFound(f"no {path}", what="file")
        return (
            b"\xff\xfe"
            if path == "logo.png"
            else f"\ufeff{workspace.name}: \xe9".encode() + b"\xff" * path.endswith("md")
        )


def call(*names: str) -> Call:
    nothing = cast(Any, None)
    return Call(Library.of([Workspace(name, name.lower(), nothing, nothing, nothing, nothing) for name in names]))


def uris(call: Call, resources: NoteResources) -> list[str]:
    found, cursor = resources.list(call, None)
    listed = [one["uri"] for one in found]
    while cursor is not None:
        found, cursor = resources.list(call, cursor)
        listed += [one["uri"] for one in found]
    return listed


def test_a_path_becomes_a_uri_and_back() -> None:
    resources = Files("note:///")
    assert uris(call("Main"), resources)[0] == "note:///A%20b/Tee%20%231.md"
    for spelled in ("note:///A%20b/Tee%20%231.md", "note:///A b/Tee #1.md", "note:///A%20b%2FTee%20%231.md"):
        assert resources.read(call("Main"), spelled)["uri"] == spelled


def test_with_several_workspaces_a_uri_begins_with_the_name_of_one() -> None:
    resources, several = Files("note:///"), call("Lens", "Lens Edu")
    assert len(uris(several, resources)) == 8
    assert uris(several, resources)[-2] == "note:///Lens%20Edu/note.md"
    assert resources.read(several, "note:///Lens%20Edu/note.md")["text"].startswith("Lens Edu")
    with pytest.raises(NotFound):
        resources.read(several, "note:///note.md")


def test_a_surface_of_one_workspace_shows_the_first_and_no_name() -> None:
    resources, several = Files("file:///", whole_library=False), call("Main", "Other")
    assert uris(several, resources)[2] == "file:///note.md"
    assert resources.template["uriTemplate"] == "file:///{path}"


def test_a_note_is_text_whatever_its_bytes_and_a_picture_is_not() -> None:
    resources = Files("note:///")
    assert resources.read(call("Main"), "note:///note.md")["text"] == "Main: é\ufffd"
    assert resources.read(call("Main"), "note:///logo.png")["blob"] == "//4="
    assert resources.read(call("Main"), "note:///table.csv")["mimeType"] == "text/csv"


def test_a_path_is_completed_also_from_the_beginning_of_a_workspace_name() -> None:
    resources, several = Files("note:///"), call("Lens", "Lens Edu")
    assert resources.complete(several, "path", "Lens E") == [f"Lens Edu/{p}" for p in Files.paths]
    assert resources.complete(several, "path", "Lens/no") == ["Lens/note.md"]
    assert resources.complete(several, "other", "") == []


@pytest.mark.parametrize("cursor", ["", "x", "W10=", "Wy0xLDBd", "WyJhIiwwXQ==", "é"])
def test_a_cursor_that_is_not_ours_is_refused(cursor: str) -> None:
    with pytest.raises(Invalid):
        Files("note:///").list(call("Main"), cursor)
