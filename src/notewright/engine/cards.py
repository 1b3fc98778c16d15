"""Notes as lists of them show them: at or below a path, with tags and properties, as the index knows them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from notewright.engine.read import listing
from notewright.engine.workspace import Workspace
from notewright.index import Filed, Selection
from notewright.notes import NotePath, without_md


@dataclass(frozen=True, slots=True)
class Card:
    """What is told of a note without reading it."""

    path: NotePath
    title: str
    modified: float  # seconds since 1970
    tags: tuple[str, ...]
    properties: Mapping[str, Any]


def cards(ws: Workspace, chosen: Selection, prefix: str = "", *, deep: bool = True) -> tuple[list[Card], int]:
    """The notes chosen, as this reader may see them, and how many there are in all.

    `prefix` is a path without `.md`: the note of that name and those below it, not `deep` only one step below. By path
    they are sorted as they are called there, without `.md`.
    """
    asked = replace(chosen, folder=prefix.rpartition("/")[0], recursive=True, visible=_within(ws, prefix, deep))
    found, total = _by_name(ws, asked) if chosen.sort == "path" else listing(ws, asked)
    tags = ws.index.tags_of([filed.path for filed in found])
    return [_card(ws, filed, tags.get(filed.path, [])) for filed in found], total


def _within(ws: Workspace, prefix: str, deep: bool) -> Callable[[str], bool]:
    """Whole segments count: `a/b` is not above `a/bc`."""
    sees, inside, itself = ws.access.sees, prefix + "/" if prefix else "", prefix + ".md"

    def within(path: str) -> bool:
        below = path.startswith(inside) and (deep or "/" not in path[len(inside) :])
        return (below or path == itself) and sees(path)

    return within


def _by_name(ws: Workspace, asked: Selection) -> tuple[list[Filed], int]:
    """`a` comes before `a-b`, though `a.md` comes after `a-b.md`."""
    found, total = listing(ws, replace(asked, limit=None, offset=0))
    found.sort(key=lambda filed: without_md(filed.path))
    end = None if asked.limit is None else asked.offset + asked.limit
    return found[asked.offset : end], total


def _card(ws: Workspace, filed: Filed, tags: list[str]) -> Card:
    modified = filed.modified_ns / 1e9
    return Card(filed.path, filed.title, modified, tuple(tags), ws.index.properties(filed.path))


def indexed_text(ws: Workspace, path: NotePath) -> str:
    """The text of a note as it was indexed, for showing a piece of it; nothing where it could not be."""
    ws.access.may_see(path)
    return ws.index.text(path) or ""
