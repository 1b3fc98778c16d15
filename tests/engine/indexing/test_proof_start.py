"""Starting and stopping: what the dead left is finished before the first answer, nothing in the folder is touched, the
history keeps its bounds."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import ROOT, MakeWorkspace, write_files
from tests.engine.changes.killing import really_opened
from tests.engine.proving import differences, found
from tests.waiting import until

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.check import check
from notewright.engine.find.grep import Grep, grep
from notewright.engine.find.links import incoming, links
from notewright.engine.move import move
from notewright.engine.read import exists, fetch
from notewright.engine.write import change_text, create, delete, put
from notewright.errors import Busy
from notewright.ledger.base import Actor, Change, ChangeQuery, Step
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder.store import FolderStore


def stats(folder: Path) -> dict[str, tuple[int, ...]]:
    """What the system knows of everything there, the folder itself included, without when it was last read."""
    known = {}
    for place in [folder, *folder.rglob("*")]:
        stat = place.lstat()
        known[str(place)] = (stat.st_ino, stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_nlink)
    return known


def test_serving_a_folder_changes_nothing_in_it(tmp_path: Path) -> None:
    notes = {"Tea.md": "green [[Nowhere]]\n", "a/b/Deep.md": "---\ntags: x\n---\n[[Tea]]\n", "pic.png": b"\x89PNG"}
    write_files(tmp_path / "Main", notes)
    (tmp_path / "Main" / "empty").mkdir()
    (tmp_path / "Main" / "way.md").symlink_to("Tea.md")
    before = stats(tmp_path / "Main")
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    assert found(ws, "green") == ["Tea.md"]
    check(ws)
    grep(ws, Grep("tea"))
    links(ws, NotePath("Tea.md"))
    move(ws, NotePath("Tea.md"), "Chai", dry_run=True)
    delete(ws, NotePath("Tea.md"), dry_run=True)
    ws.follower.rebuild(lambda done, total: None)
    close_workspace(ws)
    assert stats(tmp_path / "Main") == before


def leave_half_done(folder: Path, state: Path) -> str:
    """A rename of Old.md that was recorded, and of which only the new file was made."""
    store = FolderStore(folder)
    ledger = SqliteLedger.open(state / store.identity)
    old, link, linked = (version_of(data) for data in (b"the note\n", b"[[Old]]\n", b"[[New]]\n"))
    steps = (
        Step(NotePath("New.md"), None, old, NotePath("Old.md")),
        Step(NotePath("L.md"), link, linked),
        Step(NotePath("Old.md"), old, None),
    )
    change = Change("halfdone", time.time(), Actor("ann", "desk"), "moved Old.md to New.md", steps)
    ledger.record(change, {link: b"[[Old]]\n", linked: b"[[New]]\n"})
    (folder / "New.md").write_text("the note\n")
    ledger.close()
    store.close()
    return change.id


def test_what_a_dead_process_left_is_finished_before_the_first_answer(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Old.md": "the note\n", "L.md": "[[Old]]\n"})
    time.sleep(0.2)  # so that the notes are still
    left = leave_half_done(tmp_path / "Main", tmp_path / "state")
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    try:
        assert fetch(ws, NotePath("L.md")).data == b"[[New]]\n"
        assert not exists(ws, NotePath("Old.md"))
        assert [(change.id, change.state) for change in ws.ledger.find_changes(ChangeQuery())] == [(left, "done")]
        assert [link.source for link in incoming(ws, NotePath("New.md"))] == ["L.md"]
        assert differences(ws) == {}
    finally:
        close_workspace(ws)


def test_what_a_living_process_is_doing_is_waited_for(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Old.md": "the note\n", "L.md": "[[Old]]\n"})
    left = leave_half_done(tmp_path / "Main", tmp_path / "state")
    living, begun = FolderStore(tmp_path / "Main"), threading.Event()

    def work() -> None:
        with living.lock():
            begun.set()
            time.sleep(0.3)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(5)
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    assert [change.id for change in ws.ledger.find_changes(ChangeQuery())] == [left]
    close_workspace(ws)
    thread.join(5)
    living.close()


STARTING = """
import sys; from pathlib import Path
from tests.engine.changes.killing import really_opened; from tests.engine.proving import found
from notewright.app.opening import close_workspace
print("ready", flush=True); sys.stdin.readline()
ws = really_opened(Path(sys.argv[1]), Path(sys.argv[2]))
print(len(found(ws, "apple")), ws.ledger.find_unfinished(), flush=True)
close_workspace(ws)
"""


@pytest.mark.slow
def test_processes_that_start_at_once_all_answer_alike(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Old.md": "the note\n", "L.md": "[[Old]]\n"})
    write_files(tmp_path / "Main", {f"{number}.md": f"apple {number}\n" for number in range(8)})
    leave_half_done(tmp_path / "Main", tmp_path / "state")
    command = [sys.executable, "-c", STARTING, str(tmp_path / "Main"), str(tmp_path / "state")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60) for process in running]
    assert [out for out, _ in answers] == ["8 []\n"] * 4, answers
    assert (tmp_path / "Main" / "L.md").read_text() == "[[New]]\n"


def test_the_history_is_kept_within_its_bounds_by_whoever_follows(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Tea.md": "green\n"})
    ws = really_opened(tmp_path / "Main", tmp_path / "state", watch=False)  # a command does not tidy up
    long_ago = replace(ws, clock=lambda: time.time() - 100 * 86_400)
    old = create(long_ago, NotePath("Old.md"), b"an old secret\n").change_id
    new = create(ws, NotePath("New.md"), b"a new one\n").change_id
    assert [change.id for change in ws.ledger.find_changes(ChangeQuery())] == [new, old]
    close_workspace(ws)
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    until(lambda: [change.id for change in ws.ledger.find_changes(ChangeQuery())] == [new])
    assert ws.ledger.blob(version_of(b"an old secret\n")) is None
    assert list(ws.ledger.first_seen(["Old.md"])) == ["Old.md"], "since when there is a note is not forgotten"
    close_workspace(ws)


def test_the_bytes_of_the_history_are_bounded_by_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "Main").mkdir()
    asked = WorkspaceConfig("Main", "main", str(tmp_path / "Main"))
    config = Config((asked,), str(tmp_path / "state"), str(tmp_path / "cache"))
    ws = open_workspace(asked, config)
    ids = [create(ws, NotePath(f"{n}.md"), bytes([65 + n]) * 10_000).change_id for n in range(5)]
    close_workspace(ws)
    ws = open_workspace(asked, replace(config, values={**config.values, "history.keep_bytes": 25_000}))
    until(lambda: [change.id for change in ws.ledger.find_changes(ChangeQuery())] == ids[:2:-1])
    close_workspace(ws)


@pytest.mark.parametrize("times", [1, 5000])
def test_purged_bytes_are_nowhere_in_the_ledgers_files(workspace: MakeWorkspace, tmp_path: Path, times: int) -> None:
    secret = "hunter2-in-a-note"
    ws = workspace({"Tea.md": f"before\n{secret}\n" * times})
    change_text(ws, NotePath("Tea.md"), lambda text: text + f"again {secret}\n")
    move(ws, NotePath("Tea.md"), "Chai")
    put(ws, NotePath("Chai.md"), b"clean\n")
    assert holding(tmp_path / "state", secret)
    assert ws.ledger.purge("Chai.md") >= 2
    assert holding(tmp_path / "state", secret) == []
    assert len(ws.ledger.find_changes(ChangeQuery())) == 3, "that something was done is still told"


def holding(folder: Path, secret: str) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


def test_a_folder_that_another_process_keeps_locked_refuses_writes_as_busy(
    workspace: MakeWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = workspace({"Tea.md": "green\n"})
    other = FolderStore(tmp_path / "Main")
    with other.lock(), pytest.raises(Busy), ws.store.lock(timeout=0.1):
        pass
    other.close()
    assert os.listdir(tmp_path / "Main") == ["Tea.md"]
