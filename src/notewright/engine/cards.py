"""Notes as lists of them show them: at or below a path, with tags and a property, as the index knows them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from notewright.engine.read import created, listing
from notewright.engine.workspace import Workspace, by_whole_index
from notewright.index import Filed, Selection, everything
from notewright.notes import NotePath


@dataclass(frozen=True, slots=True)
class Card:
    """What is told of a note without reading it."""

    path: NotePath
    title: str
    type: Any  # its property of that name
    tags: tuple[str, ...]
    modified: float  # seconds since 1970


def cards(ws: Workspace, chosen: Selection, prefix: str = "", *, deep: bool = True) -> tuple[list[Card], int]:
    """The notes chosen, as this reader may see them, and how many there are in all.

    `prefix` is a path without `.md`: the note of that name and those below it, not `deep` only one step below.
    """
    return by_whole_index(ws, lambda: _cards(ws, chosen, prefix, deep))


def _cards(ws: Workspace, chosen: Selection, prefix: str, deep: bool) -> tuple[list[Card], int]:
    asked = _placed(ws, chosen, prefix, deep)
    found, total = _by_birth(ws, asked) if chosen.sort == "created" else listing(ws, asked)
    paths = [filed.path for filed in found]
    tags, types = ws.index.tags_of(paths), ws.index.property_of("type", paths)
    return [
        Card(filed.path, filed.title, types.get(filed.path), tuple(tags[filed.path]), filed.modified_ns / 1e9)
        for filed in found
    ], total


def _placed(ws: Workspace, chosen: Selection, prefix: str, deep: bool) -> Selection:
    """The narrowest question that has everything: the folder, or where the note of its name stands."""
    if prefix and ws.index.filed(prefix + ".md") is not None:
        around = prefix.rpartition("/")[0]
        return replace(chosen, folder=around, recursive=True, visible=_within(ws, prefix, deep))
    sees = ws.access.sees if ws.access.hide else everything
    return replace(chosen, folder=prefix, recursive=deep, visible=sees)


def _within(ws: Workspace, prefix: str, deep: bool) -> Callable[[str], bool]:
    """Whole segments count: `a/b` is not above `a/bc`."""
    sees, inside, itself = ws.access.sees, prefix + "/", prefix + ".md"

    def within(path: str) -> bool:
        below = path.startswith(inside) and (deep or "/" not in path[len(inside) :])
        return (below or path == itself) and sees(path)

    return within


def _by_birth(ws: Workspace, asked: Selection) -> tuple[list[Filed], int]:
    """The index does not know what the ledger knows: when a note was first made through us."""
    found, total = listing(ws, replace(asked, sort="name", limit=None, offset=0))
    times = created(ws, found)
    found.sort(key=lambda filed: -times[filed.path])
    end = None if asked.limit is None else asked.offset + asked.limit
    return found[asked.offset : end], total


def indexed_text(ws: Workspace, path: NotePath) -> str:
    """The text of a note as it was indexed, for showing a piece of it; nothing where it could not be."""
    ws.access.may_see(path)
    return ws.index.text(path) or ""
