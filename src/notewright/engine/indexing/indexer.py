"""Keep the index in step with the store: at start by comparing stamps, then by watching.

Of all processes that serve one folder one is elected leader (`leader_lock.py`) and follows changes made from outside;
the others wait to take over when it dies. Every process files its own changes itself.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext

from notewright.engine.indexing.difference import MIN_FILES_FOR_LOSS, NOT_INDEXED_YET, IndexDifference, compare
from notewright.engine.indexing.filing import (
    LargeQueue,
    batches,
    file_changes,
    file_large,
    find_changes,
    read_many_for_index,
)
from notewright.engine.indexing.first_listing import FirstListing
from notewright.engine.indexing.index_snapshot import IndexSnapshot
from notewright.engine.indexing.leader_lock import LeaderLock
from notewright.engine.workspace import IndexFollower
from notewright.errors import Indexing, Problem, Unavailable
from notewright.index.base import Filing, Generation, Index, IndexedFile, Progress
from notewright.locks import Coordination
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, catch_problem, is_file, release_free_memory

log = logging.getLogger(__name__)

BUILD_FROM = 500  # changed files for which a whole new index is built
COMPARE_SECONDS = 300.0  # between two comparisons of everything
TAKE_OVER_SECONDS = 0.2  # between two attempts to become leader
WATCH_SECONDS = 10.0  # to wait for the watch before everything is compared without it, and once more when it begins
DAY_SECONDS = 86_400.0
PLAN_SECONDS = 3.0  # that a plan which needs every link waits for an index that is behind
LOSS_SECONDS = 10.0  # until the loss of a third of the notes is accepted


class Indexer(IndexFollower):
    """Follows one store for one index until closed. Start it once; it never raises into its owner."""

    def __init__(
        self,
        store: Store,
        index: Index,
        locks: Coordination,
        *,
        watch: bool = True,
        daily: Callable[[], None] | None = None,
        snapshot: IndexSnapshot | None = None,
    ) -> None:
        self._store, self._index, self._watches, self._daily = store, index, watch, daily
        self._snapshot = snapshot
        self._is_fetched = False  # the index is another machine's, and was not compared with the store yet
        self._leader = LeaderLock(locks)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._fresh = threading.Event()
        self._watch_begun = threading.Event()
        self._lost_since: float | None = None
        self._loaded: tuple[Generation, dict[str, str]] | None = None  # which index, and the stamps in it
        self._stale: str | None = None
        self._vanished: list[tuple[float, int]] = []  # when, how many files
        self._pending: set[str] = set()
        self._large = LargeQueue()
        self._compare_all = False
        self._next_day = 0.0
        self._is_built = False  # just now, which took memory
        self._listing: FirstListing | None = None  # while everything is filed for the first time
        self._listing_lock = threading.Lock()  # held while that is made
        self._mutex = threading.Lock()
        self._listeners: list[Callable[[frozenset[str] | None], None]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._start_thread(self._run, "follow")

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._watch_begun.set()
        for thread in self._threads:
            thread.join(5)
        if self._leader.is_leader and not any(thread.is_alive() for thread in self._threads):
            self._renew_snapshot(closing=True)
        self._leader.release()

    # ---- called by the engine -------------------------------------------------------------------------

    def wait(self, seconds: float) -> Generation:
        """Wait until the index equals the store as of our start or later; Indexing when that takes too long."""
        deadline = time.monotonic() + seconds
        while True:
            if self._fresh.is_set() or (not self._leader.is_leader and self._leader.is_other_fresh()):
                generation = self._index.generation()
                if generation.whole:
                    break
            self._wake.set()
            if self._stop.is_set() or time.monotonic() >= deadline:
                now = self._index.progress()
                raise Indexing(
                    f"still indexing ({now.done} of {now.total or '?'} notes)",
                    hint="try again in a moment",
                    done=now.done,
                    total=now.total,
                )
            (self._stop if self._fresh.is_set() else self._fresh).wait(0.02)  # the latter ends it at once
        self._large.wait(self._stop, deadline)
        return generation

    def wait_for_all(self, seconds: float) -> None:
        self.wait(seconds)
        deadline = time.monotonic() + min(seconds, PLAN_SECONDS)
        while self._stale:
            if self._stop.is_set() or time.monotonic() >= deadline:
                raise Unavailable(self._stale, hint="what needs every link to be known waits for that")
            self._stop.wait(0.02)

    def first_listing(self, *, wait: bool = False) -> FirstListing | None:
        with self._listing_lock if wait else nullcontext():
            return self._listing

    def progress(self) -> Progress:
        now = self._index.progress()
        busy = now.building or now.total is None or not (self._fresh.is_set() or not self._leader.is_leader)
        return Progress(now.done, now.total, busy, self._stale or now.stale)

    def refuse_if_lost(self) -> None:
        if not self._stale:
            return
        try:
            is_lost = next(iter(self._store.entries()), None) is None
        except Problem:
            is_lost = True
        if is_lost:
            raise Unavailable(
                "the notes are gone from where they were", hint="is the folder mounted? writing waits for it"
            )

    def can_defer(self) -> bool:
        return bool(self._threads) and not self._stop.is_set()

    def defer(self, path: NotePath, size: int) -> None:
        self._large.add(path, size)
        self._wake.set()

    def file_again(self, paths: Iterable[str]) -> None:
        with self._mutex:
            self._pending |= set(paths)
        self._wake.set()

    def subscribe(self, listener: Callable[[frozenset[str] | None], None]) -> Callable[[], None]:
        with self._mutex:
            self._listeners.append(listener)
        self._start_watch()

        def stop() -> None:
            with self._mutex:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def rebuild(self, report: Callable[[int, int | None], None]) -> None:
        """Build a whole new index beside the old one, which answers until they are swapped."""
        self._build(self._index.total("files") or sum(1 for _ in self._store.entries()), report)

    # ---- the thread that follows ----------------------------------------------------------------------

    def _start_thread(self, run: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=run, name=f"notewright-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._leader.try_lead():
                self._run_as_leader()
            elif self._wake.wait(TAKE_OVER_SECONDS):
                self._wake.clear()
                self._attempt(self._file_pending)
                while self._large and not self._stop.is_set() and not self._pending:
                    self._attempt(self._file_large)

    def _run_as_leader(self) -> None:
        """Watch first, then compare everything: what changes meanwhile is reported by the watch and compared again."""
        if self._watches:
            self._start_watch()
        if self._snapshot is not None and not self._is_whole() and not self._index.total("files"):
            # What another machine knew: only what changed since has to be read.
            self._is_fetched = self._snapshot.fetch()
        self._attempt(self._load_stamps)  # while the watch is being set up
        if self._watches:
            # Its first hint tells that it has begun: one comparison is then enough. Calls that wait do not end this.
            until = time.monotonic() + WATCH_SECONDS
            while not self._watch_begun.wait(0.5) and self._store.healthy() and time.monotonic() < until:
                pass
        self._compare_all = True
        compared = 0.0
        while not self._stop.is_set() and self._leader.is_held():
            if self._compare_all or time.monotonic() - compared > COMPARE_SECONDS or not self._is_whole():
                self._compare_all = False
                self._attempt(self._compare_everything)
                compared = time.monotonic()
            self._attempt(self._file_pending)
            self._attempt(self._file_large)
            self._run_daily()
            if self._renew_snapshot() or self._is_built:
                self._is_built = False
                release_free_memory()
            if not self._pending and not self._compare_all and not self._large:
                self._wake.wait(1.0 if self._lost_since is None else 0.5)
                self._wake.clear()
                self._compare_all = self._compare_all or self._lost_since is not None
        if not self._stop.is_set():
            self._leader.release()

    def _load_stamps(self) -> tuple[Generation, dict[str, str]]:
        """Load the stamps of the index. Where there are none, list all names for calls that ask before it is built."""
        generation, stamps = self._index.generation(), dict(self._index.stamps())
        if not stamps:
            with self._listing_lock:
                self._listing = FirstListing(e.path for e in self._store.entries(bare=True) if is_file(e))
        self._loaded = generation, stamps
        return self._loaded

    def _renew_snapshot(self, *, closing: bool = False) -> bool:
        is_busy = bool(self._pending or self._compare_all or self._large or self._stale)
        if self._snapshot is not None and self._fresh.is_set() and (closing or not is_busy) and self._is_whole():
            return self._snapshot.renew_if_due(lambda: self._stop.is_set() and not closing, closing=closing)
        return False

    def _run_daily(self) -> None:
        """Do what one process has to do at start and once a day."""
        if self._daily is None or time.monotonic() < self._next_day or not self._fresh.is_set():
            return
        self._next_day = time.monotonic() + DAY_SECONDS
        try:
            self._daily()
        except Problem as problem:
            log.warning("the daily upkeep is put off until tomorrow: %s", problem)
        except Exception:
            log.exception("the daily upkeep is put off until tomorrow")

    def _attempt(self, step: Callable[[], object]) -> None:
        """Run a step; if it fails, the index is stale until everything was compared again."""
        try:
            step()
        except Problem as problem:
            self._stale, self._compare_all = problem.message, True
            self._stop.wait(0.5)
        except Exception as error:
            log.exception("following the notes failed; trying again")
            self._stale, self._compare_all = f"the index cannot be kept up to date: {error}", True
            self._stop.wait(1.0)

    def _is_whole(self) -> bool:
        try:
            return self._index.generation().whole
        except Problem:
            return False

    def _start_watch(self) -> None:
        if not any(thread.name == "notewright-watch" for thread in self._threads):
            self._start_thread(self._watch, "watch")

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                walked = self._leader.is_leader and self._is_whole()  # a build takes its time between two folders
                for hint in self._store.changes(self._stop, walked=walked):
                    self._take_hint(hint)
            except Exception:
                log.exception("watching failed; comparing all files now, and trying again")
            self._take_hint(None)
            self._stop.wait(2.0)

    def _take_hint(self, paths: frozenset[NotePath] | None) -> None:
        with self._mutex:
            if paths is None:
                self._compare_all = True
            else:
                self._pending |= paths
            listeners = list(self._listeners)
        self._watch_begun.set()
        self._wake.set()
        for listener in listeners:
            listener(paths)

    # ---- filing what changed --------------------------------------------------------------------------

    def _file_pending(self) -> None:
        with self._mutex:
            paths, self._pending = self._pending, set()
        try:
            if paths:
                self._file(paths)
        except BaseException:
            with self._mutex:
                self._pending |= paths
            raise
        if not self._leader.is_leader:
            self._stale = None

    def _file(self, paths: Iterable[str]) -> None:
        if not self._store.healthy():
            self._compare_all = True
            return
        before, changed, gone = find_changes(self._store, self._index, map(NotePath, paths))
        if len(changed) + len(gone) > BUILD_FROM or self._too_many_vanished(len(gone)):
            self._compare_all = True
            return
        self._file_changes(before, changed, gone)

    def _file_changes(self, before: Mapping[str, str], changed: Iterable[Entry], gone: Sequence[str]) -> None:
        for filing in file_changes(self._store, self._index, before, changed, gone, large=False):
            self._defer_if_large(filing)
            if self._stop.is_set():
                return

    def _defer_if_large(self, filing: Filing | IndexedFile) -> None:
        """Queue a note that was filed by its name alone."""
        if filing.problem == NOT_INDEXED_YET:
            self._large.add(filing.path, filing.size)

    def _file_large(self) -> None:
        """File the smallest of the large notes that were deferred."""
        path = self._large.smallest()
        if path is None:
            return
        try:
            changed = file_large(self._store, self._index, path)
        except BaseException:
            self._large.put_last(path)
            raise
        self._large.done(path)
        for filing in changed:
            self._defer_if_large(filing)

    def _too_many_vanished(self, gone: int) -> bool:
        """When a mount goes away, files vanish one hint after the other: those of the last seconds count together."""
        now = time.monotonic()
        recent = [(at, count) for at, count in self._vanished if now - at < LOSS_SECONDS]
        self._vanished = [*recent, (now, gone)]
        lately = sum(count for _, count in self._vanished)
        if not lately:
            return False
        before = self._index.total("files") + lately - gone
        return before >= MIN_FILES_FOR_LOSS and lately * 3 > before

    def _compare_everything(self) -> None:
        if not self._store.healthy():
            raise Unavailable("the folder of the notes cannot be reached")
        generation, known = self._loaded or self._load_stamps()
        self._loaded = None
        now_ns = time.time_ns() if self._store.has_folders else None
        if not known and self._listing is not None and len(self._listing) > BUILD_FROM:
            self._build(len(self._listing), lambda done, total: None)
        else:
            difference = compare(self._store.changed_entries, known, now_ns)
            if difference.is_implausible and not self._is_fetched:
                now = time.monotonic()
                self._lost_since = self._lost_since or now
                # An empty root is never accepted; any other loss is, once it has lasted.
                if difference.seen == 0 or now - self._lost_since <= LOSS_SECONDS:
                    self._stale = "a third of the notes or more vanished at once; the index waits for them"
                    return
            self._apply(difference, known)
        if self._stop.is_set():
            return
        if not generation.whole:
            self._index.mark_whole(generation.name)
        self._stale, self._lost_since, self._listing, self._is_fetched = None, None, None, False
        self._fresh.set()
        self._leader.announce_fresh()

    def _apply(self, difference: IndexDifference, known: Mapping[str, str]) -> None:
        left = self._large.take(difference.file, known)
        new = [entry for entry in left if known.get(entry.path) != entry.stamp]
        if len(new) > BUILD_FROM and len(new) * 3 > difference.seen:
            self._build(difference.seen, lambda done, total: None)
            return
        self._file_changes(known, left, difference.drop)

    def _build(self, about: int, report: Callable[[int, int | None], None]) -> None:
        """Build a new index of about so many files and swap it in. The listing begins when changes are already recorded
        for the build: one in between would be in neither."""
        with self._index.rebuild(about) as build:
            done = 0
            for batch in batches(self._store.entries()):
                build.file(read_many_for_index(self._store, batch, large=False))
                done += len(batch)
                report(done, max(done, about))
                if self._stop.is_set():
                    return
            self._is_built = True
            build.finish()

            def read_changed(paths: Iterable[str]) -> Iterator[Filing]:
                entries = (catch_problem(self._store.stat, NotePath(path)) for path in paths)
                still_there = (entry for entry in entries if isinstance(entry, Entry))
                return read_many_for_index(self._store, still_there, large=False)

            with self._store.lock(timeout=60):
                build.swap(read_changed)
        for filed in self._index.with_problem(NOT_INDEXED_YET):
            self._large.add(filed.path, filed.size)
        self._wake.set()
