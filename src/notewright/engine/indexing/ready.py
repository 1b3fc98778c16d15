"""Waits for the index, and runs functions in one snapshot of it."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from notewright.engine.indexing.difference import NOT_INDEXED_YET
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing
from notewright.index.base import Index
from notewright.notes.path import NotePath


class UnreadLog(threading.local):
    """The notes missing from the index in each `snapshot` of this thread, recorded while `paths` is a dict."""

    paths: dict[Index, list[NotePath]] | None = None


unread_log = UnreadLog()
T = TypeVar("T")
P = ParamSpec("P")
MAX_TRIES = 4  # to get a whole answer of one index
MAX_NAMED = 3  # notes that a message on missing notes names
POLL_SECONDS = 0.02


def wait(ws: Workspace) -> None:
    """Wait until the index is as fresh as the store; Indexing after the time limit of this caller."""
    ws.follower.wait(ws.limits.index_seconds)


def is_fresh(ws: Workspace) -> bool:
    """Whether the index is as fresh as the store now."""
    try:
        ws.follower.wait(0)
    except Indexing:
        return False
    return True


def snapshot(ws: Workspace, ask: Callable[[], T]) -> T:
    """Call `ask` in one snapshot of a complete index: a rename indexed between two queries would show old links and new
    names. If the index is deleted meanwhile, wait for the new one and call `ask` again: an empty index would answer as
    if there were no notes."""
    for _ in range(MAX_TRIES):
        generation = ws.follower.wait(ws.limits.index_seconds) or ws.index.generation()
        with ws.index.snapshot(generation):
            answer = ask()
            if unread_log.paths is not None:
                unread_log.paths[ws.index] = [file.path for file in ws.index.with_problem(NOT_INDEXED_YET)]
        if generation.whole and ws.index.generation() == generation:
            return answer
    raise Indexing("the index is being built again", hint="try again in a moment", done=0, total=None)


def from_snapshot(answer: Callable[Concatenate[Workspace, P], T]) -> Callable[Concatenate[Workspace, P], T]:
    """Decorate a function that queries the index several times: it runs in one `snapshot`."""

    def run_in_snapshot(ws: Workspace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return snapshot(ws, lambda: answer(ws, *args, **kwargs))

    return run_in_snapshot


def list_unread(ws: Workspace, paths: Sequence[NotePath] | None = None) -> list[NotePath]:
    """The notes this caller may see whose text is not in the index yet; of `paths`, those recorded by a snapshot."""
    if paths is None:
        paths = [file.path for file in ws.index.with_problem(NOT_INDEXED_YET)]
    return [path for path in paths if ws.access.sees(path)]


def describe_unread(paths: Iterable[NotePath]) -> str:
    """A message on which notes are not indexed yet."""
    listed = list(paths)
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return f"not indexed yet: {', '.join(listed[:MAX_NAMED])}{more}" if listed else "some notes are not indexed yet"


def wait_for_links(ws: Workspace) -> None:
    """Wait until the index knows every link, for a plan that needs them all; else Indexing."""
    deadline = time.monotonic() + ws.limits.index_seconds
    ws.follower.wait_for_all(ws.limits.index_seconds)
    _wait_for_texts(ws, deadline)


def wait_for_texts(ws: Workspace, seconds: float) -> None:
    """Wait until every note's text is in the index; Indexing after so many seconds."""
    deadline = time.monotonic() + seconds
    ws.follower.wait(seconds)
    _wait_for_texts(ws, deadline)


def _wait_for_texts(ws: Workspace, deadline: float) -> None:
    while has_unindexed_notes(ws):
        if time.monotonic() >= deadline:
            raise still_indexing_error(ws)
        time.sleep(POLL_SECONDS)


def has_unindexed_notes(ws: Workspace) -> bool:
    """Whether the text of some note is not in the index yet, visible to the caller or not."""
    return bool(ws.index.with_problem(NOT_INDEXED_YET))


def still_indexing_error(ws: Workspace) -> Indexing:
    """The error that names the notes which are not in the index yet."""
    left, notes = list_unread(ws), ws.index.total("notes")
    done = notes - len(left)
    return Indexing(
        f"still indexing ({done} of {notes} notes); {describe_unread(left)}",
        hint="try again in a moment",
        done=done,
        total=notes,
        missing=left,
    )
