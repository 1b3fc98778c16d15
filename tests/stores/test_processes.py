"""Several processes on one folder, and what those leave that are killed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.stores.parts import NEW, OLD, A, in_child, left_beside, put
from tests.waiting import until

from notewright.disk_sync import Sync
from notewright.errors import Busy, Conflict
from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder import paths
from notewright.stores.folder.paths import Abilities
from notewright.stores.folder.store import FolderStore

pytestmark = pytest.mark.slow


def test_the_identity_is_that_of_the_folder_whatever_its_path(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    first, second = FolderStore(tmp_path / "one"), FolderStore(tmp_path / "two")
    assert first.identity == second.identity != FolderStore(tmp_path).identity
    assert "/" not in first.identity


def test_the_lock_holds_across_processes_and_dies_with_them(store: FolderStore, tmp_path: Path) -> None:
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        held = FolderStore(tmp_path).lock()
        held.__enter__()
        os.write(tell, b"!")
        time.sleep(60)
        os._exit(1)
    try:
        assert os.read(ready, 1) == b"!"
        with pytest.raises(Busy), store.lock(timeout=0.1):
            pass
        with pytest.raises(Busy):
            held = store.lock(timeout=0.05)
            held.__enter__()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)
    with store.lock(timeout=5):
        pass


def test_appends_by_several_processes_lose_nothing(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "a.md", b"")

    def append(who: int) -> None:
        mine = FolderStore(tmp_path)
        for turn in range(15):
            while True:
                old = mine.read(A)
                try:
                    line = b"%d.%d\n" % (who, turn)
                    mine.write(A, old.data + line, seen=old.version, op=f"{who}-{turn}", settled=True)
                    break
                except Conflict:
                    continue
        mine.close()

    children = [
        threading.Thread(target=lambda who=who: results.append(in_child(lambda: append(who)))) for who in range(3)
    ]
    results: list[int] = []
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert results == [0, 0, 0]
    assert sorted(store.read(A).data.split()) == sorted(b"%d.%d" % (w, t) for w in range(3) for t in range(15))
    assert left_beside(tmp_path) == []


def test_a_process_that_waits_is_let_in_after_few_changes_of_one_with_many_threads(
    store: FolderStore, tmp_path: Path
) -> None:
    made, tell = os.pipe()  # one byte for every change of the other
    os.set_blocking(made, False)
    child = os.fork()
    if child == 0:
        busy = FolderStore(tmp_path)

        def stream() -> None:
            while True:
                with busy.lock(timeout=60):
                    os.write(tell, b"!")
                    time.sleep(0.001)

        for _ in range(8):
            threading.Thread(target=stream, daemon=True).start()
        time.sleep(120)
        os._exit(1)

    def changes() -> int:
        try:
            return len(os.read(made, 1 << 16))
        except BlockingIOError:
            return 0

    try:
        while not changes():
            time.sleep(0.001)
        meanwhile = []
        for _ in range(24):
            changes()
            with store.lock(timeout=60):
                meanwhile.append(changes())
            time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(made)
        os.close(tell)
    assert sorted(meanwhile)[18] <= 3, meanwhile  # the other quarter: we were not run between asking and waiting


def killed_at(place: Path, call: int, able: Abilities) -> bool:
    """Create, replace and delete in a process that is killed before its n-th call that changes anything; False if it
    got to its end."""

    def work() -> None:
        left = call

        def deadly(real: Callable[..., object]) -> Callable[..., object]:
            def counted(*args: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **options)

            return counted

        store = FolderStore(place, able=able)
        for name in ("write", "fsync", "rename", "unlink", "mkdir", "link", "fchmod", "rmdir"):
            setattr(os, name, deadly(getattr(os, name)))
        paths._rename = deadly(paths._rename)  # type: ignore[assignment]
        for name in ("__init__", "wait"):
            setattr(Sync, name, deadly(getattr(Sync, name)))
        with store.lock():
            store.stage(NotePath("f/c.md"), NEW, op="staged")
            store.write(A, NEW, seen=version_of(OLD), op="one")
            store.write(NotePath("f/b.md"), NEW, seen=None, op="two")
            store.delete(NotePath("d.md"), seen=version_of(OLD), op="three")
            store.write(NotePath("f/c.md"), NEW, seen=version_of(OLD), op="staged")
            store.settle("staged")
        store.close()

    return in_child(work) != 0


@pytest.mark.parametrize("exchange", [True, False])
def test_a_process_killed_at_any_call_leaves_notes_old_or_new_and_nothing_beside(
    tmp_path: Path, exchange: bool
) -> None:
    for call in range(200):
        place = tmp_path / str(call)
        for name in ("a.md", "d.md", "f/c.md"):
            put(place / name)
        was_killed = killed_at(place, call, Abilities(exchange=exchange, noreplace=exchange))
        store = FolderStore(place)
        with store.lock(timeout=1):
            store.sweep(["", "f"])
        found = {entry.path: store.read(entry.path).data for entry in store.entries()}
        store.close()
        assert left_beside(place) == [], call
        assert found.pop("a.md") in (OLD, NEW) and found.pop("f/c.md") in (OLD, NEW), call
        assert found.pop("d.md", OLD) == OLD and found.pop("f/b.md", NEW) == NEW and not found, call
        if not was_killed:
            break
    assert 15 < call < 199


def test_a_child_that_was_forked_after_a_sync_does_not_wait_for_threads_it_does_not_have(
    store: FolderStore, tmp_path: Path
) -> None:
    store.stage(A, NEW, op="parent")
    store.settle("parent")

    def work() -> None:
        store.stage(A, NEW, op="child")
        store.write(A, NEW, seen=None, op="child")
        store.settle("child")

    assert in_child(work) == 0
    assert (tmp_path / A).read_bytes() == NEW


def test_what_a_killed_process_left_is_cleared_up_after_a_listing_too(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "deep/f/a.md")

    def work() -> None:
        with open(tmp_path / "deep/f/a.md", "ab"):  # so that what is taken out is kept for a while
            FolderStore(tmp_path).write(NotePath("deep/f/a.md"), NEW, seen=version_of(OLD), op="1")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(work)
    assert left_beside(tmp_path)
    assert [entry.path for entry in store.entries()] == ["deep/f/a.md"]
    until(lambda: left_beside(tmp_path) == [], 10)
    assert store.read(NotePath("deep/f/a.md")).data == NEW


def test_a_save_that_a_killed_process_had_swapped_out_comes_back(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "f/a.md")

    def work() -> None:
        mine = FolderStore(tmp_path)
        real = mine._root.exchange

        def overtaken(folder: int, one: str, other: str) -> bool:
            (tmp_path / "f/a.md").write_bytes(b"theirs")
            real(folder, one, other)
            os.kill(os.getpid(), signal.SIGKILL)
            return True

        mine._root.exchange = overtaken  # type: ignore[method-assign]
        mine.write(NotePath("f/a.md"), NEW, seen=version_of(OLD), op="1")

    assert in_child(work)
    assert (tmp_path / "f/a.md").read_bytes() == NEW
    with store.lock():
        store.sweep(["f"])
    assert (tmp_path / "f/a.md").read_bytes() == b"theirs"
    assert left_beside(tmp_path) == []


def test_what_another_machine_laid_a_moment_ago_is_left_alone(store: FolderStore, tmp_path: Path) -> None:
    store.stage(A, NEW, op="1")
    (laid,) = tmp_path.glob(".notewright-*")
    theirs = tmp_path / f".notewright-000000{laid.name[18:]}"
    os.rename(laid, theirs)
    odd = tmp_path / ".notewright-not-ours"
    put(odd)
    with store.lock():
        store.sweep([""])
    assert theirs.exists() and odd.exists()
