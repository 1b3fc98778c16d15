"""The index is a cache: deleted, damaged or of another form at any moment it comes back, and nothing else suffers."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest
from tests.conftest import ROOT, MakeWorkspace
from tests.engine.changes.killing import really_opened
from tests.engine.proving import differences, found
from tests.waiting import until

from notewright.app.opening import close_workspace
from notewright.engine.find.grep import Grep, grep
from notewright.engine.find.links import incoming
from notewright.engine.find.search import parse_query, search
from notewright.engine.move import move
from notewright.engine.read import fetch
from notewright.engine.workspace import Workspace
from notewright.engine.write import create
from notewright.errors import Busy, Indexing, Problem, Unavailable
from notewright.notes.path import NotePath

COUNT = 30
NOTES = {f"{number}.md": f"apple {number}\n\n[[Target]]\n" for number in range(COUNT)} | {"Target.md": "the note\n"}


def databases(place: Path) -> list[Path]:
    return [file for file in place.rglob("index.db") if file.is_file() and not file.parent.is_symlink()]


def spoil(place: Path) -> None:
    """Random bytes over most of it, under those who have it open."""
    for database in databases(place):
        with database.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for at in range(4096, size, 4096):
                file.seek(at)
                file.write(random.Random(at).randbytes(min(2000, size - at)))


def another_form(place: Path) -> None:
    for database in databases(place):
        with apsw.Connection(str(database)) as db:
            db.set_busy_timeout(5_000)
            db.execute("pragma user_version=99")


def empty(place: Path) -> None:
    for database in databases(place):
        os.truncate(database, 0)


def gone(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)


def without_pointer(place: Path) -> None:
    for pointer in list(place.rglob("current-*")):  # all found before the first goes: what is lost is swept at once
        pointer.unlink()


DAMAGES = (spoil, another_form, empty, gone, without_pointer)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_built_again_without_a_question(
    workspace: MakeWorkspace, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    ws = workspace(NOTES)
    assert search(ws, parse_query("apple")).with_all == COUNT
    damage(tmp_path / "cache")
    until(lambda: is_right(ws), 10)
    moved = move(ws, NotePath("Target.md"), "Goal")
    assert len(moved.files) == COUNT
    until(lambda: is_right(ws), 10)


def is_right(ws: Workspace) -> bool:
    try:
        return search(ws, parse_query("apple")).with_all == COUNT and differences(ws) == {}
    except (Indexing, Busy):
        return False


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_damaged_between_two_runs_is_built_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    (tmp_path / "Main").mkdir()
    for path, text in NOTES.items():
        (tmp_path / "Main" / path).write_text(text)
    close_workspace(indexed(tmp_path))
    damage(tmp_path / "state" / "cache")
    ws = indexed(tmp_path)
    assert len(move(ws, NotePath("Target.md"), "Goal").files) == COUNT
    assert is_right(ws)
    close_workspace(ws)


def indexed(place: Path) -> Workspace:
    ws = really_opened(place / "Main", place / "state")
    ws.follower.wait(10)
    return ws


@contextmanager
def again_and_again(step: Callable[[], None], every: float) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(every):
            with suppress(OSError, apsw.Error):  # it was replaced under our hands
                step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [gone, another_form, spoil])
def test_moves_and_searches_are_right_while_the_index_is_lost_again_and_again(
    workspace: MakeWorkspace, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    ws = workspace(NOTES)
    names, moves, searches = ["Target", "Goal"], 0, 0
    until_then = time.monotonic() + 1.5
    with again_and_again(lambda: damage(tmp_path / "cache"), 0.15):
        while time.monotonic() < until_then:
            try:
                assert len(move(ws, NotePath(f"{names[0]}.md"), names[1]).files) == COUNT
                names, moves = names[::-1], moves + 1
                assert len(found(ws, "apple")) == 10, "never fewer than there are"
                assert len(incoming(ws, NotePath(f"{names[0]}.md"))) == COUNT
                assert grep(ws, Grep("apple")).total_lines == COUNT
                searches += 1
            except (Indexing, Busy):
                continue
    assert moves > 0 and searches > 0
    texts = [(tmp_path / "Main" / f"{number}.md").read_text() for number in range(COUNT)]
    assert texts == [f"apple {number}\n\n[[{names[0]}]]\n" for number in range(COUNT)]
    until(lambda: is_right(ws), 10)


@pytest.mark.slow
@pytest.mark.parametrize("notes", [COUNT, 600])  # written in this process, and by a second one
def test_a_build_whose_files_are_deleted_before_it_is_done_is_refused_with_the_reason(
    tmp_path: Path, notes: int
) -> None:
    (tmp_path / "Main").mkdir()
    for number in range(notes):
        (tmp_path / "Main" / f"{number}.md").write_text("apple [[Target]]\n")
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    ws.follower.wait(10)
    with pytest.raises(Unavailable, match=r"^the index cannot be used: .*(open|No such file)"):
        ws.follower.rebuild(lambda done, total: gone(tmp_path / "state" / "cache") if done == notes else None)
    until(lambda: differences(ws) == {}, 30)
    assert grep(ws, Grep("apple")).total_lines == notes
    close_workspace(ws)


@pytest.mark.slow
def test_an_index_deleted_while_it_is_built_is_built_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "Main").mkdir()
    for number in range(1500):
        (tmp_path / "Main" / f"{number}.md").write_text(f"apple {number} [[Target]]\n")
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    rng = random.Random(1)
    for _ in range(6):
        time.sleep(rng.uniform(0.01, 0.4))
        shutil.rmtree(tmp_path / "state" / "cache", ignore_errors=True)
    ws.follower.wait(30)
    assert grep(ws, Grep("apple")).total_lines == 1500
    assert differences(ws) == {}
    with again_and_again(lambda: gone(tmp_path / "state" / "cache"), 0.1), suppress(Problem):
        ws.follower.rebuild(lambda done, total: None)
    ws.follower.wait(30)
    assert differences(ws) == {}
    close_workspace(ws)


@pytest.mark.slow
def test_a_rebuild_from_the_command_line_while_a_server_runs_and_writes_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "Main").mkdir()
    for number in range(800):
        (tmp_path / "Main" / f"{number}.md").write_text(f"apple {number} [[Target]]\n")
    ws = really_opened(tmp_path / "Main", tmp_path / "state")
    ws.follower.wait(20)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "state").symlink_to(tmp_path / "state")
    (tmp_path / "kept" / "cache").symlink_to(tmp_path / "state" / "cache")
    program = Path(sys.executable).parent / "notewright"
    command = [program, "index", "--rebuild", "--workspace", tmp_path / "Main", "--state", tmp_path / "kept", "--json"]
    building = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    written, slowest = 0, 0.0
    while building.poll() is None:
        began = time.monotonic()
        create(ws, NotePath(f"New {written}.md"), b"pear [[Target]]\n")
        assert f"New {written}.md" in found(ws, "pear") or written > 9, "the next call sees it"
        assert fetch(ws, NotePath("7.md")).data
        slowest, written = max(slowest, time.monotonic() - began), written + 1
    _, err = building.communicate()
    assert building.returncode == 0, err
    assert written > 3 and slowest < 5, (written, slowest)
    assert ws.index.total("notes") == ws.index.total("files") == 800 + written
    assert differences(ws) == {}
    close_workspace(ws)
