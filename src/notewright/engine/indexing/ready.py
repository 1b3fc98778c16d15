"""Wait for the index, and answer from one snapshot of it."""

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from notewright.engine.indexing.difference import NOT_INDEXED_YET
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing
from notewright.index.base import Index
from notewright.notes.path import NotePath


class Noticed(threading.local):
    """What `snapshot` recorded in this thread beside the answers, where a dict is set."""

    unread: dict[Index, list[NotePath]] | None = None  # notes whose texts were not in the index


noticed = Noticed()
T = TypeVar("T")
P = ParamSpec("P")
MAX_TRIES = 4  # to get a whole answer of one index


def wait(ws: Workspace) -> None:
    """Wait until the index is as fresh as the store, for as long as this caller may; Indexing after that."""
    ws.follower.wait(ws.limits.index_seconds)


def is_fresh(ws: Workspace) -> bool:
    """Whether the index can answer now."""
    try:
        ws.follower.wait(0)
    except Indexing:
        return False
    return True


def snapshot(ws: Workspace, ask: Callable[[], T]) -> T:
    """Call `ask` in one snapshot of an index that knows every note: a rename filed between two questions would show old
    links and new names. An index that was deleted meanwhile is waited for and asked again: an empty one would answer as
    if there were nothing."""
    for _ in range(MAX_TRIES):
        asked = ws.follower.wait(ws.limits.index_seconds) or ws.index.generation()
        with ws.index.snapshot(asked):
            answer = ask()
            if noticed.unread is not None:
                noticed.unread[ws.index] = [file.path for file in ws.index.with_problem(NOT_INDEXED_YET)]
        if asked.whole and ws.index.generation() == asked:
            return answer
    raise Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)


def from_snapshot(answer: Callable[Concatenate[Workspace, P], T]) -> Callable[Concatenate[Workspace, P], T]:
    """Decorate a function that asks the index several questions: it runs in one `snapshot`."""

    def asked(ws: Workspace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return snapshot(ws, lambda: answer(ws, *args, **kwargs))

    return asked
