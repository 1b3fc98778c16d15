"""Which file each live document is of: ids that files are given, and documents that go with a file to another name.

A document that is nowhere comes back with its file, by the same id. A file that somebody else renamed is known again by
what the file system calls it, or by the history of our own processes.
"""

import threading
import time
from collections.abc import Callable, Iterable, MutableMapping

from notewright.notes.path import NotePath
from notewright.stores.base import Store, Version
from notewright.stores.live.document import Document
from notewright.stores.live.log import LiveLog

GONE_S = 2.0  # for which a file may be missing: editors delete before they write
Departed = Callable[[NotePath], NotePath | None]


class DocumentPlaces:
    """Any thread may call. `lock` is that of the open documents; a document's own is taken before it. Without a log,
    which the process that hosts the documents has, no file has an id."""

    def __init__(self, folder: Store, lock: "threading.RLock", opened: MutableMapping[str, Document]) -> None:
        self._folder, self._lock, self._open = folder, lock, opened
        self._log: LiveLog | None = None
        self.departed: Departed = lambda path: None  # where one of our processes moved a file to
        self._ids: dict[NotePath, str] = {}
        self._left: dict[NotePath, Version] = {}  # names that documents moved away from, with what the files held
        self._came: dict[NotePath, NotePath] = {}  # names that documents moved to, with those they had
        self._absent: dict[NotePath, float] = {}  # files with ids that are not there, since when
        self.stamps: dict[NotePath, str] = {}  # of files that have ids, when they were last listed

    def begin(self, log: LiveLog) -> None:
        self._log, self._ids = log, log.paths()

    def get(self, path: NotePath) -> str | None:
        """The id of a file that was given one."""
        return self._ids.get(path)

    def opened(self, path: NotePath) -> Document | None:
        """The document of this file, if it is open."""
        doc_id = self._ids.get(path)
        return None if doc_id is None else self._open.get(doc_id)

    def ids(self, paths: Iterable[NotePath]) -> dict[NotePath, str]:
        """The ids of these files, as far as they have none given now."""
        wanted = list(paths)
        with self._lock:
            new = [path for path in wanted if path not in self._ids]
            named = self._log.name(new) if new and self._log is not None else {}
            self._ids |= named
            for path, doc_id in named.items():
                self._is_back(doc_id, path)
            return {path: self._ids[path] for path in wanted}

    def listed(self) -> dict[NotePath, str]:
        """Every file that is there, with its id; those that are new are given one, and those that were moved by
        somebody else keep theirs."""
        now = time.monotonic()
        stamps = self.follow_moves()
        gone = [path for path in self._known() if path not in stamps]
        self._absent = {path: self._absent.get(path, now) for path in gone}
        for path in gone:
            if now - self._absent[path] >= GONE_S and self.opened(path) is None:
                self.dropped(path)
                del self._absent[path]
        self.stamps = stamps
        return self.ids([*stamps, *self._absent])

    @property
    def is_waiting(self) -> bool:
        """Files are missing that may be back in a moment: what `listed` said of them is to be asked again."""
        return bool(self._absent)

    def follow_moves(self) -> dict[NotePath, str]:
        """Files that have another name since they were last listed take their documents along; all files there are,
        with their stamps."""
        stamps = {entry.path: entry.stamp for entry in self._folder.entries() if entry.kind == "file"}
        gone = [path for path in self._known() if path not in stamps]
        new = {_file_of(stamp): path for path, stamp in stamps.items() if path not in self._ids} if gone else {}
        for path in gone:
            document = self.opened(path)
            stamp = document.file.entry.stamp if document and document.file else self.stamps.get(path)
            to = (new.get(_file_of(stamp)) if stamp else None) or self.departed(path)
            if to is not None and to in stamps and to not in self._ids:
                self.moved(path, to)
                self._left.pop(path, None)
                self._came.pop(to, None)  # not ours to take back
        return stamps

    def _known(self) -> list[NotePath]:
        with self._lock:
            return list(self._ids)

    def place(self, doc_id: str, path: NotePath) -> str | None:
        """From now on this file is the document's; the document that was there before."""
        with self._lock:
            other = self._ids.get(path)
            other = None if other == doc_id else other
            self._ids[path] = doc_id
            if self._log is not None:
                self._log.place([*([(other, None)] if other else []), (doc_id, path)])
            if doc_id in self._open:
                self._open[doc_id].path = path
            return other

    def moved(self, old: NotePath, new: NotePath) -> None:
        """The file of one name is that of another now, and its document goes with it."""
        with self._lock:
            doc_id = self._ids.pop(old, None)
            if doc_id is None:
                return
            document = self._open.get(doc_id)
            if document is not None and document.file is not None:
                self._left[old] = document.file.version
            self._came[new] = old
            other = self.place(doc_id, new)
            displaced = self._open.pop(other, None) if other is not None else None
        if displaced is not None:  # not under the lock: a document's own is taken before it
            displaced.end("another note has its place")

    def came_from(self, new: NotePath) -> NotePath | None:
        """Where a document was that moved here, if nothing else is there now; asked once."""
        old = self._came.pop(new, None)
        return None if old in self._ids else old

    def left(self, path: NotePath) -> Version | None:
        """What the file held that a document moved away from, which is to go now."""
        with self._lock:
            self._came = {new: old for new, old in self._came.items() if old != path}
            return self._left.pop(path, None)

    def dropped(self, path: NotePath) -> None:
        """A file was deleted."""
        with self._lock:
            doc_id = self._ids.pop(path, None)
            if doc_id is not None and self._log is not None:
                self._log.place([(doc_id, None)])

    def created(self, path: NotePath) -> None:
        """A file where none was: if there was one before, its document is there again."""
        if self._log is not None and path.is_note and path not in self._ids:
            with self._lock:
                if (doc_id := self._log.bring_back(path)) is not None:
                    self._ids[path] = doc_id
                    self._is_back(doc_id, path)

    def _is_back(self, doc_id: str, path: NotePath) -> None:
        """A document that was nowhere has a file again, and whoever has it open is in it."""
        document = self._open.get(doc_id)
        if document is not None and document.path is None:
            document.path = path


def _file_of(stamp: str) -> str:
    """What stays of a folder's stamp when a file gets another name: when it was saved, its size and its inode."""
    return stamp.rpartition("-")[0]
