"""What only Obsidian's tools need: notes by their bare names, tags of properties, full paths."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from notewright.engine.find.links import WRITTEN_AS_NAMES, all_links
from notewright.engine.indexing import before_index
from notewright.engine.indexing.ready import from_snapshot, is_fresh, snapshot
from notewright.engine.read import (
    Reading,
    exists,
    indexed_file,
    list_files,
    missing_note_error,
    probably_exists,
    read_if_there,
)
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound
from notewright.index.base import Selection
from notewright.notes.parse.tags import list_property_tags
from notewright.notes.path import NotePath, path_key, path_problem
from notewright.stores.base import Store

_cached: WeakKeyDictionary[Store, dict[tuple[str, ...], str]] = WeakKeyDictionary()  # by hidden globs
_cache_lock = threading.Lock()


def full_path(ws: Workspace, path: NotePath) -> str:
    """The full path of a file in a folder, its key in a bucket."""
    return ws.store.full_path(path)


def cache_while_open(ws: Workspace, make: Callable[[], str]) -> str:
    """The result of `make`, cached for as long as the store is open, for each set of hidden globs."""
    with _cache_lock:
        known = _cached.setdefault(ws.store, {})
    if ws.access.hide not in known:
        known.setdefault(ws.access.hide, make())
    return known[ws.access.hide]


# ---- names --------------------------------------------------------------------------------------------


def find_by_name(ws: Workspace, name: str) -> NotePath:
    """The note with exactly this name (no folder, no `.md`); of several the one with the shortest path."""
    for path in _paths_with_name(ws, name):
        if probably_exists(ws, path):
            return path
    raise missing_note_error(ws, NotePath(f"{name}.md"))


def read_by_name(ws: Workspace, name: str) -> Reading:
    """The note that `find_by_name` finds, read."""
    for path in _paths_with_name(ws, name):
        if (found := read_if_there(ws, path)) is not None:
            return found
    raise missing_note_error(ws, NotePath(f"{name}.md"))


def _paths_with_name(ws: Workspace, name: str) -> Iterator[NotePath]:
    """Candidate paths of the note with this name, the shortest first."""
    place = NotePath(f"{name}.md")
    if "/" in name or path_problem(place):
        raise NotFound(f"there is no {name}", what="note", path=name)
    if ws.access.sees(place) and (ws.store.has_folders or indexed_file(ws, place) is not None):
        yield place
    for find in (_find_indexed, _find_listed):  # a note made outside a moment ago is not in the index yet
        yield from sorted(find(ws, name), key=lambda path: (len(path), path))


def is_taken(ws: Workspace, name: str) -> bool:
    """Whether a note in any folder has exactly this name, also one at the root that is newer than the index."""
    place = NotePath(f"{name}.md")
    at_root = ws.store.has_folders and ws.access.sees(place) and exists(ws, place)
    return at_root or bool(find_all_by_name(ws, name))


def find_all_by_name(ws: Workspace, name: str) -> list[NotePath]:
    """Every note with exactly this name."""
    return sort_by_name(_find_indexed(ws, name) if is_fresh(ws) else _find_listed(ws, name))


def _find_indexed(ws: Workspace, name: str) -> list[NotePath]:
    return _select_by_name(ws, name, ws.index.by_name(path_key(name)) if is_fresh(ws) else ())


def _find_listed(ws: Workspace, name: str) -> list[NotePath]:
    return _select_by_name(ws, name, before_index.find_by_name(ws, path_key(name)))


def _select_by_name(ws: Workspace, name: str, paths: Iterable[NotePath]) -> list[NotePath]:
    return [path for path in paths if path.is_note and path.stem == name and ws.access.sees(path)]


def list_all_notes(ws: Workspace) -> list[NotePath]:
    """Every note, by name and then by path; from a listing of the store while the index is not ready."""
    return sort_by_name(filed.path for filed in list_files(ws, Selection(visible=ws.access.visibility))[0])


def sort_by_name(paths: Iterable[NotePath]) -> list[NotePath]:
    return sorted(paths, key=lambda path: (path.stem, path))


# ---- links by name ------------------------------------------------------------------------------------


@from_snapshot
def find_unresolved_links(ws: Workspace) -> list[tuple[NotePath, str]]:
    """Wikilinks to a name that no file has, as note and target, each once, in order."""
    files, _ = ws.index.select(Selection(notes_only=False, visible=ws.access.visibility))
    stems = {"", *(filed.path.stem for filed in files)}
    unresolved = (
        (row.source, row.target)
        for rows in all_links(ws)
        for row in rows
        if row.kind in WRITTEN_AS_NAMES and row.target not in stems
    )
    return list(dict.fromkeys(unresolved))


# ---- tags in properties -------------------------------------------------------------------------------


@from_snapshot
def list_known_tags(ws: Workspace) -> list[str]:
    """Every tag of every note's properties, as spelled, by code point. Tags in the text do not count."""
    return sorted({tag for _, tags in _read_tags(ws, list_all_notes(ws)) for tag in tags})


@from_snapshot
def find_unknown_tags(ws: Workspace, tags: Sequence[str]) -> list[str]:
    """Those of these tags that no note has in its properties; none where no note has any tags."""
    unknown = [tag for tag in tags if not any(tag in held for _, held in _find_holders(ws, tag))]
    return unknown if unknown and any(held for _, held in _read_tags(ws, list_all_notes(ws))) else []


def find_with_tags(ws: Workspace, tags: Sequence[str], *, every: bool) -> list[NotePath]:
    """Notes whose properties hold any, or every one, of these tags or a tag below it; case counts."""
    if every and not tags:
        return list_all_notes(ws)

    def holders(tag: str) -> set[NotePath]:
        return {path for path, held in _find_holders(ws, tag) if any(f"{one}/".startswith(f"{tag}/") for one in held)}

    found = snapshot(ws, lambda: [holders(tag) for tag in tags])
    return sort_by_name(set.intersection(*found) if every else set().union(*found))


def _find_holders(ws: Workspace, tag: str) -> Iterator[tuple[NotePath, list[str]]]:
    """Notes with tags in their properties and this tag, or one below it, anywhere; and the tags of their properties."""
    tagged, _ = ws.index.select(Selection(tag_tree=tag, visible=ws.access.visibility))
    return _read_tags(ws, [filed.path for filed in tagged])


def _read_tags(ws: Workspace, paths: Sequence[NotePath]) -> Iterator[tuple[NotePath, list[str]]]:
    """The notes that have tags in their properties, and these tags."""
    held = ws.index.property_of("tags", paths)
    return ((path, list_property_tags({"tags": held[path]})) for path in paths if path in held)


@from_snapshot
def list_tag_descriptions(ws: Workspace, tag: str) -> list[tuple[NotePath, Any]]:
    """Notes whose properties hold exactly this tag, by name, each with its property `description` or None."""
    paths = sort_by_name(path for path, held in _find_holders(ws, tag) if tag in held)
    descriptions = ws.index.property_of("description", paths)
    return [(path, descriptions.get(path)) for path in paths]
