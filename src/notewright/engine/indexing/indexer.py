"""Keeping the index in step with the store: at start by stat alone, then by watching.

Of all processes that serve one folder one is elected (`leader_lock.py`) to follow changes made from outside; the others
wait to take over when it dies. Every process files its own changes itself.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext

from notewright.engine.indexing.before_index import is_file
from notewright.engine.indexing.difference import FEW, LATER, IndexDifference, plan
from notewright.engine.indexing.filing import (
    BATCH,
    batches,
    file_large,
    file_paths,
    file_unless_written,
    read_many_for_index,
)
from notewright.engine.indexing.first_listing import FirstListing
from notewright.engine.indexing.index_snapshot import IndexSnapshot
from notewright.engine.indexing.large_notes import LargeQueue, with_problem
from notewright.engine.indexing.leader_lock import LeaderLock
from notewright.engine.workspace import IndexFollower
from notewright.errors import Forbidden, Indexing, NotFound, Problem, Unavailable
from notewright.index.base import Filing, Generation, Index, Progress, Selection
from notewright.locks import Coordination
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, release_free_memory

log = logging.getLogger(__name__)

BUILD_FROM = 500  # so many changed files are worth a whole new index
LOOK_AGAIN_SECONDS = 300.0
TAKE_OVER_SECONDS = 0.2
WATCH_SECONDS = 10.0  # how long a watch may take to begin before everything is looked at without it, and once more then
DAY_SECONDS = 86_400.0
PLAN_SECONDS = 3.0  # how long a plan that needs every link waits for an index that is behind
LOST_SECONDS = 10.0  # how long a vanished third must stay vanished before it is believed


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
        self._store, self._index, self._watching, self._daily = store, index, watch, daily
        self._snapshot = snapshot
        self._fetched = False  # the index is another machine's, and was not compared with the store yet
        self._election = LeaderLock(locks)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._fresh = threading.Event()
        self._hinted = threading.Event()  # the watch has begun
        self._lost_since: float | None = None
        self._loaded: tuple[Generation, dict[str, str]] | None = None  # which index, and the stamps in it
        self._stale: str | None = None
        self._gone: list[tuple[float, int]] = []  # when, how many
        self._pending: set[str] = set()
        self._large = LargeQueue()
        self._everything = False
        self._next_day = 0.0
        self._built = False  # just now, which took memory
        self._listed: FirstListing | None = None  # while everything is filed for the first time
        self._listing = threading.Lock()  # held while that is made
        self._mutex = threading.Lock()
        self._heard: list[Callable[[frozenset[str] | None], None]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._spawn(self._follow, "follow")

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._hinted.set()
        for thread in self._threads:
            thread.join(5)
        if self._election.won and not any(thread.is_alive() for thread in self._threads):
            self._renew_snapshot(closing=True)
        self._election.resign()

    # ---- what the engine asks -------------------------------------------------------------------------

    def wait(self, seconds: float) -> Generation:
        """Until the index equals the store as of now or later than our start; Indexing when that takes too long."""
        deadline = time.monotonic() + seconds
        while not (self._caught_up() and (asked := self._index.generation()).whole):
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
        return asked

    def _caught_up(self) -> bool:
        return self._fresh.is_set() or (not self._election.won and self._election.others_are_fresh())

    def wait_for_all(self, seconds: float) -> None:
        self.wait(seconds)
        deadline = time.monotonic() + min(seconds, PLAN_SECONDS)
        while self._stale:
            if self._stop.is_set() or time.monotonic() >= deadline:
                raise Unavailable(self._stale, hint="what needs every link to be known waits for that")
            self._stop.wait(0.02)

    def listed(self, *, wait: bool = False) -> FirstListing | None:
        with self._listing if wait else nullcontext():
            return self._listed

    def progress(self) -> Progress:
        now = self._index.progress()
        busy = now.building or now.wanting or not (self._fresh.is_set() or not self._election.won)
        return Progress(now.done, now.total, busy, self._stale or now.stale)

    def may_write(self) -> None:
        if self._stale and self._lost_everything():
            raise Unavailable(
                "the notes are gone from where they were", hint="is the folder mounted? writing waits for it"
            )

    def takes_large(self) -> bool:
        return bool(self._threads) and not self._stop.is_set()

    def put_off(self, path: NotePath, size: int) -> None:
        self._large.add(path, size)
        self._wake.set()

    def look_again(self, paths: Iterable[str]) -> None:
        with self._mutex:
            self._pending |= set(paths)
        self._wake.set()

    def subscribe(self, heard: Callable[[frozenset[str] | None], None]) -> Callable[[], None]:
        with self._mutex:
            self._heard.append(heard)
        self._watch_too()

        def stop() -> None:
            with self._mutex:
                if heard in self._heard:
                    self._heard.remove(heard)

        return stop

    def rebuild(self, report: Callable[[int, int | None], None]) -> None:
        """A whole new index beside the old one, swapped in when it is done; everyone goes on meanwhile."""
        self._build(sum(self._index.count()) or sum(1 for _ in self._store.entries()), report)

    # ---- following ------------------------------------------------------------------------------------

    def _spawn(self, run: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=run, name=f"notewright-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            if self._election.stand():
                self._lead()
            elif self._wake.wait(TAKE_OVER_SECONDS):
                self._wake.clear()
                self._attempt(self._catch_up)
                while self._large and not self._stop.is_set() and not self._pending:
                    self._attempt(self._file_large)

    def _lead(self) -> None:
        """Watch first, then look at everything: what changes meanwhile is hinted at and looked at again."""
        if self._watching:
            self._watch_too()
        self._fetch_snapshot()
        self._attempt(self._load_stamps)  # while the watch is being set up
        if self._watching:
            self._wait_for_watch()
        self._everything = True
        looked = 0.0
        while not self._stop.is_set() and self._election.holds():
            if self._everything or time.monotonic() - looked > LOOK_AGAIN_SECONDS or not self._is_whole():
                self._everything = False
                self._attempt(self._look_at_everything)
                looked = time.monotonic()
            self._attempt(self._catch_up)
            self._attempt(self._file_large)
            self._do_daily()
            if self._renew_snapshot() or self._built:
                self._built = False
                release_free_memory()
            if not self._pending and not self._everything and not self._large:
                self._wake.wait(1.0 if self._lost_since is None else 0.5)
                self._wake.clear()
                self._everything = self._everything or self._lost_since is not None
        if not self._stop.is_set():
            self._election.resign()

    def _wait_for_watch(self) -> None:
        """Its first hint is that it watches: one look is then enough. Calls that wait for the index do not end this."""
        until = time.monotonic() + WATCH_SECONDS
        while not self._hinted.wait(0.5) and self._store.healthy() and time.monotonic() < until:
            pass

    def _load_stamps(self) -> None:
        self._loaded = self._stamps()

    def _stamps(self) -> tuple[Generation, dict[str, str]]:
        """Of the index that answers. Where there are none, the names of all files are listed for those who ask now."""
        generation, stamps = self._index.generation(), dict(self._index.stamps())
        if not stamps:
            with self._listing:
                self._listed = FirstListing(e.path for e in self._store.entries(bare=True) if is_file(e))
        return generation, stamps

    def _fetch_snapshot(self) -> None:
        """Where nothing is known yet, what another machine knew: only what changed since is read."""
        if self._snapshot is not None and not self._is_whole() and not any(self._index.count()):
            self._fetched = self._snapshot.fetch()

    def _renew_snapshot(self, *, closing: bool = False) -> bool:
        is_busy = bool(self._pending or self._everything or self._large or self._stale)
        if self._snapshot is not None and self._fresh.is_set() and (closing or not is_busy) and self._is_whole():
            return self._snapshot.renew_if_due(lambda: self._stop.is_set() and not closing, closing=closing)
        return False

    def _do_daily(self) -> None:
        """What one process has to do once a day, and when it begins."""
        if self._daily is None or time.monotonic() < self._next_day or not self._fresh.is_set():
            return
        self._next_day = time.monotonic() + DAY_SECONDS
        try:
            self._daily()
        except Problem as problem:
            log.warning("put off until tomorrow: %s", problem)
        except Exception:
            log.exception("put off until tomorrow")

    def _attempt(self, step: Callable[[], None]) -> None:
        """What cannot be done makes the index stale until all of it was looked at again."""
        try:
            step()
        except Problem as problem:
            self._stale, self._everything = problem.message, True
            self._stop.wait(0.5)
        except Exception as error:
            log.exception("following the notes failed; trying again")
            self._stale, self._everything = f"the index cannot be kept up to date: {error}", True
            self._stop.wait(1.0)

    def _is_whole(self) -> bool:
        try:
            return self._index.generation().whole
        except Problem:
            return False

    def _watch_too(self) -> None:
        if not any(thread.name == "notewright-watch" for thread in self._threads):
            self._spawn(self._watch, "watch")

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                walked = self._election.won and self._is_whole()  # a build takes its time between two folders
                for hint in self._store.changes(self._stop, walked=walked):
                    self._hint(hint)
            except Exception:
                log.exception("watching failed; looking at everything now and then instead")
            self._hint(None)
            self._stop.wait(2.0)

    def _hint(self, paths: frozenset[NotePath] | None) -> None:
        with self._mutex:
            if paths is None:
                self._everything = True
            else:
                self._pending |= paths
            heard = list(self._heard)
        self._hinted.set()
        self._wake.set()
        for tell in heard:
            tell(paths)

    def _catch_up(self) -> None:
        with self._mutex:
            paths, self._pending = self._pending, set()
        try:
            if paths:
                self._file(paths)
        except BaseException:
            with self._mutex:
                self._pending |= paths
            raise
        if not self._election.won:
            self._stale = None

    def _file(self, paths: Iterable[str]) -> None:
        if not self._store.healthy():
            self._everything = True
            return
        todo, gone = self._with_contents(paths)
        if len(todo) > BUILD_FROM or self._too_many(len(gone)):
            self._everything = True
            return
        # What is gone costs little and goes with the first batch: a file that was renamed is then never there twice.
        todo = [*gone, *(path for path in todo if path not in gone)]
        size = BATCH + len(gone)
        while todo and not self._stop.is_set():
            list(self._put_off(file_paths(self._store, self._index, todo[:size], large=False)))
            todo, size = todo[size:], BATCH

    def _put_off(self, filed: Iterable[Filing]) -> Iterator[Filing]:
        """The same; what is filed by its name alone is read when there is nothing else to do."""
        for one in filed:
            if one.problem == LATER:
                self._large.add(one.path, one.size)
            yield one

    def _file_large(self) -> None:
        """The smallest of the large notes that were put off."""
        path = self._large.smallest()
        if path is None:
            return
        try:
            changed = file_large(self._store, self._index, path)
        except BaseException:
            self._large.put_last(path)
            raise
        self._large.done(path)
        list(self._put_off(changed))

    def _with_contents(self, paths: Iterable[str]) -> tuple[list[NotePath], set[NotePath]]:
        """These, and what the index knows in those that are or were folders; and those of them all that are gone."""
        found: dict[NotePath, None] = {}
        gone: set[NotePath] = set()
        with self._index.steady():
            for path in map(NotePath, paths):
                found[path] = None
                kind = self._kind(path)
                if kind is None and self._index.filed(path):
                    gone.add(path)
                elif kind in (None, "folder"):
                    below, _ = self._index.select(Selection(folder=path, notes_only=False))
                    found.update((filed.path, None) for filed in below)
                    gone.update(filed.path for filed in below if self._kind(filed.path) is None)
        return list(found), gone

    def _too_many(self, gone: int) -> bool:
        """Files vanish one hint after the other when a mount goes away: what went within the last seconds counts."""
        now = time.monotonic()
        self._gone = [(at, count) for at, count in self._gone if now - at < LOST_SECONDS] + [(now, gone)]
        lately = sum(count for _, count in self._gone)
        if not lately:
            return False
        known = sum(self._index.count())
        return known + lately - gone >= FEW and lately * 3 > known + lately - gone

    def _kind(self, path: NotePath) -> str | None:
        try:
            return self._store.stat(path).kind
        except (NotFound, Forbidden):
            return None

    def _look_at_everything(self) -> None:
        if not self._store.healthy():
            raise Unavailable("the folder of the notes cannot be reached")
        looked_at, known = self._loaded or self._stamps()
        self._loaded = None
        now_ns = time.time_ns() if self._store.has_folders else None
        if not known and self._listed is not None and len(self._listed) > BUILD_FROM:
            self._build(len(self._listed), lambda done, total: None)
        else:
            difference = plan(self._store.changed_entries, known, now_ns)
            if difference.implausible and not self._fetched and not self._believed(difference):
                self._stale = "a third of the notes or more vanished at once; the index waits for them"
                return
            self._settle(difference, known)
        if self._stop.is_set():
            return
        if not looked_at.whole:
            self._index.settled(looked_at.name)
        self._stale, self._lost_since, self._listed, self._fetched = None, None, None, False
        self._fresh.set()
        self._election.say_fresh()

    def _believed(self, difference: IndexDifference) -> bool:
        """An empty root never is; a loss that lasts is."""
        now = time.monotonic()
        self._lost_since = self._lost_since or now
        return difference.seen > 0 and now - self._lost_since > LOST_SECONDS

    def _lost_everything(self) -> bool:
        try:
            return next(iter(self._store.entries()), None) is None
        except Problem:
            return True

    def _settle(self, difference: IndexDifference, known: Mapping[str, str]) -> None:
        left = self._large.take(difference.file, known)
        new = [entry for entry in left if known.get(entry.path) != entry.stamp]
        if len(new) > BUILD_FROM and len(new) * 3 > difference.seen:
            self._build(difference.seen, lambda done, total: None)
            return
        # With the first batch goes what is gone, and in it comes what is new: a file that was renamed is always there.
        drop = difference.drop
        for batch in batches(sorted(left, key=lambda entry: entry.path in known)):
            put = self._put_off(read_many_for_index(self._store, batch, large=False))
            file_unless_written(self._store, self._index, known, put, drop)
            drop = ()
            if self._stop.is_set():
                return
        if drop:
            file_unless_written(self._store, self._index, known, (), drop)

    def _build(self, about: int, report: Callable[[int, int | None], None]) -> None:
        """Listed when changes are already written down for it: what comes between would be in neither."""
        with self._index.rebuilding(about) as build:
            done = 0
            for batch in batches(self._store.entries()):
                build.file(read_many_for_index(self._store, batch, large=False))
                done += len(batch)
                report(done, max(done, about))
                if self._stop.is_set():
                    return
            self._built = True
            build.finish()
            with self._store.lock(timeout=60):
                build.swap(lambda paths: read_many_for_index(self._store, self._entries_of(paths), large=False))
        for filed in with_problem(self._index, LATER):
            self._large.add(filed.path, filed.size)
        self._wake.set()

    def _entries_of(self, paths: Iterable[str]) -> Iterator[Entry]:
        for path in paths:
            try:
                yield self._store.stat(NotePath(path))
            except Problem:
                continue
