"""What people do in live documents, as change sets: in the history like any tool's, and undoable.

Typing is one change for each note and pause, by whoever typed. A Yjs client that puts, moves or removes a path in the
folder document creates, renames or deletes a note, links and all; what is refused is put back as it was.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from notewright.engine.changes.commit import commit
from notewright.engine.changes.plan import Plan, Put
from notewright.engine.dialects.lens import all_backlinks, forward_across
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, delete
from notewright.errors import Indexing, Problem
from notewright.ledger.base import Actor, Past
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version

if TYPE_CHECKING:  # loads pycrdt
    from notewright.stores.live.documents import LiveDocuments
    from notewright.stores.live.folder_document import FolderDocument, Wishes

log = logging.getLogger(__name__)
SURFACE = "live"
SHOW_S = 0.5  # between two times that the folder document is made to say what the folder has
LINKS_S = 2.0  # after which changed links are in the folder document
ALL_LINKS_S = 10.0  # and all of them, where names changed
HASHED_BYTES = 16 << 20  # of attachments that are read at a time for their hashes
DELETED_S = 2.0  # for which a note may be out of the maps: some clients rename by removing and adding


def follow(ws: Workspace, documents: "LiveDocuments") -> None:
    """From now on what is done in the documents becomes changes of this workspace."""

    def save(path: NotePath, data: bytes, old: Stored, typists: Sequence[Actor]) -> None:
        commit(ws.by(_together(typists, "type")), Plan((Put(path, data, old),), f"typed in {path}"))

    def origin(path: NotePath, version: Version) -> tuple[str, Version | None] | None:
        """The last change of one of our processes, if it made this version, and of which one."""
        for change in (*ws.ledger.unfinished(), *ws.ledger.past(Past(path=path, limit=1))):
            for step in change.steps:
                if step.path == path and step.after == version:
                    return change.id, step.before
        return None

    def departed(path: NotePath) -> NotePath | None:
        """Where one of our processes moved this file to."""
        gone = ws.ledger.departures(path)
        return gone[-1][1] if gone else None

    documents.save_through(save, origin, departed)
    documents.watch_with(ws.follower.subscribe)
    documents.keep_folder(FolderKeeper(ws, documents).work)


def _together(actors: Sequence[Actor | None], tool: str) -> Actor:
    """All who did something between two saves, as one."""
    users = ", ".join(dict.fromkeys(one.user for one in actors if one and one.user))
    clients = ", ".join(dict.fromkeys(one.client for one in actors if one and one.client))
    return Actor(users, clients, SURFACE, tool)


class FolderKeeper:
    """Keeps an open folder document equal to the folder, in both directions."""

    def __init__(self, ws: Workspace, documents: "LiveDocuments") -> None:
        self._ws = ws
        self._documents = documents
        self._lock = threading.Lock()
        self._changed: set[str] | None = None  # notes that changed since the links were shown; None: all
        self._files_changed = True
        self._links_at = 0.0  # when the links are due
        self._stop: Callable[[], None] | None = None
        self._shown: dict[NotePath, str] | None = None  # what the folder document was last made to say
        self._working = threading.Lock()
        self._folder: FolderDocument | None = None  # the one that was shown last
        self._pending: dict[str, float] = {}  # notes that clients removed a moment ago
        self._actors: list[Actor | None] = []  # and who
        self._show_at = 0.0  # when it may be made to say something else
        self._names: frozenset[NotePath] = frozenset()  # of the notes whose links were all shown
        self._told_bad: frozenset[str] = frozenset()
        self._hashes: dict[NotePath, tuple[str, str]] = {}  # of attachments, with the stamps they had
        self._shown_hashes: dict[NotePath, str] = {}

    def work(self, folder: "FolderDocument | None") -> None:
        """Called now and then, and before anybody is shown the document; None: nobody has it open."""
        with self._working:
            self._work(folder)

    def _work(self, folder: "FolderDocument | None") -> None:
        if folder is None:
            self._leave()
            return
        if self._stop is None:
            self._stop = self._ws.follower.subscribe(self._hear)
            self._hear(None)
        if folder is not self._folder or self._shown is None:  # what it said when it was last open is nobody's wish
            # but for what was done just before a host died
            self._folder, self._shown, self._pending, self._shown_hashes = folder, folder.shown_before(), {}, {}
            if self._shown is None:
                self._show(folder)
        if self._shown is not None and (folder.document.unsaved or self._pending):
            self._do(folder, self._shown)
        if self._files_changed and time.monotonic() >= self._show_at:
            self._show(folder)
        if self._links_at and time.monotonic() >= self._links_at:
            self._show_links(folder)

    def _show(self, folder: "FolderDocument") -> None:
        with self._lock:
            self._files_changed = False
        files = self._documents.listed()
        hashes = self._changed_hashes(files)
        with folder.document.lock:
            if folder.document.unsaved:  # what a client did in this moment is carried out first
                self._files_changed = True
                return
            there = {path: doc for path, doc in files.items() if doc not in self._pending}
            folder.show(self._ws.name, there, hashes)
            self._shown = files
            self._shown_hashes |= hashes
            if folder.document.is_owed and not self._pending:
                folder.document.carried_out()
        self._files_changed = self._files_changed or self._documents.places.is_waiting
        self._show_at = time.monotonic() + SHOW_S

    def _changed_hashes(self, files: dict[NotePath, str]) -> dict[NotePath, str]:
        """Of attachments whose hashes were not shown yet. So many bytes are read now, the rest the next time."""
        stamps, left = self._documents.places.stamps, HASHED_BYTES
        known, self._hashes = self._hashes, {}
        for path in files:
            if path.is_note:
                continue
            if path in known and known[path][0] == stamps.get(path):
                self._hashes[path] = known[path]
            elif left <= 0:
                self._files_changed = True
            else:
                left -= self._hash(path, stamps.get(path, ""))
        return {path: one for path, (_, one) in self._hashes.items() if one and self._shown_hashes.get(path) != one}

    def _hash(self, path: NotePath, stamp: str) -> int:
        """Bytes that were read."""
        self._hashes[path] = stamp, ""
        with suppress(Problem):
            if self._ws.store.stat(path).size <= self._ws.limits.note_bytes:
                stored = self._ws.store.read(path)
                self._hashes[path] = stamp, stored.version
                return len(stored.data)
        return 0

    def _leave(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = self._shown = None
            self._pending = {}

    def _hear(self, paths: frozenset[str] | None) -> None:
        with self._lock:
            self._files_changed = True
            if paths is None:
                self._changed = None
            elif self._changed is not None:
                self._changed |= paths
            wait = ALL_LINKS_S if self._changed is None and self._links_at else LINKS_S
            self._links_at = self._links_at or time.monotonic() + wait

    # What clients want

    def _do(self, folder: "FolderDocument", shown: dict[NotePath, str]) -> None:
        with folder.document.lock:
            actors = [*self._actors, *folder.document.typists]
            folder.document.typists = {}
            folder.document.unsaved = False
            wishes, bad = folder.wishes(shown)
        if set(bad) - self._told_bad:
            log.warning("the folder document of %s has keys that are no paths: %s", self._ws.name, bad[:5])
        self._told_bad = frozenset(bad)
        self._carry_out(folder, wishes, actors, shown)
        self._actors = actors if self._pending or folder.document.unsaved else []
        with self._lock:
            self._files_changed = True  # what was refused is put back

    def _carry_out(
        self, folder: "FolderDocument", wishes: "Wishes", actors: Sequence[Actor | None], shown: dict[NotePath, str]
    ) -> None:
        def tried(tool: str, work: Callable[[Workspace], object]) -> bool:
            try:
                work(self._ws.by(_together(actors, tool)))
            except Indexing:  # the server has just started
                folder.document.unsaved = True
                return False
            except Problem as problem:
                log.warning("the folder document of %s: %s", self._ws.name, problem)
                return False
            return True

        for doc, old, new in wishes.moved:
            if tried("move", partial(move, old=old, new=new)):
                del shown[old]
                shown[new] = doc
        for doc, path in wishes.created:
            if tried("create", partial(self._create, doc=doc, path=path)):
                shown[path] = doc
        now = time.monotonic()
        self._pending = {doc: self._pending.get(doc, now) for doc, _ in wishes.deleted}
        for doc, path in wishes.deleted:
            if now - self._pending[doc] >= DELETED_S:
                del self._pending[doc]
                if tried("delete", partial(delete, path=path)):
                    del shown[path]

    def _create(self, ws: Workspace, doc: str, path: NotePath) -> None:
        self._documents.place_new(doc, path, lambda data: create(ws, path, data))

    # Links

    def _show_links(self, folder: "FolderDocument") -> None:
        with self._lock:
            changed, self._changed, self._links_at = self._changed, set(), 0.0
        ids = {path: doc for path, doc in self._documents.listed().items() if path.is_note}
        with suppress(Problem):  # the index is not ready: the next change comes here again
            if changed is None or ids.keys() != self._names:  # another name may be what a link means
                self._names = frozenset(ids)
                found = all_backlinks(self._ws)
                folder.show_backlinks(
                    {ids[to]: {ids[one] for one in sources if one in ids} for to, sources in found.items() if to in ids}
                )
                return
            self._show_some(folder, [NotePath(path) for path in changed if path in ids], ids)

    def _show_some(self, folder: "FolderDocument", changed: list[NotePath], ids: dict[NotePath, str]) -> None:
        """The links of notes that changed; who else links where has not."""
        said = {target: set(sources) for target, sources in folder.backlinks().items()}
        sources: defaultdict[str, set[str]] = defaultdict(set, said)
        touched = set()
        prefix = len(self._ws.name) + 1
        for path in changed:
            own = ids[path]
            for target in [target for target, linking in sources.items() if own in linking]:
                sources[target] = sources[target] - {own}
                touched.add(target)
            for full in forward_across([self._ws], self._ws, path):
                target = ids.get(NotePath(full[prefix:]), "")
                if target:
                    sources[target] = sources[target] | {own}
                    touched.add(target)
        folder.show_backlinks(sources, only=touched)
