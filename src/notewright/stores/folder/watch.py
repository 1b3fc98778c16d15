"""Hints of what changed in a folder: from the kernel's events where there are any, else by polling."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module

from notewright.errors import Problem
from notewright.notes.path import NotePath, path_problem
from notewright.stores.folder._inotify import FolderEvents, Inotify, has_inotify
from notewright.stores.folder.listing import Walk
from notewright.stores.folder.paths import Root

log = logging.getLogger(__name__)
Hint = frozenset[NotePath] | None
Healthy = Callable[[], bool]
Way = Callable[[Root, threading.Event, Healthy], Iterator[Hint]]
OfferWatch = Callable[[Inotify], None]  # to the next walk

DEBOUNCE_SECONDS, STEP_SECONDS = 0.05, 0.01  # a burst is one hint: it ends with a step without events, or by then
TICK_SECONDS = 0.1  # between two checks of `stop` and of the folder's health
WALK_SECONDS = 60.0  # how long a walk may take to complete the watch; then it is completed without it
RESCAN_SECONDS = 1.0  # between two scans where nothing can be watched; longer where a scan takes long
# Changes made on the other side of these raise no events here.
_REMOTE = ("9p", "afs", "ceph", "cifs", "drvfs", "fuse", "nfs", "smb", "vboxsf", "virtiofs")


def watch(root: Root, stop: threading.Event, healthy: Healthy, offer: OfferWatch | None = None) -> Iterator[Hint]:
    """`Store.changes` for one folder. Whenever the folder goes or comes back it yields None."""
    ways: list[Way] = [partial(by_events, offer=offer) if has_inotify() else by_watchfiles, by_rescans]
    if _is_remote(root.path):
        log.info("%s is on a network file system: looking for changes every second or so", root.path)
        del ways[0]
    while not stop.is_set():
        try:
            if healthy():
                yield from ways[0](root, stop, healthy)
            else:
                stop.wait(TICK_SECONDS)
        except Problem:
            yield None  # the folder went away
            stop.wait(TICK_SECONDS)
        except OSError as error:
            log.warning("%s cannot be watched (%s): looking for changes every second or so", root.path, error)
            del ways[0]


def by_events(root: Root, stop: threading.Event, healthy: Healthy, offer: OfferWatch | None = None) -> Iterator[Hint]:
    """Hints from inotify, until the folder goes away. `offer` hands the watch to the next walk, which completes it."""
    inotify, deadline = Inotify(root), time.monotonic() + WALK_SECONDS
    try:
        if offer is None:
            inotify.watch_all()
        else:
            offer(inotify)
        yield None
        while not stop.is_set():
            if not inotify.wait_until_complete(TICK_SECONDS):
                if time.monotonic() > deadline:
                    inotify.watch_all()
                    yield None
            elif inotify.wait(TICK_SECONDS):
                # Debounced by polling, not event by event: a change set of ours makes six for each note, and waking for
                # each of them would take the interpreter from the thread that writes. The first is ours as a rule, too.
                time.sleep(STEP_SECONDS)
                events, burst_ends = FolderEvents(), time.monotonic() + DEBOUNCE_SECONDS
                while inotify.take(events) and time.monotonic() < burst_ends:
                    time.sleep(STEP_SECONDS)
                if events.lost or (hints := _note_paths(events.names)):
                    yield None if events.lost else hints
            if not healthy():
                yield None
                return
    finally:
        inotify.close()


def by_watchfiles(root: Root, stop: threading.Event, healthy: Healthy) -> Iterator[Hint]:
    """Hints where there is no inotify (macOS), until the folder goes away."""
    watchfiles = import_module("watchfiles")  # only here, and only now: it takes long to load
    start, begun = len(root.path.rstrip("/")) + 1, False
    feed = watchfiles.watch(
        root.path,
        watch_filter=None,
        debounce=round(DEBOUNCE_SECONDS * 1000),
        step=round(STEP_SECONDS * 1000),
        rust_timeout=round(TICK_SECONDS * 1000),
        yield_on_timeout=True,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    try:
        for events in feed:
            # The first item comes once it is watching, even if nothing happened. What a new folder holds is not listed.
            if not begun or not healthy() or any(os.path.isdir(path) for _, path in events):
                yield None
            elif hints := _note_paths({path[start:] for _, path in events}):
                yield hints
            begun = True
            if not healthy():
                return
    except RuntimeError as error:
        raise OSError(str(error)) from error


def by_rescans(root: Root, stop: threading.Event, healthy: Healthy) -> Iterator[Hint]:
    """Hints by comparing the stamps of two scans, until the folder goes away."""
    before: set[tuple[NotePath, str]] | None = None
    while before is None or not stop.is_set():
        began = time.monotonic()
        now = {(entry.path, entry.stamp) for entry in Walk(root).files()}
        if before is None:
            yield None
        elif changed := frozenset(path for path, _ in now ^ before):
            yield changed
        before = now
        stop.wait(max(RESCAN_SECONDS, 10 * (time.monotonic() - began)))


def _note_paths(names: Iterable[str]) -> frozenset[NotePath]:
    """Those of these names that can be the path of a note, a file or a folder."""
    paths = map(NotePath, names)
    return frozenset(path for path in paths if not path.is_hidden and not path_problem(path))


def _is_remote(root: str) -> bool:
    """The folder is on a mount that other machines may change."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return False
    holding = [
        (len(place), kind)
        for place, kind in ((place.replace("\\040", " "), kind) for place, kind in mounts)
        if f"{root}/".startswith(f"{place.rstrip('/')}/")
    ]
    return bool(holding) and max(holding, key=lambda each: each[0])[1].startswith(_REMOTE)
