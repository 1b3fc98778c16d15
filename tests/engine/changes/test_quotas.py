"""Quotas hold whoever writes, however many at once, and whatever kind of write it is."""

import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from tests.conftest import ROOT, MakeWorkspace, write_files
from tests.engine.transfer.backup_parts import back_up, day, restore_backup

from notewright.accounts.base import Grant
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.app.opening import close_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.access import Access
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.changes.quotas import find_quota_share, find_remaining_quota
from notewright.engine.daily import append_daily
from notewright.engine.dialects.cairn import patch_or_create, write_stamped
from notewright.engine.dialects.octarine import replace_with_copy
from notewright.engine.library import Library, Principal
from notewright.engine.move import move, rename_tag
from notewright.engine.transfer.import_files import import_files
from notewright.engine.workspace import IndexFollower, Workspace
from notewright.engine.write import create, delete, edit_note, put
from notewright.errors import Indexing, Problem, Quota
from notewright.ledger.base import ChangeQuery
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath

SEVEN = {f"There {number}.md": "0123456789" for number in range(7)}
MOST = 12
MANY = 20


def at_once(write: Callable[[int], object]) -> list[Problem | None]:
    """What became of twenty writes that begin together."""
    ready = Barrier(MANY)

    def one(number: int) -> Problem | None:
        ready.wait(20)
        try:
            write(number)
        except Problem as problem:
            return problem
        return None

    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(one, range(MANY)))


def there(place: Path) -> list[Path]:
    files = (file for file in place.rglob("*") if file.is_file())
    return [file for file in files if not any(part.startswith(".") for part in file.relative_to(place).parts)]


def imported(ws: Workspace, number: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr(f"New {number}.md", "x")
    report = import_files(ws, packed)
    if report.skipped:
        assert report.skipped[0].reason == "quota"
        raise Quota("left out")


WRITES: dict[str, Callable[[Workspace, int], object]] = {
    "create": lambda ws, number: create(ws, NotePath(f"New {number}.md"), b"x"),
    "put": lambda ws, number: put(ws, NotePath(f"New {number}.md"), b"x"),
    "stamped": lambda ws, number: write_stamped(ws, NotePath(f"New {number}.md"), "x"),
    "copy": lambda ws, number: replace_with_copy(
        ws, NotePath(f"New {number}.md"), b"x", overwrite=True, make_folders=True
    ),
    "daily": lambda ws, number: append_daily(ws, date(2026, 1, 1) + timedelta(number), "x"),
    "begun": lambda ws, number: patch_or_create(ws, NotePath(f"New {number}.md"), "x", None),
    "import": imported,
}


@pytest.mark.parametrize("kind", WRITES)
def test_of_twenty_new_files_at_once_only_those_come_that_fit(
    workspace: MakeWorkspace, tmp_path: Path, kind: str
) -> None:
    ws = workspace(SEVEN, quota_files=MOST)
    problems = at_once(lambda number: WRITES[kind](ws, number))
    assert {type(problem) for problem in problems} == {Quota, type(None)}, problems
    assert problems.count(None) == MOST - len(SEVEN) and len(there(tmp_path / "Main")) == MOST
    assert ws.follower.wait(20) and ws.index.total("files") == MOST


def test_of_twenty_appended_texts_at_once_only_those_come_that_fit(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace(SEVEN, quota_bytes=100)
    problems = at_once(lambda number: edit_note(ws, NotePath("There 1.md"), [Append("123456")]))
    size = sum(len(file.read_bytes()) for file in there(tmp_path / "Main"))
    assert ws.follower.wait(20), "on a busy machine the edits may end before the index is built"
    assert 94 < size <= 100 and (ws.index.total("files"), ws.index.total("bytes")) == (7, size)
    assert {type(problem) for problem in problems} == {Quota, type(None)}


WRITER = """
import sys
from pathlib import Path
from notewright.config.load import Config, WorkspaceConfig
from notewright.errors import Quota
from notewright.engine.write import create
from notewright.notes.path import NotePath
from notewright.app.opening import close_workspace, open_workspace

place, who = Path(sys.argv[1]), sys.argv[2]
asked = WorkspaceConfig("Main", "main", str(place / "Main"), quota_files=12)
ws = open_workspace(asked, Config((asked,), str(place / "state"), str(place / "cache")))
ws.follower.wait(20)
print("ready", flush=True)
sys.stdin.readline()
made = 0
for number in range(12):
    try:
        create(ws, NotePath(f"{who} {number}.md"), b"x")
        made += 1
    except Quota:
        pass
close_workspace(ws)
print(made, flush=True)
"""


@pytest.mark.slow
def test_two_processes_together_do_not_pass_the_quota(workspace: MakeWorkspace, tmp_path: Path) -> None:
    close_workspace(workspace(SEVEN, quota_files=MOST))
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    writers = [subprocess.Popen([*command, who], **pipes) for who in ("a", "b", "c")]  # type: ignore[call-overload]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            writer.stdin.write("go\n")
            writer.stdin.flush()
        made = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert sum(made) == MOST - len(SEVEN) and len(there(tmp_path / "Main")) == MOST


def test_what_was_deleted_is_not_brought_back_into_a_full_workspace(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"A.md": "a", "B.md": "b"}, quota_files=2)
    gone = delete(ws, NotePath("A.md")).change_id
    assert gone is not None
    create(ws, NotePath("C.md"), b"c")  # the trash is not counted
    for dry_run in (True, False):
        with pytest.raises(Quota):
            undo(ws, gone, dry_run=dry_run)
    delete(ws, NotePath("C.md"))
    undo(ws, gone)
    assert sorted(file.name for file in there(tmp_path / "Main")) == ["A.md", "B.md"]


def test_a_restore_that_does_not_fit_is_refused_as_a_whole(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace(SEVEN, quota_files=8)
    back_up([ws], tmp_path / "to", now=day(0))
    for number in range(3):
        delete(ws, NotePath(f"There {number}.md"))
    for number in range(3):
        create(ws, NotePath(f"New {number}.md"), b"x")
    for dry_run in (True, False):
        with pytest.raises(Quota):
            restore_backup(ws, tmp_path / "to", dry_run=dry_run)
    assert len(there(tmp_path / "Main")) == 7
    restore_backup(ws, tmp_path / "to", paths=["There 1.md"])
    assert len(there(tmp_path / "Main")) == 8


def test_a_move_that_makes_links_longer_does_not_pass_the_quota(workspace: MakeWorkspace) -> None:
    ws = workspace({"A.md": "[[B]]", "B.md": "b"}, quota_bytes=8)
    for dry_run in (True, False):
        with pytest.raises(Quota):
            move(ws, NotePath("B.md"), "Bread", dry_run=dry_run)
    assert move(ws, NotePath("B.md"), "Bun").count == 1


def test_a_dry_run_is_refused_where_the_real_one_would_be(workspace: MakeWorkspace) -> None:
    ws = workspace({"A.md": "#tea", "B.md": "#tea"}, quota_bytes=12)
    for dry_run in (True, False):
        with pytest.raises(Quota):
            rename_tag(ws, "tea", "beverage", dry_run=dry_run)


def test_a_full_workspace_still_takes_what_does_not_make_it_larger(workspace: MakeWorkspace) -> None:
    ws = workspace({"A.md": "[[B]]", "B.md": "bb"}, quota_files=1, quota_bytes=3)  # over it from the beginning
    put(ws, NotePath("B.md"), b"c")
    move(ws, NotePath("B.md"), "C")
    delete(ws, NotePath("C.md"))
    with pytest.raises(Quota):
        put(ws, NotePath("A.md"), b"[[B]]!")


def test_a_write_does_not_list_the_workspace_to_count_it(
    workspace: MakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = workspace(SEVEN, quota_files=MOST, quota_bytes=1000)
    ws.follower.wait(20)
    listed: list[str] = []
    entries = ws.store.entries
    monkeypatch.setattr(ws.store, "entries", lambda: listed.append("all") or entries())
    create(ws, NotePath("New.md"), b"x")
    assert listed == []


def test_while_the_index_is_not_there_yet_files_are_counted_all_the_same(workspace: MakeWorkspace) -> None:
    ws = workspace(SEVEN, quota_files=8)
    ws.follower.wait(20)

    class Behind(IndexFollower):
        def wait(self, seconds: float) -> None:
            raise Indexing("still indexing", done=0, total=None)

    late = replace(ws, follower=Behind())
    create(late, NotePath("New.md"), b"x")
    with pytest.raises(Quota):
        create(late, NotePath("More.md"), b"x")


def test_who_may_not_see_all_of_it_is_not_told_how_much_there_is(workspace: MakeWorkspace) -> None:
    ws = workspace({"A.md": "a", "Private/B.md": "b"}, quota_files=2)
    guest = replace(ws, access=Access(hide=("Private/**",)))
    with pytest.raises(Quota) as refused:
        create(guest, NotePath("C.md"), b"c")
    assert refused.value.message == "the workspace is full; the most is 2 files"
    assert "used" not in refused.value.details
    assert list_changes(ws, ChangeQuery()) == []


# All workspaces of one user


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Callable[..., Library]]:
    """Makes the library of a server that holds users to a quota: `shared({"A": files}, user_quota_files=3)`."""
    opened: list[OpenWorkspaces] = []

    def make(workspaces: Mapping[str, Mapping[str, str]], **values: int) -> Library:
        for name, files in workspaces.items():
            write_files(tmp_path / name, files)
        served = tuple(WorkspaceConfig(name, name.lower(), str(tmp_path / name)) for name in workspaces)
        config = Config(served, str(tmp_path / "state"), str(tmp_path / "cache"))
        opened.append(OpenWorkspaces(replace(config, values={**config.values, **values})))
        return opened[-1]

    yield make
    for library in opened:
        library.close()


def user(*workspaces: str, **narrowed: Any) -> Principal:
    return Principal("ann", Grant(workspaces or None, **narrowed))


def test_the_workspaces_of_one_user_add_up_and_those_of_others_do_not(shared: Callable[..., Library]) -> None:
    library = shared({"A": {"1.md": "x"}, "B": {"1.md": "x"}, "C": SEVEN}, user_quota_files=3)
    ann, bob = user("a", "b").narrow_library(library), user("c").narrow_library(library)
    assert find_remaining_quota(ann.find_workspace("A")) == {"files": 1, "bytes": None}
    create(ann.find_workspace("B"), NotePath("2.md"), b"x")
    for name in ("A", "B"):
        with pytest.raises(Quota, match="all your workspaces together would hold 4 files; the most is 3"):
            create(ann.find_workspace(name), NotePath("3.md"), b"x")
    with pytest.raises(Quota, match="would hold 8 files"):
        create(bob.find_workspace("C"), NotePath("3.md"), b"x")
    delete(ann.find_workspace("A"), NotePath("1.md"))
    create(ann.find_workspace("B"), NotePath("3.md"), b"x")
    assert find_quota_share(ann.find_workspace("A")) == 1.0


def test_the_bytes_of_one_user_add_up(shared: Callable[..., Library]) -> None:
    library = user("a", "b").narrow_library(shared({"A": {"1.md": "12345"}, "B": {"1.md": "123"}}, user_quota_bytes=10))
    edit_note(library.find_workspace("B"), NotePath("1.md"), [Append("4")])  # and a line end
    with pytest.raises(Quota, match="all your workspaces together would hold 11 bytes"):
        put(library.find_workspace("A"), NotePath("1.md"), b"123456")


def test_what_a_user_may_only_read_is_not_counted_and_what_is_hidden_is_not_told(
    shared: Callable[..., Library],
) -> None:
    library = shared({"A": {"1.md": "x"}, "B": SEVEN}, user_quota_files=2)
    everything = replace(library.find_workspace("B"), access=Access(read_only=True))
    ann = user().narrow_library(Library.of([library.find_workspace("A"), everything])).find_workspace("A")
    create(ann, NotePath("2.md"), b"x")
    with pytest.raises(Quota, match="would hold 3 files"):
        create(ann, NotePath("3.md"), b"x")
    guest = user("a", hide=("1.md",)).narrow_library(library).find_workspace("A")
    with pytest.raises(Quota, match="all your workspaces are full; the most is 2 files"):
        create(guest, NotePath("3.md"), b"x")


def test_writers_in_several_workspaces_at_once_do_not_pass_the_quota_of_their_user(
    shared: Callable[..., Library],
) -> None:
    library = user("a", "b").narrow_library(shared({"A": SEVEN, "B": {}}, user_quota_files=MOST))
    problems = at_once(
        lambda number: create(library.find_workspace("AB"[number % 2]), NotePath(f"New {number}.md"), b"x")
    )
    assert {type(problem) for problem in problems} == {Quota, type(None)}, problems
    assert problems.count(None) == MOST - len(SEVEN)
    assert sum(ws.index.total("files") for ws in library.workspaces()) == MOST
