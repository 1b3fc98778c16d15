"""What people do in live documents, as change sets: in the history like any tool's, and undoable.

Typing is one change for each note and pause, by whoever typed. A Yjs client that adds, moves or removes a path in the
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
from notewright.engine.dialects.lens import find_all_backlinks, find_forward_links
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, delete
from notewright.errors import Indexing, Problem
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version

if TYPE_CHECKING:  # loads pycrdt
    from notewright.stores.live.documents import LiveDocuments
    from notewright.stores.live.folder_document import FolderDocument

log = logging.getLogger(__name__)
SURFACE = "live"
SHOW_S = 0.5  # between two times that the files are written into the folder document
LINKS_S = 2.0  # after which changed links are in the folder document
ALL_LINKS_S = 10.0  # and all of them, where names changed
HASHED_BYTES = 16 << 20  # of attachments that are read at a time for their hashes
DELETED_S = 2.0  # for which a note may be out of the maps: some clients rename by removing and adding


def connect_documents(ws: Workspace, documents: "LiveDocuments") -> None:
    """From now on what is done in the documents becomes changes of this workspace."""

    def save_text(path: NotePath, data: bytes, old: Stored, typists: Sequence[Actor]) -> None:
        commit(ws.by(_merge_actors(typists, "type")), Plan((Put(path, data, old),), f"typed in {path}"))

    def find_origin(path: NotePath, version: Version) -> tuple[str, Version | None] | None:
        """The last change of one of our processes, if it made this version, and of which one."""
        for change in (*ws.ledger.find_unfinished(), *ws.ledger.find_changes(ChangeQuery(path=path, limit=1))):
            for step in change.steps:
                if step.path == path and step.after == version:
                    return change.id, step.before
        return None

    def find_moved(path: NotePath) -> NotePath | None:
        departures = ws.ledger.find_departures(path)
        return departures[-1][1] if departures else None

    documents.save_text, documents.find_origin, documents.paths.find_moved = save_text, find_origin, find_moved
    documents.subscribe = ws.follower.subscribe
    documents.sync_folder = FolderSync(ws, documents).sync


def _merge_actors(actors: Sequence[Actor | None], tool: str) -> Actor:
    """All who did something between two saves, as one."""
    users = ", ".join(dict.fromkeys(one.user for one in actors if one and one.user))
    clients = ", ".join(dict.fromkeys(one.client for one in actors if one and one.client))
    return Actor(users, clients, SURFACE, tool)


class FolderSync:
    """Keeps an open folder document equal to the folder, in both directions."""

    def __init__(self, ws: Workspace, documents: "LiveDocuments") -> None:
        self._ws = ws
        self._documents = documents
        self._sync_lock = threading.Lock()
        self._folder: FolderDocument | None = None  # the one that was synced last
        self._shown: dict[NotePath, str] | None = None  # the files last written into it
        self._next_show_at = 0.0
        self._shown_hashes: dict[NotePath, str] = {}
        self._hashes: dict[NotePath, tuple[str, str]] = {}  # of attachments, with the stamps they had
        self._deleted: dict[str, float] = {}  # notes that clients removed a moment ago
        self._actors: list[Actor | None] = []  # who did that
        self._bad_keys: frozenset[str] = frozenset()  # that were logged
        self._linked: frozenset[NotePath] = frozenset()  # the notes there were when all links were shown
        self._unsubscribe: Callable[[], None] | None = None
        self._lock = threading.Lock()  # of what `_note_changes` sets:
        self._files_changed = True
        self._changed: set[str] | None = None  # notes that changed since the links were shown; None: all
        self._links_due_at = 0.0

    def sync(self, folder: "FolderDocument | None") -> None:
        """Called now and then, and before anybody is shown the document; None: nobody has it open."""
        with self._sync_lock:
            if folder is None:
                if self._unsubscribe is not None:
                    self._unsubscribe()
                    self._unsubscribe = self._shown = None
                    self._deleted = {}
                return
            if self._unsubscribe is None:
                self._unsubscribe = self._ws.follower.subscribe(self._note_changes)
                self._note_changes(None)
            if folder is not self._folder or self._shown is None:
                # Its state from when it was last open matters only if a client changed it just before its host died.
                self._folder, self._shown, self._deleted = folder, folder.files_before_changes(), {}
                self._shown_hashes = {}
                if self._shown is None:
                    self._show_files(folder)
            if self._shown is not None and (folder.document.unsaved or self._deleted):
                self._apply_client_changes(folder, self._shown)
            if self._files_changed and time.monotonic() >= self._next_show_at:
                self._show_files(folder)
            if self._links_due_at and time.monotonic() >= self._links_due_at:
                self._show_links(folder)

    def _note_changes(self, paths: frozenset[str] | None) -> None:
        with self._lock:
            self._files_changed = True
            if paths is None:
                self._changed = None
            elif self._changed is not None:
                self._changed |= paths
            wait = ALL_LINKS_S if self._changed is None and self._links_due_at else LINKS_S
            self._links_due_at = self._links_due_at or time.monotonic() + wait

    # Files

    def _show_files(self, folder: "FolderDocument") -> None:
        with self._lock:
            self._files_changed = False
        files = self._documents.list_files()
        hashes = self._find_changed_hashes(files)
        with folder.document.lock:
            if folder.document.unsaved:  # what a client did in this moment is carried out first
                self._files_changed = True
                return
            kept = {path: doc for path, doc in files.items() if doc not in self._deleted}
            folder.show_files(self._ws.name, kept, hashes)
            self._shown = files
            self._shown_hashes |= hashes
            if folder.document.has_pending_changes and not self._deleted:
                folder.document.clear_pending_changes()
        self._files_changed = self._files_changed or bool(self._documents.paths.missing)
        self._next_show_at = time.monotonic() + SHOW_S

    def _find_changed_hashes(self, files: dict[NotePath, str]) -> dict[NotePath, str]:
        """Of attachments whose hashes were not shown yet. So many bytes are read now, the rest the next time."""
        stamps, bytes_left = self._documents.paths.stamps, HASHED_BYTES
        old, self._hashes = self._hashes, {}
        for path in files:
            if path.is_note:
                continue
            stamp = stamps.get(path, "")
            if path in old and old[path][0] == stamp:
                self._hashes[path] = old[path]
            elif bytes_left <= 0:
                self._files_changed = True
            else:
                self._hashes[path] = stamp, ""
                with suppress(Problem):
                    if self._ws.store.stat(path).size <= self._ws.limits.note_bytes:
                        stored = self._ws.store.read(path)
                        self._hashes[path] = stamp, stored.version
                        bytes_left -= len(stored.data)
        return {path: one for path, (_, one) in self._hashes.items() if one and self._shown_hashes.get(path) != one}

    # What clients changed

    def _apply_client_changes(self, folder: "FolderDocument", shown: dict[NotePath, str]) -> None:
        with folder.document.lock:
            actors = [*self._actors, *folder.document.typists]
            folder.document.typists = {}
            folder.document.unsaved = False
            changes = folder.find_changes(shown)
        if set(changes.bad_keys) - self._bad_keys:
            bad = changes.bad_keys[:5]
            log.warning("the folder document of %s has keys that are no paths: %s", self._ws.name, bad)
        self._bad_keys = frozenset(changes.bad_keys)

        def attempt(tool: str, work: Callable[[Workspace], object]) -> bool:
            try:
                work(self._ws.by(_merge_actors(actors, tool)))
            except Indexing:  # the server has just started
                folder.document.unsaved = True
                return False
            except Problem as problem:
                log.warning("the folder document of %s: %s", self._ws.name, problem)
                return False
            return True

        def create_file(ws: Workspace, doc: str, path: NotePath) -> None:
            self._documents.create_file(doc, path, lambda data: create(ws, path, data))

        for doc, old, new in changes.moved:
            if attempt("move", partial(move, old=old, new=new)):
                del shown[old]
                shown[new] = doc
        for doc, path in changes.created:
            if attempt("create", partial(create_file, doc=doc, path=path)):
                shown[path] = doc
        now = time.monotonic()
        self._deleted = {doc: self._deleted.get(doc, now) for doc, _ in changes.deleted}
        for doc, path in changes.deleted:
            if now - self._deleted[doc] >= DELETED_S:
                del self._deleted[doc]
                if attempt("delete", partial(delete, path=path)):
                    del shown[path]
        self._actors = actors if self._deleted or folder.document.unsaved else []
        with self._lock:
            self._files_changed = True  # what was refused is put back

    # Links

    def _show_links(self, folder: "FolderDocument") -> None:
        with self._lock:
            changed, self._changed, self._links_due_at = self._changed, set(), 0.0
        ids = {path: doc for path, doc in self._documents.list_files().items() if path.is_note}
        try:
            self._show_changed_links(folder, ids, changed)
        except Problem:  # the index is not ready
            with self._lock:
                self._changed, self._links_due_at = None, time.monotonic() + ALL_LINKS_S

    def _show_changed_links(self, folder: "FolderDocument", ids: dict[NotePath, str], changed: set[str] | None) -> None:
        if changed is None or ids.keys() != self._linked:  # another name may be what a link means
            self._linked = frozenset(ids)
            found = find_all_backlinks(self._ws)
            links = {ids[to]: {ids[one] for one in sources if one in ids} for to, sources in found.items() if to in ids}
            folder.show_backlinks(links)
            return
        # Else only the links of notes that changed.
        sources: defaultdict[str, set[str]] = defaultdict(set)
        sources |= {target: set(linking) for target, linking in folder.backlinks().items()}
        touched = set()
        prefix = len(self._ws.name) + 1
        for path in (NotePath(path) for path in changed if path in ids):
            own = ids[path]
            for target in [target for target, linking in sources.items() if own in linking]:
                sources[target].discard(own)
                touched.add(target)
            for full in find_forward_links([self._ws], self._ws, path):
                if linked := ids.get(NotePath(full[prefix:])):
                    sources[linked].add(own)
                    touched.add(linked)
        folder.show_backlinks(sources, only=touched)
