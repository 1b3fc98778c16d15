"""Second Brain: five tools over any file by its exact path, errors with numbers (contracts D)."""

import base64
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import open_folder, read_files, write_files

from notewright import errors
from notewright.accounts.limits import RateLimits
from notewright.app.opening import close_workspace
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.indexing.ready import wait_for_texts
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor, ChangeQuery
from notewright.surfaces.base import Answer, Call, RpcError, Surface
from notewright.surfaces.perform import perform
from notewright.surfaces.second_brain.tools import surface

pytestmark = pytest.mark.slow  # its transcripts are quick

SURFACE = surface(None)
MB = 1_048_576


class Brain:
    """A workspace and a client of it."""

    def __init__(self, ws: Workspace, asked: Surface = SURFACE) -> None:
        self.ws, self.surface, self.user = ws, asked, "ann"

    def call(self, tool: str, /, **args: Any) -> Answer:
        return perform(self.surface, self.caller(tool), tool, args)

    def caller(self, tool: str = "", transport: Any = "stdio") -> Call:
        return Call(Library.of([self.ws]), Actor(self.user, "desk", "second_brain", tool), transport=transport)

    def __call__(self, tool: str, /, **args: Any) -> str:
        """What a call that works says."""
        answer = self.call(tool, **args)
        assert not answer.is_error, answer.text
        (text,) = answer.blocks
        assert isinstance(text, str)
        return text

    def refused(self, tool: str, /, **args: Any) -> str:
        """What one that does not says, the number in `_meta` too."""
        answer = self.call(tool, **args)
        assert answer.is_error and len(answer.blocks) == 1
        assert answer.meta == {"code": int(answer.text.split()[1].rstrip(":"))}
        return answer.text

    def rows(self, tool: str, /, **args: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self(tool, **args))
        return found


FILES = {
    "README.md": "# Brain\n",
    "projects/launch/plan.md": "# Plan\n\n## Timeline\n\nLaunch date: TBD\n\n## Dependencies\nStatus: In Progress\n",
    "projects/app/notes.md": "one\ntwo\nthree\nfour\n",
    "projects/old.md": "aaa $& \\1 todo\n",
    "areas/health/log.md": "日本語\nTODO: run\n",
    "resources/data.csv": "name,API\napi,1\n",
    "resources/picture.png": b"\x89PNG\x00api",
    "resources/crlf.md": "a\r\nAPI line\r\nb\r\n",
}


@pytest.fixture
def brain(workspace: Callable[..., Workspace]) -> Brain:
    return Brain(workspace(FILES, name="Brain"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "Brain"


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brain]:
    """The same files, for the tests that change nothing."""
    place = tmp_path_factory.mktemp("still")
    write_files(place / "Brain", FILES)
    for age, path in enumerate(sorted(FILES)):
        os.utime(place / "Brain" / path, (1_700_000_000 - age, 1_700_000_000 - age))
    ws = open_folder(place / "Brain", place)
    yield Brain(ws)
    close_workspace(ws)


def test_the_tools_are_five_with_sixteen_parameters() -> None:
    assert [tool.name for tool in SURFACE.tools] == ["read", "write", "edit", "glob", "grep"]
    assert sum(len(tool.schema["properties"]) for tool in SURFACE.tools) == 16
    assert [tool.schema["required"] for tool in SURFACE.tools] == [
        ["path"], ["path", "content"], ["path"], ["pattern"], ["pattern"]
    ]  # fmt: skip
    assert SURFACE.tools[0].schema["properties"]["range"] | {"description": ""} == {
        "type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2, "description": "",
    }  # fmt: skip


# ---- read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "one\ntwo\nthree\nfour\n"),
        ({"range": [2, 3]}, "two\nthree"),
        ({"range": [1, 1]}, "one"),
        ({"range": [4, 99]}, "four\n"),
        ({"range": [99, 100]}, ""),
        ({"range": [2.0, 3.0]}, "two\nthree"),
        ({"range": [1, 10**400]}, "one\ntwo\nthree\nfour\n"),
        ({"max_bytes": 5}, "one\nt"),
        ({"max_bytes": 5.0}, "one\nt"),
        ({"max_bytes": 10**400}, "one\ntwo\nthree\nfour\n"),
        ({"range": [2, 3], "max_bytes": 4}, "two\n"),
    ],
)
def test_a_file_is_read_whole_or_in_part(still: Brain, args: dict[str, Any], text: str) -> None:
    assert still("read", path="projects/app/notes.md", **args) == text


@pytest.mark.parametrize(("most", "text"), [(1, ""), (2, ""), (3, "日"), (4, "日"), (5, "日"), (6, "日本")])
def test_a_cut_never_splits_a_character(still: Brain, most: int, text: str) -> None:
    assert still("read", path="areas/health/log.md", max_bytes=most) == text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"path": "nope.md"}, "Error 404: File not found: nope.md"),
        ({"path": "readme.md"}, "Error 404: File not found: readme.md"),
        ({"path": "projects"}, "Error 404: File not found: projects"),
        ({"path": "projects/app/notes"}, "Error 404: File not found: projects/app/notes"),
        ({}, "Error 400: path parameter is required and cannot be empty"),
        ({"path": ""}, "Error 400: path parameter is required and cannot be empty"),
        ({"path": " "}, "Error 400: path parameter is required and cannot be empty"),
        ({"path": "README.md", "range": [0, 1]}, "Error 400: Invalid range - line numbers must be >= 1"),
        ({"path": "README.md", "range": [1, -1]}, "Error 400: Invalid range - line numbers must be >= 1"),
        ({"path": "README.md", "range": [3, 2]}, "Error 400: Invalid range - start line must be <= end line"),
        ({"path": "README.md", "range": [1.5, 2]}, "Error 400: Invalid range - line numbers must be whole numbers"),
        ({"path": "README.md", "range": [1]}, "Error 400: Invalid range - expected [start, end] line numbers"),
        ({"path": "README.md", "range": [1, 2, 3]}, "Error 400: Invalid range - expected [start, end] line numbers"),
        ({"path": "README.md", "range": "1-2"}, "Error 400: Invalid range - expected [start, end] line numbers"),
        ({"path": "README.md", "range": ["1", "2"]}, "Error 400: Invalid range - expected [start, end] line numbers"),
        ({"path": "README.md", "max_bytes": 0}, "Error 400: max_bytes must be a whole number, at least 1"),
        ({"path": "README.md", "max_bytes": 1.5}, "Error 400: max_bytes must be a whole number, at least 1"),
        ({"path": 5}, "Error 400: Invalid parameters: path must be string"),
        ({"path": "README.md", "max_bytes": "5"}, "Error 400: Invalid parameters: max_bytes must be number"),
    ],
)
def test_what_read_refuses(still: Brain, args: dict[str, Any], said: str) -> None:
    assert still.refused("read", **args) == said


BAD_PATHS = [
    "/README.md", "../x.md", "projects/../../x.md", "..", ".", "./README.md", "a//b.md", "a/", "a\x00.md", "a\n.md",
    "a\\b.md", ".git/config", "projects/.hidden.md", ".trash/x.md", "x" * 300, "a/" * 4000 + "b",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_cannot_be_is_refused_everywhere(still: Brain, path: str) -> None:
    for tool, args in (("read", {}), ("write", {"content": "x"}), ("edit", {"delete": True})):
        said = still.refused(tool, path=path, **args)
        assert said.startswith("Error 400: Invalid path ") and len(said) < 2000
    assert still.refused("edit", path="README.md", new_path=path).startswith("Error 400: Invalid new_path ")


def test_dots_within_a_name_are_a_name(brain: Brain) -> None:
    assert brain("write", path="notes..md", content="x") == "Successfully wrote 1 bytes to notes..md"
    assert brain("read", path="notes..md") == "x"


def test_only_a_whole_read_is_bound_to_ten_megabytes(brain: Brain, root: Path) -> None:
    (root / "big.md").write_bytes(b"line\n" * (2 * MB + 1))
    said = brain.refused("read", path="big.md")
    assert said.startswith("Error 413: File exceeds the 10MB read limit")
    assert brain("read", path="big.md", range=[2, 3]) == "line\nline"
    assert brain("read", path="big.md", max_bytes=7) == "line\nli"
    (root / "fits.md").write_bytes(b"x" * 10 * MB)
    assert len(brain("read", path="fits.md")) == 10 * MB


def test_text_that_is_not_utf_8_is_shown_and_not_edited(brain: Brain, root: Path) -> None:
    (root / "latin.md").write_bytes(b"caf\xe9\n")
    assert brain("read", path="latin.md") == "caf\ufffd\n"
    assert brain.refused("edit", path="latin.md", old_str="caf", new_str="x").startswith("Error 400: ")
    assert (root / "latin.md").read_bytes() == b"caf\xe9\n"


# ---- write --------------------------------------------------------------------------------------------


def test_write_makes_and_replaces_and_counts_bytes(brain: Brain, root: Path) -> None:
    path = "resources/new/deep/日.txt"
    assert brain("write", path=path, content="日本\n") == f"Successfully wrote 7 bytes to {path}"
    assert brain("write", path=path, content="") == f"Successfully wrote 0 bytes to {path}"
    assert (root / path).read_bytes() == b""
    assert brain("write", path=path, content="a\r\nb") and (root / path).read_bytes() == b"a\r\nb"


def test_write_takes_a_mebibyte_and_no_byte_more(brain: Brain, root: Path) -> None:
    assert brain("write", path="big.md", content="é" * (MB // 2)) == f"Successfully wrote {MB} bytes to big.md"
    assert brain.refused("write", path="big.md", content="x" * (MB + 1)) == "Error 413: Content exceeds 1MB limit"
    assert (root / "big.md").stat().st_size == MB


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"path": "x.md"}, "Error 400: Invalid parameters: content is required"),
        ({"path": "x.md", "content": 5}, "Error 400: Invalid parameters: content must be string"),
        ({"path": "x.md", "content": None}, "Error 400: Invalid parameters: content must be string"),
        ({"path": "x.md", "content": "\ud800"}, "Error 400: Invalid parameters: content holds a lone surrogate"),
        ({"content": "x"}, "Error 400: path parameter is required and cannot be empty"),
        ({"path": "../x.md", "content": "x" * (MB + 1)}, "Error 400: Invalid path '../x.md'"),
        ({"path": "projects", "content": "x"}, "Error 409: Target path already exists: projects"),
    ],
)
def test_what_write_refuses(still: Brain, args: dict[str, Any], said: str) -> None:
    assert still.refused("write", **args).startswith(said)


def test_a_read_only_workspace_answers_403(workspace: Callable[..., Workspace]) -> None:
    brain = Brain(workspace({"a.md": "x", "in/b.md": "y"}, name="Brain", read_only=True))
    for tool, args in (("write", {"content": "y"}), ("edit", {"delete": True}), ("edit", {"new_path": "c.md"})):
        assert brain.refused(tool, path="a.md", **args).startswith("Error 403: ")
    bound = Brain(workspace({"a.md": "x"}, name="Bound", write_under=("in/**",), hide=("private/**",)))
    assert bound.refused("write", path="a.md", content="y").startswith("Error 403: ")
    assert bound.refused("write", path="private/a.md", content="y").startswith("Error 403: ")
    assert bound.refused("read", path="private/a.md") == "Error 404: File not found: private/a.md"
    assert bound("write", path="in/a.md", content="y")


# ---- edit ---------------------------------------------------------------------------------------------


def test_a_text_that_is_there_once_is_replaced(brain: Brain, root: Path) -> None:
    path = "projects/launch/plan.md"
    said = brain("edit", path=path, old_str="Launch date: TBD", new_str="Launch date: March 15, 2025")
    assert said == f"Successfully edited {path}"
    assert (root / path).read_text() == str(FILES[path]).replace("TBD", "March 15, 2025")
    assert brain("edit", path=path, old_str="# Plan\n\n", new_str="") == f"Successfully edited {path}"
    assert (root / path).read_text().startswith("## Timeline")


def test_nothing_in_the_new_text_is_special(brain: Brain, root: Path) -> None:
    brain("edit", path="projects/old.md", old_str="todo", new_str="$& $1 \\1 \\n {}")
    assert (root / "projects/old.md").read_text() == "aaa $& \\1 $& $1 \\1 \\n {}\n"


def test_a_file_is_moved_and_edited_on_the_way(brain: Brain, root: Path) -> None:
    path, new = "projects/launch/plan.md", "archives/2024/launch/plan.md"
    said = brain("edit", path=path, old_str="In Progress", new_str="Completed", new_path=new)
    assert said == f"Successfully moved {path} to {new}"
    assert not (root / path).exists() and "Status: Completed" in (root / new).read_text()
    assert brain("edit", path="projects/app/notes.md", new_path="n.md") == (
        "Successfully moved projects/app/notes.md to n.md"
    )
    assert (root / "n.md").read_text() == FILES["projects/app/notes.md"]
    assert brain("edit", path="resources/picture.png", new_path="p.png") == (
        "Successfully moved resources/picture.png to p.png"
    )
    assert (root / "p.png").read_bytes() == FILES["resources/picture.png"]


def test_a_move_rewrites_no_link_and_is_modified_now(brain: Brain, root: Path) -> None:
    (root / "linking.md").write_text("[[old]] and [x](projects/old.md)\n")
    os.utime(root / "projects/old.md", (1_000_000, 1_000_000))
    brain("edit", path="projects/old.md", new_path="projects/new.md")
    assert (root / "linking.md").read_text() == "[[old]] and [x](projects/old.md)\n"
    assert abs((root / "projects/new.md").stat().st_mtime - time.time()) < 60


def test_an_edit_with_a_move_that_is_refused_changes_nothing(brain: Brain, root: Path) -> None:
    edit = {"old_str": "TBD", "new_str": "now"}
    path = "projects/launch/plan.md"
    assert brain.refused("edit", path=path, new_path="README.md", **edit) == (
        "Error 409: Target path already exists: README.md"
    )
    assert brain.refused("edit", path=path, new_path=path, **edit) == f"Error 409: Target path already exists: {path}"
    assert brain.refused("edit", path=path, new_path="projects", **edit).startswith("Error 409: ")
    assert brain.refused("edit", path=path, new_path="new.md", old_str="nowhere", new_str="x").startswith("Error 400")
    assert (root / path).read_text() == FILES[path] and not (root / "new.md").exists()
    assert (root / "README.md").read_text() == FILES["README.md"]


def test_deleting_wins_over_everything_else(brain: Brain, root: Path) -> None:
    assert brain("edit", path="README.md", delete=True, old_str=5, new_path="../x", new_str=None) == (
        "Successfully deleted README.md"
    )
    assert not (root / "README.md").exists() and not (root / ".trash").exists()
    assert brain.refused("edit", path="README.md", delete=True) == "Error 404: File not found: README.md"
    assert brain("edit", path="projects/app/notes.md", delete=True)
    assert brain("edit", path="projects/old.md", delete=False, new_path="old.md") == (
        "Successfully moved projects/old.md to old.md"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"old_str": "nowhere", "new_str": "x"}, 'Error 400: String not found in file: "nowhere"'),
        ({"old_str": "aa", "new_str": "x"}, 'Error 400: String is not unique in file (appears 2 times): "aa"'),
        ({"old_str": "a", "new_str": "x"}, 'Error 400: String is not unique in file (appears 3 times): "a"'),
        ({"new_str": "x"}, "Error 400: old_str is required when new_str is provided"),
        ({"old_str": "aaa"}, "Error 400: new_str is required when old_str is provided"),
        ({"old_str": "aaa", "new_path": "b.md"}, "Error 400: new_str is required when old_str is provided"),
        ({"old_str": "", "new_str": "x"}, "Error 400: old_str cannot be empty"),
        ({}, "Error 400: No operation specified (provide old_str/new_str, new_path, or delete)"),
        ({"delete": False}, "Error 400: No operation specified (provide old_str/new_str, new_path, or delete)"),
        ({"path": "nope.md", "old_str": "a", "new_str": "b"}, "Error 404: File not found: nope.md"),
        ({"path": "nope.md", "new_path": "b.md"}, "Error 404: File not found: nope.md"),
        ({"path": "projects", "delete": True}, "Error 404: File not found: projects"),
        ({"new_path": ""}, "Error 400: new_path parameter is required and cannot be empty"),
        ({"old_str": 5, "new_str": "x"}, "Error 400: Invalid parameters: old_str must be string"),
        ({"delete": "yes"}, "Error 400: Invalid parameters: delete must be boolean"),
    ],
)
def test_what_edit_refuses(still: Brain, args: dict[str, Any], said: str) -> None:
    assert still.refused("edit", **{"path": "projects/old.md", **args}) == said
    assert still("read", path="projects/old.md") == FILES["projects/old.md"]


def test_an_edit_may_grow_a_file_to_ten_megabytes_and_no_further(brain: Brain, root: Path) -> None:
    (root / "big.md").write_bytes(b"x" * (10 * MB - 10) + b"END")
    time.sleep(0.2)  # what somebody else has just saved is not written over at once
    assert brain("edit", path="big.md", old_str="END", new_str="0123456789")
    assert (root / "big.md").stat().st_size == 10 * MB
    assert brain.refused("edit", path="big.md", old_str="0123456789", new_str="0" * 11).startswith("Error 413: ")
    assert brain.refused("edit", path="big.md", old_str="0123456789", new_str="0" * 11, new_path="b.md").startswith(
        "Error 413: "
    )
    assert (root / "big.md").stat().st_size == 10 * MB


def test_a_long_text_is_not_repeated_whole(still: Brain) -> None:
    said = still.refused("edit", path="README.md", old_str="z" * 1_000_000, new_str="x")
    assert said.startswith('Error 400: String not found in file: "zzz') and len(said) < 2000


def test_every_change_can_be_taken_back(brain: Brain, root: Path) -> None:
    brain("edit", path="projects/launch/plan.md", old_str="TBD", new_str="now", new_path="plan.md")
    (change,) = list_changes(brain.ws, ChangeQuery())
    undo(brain.ws, change.id)
    assert (root / "projects/launch/plan.md").read_text() == FILES["projects/launch/plan.md"]


# ---- glob ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.md", ["README.md"]),
        ("*", ["README.md"]),
        ("projects/**", ["projects/app/notes.md", "projects/launch/plan.md", "projects/old.md"]),
        ("projects/**/*.md", ["projects/app/notes.md", "projects/launch/plan.md", "projects/old.md"]),
        ("projects/*.md", ["projects/old.md"]),
        ("areas/health/*", ["areas/health/log.md"]),
        ("**/*n*s*", ["projects/app/notes.md"]),
        ("resources/*.{csv,png}", ["resources/data.csv", "resources/picture.png"]),
        ("projects/???.md", ["projects/old.md"]),
        ("projects/[a-z]ld.md", ["projects/old.md"]),
        ("projects/[!a-z]ld.md", []),
        ("readme.md", []),
        ("projects", []),
        (".git/**", []),
    ],
)
def test_glob_finds_files_by_path_and_case(still: Brain, pattern: str, found: list[str]) -> None:
    rows = still.rows("glob", pattern=pattern)
    assert sorted(row["path"] for row in rows) == found
    assert all(list(row) == ["path", "size", "modified"] for row in rows)


def test_everything_is_found_newest_first_in_pretty_json(still: Brain) -> None:
    text = still("glob", pattern="**")
    rows = json.loads(text)
    assert [row["path"] for row in rows] == sorted(FILES)
    assert rows[0] == {"path": "README.md", "size": 8, "modified": "2023-11-14T22:13:20Z"}
    assert text == json.dumps(rows, indent=2, ensure_ascii=False) and text.startswith('[\n  {\n    "path": "README.md"')
    assert still("glob", pattern="nothing*") == "[]"


def test_files_of_one_time_are_ordered_by_path(workspace: Callable[..., Workspace], tmp_path: Path) -> None:
    files = {f"{name}.md": "" for name in "cab"}
    write_files(tmp_path / "Brain", files)
    for name in files:
        os.utime(tmp_path / "Brain" / name, (1000, 1000))
    assert [row["path"] for row in Brain(workspace(name="Brain")).rows("glob", pattern="*")] == ["a.md", "b.md", "c.md"]


def test_more_than_was_asked_for_is_cut_and_said(still: Brain) -> None:
    answer = still.call("glob", pattern="**", max_results=2)
    assert len(json.loads(answer.text)) == 2 and answer.meta == {"truncated": True, "total": len(FILES)}
    assert still.call("glob", pattern="**", max_results=len(FILES)).meta is None
    answer = still.call("grep", pattern=".", max_matches=3)
    assert len(json.loads(answer.text)) == 3 and answer.meta is not None and answer.meta["total"] > 3


def test_no_more_than_a_thousand_are_ever_given(workspace: Callable[..., Workspace]) -> None:
    files: dict[str, str | bytes] = {f"{number}.md": "x" for number in range(1001)}
    brain = Brain(workspace({**files, "many.md": "line\n" * 1001}, name="Brain"))
    wait_for_texts(brain.ws, 60)
    for answer in (
        brain.call("glob", pattern="*", max_results=5000),
        brain.call("grep", pattern="line", max_matches=1e9),
    ):
        assert len(json.loads(answer.text)) == 1000 and answer.meta is not None
    assert len(brain.rows("glob", pattern="*")) == 100 and len(brain.rows("grep", pattern="line")) == 50


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"pattern": ""},
        {"pattern": "  "},
        {"pattern": "["},
        {"pattern": "{a"},
        {"pattern": 5},
        {"pattern": "*" * 2000},
        {"pattern": "{a,b}" * 20},
        {"pattern": "*", "max_results": 0},
        {"pattern": "*", "max_results": -1},
        {"pattern": "*", "max_results": 1.5},
        {"pattern": "*", "max_results": "5"},
        {"pattern": "*\ud800"},
    ],
)
def test_what_glob_refuses(still: Brain, args: dict[str, Any]) -> None:
    said = still.refused("glob", **args)
    assert said.startswith("Error 400: ") and len(said) < 2000


def test_what_is_wrong_with_a_pattern_is_said_by_its_kind(still: Brain) -> None:
    assert still.refused("glob", pattern="a[").startswith("Error 400: Invalid glob pattern: ")
    assert still.refused("grep", pattern="a[").startswith("Error 400: Invalid regex pattern: ")
    assert still.refused("grep", pattern="a", path="a[").startswith("Error 400: Invalid glob pattern: ")


# ---- grep ---------------------------------------------------------------------------------------------


def test_lines_are_found_whatever_their_case(still: Brain) -> None:
    assert still.rows("grep", pattern="api") == [
        {"path": "resources/crlf.md", "line": 2, "match": "API line"},
        {"path": "resources/data.csv", "line": 1, "match": "name,API"},
        {"path": "resources/data.csv", "line": 2, "match": "api,1"},
    ]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"pattern": "(?-i)API"}, [("resources/crlf.md", 2), ("resources/data.csv", 1)]),
        ({"pattern": "(?i)API"}, [("resources/crlf.md", 2), ("resources/data.csv", 1), ("resources/data.csv", 2)]),
        ({"pattern": "(?-i:a)pi,"}, [("resources/data.csv", 2)]),
        ({"pattern": "todo"}, [("areas/health/log.md", 2), ("projects/old.md", 1)]),
        ({"pattern": "todo", "path": "projects"}, [("projects/old.md", 1)]),
        ({"pattern": "todo", "path": "projects/"}, [("projects/old.md", 1)]),
        ({"pattern": "todo", "path": "projects/**"}, [("projects/old.md", 1)]),
        ({"pattern": "todo", "path": "project"}, []),
        ({"pattern": "todo", "path": "projects/*/*.md"}, []),
        ({"pattern": "todo", "path": "areas/health/log.md"}, [("areas/health/log.md", 2)]),
        ({"pattern": "todo", "path": ""}, [("areas/health/log.md", 2), ("projects/old.md", 1)]),
        ({"pattern": "todo", "path": "nowhere"}, []),
        ({"pattern": "^two$"}, [("projects/app/notes.md", 2)]),
        ({"pattern": "one.*two"}, []),
        ({"pattern": "(?<=o)ne|f(?!x)our"}, [("projects/app/notes.md", 1), ("projects/app/notes.md", 4)]),
        ({"pattern": "(a)\\1\\1"}, [("projects/old.md", 1)]),
        ({"pattern": "\\$&"}, [("projects/old.md", 1)]),
        ({"pattern": "日.語"}, [("areas/health/log.md", 1)]),
    ],
)
def test_where_and_how_grep_looks(still: Brain, args: dict[str, Any], found: list[tuple[str, int]]) -> None:
    assert [(row["path"], row["line"]) for row in still.rows("grep", **args)] == found


def test_context_is_the_lines_around_as_far_as_the_file_goes(still: Brain) -> None:
    (row,) = still.rows("grep", pattern="launch date", context_lines=2)
    assert row == {
        "path": "projects/launch/plan.md",
        "line": 5,
        "match": "Launch date: TBD",
        "context": ["## Timeline", "", "Launch date: TBD", "", "## Dependencies"],
    }
    assert list(row) == ["path", "line", "match", "context"]
    (row,) = still.rows("grep", pattern="^one$", context_lines=1)
    assert row["context"] == ["one", "two"]
    (row,) = still.rows("grep", pattern="^four$", context_lines=500)
    assert row["context"] == ["one", "two", "three", "four"]
    assert "context" not in still.rows("grep", pattern="^one$", context_lines=0)[0]


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"pattern": ""},
        {"pattern": "(?-i)"},
        {"pattern": "("},
        {"pattern": "[a"},
        {"pattern": "*x"},
        {"pattern": 5},
        {"pattern": "x", "path": "../x"},
        {"pattern": "x", "path": "/projects"},
        {"pattern": "x", "path": ".git"},
        {"pattern": "x", "path": "a\x00"},
        {"pattern": "x", "path": "["},
        {"pattern": "x", "path": "a/" * 5000},
        {"pattern": "x", "path": 5},
        {"pattern": "x", "max_matches": 0},
        {"pattern": "x", "max_matches": 2.5},
        {"pattern": "x", "context_lines": -1},
        {"pattern": "x", "context_lines": 0.5},
        {"pattern": "x\ud800"},
    ],
)
def test_what_grep_refuses(still: Brain, args: dict[str, Any]) -> None:
    said = still.refused("grep", **args)
    assert said.startswith("Error 400: ") and len(said) < 2000


def test_a_long_answer_is_cut_at_an_entry(workspace: Callable[..., Workspace]) -> None:
    brain = Brain(workspace({"a.md": ("x" * 2000 + "\n") * 1000}, name="Brain"))
    answer = brain.call("grep", pattern="x", max_matches=1000, context_lines=5)
    rows = json.loads(answer.text)
    assert 10 < len(rows) < 1000 and len(answer.text) <= MB
    assert answer.meta == {"truncated": True, "total": 1000}


# ---- limits -------------------------------------------------------------------------------------------


def test_calls_are_counted_in_three_windows(still: Brain) -> None:
    now = [0.0]
    brain = Brain(still.ws, surface(RateLimits(lambda: now[0])))
    for _ in range(100):
        brain.refused("read")  # what fails counts too
        now[0] += 0.125
    said = "Error 429: Rate limit exceeded: 100 tool calls per minute. Retry after 48 seconds."
    assert brain.refused("glob", pattern="*") == said
    assert brain.refused("grep", pattern="x") == said  # and what is refused for this does not
    now[0] = 60.0
    assert brain("glob", pattern="*")
    brain.user = "ben"
    assert brain("read", path="README.md")


def test_hours_and_days_are_held_too(still: Brain) -> None:
    now = [0.0]
    brain = Brain(still.ws, surface(RateLimits(lambda: now[0])))
    for _ in range(1000):
        brain.refused("read")
        now[0] += 1
    assert brain.refused("read") == (
        "Error 429: Rate limit exceeded: 1000 tool calls per hour. Retry after 2600 seconds."
    )
    now[0] = 3600.0
    for _ in range(9000):
        now[0] += 8
        brain.refused("read")
    assert brain.refused("read").startswith("Error 429: Rate limit exceeded: 10000 tool calls per day. Retry after ")


def test_over_http_the_status_says_it(still: Brain) -> None:
    now = [0.0]
    brain = Brain(still.ws, surface(RateLimits(lambda: now[0])))
    call = brain.caller("read", transport="http")
    for _ in range(100):
        perform(brain.surface, call, "read", {"path": "README.md"})
    now[0] = 18.5
    with pytest.raises(RpcError) as refused:
        perform(brain.surface, call, "read", {"path": "README.md"})
    error = refused.value
    assert (error.code, error.status, error.headers) == (-32004, 429, {"Retry-After": "42"})
    assert error.data == {"retryAfter": 42, "limit": 100, "window": "minute"}
    assert error.message == "Rate limit exceeded: 100 tool calls per minute. Retry after 42 seconds."


def test_an_unknown_tool_is_a_protocol_error_and_an_unknown_argument_nothing(still: Brain) -> None:
    with pytest.raises(RpcError) as refused:
        still.call("delete", path="README.md")
    assert refused.value.code == -32602
    assert still("read", path="README.md", colour="blue") == "# Brain\n"


# ---- quotas -------------------------------------------------------------------------------------------


def test_a_quota_of_files_is_judged_after_the_write(workspace: Callable[..., Workspace], tmp_path: Path) -> None:
    brain = Brain(workspace({"a.md": "x"}, name="Brain", quota_files=3))
    assert brain.call("write", path="b.md", content="x").meta is None
    assert brain.call("write", path="c.md", content="x").meta == {"warning": "Storage is 100% full"}
    assert brain.refused("write", path="d.md", content="x").startswith("Error 507: Storage quota exceeded (")
    assert not (tmp_path / "Brain/d.md").exists()
    assert brain("write", path="a.md", content="longer")  # overwriting adds no file
    assert brain("edit", path="a.md", new_path="moved.md")
    assert brain("edit", path="moved.md", delete=True)
    assert brain("write", path="d.md", content="x")


def test_a_quota_of_bytes_counts_what_is_added(workspace: Callable[..., Workspace]) -> None:
    brain = Brain(workspace({"a.md": "x" * 70}, name="Brain", quota_bytes=100))
    assert brain.refused("write", path="b.md", content="x" * 31).startswith("Error 507: Storage quota exceeded (")
    assert brain.refused("edit", path="a.md", old_str="x" * 70, new_str="y" * 101).startswith("Error 507: ")
    assert brain.refused("edit", path="a.md", old_str="x" * 70, new_str="y" * 101, new_path="b.md").startswith(
        "Error 507"
    )
    assert brain.call("write", path="b.md", content="x" * 9).meta is None
    assert brain.call("write", path="b.md", content="x" * 10).meta == {"warning": "Storage is 80% full"}
    assert brain.call("edit", path="a.md", old_str="x" * 70, new_str="y" * 80).meta == {
        "warning": "Storage is 90% full"
    }
    assert brain.call("edit", path="a.md", old_str="y" * 80, new_str="y").meta is None


# ---- prompts and resources ----------------------------------------------------------------------------


def test_three_prompts_carry_their_arguments(still: Brain) -> None:
    prompts = {prompt.name: prompt for prompt in SURFACE.prompts}
    assert {name: [(blank.name, blank.required) for blank in prompt.arguments] for name, prompt in prompts.items()} == {
        "capture-note": [("content", True), ("context", False), ("tags", False)],
        "weekly-review": [("focus_areas", False)],
        "research-summary": [("topic", True), ("output_location", False)],
    }
    call = still.caller()
    text = prompts["capture-note"].render(call, {"content": "Buy milk", "context": "shop", "tags": "home, food"})
    assert all(word in text for word in ("Buy milk", "shop", "home, food"))
    assert "Tags" not in prompts["capture-note"].render(call, {"content": "x"})
    assert "health" in prompts["weekly-review"].render(call, {"focus_areas": "health"})
    assert prompts["weekly-review"].render(call, {})
    text = prompts["research-summary"].render(call, {"topic": "tea", "output_location": "resources/tea.md"})
    assert "tea" in text and "resources/tea.md" in text


def test_files_are_resources(still: Brain) -> None:
    resources = SURFACE.resources
    assert resources is not None
    template, noted = resources.template, {"audience": ["user"]}
    assert (template["uriTemplate"], template["annotations"]) == ("file:///{path}", noted)
    found, after = resources.list(still.caller(), None)
    assert after is None and [one["uri"] for one in found] == [f"file:///{path}" for path in sorted(FILES)]
    assert all(one["annotations"].items() >= noted.items() and "size" in one for one in found)
    assert resources.read(still.caller(), "file:///areas/health/log.md")["text"] == FILES["areas/health/log.md"]
    picture = resources.read(still.caller(), "file:///resources/picture.png")
    assert base64.b64decode(picture["blob"]) == FILES["resources/picture.png"]
    for missing in ("file:///nope.md", "file:///../x", "note:///README.md", "file:///.git/config", "file:///"):
        with pytest.raises(errors.NotFound):
            resources.read(still.caller(), missing)


def test_names_in_uris_are_encoded(brain: Brain) -> None:
    brain("write", path="a b/日 100%.md", content="x")
    resources = SURFACE.resources
    assert resources is not None
    found, _ = resources.list(brain.caller(), None)
    uri = next(one["uri"] for one in found if "100" in one["uri"])
    assert uri == "file:///a%20b/%E6%97%A5%20100%25.md"
    assert resources.read(brain.caller(), uri)["text"] == "x"


def test_the_instructions_explain_para() -> None:
    assert all(word in SURFACE.instructions for word in ("PARA", "projects/", "areas/", "resources/", "archives/"))


# ---- bootstrap ----------------------------------------------------------------------------------------

PARA = ["README.md", *(f"{folder}/README.md" for folder in ("archives", "areas", "projects", "resources"))]


def opened(place: Path, **settings: Any) -> Workspace:
    (place / "Brain").mkdir(exist_ok=True)
    return open_folder(place / "Brain", place, **settings)


def files_in(place: Path) -> list[str]:
    return sorted(read_files(place / "Brain"))


def test_an_empty_workspace_is_laid_out_once(tmp_path: Path) -> None:
    ws = opened(tmp_path, bootstrap="para")
    assert sorted(row["path"] for row in Brain(ws).rows("glob", pattern="**")) == PARA == files_in(tmp_path)
    assert "PARA" not in Brain(ws)("read", path="projects/README.md")
    for path in PARA:
        Brain(ws)("edit", path=path, delete=True)
    close_workspace(ws)
    close_workspace(opened(tmp_path, bootstrap="para"))
    assert files_in(tmp_path) == []  # what people removed does not come back


@pytest.mark.parametrize(
    ("files", "settings"),
    [
        ({}, {}),
        ({"a.md": "x"}, {"bootstrap": "para"}),
        ({"deep/a.txt": "x"}, {"bootstrap": "para"}),
        ({}, {"bootstrap": "para", "read_only": True}),
    ],
)
def test_nothing_is_laid_out_elsewhere(tmp_path: Path, files: dict[str, str], settings: dict[str, Any]) -> None:
    write_files(tmp_path / "Brain", files)
    close_workspace(opened(tmp_path, **settings))
    assert files_in(tmp_path) == sorted(files)


def test_laying_out_can_be_taken_back(tmp_path: Path) -> None:
    ws = opened(tmp_path, bootstrap="para")
    (change,) = list_changes(ws, ChangeQuery())
    undo(ws, change.id)
    close_workspace(ws)
    assert files_in(tmp_path) == []


# ---- hostile ------------------------------------------------------------------------------------------


def test_many_matching_lines_with_context_take_no_time(workspace: Callable[..., Workspace]) -> None:
    brain = Brain(workspace({"long.md": "needle\n" * 1_000_000}, name="Brain"))
    wait_for_texts(brain.ws, 60)
    started = time.monotonic()
    answer = brain.call("grep", pattern="needle", max_matches=1000, context_lines=1)
    assert time.monotonic() - started < 5
    assert answer.meta == {"truncated": True, "total": 1_000_000}


@pytest.mark.parametrize("tool", ["read", "write", "edit", "glob", "grep"])
def test_huge_and_nested_arguments_are_refused_in_few_words(still: Brain, tool: str) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    schema = next(one.schema for one in SURFACE.tools if one.name == tool)
    for value in ("x" * 3_000_000, deep, {"a": deep}, -(10**400), float("nan")):
        for name in schema["properties"]:
            args = {"path": "nope.md", "content": "", "pattern": "x", name: value}
            if tool == "write" and name == "path" and isinstance(value, str):
                assert still.refused(tool, **args).startswith("Error 400")
            if tool != "write" or name != "path":
                answer = still.call(tool, **({"path": "../no"} | args if tool == "write" else args))
                assert len(answer.text) < 5000


def test_no_error_tells_a_path_of_the_machine(brain: Brain, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "Brain/out.md").symlink_to(tmp_path / "secret.md")
    for tool, args in (("read", {}), ("write", {"content": "x"}), ("edit", {"delete": True})):
        said = brain.refused(tool, path="out.md", **args)
        assert str(tmp_path) not in said
    assert (tmp_path / "secret.md").read_text() == "secret"
