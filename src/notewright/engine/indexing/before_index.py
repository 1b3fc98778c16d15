"""What the store can tell before the index is there: which files, where, how large and how old; not what they say."""

from collections.abc import Callable, Iterable
from stat import S_ISREG

from notewright.engine.indexing.first_listing import FirstListing
from notewright.engine.workspace import Workspace
from notewright.index.base import Filed, Selection
from notewright.notes.path import NotePath, without_md
from notewright.stores.base import Entry

_ORDERS: dict[str, Callable[[Entry], tuple[object, ...]]] = {
    "path": lambda entry: (entry.path,),
    "name": lambda entry: (without_md(entry.path) if entry.path.is_note else entry.path,),
    "modified": lambda entry: (-entry.modified_ns, entry.path),
    "size": lambda entry: (-entry.size, entry.path),
}


def can_select(selection: Selection) -> bool:
    """Does a selection ask for nothing but names, places, sizes and times?"""
    known = selection._replace(tags=(), prefix_words=(), tag_tree=None, problem=None, suffixes=(), folder_note=False)
    return selection.sort in _ORDERS and selection == known


def select(ws: Workspace, selection: Selection) -> tuple[list[Filed], int]:
    """As the index would answer, but for titles: a file is called by its name."""
    folder = selection.folder
    return _page(ws.store.entries(folder) if selection.recursive else ws.store.children(folder), selection)


def level(ws: Workspace, selection: Selection) -> tuple[list[Filed], int, list[tuple[str, int]]]:
    """What is chosen directly in a folder, and the folders in it that hold files, with the notes in and below each.
    Nothing beside the folder is looked at."""
    folder = selection.folder
    listed = ws.follower.listed(wait=not folder)
    if listed is not None:
        inside = ws.store.children(folder)
    else:
        below = [entry for entry in ws.store.entries(folder) if _is_file(entry)]
        listed = FirstListing(entry.path for entry in below)
        inside = [entry for entry in below if entry.path.folder == folder]
    return (*_page(inside, selection), listed.subfolders(folder, selection.visible))


def _page(entries: Iterable[Entry], selection: Selection) -> tuple[list[Filed], int]:
    since, among, sees = selection.since_ns, selection.among, selection.visible.test
    found = [
        entry
        for entry in entries
        if (entry.path.is_note or not selection.notes_only)
        and (since is None or entry.modified_ns > since)
        and (among is None or entry.path in among)
        and (sees is None or sees(entry.path))
        and _is_file(entry)
    ]
    found.sort(key=_ORDERS[selection.sort])
    end = None if selection.limit is None else selection.offset + selection.limit
    return [_filed(entry) for entry in found[selection.offset : end]], len(found)


def _is_file(entry: Entry) -> bool:
    return entry.kind in ("file", "placeholder") or (entry.mode is not None and S_ISREG(entry.mode))


def _filed(entry: Entry) -> Filed:
    return Filed(entry.path, entry.stamp, "", entry.size, entry.modified_ns, entry.path.stem)


def by_name(ws: Workspace, key: str) -> list[NotePath]:
    """Paths whose last segment, with or without `.md`, has this key."""
    listed = ws.follower.listed(wait=True)
    if listed is None:
        listed = FirstListing(entry.path for entry in ws.store.entries() if _is_file(entry))
    return listed.by_name(key)
