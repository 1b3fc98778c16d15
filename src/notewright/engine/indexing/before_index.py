"""Answer from the store alone before the index is there: which files, where, how large and how old; no contents."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from notewright.engine.indexing.first_listing import FirstListing, subfolders
from notewright.engine.workspace import Workspace
from notewright.index.base import IndexedFile, Selection
from notewright.notes.path import NotePath, without_md
from notewright.stores.base import Entry, catch_problem, is_file

_ORDERS: dict[str, Callable[[Entry], Any]] = {
    "path": attrgetter("path"),
    "name": lambda entry: without_md(entry.path),
    "modified": lambda entry: (-entry.modified_ns, entry.path),
    "size": lambda entry: (-entry.size, entry.path),
}


def can_select(selection: Selection) -> bool:
    """Whether a selection asks for nothing but names, folders, sizes and times."""
    known = selection._replace(tags=(), prefix_words=(), tag_tree=None, suffixes=(), folder_note=False)
    return selection.sort in _ORDERS and selection == known


def select(ws: Workspace, selection: Selection) -> tuple[list[IndexedFile], int]:
    """Select files as the index would, but the title of a file is its name."""
    folder = selection.folder
    bare = _needs_names_alone(selection)
    listed = ws.store.entries(folder, bare=bare) if selection.recursive else ws.store.children(folder, bare=bare)
    return _page(ws, listed, selection)


def select_level(ws: Workspace, selection: Selection) -> tuple[list[IndexedFile], int, list[tuple[str, int]]]:
    """Select files directly in a folder, and its subfolders that hold files, with the number of notes in and below
    each. Nothing outside the folder is listed."""
    folder, bare = selection.folder, _needs_names_alone(selection)
    if (listed := ws.follower.first_listing(wait=not folder)) is not None:
        folders = listed.subfolders(folder, selection.visible)
        return (*_page(ws, ws.store.children(folder, bare=bare), selection), folders)
    below = [entry for entry in ws.store.entries(folder, bare=bare) if is_file(entry)]
    start = len(folder) + 1 if folder else 0
    inside = [entry for entry in below if entry.path.find("/", start) < 0]
    return (*_page(ws, inside, selection), subfolders([entry.path for entry in below], folder, selection.visible))


def _needs_names_alone(selection: Selection) -> bool:
    """Whether choosing and sorting needs no times and sizes: only what is shown is then asked for them."""
    return selection.sort in ("path", "name") and selection.since_ns is None


def _page(ws: Workspace, entries: Iterable[Entry], selection: Selection) -> tuple[list[IndexedFile], int]:
    since, among, sees = selection.since_ns, selection.among, selection.visible.test
    found = [
        entry
        for entry in entries
        if (entry.path.is_note or not selection.notes_only)
        and (since is None or entry.modified_ns > since)
        and (among is None or entry.path in among)
        and (sees is None or sees(entry.path))
        and is_file(entry)
    ]
    found.sort(key=_ORDERS[selection.sort])
    end = None if selection.limit is None else selection.offset + selection.limit
    shown = (
        entry if entry.stamp else catch_problem(ws.store.stat, entry.path) for entry in found[selection.offset : end]
    )
    entries = [entry for entry in shown if isinstance(entry, Entry)]
    return [IndexedFile(e.path, e.stamp, "", e.size, e.modified_ns, e.path.stem) for e in entries], len(found)


def find_by_name(ws: Workspace, key: str) -> list[NotePath]:
    """Paths whose last segment, with or without `.md`, has this key."""
    listed = ws.follower.first_listing(wait=True)
    if listed is None:
        listed = FirstListing(entry.path for entry in ws.store.entries(bare=True) if is_file(entry))
    return listed.find_by_name(key)
