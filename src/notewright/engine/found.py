"""Text in the notes of several workspaces, the best first, a page at a time."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from notewright.engine.grep import PATTERN_SECONDS, Find, FoundIn, find_text, places
from notewright.engine.read import created
from notewright.engine.workspace import Workspace

FoundOrder = Literal["relevance", "modified", "created", "path"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A note that holds what was asked for, and how well, from 0 to 100."""

    ws: Workspace
    found: FoundIn
    score: float
    created: float = 0.0  # seconds since 1970

    @property
    def text(self) -> str:
        """As it was when it was found: the index's text, without a byte order mark."""
        return (self.ws.index.text(self.found.path) or "").removeprefix("\ufeff")


@dataclass(frozen=True, slots=True)
class Ranking:
    """One page of what was found, and all of it in numbers. `late`: time ran out before all was looked at."""

    notes: tuple[Ranked, ...]
    total: int
    matches: int
    late: bool
    asked: Find  # with the deadline that what is left to do shares


def rank_texts(
    workspaces: Sequence[Workspace], asked: Find, order: FoundOrder = "relevance", *, offset: int = 0, limit: int = 100
) -> Ranking:
    """Notes that hold a text, of all these workspaces together. Invalid for a pattern that is none."""
    asked.check()
    asked = replace(asked, until=time.monotonic() + min(PATTERN_SECONDS, max(ws.limits.seconds for ws in workspaces)))
    answers = [(ws, find_text(ws, asked)) for ws in workspaces]
    ranked = [Ranked(ws, found, _score(ws, asked, found)) for ws, answer in answers for found in answer.notes]
    ranked.sort(key=_key(order, ranked))
    page = ranked[offset : offset + limit]
    times = _created(page)
    return Ranking(
        tuple(replace(one, created=times[id(one.ws), one.found.path]) for one in page),
        len(ranked),
        sum(one.found.matches for one in ranked),
        any(answer.late for _, answer in answers),
        asked,
    )


def _score(ws: Workspace, asked: Find, found: FoundIn) -> float:
    """More matches, an earlier first one, and the name count; one decimal, as it is shown and compared."""
    if not found.matches:
        return 0.0
    often, early = 1 - 1 / (1 + found.matches), 1 - found.first / max(found.length, 1)
    return round(100 * (0.55 * often + 0.30 * early + 0.15 * _in_name(ws, asked, found.path.name)), 1)


def _in_name(ws: Workspace, asked: Find, name: str) -> bool:
    if not asked.regex and asked.query.lower() not in name.lower():
        return False
    return next(places(ws, asked, name), None) is not None


def _key(order: FoundOrder, ranked: Sequence[Ranked]) -> Callable[[Ranked], Any]:
    if order == "relevance":
        return lambda one: (-one.score, -one.found.modified_ns, one.found.path)
    if order == "modified":
        return lambda one: (-one.found.modified_ns, one.found.path)
    if order == "path":
        return lambda one: one.found.path
    times = _created(ranked)
    return lambda one: (-times[id(one.ws), one.found.path], one.found.path)


def _created(ranked: Sequence[Ranked]) -> dict[tuple[int, str], float]:
    """When each was made, asked once of each workspace."""
    found: defaultdict[int, list[FoundIn]] = defaultdict(list)
    for one in ranked:
        found[id(one.ws)].append(one.found)
    workspaces = {id(one.ws): one.ws for one in ranked}
    return {(key, path): at for key, ours in found.items() for path, at in created(workspaces[key], ours).items()}
