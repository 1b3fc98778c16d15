"""The live documents of one workspace: opening, saving and evicting them.

The process that holds a lock in the state directory hosts them; the others read and write the files, as any editor
does. A file that changed under an open document is merged into it, and a document that was typed into is saved after a
pause: by `save_text`, which the engine sets, so that typing is a change in the history like any other.
"""

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from notewright.errors import Conflict, Exists, Invalid, NotFound, NotText, Problem, TooLarge, Unavailable
from notewright.locks import FileLocks, Lock
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, Stored, Version, release_free_memory, version_of
from notewright.stores.live import paths
from notewright.stores.live.document import MAX_TEXT_BYTES, Document, Origin
from notewright.stores.live.folder_document import FolderDocument
from notewright.stores.live.log import LiveLog, open_log
from notewright.stores.live.paths import DocumentPaths
from notewright.stores.live.text import file_bytes, live_text

log = logging.getLogger(__name__)

PAUSE_S, MAX_UNSAVED_S = 1.0, 5.0  # a document is saved so long after the last, or the first, update
IDLE_S = 30.0  # after which a document that nobody has open is evicted
QUIET_S, QUIET_EMPTY_S = 0.2, 2.0  # a file that got smaller, or is empty, is read once it has not changed for so long
RETRY_SAVE_S = 5.0  # before a save that failed is tried again
VERSION_CHARS = 64
_TICK_S = 0.1
_LOOK_S = 0.3  # between two checks of the files of open documents
_MAX_TRIES = 5
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class LiveDocuments:
    """The live documents. Any thread may call but that of an event loop: calls block."""

    def __init__(self, folder: Store, state: Path) -> None:
        self._folder = folder
        self._state = state
        self.socket = state / "live.sock"  # at which other processes call the host, and forward their clients to it
        self._lock = threading.RLock()
        self._log: LiveLog | None = None
        self._host_lock: Lock | None = None
        self._open: dict[str, Document] = {}
        self.paths = DocumentPaths(folder, self._lock, self._open)
        self._folder_document: FolderDocument | None = None
        self._own = threading.local()  # whether this thread is saving
        self._stop, self._wake = threading.Event(), threading.Event()
        self._saver: threading.Thread | None = None
        # Set by the engine:
        self.save_text: Callable[[NotePath, bytes, Stored, list[Any]], None] = self._write_text  # what was typed
        self.find_origin: Callable[[NotePath, Version], Origin | None] = lambda path, version: None
        # called now and then with the folder document while somebody has it open, and with None when nobody has
        self.sync_folder: Callable[[FolderDocument | None], None] = lambda folder: None
        # called when the first document is opened, with a function to call when files change: the saves of two editors
        # are told apart only if the file is read between them
        self.subscribe: Callable[[Callable[[object], None]], object] | None = None

    # Hosting

    def try_host(self) -> bool:
        """Become the host if there is none; returns whether this process is the host."""
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
                self.paths.log, self.paths.ids = self._log, self._log.load_ids()
            except BaseException:
                self._host_lock.release()
                self._host_lock = None
                raise
            self._saver = threading.Thread(target=self._run, name="live-saver", daemon=True)
            self._saver.start()
            return True

    @property
    def is_hosting(self) -> bool:
        return self._host_lock is not None

    @property
    def folder_id(self) -> str:
        return self._hosted_log().folder_id

    def _hosted_log(self) -> LiveLog:
        if not self.try_host() or self._log is None:
            hint = "another process has them; its address answers"
            raise Unavailable("the live documents are open in another process", hint=hint)
        return self._log

    # Texts that callers were shown

    def rebase(self, path: NotePath, body: bytes) -> bytes:
        """The text of a second version with the change from a first one to some bytes; `body` is all three, joined."""
        seen, onto = body[:VERSION_CHARS].decode(), body[VERSION_CHARS : 2 * VERSION_CHARS].decode()
        data, document = body[2 * VERSION_CHARS :], self.find_open(path)
        if document is not None:
            with document.lock:
                base, target = document.find_version(seen), document.find_version(onto)
                if base is not None and target is not None:
                    return document.rebase(data, live_text(path, data), base=base, onto=target).encode()
        raise Conflict(f"{path} changed since it was read", hint="read it again", path=path, current=None)

    def recall(self, path: NotePath, prefix: str) -> bytes:
        """The version with this prefix, then the file as it was then; empty if it is not remembered."""
        log, doc_id, document = self._hosted_log(), self.paths.ids.get(path), self.find_open(path)
        if document is None and doc_id is not None and log.has_text(doc_id, prefix):
            with suppress(NotFound, NotText, TooLarge):  # typed into since, and closed by all clients
                document = self.open(doc_id)
                self.release(document)
        if document is None:
            return b""
        self.catch_up(document)
        with document.lock:
            version = document.find_version(prefix)
            if version is None or document.file is None:
                return b""
            return version.encode() + file_bytes(document.text_at(version), document.file.data)

    # Names

    def path_of(self, doc_id: str) -> NotePath | None:
        """The path of a document's file; None if it has none yet, or there is no such document."""
        document = self._open.get(doc_id)
        if document is not None:
            return document.path
        logged = self._hosted_log().load_document(doc_id) if _ID.fullmatch(doc_id) else None
        return logged.path if logged else None

    def id_of(self, path: NotePath) -> str:
        """The id of a file's document, assigned at the first call."""
        self._hosted_log()
        if (known := self.paths.ids.get(path)) is not None:
            return known
        live_text(path, self._read_note(path).data)
        return self.paths.assign_ids([path])[path]

    def list_files(self) -> dict[NotePath, str]:
        """Every file, with the id it has in the folder document."""
        begin = len(self._hosted_log().relay_id) + 1
        return {path: doc_id[begin:] for path, doc_id in self.paths.list_ids().items()}

    def create(self, doc_id: str | None = None) -> str:
        """Add a document that has no path yet."""
        log = self._hosted_log()
        doc_id = doc_id or f"{log.relay_id}-{uuid.uuid4()}"
        if not _ID.fullmatch(doc_id):
            hint = "letters, digits, - and _, a hundred at most"
            raise Invalid(f"{doc_id[:120]!r} cannot be the id of a document", hint=hint, what="docId")
        log.add_document(doc_id)
        return doc_id

    def create_file(self, part: str, path: NotePath, create: Callable[[bytes], object]) -> None:
        """Make a file for a document without one, named by its id in the folder document; `create` writes the file."""
        log = self._hosted_log()
        document = self.open(self.create(f"{log.relay_id}-{part}"))
        try:
            with document.lock:
                data = document.text().encode()
                version, state = version_of(data), document.doc.get_update()
                document.remember_file(version, state)
            log.save_pending_text(document.id, version, state)
            create(data)
            with document.lock:
                self.paths.set_path(document.id, path)
            self.catch_up(document)
        finally:
            self.release(document)

    # Opening and releasing

    def open(self, doc_id: str) -> Document:
        """Open a document until `release`; NotFound if there is none with this id."""
        log = self._hosted_log()
        while True:
            with self._lock:
                document = self._open.get(doc_id)
                if document is not None:
                    document.users += 1
                    break
            self._load(doc_id, log)
        try:
            if document.is_folder:
                self._sync_folder_document()  # clients must not get the state of when it was last open
            else:
                self.catch_up(document)
        except BaseException:
            self.release(document)
            raise
        return document

    def _load(self, doc_id: str, log: LiveLog) -> None:
        logged = log.load_document(doc_id) if _ID.fullmatch(doc_id) else None
        if logged is None and doc_id != log.folder_id:
            raise NotFound("there is no such document", hint="look in the folder document", what="document")
        path = logged.path if logged else None
        document = Document(doc_id, log, path, is_folder=doc_id == log.folder_id)
        with document.lock:
            if logged is None:
                log.add_document(doc_id)
            elif logged.state is not None:
                document.load(logged.state, logged.texts)
            stored = None if path is None else self._read_note(path)
            with self._lock:
                if doc_id in self._open:  # another thread opened it meanwhile
                    return
                if stored is not None:
                    text = live_text(stored.entry.path, stored.data)
                    if logged is None or logged.state is None:
                        document.seed(stored, text)
                    else:
                        self._merge_file(document, stored, text)
                self._open[doc_id] = document
                if document.is_folder:
                    self._folder_document = FolderDocument(document)

    def _read_note(self, path: NotePath) -> Stored:
        """Read a file that can be live; NotText or TooLarge otherwise."""
        if self._folder.stat(path).kind != "file" or not path.is_note:
            raise NotText(f"{path} is no note, so it is not live", hint="open a Markdown file", path=path)
        stored = self._folder.read(path)
        if len(stored.data) > MAX_TEXT_BYTES:
            words = f"{path} has {len(stored.data):,} bytes, too many to be live; the most is {MAX_TEXT_BYTES:,}"
            hint = "split it into several notes"
            raise TooLarge(words, hint=hint, size=len(stored.data), limit=MAX_TEXT_BYTES, path=path)
        return stored

    def release(self, document: Document) -> None:
        with self._lock:
            document.users -= 1
            document.released_at = time.monotonic()

    def find_open(self, path: NotePath) -> Document | None:
        """The document of this file, if it is open."""
        return self._open.get(self.paths.ids.get(path, ""))

    def list_open(self) -> list[Document]:
        with self._lock:
            return list(self._open.values())

    # Files that change

    def catch_up(self, document: Document) -> None:
        """Merge the file if another program changed it."""
        with document.lock:
            path = document.path
            if path is None or document.end_reason:
                return
            try:
                if document.file and self._folder.stat(path).stamp == document.file.entry.stamp:
                    document.missing_since = None
                    return
                stored = self._read_note(path)
                if _may_be_torn(stored, self._folder.stat(path), document.file):
                    return  # the saver thread checks it again soon
                text = live_text(path, stored.data)
            except NotFound:
                return self._handle_missing_file(document, path)
            except (NotText, TooLarge) as problem:
                self._end(document, str(problem))
                raise
            document.missing_since = None
            self._merge_file(document, stored, text)

    def _merge_file(self, document: Document, stored: Stored, text: str, base: Version | None = None) -> None:
        """Merge the text that another program wrote into the file. `base` is the version it changed, if that is
        known."""
        if document.file is not None and stored.version == document.file.version:
            document.file = stored
            return
        origin = self.find_origin(stored.entry.path, stored.version)
        op = origin[0] if origin else None
        if text == document.text():
            return document.record_file(stored, document.doc.get_update(), ours=False, op=op)
        base = base or document.find_base(stored.version, text, origin)
        merge = document.prepare_merge(base, text)
        document.record_file(stored, merge.theirs, ours=False, merge=merge, op=op)
        if merge.text != text:
            document.mark_unsaved()

    def _handle_missing_file(self, document: Document, path: NotePath) -> None:
        """Follow a rename; without one, after a while, the note counts as deleted."""
        now, since = time.monotonic(), document.missing_since
        if since is not None and now - since < paths.GONE_S:
            return
        self.paths.follow_renames()
        document.missing_since = now if since is None and document.path == path else None
        if document.path != path or since is None:
            return
        if document.unsaved and document.file is not None:  # typed into, so it is written back instead
            stored = document.snapshot()
            with suppress(Problem):
                document.log.flush()  # the log must be on disk before the file has the text
                written = self._folder.write(path, stored.data, seen=None, op=uuid.uuid4().hex)
                document.record_file(written, document.doc.get_update(), ours=True)
                document.unsaved = False
                return
        self.drop(document)

    # Files that moved or went

    def take_back_move(self, new: NotePath) -> bool:
        """Give the document back to the file of its old name, if that still exists. Returns whether it does."""
        old = self.paths.pop_former(new)
        if old is None:
            return False
        try:
            stored = self._folder.read(old)
        except Problem:
            return False
        self.paths.move(new, old)
        self.paths.pop_former(old)
        document = self.find_open(old)
        if document is not None:
            with document.lock, suppress(Problem):
                self._merge_file(document, stored, live_text(old, stored.data), document.find_version(stored.version))
        return True

    def drop(self, document: Document) -> None:
        """End a document whose file was deleted; it keeps its id in case the file is restored."""
        if document.path is not None:
            self.paths.remove(document.path)
        self._end(document, "the note was deleted")

    def _end(self, document: Document, reason: str) -> None:
        with self._lock:
            self._open.pop(document.id, None)
        document.end(reason)

    # Saving

    def save_all(self, path: NotePath | None = None) -> None:
        """Save one document, or all, that were typed into; does nothing in a thread that is saving."""
        if not self._open or getattr(self._own, "saving", False):
            return
        for document in self.list_open() if path is None else [self.find_open(path)]:
            if document is not None and document.unsaved:
                self.save(document)

    def save(self, document: Document) -> None:
        """Write the text of the document into its file."""
        with document.save_lock:
            for _ in range(_MAX_TRIES):
                if self._try_save(document):
                    return

    def _try_save(self, document: Document) -> bool:
        """Save; False if another program saved the file meanwhile."""
        self.catch_up(document)
        with document.lock:
            path, file = document.path, document.file
            if path is None or file is None or document.end_reason or not document.unsaved:
                return True
            data = file_bytes(document.text(), file.data)
            typists, document.typists = document.typists, {}
            document.unsaved = False
            if data == file.data:
                return True
            document.saving = version_of(data)
            state = document.doc.get_update()
            document.remember_file(document.saving, state)
        try:
            document.log.save_pending_text(document.id, document.saving, state)
            self._own.saving = True
            self.save_text(path, data, file, list(typists))
        except (Conflict, Exists):
            return False
        except Problem as problem:
            log.warning("what was typed into %s is not in its file yet: %s", path, problem)
            document.retry_save_at = time.monotonic() + RETRY_SAVE_S
        finally:
            self._own.saving = False
            with document.lock:
                if document.saving is not None:  # it was not saved
                    document.saving = None
                    document.typists = typists | document.typists
                    document.mark_unsaved()
        return True

    def _write_text(self, path: NotePath, data: bytes, old: Stored, typists: list[Any]) -> None:
        document = self.find_open(path)
        if document is not None:
            self.write_saving(document, data, seen=old.version, op=uuid.uuid4().hex)

    def write_saving(self, document: Document, data: bytes, *, seen: Version, op: str) -> Stored:
        """Write the file; called by `save_text` during `save`."""
        with document.lock:
            assert document.path is not None
            stored = self._folder.write(document.path, data, seen=seen, op=op, settled=document.we_wrote_file)
            document.record_file(stored, document.state_at(stored.version), ours=True, op=op)
            document.saving = None
            return stored

    def _run(self) -> None:
        with _log_errors("what was typed before the last process ended is not in the files yet"):
            self._save_unfinished()
        looked_at = 0.0
        while not self._stop.is_set():
            self._wake.wait(_TICK_S if self._open else _LOOK_S)
            if self._stop.is_set():
                break
            now = time.monotonic()
            if self._wake.is_set():
                self._wake.clear()
                looked_at = 0.0
            if self._open and self.subscribe is not None:
                subscribe, self.subscribe = self.subscribe, None
                subscribe(lambda changed: self._wake.set())
            self._sync_folder_document()
            looks = now - looked_at >= _LOOK_S
            for document in self.list_open():
                with _log_errors(f"live document {document.path}"):
                    if looks and not document.is_folder:
                        self.catch_up(document)
                    clock = time.time()
                    is_due = clock - document.typed_at >= PAUSE_S or clock - document.first_typed_at >= MAX_UNSAVED_S
                    if document.unsaved and is_due and now >= document.retry_save_at:
                        self.save(document)
            looked_at = now if looks else looked_at
            self._evict_idle(now)

    def _sync_folder_document(self) -> None:
        folder = self._folder_document
        if folder is not None and folder.document.end_reason:
            folder = self._folder_document = None
        with _log_errors("the folder document"):
            self.sync_folder(folder)

    def _save_unfinished(self) -> None:
        """Mark documents as unsaved whose last updates the previous host did not write to their files."""
        for doc_id in self._hosted_log().find_unsaved():
            with suppress(Problem):
                document = self.open(doc_id)
                try:
                    with document.lock:
                        if document.file and document.text() != live_text(document.file.entry.path, document.file.data):
                            document.mark_unsaved()
                finally:
                    self.release(document)

    def _evict_idle(self, now: float) -> None:
        idle = []
        with self._lock:
            for document in list(self._open.values()):
                is_safe = document.path is None or document.is_saved()  # without a file, all of it is in the log
                is_safe = is_safe and not document.has_pending_changes  # they may mean another file by then
                if document.users == 0 and is_safe and now - document.released_at > IDLE_S:
                    document.end_reason = "nobody had it open"
                    del self._open[document.id]
                    idle.append(document)
        for document in idle:
            document.end(document.end_reason)
            document.log.compact(document.id)
        if idle:
            release_free_memory()

    def close(self) -> None:
        """Save what was typed and end every document."""
        self._stop.set()
        self._wake.set()
        if self._saver is not None:
            self._saver.join()
        for document in self.list_open():
            if document.unsaved and not document.is_folder:
                with suppress(Problem):
                    self.save(document)
            self._end(document, "the server stops")
            document.log.compact(document.id)
        with self._lock:
            if self._log is not None:
                self._log.close()
                self._log = None
            if self._host_lock is not None:
                self._host_lock.release()
                self._host_lock = None


@contextmanager
def _log_errors(what: str) -> Iterator[None]:
    """Log any error of this block, in a thread that must go on."""
    try:
        yield
    except Problem as problem:
        log.warning("%s: %s", what, problem)
    except Exception:
        log.exception("%s", what)


def _may_be_torn(stored: Stored, now: Entry, before: Stored | None) -> bool:
    """Whether an editor may be in the middle of writing the file: it changed while it was read, or got smaller a moment
    ago, as many editors truncate a file before they write it."""
    if before is None:
        return False
    is_new = 0 <= time.time() - now.modified_ns / 1e9 < (QUIET_S if stored.data else QUIET_EMPTY_S)
    return now.stamp != stored.entry.stamp or (is_new and len(stored.data) < len(before.data))
