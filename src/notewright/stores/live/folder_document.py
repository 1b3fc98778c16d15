"""The folder document: which notes there are, as maps that Yjs clients read and change.

`filemeta_v0` says of every path its id, its kind and a version; `docs` says the id again, for clients that know no
more. Both are written in one transaction: Obsidian's plugin takes a note that is only in the first for an orphan and
deletes it. Values are plain objects or maps, depending on who wrote them; both are read. Keys that are no paths are
ignored and reported: one such key once made clients loop and destroy files.
"""

import re
import uuid
from collections.abc import Collection, Iterable, Mapping
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
    """The changes that clients made in the maps: notes, by their ids there."""

    created: list[tuple[str, NotePath]]
    moved: list[tuple[str, NotePath, NotePath]]
    deleted: list[tuple[str, NotePath]]
    bad_keys: list[str]  # that are no paths


class FolderDocument:
    """The maps of one folder document. Any thread may call."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._files: Map[Any] = document.doc.get("filemeta_v0", type=Map)
        self._docs: Map[Any] = document.doc.get("docs", type=Map)
        self._config: Map[Any] = document.doc.get("folder_config", type=Map)
        self._backlinks: Map[Any] = document.doc.get("backlinks_v0", type=Map)

    def show_files(self, name: str, files: Mapping[NotePath, str], hashes: Mapping[NotePath, str]) -> None:
        """Write the files of the folder into the maps, each with its id there. `hashes`: the SHA-256 of files that
        changed; hashes of other files stay, as a client may be about to upload a file."""
        with self.document.lock:
            old = {key: _to_dict(value) for key, value in self._files.items()}
            new = {}
            for folder in {folder for path in files for folder in parents(path)}:
                entry = old.get(f"/{folder}", {})
                is_folder = entry.get("type") == _FOLDER
                new[f"/{folder}"] = entry if is_folder else {"id": str(uuid.uuid4()), "type": _FOLDER, "version": 0}
            for path, doc in files.items():
                entry = old.get(f"/{path}", {})
                kind = _NOTE if path.is_note else _KINDS.get(path.rpartition(".")[2].lower(), "file")
                if entry.get("id") != doc or entry.get("type") != kind:
                    entry = {"id": doc, "type": kind, "version": 0}
                if (sha256 := hashes.get(path)) and entry.get("hash") != sha256:
                    entry = {"version": 0, **entry, "hash": sha256}
                new[f"/{path}"] = entry
            with self.document.transaction(_ORIGIN):
                if self._config.get("name") != name:
                    self._config["name"] = name
                _replace(self._files, old, new)
                docs = {f"/{path}": doc for path, doc in files.items() if path.is_note}
                _replace(self._docs, dict(self._docs.items()), docs)

    def files_before_changes(self) -> dict[NotePath, str] | None:
        """The files that the maps named before those changes of clients that are not applied yet; None if there are
        none."""
        state = self.document.take_pending_snapshot()
        if state is None:
            return None
        then: Doc[Any] = Doc()
        then.apply_update(state)
        files = {_path_of(key): _to_dict(value).get("id") for key, value in then.get("filemeta_v0", type=Map).items()}
        return {path: doc for path, doc in files.items() if path is not None and isinstance(doc, str)}

    def find_changes(self, shown: Mapping[NotePath, str]) -> FolderChanges:
        """Compare the maps with the files that were last written into them."""
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

    def show_backlinks(self, links: Mapping[str, Iterable[str]], *, only: Collection[str] | None = None) -> None:
        """Write the backlinks of notes into their map; with `only`, of these notes alone."""
        with self.document.lock:
            old = self.backlinks()
            new = {target: sorted(set(sources)) for target, sources in links.items() if sources}
            if only is not None:
                old = {key: old[key] for key in only if key in old}
                new = {key: new[key] for key in only if key in new}
            with self.document.transaction(_LINKS_ORIGIN):
                _replace(self._backlinks, old, new)

    def backlinks(self) -> dict[str, list[str]]:
        found = {}
        with self.document.lock:
            for key, value in self._backlinks.items():
                sources = value.to_py() if hasattr(value, "to_py") else value
                found[key] = [one for one in sources if isinstance(one, str)] if isinstance(sources, list) else []
        return found


def _replace(entries: Map[Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Replace the entries that differ between `old` and `new`."""
    for key in old.keys() - new.keys():
        del entries[key]
    for key, value in new.items():
        if key not in old or old[key] != value:
            entries[key] = value


def _path_of(key: str) -> NotePath | None:
    """The path that a key means; None for `/`, `//…`, a key without a slash, and invalid paths."""
    if not key.startswith("/") or path_problem(key[1:]) or NotePath(key[1:]).is_hidden:
        return None
    return NotePath(key[1:])


def _to_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Map):
        return dict(value.to_py() or {})
    return value if isinstance(value, dict) else {}
