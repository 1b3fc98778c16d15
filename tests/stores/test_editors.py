"""People's editors at work in the same folder: nothing they save is lost."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.stores.parts import JUST_NOW, NEW, OLD, A, left_beside, put
from tests.waiting import until

from notewright.errors import Busy, Conflict, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder.paths import Abilities
from notewright.stores.folder.store import FolderStore


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How often, and for how long, the test's own thread slept."""
    made: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            made.append(seconds)
        real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return made


def test_a_save_between_reading_and_writing_is_a_conflict_and_stays(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "a.md")
    put(tmp_path / "a.md", b"theirs")
    with pytest.raises(Conflict) as refused:
        store.write(A, NEW, seen=version, op="1")
    assert refused.value.details["current"] == version_of(b"theirs")
    with pytest.raises(Conflict):
        store.delete(A, seen=version, op="2")
    assert store.read(A).data == b"theirs"
    assert left_beside(tmp_path) == []


@pytest.mark.parametrize("save", ["in place", "by rename"])
def test_a_save_in_the_very_moment_of_the_swap_is_a_conflict_and_stays(tmp_path: Path, save: str) -> None:
    store, version = FolderStore(tmp_path), put(tmp_path / "a.md")
    store._root.exchange = _once(store, lambda: _save(tmp_path / "a.md", b"theirs", save))  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        store.write(A, NEW, seen=version, op="1")
    assert store.read(A).data == b"theirs"
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.md"]


def test_where_names_cannot_be_swapped_a_save_in_place_in_that_moment_still_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, version, real = FolderStore(tmp_path, able=Abilities(exchange=False)), put(tmp_path / "a.md"), os.rename

    def overtaken(one: str, other: str, **folders: int) -> None:
        if other == "a.md" and one.startswith(".notewright"):
            (tmp_path / "a.md").write_bytes(b"theirs")
            monkeypatch.undo()
        real(one, other, **folders)

    monkeypatch.setattr(os, "rename", overtaken)
    with pytest.raises(Conflict):
        store.write(A, NEW, seen=version, op="1")
    store.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.md": b"theirs"}


def test_both_saves_stay_of_an_editor_that_saves_twice_while_names_are_swapped(tmp_path: Path) -> None:
    store, version = FolderStore(tmp_path), put(tmp_path / "a.md")
    saves = iter([b"first", b"second"])
    real = store._root.exchange

    def overtaken(folder: int, one: str, other: str) -> bool:
        if (save := next(saves, None)) is not None:
            _save(tmp_path / "a.md", save, "by rename")
        return real(folder, one, other)

    store._root.exchange = overtaken  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        store.write(A, NEW, seen=version, op="1")
    store.close()
    found = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert found == {"a.md": b"second", "a (kept 1).md": b"first"}


def _once(store: FolderStore, first: Callable[[], None]) -> Callable[[int, str, str], bool]:
    """The store's own exchange, with something happening right before the first one."""
    real, done = store._root.exchange, list[bool]()

    def exchange(folder: int, one: str, other: str) -> bool:
        if not done:
            done.append(True)
            first()
        return real(folder, one, other)

    return exchange


def _save(file: Path, data: bytes, how: str) -> None:
    if how == "in place":
        file.write_bytes(data)
    else:
        other = file.with_suffix(".saving")
        other.write_bytes(data)
        os.replace(other, file)


def test_what_an_editor_writes_to_the_file_it_had_open_comes_back(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "a.md")
    with open(tmp_path / "a.md", "r+b") as editor:
        store.write(A, NEW, seen=version, op="1")
        editor.truncate()
        editor.write(b"late save")
    until(lambda: (tmp_path / "a.md").read_bytes() == b"late save", 10)
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.md"]


def test_a_late_save_of_a_deleted_note_brings_it_back(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "f/a.md")
    with open(tmp_path / "f/a.md", "r+b") as editor:
        store.delete(NotePath("f/a.md"), seen=version, op="1")
        editor.truncate()
        editor.write(b"late save")
    store.close()
    assert (tmp_path / "f/a.md").read_bytes() == b"late save"


def test_a_late_save_of_a_note_that_was_saved_again_becomes_a_copy(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "a.md")
    with open(tmp_path / "a.md", "r+b") as editor:
        store.write(A, NEW, seen=version, op="1")
        editor.truncate()
        editor.write(b"late save")
    put(tmp_path / "a.md", b"newer save")
    store.close()
    found = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert found == {"a.md": b"newer save", "a (kept 1).md": b"late save"}


def test_a_late_save_comes_back_over_several_writes_of_ours_but_not_over_a_save_between_them(tmp_path: Path) -> None:
    for between, expected in ((None, {b"late save"}), (b"a save", {b"late save", b"a save and ours"})):
        place = tmp_path / str(between)
        version, store = put(place / "a.md"), FolderStore(place)
        with open(place / "a.md", "r+b") as editor:
            version = store.write(A, b"first", seen=version, op="1").version
            if between:
                version = put(place / "a.md", between)
            store.write(A, (between or b"second") + b" and ours", seen=version, op="2")
            editor.truncate()
            editor.write(b"late save")
        store.close()
        assert {file.read_bytes() for file in place.iterdir()} == expected


@pytest.mark.slow
def test_a_file_that_a_program_keeps_open_for_writing_is_kept_until_it_closes(
    store: FolderStore, tmp_path: Path
) -> None:
    version = put(tmp_path / "a.md")
    with open(tmp_path / "a.md", "ab", buffering=0) as appender:
        store.write(A, NEW, seen=version, op="1")
        time.sleep(2.5)
        appender.write(b"one more line\n")
        until(lambda: (tmp_path / "a.md").read_bytes() == OLD + b"one more line\n", 10)


def test_an_empty_file_is_not_believed_until_it_is_still(
    store: FolderStore, tmp_path: Path, pauses: list[float]
) -> None:
    put(tmp_path / "a.md")
    (tmp_path / "a.md").write_bytes(b"")
    saved = threading.Timer(0.05, lambda: (tmp_path / "a.md").write_bytes(b"saved"))
    saved.start()
    assert store.read(A).data == b"saved"
    saved.join()
    pauses.clear()
    put(tmp_path / "a.md", b"", age=JUST_NOW)
    assert store.read(A).data == b""
    assert 0 < sum(pauses) < 1.5


def test_a_note_that_we_emptied_ourselves_is_read_at_once(
    store: FolderStore, tmp_path: Path, pauses: list[float]
) -> None:
    version = put(tmp_path / "a.md")
    store.write(A, b"", seen=version, op="1")
    assert store.read(A).data == b"" and pauses == []


def test_a_note_changed_a_moment_ago_is_not_written_to_until_it_is_still(
    store: FolderStore, tmp_path: Path, pauses: list[float]
) -> None:
    version = put(tmp_path / "a.md", age=JUST_NOW)
    version = store.write(A, NEW, seen=version, op="1").version
    assert pauses != []
    pauses.clear()
    store.write(A, OLD, seen=version, op="2")  # our own write need not be waited for
    store.write(NotePath("b.md"), OLD, seen=None, op="3")
    put(tmp_path / "c.md", age=JUST_NOW)
    store.write(NotePath("c.md"), NEW, seen=version_of(OLD), op="4", settled=True)
    assert pauses == []


def test_a_note_that_is_never_still_is_busy(store: FolderStore, tmp_path: Path) -> None:
    for attempt in range(5):
        version, stop, pauses = put(tmp_path / "a.md", age=0), threading.Event(), [0.0]

        def touch(stop: threading.Event = stop, pauses: list[float] = pauses) -> None:
            last = time.monotonic()
            while not stop.wait(0.02):
                os.utime(tmp_path / "a.md")
                last, before = time.monotonic(), last
                pauses.append(last - before)
            pauses.append(time.monotonic() - last)

        editor = threading.Thread(target=touch)
        editor.start()
        try:
            store.write(A, NEW, seen=version, op=str(attempt))
        except Busy:
            break
        finally:
            stop.set()
            editor.join()
        assert max(pauses) > 0.1, "it was written to although it was never still"  # else the machine was too busy
    else:
        pytest.fail("the machine was never quiet enough to keep a note from being still")
    assert store.read(A).data == OLD


EDITOR = """
import os, random, sys, time
path, how, seconds, pause = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
number, until, chance = 0, time.monotonic() + seconds, random.Random(5)
while time.monotonic() < until:
    with open(path, "rb") as file:
        data = file.read()
    if not data:
        continue
    number += 1
    data += b"editor %d\\n" % number
    if how == "in place":
        with open(path, "wb") as file:
            file.write(data)
    else:
        with open(path + ".saving", "wb") as file:
            file.write(data)
        os.replace(path + ".saving", path)
    time.sleep(chance.random() * pause)
print(number)
"""


def race_an_editor(
    place: Path, how: str, *, seconds: float, pause: float, settled: bool = False
) -> tuple[set[bytes], int, int]:
    """Append as fast as can be beside an editor that does, too: the editor's lines that are nowhere, and how many lines
    each wrote."""
    put(place / "a.md", b"begin\n")
    store, ours = FolderStore(place), 0
    command = [sys.executable, "-c", EDITOR, str(place / "a.md"), how, str(seconds), str(pause)]
    editor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while editor.poll() is None:
        try:
            old = store.read(A)
            data = old.data + b"ours %d\n" % ours
            store.write(A, data, seen=old.version, op=f"op-{ours}", settled=settled)
            ours += 1
        except Problem:
            continue
    theirs = int(editor.communicate()[0])
    store.close()
    assert left_beside(place) == []
    kept = b"".join(file.read_bytes() for file in place.glob("a*.md")).splitlines()
    return {b"editor %d" % number for number in range(1, theirs + 1)} - set(kept), theirs, ours


@pytest.mark.slow
@pytest.mark.parametrize("how", ["in place", "by rename"])
def test_an_editor_loses_nothing_to_our_writes(tmp_path: Path, how: str) -> None:
    lost, theirs, ours = race_an_editor(tmp_path, how, seconds=3, pause=0.5)
    assert theirs > 3 and ours > 1
    assert lost == set()


@pytest.mark.torture
@pytest.mark.parametrize("how", ["in place", "by rename"])
def test_an_editor_loses_nothing_to_our_writes_for_long(tmp_path: Path, how: str) -> None:
    lost, theirs, ours = race_an_editor(tmp_path, how, seconds=60, pause=0.4)
    assert theirs > 50 and ours > 20
    assert lost == set()


@pytest.mark.torture
@pytest.mark.parametrize("how", ["in place", "by rename"])
def test_an_editor_saving_two_hundred_times_a_second_keeps_999_saves_of_1000(tmp_path: Path, how: str) -> None:
    # `settled` is a lie here: it takes away the rule that lets an editor finish, and only the swap protects it. What
    # can still be lost is a save the editor itself overwrites, having read the note in the moment ours was shown.
    lost, theirs, ours = race_an_editor(tmp_path, how, seconds=30, pause=0.01, settled=True)
    assert theirs > 200 and ours > 50
    assert len(lost) * 1000 <= theirs
