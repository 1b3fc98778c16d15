"""The folder document: which notes there are, as maps that Yjs clients read and change.

`filemeta_v0` says of every path its id, its kind and a version; `docs` says the id again, for clients that know no
more. Both are written in one transaction: Obsidian's plugin takes a note that is only in the first for an orphan and
deletes it. Values are plain objects or maps, depending on who wrote them; both are read. Keys that are no paths are
ignored and told: one such key once made clients loop and destroy files.
"""

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pycrdt import Doc, Map

from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import parents
from notewright.stores.live.document import Document

ORIGIN = "notewright"
LINK_ORIGIN = "link-indexer"
NOTE, FOLDER = "markdown", "folder"
_KINDS = {
    "canvas": ("canvas",),
    "image": ("png", "jpg", "jpeg", "gif", "webp", "svg", "bmp", "avif"),
    "pdf": ("pdf",),
    "audio": ("mp3", "wav", "m4a", "ogg", "flac", "3gp", "webm"),
    "video": ("mp4", "mov", "mkv", "ogv"),
    "base": ("base",),
}
_KIND_OF = {extension: kind for kind, extensions in _KINDS.items() for extension in extensions}
_UUID = re.compile(r"[A-Za-z0-9_-]{1,60}")


class Wishes(NamedTuple):
    """What clients want otherwise than it is: notes by the id each has in the maps."""

    created: tuple[tuple[str, NotePath], ...]
    moved: tuple[tuple[str, NotePath, NotePath], ...]
    deleted: tuple[tuple[str, NotePath], ...]


class FolderDocument:
    """The maps of one folder document. Any thread may call."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._files: Map[Any] = document.doc.get("filemeta_v0", type=Map)
        self._docs: Map[Any] = document.doc.get("docs", type=Map)
        self._config: Map[Any] = document.doc.get("folder_config", type=Map)
        self._backlinks: Map[Any] = document.doc.get("backlinks_v0", type=Map)

    def show(self, name: str, files: Mapping[NotePath, str], hashes: Mapping[NotePath, str]) -> None:
        """Make the maps say what the folder has: files by path, each with the id it has in them. `hashes`: the SHA-256
        of those that changed; what a client says of others may be of a file that it is about to upload."""
        with self.document.lock:
            there = {key: _plain(value) for key, value in self._files.items()}
            wanted = {_key(path): (doc, kind_of(path), hashes.get(path)) for path, doc in files.items()}
            folders = {_key(NotePath(folder)) for path in files for folder in parents(path)}
            docs = {_key(path): doc for path, doc in files.items() if path.is_note}
            said = {key: value for key, value in self._docs.items() if isinstance(value, str)}
            with self.document.written(ORIGIN):
                if self._config.get("name") != name:
                    self._config["name"] = name
                for key in there.keys() - wanted.keys() - folders:
                    del self._files[key]
                for key in set(self._docs.keys()) - docs.keys():
                    del self._docs[key]
                for key, (doc, kind, sha256) in wanted.items():
                    said_so = there.get(key, {}) if _says(there.get(key), doc, kind) else {}
                    if not said_so or (sha256 and said_so.get("hash") != sha256):
                        entry = {"version": 0, **said_so, "id": doc, "type": kind}
                        self._files[key] = entry | ({"hash": sha256} if sha256 else {})
                for key in folders:
                    if not _says(there.get(key), None, FOLDER):
                        self._files[key] = {"id": str(uuid.uuid4()), "type": FOLDER, "version": 0}
                for key, doc in docs.items():
                    if said.get(key) != doc:
                        self._docs[key] = doc

    def shown_before(self) -> dict[NotePath, str] | None:
        """The files that the maps named before what clients changed in them and nobody carried out; None without such
        changes."""
        state = self.document.before_change()
        if state is None:
            return None
        then: Doc[Any] = Doc()
        then.apply_update(state)
        files = {_path(key): _plain(value).get("id") for key, value in then.get("filemeta_v0", type=Map).items()}
        return {path: doc for path, doc in files.items() if path is not None and isinstance(doc, str)}

    def wishes(self, shown: Mapping[NotePath, str]) -> tuple[Wishes, list[str]]:
        """How the maps differ from what was shown in them, and the keys that cannot be meant."""
        wanted, taken, bad = self._notes(shown)
        by_id = {doc: path for path, doc in shown.items() if path.is_note}
        created, moved = [], []
        for doc, path in wanted.items():
            old = by_id.get(doc)
            if old is None:
                created.append((doc, path))
            elif old != path:
                moved.append((doc, old, path))
        deleted = [(doc, path) for doc, path in by_id.items() if doc not in wanted and path not in taken]
        return Wishes(tuple(created), tuple(moved), tuple(deleted)), bad

    def _notes(self, shown: Mapping[NotePath, str]) -> tuple[dict[str, NotePath], set[NotePath], list[str]]:
        """The note of each id, every path that has an entry of any kind (what stands there is not deleted), and keys
        that are none. An id under two names is where the folder does not have it yet."""
        found: dict[str, NotePath] = {}
        taken: set[NotePath] = set()
        bad: list[str] = []
        with self.document.lock:
            entries = {key: _plain(value) for key, value in self._files.items()}
            for key, value in self._docs.items():  # written by clients that know no more
                if isinstance(value, str) and key not in entries:
                    entries[key] = {"id": value, "type": NOTE}
        for key, value in sorted(entries.items()):
            path, doc = _path(key), value.get("id")
            if path is not None:
                taken.add(path)
            if path is None or not isinstance(doc, str) or not _UUID.fullmatch(doc):
                bad.append(key)
            elif value.get("type") == NOTE and (doc not in found or shown.get(path) != doc):
                found[doc] = path
        return found, taken, bad

    def show_backlinks(self, links: Mapping[str, Iterable[str]], *, only: Iterable[str] | None = None) -> None:
        """For each note that is linked to, those that link to it. `only`: of these, the others stay as they are."""
        with self.document.lock:
            said = {key: _strings(value) for key, value in self._backlinks.items()}
            wanted = {target: sorted(set(sources)) for target, sources in links.items() if sources}
            keys = set(said) | set(wanted) if only is None else set(only)
            with self.document.written(LINK_ORIGIN):
                for key in keys:
                    if key not in wanted and key in said:
                        del self._backlinks[key]
                    elif key in wanted and said.get(key) != wanted[key]:
                        self._backlinks[key] = wanted[key]

    def backlinks(self) -> dict[str, list[str]]:
        with self.document.lock:
            return {key: _strings(value) for key, value in self._backlinks.items()}


def kind_of(path: NotePath) -> str:
    return NOTE if path.is_note else _KIND_OF.get(path.rpartition(".")[2].lower(), "file")


def _key(path: NotePath) -> str:
    return f"/{path}"


def _path(key: str) -> NotePath | None:
    """The path that a key means; None for `/`, `//…`, one without a slash, and what is no path of ours."""
    if not key.startswith("/") or path_problem(key[1:]) or NotePath(key[1:]).is_hidden:
        return None
    return NotePath(key[1:])


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, Map):
        return dict(value.to_py() or {})
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    plain = value.to_py() if hasattr(value, "to_py") else value
    return [one for one in plain if isinstance(one, str)] if isinstance(plain, list) else []


def _says(value: dict[str, Any] | None, doc: str | None, kind: str) -> bool:
    return value is not None and value.get("type") == kind and (doc is None or value.get("id") == doc)
