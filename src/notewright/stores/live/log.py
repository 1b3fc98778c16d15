"""The log of live documents: their ids, what was typed, and the last texts each file held. One SQLite file.

What is typed waits a moment for more, or for whoever needs something on the disk at once, and all of it is written in
one transaction, so that a crowd of typists costs one sync at a time; whoever wants to know is told when theirs is
there. A document's updates are put together into one state now and then. Losing this file loses ids, cursors and what
was typed and not saved yet: notes are files.
"""

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
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
_Work = Callable[[apsw.Connection], object]
Then = Callable[[], None]


class KnownDocument(NamedTuple):
    """What the log has of one document."""

    id: str
    path: NotePath | None
    state: bytes | None  # all its updates in one; None: nobody ever opened it
    texts: tuple[tuple[str, bytes, str | None], ...]  # the last texts of its file, oldest first: version, state, and
    # the change set that wrote it, where it was one of ours, or TO_BE_WRITTEN


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
        self._writing = threading.Lock()  # one transaction at a time; held before the next
        self._changed = threading.Condition()  # of what follows
        self._waiting: list[tuple[_Work, Then]] = []  # to be written, and who is told then
        self._busy = False  # some of it is being written
        self._closed = False
        self._counts: defaultdict[str, int] = defaultdict(int)  # updates since the last compaction
        self.relay_id = self.run(lambda db: _meta(db, "relay"))
        self.folder_id = f"{self.relay_id}-{self.run(lambda db: _meta(db, 'folder'))}"
        self._thread = threading.Thread(target=self._run, name="live-log", daemon=True)
        self._thread.start()

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

    def place(self, doc: str, path: NotePath | None) -> None:
        """Where a document is from now on, in the place of any other; None: nowhere, but it comes back if its path
        does."""
        self.run(partial(_place, doc=doc, path=path))

    def bring_back(self, path: NotePath) -> str | None:
        """The document that was last at this path and is nowhere now is there again; None without one."""
        return self.run(lambda db: _bring_back(db, path))

    # What is typed

    def append(self, doc: str, update: bytes, then: Then = lambda: None) -> None:
        """Written soon, and then `then` is called."""
        self._submit(partial(_append, doc=doc, update=update), then)
        self._count(doc)

    def when_durable(self, then: Then) -> None:
        """Call `then` once everything appended before is on the disk: late, or never, where it cannot be written."""
        with self._changed:
            if self._busy or self._waiting:
                return self._submit(_nothing, then)
        then()

    def sync(self) -> None:
        """Everything appended before is on the disk when it returns."""
        self.run(_nothing)

    def keep_text(self, doc: str, version: str, state: bytes) -> None:
        """The file is about to hold the document as it is in this state: whoever finds that text there knows it."""
        self.run(lambda db: _keep_text(db, doc, version, state, TO_BE_WRITTEN))

    def put_together(
        self, doc: str, version: str, state: bytes, update: bytes, op: str | None, then: Then = lambda: None
    ) -> None:
        """The file has the text of this state, and the document has it too, with this update if there is one. Written
        soon, and then `then` is called."""

        def work(db: apsw.Connection) -> None:
            if update:
                _append(db, doc, update)
            _keep_text(db, doc, version, state, op)

        self._submit(work, then)
        if update:
            self._count(doc)

    def forget_texts(self, doc: str) -> None:
        self._submit(lambda db: db.execute("delete from texts where doc = ?", (doc,)))

    def _count(self, doc: str) -> None:
        self._counts[doc] += 1
        if self._counts[doc] >= _COMPACTED_AFTER:
            self.compact(doc)

    def compact(self, doc: str) -> None:
        self._counts.pop(doc, None)
        self._submit(partial(_compact, doc=doc))

    # Writing

    def run(self, work: Callable[[apsw.Connection], _Answer]) -> _Answer:
        """Done and on the disk when it returns, with everything that waited."""
        with self._writing:
            if self._closed:
                raise _unusable("closed")
            return self._commit(work)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        with self._writing:
            try:
                self._commit(_nothing)
            except Exception as error:
                log.error("%s could not be written before the end: %s", _WHAT, error)
            self._db.close()

    def _submit(self, work: _Work, then: Then = lambda: None) -> None:
        """Written soon, and tried again until it is."""
        with self._changed:
            if self._closed or len(self._waiting) >= _MOST_WAITING:
                raise _unusable("closed" if self._closed else "full")
            self._waiting.append((work, then))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed or self._changed.wait_for(lambda: self._closed, LINGER_S):
                    return
            try:
                self.sync()
            except Exception as error:
                log.warning("%s could not be written: %s", _WHAT, error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, AGAIN_S)

    def _commit(self, work: Callable[[apsw.Connection], _Answer]) -> _Answer:
        """What waits, and this, in one transaction; under the lock."""
        with self._changed:
            batch, self._waiting, self._busy = self._waiting, [], True
        try:
            with words(_WHAT), self._db:
                for one, _ in batch:
                    one(self._db)
                answer = work(self._db)
            written, batch = batch, []
            for _, then in written:
                then()
        finally:
            with self._changed:
                self._waiting, self._busy = batch + self._waiting, False
        return answer


def _unusable(how: str) -> Unavailable:
    return Unavailable(f"{_WHAT} is {how}", hint="look at the server's disk")


def _nothing(db: apsw.Connection) -> None:
    """What waits is written."""


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


def _keep_text(db: apsw.Connection, doc: str, version: str, state: bytes, op: str | None) -> None:
    db.execute("delete from texts where doc = ? and version = ?", (doc, version))
    db.execute("insert into texts(doc, version, state, op) values (?, ?, ?, ?)", (doc, version, state, op))
    kept = max(3, min(KEPT_TEXTS, KEPT_BYTES // (len(state) + 1)))
    oldest = "select seq from texts where doc = ? order by seq desc limit 1 offset ?"
    db.execute(f"delete from texts where doc = ? and seq <= ({oldest})", (doc, doc, kept))


def _compact(db: apsw.Connection, doc: str) -> None:
    try:
        known = _document(db, doc)
        state = None if known is None or known.state is None else _compacted(known.state)
    except apsw.Error:
        raise
    except BaseException as error:  # a panic of pycrdt's Rust part is no Exception; the updates stay as they are
        return log.warning("the updates of a live document cannot be put together: %s", error)
    if state is not None:
        db.execute("update docs set state = ? where id = ?", (state, doc))
        db.execute("delete from updates where doc = ?", (doc,))


def _compacted(state: bytes) -> bytes:
    whole: Doc[Any] = Doc()
    whole.apply_update(state)  # forgets what was deleted, which merged updates do not
    is_whole = get_state(state) == whole.get_state()  # else something waits for what has not come yet
    return whole.get_update() if is_whole else state
