"""The files of live documents: assigns ids to files, and follows files to other names.

A document whose file was deleted keeps its id, and has it again when the file is restored. A file that another program
renamed is recognised by its inode, size and time, or by the history of our own processes.
"""

import threading
import time
from collections.abc import Callable, MutableMapping, Sequence

from notewright.notes.path import NotePath
from notewright.stores.base import Store, Version
from notewright.stores.live.document import Document
from notewright.stores.live.log import LiveLog

GONE_S = 2.0  # a file may be missing for so long, as editors delete before they write


class DocumentPaths:
    """Paths and ids. Any thread may call. `lock` is that of the open documents; a document's own is taken before it.
    Only the process that hosts the documents has a log, and without one no file has an id."""

    def __init__(self, folder: Store, lock: "threading.RLock", opened: MutableMapping[str, Document]) -> None:
        self._folder, self._lock, self._open = folder, lock, opened
        self.log: LiveLog | None = None
        self.find_moved: Callable[[NotePath], NotePath | None] = lambda path: None  # where our processes moved it
        self.ids: dict[NotePath, str] = {}  # of files that have one
        self.stamps: dict[NotePath, str] = {}  # of these files, when they were last listed
        # New paths of documents, with the old one and the version the file had if the document was open.
        self._moves: dict[NotePath, tuple[NotePath, Version | None]] = {}
        self.missing: dict[NotePath, float] = {}  # files with ids that `list_ids` did not find, since when

    def assign_ids(self, paths: Sequence[NotePath]) -> dict[NotePath, str]:
        """The ids of these files, assigned now if they have none."""
        with self._lock:
            new = [path for path in paths if path not in self.ids]
            assigned = self.log.assign_ids(new) if new and self.log is not None else {}
            self.ids |= assigned
            for path, doc_id in assigned.items():
                self._reattach(doc_id, path)
            return {path: self.ids[path] for path in paths}

    def list_ids(self) -> dict[NotePath, str]:
        """Every file with its id: new ones are assigned one, and those that another program moved keep theirs. So do
        those that are `missing`, for GONE_S."""
        now = time.monotonic()
        stamps = self.follow_renames()
        missing = [path for path in self._list_known() if path not in stamps]
        self.missing = {path: self.missing.get(path, now) for path in missing}
        for path in missing:
            if now - self.missing[path] >= GONE_S and self.ids.get(path) not in self._open:
                self.remove(path)
                del self.missing[path]
        self.stamps = stamps
        return self.assign_ids([*stamps, *self.missing])

    def follow_renames(self) -> dict[NotePath, str]:
        """Give documents whose files were renamed since the last listing their new paths; returns all files with their
        stamps."""
        stamps = {entry.path: entry.stamp for entry in self._folder.entries() if entry.kind == "file"}
        missing = [path for path in self._list_known() if path not in stamps]
        new = {_file_identity(stamp): path for path, stamp in stamps.items() if path not in self.ids} if missing else {}
        for path in missing:
            document = self._open.get(self.ids.get(path, ""))
            stamp = document.file.entry.stamp if document and document.file else self.stamps.get(path)
            to = (new.get(_file_identity(stamp)) if stamp else None) or self.find_moved(path)
            if to is not None and to in stamps and to not in self.ids:
                self.move(path, to)
                self._moves.pop(to, None)  # another program's move, which we never take back
        return stamps

    def _list_known(self) -> list[NotePath]:
        """The files with ids. Waits for a move that is being logged: until then the document has the stamp of the old
        file, as if another program had renamed it back."""
        with self._lock:
            return list(self.ids)

    def set_path(self, doc_id: str, path: NotePath) -> str | None:
        """Make this file the document's; returns the document that had the file before."""
        with self._lock:
            other = self.ids.get(path)
            self.ids[path] = doc_id
            if self.log is not None:
                self.log.set_path(doc_id, path)
            if doc_id in self._open:
                self._open[doc_id].path = path
            return None if other == doc_id else other

    def move(self, old: NotePath, new: NotePath) -> None:
        """Follow a file that was renamed with its document."""
        with self._lock:
            doc_id = self.ids.pop(old, None)
            if doc_id is None:
                return
            document = self._open.get(doc_id)
            self._moves[new] = old, document.file.version if document and document.file else None
            other = self.set_path(doc_id, new)
            displaced = self._open.pop(other, None) if other is not None else None
        if displaced is not None:  # not under the lock: a document's own is taken before it
            displaced.end("another note has its place")

    def pop_former(self, new: NotePath) -> NotePath | None:
        """Forget a move to this path, and return the old path unless another document has it now."""
        old, _ = self._moves.pop(new, (None, None))
        return None if old in self.ids else old

    def pop_departed(self, path: NotePath) -> Version | None:
        """Forget a move from this path, whose file is to be deleted; returns the version that file had."""
        with self._lock:
            versions = [self._moves.pop(new)[1] for new, (old, _) in list(self._moves.items()) if old == path]
            return versions[-1] if versions else None

    def remove(self, path: NotePath) -> None:
        """Take the path from the document of a deleted file."""
        with self._lock:
            doc_id = self.ids.pop(path, None)
            if doc_id is not None and self.log is not None:
                self.log.set_path(doc_id, None)

    def restore(self, path: NotePath) -> None:
        """Give a new file the last document of its path, if there was one."""
        if self.log is not None and path.is_note and path not in self.ids:
            with self._lock:
                if (doc_id := self.log.restore_document(path)) is not None:
                    self.ids[path] = doc_id
                    self._reattach(doc_id, path)

    def _reattach(self, doc_id: str, path: NotePath) -> None:
        """Give an open document without a path the path of its file."""
        document = self._open.get(doc_id)
        if document is not None and document.path is None:
            document.path = path


def _file_identity(stamp: str) -> str:
    """The parts of a stamp that a rename leaves: time, size and inode."""
    return stamp.rpartition("-")[0]
