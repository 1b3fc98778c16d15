"""The folder document: which notes there are, as maps that Yjs clients read and change.

`filemeta_v0` says of every path its id, its kind and a version; `docs` says the id again, for clients that know no
more. Both are written in one transaction: Obsidian's plugin takes a note that is only in the first for an orphan and
deletes it. Values are plain objects or maps, depending on who wrote them; both are read. Keys that are no paths are
ignored and reported: one such key once made clients loop and destroy files.
"""

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pycrdt import Doc, Map

from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import parents
from notewright.stores.live.document import Document

_ORIGIN, _LINKS_ORIGIN = "notewright", "link-indexer"
_NOTE, _FOLDER = "markdown", "folder"
_KIND_EXTENSIONS = {
    "canvas": ("canvas",),
    "image": ("png", "jpg", "jpeg", "gif", "webp", "svg", "bmp", "avif"),
    "pdf": ("pdf",),
    "audio": ("mp3", "wav", "m4a", "ogg", "flac", "3gp", "webm"),
    "video": ("mp4", "mov", "mkv", "ogv"),
    "base": ("base",),
}
_KINDS = {extension: kind for kind, extensions in _KIND_EXTENSIONS.items() for extension in extensions}
_ID = re.compile(r"[A-Za-z0-9_-]{1,60}")


class FolderChanges(NamedTuple):
    """What clients changed in the maps: notes by the id each has there."""

    created: list[tuple[str, NotePath]]
    moved: list[tuple[str, NotePath, NotePath]]
    deleted: list[tuple[str, NotePath]]
    bad_keys: list[str]  # that can be no note


class FolderDocument:
    """The maps of one folder document. Any thread may call."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._files: Map[Any] = document.doc.get("filemeta_v0", type=Map)
        self._docs: Map[Any] = document.doc.get("docs", type=Map)
        self._config: Map[Any] = document.doc.get("folder_config", type=Map)
        self._backlinks: Map[Any] = document.doc.get("backlinks_v0", type=Map)

    def show_files(self, name: str, files: Mapping[NotePath, str], hashes: Mapping[NotePath, str]) -> None:
        """Make the maps say what the folder has: files by path, each with the id it has in them. `hashes`: the SHA-256
        of those that changed; what a client says of others may be of a file that it is about to upload."""
        with self.document.lock:
            old = {key: _to_dict(value) for key, value in self._files.items()}
            old_docs = dict(self._docs.items())
            folders = {f"/{folder}" for path in files for folder in parents(path)}
            docs = {f"/{path}": doc for path, doc in files.items() if path.is_note}
            with self.document.transaction(_ORIGIN):
                if self._config.get("name") != name:
                    self._config["name"] = name
                for key in old.keys() - {f"/{path}" for path in files} - folders:
                    del self._files[key]
                for key in old_docs.keys() - docs.keys():
                    del self._docs[key]
                for path, doc in files.items():
                    key, kind, sha256 = f"/{path}", _kind_of(path), hashes.get(path)
                    entry = old.get(key, {})
                    is_same = entry.get("id") == doc and entry.get("type") == kind
                    if not is_same or (sha256 and entry.get("hash") != sha256):
                        entry = {"version": 0, **(entry if is_same else {}), "id": doc, "type": kind}
                        self._files[key] = entry | ({"hash": sha256} if sha256 else {})
                for key in folders:
                    if old.get(key, {}).get("type") != _FOLDER:
                        self._files[key] = {"id": str(uuid.uuid4()), "type": _FOLDER, "version": 0}
                for key, doc in docs.items():
                    if old_docs.get(key) != doc:
                        self._docs[key] = doc

    def files_before_changes(self) -> dict[NotePath, str] | None:
        """The files that the maps named before what clients changed in them and nobody carried out; None without such
        changes."""
        state = self.document.take_pending_snapshot()
        if state is None:
            return None
        then: Doc[Any] = Doc()
        then.apply_update(state)
        files = {_path_of(key): _to_dict(value).get("id") for key, value in then.get("filemeta_v0", type=Map).items()}
        return {path: doc for path, doc in files.items() if path is not None and isinstance(doc, str)}

    def find_changes(self, shown: Mapping[NotePath, str]) -> FolderChanges:
        """How the maps differ from the files that were shown in them."""
        with self.document.lock:
            entries = {key: _to_dict(value) for key, value in self._files.items()}
            for key, value in self._docs.items():  # written by clients that know no more
                if isinstance(value, str) and key not in entries:
                    entries[key] = {"id": value, "type": _NOTE}
        wanted: dict[str, NotePath] = {}  # the note of each id; one under two names is where the folder has it not yet
        taken: set[NotePath] = set()  # every path that has an entry of any kind: what is there is not deleted
        bad_keys = []
        for key, entry in sorted(entries.items()):
            path, doc = _path_of(key), entry.get("id")
            if path is not None:
                taken.add(path)
            if path is None or not isinstance(doc, str) or not _ID.fullmatch(doc):
                bad_keys.append(key)
            elif entry.get("type") == _NOTE and (doc not in wanted or shown.get(path) != doc):
                wanted[doc] = path
        old = {doc: path for path, doc in shown.items() if path.is_note}
        return FolderChanges(
            [(doc, path) for doc, path in wanted.items() if doc not in old],
            [(doc, old[doc], path) for doc, path in wanted.items() if doc in old and old[doc] != path],
            [(doc, path) for doc, path in old.items() if doc not in wanted and path not in taken],
            bad_keys,
        )

    def show_backlinks(self, links: Mapping[str, Iterable[str]], *, only: Iterable[str] | None = None) -> None:
        """For each note that is linked to, those that link to it. `only`: of these, the others stay as they are."""
        with self.document.lock:
            old = self.backlinks()
            wanted = {target: sorted(set(sources)) for target, sources in links.items() if sources}
            with self.document.transaction(_LINKS_ORIGIN):
                for key in old.keys() | wanted.keys() if only is None else set(only):
                    if key not in wanted and key in old:
                        del self._backlinks[key]
                    elif key in wanted and old.get(key) != wanted[key]:
                        self._backlinks[key] = wanted[key]

    def backlinks(self) -> dict[str, list[str]]:
        with self.document.lock:
            return {key: _to_strings(value) for key, value in self._backlinks.items()}


def _kind_of(path: NotePath) -> str:
    return _NOTE if path.is_note else _KINDS.get(path.rpartition(".")[2].lower(), "file")


def _path_of(key: str) -> NotePath | None:
    """The path that a key means; None for `/`, `//…`, one without a slash, and what is no path of ours."""
    if not key.startswith("/") or path_problem(key[1:]) or NotePath(key[1:]).is_hidden:
        return None
    return NotePath(key[1:])


def _to_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Map):
        return dict(value.to_py() or {})
    return value if isinstance(value, dict) else {}


def _to_strings(value: Any) -> list[str]:
    plain = value.to_py() if hasattr(value, "to_py") else value
    return [one for one in plain if isinstance(one, str)] if isinstance(plain, list) else []
