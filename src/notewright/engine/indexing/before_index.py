"""What the store can tell before the index is there: which files, where, how large and how old; not what they say."""

from collections.abc import Callable, Iterator
from itertools import islice
from stat import S_ISREG

from notewright.engine.indexing.first_listing import FirstListing
from notewright.engine.workspace import Workspace
from notewright.index.base import Filed, Selection, Visibility
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
    found = sorted(_chosen(ws, selection), key=_ORDERS[selection.sort])
    end = None if selection.limit is None else selection.offset + selection.limit
    return [_filed(entry) for entry in islice(found, selection.offset, end)], len(found)


def _chosen(ws: Workspace, selection: Selection) -> Iterator[Entry]:
    folder, since, among, sees = selection.folder, selection.since_ns, selection.among, selection.visible.test
    inside = f"{folder}/" if folder else ""
    for entry in ws.store.entries() if selection.recursive else ws.store.children(folder):
        if (
            _is_file(entry)
            and entry.path.startswith(inside)
            and (entry.path.is_note or not selection.notes_only)
            and (since is None or entry.modified_ns > since)
            and (among is None or entry.path in among)
            and (sees is None or sees(entry.path))
        ):
            yield entry


def _is_file(entry: Entry) -> bool:
    return entry.kind in ("file", "placeholder") or (entry.mode is not None and S_ISREG(entry.mode))


def _filed(entry: Entry) -> Filed:
    return Filed(entry.path, entry.stamp, "", entry.size, entry.modified_ns, entry.path.stem)


def folders(ws: Workspace, visible: Visibility) -> list[tuple[str, int]]:
    """Every folder that holds files, with how many notes are in it and below."""
    return _listed(ws).folders(visible)


def by_name(ws: Workspace, key: str) -> list[NotePath]:
    """Paths whose last segment, with or without `.md`, has this key."""
    return _listed(ws).by_name(key)


def _listed(ws: Workspace) -> FirstListing:
    """What was listed to be indexed is a little old and at hand."""
    return ws.follower.listed() or FirstListing(entry.path for entry in ws.store.entries() if _is_file(entry))
