"""The log of live documents: their ids, what was typed, and the last texts each file held. One SQLite file.

One thread writes. Writes that are queued meanwhile share its next transaction, and so one sync to disk; callbacks are
called when an update is on disk. A document's updates are compacted into one state now and then. Losing this file loses
ids, cursors and what was typed and not saved yet: notes are files.
"""

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
from pycrdt import Doc, get_state, merge_updates

from notewright.errors import Unavailable
from notewright.notes.path import NotePath
from notewright.sqlite_file import open_file, set_up, translate_errors

log = logging.getLogger(__name__)

MAX_TEXTS, MAX_TEXT_BYTES = 50, 8 << 20  # of a file, kept: an editor may save a buffer that it read long ago
FOLDER_SNAPSHOT = "shown"  # names the state of a folder document before the changes of clients
PENDING_OP = ""  # the change set of a text that the file may never have had
RETRY_S = 0.5  # between two attempts to write
LINGER_S = 0.003  # that an update waits for others to share its transaction; clients get it meanwhile
_MAX_QUEUED = 50_000  # writes that wait while the disk takes none
_COMPACT_AFTER_UPDATES = 200  # of one document
_WHAT = "the log of live documents"
_PRAGMAS = "pragma synchronous = full; pragma wal_autocheckpoint = 1000"
_SCHEMA = (
    """
    create table meta(key text primary key, value text not null) without rowid;
    create table docs(id text primary key, path text unique, former text, state blob) without rowid;
    create index docs_former on docs(former) where former is not null;
    create table updates(seq integer primary key, doc text not null, data blob not null);
    create index updates_doc on updates(doc);
    create table texts(seq integer primary key, doc text not null, version text not null, state blob not null, op text);
    create index texts_doc on texts(doc);
    """,
)
_Answer = TypeVar("_Answer")
Work = Callable[[apsw.Connection], _Answer]


class LoggedDocument(NamedTuple):
    """One document as logged."""

    path: NotePath | None
    state: bytes | None  # all its updates merged; None: it was never opened
    texts: tuple[tuple[str, bytes, str | None], ...]  # the last texts of its file, oldest first: version, state, and
    # the change set that wrote it, where it was one of ours, or PENDING_OP


class _QueuedWrite(NamedTuple):
    work: Work[Any]
    done: "Future[Any]"
    keep: bool  # retried until written; no later write is reported durable before it


def open_log(file: Path) -> "LiveLog":
    """Open the log. A file that cannot be read is renamed and a new one begun, as losing it loses little."""
    try:
        return LiveLog(file)
    except Unavailable as problem:
        if not file.exists():
            raise
        aside = file.with_name(f"{file.name}.unreadable-{int(time.time())}")
        log.warning("%s: it is renamed to %s, and documents get new ids", problem, aside.name)
        file.rename(aside)
        for rest in ("-wal", "-shm"):
            file.with_name(file.name + rest).unlink(missing_ok=True)
        return LiveLog(file)


class LiveLog:
    """The log. Any thread may call; only its own thread writes."""

    def __init__(self, file: Path) -> None:
        self._db = open_file(file, _WHAT)
        set_up(self._db, _WHAT, _PRAGMAS, _SCHEMA)
        self._queue: list[_QueuedWrite] = []
        self._wake = threading.Condition()
        self._is_writing = False
        self._is_urgent = False  # a caller blocks until its write is done
        self._closed = False
        self._counts: defaultdict[str, int] = defaultdict(int)  # updates of each document since it was compacted
        self._thread = threading.Thread(target=self._run, name="live-log", daemon=True)
        self._thread.start()
        self.relay_id = self.run(lambda db: _get_or_make_id(db, "relay"))
        self.folder_id = f"{self.relay_id}-{self.run(lambda db: _get_or_make_id(db, 'folder'))}"

    # Documents

    def load_ids(self) -> dict[NotePath, str]:
        """The ids of all files that have one."""
        rows = self.run(lambda db: list(db.execute("select path, id from docs where path is not null")))
        return {NotePath(path): doc for path, doc in rows}

    def find_unsaved(self) -> list[str]:
        """The documents with updates that may not be in their files, or not applied to the folder."""
        sql = "select doc from updates union select doc from texts where version = ?"
        return self.run(lambda db: [doc for (doc,) in db.execute(sql, (FOLDER_SNAPSHOT,))])

    def load_document(self, doc: str) -> LoggedDocument | None:
        return self.run(lambda db: _load_document(db, doc))

    def has_text(self, doc: str, version: str) -> bool:
        """Whether the file of a document had a version with this prefix lately."""
        sql = "select 1 from texts where doc = ? and substr(version, 1, ?) = ?"
        return self.run(lambda db: db.execute(sql, (doc, len(version), version)).get is not None)

    def add_document(self, doc: str) -> None:
        self.run(lambda db: db.execute("insert or ignore into docs(id) values (?)", (doc,)))

    def assign_ids(self, paths: Sequence[NotePath]) -> dict[NotePath, str]:
        """Assign ids to files that have none: that of the last document of this path, or a new one."""

        def assign(db: apsw.Connection, path: NotePath) -> str:
            doc = db.execute("select id from docs where path = ?", (path,)).get or _restore_document(db, path)
            if doc is None:
                doc = f"{self.relay_id}-{uuid.uuid4()}"
                db.execute("insert into docs(id, path) values (?, ?)", (doc, path))
            return str(doc)

        return self.run(lambda db: {path: assign(db, path) for path in paths})

    def set_path(self, doc: str, path: NotePath | None) -> None:
        """Set the path of a document; None if its file was deleted: it is found again if that is restored."""
        self.run(partial(_set_path, doc=doc, path=path))

    def restore_document(self, path: NotePath) -> str | None:
        """Give the last document of this path, which has no path now, its path back; None if there is none."""
        return self.run(lambda db: _restore_document(db, path))

    # Updates and texts

    def append_update(self, doc: str, update: bytes) -> None:
        """Write an update soon; `call_when_durable` tells when."""
        self._submit(lambda db: _insert_update(db, doc, update), keep=True)
        self._count_update(doc)

    def call_when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once every update appended before is on disk; never, if it cannot be written."""
        with self._wake:
            if self._is_writing or self._queue:
                self._queue.append(_QueuedWrite(lambda db: None, Future(), keep=True))
                self._queue[-1].done.add_done_callback(lambda done: None if done.exception() else callback())
                return
        callback()

    def flush(self) -> None:
        """Wait until every update appended before is on disk."""
        self.run(lambda db: None)

    def save_first_state(self, doc: str, state: bytes, version: str) -> None:
        """Write the first state of a document, with the text of its file: on disk before any client gets it."""

        def work(db: apsw.Connection) -> None:
            db.execute("update docs set state = ? where id = ?", (state, doc))
            db.execute("insert into texts(doc, version, state) values (?, ?, ?)", (doc, version, state))

        self.run(work)

    def save_pending_text(self, doc: str, version: str, state: bytes) -> None:
        """Write the state whose text the file is about to have: it is recognised in the file after a crash."""
        self.run(lambda db: _insert_text(db, doc, version, state, PENDING_OP))

    def append_text(self, doc: str, version: str, state: bytes, update: bytes, op: str | None) -> None:
        """Write soon, in one transaction, a state whose text the file has, and the update that merged the text into the
        document, if there is one."""

        def work(db: apsw.Connection) -> None:
            if update:
                _insert_update(db, doc, update)
            _insert_text(db, doc, version, state, op)

        self._submit(work, keep=True)
        if update:
            self._count_update(doc)

    def forget_texts(self, doc: str) -> None:
        self._submit(lambda db: db.execute("delete from texts where doc = ?", (doc,)), keep=True)

    def _count_update(self, doc: str) -> None:
        self._counts[doc] += 1
        if self._counts[doc] >= _COMPACT_AFTER_UPDATES:
            self.compact(doc)

    def compact(self, doc: str) -> None:
        """Merge all updates of a document into one state, soon."""

        def work(db: apsw.Connection) -> None:
            logged = _load_document(db, doc)
            if logged is not None and logged.state is not None:
                whole: Doc[Any] = Doc()
                whole.apply_update(logged.state)  # forgets what was deleted, which merged updates do not
                is_whole = (
                    get_state(logged.state) == whole.get_state()
                )  # else something waits for what has not come yet
                state = whole.get_update() if is_whole else logged.state
                db.execute("update docs set state = ? where id = ?", (state, doc))
                db.execute("delete from updates where doc = ?", (doc,))

        self._counts.pop(doc, None)
        self._submit(work)

    # The thread that writes

    def run(self, work: Work[_Answer]) -> _Answer:
        """Do `work` in a transaction, and wait until it is on disk."""
        done: Future[_Answer] = self._submit(work, urgent=True)
        with translate_errors(_WHAT):
            return done.result()

    def _submit(self, work: Work[Any], *, urgent: bool = False, keep: bool = False) -> "Future[Any]":
        with self._wake:
            if self._closed or len(self._queue) >= _MAX_QUEUED:
                state = "closed" if self._closed else "full"
                raise Unavailable(f"{_WHAT} is {state}", hint="look at the server's disk")
            self._queue.append(_QueuedWrite(work, Future(), keep))
            self._is_urgent = self._is_urgent or urgent
            if urgent or len(self._queue) == 1:
                self._wake.notify()
            return self._queue[-1].done

    def _run(self) -> None:
        while True:
            with self._wake:
                self._is_writing = False
                while not self._queue and not self._closed:
                    self._wake.wait()
                if not self._queue:
                    break
                if not self._is_urgent and not self._closed:
                    self._wake.wait(LINGER_S)
                self._is_urgent = False
                batch, self._queue, self._is_writing = self._queue, [], True
            unwritten = self._write(batch)
            if not unwritten:
                continue
            with self._wake:
                is_closed = self._closed
                if not is_closed:
                    self._queue = unwritten + self._queue
            if not is_closed:
                time.sleep(RETRY_S)
                continue
            log.error("%s could not be written before the end", _WHAT)
            for write in unwritten:
                write.done.set_exception(Unavailable(f"{_WHAT} is closed"))
        self._db.close()

    def _write(self, batch: list[_QueuedWrite]) -> list[_QueuedWrite]:
        """Commit a batch in one transaction; returns the writes to retry."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            with self._db:
                for write in batch:
                    answer, refusal = None, None
                    try:
                        with self._db:  # a savepoint: a write that fails does not undo the others
                            answer = write.work(self._db)
                    except (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.ReadOnlyError, apsw.CantOpenError):
                        raise
                    except BaseException as error:
                        refusal = error
                    outcomes.append((answer, refusal))
        except BaseException as error:  # a panic of pycrdt's Rust part is no Exception
            log.warning("%s could not be written: %s", _WHAT, error)
            for write in batch:
                if not write.keep:
                    write.done.set_exception(error)
            return [write for write in batch if write.keep]
        for write, (answer, refusal) in zip(batch, outcomes, strict=True):
            if refusal is None:
                write.done.set_result(answer)
            else:
                write.done.set_exception(refusal)
        return []

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()


def _get_or_make_id(db: apsw.Connection, key: str) -> str:
    db.execute("insert or ignore into meta values (?, ?)", (key, str(uuid.uuid4())))
    return str(db.execute("select value from meta where key = ?", (key,)).get)


def _load_document(db: apsw.Connection, doc: str) -> LoggedDocument | None:
    row = db.execute("select path, state from docs where id = ?", (doc,)).fetchone()
    if row is None:
        return None
    path, state = row
    updates = [data for (data,) in db.execute("select data from updates where doc = ? order by seq", (doc,))]
    if updates:
        state = merge_updates(*([state] if state is not None else []), *updates)
    texts = tuple(db.execute("select version, state, op from texts where doc = ? order by seq", (doc,)))
    return LoggedDocument(None if path is None else NotePath(path), state, texts)


def _restore_document(db: apsw.Connection, path: NotePath) -> str | None:
    doc: str | None = db.execute("select id from docs where former = ? and path is null limit 1", (path,)).get
    if doc is not None:
        _set_path(db, doc, path)
    return doc


def _set_path(db: apsw.Connection, doc: str, path: NotePath | None) -> None:
    if path is None:
        db.execute("update docs set former = path, path = null where id = ? and path is not null", (doc,))
    else:
        db.execute("update docs set former = path, path = null where path = ? and id <> ?", (path, doc))
        db.execute("update docs set path = ?, former = null where id = ?", (path, doc))


def _insert_update(db: apsw.Connection, doc: str, update: bytes) -> None:
    db.execute("insert into updates(doc, data) values (?, ?)", (doc, update))


def _insert_text(db: apsw.Connection, doc: str, version: str, state: bytes, op: str | None) -> None:
    """Insert the newest text of a file, and delete the oldest beyond the bounds."""
    db.execute("delete from texts where doc = ? and version = ?", (doc, version))
    db.execute("insert into texts(doc, version, state, op) values (?, ?, ?, ?)", (doc, version, state, op))
    kept = max(3, min(MAX_TEXTS, MAX_TEXT_BYTES // (len(state) + 1)))
    oldest = "select seq from texts where doc = ? order by seq desc limit 1 offset ?"
    db.execute(f"delete from texts where doc = ? and seq <= ({oldest})", (doc, doc, kept))
