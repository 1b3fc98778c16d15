"""The folder store among people's files: what stays as it was, what a crash leaves, who may interfere."""

import errno
import os
import random
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stores.parts import NEW, OLD, A, in_child, left_beside, put
from tests.waiting import until

from notewright.errors import Conflict, Exists, Forbidden, NoSpace, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder import atomic as writing_module
from notewright.stores.folder import leftovers
from notewright.stores.folder.paths import Root
from notewright.stores.folder.store import FolderStore

# What stays as it was


def test_mode_owner_and_attributes_of_a_note_are_kept(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "a.md")
    os.chmod(tmp_path / "a.md", 0o640)
    if os.geteuid() == 0:
        os.chown(tmp_path / "a.md", 1234, 2345)
    try:
        os.setxattr(tmp_path / "a.md", "user.colour", b"blue")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    before = os.stat(tmp_path / "a.md")
    store.stage(A, b"staged", op="1")
    os.chmod(tmp_path / "a.md", 0o604)  # between staging and writing
    version = store.write(A, b"staged", seen=version, op="1").version
    store.settle("1")
    store.write(A, NEW, seen=version, op="2")
    after = os.stat(tmp_path / "a.md")
    assert stat.S_IMODE(after.st_mode) == 0o604
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert os.getxattr(tmp_path / "a.md", "user.colour") == b"blue"


def test_a_folder_that_another_program_makes_in_the_same_moment_is_used(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def mkdir(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "mkdir", mkdir)
    store.write(NotePath("f/g/a.md"), NEW, seen=None, op="1")
    assert (tmp_path / "f" / "g" / "a.md").read_bytes() == NEW


def test_what_is_taken_out_and_stays_open_is_looked_at_less_and_less_often(store: FolderStore, tmp_path: Path) -> None:
    waiting = store._atomic_writer._leftovers
    for look in (0, leftovers.OFTEN_LOOKS - 1, leftovers.OFTEN_LOOKS):
        waiting.schedule(leftovers.Leftover("", "none"), look)
    due = sorted(round(due - time.monotonic()) for due, *_ in waiting._queue)
    assert due == [0, 1, 60]


def test_a_new_note_has_the_mode_the_umask_says(store: FolderStore, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        store.write(NotePath("f/a.md"), NEW, seen=None, op="1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "f/a.md").st_mode) == 0o640
    assert stat.S_IMODE(os.stat(tmp_path / "f").st_mode) == 0o750


def test_the_other_name_of_a_hard_linked_note_keeps_its_bytes(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "a.md")
    os.link(tmp_path / "a.md", tmp_path / "b.md")
    store.write(A, NEW, seen=version, op="1")
    assert store.read(A).data == NEW
    assert store.read(NotePath("b.md")).data == OLD


def test_bytes_are_never_translated(store: FolderStore) -> None:
    for number, data in enumerate((b"a\r\nb\r\n", b"\xef\xbb\xbfbom\n", b"\x00\xff\xfe", b"")):
        path = NotePath(f"{number}.md")
        store.write(path, data, seen=None, op="1")
        assert store.read(path).data == data


@pytest.mark.slow
def test_an_attachment_of_a_hundred_megabytes_is_written_and_read(store: FolderStore) -> None:
    data = random.Random(1).randbytes(1 << 20) * 100
    path = NotePath("film.bin")
    version = store.write(path, data, seen=None, op="1").version
    assert store.read(path).data == data
    store.delete(path, seen=version, op="2")


def test_names_that_differ_in_case_or_composition_are_two_files(store: FolderStore) -> None:
    twins = ("Note.md", "note.md", "\u00e9.md", "e\u0301.md")
    for name in twins:
        store.write(NotePath(name), name.encode(), seen=None, op="1")
    if len(list(store.entries())) != 4:
        pytest.skip("this file system does not tell such names apart")
    assert [store.read(NotePath(name)).data for name in twins] == [name.encode() for name in twins]


def test_looking_at_a_folder_changes_nothing_in_it(tmp_path: Path) -> None:
    put(tmp_path / "f/a.md")
    before = [(file, os.stat(file).st_mtime_ns, os.stat(file).st_ctime_ns) for file in tmp_path.rglob("*")]
    store = FolderStore(tmp_path)
    with store.lock():
        store.sweep(["f"])
    assert len(list(store.entries())) == 1 and store.children("f") and store.read(NotePath("f/a.md"))
    store.close()
    assert [(file, os.stat(file).st_mtime_ns, os.stat(file).st_ctime_ns) for file in tmp_path.rglob("*")] == before


def test_nothing_is_left_beside_when_the_store_is_closed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    version = put(tmp_path / "f/a.md")
    with open(tmp_path / "f/a.md", "ab"):  # an editor may still write to it
        version = store.write(NotePath("f/a.md"), NEW, seen=version, op="1").version
        assert left_beside(tmp_path)
    store.close()
    assert left_beside(tmp_path) == []


def test_what_nobody_has_open_is_gone_when_the_write_returns(tmp_path: Path) -> None:
    store, note = FolderStore(tmp_path), NotePath("f/a.md")
    for number in range(5):  # what was just written is open nowhere either
        version = put(tmp_path / note)
        version = store.write(note, NEW, seen=version, op=f"{number}-1").version
        assert left_beside(tmp_path) == []
        store.delete(note, seen=version, op=f"{number}-2")
        assert left_beside(tmp_path) == []
    store.close()


def test_what_was_taken_out_goes_by_itself_after_a_while(store: FolderStore, tmp_path: Path) -> None:
    store.write(A, NEW, seen=put(tmp_path / "a.md"), op="1")
    until(lambda: left_beside(tmp_path) == [], 10)


def test_an_emptied_folder_goes_at_once(store: FolderStore, tmp_path: Path) -> None:
    version = put(tmp_path / "f/g/a.md")
    store.delete(NotePath("f/g/a.md"), seen=version, op="1")
    store.settle("1", emptied=("f/g", "f"))
    assert not (tmp_path / "f").exists()
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_refused_creation_removes_the_folders_it_made(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "f")
    with pytest.raises(Exists):
        store.write(NotePath("f/b.md"), NEW, seen=None, op="1")
    with pytest.raises(Conflict):
        store.write(NotePath("g/h/b.md"), NEW, seen=version_of(OLD), op="1")
    assert [file.name for file in tmp_path.iterdir()] == ["f"]


# What cannot be done


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB of its own."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


@pytest.mark.slow
def test_a_full_disk_is_said_and_leaves_everything_as_it_was(small_disk: Path) -> None:
    store = FolderStore(small_disk)
    version = put(small_disk / "a.md")
    too_much = b"x" * 300_000
    with pytest.raises(NoSpace):
        store.write(A, too_much, seen=version, op="1")
    with pytest.raises(NoSpace):
        store.write(NotePath("new/b.md"), too_much, seen=None, op="2")
    with pytest.raises(NoSpace):
        store.stage(A, too_much, op="3")
    store.settle("3")
    assert store.read(A).data == OLD
    assert [file.name for file in small_disk.rglob("*")] == ["a.md"]
    store.close()


@pytest.mark.slow
def test_what_was_staged_can_be_written_on_a_disk_that_is_full_by_then(small_disk: Path) -> None:
    store = FolderStore(small_disk)
    version = put(small_disk / "a.md")
    store.stage(A, NEW, op="1")
    store.stage(NotePath("f/b.md"), NEW, op="1")
    with pytest.raises(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    store.write(A, NEW, seen=version, op="1")
    store.write(NotePath("f/b.md"), NEW, seen=None, op="1")
    store.settle("1")
    assert store.read(A).data == store.read(NotePath("f/b.md")).data == NEW
    store.close()


@pytest.mark.slow
def test_an_unmounted_folder_is_unavailable_and_never_empty(small_disk: Path) -> None:
    put(small_disk / "a.md")
    store = FolderStore(small_disk)
    subprocess.run(["umount", str(small_disk)], check=True)  # fails while anything is kept open
    assert_unavailable(store)


def test_a_folder_that_was_moved_away_or_replaced_is_unavailable(tmp_path: Path) -> None:
    put(tmp_path / "notes/a.md")
    store = FolderStore(tmp_path / "notes")
    assert store.read(A).data == OLD  # from now on by its full path
    os.rename(tmp_path / "notes", tmp_path / "elsewhere")
    assert_unavailable(store)
    os.symlink("elsewhere", tmp_path / "notes")
    assert_unavailable(store)
    os.unlink(tmp_path / "notes")
    put(tmp_path / "notes/b.md")
    assert_unavailable(store)
    put(tmp_path / "notes/a.md")
    assert_unavailable(store)
    shutil.rmtree(tmp_path / "notes")
    os.rename(tmp_path / "elsewhere", tmp_path / "notes")
    assert store.healthy() and store.read(A).data == OLD
    store.close()


def test_a_plain_note_is_opened_without_opening_the_folder_of_all_notes(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not store._root.able.openat2:
        pytest.skip("this kernel opens names one by one")
    put(tmp_path / "Deep/er/a.md")
    note, folder = NotePath("Deep/er/a.md"), NotePath("Deep")
    assert store.read(note).data == OLD  # which finds out that capitals count here
    os.symlink("Deep", tmp_path / "Link")
    linked = store.read(NotePath("Link/er/a.md"))
    monkeypatch.setattr(Root, "open_root_fd", lambda _: pytest.fail("it is opened"))
    assert store.read(note).data == linked.data == OLD
    assert (store.stat(note).kind, store.stat(folder).kind) == ("file", "folder")
    with pytest.raises(NotFound):
        store.read(NotePath("Deep/b.md"))


def assert_unavailable(store: FolderStore) -> None:
    version = version_of(OLD)
    calls: list[Callable[[], object]] = [
        lambda: list(store.entries()),
        lambda: store.children(""),
        lambda: store.stat(A),
        lambda: store.read(A),
        lambda: store.stage(A, NEW, op="1"),
        lambda: store.write(A, NEW, seen=version, op="1"),
        lambda: store.write(NotePath("new.md"), NEW, seen=None, op="1"),
        lambda: store.delete(A, seen=version, op="1"),
        lambda: store.settle("1"),
        lambda: store.sweep([""]),
        lambda: store.lock().__enter__(),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            call()
    assert not store.healthy()


def test_a_folder_that_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    put(tmp_path / "file")
    for place in ("nothing", "file"):
        with pytest.raises(Unavailable):
            FolderStore(tmp_path / place)


def as_nobody(work: Callable[[Path], None]) -> None:
    """Run something as a user whom permissions bind, in a folder of its own."""
    place = Path(tempfile.mkdtemp())
    try:
        if os.geteuid():
            work(place)
            return
        os.chown(place, 65534, 65534)

        def drop_and_work() -> None:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            work(place)

        assert in_child(drop_and_work) == 0
    finally:
        for folder in [place, *(each for each in place.rglob("*") if each.is_dir())]:
            os.chmod(folder, 0o700)
        shutil.rmtree(place)


@pytest.mark.slow
def test_what_permissions_forbid_is_forbidden() -> None:
    def work(place: Path) -> None:
        version = put(place / "a.md")
        put(place / "shut/b.md")
        store = FolderStore(place)
        os.chmod(place / "a.md", 0o444)
        for call in (
            lambda: store.write(A, NEW, seen=version, op="1"),
            lambda: store.delete(A, seen=version, op="1"),
        ):
            with pytest.raises(Forbidden):
                call()
        os.chmod(place / "a.md", 0)
        with pytest.raises(Forbidden):
            store.read(A)
        os.chmod(place / "shut", 0o555)
        with pytest.raises(Forbidden):
            store.write(NotePath("shut/new.md"), NEW, seen=None, op="1")
        with pytest.raises(Forbidden):
            store.write(NotePath("shut/b.md"), NEW, seen=version, op="1")
        os.chmod(place / "shut", 0)
        assert [entry.path for entry in store.entries()] == ["a.md"]
        assert store.unlisted_files() == (("shut", "it may not be read"),)
        store.close()
        os.chmod(place / "shut", 0o700)
        assert (place / "shut/b.md").read_bytes() == OLD

    as_nobody(work)


def test_names_that_are_not_text_are_left_out_and_reported(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "a.md")
    for name in (b"caf\xe9.md", b"line\nbreak.md", b"back\\slash.md"):
        os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    assert [entry.path for entry in store.entries()] == ["a.md"]
    assert [entry.path for entry in store.children("")] == ["a.md"]
    assert sorted(oddity.path for oddity in store.unlisted_files()) == [
        "back\\slash.md",
        "caf\\xe9.md",
        "line\nbreak.md",
    ]


def test_what_is_remembered_of_our_own_writes_is_bounded(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing_module, "MAX_REMEMBERED", 5)
    for number in range(20):
        store.write(NotePath(f"{number}.md"), b"%d" % number, seen=None, op="1")
    assert len(store._atomic_writer._own) == len(store._atomic_writer._replaced) == 5


def test_reading_a_missing_note_in_a_missing_folder_is_not_found(store: FolderStore) -> None:
    with pytest.raises(NotFound):
        store.read(NotePath("no/such/note.md"))
