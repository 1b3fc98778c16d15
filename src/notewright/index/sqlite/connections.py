"""Connections to the index that stands now: kept open between questions, renewed when it is damaged or replaced."""

import threading
from collections.abc import Callable
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import TypeVar

import apsw

from notewright.index.base import Generation
from notewright.index.sqlite.evidence import make_counts_function, make_places_function
from notewright.index.sqlite.generations import Generations, Identity, in_words
from notewright.index.sqlite.schema import Connection, open_index
from notewright.sqlite_file import DAMAGE

T = TypeVar("T")
IDLE = 16  # connections kept open between questions
READING = (*DAMAGE, apsw.SQLError, UnicodeDecodeError, JSONDecodeError)  # what a damaged index raises
TRIES = 4  # to answer, each with a new index where the one before was damaged


class _ThreadSnapshot(threading.local):
    """The connection that a thread asks everything of, from one moment."""

    con: Connection | None = None
    identity: Identity = (0, 0)  # of the index it reads


class IndexConnections:
    """Whatever happens to the files of an index, it answers: from a new, empty one if need be."""

    @in_words
    def __init__(self, folder: Path) -> None:
        self.places = Generations(folder)
        self._idle: list[tuple[Identity, Connection]] = []
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._writer: tuple[Identity, Connection] | None = None
        self._whole: tuple[Identity, Generation, Connection] | None = None  # known while that connection is open
        self.held = _ThreadSnapshot()
        self.snapshot = partial(_Snapshot, self)
        self.places.ensure_current()

    def close(self) -> None:
        with self._writing, self._lock:
            for _, con in self._idle:
                self._close(con)
            self._idle.clear()
            if self._writer:
                self._writer[1].close()
                self._writer = None

    # ---- reading --------------------------------------------------------------------------------------

    @in_words
    def ask(self, question: Callable[[Connection], T]) -> T:
        """Answered by the index that stands now; one that turns out damaged is begun anew and asked again."""
        if self.held.con is not None:
            try:
                return question(self.held.con)
            except BaseException as error:
                self._drop_failed(error)
        for _ in range(TRIES - 1):
            identity = self.places.ensure_current()
            try:
                return self._answer(identity, question)
            except READING as error:
                if not _is_damage(error):
                    raise
                self.places.discard(identity)
        return self._answer(self.places.ensure_current(), question)

    @in_words
    def ask_after_failure(self, error: BaseException, question: Callable[[Connection], T]) -> T:
        """What the connection of this thread failed to answer."""
        self._drop_failed(error)
        return self.ask(question)

    def _drop_failed(self, error: BaseException) -> None:
        """Nothing more is asked of the connection this thread held: `generation` tells whether the index was lost. What
        is no damage is raised."""
        con, self.held.con = self.held.con, None
        if con is not None:
            self._close(con, force=True)
        if not isinstance(error, READING) or not _is_damage(error):
            raise error
        self.places.discard(self.held.identity)

    @in_words
    def begin(self, of: Generation | None) -> tuple[Identity, Connection]:
        """A connection whose transaction has begun; the moment it shows is that of the first question."""
        tries, known = TRIES, self._whole
        while True:
            identity = known[0] if known is not None and known[1] is of else self.places.ensure_current()
            known = None
            try:
                con = self._acquire(identity)
                con.db.execute("begin")
                return identity, con
            except DAMAGE:
                self.places.discard(identity)
                tries -= 1
                if not tries:
                    raise

    def generation(self) -> Generation:
        """One that is whole stays so, and is known by its file, whose inode is no other's while a connection to it is
        open: most calls ask for this, before and after."""
        identity = self.places.find_current()
        known = self._whole
        if known is not None and known[0] == identity:
            return known[1]

        def look(con: Connection) -> Generation:
            meta = dict(con.rows("select key, value from meta where key in ('name', 'wanting')"))
            answer = Generation(str(meta.get("name")), meta.get("wanting") == 0)
            if answer.whole and identity is not None and self.places.find_current() == identity:
                self._whole = (identity, answer, con)
            return answer

        held, self.held.con = self.held.con, None  # the one that answers now, not the one of that moment
        try:
            return self.ask(look)
        finally:
            self.held.con = held

    def _close(self, con: Connection, *, force: bool = False) -> None:
        known = self._whole
        if known is not None and known[2] is con:
            self._whole = None
        con.close(force=force)

    def _answer(self, identity: Identity, question: Callable[[Connection], T]) -> T:
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
        con = open_index(self.places.index_file)
        con.db.register_fts5_function("places", make_places_function(con))
        con.db.register_fts5_function("counts", make_counts_function(con))
        con.db.create_scalar_function("folded", lambda *path: str(path[0]).casefold(), 1, deterministic=True)
        return con

    def release(self, identity: Identity, con: Connection) -> None:
        with self._lock:
            if len(self._idle) < IDLE:
                self._idle.append((identity, con))
                return
        self._close(con)

    # ---- writing --------------------------------------------------------------------------------------

    @in_words
    def write(self, change: Callable[[Connection], object]) -> None:
        """One transaction, behind the gate: the index cannot be changed for another meanwhile."""
        for attempt in range(TRIES):
            with self._writing, self.places.gate():
                identity = self.places.find_current()
                if identity is not None:
                    try:
                        if self._writer is None or self._writer[0] != identity:
                            if self._writer is not None:
                                self._writer[1].close()
                            self._writer = (identity, open_index(self.places.index_file, writing=True))
                        _change(self._writer[1], change)
                        return
                    except (*DAMAGE, apsw.SQLError) as error:
                        self._writer = None
                        if attempt == TRIES - 1 or not _is_damage(error):
                            raise
            if identity is None:
                self.places.ensure_current()
            else:
                self.places.discard(identity)


class _Snapshot:
    """What this thread asks inside is answered from one moment. No generator: every small question passes here."""

    __slots__ = ("_con", "_connections", "_identity", "_of")

    def __init__(self, connections: IndexConnections, of: Generation | None = None) -> None:
        self._connections, self._of = connections, of

    def __enter__(self) -> None:
        held = self._connections.held
        self._con = None
        if held.con is None:  # else inside another
            self._identity, self._con = held.identity, held.con = self._connections.begin(self._of)

    def __exit__(self, *_: object) -> None:
        con, held = self._con, self._connections.held
        if con is not None and held.con is con:
            held.con = None
            con.db.execute("rollback")
            self._connections.release(self._identity, con)


def _is_damage(error: Exception) -> bool:
    """The index does not hold what we put into it: a table that somebody removed, bytes that are no longer text."""
    return not isinstance(error, apsw.SQLError) or "no such" in str(error) or "malformed" in str(error)


def _change(con: Connection, change: Callable[[Connection], object]) -> None:
    """All of it or none. Begun by a statement: `with con.db` would wait for another writer without letting any
    other thread of ours run, that writer perhaps among them."""
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
