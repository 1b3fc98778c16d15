"""The live documents of one workspace: which are open, when they come to life, are saved, and go again.

One process hosts them, by a lock in the state directory; the others read and write the files, as any editor does. A
file that changed under an open document is merged into it, and a document that was typed into is saved after a pause:
through whoever was given to `save_through`, so that typing is a change in the history like any other.
"""

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from notewright.errors import Conflict, Exists, Invalid, NotFound, NotText, Problem, TooLarge, Unavailable
from notewright.locks import FileLocks, Lock
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, Stored, Version, release_free_memory, version_of
from notewright.stores.live import places
from notewright.stores.live.document import MOST_BYTES, Document
from notewright.stores.live.folder_document import FolderDocument
from notewright.stores.live.log import LiveLog, open_log
from notewright.stores.live.places import Departed, DocumentPlaces
from notewright.stores.live.text import file_bytes, live_text

log = logging.getLogger(__name__)

PAUSE_S, LONGEST_S = 1.0, 5.0  # a document is saved so long after the last, or the first, thing typed
IDLE_S = 30.0  # after which a document that nobody has open is let go
QUIET_S, EMPTY_S = 0.2, 2.0  # after its last change that a file which got smaller, or is empty, is believed
AGAIN_S = 5.0  # before a save that failed is tried again
VERSION_CHARS = 64
_TICK_S = 0.1
_LOOK_S = 0.3  # between two looks at the files of open documents
_TRIES = 5
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
Save = Callable[[NotePath, bytes, Stored, list[Any]], None]
Made = tuple[str, Version | None]  # a change, and the version it made another of
Origin = Callable[[NotePath, Version], Made | None]


class LiveDocuments:
    """Any thread may call, but for an event loop's."""

    def __init__(self, folder: Store, state: Path) -> None:
        self._folder = folder
        self._state = state
        self.socket = state / "live.sock"  # at which other processes ask, and lead their clients to this one
        self._lock = threading.RLock()
        self._log: LiveLog | None = None
        self._host_lock: Lock | None = None
        self._open: dict[str, Document] = {}
        self.places = DocumentPlaces(folder, self._lock, self._open)
        self._save: Save = self._write_through
        self._origin: Origin = lambda path, version: None
        self._keep_folder: Callable[[FolderDocument | None], None] = lambda folder: None
        self._folder_document: FolderDocument | None = None
        self._own = threading.local()  # this thread is saving
        self._stop, self._wake = threading.Event(), threading.Event()
        self._watch: Callable[[Callable[[object], None]], object] | None = None
        self._saver: threading.Thread | None = None

    def save_through(self, save: Save, origin: Origin, departed: Departed) -> None:
        """`save` writes what was typed; `origin` knows which change made this version, and of which one; `departed`
        where one of our processes moved a file to."""
        self._save, self._origin, self.places.departed = save, origin, departed

    def watch_with(self, subscribe: Callable[[Callable[[object], None]], object]) -> None:
        """Whom to ask, when the first document is opened, to be told that files changed: two editors that save one
        after the other are told apart only by looking in between."""
        self._watch = subscribe

    def keep_folder(self, work: "Callable[[FolderDocument | None], None]") -> None:
        """Called now and then with the folder document while somebody has it open, and with None when nobody has."""
        self._keep_folder = work

    # Hosting

    def host(self) -> bool:
        """Whether this process has the documents, or has them from now on."""
        with self._lock:
            if self._host_lock is not None:
                return True
            if self._stop.is_set():
                return False
            self._host_lock = FileLocks(self._state).try_lock("live.lock")
            if self._host_lock is None:
                return False
            try:
                self._log = open_log(self._state / "live.db")
                self.places.begin(self._log)
            except BaseException:
                self._host_lock.release()
                self._host_lock = None
                raise
            self._saver = threading.Thread(target=self._run, name="live-saver", daemon=True)
            self._saver.start()
            return True

    @property
    def hosting(self) -> bool:
        return self._host_lock is not None

    @property
    def folder_id(self) -> str:
        return self._hosted().folder_id

    def _hosted(self) -> LiveLog:
        if not self.host() or self._log is None:
            hint = "another process has them; its address answers"
            raise Unavailable("the live documents are open in another process", hint=hint)
        return self._log

    # Texts that somebody was shown

    def rebase(self, path: NotePath, body: bytes) -> bytes:
        """Of two versions and bytes made from the first, the text which that change makes of the second."""
        seen, onto = body[:VERSION_CHARS].decode(), body[VERSION_CHARS : 2 * VERSION_CHARS].decode()
        data, document = body[2 * VERSION_CHARS :], self.opened(path)
        if document is not None:
            with document.lock:
                known, there = document.known(seen), document.known(onto)
                if known is not None and there is not None:
                    return document.rebase(data, live_text(path, data), base=known, onto=there).encode()
        raise Conflict(f"{path} changed since it was read", hint="read it again", path=path, current=None)

    def recall(self, path: NotePath, version: str) -> bytes:
        """The version that begins so, whole, and the file as it was then; nothing where it is not known."""
        kept, doc_id, document = self._hosted(), self.places.get(path), self.opened(path)
        if document is None and doc_id is not None and kept.has_text(doc_id, version):
            with suppress(NotFound, NotText, TooLarge):  # somebody typed in it since, and has gone
                document = self.open(doc_id)
                self.release(document)
        if document is None:
            return b""
        self.catch_up(document)
        with document.lock:
            known = document.known(version)
            if known is None or document.file is None:
                return b""
            return known.encode() + file_bytes(document.text_at(known), document.file.data)

    # Names

    def path_of(self, doc_id: str) -> NotePath | None:
        """Where a document is; None for one that is nowhere yet, and for one nobody knows."""
        document = self._open.get(doc_id)
        if document is not None:
            return document.path
        known = self._hosted().document(doc_id) if _ID.fullmatch(doc_id) else None
        return known.path if known else None

    def id_of(self, path: NotePath) -> str:
        """The document of a file, which is given an id the first time."""
        self._hosted()
        if (known := self.places.get(path)) is not None:
            return known
        live_text(path, self._readable(path).data)
        return self.places.ids([path])[path]

    def listed(self) -> dict[NotePath, str]:
        """Every file that is there, with the id it has in the folder document."""
        begin = len(self._hosted().relay_id) + 1
        return {path: doc_id[begin:] for path, doc_id in self.places.listed().items()}

    def new(self, doc_id: str | None = None) -> str:
        """A document that has no path yet."""
        kept = self._hosted()
        doc_id = doc_id or f"{kept.relay_id}-{uuid.uuid4()}"
        if not _ID.fullmatch(doc_id):
            hint = "letters, digits, - and _, a hundred at most"
            raise Invalid(f"{doc_id[:120]!r} cannot be the id of a document", hint=hint, what="docId")
        kept.add(doc_id)
        return doc_id

    def place_new(self, part: str, path: NotePath, create: Callable[[bytes], object]) -> None:
        """A document by the id it has in the folder document becomes a file, which `create` makes."""
        doc_id = self.new(f"{self._hosted().relay_id}-{part}")
        document = self.open(doc_id)
        try:
            with document.lock:
                data = document.text().encode()
                version, state = version_of(data), document.doc.get_update()
                document.remember(version, state)
            self._hosted().keep_text(doc_id, version, state)
            create(data)
            with document.lock:
                self.places.place(doc_id, path)
            self.catch_up(document)
        finally:
            self.release(document)

    # Opening and letting go

    def open(self, doc_id: str) -> Document:
        """The document, open until `release`. NotFound for an id that nobody knows."""
        kept = self._hosted()
        while True:
            with self._lock:
                document = self._open.get(doc_id)
                if document is not None:
                    document.users += 1
                    break
            self._load(doc_id, kept)
        try:
            if document.is_folder:
                self._work_on_folder()  # nobody is shown what the folder was like when it was last open
            else:
                self.catch_up(document)
        except BaseException:
            self.release(document)
            raise
        return document

    def _load(self, doc_id: str, kept: LiveLog) -> None:
        known = kept.document(doc_id) if _ID.fullmatch(doc_id) else None
        if known is None and doc_id != kept.folder_id:
            raise NotFound("there is no such document", hint="look in the folder document", what="document")
        path = known.path if known else None
        document = Document(doc_id, kept, path, is_folder=doc_id == kept.folder_id)
        with document.lock:
            if known is None:
                kept.add(doc_id)
            elif known.state is not None:
                document.load(known.state, known.texts)
            stored = None if path is None else self._readable(path)
            with self._lock:
                if doc_id in self._open:  # somebody else was quicker
                    return
                if stored is not None:
                    text = live_text(stored.entry.path, stored.data)
                    if known is None or known.state is None:
                        document.seed(stored, text)
                    else:
                        self._join(document, stored, text)
                self._open[doc_id] = document
                if document.is_folder:
                    self._folder_document = FolderDocument(document)

    def _readable(self, path: NotePath) -> Stored:
        """A file that can be live."""
        if self._folder.stat(path).kind != "file" or not path.is_note:
            raise NotText(f"{path} is no note, so it is not live", hint="open a Markdown file", path=path)
        stored = self._folder.read(path)
        if len(stored.data) > MOST_BYTES:
            words = f"{path} has {len(stored.data):,} bytes, too many to be live; the most is {MOST_BYTES:,}"
            hint = "split it into several notes"
            raise TooLarge(words, hint=hint, size=len(stored.data), limit=MOST_BYTES, path=path)
        return stored

    def release(self, document: Document) -> None:
        with self._lock:
            document.users -= 1
            document.left_at = time.monotonic()

    def opened(self, path: NotePath) -> Document | None:
        """The document of this file, if it is open."""
        return self.places.opened(path)

    def all_open(self) -> list[Document]:
        with self._lock:
            return list(self._open.values())

    # Files that change

    def catch_up(self, document: Document) -> None:
        """Merge what somebody else made of the file."""
        with document.lock:
            if document.path is None or document.end_reason:
                return
            try:
                if document.file and self._folder.stat(document.path).stamp == document.file.entry.stamp:
                    document.missing_since = None
                    return
                stored = self._readable(document.path)
                if _may_be_torn(stored, self._folder.stat(document.path), document.file):
                    return  # it is looked at again soon
                text = live_text(document.path, stored.data)
            except NotFound:
                self._is_missing(document, document.path)
                return
            except (NotText, TooLarge) as problem:
                self._end(document, str(problem))
                raise
            document.missing_since = None
            self._join(document, stored, text)

    def _join(self, document: Document, stored: Stored, text: str, base: Version | None = None) -> None:
        """The file has a text of somebody else's, made of that at `base` if that is known: put it together with the
        document's."""
        file, now = document.file, document.text()
        if file is not None and stored.version == file.version:
            document.file = stored
            return
        made = self._origin(stored.entry.path, stored.version)
        op = made[0] if made else None
        if text != now:
            merged = document.merged(base or self._base(document, stored, text, made), text)
            document.holds(stored, merged.theirs, ours=False, merged=merged, op=op)
            if merged.text != text:
                document.must_save()
        else:
            document.holds(stored, document.doc.get_update(), ours=False, op=op)

    def _base(self, document: Document, stored: Stored, text: str, made: Made | None) -> Version | None:
        """Of which text this one was made; `made`: by the last change of one of our processes."""
        if document.last_text() == stored.version:  # a save of ours
            return stored.version
        is_ours = made is not None and made[0] not in document.ops
        base = document.known(made[1]) if made is not None and is_ours else None
        if base is None and (known := document.known(stored.version)) is not None:
            # Nobody's old buffer: a change of ours saw the file, or it was put back while nobody had it open.
            base = document.known(document.held) if is_ours or document.file is None else known
        return base or document.nearest(text)

    def _is_missing(self, document: Document, path: NotePath) -> None:
        now, since = time.monotonic(), document.missing_since
        if since is not None and now - since < places.GONE_S:
            return
        self.places.follow_moves()
        document.missing_since = now if since is None and document.path == path else None
        if document.path != path or since is None:
            return
        if document.unsaved and document.file is not None:  # somebody types in it: what was typed is not thrown away
            stored = document.now()
            with suppress(Problem):
                document.sync()
                written = self._folder.write(path, stored.data, seen=None, op=uuid.uuid4().hex)
                document.holds(written, document.doc.get_update(), ours=True)
                document.unsaved = False
                return
        self.gone(document)

    # Files that moved or went

    def moved_back(self, new: NotePath) -> bool:
        """A move that is taken back: the file of the old name is still there, and the document is its again."""
        old = self.places.came_from(new)
        if old is None:
            return False
        try:
            stored = self._folder.read(old)
        except Problem:
            return False
        self.places.moved(new, old)
        self.places.came_from(old)
        document = self.opened(old)
        if document is not None:
            with document.lock, suppress(Problem):
                self._join(document, stored, live_text(old, stored.data), document.known(stored.version))
        return True

    def gone(self, document: Document) -> None:
        """Its file was deleted. It comes back with it, by the same id."""
        if document.path is not None:
            self.places.dropped(document.path)
        self._end(document, "the note was deleted")

    def _end(self, document: Document, reason: str) -> None:
        with self._lock:
            self._open.pop(document.id, None)
        document.end(reason)

    # Saving

    def save_all(self, path: NotePath | None = None) -> None:
        """Write what was typed (into one document, or into all), unless that is what this thread is doing."""
        if not self._open or getattr(self._own, "saving", False):
            return
        documents = self.all_open() if path is None else [self.opened(path)]
        for document in documents:
            if document is not None and document.unsaved:
                self.save(document)

    def save(self, document: Document) -> None:
        """What the document says becomes its file's text."""
        with document.one_save:
            self._save_now(document)

    def _save_now(self, document: Document) -> None:
        for _ in range(_TRIES):
            self.catch_up(document)
            with document.lock:
                path, file = document.path, document.file
                if path is None or file is None or document.end_reason or not document.unsaved:
                    return
                data = file_bytes(document.text(), file.data)
                typists, document.typists = document.typists, {}
                document.unsaved = False
                if data == file.data:
                    return
                document.saving = version_of(data)
                state = document.doc.get_update()
                document.remember(document.saving, state)
                assert self._log is not None
            try:
                self._log.keep_text(document.id, document.saving, state)
                self._own.saving = True
                self._save(path, data, file, list(typists))
                return
            except (Conflict, Exists):
                continue  # somebody saved the file meanwhile: look again
            except Problem as problem:
                log.warning("what was typed into %s is not in its file yet: %s", path, problem)
                document.save_again_at = time.monotonic() + AGAIN_S
                return
            finally:
                self._own.saving = False
                with document.lock:
                    if document.saving is not None:  # it did not happen
                        document.saving = None
                        document.typists = typists | document.typists
                        document.must_save()

    def _write_through(self, path: NotePath, data: bytes, old: Stored, typists: list[Any]) -> None:
        document = self.opened(path)
        if document is not None:
            self.put(document, data, seen=old.version, op=uuid.uuid4().hex)

    def put(self, document: Document, data: bytes, *, seen: Version, op: str) -> Stored:
        """What `save` is writing, into the file."""
        with document.lock:
            assert document.path is not None
            stored = self._folder.write(document.path, data, seen=seen, op=op, settled=document.is_ours)
            document.holds(stored, document.state_at(stored.version), ours=True, op=op)
            document.saving = None
            return stored

    def _run(self) -> None:
        _log_errors(self._finish_others, "what was typed before the last process ended is not in the files yet")
        looked = 0.0
        while not self._stop.is_set():
            self._wake.wait(_TICK_S if self._open else _LOOK_S)
            if self._stop.is_set():
                break
            now = time.monotonic()
            if self._wake.is_set():
                self._wake.clear()
                looked = 0.0
            if self._open and self._watch is not None:
                subscribe, self._watch = self._watch, None
                subscribe(lambda paths: self._wake.set())
            self._work_on_folder()
            looks = now - looked >= _LOOK_S
            for document in self.all_open():
                _log_errors(partial(self._look_after, document, now, looks), f"live document {document.path}")
            looked = now if looks else looked
            self._evict(now)

    def _look_after(self, document: Document, now: float, looks: bool) -> None:
        if looks and not document.is_folder:
            self.catch_up(document)
        if self._is_due(document, now):
            self.save(document)

    def _work_on_folder(self) -> None:
        folder = self._folder_document
        if folder is not None and folder.document.end_reason:
            folder = self._folder_document = None
        _log_errors(partial(self._keep_folder, folder), "the folder document")

    def _finish_others(self) -> None:
        """What was typed before the last process that had the documents died goes to the files."""
        assert self._log is not None
        for doc_id in self._log.unsaved():
            with suppress(Problem):
                document = self.open(doc_id)
                try:
                    with document.lock:
                        if document.file and document.text() != live_text(document.file.entry.path, document.file.data):
                            document.must_save()
                finally:
                    self.release(document)

    def _is_due(self, document: Document, now: float) -> bool:
        if not document.unsaved or document.path is None or document.file is None or now < document.save_again_at:
            return False
        clock = time.time()
        return clock - document.typed_at >= PAUSE_S or clock - document.first_typed_at >= LONGEST_S

    def _evict(self, now: float) -> None:
        going = []
        with self._lock:
            for document in list(self._open.values()):
                is_safe = document.path is None or document.saved()  # without a path all of it is in the log
                is_safe = is_safe and not document.is_owed  # what was to be deleted may be another note by then
                if document.users == 0 and is_safe and now - document.left_at > IDLE_S:
                    document.end_reason = "nobody had it open"
                    del self._open[document.id]
                    going.append(document)
        for document in going:
            document.end("nobody had it open")
            if self._log is not None:
                self._log.compact(document.id)
        if going:
            release_free_memory()

    def close(self) -> None:
        """Save what was typed and let go of everything."""
        self._stop.set()
        self._wake.set()
        if self._saver is not None:
            self._saver.join()
        for document in self.all_open():
            if document.unsaved and not document.is_folder:
                with suppress(Problem):
                    self.save(document)
            self._end(document, "the server stops")
            if self._log is not None:
                self._log.compact(document.id)
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None
            if self._host_lock is not None:
                self._host_lock.release()
                self._host_lock = None


def _log_errors(work: Callable[[], None], what: str) -> None:
    """In a thread that goes on whatever happens."""
    try:
        work()
    except Problem as problem:
        log.warning("%s: %s", what, problem)
    except Exception:
        log.exception("%s", what)


def _may_be_torn(stored: Stored, now: Entry, before: Stored | None) -> bool:
    """An editor that truncates a file before it writes leaves nothing, or a part, for a moment: what changed while it
    was read, or got smaller, is believed when it has been quiet."""
    if before is None:
        return False
    is_new = 0 <= time.time() - now.modified_ns / 1e9 < (QUIET_S if stored.data else EMPTY_S)
    return now.stamp != stored.entry.stamp or (is_new and len(stored.data) < len(before.data))
