"""A folder with live notes: reads give what was just typed, and writes are merged with it instead of refused.

It wraps a FolderStore. A file whose document is not open is read and written there and nowhere else. For an open
document the merged text is written to the file first and then applied to the document: after a crash between the two,
the file is merged as if an editor had saved it.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from notewright.errors import Conflict
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, OpId, Store, Stored, Swap, UnlistedFile, Version, changed_error, version_of
from notewright.stores.live.document import Document
from notewright.stores.live.documents import VERSION_CHARS, LiveDocuments
from notewright.stores.live.host_socket import call_host
from notewright.stores.live.text import file_bytes, live_text

_MAX_TRIES = 5


class LiveStore(Store):
    """Implements `Store` over a folder with live documents."""

    def __init__(self, folder: Store, documents: LiveDocuments) -> None:
        self._folder = folder
        self._documents = documents
        self.identity = folder.identity

    # Reading

    def entries(self, below: str = "", *, bare: bool = False) -> Iterator[Entry]:
        return self._folder.entries(below, bare=bare)

    def changed_entries(self, known: dict[str, str], since_ns: int) -> Iterable[Entry]:
        return self._folder.changed_entries(known, since_ns)

    def unlisted_files(self) -> tuple[UnlistedFile, ...]:
        return self._folder.unlisted_files()

    def children(self, folder: str, *, hidden: bool = False, bare: bool = False) -> list[Entry]:
        return self._folder.children(folder, hidden=hidden, bare=bare)

    def stat(self, path: NotePath, *, hidden: bool = False) -> Entry:
        unsaved = self._read_unsaved(path)
        return self._folder.stat(path, hidden=hidden) if unsaved is None else unsaved.entry

    def read(self, path: NotePath, *, hidden: bool = False) -> Stored:
        unsaved = self._read_unsaved(path)
        return self._folder.read(path, hidden=hidden) if unsaved is None else unsaved

    def _read_unsaved(self, path: NotePath) -> Stored | None:
        """The text of an open document, if it is not in its file yet."""
        document = self._documents.find_open(path)
        if document is None or document.is_saved():
            return None
        with document.lock:
            return document.snapshot() if not document.is_saved() and document.path == path and document.file else None

    # Writing

    def stage(self, path: NotePath, data: bytes, *, op: OpId, hidden: bool = False) -> None:
        if self._documents.find_open(path) is None:  # the merged text of an open document is not known yet
            self._folder.stage(path, data, op=op, hidden=hidden)

    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        path, data, seen, source, _ = swap
        if data is None:
            if seen is not None:
                self._delete(path, swap, op, hidden)
            return None
        if seen is not None:
            document = self._documents.find_open(path)
            if document is not None:
                return self._merge(document, path, data, seen, op)
            return self._folder.swap(swap._replace(source=None), op=op, hidden=hidden)
        if path.is_hidden or (source is not None and source.is_hidden):  # into the trash, or out of it
            source = None
        moving = None if source is None else self._documents.find_open(source)
        if moving is not None and source is not None:  # include what was typed since the move was planned
            self._documents.catch_up(moving)
            with moving.lock:
                base = moving.find_version(version_of(data)) or moving.find_nearest_version(live_text(path, data))
                return self._write_merged(moving, path, data, base, op, seen=None, source=source)
        stored = self._folder.swap(swap._replace(source=None), op=op, hidden=hidden)
        if source is not None:
            self._documents.paths.move(source, path)
        else:
            self._documents.paths.restore(path)
        return stored

    def _merge(self, document: Document, path: NotePath, data: bytes, seen: Version, op: OpId) -> Stored:
        """Apply the change from the text that was seen to `data` to the text of the document now."""
        if document.saving is not None and document.saving == version_of(data):
            return self._documents.write_saving(document, data, seen=seen, op=op)
        for _ in range(_MAX_TRIES):
            self._documents.catch_up(document)
            with document.lock:
                if document.path != path or document.file is None or document.end_reason:
                    break
                if op in document.ops or version_of(data) == document.file.version:
                    return document.file if document.is_saved() else document.snapshot()
                base = document.find_version(seen)
                if base is None:
                    raise changed_error(path, document.snapshot().version)
                try:
                    return self._write_merged(document, path, data, base, op, seen=document.file.version)
                except Conflict:  # another program saved the file meanwhile
                    continue
        return self._folder.write(path, data, seen=seen, op=op)

    def _write_merged(
        self,
        document: Document,
        path: NotePath,
        data: bytes,
        base: Version | None,
        op: OpId,
        *,
        seen: Version | None,
        source: NotePath | None = None,
    ) -> Stored:
        text = live_text(path, data)
        merge = document.prepare_merge(base, text)
        whole = data if merge.text == text else file_bytes(merge.text, data)
        document.log.flush()  # or recovery takes typed text for an outside edit, and its client's copy adds it again
        stored = self._folder.write(path, whole, seen=seen, op=op, settled=document.we_wrote_file)
        if source is not None:
            self._documents.paths.move(source, path)
        document.record_file(stored, merge.state, ours=True, merge=merge, op=op)
        if merge.text != text:
            document.remember_shown(version_of(data), merge.theirs)  # the text that its writer knows
        document.unsaved, document.typists = False, {}
        return stored

    def _delete(self, path: NotePath, swap: Swap, op: OpId, hidden: bool) -> None:
        document = self._documents.find_open(path)
        if document is None:
            departed = self._documents.paths.pop_departed(path)
            self._folder.swap(swap._replace(seen=departed or swap.seen), op=op, hidden=hidden)
            if departed is None and not self._documents.take_back_move(path):
                self._documents.paths.remove(path)
            return
        self._documents.catch_up(document)
        with document.lock:
            if document.file is None or document.path != path:
                raise changed_error(path, None)
            now = document.file.version if document.is_saved() else document.snapshot().version
            if now != swap.seen:
                raise changed_error(path, now)
            self._folder.swap(swap._replace(seen=document.file.version), op=op, hidden=hidden)
        if not self._documents.take_back_move(path):
            self._documents.drop(document)

    def find_applied(self, op: OpId, paths: Sequence[NotePath]) -> frozenset[NotePath]:
        documents = {path: self._documents.find_open(path) for path in paths}
        return frozenset(path for path, document in documents.items() if document is not None and op in document.ops)

    def read_old_version(self, path: NotePath, version: str) -> Stored | None:
        answer = call_host(self._documents, "recall", path, version.encode())
        whole, data = answer[:VERSION_CHARS].decode(), answer[VERSION_CHARS:]
        return Stored(data, whole, self._folder.stat(path)) if answer else None

    def rebase(self, path: NotePath, data: bytes, *, seen: Version, onto: Stored) -> bytes:
        text = call_host(self._documents, "rebase", path, f"{seen}{onto.version}".encode() + data).decode()
        return file_bytes(text, onto.data)

    def respell(self, old: NotePath, new: NotePath, *, hidden: bool = False) -> Stored | None:
        stored = self._folder.respell(old, new, hidden=hidden)
        if stored is not None:
            self._documents.paths.move(old, new)
        return stored

    def settle(self, op: OpId, *, emptied: tuple[str, ...] = ()) -> None:
        self._folder.settle(op, emptied=emptied)

    def sweep(self, folders: Iterable[str]) -> None:
        self._folder.sweep(folders)

    @property
    def lock_is_exclusive(self) -> bool:
        return self._folder.lock_is_exclusive

    def lock(self, path: NotePath | None = None, *, timeout: float = 10.0) -> AbstractContextManager[None]:
        """Lock the folder, after saving what was typed as a change of its own: a tool then changes a text in a file."""
        self._documents.save_all(path)
        return self._folder.lock(path, timeout=timeout)

    def changes(self, stop: threading.Event, *, walked: bool = False) -> Iterator[frozenset[NotePath] | None]:
        return self._folder.changes(stop, walked=walked)

    def full_path(self, path: NotePath) -> str:
        return self._folder.full_path(path)

    def healthy(self) -> bool:
        return self._folder.healthy()

    def close(self) -> None:
        self._documents.close()
        self._folder.close()
