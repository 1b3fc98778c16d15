"""The traffic of several processes in one SQLite file.

A call is a row with a running number, so that the call before which a window began is found by one look-up, however
many calls the window holds. Nothing waits for the disk: a power cut may take all of it. A file that cannot be used is
replaced, and while that is not possible each process counts for itself.

The file is in memory where the system has a place for that (`/dev/shm`): a call counted there takes 0.04 ms. In the
state directory, whose disk must wait for every note and change that is written, it took 0.3 to 1.4 ms.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from notewright.accounts.limits import MOST, MemoryRateLimits, Window, limited
from notewright.errors import Unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")

VERSION = 1
SCHEMA = """
    create table if not exists call(
        caller blob not null, n integer not null, at real not null, primary key(caller, n)
    ) without rowid;
    create table if not exists caller(name blob primary key, used real not null) without rowid;
    create index if not exists caller_used on caller(used);
    create table if not exists session(
        name blob primary key, used real not null, ended integer not null
    ) without rowid;
    create index if not exists session_used on session(used);
    create table if not exists mark(
        session blob not null, what text not null, primary key(session, what)
    ) without rowid;
"""
MEMORY = Path("/dev/shm")
GRAIN = 10.0  # seconds: how exactly it is known when a session was used last, so that most requests only read
SWEEP = 256  # calls of this process between two looks at the size of things
MOST_BYTES = 32 << 20  # beyond, a quarter of the callers are forgotten; a container has 64 MiB of such memory
OLD = 2 * 86_400.0  # seconds: longer than any window
AHEAD = 1.0  # seconds; a row that lies further in the future was written before somebody set the clock back
WAIT = 2.0  # seconds for another process's transaction, each of which takes a tenth of a millisecond


class SqliteRateLimits:
    """One connection, used by one thread at a time; other processes have their own on the same file.

    To be opened in the process that uses it: SQLite does not survive a fork.
    """

    def __init__(
        self, file: Path, clock: Callable[[], float] = time.time, most: int = MOST, present: int | None = None
    ) -> None:
        """`present` is the open file by which the last one to leave knows that it is the last."""
        self._file = file
        self._present = present
        self._clock = clock
        self._most = most
        self._alone = threading.Lock()
        self._spare = MemoryRateLimits(clock, most)
        self._troubled = False
        self._counted = random.randrange(SWEEP)  # so that not all processes sweep at once
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db, self._inode = self._opened()
        except (OSError, apsw.Error) as error:
            words = f"the call counts cannot be kept in {file}: {error}"
            raise Unavailable(words, hint="look at the state directory") from error

    @classmethod
    def open(cls, folder: Path) -> "SqliteRateLimits":
        """The traffic of all who share the state directory `folder`, which is made if it is not there."""
        for _ in range(10):
            with contextlib.suppress(OSError, Unavailable):  # or somebody is just tidying up there
                place = _in_memory(folder)
                return cls(place / "traffic.db", present=_enter(place))
        return cls(folder / "traffic.db")

    def close(self) -> None:
        with self._alone:
            self._db.close()
            if self._present is not None:
                _leave(self._file.parent, self._present)
                self._present = None

    # Calls

    def count(self, caller: str, windows: Sequence[Window]) -> None:
        name = _digest(caller)
        full = self._together(lambda db: self._count(db, name, windows), lambda: self._spare.count(caller, windows))
        if full is not None:
            raise limited(*full)

    def _count(self, db: apsw.Connection, name: bytes, windows: Sequence[Window]) -> tuple[Window, float] | None:
        """One call more; or the window that is full, and for how long."""
        with _transaction(db):
            now = self._clock()
            last = _last_number(db, name, now)
            for window in windows:
                began = db.execute(
                    "select at from call where caller = ? and n = ?", (name, last - window.calls + 1)
                ).fetchone()
                if began is not None and began[0] > now - window.seconds:
                    return window, began[0] + window.seconds - now
            db.execute("insert into call values(?, ?, ?)", (name, last + 1, now))
            if last % 16 == 0:
                db.execute("insert or replace into caller values(?, ?)", (name, now))
            _drop_old(db, name, last + 1 - max(window.calls for window in windows), now, windows)
            self._counted += 1
            if self._counted % SWEEP == 0:
                self._sweep(db, now)
        return None

    # Sessions

    def touch(self, session: str, *, idle: float, age: float = 0.0) -> bool:
        name = _digest(session)
        return self._together(
            lambda db: self._touch(db, name, idle, age), lambda: self._spare.touch(session, idle=idle, age=age)
        )

    def _touch(self, db: apsw.Connection, name: bytes, idle: float, age: float) -> bool:
        now = self._clock()
        known = db.execute("select used, ended from session where name = ?", (name,)).fetchone()
        used, ended = (now - age, False) if known is None else (known[0] + GRAIN, known[1])
        if ended or now - used > idle:
            return False
        if known is None or now - known[0] >= GRAIN:
            _use(db, name, now)
        return True

    def once(self, session: str, what: str) -> bool:
        name = _digest(session)
        return self._together(
            lambda db: not _marked(db, name, what) and self._mark(db, name, what),
            lambda: self._spare.once(session, what),
        )

    def _mark(self, db: apsw.Connection, name: bytes, what: str) -> bool:
        with _transaction(db):
            db.execute("insert or ignore into mark values(?, ?)", (name, what))
            first = db.changes() == 1
            db.execute("insert or ignore into session values(?, ?, 0)", (name, self._clock()))
        return first

    def marked(self, session: str, what: str) -> bool:
        name = _digest(session)
        return self._together(lambda db: _marked(db, name, what), lambda: self._spare.marked(session, what))

    def end(self, session: str) -> None:
        name = _digest(session)
        self._together(
            lambda db: db.execute("insert or replace into session values(?, ?, 1)", (name, self._clock())) and None,
            lambda: self._spare.end(session),
        )

    def forget(self, session: str) -> None:
        name = _digest(session)
        self._together(lambda db: _forget(db, name), lambda: self._spare.forget(session))

    def _sweep(self, db: apsw.Connection, now: float) -> None:
        """Keep what is remembered within its bounds."""
        db.execute("delete from session where used < ?", (now - OLD,))
        _drop_longest_unused(db, "session", self._most)
        db.execute("delete from mark where session not in (select name from session)")
        db.execute("delete from caller where used < ?", (now - OLD,))
        pages = db.execute("pragma page_count").get - db.execute("pragma freelist_count").get
        large = pages * db.execute("pragma page_size").get > MOST_BYTES
        callers = db.execute("select count(*) from caller").get
        _drop_longest_unused(db, "caller", min(self._most, callers * 3 // 4) if large else self._most)
        db.execute("delete from call where caller not in (select name from caller)")

    # The file

    def _together(self, work: Callable[[apsw.Connection], T], alone: Callable[[], T]) -> T:
        """`work` on the file that all share; where it cannot be used, what this process knows by itself."""
        with self._alone:
            for attempt in (1, 2):
                try:
                    self._same_file()
                    found = work(self._db)
                    self._troubled = False
                    return found
                except (
                    apsw.CorruptError,
                    apsw.NotADBError,
                    apsw.SQLError,
                    apsw.IOError,
                    apsw.SchemaChangeError,
                ) as error:
                    if attempt == 1 and self._replaced(error):
                        continue
                    self._complain(error)
                except (apsw.Error, OSError) as error:
                    self._complain(error)
                break
        return alone()

    def _complain(self, error: Exception) -> None:
        if not self._troubled:
            log.warning("calls are counted by each worker for itself: %s", error)
        self._troubled = True

    def _same_file(self) -> None:
        """Another process may have replaced it."""
        if _inode(self._file) != self._inode:
            self._db.close()
            self._db, self._inode = self._opened()

    def _replaced(self, error: Exception) -> bool:
        """Whether there is a new file in place of one that cannot be used."""
        log.warning("%s cannot be used and is created again: %s", self._file.name, error)
        try:
            with self._locked():
                if _inode(self._file) == self._inode:
                    _remove(self._file)
            self._db.close()
            self._db, self._inode = self._opened()
            return True
        except (OSError, apsw.Error):
            return False

    def _opened(self) -> tuple[apsw.Connection, int]:
        """The file as it is now, or a new one if that is no use. Nobody replaces it meanwhile."""
        with self._locked():
            try:
                return _open(self._file)
            except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.IOError, _Foreign):
                _remove(self._file)
                return _open(self._file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._file.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _in_memory(folder: Path) -> Path:
    """A folder of our own in memory, the same for everybody who shares `folder`; OSError where there is none."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = folder.stat()
    place = MEMORY / f"notewright-{os.geteuid()}-{known.st_dev:x}-{known.st_ino:x}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{place} is somebody else's")
    return place


def _enter(place: Path) -> int:
    """Be known as present in a folder, until the file is closed; OSError if it goes away meanwhile."""
    present = os.open(place / "present", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(present, fcntl.LOCK_SH)
        if os.fstat(present).st_ino != os.stat(place / "present").st_ino:
            raise FileNotFoundError(f"{place} is gone")
    except BaseException:
        os.close(present)
        raise
    return present


def _leave(place: Path, present: int) -> None:
    """Whoever leaves last leaves nothing behind: memory is not to be filled with what nobody needs."""
    try:
        fcntl.flock(present, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for file in place.iterdir():
            file.unlink()
        place.rmdir()
    except OSError:  # somebody is still here, or has just come
        pass
    finally:
        os.close(present)


class _Foreign(Exception):
    """A file of another version."""


def _open(file: Path) -> tuple[apsw.Connection, int]:
    file.touch(mode=0o600)
    db = apsw.Connection(str(file))
    try:
        began = [0.0]

        def wait(times: int) -> bool:
            """SQLite's own waits begin with a millisecond: ten times longer than what is waited for."""
            began[0] = time.monotonic() if times == 0 else began[0]
            time.sleep(random.uniform(0.0001, 0.0005))
            return time.monotonic() - began[0] < WAIT

        db.set_busy_handler(wait)
        version = db.execute("pragma user_version").get
        if version not in (0, VERSION):
            raise _Foreign
        db.execute("pragma journal_mode = wal; pragma synchronous = off; pragma wal_autocheckpoint = 1000")
        with _transaction(db):
            db.execute(SCHEMA)
            db.execute(f"pragma user_version = {VERSION}")
        found = _inode(file)
        if found is None:
            raise OSError(f"{file} is gone")
        return db, found
    except BaseException:
        db.close()
        raise


def _inode(file: Path) -> int | None:
    try:
        return os.stat(file).st_ino
    except FileNotFoundError:
        return None


def _remove(file: Path) -> None:
    """The file first: a process that still has it open sees by that that the rest is not its own."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def _transaction(db: apsw.Connection) -> Iterator[None]:
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


def _digest(name: str) -> bytes:
    """Names of people and ids of sessions are not written down."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _last_number(db: apsw.Connection, name: bytes, now: float) -> int:
    while True:
        last = db.execute("select n, at from call where caller = ? order by n desc limit 1", (name,)).fetchone()
        if last is None:
            return 0
        if last[1] <= now + AHEAD:
            return int(last[0])
        db.execute("delete from call where caller = ? and at > ?", (name, now + AHEAD))


def _drop_old(db: apsw.Connection, name: bytes, needed: int, now: float, windows: Sequence[Window]) -> None:
    """What no window looks back to, by number; and some of what is too old for any, so that in time all of it goes."""
    longest = max(window.seconds for window in windows)
    db.execute("delete from call where caller = ? and n < ?", (name, needed))
    first = db.execute("select n, at from call where caller = ? order by n limit 1", (name,)).fetchone()
    if first is not None and first[1] <= now - longest:
        db.execute("delete from call where caller = ? and n < ? and at <= ?", (name, first[0] + 8, now - longest))


def _drop_longest_unused(db: apsw.Connection, table: str, most: int) -> None:
    over = db.execute(f"select count(*) from {table}").get - most
    if over > 0:
        db.execute(f"delete from {table} where name in (select name from {table} order by used limit ?)", (over,))


def _use(db: apsw.Connection, name: bytes, now: float) -> None:
    said = "insert into session values(?, ?, 0) on conflict(name) do update set used = excluded.used where not ended"
    db.execute(said, (name, now))


def _marked(db: apsw.Connection, name: bytes, what: str) -> bool:
    return db.execute("select 1 from mark where session = ? and what = ?", (name, what)).fetchone() is not None


def _forget(db: apsw.Connection, name: bytes) -> None:
    with _transaction(db):
        db.execute("delete from session where name = ?", (name,))
        db.execute("delete from mark where session = ?", (name,))
