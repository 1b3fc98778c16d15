"""The registry of a server in one SQLite file."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apsw

from notewright.accounts.base import Grant, Token, WorkspaceRecord
from notewright.errors import Busy, Exists
from notewright.sqlite_file import open_file, set_up, translate_errors

POLL_SECONDS = 0.002  # between two questions to SQLite whether another process wrote
BUSY_MS = 10_000  # that a writer waits for another
_TOKEN = "name, digest, grant_json, created, expires, revoked, used"
MIGRATIONS = (
    """
    create table token(
        seq integer primary key,
        name text not null,
        digest text not null unique,
        grant_json text not null,
        created real not null, expires real, revoked real, used real
    );
    create table workspace(
        seq integer primary key,
        location text not null unique,
        settings text not null,
        added integer not null
    );
    create table secret(name text primary key, data blob not null) without rowid;
    """,
    """
    create table rules(changes integer not null);       -- one row: how often any of them was changed
    insert into rules values(0);
    create table ended(session text primary key, until real not null) without rowid;
    """,
)


class SqliteAccounts:
    """One connection for writing and one for reading, each used by one thread at a time: a reader never waits for a
    writer, in this process or another. Other processes have connections of their own to the same file."""

    def __init__(self, db: apsw.Connection, reader: apsw.Connection | None = None) -> None:
        self._db = db
        self._write_lock = threading.RLock()
        self._reader = reader or db
        self._read_lock = self._write_lock if reader is None else threading.RLock()
        self._writer: int | None = None  # id of the thread that writes
        self._changes = 0  # of tokens and workspaces, by any process
        self._data_version, self._polled_at = -1, -1.0  # SQLite's counter of writes of other processes
        set_up(db, "the registry", "pragma synchronous = full; pragma secure_delete = on", MIGRATIONS)
        for each in (db, self._reader):
            each.set_busy_timeout(BUSY_MS)

    @classmethod
    def open(cls, folder: Path) -> "SqliteAccounts":
        """The registry kept in `folder`, which is made if it is not there."""
        file = folder / "registry.db"
        db = open_file(file, "the registry")
        with translate_errors("the registry"):
            if file.stat().st_mode & 0o077:  # as after a restore: its readers could forge cookies
                file.chmod(0o600)
        return cls(db, open_file(file, "the registry"))

    @classmethod
    def in_memory(cls) -> "SqliteAccounts":
        """A registry that ends with its process."""
        return cls(apsw.Connection(":memory:"))

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._db.close()
            self._reader.close()

    def data_version(self) -> int:
        now = time.monotonic()
        if now - self._polled_at > POLL_SECONDS:  # threads that all poll at once would wait for each other
            with self._read_lock, translate_errors("the registry"):
                data_version = int(self._reader.execute("pragma data_version").get)
                if data_version != self._data_version:
                    self._changes = max(self._changes, int(self._reader.execute("select changes from rules").get))
                self._data_version, self._polled_at = data_version, now
        return self._changes

    # Tokens

    def add_token(self, token: Token) -> None:
        row = (token.name, token.digest, json.dumps(asdict(token.grant)), token.created, token.expires, None, None)
        with self.transaction() as db:
            good = "name = ? and revoked is null and (expires is null or expires > ?)"
            if db.execute(f"select 1 from token where {good}", (token.name, token.created)).fetchone():
                hint = "revoke it first, or choose another name"
                raise Exists(f"there is a token {token.name!r} already", hint=hint, what="token")
            db.execute(f"insert into token({_TOKEN}) values(?, ?, ?, ?, ?, ?, ?)", row)

    def token(self, digest: str) -> Token | None:
        return next((_token(*row) for row in self._rows(f"select {_TOKEN} from token where digest = ?", digest)), None)

    def tokens(self) -> list[Token]:
        return [_token(*row) for row in self._rows(f"select {_TOKEN} from token order by seq")]

    def revoke(self, name: str, now: float) -> bool:
        return self._write("update token set revoked = ? where name = ? and revoked is null", now, name)

    def record_use(self, digest: str, now: float) -> None:
        """Record a use without waiting, as it runs on the event loop: while another thread or process writes, this use
        is not recorded."""
        if not self._write_lock.acquire(blocking=False):
            return
        try:
            self._db.execute("pragma busy_timeout = 0; pragma synchronous = normal")
            with suppress(Busy):
                self._write("update token set used = ? where digest = ?", now, digest, counts=False)
        finally:
            self._db.execute(f"pragma busy_timeout = {BUSY_MS}; pragma synchronous = full")
            self._write_lock.release()

    # Browsers

    def end_session(self, session: str, now: float, lasts: float) -> None:
        with self.transaction() as db:
            db.execute("delete from ended where until < ?", (now,))
            db.execute("insert or ignore into ended values(?, ?)", (session, now + lasts))

    def has_session_ended(self, session: str) -> bool:
        return bool(self._rows("select 1 from ended where session = ?", session))

    # Workspaces

    def records(self) -> list[WorkspaceRecord]:
        rows = self._rows("select location, settings, added from workspace order by seq")
        return [WorkspaceRecord(location, json.loads(settings), bool(added)) for location, settings, added in rows]

    def put_record(self, record: WorkspaceRecord) -> None:
        put = """insert into workspace(location, settings, added) values(?, ?, ?)
            on conflict(location) do update set settings = excluded.settings, added = excluded.added"""
        self._write(put, record.location, json.dumps(dict(record.settings)), record.added)

    def drop_record(self, location: str) -> bool:
        return self._write("delete from workspace where location = ?", location)

    def secret(self, name: str) -> bytes:
        question = "select data from secret where name = ?"
        if not self._rows(question, name):
            self._write("insert or ignore into secret values(?, ?)", name, os.urandom(32))
        return bytes(self._rows(question, name)[0][0])

    def _rows(self, question: str, *values: str) -> list[Any]:
        if self._writer == threading.get_ident():  # which sees what it has not committed yet
            return self._db.execute(question, values).fetchall()
        with self._read_lock, translate_errors("the registry"):
            return self._reader.execute(question, values).fetchall()

    def _write(self, statement: str, *values: str | float | bytes, counts: bool = True) -> bool:
        """Execute a statement, and return whether it changed anything."""
        with self.transaction(counts=counts) as db:
            db.execute(statement, values)
            return db.changes() > 0

    @contextmanager
    def transaction(self, *, counts: bool = True) -> Iterator[apsw.Connection]:
        """One transaction. `counts`: it raises `data_version`, so that other processes drop what they cached."""
        with self._write_lock, translate_errors("the registry"):
            if self._db.in_transaction:  # part of an outer transaction
                yield self._db
                return
            self._db.execute("begin immediate")
            self._writer = threading.get_ident()
            try:
                yield self._db
                if counts:
                    self._db.execute("update rules set changes = changes + 1")
                changes = int(self._db.execute("select changes from rules").get)
            except BaseException:
                self._db.execute("rollback")
                raise
            finally:
                self._writer = None
            self._db.execute("commit")
            self._changes = changes


def _token(name: str, digest: str, grant: str, *times: Any) -> Token:
    return Token(name, digest, Grant.of(json.loads(grant)), *times)
