"""Hints of what changed: nothing is missed, nothing outside is watched, and without events it works too."""

import logging
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stores.parts import NEW, OLD, in_child, put

from notewright.notes.path import NotePath
from notewright.stores.base import version_of
from notewright.stores.folder import watch as watching
from notewright.stores.folder.listing import Walk
from notewright.stores.folder.paths import Root
from notewright.stores.folder.store import FolderStore
from notewright.stores.folder.watch import (
    STEP_SECONDS,
    FolderEvents,
    Hint,
    Inotify,
    by_events,
    by_rescans,
    by_watchfiles,
    has_inotify,
    watch,
)


def by_a_walk(root: Root, stop: threading.Event, healthy: Callable[[], bool]) -> Iterator[Hint]:
    """Events, where a walk puts up the watch."""

    def walk(events: Inotify) -> None:
        list(Walk(root, entering=events.watch_folder).files())
        events.complete.set()

    return by_events(root, stop, healthy, offer=walk)


WAYS = [by_events, by_a_walk, by_rescans, by_watchfiles]


class Told:
    """What a feed of hints has told so far."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.everything = 0
        self.news = threading.Condition()

    def hear(self, hint: Hint) -> None:
        with self.news:
            self.names |= hint or set()
            self.everything += hint is None
            self.news.notify_all()

    def until(self, enough: Callable[["Told"], bool], seconds: float = 30) -> float:
        """Wait until enough was told; how long that took."""
        began = time.monotonic()
        with self.news:
            assert self.news.wait_for(lambda: enough(self), seconds), (sorted(self.names)[:20], self.everything)
        return time.monotonic() - began


@contextmanager
def listening(feed: Callable[[threading.Event], Iterator[Hint]]) -> Iterator[Told]:
    """Listen to a feed in a thread, from when it has begun."""
    stop, told = threading.Event(), Told()

    def listen() -> None:
        for hint in feed(stop):
            told.hear(hint)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        told.until(lambda told: told.everything >= 1)
        told.everything = 0
        yield told
    finally:
        stop.set()
        listener.join(10)
        assert not listener.is_alive()


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Told]:
    put(tmp_path / "f/b.md")
    put(tmp_path / "outside/c.md")
    (tmp_path / "f/out").symlink_to("../outside")
    root = Root(str(tmp_path / "f"))
    if request.param in (by_events, by_a_walk) and not has_inotify():
        pytest.skip("this system has no inotify")
    with listening(lambda stop: request.param(root, stop, lambda: True)) as heard:
        yield heard


def test_each_kind_of_change_is_told(told: Told, tmp_path: Path) -> None:
    put(tmp_path / "f/a.md")
    told.until(lambda told: "a.md" in told.names)
    os.rename(tmp_path / "f/a.md", tmp_path / "f/c.md")
    told.until(lambda told: "c.md" in told.names)
    told.names.clear()
    with open(tmp_path / "f/b.md", "ab") as file:
        file.write(b"more")
    told.until(lambda told: "b.md" in told.names)
    os.unlink(tmp_path / "f/c.md")
    told.until(lambda told: "c.md" in told.names)


def test_files_that_come_with_their_folders_are_told(told: Told, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "outside", tmp_path / "f/new/deep/er")
    told.until(lambda told: "new/deep/er/c.md" in told.names or told.everything > 0)
    told.names.clear()
    told.everything = 0
    put(tmp_path / "f/new/deep/er/late.md")
    told.until(lambda told: "new/deep/er/late.md" in told.names or told.everything > 0)


def test_a_folder_that_moves_is_told_under_both_names(tmp_path: Path) -> None:
    put(tmp_path / "one/deep/a.md")
    root = Root(str(tmp_path))
    with listening(lambda stop: by_events(root, stop, lambda: True)) as told:
        os.rename(tmp_path / "one", tmp_path / "two")
        told.until(lambda told: {"one", "two", "two/deep/a.md"} <= told.names)
        told.names.clear()
        put(tmp_path / "two/deep/a.md", NEW)
        told.until(lambda told: "two/deep/a.md" in told.names)
        assert not any(name.startswith("one") for name in told.names)


def test_nothing_behind_dots_or_symlinks_is_watched(tmp_path: Path) -> None:
    put(tmp_path / "notes/.git/config")
    put(tmp_path / "outside/c.md")
    (tmp_path / "notes/out").symlink_to("../outside")
    (tmp_path / "notes/loop").symlink_to(".")
    events = Inotify(Root(str(tmp_path / "notes")))
    events.watch_all()
    assert list(events._folders.values()) == [""]
    events.close()


def test_events_are_looked_at_step_by_step_however_many_come(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, take = [0], Inotify.take

    def counted(self: Inotify, seen: FolderEvents) -> bool:
        looks[0] += 1
        return take(self, seen)

    monkeypatch.setattr(Inotify, "take", counted)
    with listening(store.changes) as told:
        began = time.monotonic()
        for number in range(200):  # three events each
            store.write(NotePath(f"{number}.md"), NEW, seen=None, op=f"{number}")
        told.until(lambda told: "199.md" in told.names)
        assert looks[0] <= 5 + 1.5 * (time.monotonic() - began) / STEP_SECONDS


def walking(store: FolderStore) -> Callable[[threading.Event], Iterator[Hint]]:
    return lambda stop: store.changes(stop, walked=True)


def test_what_changes_while_a_walk_puts_up_the_watch_is_told(store: FolderStore, tmp_path: Path) -> None:
    for name in ("a/1.md", "b/1.md", "c/1.md"):
        put(tmp_path / name)
    with listening(walking(store)) as told:
        walk = store.entries()
        assert next(walk).path == "a/1.md"  # the root and a were listed
        os.rename(tmp_path / "c", tmp_path / "a/c")
        put(tmp_path / "a/2.md")
        put(tmp_path / "d/1.md")
        assert [entry.path for entry in walk] == ["b/1.md"]
        told.until(lambda told: {"a/2.md", "c", "a/c", "a/c/1.md", "d", "d/1.md"} <= told.names)
        told.names.clear()
        for name in ("a/1.md", "b/1.md", "a/c/1.md", "d/1.md"):
            put(tmp_path / name, NEW)
        told.until(lambda told: {"a/1.md", "b/1.md", "a/c/1.md", "d/1.md"} <= told.names)


def test_a_walk_that_ends_early_leaves_the_watch_to_the_next(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "a/1.md")
    put(tmp_path / "b/1.md")
    with listening(walking(store)) as told:
        assert next(store.entries()).path == "a/1.md"
        list(store.entries("b"))  # not over everything
        put(tmp_path / "b/2.md")
        assert len(list(store.entries())) == 3
        put(tmp_path / "b/3.md")
        told.until(lambda told: "b/3.md" in told.names)


def test_a_watch_that_fails_on_the_way_is_not_the_failure_of_the_walk(tmp_path: Path) -> None:
    put(tmp_path / "a/1.md")
    events, root = Inotify(Root(str(tmp_path))), Root(str(tmp_path))
    events.close()  # whatever it is asked to watch is refused now
    assert [entry.path for entry in Walk(root, entering=events.watch_folder).files()] == ["a/1.md"]
    with pytest.raises(OSError, match="inotify watch"):
        events.wait_until_complete(0)


def test_folders_that_no_walk_comes_to_are_watched_all_the_same(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WALK_SECONDS", 0.0)
    put(tmp_path / "a/1.md")
    with listening(walking(store)) as told:
        told.until(lambda told: told.everything >= 1)
        put(tmp_path / "a/2.md")
        told.until(lambda told: "a/2.md" in told.names)


@pytest.mark.slow
def test_five_thousand_files_at_once_are_all_seen(store: FolderStore, tmp_path: Path) -> None:
    with listening(store.changes) as told:
        wanted = {f"{folder}/{number}.md" for folder in range(50) for number in range(100)}
        for name in wanted:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
        told.until(lambda told: told.everything > 0 or wanted <= told.names)


def test_a_listener_that_was_asleep_is_told_that_it_missed_some(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    names = [tmp_path / "a.md", tmp_path / "b.md"]
    for name in names:
        put(name)
    stop = threading.Event()
    feed = by_events(Root(str(tmp_path)), stop, lambda: True)
    assert next(feed) is None
    for number in range(limit + 10):
        os.utime(names[number % 2])  # in turns: equal events in a row are one
    assert any(next(feed) is None for _ in range(10))
    put(tmp_path / "c.md")
    assert any("c.md" in (next(feed) or ()) for _ in range(10))
    feed.close()  # type: ignore[attr-defined]


def test_our_own_writes_are_told_and_what_lies_beside_is_not(store: FolderStore, tmp_path: Path) -> None:
    put(tmp_path / "a.md")
    with listening(store.changes) as told:
        store.write(NotePath("a.md"), NEW, seen=version_of(OLD), op="1")
        store.write(NotePath("f/b.md"), NEW, seen=None, op="2")
        told.until(lambda told: {"a.md", "f/b.md"} <= told.names)
        assert told.names == {"a.md", "f", "f/b.md"}


def test_a_change_is_told_within_a_quarter_of_a_second(store: FolderStore, tmp_path: Path) -> None:
    took = []
    with listening(store.changes) as told:
        for number in range(5):
            put(tmp_path / f"{number}.md")
            took.append(told.until(lambda told, name=f"{number}.md": name in told.names))  # type: ignore[misc]
    assert sorted(took)[2] < 0.25


def test_a_folder_that_goes_and_comes_back_is_told_as_everything(tmp_path: Path) -> None:
    put(tmp_path / "notes/a.md")
    store = FolderStore(tmp_path / "notes")
    with listening(store.changes) as told:
        os.rename(tmp_path / "notes", tmp_path / "away")
        told.until(lambda told: told.everything >= 1)
        put(tmp_path / "away/b.md")
        before = told.everything
        os.rename(tmp_path / "away", tmp_path / "notes")
        told.until(lambda told: told.everything > before)
        before = told.everything  # that it is away may have been told twice: it need not be watched again yet
        put(tmp_path / "notes/c.md")
        told.until(lambda told: "c.md" in told.names or told.everything > before)
        put(tmp_path / "notes/d.md")
        told.until(lambda told: "d.md" in told.names)
    store.close()


@pytest.mark.slow
def test_where_watching_is_impossible_it_says_so_and_looks_again_and_again(tmp_path: Path) -> None:
    put(tmp_path / "notes/a.md")

    def work() -> None:
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("notewright.stores.folder.watch").addHandler(handler)
        root, stop = Root(str(tmp_path / "notes")), threading.Event()
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, 4096))  # no descriptor is left to watch with
        feed = watch(root, stop, lambda: True)
        assert next(feed) is None
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        assert next(feed) is None  # now it can look
        put(tmp_path / "notes/b.md")
        assert next(feed) == {"b.md"}
        assert len(lines) == 1 and "cannot be watched" in lines[0]

    assert in_child(work) == 0
