"""Octarine: four tools, one envelope (contracts E)."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import open_folder, write_files
from tests.waiting import until

from notewright.accounts.limits import RateLimits
from notewright.app.opening import close_workspace
from notewright.config.octarine import Octarine
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.indexing.ready import wait_for_texts
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor, ChangeQuery
from notewright.surfaces.base import Answer, Call, RpcError, Surface
from notewright.surfaces.octarine.tools import surface
from notewright.surfaces.perform import perform

pytestmark = pytest.mark.slow  # its transcripts are quick

READ, WRITE, SEARCH, LIST = (
    "octarine_read_note",
    "octarine_write_note",
    "octarine_search_notes",
    "octarine_list_notes",
)
SURFACE = surface(None, Octarine())
DAY = 1_700_000_000  # 2023-11-14T22:13:20Z
root_only = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


class Agent:
    """Two workspaces and a client."""

    def __init__(self, workspaces: list[Workspace], asked: Surface = SURFACE) -> None:
        self.workspaces, self.surface = workspaces, asked

    def call(self, tool: str, /, **args: Any) -> Answer:
        return perform(
            self.surface, Call(Library.of(self.workspaces), Actor("ann", "desk", "octarine", tool)), tool, args
        )

    def data(self, tool: str, /, **args: Any) -> dict[str, Any]:
        """What a call that works gives."""
        answer = self.call(tool, **args)
        assert not answer.is_error, answer.text
        envelope = json.loads(str(answer.blocks[0]))
        assert list(envelope) == ["success", "data"] and envelope["success"] is True
        data: dict[str, Any] = envelope["data"]
        return data

    def refused(self, tool: str, /, **args: Any) -> tuple[str, dict[str, Any]]:
        """Code and details of one that does not."""
        answer = self.call(tool, **args)
        assert answer.is_error and len(answer.blocks) == 1, answer.text
        envelope = json.loads(answer.text)
        assert list(envelope) == ["success", "error", "code", "details"] and envelope["success"] is False
        return envelope["code"], envelope["details"]

    def wrong(self, tool: str, /, **args: Any) -> RpcError:
        with pytest.raises(RpcError) as refused:
            self.call(tool, **args)
        return refused.value


FILES = {
    "README.md": "# Work\n",
    "Projects/Q1-planning.md": "---\nowner: Ann\ncreated: 2024-01-10T14:30:00Z\n---\n# Q1\n\n"
    "The project planning session\nand more\nNext project planning milestone\n",
    "Projects/idea.md": "An idea, no project.\n",
    "Projects/deep/Notes.md": "日本 project\n",
    "image.png": b"\x89PNG\x00",
    ".gitignore": "x\n",
}


@pytest.fixture
def agent(workspace: Callable[..., Workspace]) -> Agent:
    work = workspace(FILES, name="Work")
    return Agent([work, workspace({"Diary.md": "Today: a Project.\n"}, name="Home")])


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """The same, for the tests that change nothing."""
    place, opened = tmp_path_factory.mktemp("still"), list[Workspace]()
    for name, files in (("Work", FILES), ("Home", {"Diary.md": "Today: a Project.\n"})):
        write_files(place / name, files)
        opened.append(open_folder(place / name, place))
    yield Agent(opened)
    for ws in opened:
        close_workspace(ws)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "Work"


def test_the_tools_are_four() -> None:
    assert [tool.name for tool in SURFACE.tools] == [READ, WRITE, SEARCH, LIST]
    assert sum(len(tool.schema["properties"]) for tool in SURFACE.tools) == 24
    assert sum(len(tool.schema["required"]) for tool in SURFACE.tools) == 7


# ---- read ---------------------------------------------------------------------------------------------


def test_a_note_is_read_whole_with_what_is_known_of_it(agent: Agent, work: Path) -> None:
    note = work / "Projects/Q1-planning.md"
    os.utime(note, (DAY, DAY))
    note.chmod(0o644)
    data = agent.data(READ, workspace="Work", note_path="Projects/Q1-planning.md")
    assert list(data) == ["content", "metadata", "encoding", "hash"]
    assert data["content"].encode() == note.read_bytes()
    assert data["hash"] == hashlib.sha256(note.read_bytes()).hexdigest() and data["encoding"] == "utf-8"
    assert data["metadata"] == {
        "size": note.stat().st_size,
        "created": "2024-01-10T14:30:00Z",
        "modified": "2023-11-14T22:13:20Z",
        "accessed": data["metadata"]["accessed"],
        "permissions": "rw-r--r--",
    }


def test_reading_and_writing_back_changes_no_byte(agent: Agent, work: Path) -> None:
    odd = "\ufeff---\r\na: 1\r\n---\r\ntext  \r\nlast".encode()
    (work / "Odd.md").write_bytes(odd)
    time.sleep(0.2)  # what somebody else has just saved is not written over at once
    content = agent.data(READ, workspace="Work", note_path="Odd.md")["content"]
    agent.data(WRITE, workspace="Work", note_path="Odd.md", content=content)
    assert (work / "Odd.md").read_bytes() == odd


def test_text_that_is_not_utf_8_is_shown_as_far_as_it_can_be(agent: Agent, work: Path) -> None:
    (work / "Latin.md").write_bytes(b"caf\xe9\n")
    data = agent.data(READ, workspace="Work", note_path="Latin.md")
    assert data["content"] == "caf\ufffd\n" and data["hash"] == hashlib.sha256(b"caf\xe9\n").hexdigest()


@pytest.mark.parametrize(
    "path", ["Nope.md", "readme.md", "README", "Projects", ".gitignore", ".git/config", "a/b/c.md"]
)
def test_a_note_that_is_not_there_is_not_found(still: Agent, path: str) -> None:
    code, details = still.refused(READ, workspace="Work", note_path=path)
    assert code == "NOTE_NOT_FOUND"
    assert (details["workspace"], details["path"]) == ("Work", path)


BAD_PATHS = {
    "": "",
    "/": "",
    "../Home/Diary.md": "Path traversal detected",
    "a/../../x.md": "Path traversal detected",
    "..": "Path traversal detected",
    "..\\x.md": "Path traversal detected",
    "a/./b.md": "",
    "./a.md": "",
    "a//b.md": "",
    "//server/share/x.md": "",
    "\\\\server\\share": "",
    "C:\\x.md": "",
    "C:/x.md": "",
    "c:x.md": "",
    "~/x.md": "",
    "~root/x.md": "",
    "~": "",
    "a\\b.md": "",
    "a\x00.md": "",
    "a\n.md": "",
    "a\x7f.md": "",
    "n" * 300 + ".md": "",
    "a/" * 3000 + "b.md": "",
    "Projects/": "",
    **{f"a{sign}.md": "" for sign in '<>:"|?*'},
}


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("tool", [READ, WRITE])
def test_a_path_that_cannot_be_is_refused_before_the_workspace_is_looked_for(
    still: Agent, tool: str, path: str
) -> None:
    args = {"content": "x"} if tool == WRITE else {}
    code, details = still.refused(tool, workspace="Nowhere", note_path=path, **args)
    assert code == "INVALID_NOTE_PATH"
    assert details["reason"] and len(json.dumps(details)) < 2000
    assert details["reason"] == (BAD_PATHS[path] or details["reason"])


def test_odd_names_that_are_no_trick_are_names(agent: Agent, work: Path) -> None:
    for name in ("notes..md", "~draft.md", "a b…ü.md", "100%2e%2e.md", "no extension"):
        agent.data(WRITE, workspace="Work", note_path=name, content=name)
        assert (work / name).read_text() == name
        assert agent.data(READ, workspace="Work", note_path=name)["content"] == name


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", "a\\b", "x\x00", "x\n", " x", "x ", ".x", "x.", *'<>:"|?*'])
@pytest.mark.parametrize("tool", [READ, SEARCH, LIST])
def test_a_name_that_no_workspace_can_have_is_invalid(still: Agent, tool: str, name: str) -> None:
    args = {READ: {"note_path": "a.md"}, SEARCH: {"query": "x"}, LIST: {}}[tool]
    assert still.refused(tool, workspace=name, **args)[0] == "INVALID_WORKSPACE_NAME"


@pytest.mark.parametrize("name", ["work", "WORK", "Elsewhere"])
def test_a_name_that_no_workspace_has_is_not_found(still: Agent, name: str) -> None:
    for tool, args in ((READ, {"note_path": "a.md"}), (SEARCH, {"query": "x"}), (LIST, {})):
        assert still.refused(tool, workspace=name, **args) == (
            "WORKSPACE_NOT_FOUND",
            {
                "workspace": name,
                **({"path": "a.md"} if tool == READ else {}),
                "reason": f"there is no workspace {name!r}",
            },
        )


def test_a_note_over_the_limit_is_not_read(workspace: Callable[..., Workspace]) -> None:
    ws = workspace({"Big.md": "x" * 101, "Fits.md": "x" * 100}, name="Work", max_file_size=100)
    assert agent_of(ws).refused(READ, workspace="Work", note_path="Big.md")[0] == "FILE_TOO_LARGE"
    assert agent_of(ws).data(READ, workspace="Work", note_path="Fits.md")["metadata"]["size"] == 100


def agent_of(*workspaces: Workspace, asked: Surface = SURFACE) -> Agent:
    return Agent(list(workspaces), asked)


@root_only
def test_what_the_system_does_not_let_be_read_is_denied(agent: Agent, work: Path) -> None:
    (work / "README.md").chmod(0)
    assert agent.refused(READ, workspace="Work", note_path="README.md")[0] == "PERMISSION_DENIED"


def test_no_error_tells_a_path_of_the_machine(agent: Agent, tmp_path: Path) -> None:
    for args in ({"note_path": "Nope.md"}, {"note_path": "../x"}, {"note_path": "README.md/x.md"}):
        assert str(tmp_path) not in agent.call(READ, workspace="Work", **args).text


# ---- symlinks -----------------------------------------------------------------------------------------


@pytest.fixture
def linked(agent: Agent, work: Path, tmp_path: Path) -> Agent:
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "outside").mkdir()
    (work / "link.md").symlink_to("README.md")
    (work / "whole.md").symlink_to(work / "README.md")
    (work / "broken.md").symlink_to("gone.md")
    (work / "out.md").symlink_to("../secret.md")
    (work / "way out").symlink_to("../outside")
    (work / "again").symlink_to("Projects")
    (work / "Projects/deep/loop").symlink_to("../..")
    (work / "round.md").symlink_to("round.md")
    return agent


def test_a_symlink_is_followed_as_far_as_the_workspace_goes(linked: Agent) -> None:
    assert linked.data(READ, workspace="Work", note_path="link.md")["content"] == "# Work\n"
    assert linked.data(READ, workspace="Work", note_path="again/idea.md")["content"] == "An idea, no project.\n"
    assert linked.refused(READ, workspace="Work", note_path="broken.md")[0] == "NOTE_NOT_FOUND"
    for path in ("out.md", "way out/x.md"):
        assert linked.refused(READ, workspace="Work", note_path=path) == (
            "INVALID_NOTE_PATH",
            {"workspace": "Work", "path": path, "reason": "Symlink leaves the workspace"},
        )
    assert linked.refused(LIST, workspace="Work", directory="way out")[0] == "INVALID_NOTE_PATH"


def test_nothing_is_written_through_a_symlink(linked: Agent, work: Path, tmp_path: Path) -> None:
    codes = {
        path: linked.refused(WRITE, workspace="Work", note_path=path, content="new")[0]
        for path in ("link.md", "broken.md", "out.md", "way out/x.md", "again/x.md")
    }
    assert codes == {
        "link.md": "PERMISSION_DENIED",
        "broken.md": "PERMISSION_DENIED",
        "out.md": "INVALID_NOTE_PATH",
        "way out/x.md": "INVALID_NOTE_PATH",
        "again/x.md": "PERMISSION_DENIED",
    }
    assert (tmp_path / "secret.md").read_text() == "secret" and not list((tmp_path / "outside").iterdir())
    assert (work / "README.md").read_text() == "# Work\n"
    assert [path.name for path in work.rglob("*") if path.name.startswith(".")] == [".gitignore"]


def test_symlinks_are_listed_as_what_they_are(linked: Agent) -> None:
    listed = {note["path"]: note for note in linked.data(LIST, workspace="Work")["notes"]}
    assert listed["link.md"] == {
        "path": "link.md",
        "type": "file",
        "size": 7,
        "modified": listed["README.md"]["modified"],
        "created": listed["README.md"]["created"],
        "isSymlink": True,
        "target": "README.md",
    }
    assert listed["whole.md"]["target"] == "README.md"
    assert listed["broken.md"] == {"path": "broken.md", "type": "file", "isSymlink": True, "target": "gone.md"}
    assert (listed["again"]["type"], listed["again"]["target"]) == ("directory", "Projects")
    assert "out.md" not in listed and "way out" not in listed


def test_a_symlink_that_runs_in_a_circle_is_not_there(linked: Agent, work: Path) -> None:
    (work / "ping").symlink_to("pong")
    (work / "pong").symlink_to("ping")
    for asked in ({}, {"recursive": True}, {"include_hidden": True}):
        listed = [note["path"] for note in linked.data(LIST, workspace="Work", **asked)["notes"]]
        assert not {"round.md", "ping", "pong"} & set(listed)
    for path in ("round.md", "ping", "ping/x.md", "round.md/x.md"):
        assert linked.refused(READ, workspace="Work", note_path=path)[0] == "NOTE_NOT_FOUND"
        assert linked.refused(WRITE, workspace="Work", note_path=path, content="new")[0] == "PERMISSION_DENIED"
    assert linked.refused(LIST, workspace="Work", directory="ping")[0] == "NOTE_NOT_FOUND"


def test_a_recursive_listing_enters_symlinks_and_no_loop(linked: Agent) -> None:
    listed = [note["path"] for note in linked.data(LIST, workspace="Work", recursive=True)["notes"]]
    assert "again/idea.md" in listed and "again/deep/Notes.md" in listed and "Projects/deep/loop" in listed
    assert not [path for path in listed if "loop/" in path]
    assert len(listed) == len(set(listed))


# ---- write --------------------------------------------------------------------------------------------


def test_a_note_that_was_there_keeps_its_time_of_creation_when_it_is_updated(agent: Agent, work: Path) -> None:
    os.utime(work / "README.md", (DAY, DAY))
    for text in ("once", "twice"):
        agent.data("octarine_write_note", workspace="Work", note_path="README.md", content=text)
        times = agent.data("octarine_read_note", workspace="Work", note_path="README.md")["metadata"]
        assert times["created"] == "2023-11-14T22:13:20Z" < times["modified"]


def test_a_new_note_is_created_with_its_folders(agent: Agent, work: Path) -> None:
    data = agent.data(WRITE, workspace="Work", note_path="Ideas/new/feature.md", content="日本\n")
    assert data == {
        "path": "Ideas/new/feature.md",
        "operation": "created",
        "size": 7,
        "hash": hashlib.sha256("日本\n".encode()).hexdigest(),
    }
    assert list(data) == ["path", "operation", "size", "hash"]
    assert (work / "Ideas/new/feature.md").read_text() == "日本\n"


def test_an_update_keeps_the_old_bytes_beside(agent: Agent, work: Path) -> None:
    clocked = [replace(ws, clock=lambda: DAY) for ws in agent.workspaces]
    agent = Agent(clocked)
    backups = [
        agent.data(WRITE, workspace="Work", note_path="/Projects/idea.md", content=text)["backup"]
        for text in ("one", "two", "two", "three")
    ]
    assert backups == [
        "Projects/.backups/idea.2023-11-14T22-13-20.md",
        "Projects/.backups/idea.2023-11-14T22-13-20-1.md",
        "Projects/.backups/idea.2023-11-14T22-13-20-2.md",
        "Projects/.backups/idea.2023-11-14T22-13-20-3.md",
    ]
    assert [(work / backup).read_text() for backup in backups] == ["An idea, no project.\n", "one", "two", "two"]
    root = agent.data(WRITE, workspace="Work", note_path="README.md", content="")
    assert (root["backup"], root["operation"], root["size"]) == (".backups/README.2023-11-14T22-13-20.md", "updated", 0)
    assert agent.data(READ, workspace="Work", note_path=root["backup"])["content"] == "# Work\n"
    assert (work / "README.md").read_bytes() == b""


def test_a_name_as_long_as_can_be_is_backed_up_too(agent: Agent, work: Path) -> None:
    name = "é" * 126 + ".md"
    agent.data(WRITE, workspace="Work", note_path=name, content="old")
    backup = agent.data(WRITE, workspace="Work", note_path=name, content="new")["backup"]
    assert (work / backup).read_text() == "old" and (work / name).read_text() == "new"


def test_writers_at_once_lose_nothing(agent: Agent, work: Path) -> None:
    texts = [f"text {number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: agent.data(WRITE, workspace="Work", note_path="README.md", content=text), texts))
    kept = [backup.read_text() for backup in (work / ".backups").iterdir()]
    assert sorted([*kept, (work / "README.md").read_text()]) == sorted(["# Work\n", *texts])


def test_an_update_with_its_copy_is_taken_back_as_one(agent: Agent, work: Path) -> None:
    backup = agent.data(WRITE, workspace="Work", note_path="README.md", content="new")["backup"]
    (change,) = list_changes(agent.workspaces[0], ChangeQuery())
    undo(agent.workspaces[0], change.id)
    assert (work / "README.md").read_text() == "# Work\n" and not (work / backup).exists()


def test_overwrite_false_leaves_what_is_there(agent: Agent, work: Path) -> None:
    code, details = agent.refused(WRITE, workspace="Work", note_path="README.md", content="new", overwrite=False)
    assert (code, details) == ("IO_ERROR", {"workspace": "Work", "path": "README.md", "reason": "EEXIST"})
    assert (work / "README.md").read_text() == "# Work\n" and not (work / ".backups").exists()
    assert (
        agent.data(WRITE, workspace="Work", note_path="New.md", content="", overwrite=False)["operation"] == "created"
    )


def test_create_dirs_false_makes_no_folder(agent: Agent, work: Path) -> None:
    refused = agent.refused(WRITE, workspace="Work", note_path="New/a.md", content="x", create_dirs=False)
    assert refused == ("IO_ERROR", {"workspace": "Work", "path": "New/a.md", "reason": "ENOENT"})
    assert not (work / "New").exists()
    for path in ("a.md", "Projects/a.md"):
        agent.data(WRITE, workspace="Work", note_path=path, content="x", create_dirs=False)


@pytest.mark.parametrize("atomic", [True, False])
def test_a_write_leaves_nothing_beside(agent: Agent, work: Path, atomic: bool) -> None:
    agent.data(WRITE, workspace="Work", note_path="README.md", content="new", atomic=atomic)
    assert (work / "README.md").read_text() == "new"
    assert len(list((work / ".backups").iterdir())) == 1


def test_a_folder_is_no_note_to_write(still: Agent) -> None:
    assert still.refused(WRITE, workspace="Work", note_path="Projects", content="x")[1]["reason"] == "EISDIR"
    assert still.refused(WRITE, workspace="Work", note_path="README.md/x.md", content="x")[0] == "IO_ERROR"


@pytest.mark.parametrize("path", [".hidden.md", ".git/config", "Projects/.backups/x.md"])
def test_hidden_places_are_never_written(still: Agent, path: str) -> None:
    assert still.refused(WRITE, workspace="Work", note_path=path, content="x")[0] == "INVALID_NOTE_PATH"


@pytest.mark.parametrize("content", ["a\x00b", "a\ud800", 5, None, ["x"]])
def test_content_that_is_no_text_is_invalid(still: Agent, content: Any) -> None:
    assert still.refused(WRITE, workspace="Work", note_path="a.md", content=content)[0] == "INVALID_CONTENT"


def test_content_over_the_limit_is_too_large(workspace: Callable[..., Workspace]) -> None:
    agent = agent_of(workspace({}, name="Work", max_file_size=10))
    assert agent.refused(WRITE, workspace="Work", note_path="a.md", content="日本語語")[0] == "FILE_TOO_LARGE"
    assert agent.data(WRITE, workspace="Work", note_path="a.md", content="日本語x")["size"] == 10


def test_a_read_only_workspace_says_so_before_it_measures(workspace: Callable[..., Workspace]) -> None:
    agent = agent_of(workspace({"a.md": "x"}, name="Work", read_only=True, max_file_size=10))
    assert agent.refused(WRITE, workspace="Work", note_path="a.md", content="x" * 11)[0] == "WORKSPACE_READ_ONLY"
    assert agent.refused(WRITE, workspace="Work", note_path="../a.md", content="x")[0] == "INVALID_NOTE_PATH"
    assert agent.refused(WRITE, workspace="Work", note_path="a.md", content="\0")[0] == "INVALID_CONTENT"


def test_paths_agents_may_not_write_are_read_only(workspace: Callable[..., Workspace]) -> None:
    agent = agent_of(
        workspace({"a.md": "x", "Private/p.md": "x"}, name="Work", write_under=("In/**",), hide=("Private/**",))
    )
    for path in ("a.md", "Private/p.md", "Private/new.md"):
        assert agent.refused(WRITE, workspace="Work", note_path=path, content="x")[0] == "WORKSPACE_READ_ONLY"
    assert agent.data(WRITE, workspace="Work", note_path="In/a.md", content="x")["operation"] == "created"


@root_only
def test_a_folder_that_takes_no_files_is_denied(agent: Agent, work: Path) -> None:
    (work / "Projects").chmod(0o555)
    refused = agent.refused(WRITE, workspace="Work", note_path="Projects/new.md", content="x")[0]
    (work / "Projects").chmod(0o755)
    assert refused == "PERMISSION_DENIED"


def test_a_note_that_is_not_utf_8_is_not_written_over(agent: Agent, work: Path) -> None:
    (work / "Latin.md").write_bytes(b"caf\xe9")
    assert agent.refused(WRITE, workspace="Work", note_path="Latin.md", content="x")[0] == "INVALID_CONTENT"
    assert (work / "Latin.md").read_bytes() == b"caf\xe9"


def test_a_full_quota_is_an_io_error(workspace: Callable[..., Workspace]) -> None:
    agent = agent_of(workspace({"a.md": "x"}, name="Work", quota_files=1))
    agent.data(SEARCH, query="")  # the index has seen it
    assert agent.refused(WRITE, workspace="Work", note_path="b.md", content="x")[1]["reason"] == "EDQUOT"


# ---- search -------------------------------------------------------------------------------------------


def test_matches_are_shown_with_their_places(still: Agent) -> None:
    data = still.data(SEARCH, query="project planning", workspace="Work")
    assert list(data) == ["results", "totalResults", "totalMatches", "query", "executionTime", "hasMore"]
    (found,) = data["results"]
    assert list(found) == ["workspace", "path", "matches", "preview", "score", "highlights", "metadata"]
    assert (found["workspace"], found["path"], found["matches"]) == ("Work", "Projects/Q1-planning.md", 2)
    assert found["highlights"] == [
        {"line": 7, "column": 4, "length": 16, "context": "The project planning session"},
        {"line": 9, "column": 5, "length": 16, "context": "Next project planning milestone"},
    ]
    assert "project planning session and more" in found["preview"]
    assert found["metadata"]["created"] == "2024-01-10T14:30:00Z"
    assert list(found["metadata"]) == ["size", "modified", "created"]
    totals = (data["totalResults"], data["totalMatches"], data["query"], data["hasMore"])
    assert totals == (1, 2, "project planning", False)
    assert isinstance(data["executionTime"], int)


def test_all_workspaces_are_searched_unless_one_is_named(still: Agent) -> None:
    for args in ({}, {"workspace": None}):
        found = still.data(SEARCH, query="project", **args)
        assert {(one["workspace"], one["path"]) for one in found["results"]} == {
            ("Work", "Projects/Q1-planning.md"),
            ("Work", "Projects/idea.md"),
            ("Work", "Projects/deep/Notes.md"),
            ("Home", "Diary.md"),
        }
        assert (found["totalResults"], found["totalMatches"]) == (4, 5)
    assert still.data(SEARCH, query="project", workspace="Home")["totalResults"] == 1


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"query": "PROJECT"}, 4),
        ({"query": "Project", "case_sensitive": True}, 1),
        ({"query": "plan", "whole_word": True}, 0),
        ({"query": "planning", "whole_word": True}, 1),
        ({"query": "project.", "whole_word": False}, 2),
        ({"query": "plan.*g|IDEA", "regex": True}, 2),
        ({"query": "plan.*g|IDEA", "regex": True, "case_sensitive": True}, 1),
        ({"query": "owner: ann"}, 1),
        ({"query": "plan.*g"}, 0),
        ({"query": "(?<name>日)本", "regex": True}, 1),
        ({"query": "\\u65e5", "regex": True}, 1),
        ({"query": "[^]project", "regex": True}, 4),
        ({"query": "project(?= planning)", "regex": True}, 1),
        ({"query": "^# Work\\n$", "regex": True}, 1),
        ({"query": "a\\/b|Diary\\/", "regex": True}, 0),
    ],
)
def test_how_the_query_is_read(still: Agent, args: dict[str, Any], found: int) -> None:
    data = still.data(SEARCH, **args)
    assert data["totalResults"] == found
    assert all(len(one["highlights"]) == one["matches"] > 0 for one in data["results"])


def test_an_empty_query_is_every_note(still: Agent) -> None:
    data = still.data(SEARCH, query="")
    assert (data["totalResults"], data["totalMatches"]) == (5, 0)
    shown = {one["path"]: one for one in data["results"]}
    assert {(one["matches"], one["score"], len(one["highlights"])) for one in shown.values()} == {(0, 0, 0)}
    assert shown["README.md"]["preview"] == "# Work"


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"query": 5},
        {"query": None},
        {"query": " \n\t"},
        {"query": "", "regex": True},
        {"query": "x\ud800"},
        {"query": "x" * 20_000},
        *({"query": bad, "regex": True} for bad in ("(", "[a", "a{2,1}", "(?P<n>x)", "(?#c)x", "(?i)x", "*a", "\\")),
    ],
)
def test_a_query_that_cannot_be_is_invalid(still: Agent, args: dict[str, Any]) -> None:
    assert still.refused(SEARCH, workspace="Nowhere", **args)[0] == "INVALID_QUERY"


def test_the_score_rises_with_matches_and_earliness_and_the_name(workspace: Callable[..., Workspace]) -> None:
    filler = "word " * 100
    ws = workspace(
        {
            "often.md": f"{filler} tea tea tea {filler}",
            "early.md": f"tea {filler} {filler}",
            "late.md": f"{filler} {filler} tea",
            "tea.md": f"{filler} {filler} tea",
        },
        name="Work",
    )
    results = agent_of(ws).data(SEARCH, query="tea")["results"]
    scores = {one["path"]: one["score"] for one in results}
    assert scores["often.md"] > scores["early.md"] * 0.9 and scores["early.md"] > scores["late.md"] < scores["tea.md"]
    assert [one["score"] for one in results] == sorted(scores.values(), reverse=True)
    assert all(0 < score <= 100 and score == round(score, 1) for score in scores.values())


def test_results_are_ordered_as_asked(agent: Agent, work: Path, tmp_path: Path) -> None:
    for place, at in (("Projects/idea.md", 300), ("Projects/deep/Notes.md", 200), ("Projects/Q1-planning.md", 100)):
        os.utime(work / place, (at, at))
    os.utime(tmp_path / "Home/Diary.md", (250, 250))
    wanted = ["Projects/idea.md", "Diary.md", "Projects/deep/Notes.md", "Projects/Q1-planning.md"]
    until(lambda: paths_of(agent, "modified") == wanted, 10)  # the new times are seen
    assert paths_of(agent, "created") == [
        "Projects/Q1-planning.md",
        "Projects/idea.md",
        "Diary.md",
        "Projects/deep/Notes.md",
    ]
    assert paths_of(agent, "path") == [
        "Diary.md",
        "Projects/Q1-planning.md",
        "Projects/deep/Notes.md",
        "Projects/idea.md",
    ]


def paths_of(agent: Agent, order: str) -> list[str]:
    return [one["path"] for one in agent.data(SEARCH, query="project", sort_by=order)["results"]]


def test_pages_follow_each_other(still: Agent) -> None:
    everything = still.data(SEARCH, query="project")["results"]
    pages = [still.data(SEARCH, query="project", limit=3, offset=offset) for offset in (0, 3, 6)]
    assert [one for page in pages for one in page["results"]] == everything
    assert [page["hasMore"] for page in pages] == [True, False, False]
    assert {(page["totalResults"], page["totalMatches"]) for page in pages} == {(4, 5)}


def test_the_preview_and_the_context_are_cut_around_the_match(workspace: Callable[..., Workspace]) -> None:
    ws = workspace({"a.md": "x " * 300 + "needle" + " y" * 300, "b.md": "   needle in a line\t \r\nnext"}, name="Work")
    first, second = agent_of(ws).data(SEARCH, query="needle", sort_by="path")["results"]
    assert first["preview"].startswith("...x") and first["preview"].endswith("y...") and "needle" in first["preview"]
    assert 150 <= len(first["preview"]) <= 206
    (place,) = first["highlights"]
    assert (place["line"], place["column"]) == (1, 600)
    assert place["context"].startswith("...x") and place["context"].endswith("y...") and "needle" in place["context"]
    assert len(place["context"]) <= 106
    assert second["preview"] == "needle in a line next"
    assert second["highlights"] == [{"line": 1, "column": 3, "length": 6, "context": "needle in a line"}]


def test_without_content_the_places_stay(still: Agent) -> None:
    for one in still.data(SEARCH, query="project", include_content=False)["results"]:
        assert one["preview"] == "" and one["highlights"]
        assert all(place["context"] == "" and place["length"] == 7 for place in one["highlights"])


def test_columns_and_lengths_are_characters(still: Agent) -> None:
    (one,) = still.data(SEARCH, query="project", workspace="Work", sort_by="path", offset=1, limit=1)["results"]
    assert one["highlights"] == [{"line": 1, "column": 3, "length": 7, "context": "日本 project"}]


def test_hidden_notes_are_never_found(workspace: Callable[..., Workspace]) -> None:
    files = {"a.md": "tea", ".hidden.md": "tea", ".backups/a.md": "tea", "Private/p.md": "tea"}
    agent = agent_of(workspace(files, name="Work", hide=("Private/**",)))
    assert [one["path"] for one in agent.data(SEARCH, query="tea")["results"]] == ["a.md"]
    assert agent.refused(READ, workspace="Work", note_path="Private/p.md")[0] == "NOTE_NOT_FOUND"


def test_a_write_is_found_by_the_next_search_and_its_backup_never(agent: Agent) -> None:
    agent.data(WRITE, workspace="Work", note_path="README.md", content="zebra")
    assert agent.data(SEARCH, query="zebra")["totalResults"] == 1
    assert agent.data(SEARCH, query="# Work")["totalResults"] == 0


def test_highlights_beyond_a_mebibyte_are_cut_and_said_so(workspace: Callable[..., Workspace]) -> None:
    ws = workspace({f"{name}.md": "needle " * 8000 for name in "abc"}, name="Work")
    answer = agent_of(ws).call(SEARCH, query="needle", sort_by="path")
    results = json.loads(str(answer.blocks[0]))["data"]["results"]
    assert [one["matches"] for one in results] == [8000] * 3
    assert len(results[0]["highlights"]) > 5000 and len(results[2]["highlights"]) == 1
    assert answer.meta == {"truncated": True} and str(answer.blocks[1]).startswith("Cut: ")
    assert len(str(answer.blocks[0])) < 2 << 20


# ---- list ---------------------------------------------------------------------------------------------


def test_a_folder_is_listed_with_its_files_and_folders(agent: Agent, work: Path) -> None:
    for place in ("README.md", "image.png", "Projects"):
        os.utime(work / place, (DAY, DAY))
    data = agent.data(LIST, workspace="Work")
    at = {"modified": "2023-11-14T22:13:20Z", "created": "2023-11-14T22:13:20Z"}
    assert data == {
        "notes": [
            {"path": "image.png", "type": "file", "size": 5, **at},
            {"path": "Projects", "type": "directory", "modified": "2023-11-14T22:13:20Z"},
            {"path": "README.md", "type": "file", "size": 7, **at},
        ],
        "directory": "",
        "totalFiles": 2,
        "totalDirectories": 1,
        "totalSize": 12,
    }
    assert list(data) == ["notes", "directory", "totalFiles", "totalDirectories", "totalSize"]


@pytest.mark.parametrize(
    ("args", "listed"),
    [
        ({"directory": "Projects"}, ["Projects/deep", "Projects/idea.md", "Projects/Q1-planning.md"]),
        ({"directory": "/Projects/deep/"}, ["Projects/deep/Notes.md"]),
        ({"directory": "/", "filter": "*.md"}, ["README.md"]),
        ({"recursive": True, "filter": "*.md"},
         ["Projects/idea.md", "Projects/deep/Notes.md", "Projects/Q1-planning.md", "README.md"]),
        ({"recursive": True, "filter": "**/*.md", "directory": "Projects"},
         ["Projects/idea.md", "Projects/deep/Notes.md", "Projects/Q1-planning.md"]),
        ({"recursive": True, "filter": "deep/*", "directory": "Projects"}, ["Projects/deep/Notes.md"]),
        ({"recursive": True, "filter": "Projects/*.md"}, ["Projects/idea.md", "Projects/Q1-planning.md"]),
        ({"recursive": True, "filter": "{deep,Pro*}"}, ["Projects/deep", "Projects"]),
        ({"filter": None}, ["image.png", "Projects", "README.md"]),
        ({"include_hidden": True}, [".gitignore", "image.png", "Projects", "README.md"]),
        ({"sort_order": "desc"}, ["README.md", "Projects", "image.png"]),
        ({"sort_by": "size"}, ["Projects", "image.png", "README.md"]),
        ({"sort_by": "size", "sort_order": "desc"}, ["README.md", "image.png", "Projects"]),
        ({"filter": "nothing*"}, []),
    ],
)  # fmt: skip
def test_what_is_listed_and_in_which_order(still: Agent, args: dict[str, Any], listed: list[str]) -> None:
    data = still.data(LIST, workspace="Work", **args)
    assert [note["path"] for note in data["notes"]] == listed
    assert data["directory"] == args.get("directory", "").strip("/")
    files = [note for note in data["notes"] if note["type"] == "file"]
    assert (data["totalFiles"], data["totalDirectories"]) == (len(files), len(listed) - len(files))
    assert data["totalSize"] == sum(note["size"] for note in files)


def test_lists_by_time_put_ties_by_path(agent: Agent, work: Path) -> None:
    for place, at in (("README.md", 100), ("image.png", 200), ("Projects", 100)):
        os.utime(work / place, (at, at))
    for order, wanted in (
        ("asc", ["Projects", "README.md", "image.png"]),
        ("desc", ["image.png", "Projects", "README.md"]),
    ):
        for by in ("modified", "created"):
            notes = agent.data(LIST, workspace="Work", sort_by=by, sort_order=order)["notes"]
            assert [note["path"] for note in notes] == wanted


def test_an_empty_workspace_is_an_empty_list(workspace: Callable[..., Workspace]) -> None:
    assert agent_of(workspace({}, name="Work")).data(LIST, workspace="Work", recursive=True) == {
        "notes": [], "directory": "", "totalFiles": 0, "totalDirectories": 0, "totalSize": 0,
    }  # fmt: skip


def test_backups_show_only_with_the_hidden(agent: Agent) -> None:
    agent.data(WRITE, workspace="Work", note_path="README.md", content="new")
    plain = [note["path"] for note in agent.data(LIST, workspace="Work", recursive=True)["notes"]]
    assert not [path for path in plain if path.startswith(".")]
    hidden = agent.data(LIST, workspace="Work", recursive=True, include_hidden=True)["notes"]
    assert [note["path"] for note in hidden if note["path"].startswith(".backups/README.")]
    assert agent.refused(LIST, workspace="Work", directory=".backups")[0] == "NOTE_NOT_FOUND"
    assert agent.data(LIST, workspace="Work", directory=".backups", include_hidden=True)["totalFiles"] == 1


def test_what_is_hidden_by_rule_is_in_no_list(workspace: Callable[..., Workspace]) -> None:
    files = {"a.md": "x", "Private/p.md": "x", "Private/.backups/p.md": "x", ".x/Private/q.md": "x"}
    agent = agent_of(workspace(files, name="Work", hide=("Private/**",)))
    listed = [note["path"] for note in agent.data(LIST, workspace="Work", recursive=True, include_hidden=True)["notes"]]
    assert listed == [".x", "a.md"]
    for args in ({}, {"include_hidden": True}):
        assert agent.refused(LIST, workspace="Work", directory="Private", **args)[0] == "NOTE_NOT_FOUND"
    assert agent.refused(READ, workspace="Work", note_path="Private/.backups/p.md")[0] == "NOTE_NOT_FOUND"


@pytest.mark.parametrize(
    ("directory", "code"),
    [
        ("Nope", "NOTE_NOT_FOUND"),
        ("projects", "NOTE_NOT_FOUND"),
        ("README.md", "INVALID_NOTE_PATH"),
        ("../Home", "INVALID_NOTE_PATH"),
        ("//x", "INVALID_NOTE_PATH"),
        ("a\x00", "INVALID_NOTE_PATH"),
        ("a\ud800", "INVALID_NOTE_PATH"),
        ("~/x", "INVALID_NOTE_PATH"),
    ],
)
def test_a_folder_that_cannot_be_listed(still: Agent, directory: str, code: str) -> None:
    assert still.refused(LIST, workspace="Work", directory=directory)[0] == code


@root_only
def test_a_folder_below_that_may_not_be_read_stays_closed(agent: Agent, work: Path) -> None:
    (work / "Projects/deep").chmod(0)
    data = agent.data(LIST, workspace="Work", recursive=True)
    refused = agent.refused(LIST, workspace="Work", directory="Projects/deep")[0]
    (work / "Projects/deep").chmod(0o755)
    assert "Projects/deep" in [note["path"] for note in data["notes"]] and data["totalFiles"] == 4
    assert refused == "PERMISSION_DENIED"


def test_a_list_beyond_a_mebibyte_is_cut_at_an_entry(workspace: Callable[..., Workspace]) -> None:
    ws = workspace({f"{number:04}{'n' * 200}.md": "" for number in range(4000)}, name="Work")
    answer = agent_of(ws).call(LIST, workspace="Work")
    data = json.loads(str(answer.blocks[0]))["data"]
    assert data["totalFiles"] == 4000 and 3000 < len(data["notes"]) < 4000
    assert answer.meta == {"truncated": True, "total": 4000}
    assert answer.blocks[1] == f"Cut: {len(data['notes'])} of 4000 shown. Narrow the directory or the filter."


# ---- wrong arguments, limits, settings ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "args", "code"),
    [
        (READ, {"note_path": "a.md"}, "INVALID_WORKSPACE_NAME"),
        (READ, {"workspace": 5, "note_path": "a.md"}, "INVALID_WORKSPACE_NAME"),
        (READ, {"workspace": "Work"}, "INVALID_NOTE_PATH"),
        (READ, {"workspace": "Work", "note_path": ["a.md"]}, "INVALID_NOTE_PATH"),
        (READ, {"workspace": "Work", "note_path": "a\ud800.md"}, "INVALID_NOTE_PATH"),
        (WRITE, {"workspace": "Work", "note_path": "a.md"}, "INVALID_CONTENT"),
        (LIST, {}, "INVALID_WORKSPACE_NAME"),
        (LIST, {"workspace": None}, "INVALID_WORKSPACE_NAME"),
        (SEARCH, {"query": "x", "workspace": 5}, "INVALID_WORKSPACE_NAME"),
    ],
)
def test_a_wrong_required_argument_is_in_the_envelope(still: Agent, tool: str, args: dict[str, Any], code: str) -> None:
    assert still.refused(tool, **args)[0] == code


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        (WRITE, {"workspace": "Work", "note_path": "a.md", "content": "x", "overwrite": "yes"}),
        (WRITE, {"workspace": "Work", "note_path": "a.md", "content": "x", "create_dirs": 1}),
        (SEARCH, {"query": "x", "limit": "5"}),
        (SEARCH, {"query": "x", "limit": 1.5}),
        (SEARCH, {"query": "x", "limit": 0}),
        (SEARCH, {"query": "x", "offset": -1}),
        (SEARCH, {"query": "x", "regex": "true"}),
        (SEARCH, {"query": "x", "sort_by": "size"}),
        (LIST, {"workspace": "Work", "directory": 5}),
        (LIST, {"workspace": "Work", "sort_order": "up"}),
        (LIST, {"workspace": "Work", "filter": 5}),
        (LIST, {"workspace": "Work", "filter": "["}),
        (LIST, {"workspace": "Work", "filter": "{a,b}" * 30}),
        (LIST, {"workspace": "Work", "recursive": None}),
    ],
)
def test_a_wrong_optional_argument_is_a_protocol_error(still: Agent, tool: str, args: dict[str, Any]) -> None:
    assert still.wrong(tool, **args).code == -32602
    assert still.refused(READ, workspace="Work", note_path="a.md")[0] == "NOTE_NOT_FOUND"


def test_an_unknown_tool_is_a_protocol_error_and_an_unknown_argument_nothing(still: Agent) -> None:
    assert still.wrong("octarine_delete_note").code == -32602
    assert still.data(READ, workspace="Work", note_path="README.md", more=1, atomic="no")["content"] == "# Work\n"


def test_whole_numbers_may_be_written_with_a_point(still: Agent) -> None:
    assert len(still.data(SEARCH, query="project", limit=2.0, offset=1.0)["results"]) == 2


@pytest.mark.parametrize(("tool", "calls"), [(READ, 1000), (WRITE, 100), (SEARCH, 50), (LIST, 500)])
def test_each_tool_has_its_own_limit_and_says_when_to_come_back(agent: Agent, tool: str, calls: int) -> None:
    now = [100.0]
    agent.surface = surface(RateLimits(lambda: now[0]), Octarine())
    for _ in range(calls):
        agent.refused(tool)  # what is refused for another reason counts too
    now[0] += 18.5
    answer = agent.call(tool, workspace="Work")
    assert answer.is_error and json.loads(answer.text) == {
        "success": False,
        "error": "Rate limit exceeded",
        "code": "RATE_LIMIT_EXCEEDED",
        "details": {"limit": calls, "window": 60, "retryAfter": 42},
    }
    for other in {READ, WRITE, SEARCH, LIST} - {tool}:
        assert agent.refused(other)[0] != "RATE_LIMIT_EXCEEDED"
    now[0] += 41.5
    assert agent.refused(tool)[0] != "RATE_LIMIT_EXCEEDED"


def test_the_limits_can_be_set_or_lifted(agent: Agent) -> None:
    now = [0.0]
    agent.surface = surface(RateLimits(lambda: now[0]), Octarine(window_seconds=2.0, max_requests=3))
    codes = [agent.refused(READ)[0] for _ in range(4)]
    assert codes[2:] == ["INVALID_WORKSPACE_NAME", "RATE_LIMIT_EXCEEDED"]
    assert agent.refused(READ)[1] == {"limit": 3, "window": 2, "retryAfter": 2}
    for lifted in (surface(RateLimits(), Octarine(rate_limits=False)), surface(None, Octarine())):
        agent.surface = lifted
        assert {agent.refused(SEARCH)[0] for _ in range(60)} == {"INVALID_QUERY"}


def test_settings_are_the_defaults_of_arguments(agent: Agent) -> None:
    held = Octarine(search_limit=1, preview_length=20, case_sensitive=True, include_hidden=True)
    agent.surface = surface(None, held)
    data = agent.data(SEARCH, query="project")
    assert (len(data["results"]), data["totalResults"], data["hasMore"]) == (1, 3, True)
    assert len(data["results"][0]["preview"]) <= 26
    assert agent.data(SEARCH, query="project", case_sensitive=False)["totalResults"] == 4
    assert ".gitignore" in [note["path"] for note in agent.data(LIST, workspace="Work")["notes"]]
    shown = {tool.name: tool.schema["properties"] for tool in agent.surface.tools}
    assert shown[SEARCH]["limit"]["default"] == 1 and shown[LIST]["include_hidden"]["default"] is True


def test_denials_and_ways_out_are_logged_without_content(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    agent.refused(WRITE, workspace="Work", note_path="../x.md", content="a secret")
    agent.refused(READ, workspace="Work", note_path="Nope.md")
    assert len(caplog.records) == 1
    assert "../x.md" in caplog.text and "secret" not in caplog.text


# ---- hostile ------------------------------------------------------------------------------------------


def test_a_very_long_line_full_of_matches_takes_no_time(workspace: Callable[..., Workspace]) -> None:
    ws = workspace({"long.md": "needle " * 500_000}, name="Work")
    wait_for_texts(ws, 60)
    started = time.monotonic()
    answer = agent_of(ws).call(SEARCH, query="needle")
    assert time.monotonic() - started < 5
    assert json.loads(str(answer.blocks[0]))["data"]["totalMatches"] == 500_000


@pytest.mark.parametrize("tool", [READ, WRITE, SEARCH, LIST])
def test_huge_and_nested_arguments_are_refused_in_few_words(still: Agent, tool: str) -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    for value in ("x" * 3_000_000, deep, {"a": deep}, 10**400, float("nan")):
        for name in SURFACE.tools[[READ, WRITE, SEARCH, LIST].index(tool)].schema["properties"]:
            if name == "content":
                continue
            args = {"workspace": "Work", "note_path": "a.md", "content": "", "query": "x", name: value}
            try:
                assert len(still.call(tool, **args).text) < 5000
            except RpcError as refused:
                assert refused.code == -32602 and len(refused.message) < 2000
