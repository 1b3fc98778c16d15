"""The memory store as a stage for simulations: other processes, foreign writers, crashes, full and lost disks."""

import pytest
from tests.memory_store import Disk, MemoryStore

from notewright.errors import Busy, Conflict, NoSpace, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import version_of

A = NotePath("a.md")


def test_a_foreign_writer_may_step_in_before_any_write() -> None:
    store = MemoryStore(step=lambda what, path: store.put("a.md", b"theirs") if what == "write" else None)
    store.put("a.md", b"old")
    with pytest.raises(Conflict):
        store.write(A, b"ours", seen=version_of(b"old"), op="1")
    assert store.read(A).data == b"theirs"


def test_two_processes_may_hold_one_file_each() -> None:
    disk = Disk()
    first, second = MemoryStore(disk), MemoryStore(disk)
    with first.lock(A), second.lock(NotePath("other.md"), timeout=0.05):
        assert len(disk.sharing) == 2
    assert disk.sharing == []


def test_a_crash_frees_the_lock_and_leaves_what_was_staged_to_the_next_process() -> None:
    disk = Disk()
    first = MemoryStore(disk)
    held = first.lock()
    held.__enter__()
    first.stage(A, b"new", op="1")
    second = MemoryStore(disk)
    with pytest.raises(Busy):
        second.lock(timeout=0.02).__enter__()
    first.die()
    with second.lock(timeout=1):
        assert disk.beside
        second.sweep([""])
    assert not disk.beside


def test_a_full_disk_refuses_before_anything_changed() -> None:
    store = MemoryStore(Disk(capacity=10))
    version = store.write(A, b"12345", seen=None, op="1").version
    with pytest.raises(NoSpace):
        store.stage(A, b"1234567", op="2")
    store.stage(A, b"54321", op="3")
    assert store.write(A, b"54321", seen=version, op="3").data == b"54321"


def test_a_lost_disk_is_unavailable_and_not_empty() -> None:
    store = MemoryStore()
    store.put("a.md", b"x")
    store.disk.present = False
    with pytest.raises(Unavailable):
        list(store.entries())
    assert not store.healthy()
