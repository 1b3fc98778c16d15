"""The log of live documents: their ids, what was typed, and the last texts each file held. One SQLite file.

One thread writes. What came while it was writing goes into its next transaction, so that a crowd of typists costs one
sync to disk at a time; whoever wants to know is told when theirs is there. A document's updates are put together into
one state now and then. Losing this file loses ids, cursors and what was typed and not saved yet: notes are files.
"""

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw
from pycrdt import Doc, get_state, merge_updates

from notewright.errors import Unavailable
from notewright.notes.path import NotePath
from notewright.sqlite_file import open_file, set_up, words

log = logging.getLogger(__name__)

KEPT_BYTES = 8 << 20
KEPT_TEXTS = 50  # that a file held before: an editor may save a buffer it read as long ago as that
SHOWN = "shown"  # the version of a folder document before what clients changed in it
TO_BE_WRITTEN = ""  # as the change set of a text: the file may never have held it
AGAIN_S = 0.5  # before what could not be written is tried again
_MOST_WAITING = 50_000  # things to write while nothing can be written
_COMPACTED_AFTER = 200  # updates of one document
LINGER_S = 0.003  # what is typed waits so long for more; meanwhile it is told to the others
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
Then = Callable[[], None]


class KnownDocument(NamedTuple):
    """What the log has of one document."""

    id: str
    path: NotePath | None
    state: bytes | None  # all its updates in one; None: nobody ever opened it
    texts: tuple[tuple[str, bytes, str | None], ...]  # the last texts of its file, oldest first: version, state, and
    # the change set that wrote it, where it was one of ours, or TO_BE_WRITTEN


class _Item(NamedTuple):
    work: Callable[[apsw.Connection], Any]
    done: "Future[Any]"
    keep: bool  # tried again until it is written, and nothing that comes later is said to be before


def open_log(file: Path) -> "LiveLog":
    """The log; one that cannot be read is laid aside, for losing it loses little."""
    try:
        return LiveLog(file)
    except Unavailable as problem:
        if not file.exists():
            raise
        aside = file.with_name(f"{file.name}.unreadable-{int(time.time())}")
        log.warning("%s: it is laid aside as %s, and documents get new ids", problem, aside.name)
        file.rename(aside)
        for rest in ("-wal", "-shm"):
            file.with_name(file.name + rest).unlink(missing_ok=True)
        return LiveLog(file)


class LiveLog:
    """Any thread may call."""

    def __init__(self, file: Path) -> None:
        self._db = open_file(file, _WHAT)
        set_up(self._db, _WHAT, _PRAGMAS, _SCHEMA)
        self._waiting: list[_Item] = []
        self._wake = threading.Condition()
        self._busy = False
        self._urgent = False  # somebody stands and waits
        self._closed = False
        self._counts: defaultdict[str, int] = defaultdict(int)  # updates since the last compaction
        self._thread = threading.Thread(target=self._run, name="live-log", daemon=True)
        self._thread.start()
        self.relay_id = self.run(lambda db: _meta(db, "relay"))
        self.folder_id = f"{self.relay_id}-{self.run(lambda db: _meta(db, 'folder'))}"

    # Documents

    def paths(self) -> dict[NotePath, str]:
        """The id of every file that was given one."""
        rows = self.run(lambda db: list(db.execute("select path, id from docs where path is not null")))
        return {NotePath(path): doc for path, doc in rows}

    def unsaved(self) -> list[str]:
        """Documents with updates that may not be in their files, or not carried out."""
        asked = "select doc from updates union select doc from texts where version = ?"
        return self.run(lambda db: [doc for (doc,) in db.execute(asked, (SHOWN,))])

    def document(self, doc: str) -> KnownDocument | None:
        return self.run(lambda db: _document(db, doc))

    def has_text(self, doc: str, version: str) -> bool:
        """Whether the file of a document held this version lately; its first digits will do."""
        asked = "select 1 from texts where doc = ? and substr(version, 1, ?) = ?"
        return self.run(lambda db: db.execute(asked, (doc, len(version), version)).get is not None)

    def add(self, doc: str) -> None:
        self.run(lambda db: db.execute("insert or ignore into docs(id) values (?)", (doc,)))

    def name(self, paths: Iterable[NotePath]) -> dict[NotePath, str]:
        """Ids for files that have none: that of the document that was there last, or a new one."""
        wanted = list(paths)
        return self.run(lambda db: {path: _name(db, self.relay_id, path) for path in wanted})

    def place(self, moves: Iterable[tuple[str, NotePath | None]]) -> None:
        """Where documents are from now on; None: nowhere, but it comes back if its path does."""

        def work(db: apsw.Connection) -> None:
            for doc, path in moves:
                _place(db, doc, path)

        self.run(work)

    def bring_back(self, path: NotePath) -> str | None:
        """The document that was last at this path and is nowhere now is there again; None without one."""
        return self.run(lambda db: _bring_back(db, path))

    # What is typed

    def append(self, doc: str, update: bytes) -> None:
        """Written soon; `when_durable` tells when."""
        self._submit(partial(_append, doc=doc, update=update), keep=True)
        self._count(doc)

    def when_durable(self, then: Then) -> None:
        """Call `then` once everything appended before is on the disk: late, or never, where it cannot be written."""
        with self._wake:
            idle = not self._busy and not self._waiting
            if not idle:
                self._waiting.append(_Item(lambda db: None, Future(), keep=True))
                self._waiting[-1].done.add_done_callback(lambda done: None if done.exception() else then())
                return
        then()

    def sync(self) -> None:
        """Everything appended before is on the disk when it returns."""
        self.run(lambda db: None)

    def begin(self, doc: str, state: bytes, version: str) -> None:
        """A document comes to life with the text of its file: on the disk before anybody is shown it."""
        self.run(lambda db: _begin(db, doc, state, version))

    def keep_text(self, doc: str, version: str, state: bytes) -> None:
        """The file is about to hold the document as it is in this state: whoever finds that text there knows it."""
        self.run(lambda db: _keep_text(db, doc, version, state, TO_BE_WRITTEN))

    def put_together(self, doc: str, version: str, state: bytes, update: bytes, op: str | None) -> None:
        """The file has the text of this state, and the document has it too, by this update if it had it not before.
        Written soon."""
        self._submit(partial(_put_together, doc=doc, version=version, state=state, update=update, op=op), keep=True)
        if update:
            self._count(doc)

    def forget_texts(self, doc: str) -> None:
        self._submit(lambda db: db.execute("delete from texts where doc = ?", (doc,)), keep=True)

    def _count(self, doc: str) -> None:
        self._counts[doc] += 1
        if self._counts[doc] >= _COMPACTED_AFTER:
            self.compact(doc)

    def compact(self, doc: str) -> None:
        self._counts.pop(doc, None)
        self._submit(lambda db: _compact(db, doc))

    # The one thread that writes

    def run(self, work: Callable[[apsw.Connection], _Answer]) -> _Answer:
        """Done and on the disk when it returns."""
        done: Future[_Answer] = self._submit(work, urgent=True)
        with words(_WHAT):
            return done.result()

    def _submit(
        self, work: Callable[[apsw.Connection], Any], *, urgent: bool = False, keep: bool = False
    ) -> "Future[Any]":
        with self._wake:
            if self._closed or len(self._waiting) >= _MOST_WAITING:
                raise Unavailable(
                    f"{_WHAT} is {'closed' if self._closed else 'full'}", hint="look at the server's disk"
                )
            self._waiting.append(_Item(work, Future(), keep))
            self._urgent = self._urgent or urgent
            if urgent or len(self._waiting) == 1:
                self._wake.notify()
            return self._waiting[-1].done

    def _run(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    break
                if not self._urgent and not self._closed:
                    self._wake.wait(LINGER_S)
                self._urgent = False
                batch, self._waiting, self._busy = self._waiting, [], True
            again = self._write(batch)
            if again:
                self._try_again(again)
        self._db.close()

    def _try_again(self, items: list["_Item"]) -> None:
        with self._wake:
            is_over = self._closed
            self._waiting = self._waiting if is_over else items + self._waiting
        if not is_over:
            return time.sleep(AGAIN_S)
        log.error("%s could not be written before the end", _WHAT)
        _settle(items, error=Unavailable(f"{_WHAT} is closed"))

    def _write(self, batch: list["_Item"]) -> list["_Item"]:
        """One transaction; what has to be tried again."""
        try:
            with self._db:
                outcomes = [self._tried(item.work) for item in batch]
        except BaseException as error:  # a panic of pycrdt's Rust part is no Exception
            log.warning("%s could not be written: %s", _WHAT, error)
            _settle((item for item in batch if not item.keep), error=error)
            return [item for item in batch if item.keep]
        for item, (answer, refused) in zip(batch, outcomes, strict=True):
            _settle([item], answer, refused)
        return []

    def _tried(self, work: Callable[[apsw.Connection], Any]) -> tuple[Any, BaseException | None]:
        answer = None
        try:
            with self._db:  # a savepoint: what one cannot write is no matter of the others
                answer = work(self._db)
        except (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.ReadOnlyError, apsw.CantOpenError):
            raise
        except BaseException as error:
            return None, error
        return answer, None

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()


def _settle(items: Iterable[_Item], answer: Any = None, error: BaseException | None = None) -> None:
    for item in items:
        if error is None:
            item.done.set_result(answer)
        else:
            item.done.set_exception(error)


def _append(db: apsw.Connection, doc: str, update: bytes) -> None:
    db.execute("insert into updates(doc, data) values (?, ?)", (doc, update))


def _meta(db: apsw.Connection, key: str) -> str:
    db.execute("insert or ignore into meta values (?, ?)", (key, str(uuid.uuid4())))
    return str(db.execute("select value from meta where key = ?", (key,)).get)


def _document(db: apsw.Connection, doc: str) -> KnownDocument | None:
    row = db.execute("select path, state from docs where id = ?", (doc,)).fetchone()
    if row is None:
        return None
    path, state = row
    updates = [data for (data,) in db.execute("select data from updates where doc = ? order by seq", (doc,))]
    if updates:
        state = merge_updates(*([state] if state is not None else []), *updates)
    texts = tuple(db.execute("select version, state, op from texts where doc = ? order by seq", (doc,)))
    return KnownDocument(doc, None if path is None else NotePath(path), state, texts)


def _name(db: apsw.Connection, relay: str, path: NotePath) -> str:
    doc = db.execute("select id from docs where path = ?", (path,)).get or _bring_back(db, path)
    if doc is None:
        doc = f"{relay}-{uuid.uuid4()}"
        db.execute("insert into docs(id, path) values (?, ?)", (doc, path))
    return str(doc)


def _bring_back(db: apsw.Connection, path: NotePath) -> str | None:
    doc: str | None = db.execute("select id from docs where former = ? and path is null limit 1", (path,)).get
    if doc is not None:
        _place(db, doc, path)
    return doc


def _place(db: apsw.Connection, doc: str, path: NotePath | None) -> None:
    if path is None:
        db.execute("update docs set former = path, path = null where id = ? and path is not null", (doc,))
    else:
        db.execute("update docs set former = path, path = null where path = ? and id <> ?", (path, doc))
        db.execute("update docs set path = ?, former = null where id = ?", (path, doc))


def _begin(db: apsw.Connection, doc: str, state: bytes, version: str) -> None:
    db.execute("update docs set state = ? where id = ?", (state, doc))
    db.execute("insert into texts(doc, version, state) values (?, ?, ?)", (doc, version, state))


def _put_together(db: apsw.Connection, doc: str, version: str, state: bytes, update: bytes, op: str | None) -> None:
    if update:
        _append(db, doc, update)
    _keep_text(db, doc, version, state, op)


def _keep_text(db: apsw.Connection, doc: str, version: str, state: bytes, op: str | None) -> None:
    db.execute("delete from texts where doc = ? and version = ?", (doc, version))
    db.execute("insert into texts(doc, version, state, op) values (?, ?, ?, ?)", (doc, version, state, op))
    kept = max(3, min(KEPT_TEXTS, KEPT_BYTES // (len(state) + 1)))
    oldest = "select seq from texts where doc = ? order by seq desc limit 1 offset ?"
    db.execute(f"delete from texts where doc = ? and seq <= ({oldest})", (doc, doc, kept))


def _compact(db: apsw.Connection, doc: str) -> None:
    known = _document(db, doc)
    if known is not None and known.state is not None:
        whole: Doc[Any] = Doc()
        whole.apply_update(known.state)  # forgets what was deleted, which merged updates do not
        is_whole = get_state(known.state) == whole.get_state()  # else something waits for what has not come yet
        db.execute("update docs set state = ? where id = ?", (whole.get_update() if is_whole else known.state, doc))
        db.execute("delete from updates where doc = ?", (doc,))
