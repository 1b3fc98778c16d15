"""Is the index ready? Everyone who needs its answers asks here."""

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from notewright.engine.indexing.difference import LATER
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing
from notewright.index.base import Index
from notewright.notes.path import NotePath


class Noticed(threading.local):
    """What the snapshots of a call showed beside its answer, for a thread that wants to know."""

    unread: dict[Index, list[NotePath]] | None = None  # notes whose texts were not in the index


noticed = Noticed()
T = TypeVar("T")
P = ParamSpec("P")
TRIES = 4  # to get a whole answer of one index


def wait(ws: Workspace) -> None:
    """Until the index is as fresh as the store, as long as this caller waits; Indexing after that."""
    ws.follower.wait(ws.limits.index_seconds)


def is_fresh(ws: Workspace) -> bool:
    """Can the index answer now?"""
    try:
        ws.follower.wait(0)
    except Indexing:
        return False
    return True


def snapshot(ws: Workspace, ask: Callable[[], T]) -> T:
    """An answer of an index that knew every note from the first question to the last, and of one moment: a rename filed
    in between would show links as they were and names as they are. One that is deleted in between is waited for and
    asked again: an empty one would answer as if there were nothing."""
    for _ in range(TRIES):
        asked = ws.follower.wait(ws.limits.index_seconds) or ws.index.generation()
        with ws.index.steady(asked):
            answer = ask()
            if noticed.unread is not None:
                noticed.unread[ws.index] = ws.index.paths_with(LATER)
        if asked.whole and ws.index.generation() == asked:
            return answer
    raise Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)


def from_snapshot(answer: Callable[Concatenate[Workspace, P], T]) -> Callable[Concatenate[Workspace, P], T]:
    """A function that asks the index several questions, answered from one `snapshot`."""

    def asked(ws: Workspace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return snapshot(ws, lambda: answer(ws, *args, **kwargs))

    return asked
