"""Wait for the index, and answer from one snapshot of it."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from notewright.engine.indexing.difference import NOT_INDEXED_YET, TOO_COSTLY
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing
from notewright.index.base import Index
from notewright.notes.path import NotePath, path_key


class Noticed(threading.local):
    """What `snapshot` recorded in this thread beside the answers, where a dict is set."""

    unread: dict[Index, list[NotePath]] | None = None  # notes whose texts were not in the index


noticed = Noticed()
T = TypeVar("T")
P = ParamSpec("P")
MAX_TRIES = 4  # to get a whole answer of one index
MAX_NAMED = 3  # notes named in words that tell which are not indexed yet
POLL_SECONDS = 0.02


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


def unread(ws: Workspace, noticed: Sequence[NotePath] | None = None) -> list[NotePath]:
    """The notes this reader may see whose text is not in the index yet. `noticed`: those of an earlier snapshot."""
    if noticed is None:
        noticed = [file.path for file in ws.index.with_problem(NOT_INDEXED_YET)]
    return [path for path in noticed if ws.access.sees(path)]


def describe_unread(paths: Iterable[NotePath]) -> str:
    """Which notes are not indexed yet, in words."""
    listed = list(paths)
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return f"not indexed yet: {', '.join(listed[:MAX_NAMED])}{more}" if listed else "some notes are not indexed yet"


def wait_for_links(ws: Workspace) -> None:
    """Wait, for a plan that must know every link; Indexing while a note's text is not in the index yet."""
    deadline = time.monotonic() + ws.limits.index_seconds
    ws.follower.wait_for_all(ws.limits.index_seconds)
    _wait_for_texts(ws, deadline)


def wait_for_texts(ws: Workspace, seconds: float) -> None:
    """Wait until every note's text is in the index, or Indexing."""
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
    left, notes = unread(ws), ws.index.total("notes")
    done = notes - len(left)
    return Indexing(
        f"still indexing ({done} of {notes} notes); {describe_unread(left)}",
        hint="try again in a moment",
        done=done,
        total=notes,
        missing=left,
    )


def find_costly_notes_with(ws: Workspace, keys: Iterable[str]) -> list[NotePath]:
    """Of the notes with so many links that the index does not know them, those whose text holds one of the keys."""
    wanted = {written for key in keys for written in (key, key.replace(" ", "%20"))}
    found = []
    for file in ws.index.with_problem(TOO_COSTLY):
        text = path_key(ws.index.text(file.path) or "")
        if any(key in text for key in wanted):
            found.append(file.path)
    return found
