"""A pool of connections to the current index, renewed when that is damaged or replaced by another."""

import threading
from collections.abc import Callable
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import TypeVar

import apsw

from notewright.index.base import Generation
from notewright.index.sqlite.evidence import make_counts_function, make_places_function
from notewright.index.sqlite.generations import Generations, Identity, translate_index_errors
from notewright.index.sqlite.schema import Connection, open_index
from notewright.sqlite_file import DAMAGE

T = TypeVar("T")
MAX_IDLE = 16  # connections kept open in the pool
READ_ERRORS = (*DAMAGE, apsw.SQLError, UnicodeDecodeError, JSONDecodeError)  # raised by a damaged index
MAX_TRIES = 4  # at a question, each with a new index if the one before was damaged


class _ThreadSnapshot(threading.local):
    """The connection whose open transaction answers everything this thread asks inside of a snapshot."""

    con: Connection | None = None
    identity: Identity = (0, 0)  # of the index file it reads


class IndexConnections:
    """Answers whatever happens to the files of the index: from a new, empty index if need be."""

    @translate_index_errors
    def __init__(self, folder: Path) -> None:
        self.generations = Generations(folder)
        self._idle: list[tuple[Identity, Connection]] = []
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._writer: tuple[Identity, Connection] | None = None
        self._whole: tuple[Identity, Generation, Connection] | None = None  # cached while that connection is open
        self.thread_snapshot = _ThreadSnapshot()
        self.snapshot = partial(_Snapshot, self)
        self.generations.ensure_current()

    def close(self) -> None:
        with self._writing, self._lock:
            for _, con in self._idle:
                self._close(con)
            self._idle.clear()
            if self._writer:
                self._writer[1].close()
                self._writer = None

    # ---- reading --------------------------------------------------------------------------------------

    @translate_index_errors
    def ask(self, question: Callable[[Connection], T]) -> T:
        """Ask the snapshot of this thread or the current index; a damaged index is replaced and the new one asked."""
        if self.thread_snapshot.con is not None:
            try:
                return question(self.thread_snapshot.con)
            except BaseException as error:
                self._drop_failed(error)
        for _ in range(MAX_TRIES - 1):
            identity = self.generations.ensure_current()
            try:
                return self._ask_once(identity, question)
            except READ_ERRORS as error:
                if not _is_damage(error):
                    raise
                self.generations.discard(identity)
        return self._ask_once(self.generations.ensure_current(), question)

    @translate_index_errors
    def ask_after_failure(self, error: BaseException, question: Callable[[Connection], T]) -> T:
        """Ask again what the snapshot of this thread failed to answer with `error`."""
        self._drop_failed(error)
        return self.ask(question)

    def _drop_failed(self, error: BaseException) -> None:
        """Close the failed snapshot of this thread and discard its damaged index; any error but damage is raised. The
        caller sees by `generation` whether the index was replaced."""
        con, self.thread_snapshot.con = self.thread_snapshot.con, None
        if con is not None:
            self._close(con, force=True)
        if not isinstance(error, READ_ERRORS) or not _is_damage(error):
            raise error
        self.generations.discard(self.thread_snapshot.identity)

    @translate_index_errors
    def begin(self, of: Generation | None) -> tuple[Identity, Connection]:
        """Begin a transaction on a connection; its snapshot is taken at the first read."""
        tries_left, known = MAX_TRIES, self._whole
        while True:
            identity = known[0] if known is not None and known[1] is of else self.generations.ensure_current()
            known = None
            try:
                con = self._acquire(identity)
                con.db.execute("begin")
                return identity, con
            except DAMAGE:
                self.generations.discard(identity)
                tries_left -= 1
                if not tries_left:
                    raise

    def generation(self) -> Generation:
        """The generation of the current index. A whole one is cached by the identity of its file, whose inode is not
        reused while a connection to it is open: most calls ask for this twice, before and after."""
        identity = self.generations.find_current()
        known = self._whole
        if known is not None and known[0] == identity:
            return known[1]

        def read_generation(con: Connection) -> Generation:
            meta = dict(con.rows("select key, value from meta where key in ('name', 'incomplete')"))
            answer = Generation(str(meta.get("name")), meta.get("incomplete") == 0)
            if answer.whole and identity is not None and self.generations.find_current() == identity:
                self._whole = (identity, answer, con)
            return answer

        held, self.thread_snapshot.con = self.thread_snapshot.con, None  # ask the current index, not the snapshot
        try:
            return self.ask(read_generation)
        finally:
            self.thread_snapshot.con = held

    def _close(self, con: Connection, *, force: bool = False) -> None:
        known = self._whole
        if known is not None and known[2] is con:
            self._whole = None
        con.close(force=force)

    def _ask_once(self, identity: Identity, question: Callable[[Connection], T]) -> T:
        con = self._acquire(identity)
        try:
            answer = question(con)
        except BaseException:
            self._close(con, force=True)
            raise
        self.release(identity, con)
        return answer

    def _acquire(self, identity: Identity) -> Connection:
        with self._lock:
            while self._idle:
                known, con = self._idle.pop()
                if known == identity:
                    return con
                self._close(con)
        con = open_index(self.generations.index_file)
        con.db.register_fts5_function("places", make_places_function(con))
        con.db.register_fts5_function("counts", make_counts_function(con))
        con.db.create_scalar_function("folded", lambda *path: str(path[0]).casefold(), 1, deterministic=True)
        return con

    def release(self, identity: Identity, con: Connection) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append((identity, con))
                return
        self._close(con)

    # ---- writing --------------------------------------------------------------------------------------

    @translate_index_errors
    def write(self, change: Callable[[Connection], object]) -> None:
        """Run a change in one transaction, holding the lock so that the index cannot be replaced meanwhile."""
        for attempt in range(MAX_TRIES):
            with self._writing, self.generations.locked():
                identity = self.generations.find_current()
                if identity is not None:
                    try:
                        if self._writer is None or self._writer[0] != identity:
                            if self._writer is not None:
                                self._writer[1].close()
                            self._writer = (identity, open_index(self.generations.index_file, writing=True))
                        _commit_change(self._writer[1], change)
                        return
                    except (*DAMAGE, apsw.SQLError) as error:
                        self._writer = None
                        if attempt == MAX_TRIES - 1 or not _is_damage(error):
                            raise
            if identity is None:
                self.generations.ensure_current()
            else:
                self.generations.discard(identity)


class _Snapshot:
    """Pins one snapshot to this thread while entered. Not a generator, for speed: every small question enters it."""

    __slots__ = ("_con", "_connections", "_identity", "_of")

    def __init__(self, connections: IndexConnections, of: Generation | None = None) -> None:
        self._connections, self._of = connections, of

    def __enter__(self) -> None:
        held = self._connections.thread_snapshot
        self._con = None
        if held.con is None:  # else nested in another
            self._identity, self._con = held.identity, held.con = self._connections.begin(self._of)

    def __exit__(self, *_: object) -> None:
        con, held = self._con, self._connections.thread_snapshot
        if con is not None and held.con is con:
            held.con = None
            con.db.execute("rollback")
            self._connections.release(self._identity, con)


def _is_damage(error: Exception) -> bool:
    """Whether an error means a damaged index: a table that somebody removed, bytes that are no longer text."""
    return not isinstance(error, apsw.SQLError) or "no such" in str(error) or "malformed" in str(error)


def _commit_change(con: Connection, change: Callable[[Connection], object]) -> None:
    """Run a change in a transaction and count it in the serial. Begun by a statement: `with con.db` would wait for
    another writer without releasing the interpreter lock, though the writer may be a thread of this process."""
    con.db.execute("begin immediate")
    try:
        change(con)
        con.rows("update meta set value=value+1 where key='serial'")
        con.db.execute("commit")
    except BaseException:
        con.known_words.clear()
        if con.db.in_transaction:
            con.db.execute("rollback")
        raise
