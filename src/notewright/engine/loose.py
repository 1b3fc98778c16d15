"""Loose ends: links that lead nowhere or not to one note for certain, and notes that no other note links to."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from notewright.engine.links import LinkSeen, link_seen, resolver
from notewright.engine.workspace import Workspace, by_whole_index
from notewright.index import Selection
from notewright.notes import NotePath

TOGETHER = 5_000  # links


@dataclass(frozen=True, slots=True)
class LooseEnds:
    """Of one folder and everything below it. `late`: time ran out, and there may be more links; orphans are unknown."""

    links: tuple[LinkSeen, ...]  # broken and ambiguous, by note and line
    orphans: tuple[NotePath, ...]
    late: bool


def loose_ends(ws: Workspace, folder: str) -> LooseEnds:
    """One look at every link of the workspace."""
    return by_whole_index(ws, lambda: _loose_ends(ws, folder))


def _loose_ends(ws: Workspace, folder: str) -> LooseEnds:
    until = time.monotonic() + ws.limits.seconds
    inside = f"{folder}/" if folder else ""
    loose: list[LinkSeen] = []
    linked: set[NotePath] = set()
    for seen in _all_seen(ws):
        if time.monotonic() > until:
            return LooseEnds(tuple(loose), (), True)
        if seen.status != "ok" and seen.source.startswith(inside):
            loose.append(seen)
        if seen.path is not None and seen.path != seen.source:
            linked.add(seen.path)
    notes, _ = ws.index.select(Selection(folder=folder, visible=ws.access.sees))
    return LooseEnds(tuple(loose), tuple(note.path for note in notes if note.path not in linked), False)


def _all_seen(ws: Workspace) -> Iterator[LinkSeen]:
    """Every link there is, some thousands at a time: their names are looked up together."""
    rows = (row for row in ws.index.all_links() if ws.access.sees(row.source))
    while batch := list(islice(rows, TOGETHER)):
        means = resolver(ws, expected=[row.target for row in batch])
        yield from (link_seen(row, means(row.target, row.source)) for row in batch)
