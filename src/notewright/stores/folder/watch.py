"""Hints of what changed in a folder: by the kernel's events where they come, else by looking again and again."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module

from notewright.errors import Problem
from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import Entry
from notewright.stores.folder._inotify import Inotify, Seen, is_here
from notewright.stores.folder.listing import Walk
from notewright.stores.folder.paths import Root

log = logging.getLogger(__name__)
Hint = frozenset[NotePath] | None
Healthy = Callable[[], bool]
Way = Callable[[Root, threading.Event, Healthy], Iterator[Hint]]
Offer = Callable[[Inotify], None]  # to the next walk

DEBOUNCE_S, STEP_S = 0.05, 0.01  # a burst is told as one: until nothing comes for a step, or so long at most
TICK_S = 0.1  # how often we look whether to stop, and whether the folder is still there
WALK_S = 60.0  # how long a walk may take to put up the watch; then that is done without it
RESCAN_S = 1.0  # between two looks where nothing can be watched; longer where a look takes long
# Changes made on the other side of these raise no events here.
_REMOTE = ("9p", "afs", "ceph", "cifs", "drvfs", "fuse", "nfs", "smb", "vboxsf", "virtiofs")


def watch(root: Root, stop: threading.Event, healthy: Healthy, offer: Offer | None = None) -> Iterator[Hint]:
    """What `Store.changes` promises, for one folder. Whenever the folder goes or comes back it says None."""
    ways: list[Way] = [partial(by_events, offer=offer) if is_here() else by_watchfiles, by_rescans]
    if _is_remote(root.path):
        log.info("%s is on a network file system: looking for changes every second or so", root.path)
        del ways[0]
    while not stop.is_set():
        try:
            if healthy():
                yield from ways[0](root, stop, healthy)
            else:
                stop.wait(TICK_S)
        except Problem:
            yield None  # it went away in this moment
            stop.wait(TICK_S)
        except OSError as error:
            log.warning("%s cannot be watched (%s): looking for changes every second or so", root.path, error)
            del ways[0]


def by_events(root: Root, stop: threading.Event, healthy: Healthy, offer: Offer | None = None) -> Iterator[Hint]:
    """Hints by the kernel's events, until the folder goes away. `offer`: a walk that comes now puts up the watch."""
    events, until = Inotify(root), time.monotonic() + WALK_S
    try:
        if offer is None:
            events.watch_all()
        else:
            offer(events)
        yield None
        while not stop.is_set():
            if not events.is_whole(TICK_S):
                if time.monotonic() > until:
                    events.watch_all()
                    yield None
            elif events.wait(TICK_S):
                seen = _burst(events)
                if seen.lost or (hints := _hints(seen.names)):
                    yield None if seen.lost else hints
            if not healthy():
                yield None
                return
    finally:
        events.close()


def _burst(events: Inotify) -> Seen:
    """Looked at step by step, not event by event: a change set of ours makes six for each note, and whoever wakes for
    each of them takes the interpreter from the thread that writes. The first is ours as a rule, too: sleep before it
    is read."""
    time.sleep(STEP_S)
    seen, until = Seen(), time.monotonic() + DEBOUNCE_S
    while events.take(seen) and time.monotonic() < until:
        time.sleep(STEP_S)
    return seen


def by_watchfiles(root: Root, stop: threading.Event, healthy: Healthy) -> Iterator[Hint]:
    """Hints where there is no inotify (macOS), until the folder goes away."""
    watchfiles = import_module("watchfiles")  # only here, and only now: it takes long to load
    start, begun = len(root.path.rstrip("/")) + 1, False
    feed = watchfiles.watch(
        root.path,
        watch_filter=None,
        debounce=round(DEBOUNCE_S * 1000),
        step=round(STEP_S * 1000),
        rust_timeout=round(TICK_S * 1000),
        yield_on_timeout=True,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    try:
        for events in feed:
            # The first comes when it is watching, also if nothing has happened. What a new folder holds is not told.
            if not begun or not healthy() or any(os.path.isdir(path) for _, path in events):
                yield None
            elif hints := _hints({path[start:] for _, path in events}):
                yield hints
            begun = True
            if not healthy():
                return
    except RuntimeError as error:
        raise OSError(str(error)) from error


def by_rescans(root: Root, stop: threading.Event, healthy: Healthy) -> Iterator[Hint]:
    """Hints by comparing stamps, until the folder goes away."""
    before = _stamps(Walk(root).files())
    yield None
    while not stop.is_set():
        began = time.monotonic()
        now = _stamps(Walk(root).files())
        if changed := frozenset(path for path, _ in now.items() ^ before.items()):
            yield changed
        before = now
        stop.wait(max(RESCAN_S, 10 * (time.monotonic() - began)))


def _stamps(entries: Iterable[Entry]) -> dict[NotePath, str]:
    return {entry.path: entry.stamp for entry in entries}


def _hints(names: Iterable[str]) -> frozenset[NotePath]:
    """What of these can be a path of a note, a file or a folder."""
    paths = map(NotePath, names)
    return frozenset(path for path in paths if not path.is_hidden and not path_problem(path))


def _is_remote(root: str) -> bool:
    """The folder's mount is one whose changes are made elsewhere."""
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
