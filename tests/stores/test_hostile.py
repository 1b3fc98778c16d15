"""A folder full of traps: no call gets out of it, and none hangs."""

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.stores.parts import NEW, OLD, A, put

from notewright.errors import Forbidden, NotFound, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder.paths import Abilities, Root
from notewright.stores.folder.store import FolderStore

SECRET = b"a secret"
TRICKS = ["", ".", "..", "../outside/secret.md", "/etc/passwd", "f/../../outside/secret.md", "a.md\0", "a.md\0.md"]
TRICKS += ["f//b.md", "./a.md", "f/", "f/./b.md", "x" * 300, "d/" * 3000 + "a.md"]


@pytest.fixture(params=[True, False], ids=["openat2", "walking"])
def notes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FolderStore]:
    put(tmp_path / "outside/secret.md", SECRET)
    put(tmp_path / "notes/a.md")
    put(tmp_path / "notes/f/b.md")
    store = FolderStore(tmp_path / "notes", able=Abilities(openat2=request.param))
    yield store
    store.close()


def all_calls(store: FolderStore, path: NotePath) -> list[Callable[[], object]]:
    secret = version_of(SECRET)
    return [
        lambda: store.read(path),
        lambda: store.read(path, hidden=True),
        lambda: store.stat(path),
        lambda: store.children(path or "nothing"),
        lambda: store.stage(path, NEW, op="1"),
        lambda: store.write(path, NEW, seen=None, op="1"),
        lambda: store.write(path, NEW, seen=secret, op="1", settled=True, hidden=True),
        lambda: store.delete(path, seen=secret, op="1", settled=True),
    ]


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: repr(trick[:20]))
def test_no_path_leads_out(notes: FolderStore, tmp_path: Path, trick: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    for call in all_calls(notes, NotePath(trick)):
        with pytest.raises((NotFound, Forbidden)):
            call()
    notes.settle("1")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "outside/secret.md").read_bytes() == SECRET


def test_a_symlink_that_stays_inside_is_read_and_listed_as_what_it_is(notes: FolderStore, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    (root / "link.md").symlink_to("f/b.md")
    (root / "f/up.md").symlink_to("../a.md")
    (root / "whole.md").symlink_to(root / "a.md")  # absolute, and inside
    (root / "folder").symlink_to("f")
    (root / "twice.md").symlink_to("folder/up.md")
    for name in ("link.md", "f/up.md", "whole.md", "twice.md", "folder/b.md"):
        assert notes.read(NotePath(name)).data == OLD
    listed = {entry.path: (entry.kind, entry.target) for entry in notes.entries()}
    assert listed == {
        "a.md": ("file", None),
        "link.md": ("symlink", "f/b.md"),
        "twice.md": ("symlink", "folder/up.md"),
        "whole.md": ("symlink", str(root / "a.md")),
        "f/b.md": ("file", None),
        "f/up.md": ("symlink", "../a.md"),
    }
    known = {str(entry.path): entry.stamp for entry in notes.entries()}
    assert list(notes.changed_entries(known, sys.maxsize)) == [] and known == {}
    assert {entry.path: entry.real for entry in notes.entries() if entry.kind == "symlink"} == {
        "link.md": "f/b.md", "twice.md": "a.md", "whole.md": "a.md", "f/up.md": "a.md"
    }  # fmt: skip
    entry = notes.stat(NotePath("link.md"))
    assert (entry.kind, entry.size, entry.target) == ("symlink", len(OLD), "f/b.md")
    assert notes.read(NotePath("link.md")).entry == entry._replace(
        accessed_ns=notes.stat(NotePath("link.md")).accessed_ns
    )
    assert [entry.path for entry in notes.children("folder")] == ["folder/b.md", "folder/up.md"]


def test_a_symlink_is_never_written_through(notes: FolderStore, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    (root / "link.md").symlink_to("a.md")
    (root / "broken.md").symlink_to("new.md")
    (root / "folder").symlink_to("f")
    for name in ("link.md", "broken.md", "folder/b.md", "folder/new.md"):
        for seen in (None, version_of(OLD)):
            with pytest.raises(Forbidden):
                notes.write(NotePath(name), NEW, seen=seen, op="1")
        with pytest.raises(Forbidden):
            notes.delete(NotePath(name), seen=version_of(OLD), op="1")
        with pytest.raises(Forbidden):
            notes.stage(NotePath(name), NEW, op="1")
    notes.settle("1")
    assert (root / "a.md").read_bytes() == OLD == (root / "f/b.md").read_bytes()
    assert sorted(file.name for file in root.rglob("*")) == ["a.md", "b.md", "broken.md", "f", "folder", "link.md"]


def test_symlinks_that_lead_out_or_behind_a_dot_do_not_exist(notes: FolderStore, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    put(root / ".git/config")
    targets = [
        "../outside/secret.md",
        str(tmp_path / "outside/secret.md"),
        "/etc/passwd",
        "../nothing.md",
        "/proc/self",
    ]
    targets += [
        "f/../../outside/secret.md",
        "../notes/a.md",
        "../outside",
        "/",
        "..",
        ".git/config",
        ".git",
        "../../..",
    ]
    for number, target in enumerate(targets):
        (root / f"out{number}.md").symlink_to(target)
    for number in range(len(targets)):
        path = NotePath(f"out{number}.md")
        for call in (notes.read, notes.stat):
            with pytest.raises(NotFound):
                call(path)
        for inner in (NotePath(f"{path}/secret.md"), NotePath(f"{path}/config"), NotePath(f"{path}/outside/secret.md")):
            with pytest.raises(NotFound):
                notes.read(inner)
        with pytest.raises(NotFound):
            notes.children(path)
    assert [entry.path for entry in notes.entries()] == ["a.md", "f/b.md"]
    assert [entry.path for entry in notes.children("")] == ["a.md", "f"]
    for call in (notes.read, notes.children):
        with pytest.raises(NotFound) as refused:
            call(NotePath("out0.md"))
        assert refused.value.details["outside"]


def test_broken_symlinks_are_listed_without_a_size_and_those_that_run_in_a_circle_are_not_there(
    notes: FolderStore, tmp_path: Path
) -> None:
    root = tmp_path / "notes"
    (root / "broken.md").symlink_to("nothing.md")
    (root / "self.md").symlink_to("self.md")
    (root / "ping.md").symlink_to("pong.md")
    (root / "pong.md").symlink_to("ping.md")
    (root / "into.md").symlink_to("self.md/deeper.md")
    (root / "f/loop").symlink_to("..")
    for number in range(60):  # each leads to the one before: the later ones through more links than anybody follows
        (root / f"f/chain{number:02}.md").symlink_to(f"chain{number - 1:02}.md" if number else "../a.md")
    chain = [f"f/chain{number:02}.md" for number in range(40)]
    assert [entry.path for entry in notes.entries()] == ["a.md", "f/b.md", *chain]
    assert [entry.path for entry in notes.children("f")] == ["f/b.md", *chain, "f/loop"]
    for hidden in (False, True):
        links = [entry for entry in notes.children("", hidden=hidden) if entry.kind == "symlink"]
        assert [(entry.path, entry.size, entry.mode) for entry in links] == [("broken.md", 0, None)]
    for name in ("broken.md", "self.md", "ping.md", "into.md", "f/chain59.md"):
        with pytest.raises(NotFound):
            notes.read(NotePath(name))
        with pytest.raises(NotFound):
            notes.children(NotePath(name))
    for name in ("self.md", "ping.md", "into.md", "self.md/a.md", "f/chain59.md"):
        with pytest.raises(NotFound):
            notes.stat(NotePath(name))
    assert notes.read(NotePath("f/loop/f/loop/a.md")).data == OLD
    with pytest.raises(NotFound):
        notes.read(NotePath("f/loop/" * 41 + "a.md"))


def test_special_files_neither_hang_nor_exist(notes: FolderStore, tmp_path: Path) -> None:
    root = tmp_path / "notes"
    os.mkfifo(root / "fifo.md")
    listener = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(root)  # the path of a socket is short
    try:
        listener.bind("socket.md")
    finally:
        os.chdir(before)
    names = ["fifo.md", "socket.md"]
    try:
        os.mknod(root / "zero.md", 0o20666, os.makedev(1, 5))
        names.append("zero.md")
    except PermissionError:
        pass  # only root makes devices
    began = time.monotonic()
    for name in names:
        for call in (notes.read, notes.stat):
            with pytest.raises(NotFound):
                call(NotePath(name))
        with pytest.raises(Forbidden):
            notes.write(NotePath(name), NEW, seen=None, op="1")
        with pytest.raises(Forbidden):
            notes.delete(NotePath(name), seen=version_of(OLD), op="1")
    assert [entry.path for entry in notes.entries()] == ["a.md", "f/b.md"]
    assert [entry.path for entry in notes.children("")] == ["a.md", "f"]
    assert time.monotonic() - began < 2
    listener.close()


def test_a_very_deep_folder_is_listed_as_far_as_the_system_can(notes: FolderStore, tmp_path: Path) -> None:
    here = os.open(tmp_path / "notes/f", os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert [entry.path for entry in notes.entries()] == ["a.md", "f/b.md"]
    if notes._root.able.openat2:
        assert [oddity.why for oddity in notes.unlisted_files()] == ["its path is too long for the system"]
    shutil.rmtree(tmp_path / "notes/f")


def test_our_own_files_beside_are_out_of_reach(notes: FolderStore, tmp_path: Path) -> None:
    notes.stage(A, NEW, op="1")
    (laid,) = (tmp_path / "notes").glob(".notewright-*")
    for call in (notes.read, notes.stat):
        with pytest.raises(NotFound):
            call(NotePath(laid.name), hidden=True)  # type: ignore[operator]
    (tmp_path / "notes/link.md").symlink_to(laid.name)
    with pytest.raises(NotFound):
        notes.read(NotePath("link.md"), hidden=True)
    assert [entry.path for entry in notes.children("", hidden=True)] == ["a.md", "f"]
    notes.settle("1")


def swap_for(tmp_path: Path, stop: threading.Event) -> int:
    """Swap a folder and a file for symlinks that lead out, and back, as fast as can be; how often."""
    root, turns = Root(str(tmp_path / "notes")), 0
    (tmp_path / "notes/evil").symlink_to("../outside")
    (tmp_path / "notes/evil.md").symlink_to("../outside/secret.md")
    with root.open_root() as here:
        while not stop.is_set():
            for real, evil in (("f", "evil"), ("x.md", "evil.md")):
                try:
                    root.exchange(here, real, evil)
                    turns += 1
                except FileNotFoundError:  # the note is aside just now
                    continue
    return turns


def besiege(store: FolderStore, tmp_path: Path, seconds: float) -> tuple[int, int]:
    """Call everything while names are being swapped; how many calls were made, and how many swaps."""
    put(tmp_path / "notes/x.md")
    put(tmp_path / "notes/f/secret.md")
    put(tmp_path / "outside/b.md", SECRET)
    stop, turns, calls = threading.Event(), list[int](), 0
    attacker = threading.Thread(target=lambda: turns.append(swap_for(tmp_path, stop)))
    attacker.start()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            for path in map(NotePath, ("f/secret.md", "f/b.md", "x.md", "f/new.md")):
                for call in all_calls(store, path):
                    calls += 1
                    try:
                        assert SECRET not in repr(call()).encode()
                    except Problem:
                        pass
                store.settle("1")
            assert not any(entry.size == len(SECRET) for entry in store.entries())
    finally:
        stop.set()
        attacker.join()
    return calls, turns[0]


@pytest.mark.slow
def test_nothing_gets_out_while_names_are_swapped_for_symlinks(notes: FolderStore, tmp_path: Path) -> None:
    calls, turns = besiege(notes, tmp_path, 0.8)
    assert calls > 50 and turns > 20
    assert_untouched(tmp_path)


@pytest.mark.torture
def test_nothing_gets_out_while_names_are_swapped_for_symlinks_for_long(notes: FolderStore, tmp_path: Path) -> None:
    calls, turns = besiege(notes, tmp_path, 10)
    assert calls > 500 and turns > 200
    assert_untouched(tmp_path)


def assert_untouched(tmp_path: Path) -> None:
    found = {file.name: file.read_bytes() for file in (tmp_path / "outside").iterdir()}
    assert found == {"secret.md": SECRET, "b.md": SECRET}
