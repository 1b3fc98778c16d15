"""Errors of the system and other programs that come between, one by one."""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores.parts import NEW, OLD, A, in_child, left_beside, put

from notewright.disk_sync import Sync
from notewright.errors import Busy, Conflict, Exists, Forbidden, NoSpace, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder import atomic as writing_module
from notewright.stores.folder import paths
from notewright.stores.folder.paths import Abilities, Root, translate_os_error
from notewright.stores.folder.store import FolderStore

THEIRS = b"theirs " * 300


# ---- what errors of the system are called -------------------------------------------------------------

READING = {
    "ENOENT": NotFound, "ENOTDIR": NotFound, "EISDIR": NotFound, "ELOOP": NotFound, "ENAMETOOLONG": NotFound,
    "EILSEQ": NotFound, "ENXIO": NotFound, "EACCES": Forbidden, "EPERM": Forbidden, "EROFS": Forbidden,
    "ENOSPC": NoSpace, "EDQUOT": NoSpace, "EFBIG": NoSpace, "EBUSY": Busy, "ETXTBSY": Busy, "EAGAIN": Busy,
    "EMFILE": Busy, "ENFILE": Busy, "EIO": Unavailable, "ESTALE": Unavailable, "ENODEV": Unavailable,
    "EINVAL": Unavailable, "ENOTCONN": Unavailable,
}  # fmt: skip
WRITING = {"ELOOP": Forbidden, "ENAMETOOLONG": Forbidden, "EILSEQ": Forbidden, "EINVAL": Forbidden}


@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize("name", READING)
def test_every_error_of_the_system_is_a_problem_that_says_what_it_is(name: str, writing: bool) -> None:
    number = getattr(errno, name)
    kind = WRITING.get(name, READING[name]) if writing else READING[name]
    problem = translate_os_error(OSError(number, os.strerror(number)), "f/a.md", writing=writing)
    assert type(problem) is kind
    assert problem.details["path"] == "f/a.md" and "f/a.md" in problem.message


def test_what_cannot_be_reached_says_why_and_names_the_folder_where_no_note_was_asked_for() -> None:
    problem = translate_os_error(OSError(errno.EIO, "Input/output error"), "")
    assert problem.message == "the folder cannot be reached: Input/output error"
    assert (
        translate_os_error(OSError(errno.EACCES, "no"), "").message == "the file system does not let the folder be read"
    )
    assert translate_os_error(OSError(errno.EACCES, "no"), "a.md", writing=True).message.endswith("a.md be written")


def test_a_disk_that_fails_while_reading_is_unavailable_and_not_absent(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.md")

    def fail(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(paths.Root, "open", fail)
    with pytest.raises(Unavailable):
        store.read(A)


@pytest.mark.parametrize("number", [errno.EINTR, errno.EAGAIN])
def test_an_interrupted_system_call_is_repeated(
    number: int, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Root(str(tmp_path)).able.openat2:
        pytest.skip("no openat2 here")
    put(tmp_path / "a.md")
    real, left = paths._syscall, [number, number]

    def interrupted(*args: Any) -> int:
        if left:
            ctypes.set_errno(left.pop())
            return -1
        return int(real(*args))

    monkeypatch.setattr(paths, "_syscall", interrupted)
    assert store.read(A).data == OLD and left == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no list of open files here")
def test_without_openat2_no_folder_on_the_way_stays_open(tmp_path: Path) -> None:
    put(tmp_path / "f/g/h/a.md")
    root = Root(str(tmp_path), Abilities(openat2=False))
    with root.open_root() as entered:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            os.close(root.open(entered, "f/g/h/a.md"))
            with pytest.raises(FileNotFoundError):
                root.open(entered, "f/g/absent/a.md")
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no list of open files here")
def test_no_file_stays_open_after_a_change_that_was_made_or_refused(store: FolderStore, tmp_path: Path) -> None:
    def round(number: int) -> None:
        version = put(tmp_path / "f/a.md", b"%d" % number)
        path, op = NotePath("f/a.md"), str(number)
        store.stage(path, NEW, op=op)
        with pytest.raises(Conflict):
            store.write(path, OLD, seen=version_of(THEIRS), op=op)
        version = store.write(path, NEW, seen=version, op=op).version
        with pytest.raises(Exists):
            store.write(NotePath("f"), NEW, seen=None, op=op)
        store.delete(path, seen=version, op=op)
        store.settle(op)

    round(0)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 6):
        round(number)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no list of open files here")
def test_no_folder_stays_open_when_the_disk_fails_to_sync_one(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, notes = len(os.listdir("/proc/self/fd")), [NotePath(f"{folder}/a.md") for folder in "fgh"]
    for path in notes:
        put(tmp_path / path)
        store.stage(path, NEW, op="o")
    for path in notes:
        store.write(path, NEW, seen=version_of(OLD), op="o")

    class FailingSync(Sync):
        def wait(self) -> None:
            super().wait()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(writing_module, "Sync", FailingSync)
    with pytest.raises(Unavailable):
        store.settle("o")
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_the_file_system_cannot_do_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def rename(folder: int, name: str, to_folder: int, to: str, flags: int) -> None:
        tried.append(flags)
        raise OSError(errno.EINVAL, "cannot")

    monkeypatch.setattr(paths, "_rename", rename)
    store = FolderStore(tmp_path)
    version = put(tmp_path / "a.md")
    for number in range(3):
        version = store.write(A, b"%d" % number, seen=version, op=str(number)).version
        store.write(NotePath(f"new{number}.md"), NEW, seen=None, op=f"new{number}")
    store.close()
    assert sorted(tried) == [paths._NOREPLACE, paths._EXCHANGE]
    assert store_texts(tmp_path) == {"a.md": b"2", **{f"new{number}.md": NEW for number in range(3)}}


def store_texts(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# ---- who comes between --------------------------------------------------------------------------------


def while_laying(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Somebody does something while we write our bytes beside the note, which takes long."""
    real = writing_module.write_temp

    def lay(folder: int, name: str, data: bytes, like: int | None) -> Sync:
        begun = real(folder, name, data, like)
        act()
        return begun

    monkeypatch.setattr(writing_module, "write_temp", lay)


def test_a_save_while_we_lay_our_bytes_is_never_covered_not_even_for_a_moment(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = put(tmp_path / "a.md")
    while_laying(monkeypatch, lambda: put(tmp_path / "a.md", THEIRS))
    swapped: list[object] = []
    monkeypatch.setattr(Root, "exchange", lambda *args: swapped.append(args))
    with pytest.raises(Conflict) as refused:
        store.write(A, NEW, seen=version, op="1")
    assert refused.value.details["current"] == version_of(THEIRS)
    assert swapped == [] and store.read(A).data == THEIRS
    assert left_beside(tmp_path) == []


def test_a_note_deleted_while_we_lay_our_bytes_stays_deleted(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = put(tmp_path / "a.md")
    while_laying(monkeypatch, (tmp_path / "a.md").unlink)
    with pytest.raises(Conflict) as refused:
        store.write(A, NEW, seen=version, op="1")
    assert refused.value.details["current"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_note_made_while_we_lay_our_bytes_is_not_replaced(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_laying(monkeypatch, lambda: put(tmp_path / "a.md", THEIRS))
    with pytest.raises(Exists):
        store.write(A, NEW, seen=None, op="1")
    assert store.read(A).data == THEIRS and left_beside(tmp_path) == []


def before_swapping(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Somebody does something just before each time we swap two names."""
    real, left = Root.exchange, list(acts)

    def exchange(root: Root, folder: int, one: str, other: str) -> bool:
        if left:
            left.pop(0)()
        return real(root, folder, one, other)

    monkeypatch.setattr(Root, "exchange", exchange)


def test_a_save_just_before_the_swap_is_put_back(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = put(tmp_path / "a.md")
    before_swapping(monkeypatch, lambda: put(tmp_path / "a.md", THEIRS))
    with pytest.raises(Conflict) as refused:
        store.write(A, NEW, seen=version, op="1")
    assert refused.value.details["current"] == version_of(THEIRS)
    assert (tmp_path / "a.md").read_bytes() == THEIRS


def test_of_saves_before_each_swap_the_newest_has_the_name(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = put(tmp_path / "a.md")

    def save(data: bytes) -> Callable[[], object]:
        def act() -> None:
            put(tmp_path / "saving", data)
            os.replace(tmp_path / "saving", tmp_path / "a.md")

        return act

    before_swapping(monkeypatch, save(b"one"), save(b"two"), save(b"three"))
    with pytest.raises(Conflict):
        store.write(A, NEW, seen=version, op="1")
    assert (tmp_path / "a.md").read_bytes() == b"three"


def test_a_note_that_is_gone_just_before_the_swap_stays_gone(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = put(tmp_path / "a.md")
    before_swapping(monkeypatch, (tmp_path / "a.md").unlink)
    with pytest.raises(Conflict) as refused:
        store.write(A, NEW, seen=version, op="1")
    assert refused.value.details["current"] is None and list(tmp_path.iterdir()) == []


def test_a_save_just_before_a_deletion_stays(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, real = put(tmp_path / "a.md"), writing_module.remove_note

    def remove(*args: Any) -> None:
        put(tmp_path / "a.md", THEIRS)
        real(*args)

    monkeypatch.setattr(writing_module, "remove_note", remove)
    with pytest.raises(Conflict) as refused:
        store.delete(A, seen=version, op="1")
    assert refused.value.details["current"] == version_of(THEIRS)
    assert (tmp_path / "a.md").read_bytes() == THEIRS


# ---- what the dead left -------------------------------------------------------------------------------


@pytest.mark.slow
def test_sweeping_clears_the_named_folders_and_the_root_and_no_other(store: FolderStore, tmp_path: Path) -> None:
    for name in ("f", "g"):
        put(tmp_path / name / "there.md")

    def stage_and_die() -> None:
        other = FolderStore(tmp_path)
        for path in ("a.md", "f/b.md", "g/c.md"):
            other.stage(NotePath(path), NEW, op="1")
        os._exit(0)

    assert in_child(stage_and_die) == 0
    assert sorted(os.path.dirname(path) for path in left_beside(tmp_path)) == ["", "f", "g"]
    with store.lock():
        store.sweep(["f", "absent"])
    assert [os.path.dirname(path) for path in left_beside(tmp_path)] == ["g"]
    with store.lock():
        store.sweep(["g"])
    assert left_beside(tmp_path) == []
