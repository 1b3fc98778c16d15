"""Large notes are filed after all others and one by one, so that no call waits long for one of them."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from notewright.engine.indexing.difference import NOT_INDEXED_YET
from notewright.engine.indexing.filing import LARGE_BYTES, MAX_PARSED_BYTES, TOO_COSTLY
from notewright.engine.workspace import Workspace
from notewright.errors import Indexing
from notewright.notes.path import NotePath, path_key
from notewright.stores.base import Entry

GRACE_SECONDS = 1.0  # that calls wait for a large note that was just queued: most are filed by then
POLL_SECONDS = 0.02
MAX_NAMED = 3  # notes named in words that tell which are not indexed yet


class LargeQueue:
    """Large notes that are known by name and still to be read, the smallest first. Safe from many threads."""

    def __init__(self) -> None:
        self._sizes: dict[NotePath, int] = {}
        self._failed: dict[NotePath, int] = {}
        self._until = 0.0
        self._mutex = threading.Lock()

    def add(self, path: NotePath, size: int) -> None:
        with self._mutex:
            if path not in self._sizes:
                self._until = time.monotonic() + GRACE_SECONDS
            self._sizes[path] = size

    def take(self, entries: Iterable[Entry], known: Mapping[str, str]) -> list[Entry]:
        """Queue the large notes that the index knows, unchanged or by their names alone; the other entries. Filed anew
        by its name alone, such a note would not be found until it is read."""
        left: list[Entry] = []
        for entry in entries:
            is_large = entry.path.is_note and LARGE_BYTES < entry.size <= MAX_PARSED_BYTES
            if is_large and known.get(entry.path) in (entry.stamp, ""):
                self.add(entry.path, entry.size)
            else:
                left.append(entry)
        return left

    def smallest(self) -> NotePath | None:
        with self._mutex:
            return min(self._sizes, key=lambda path: (self._failed.get(path, 0), self._sizes[path], path), default=None)

    def done(self, path: NotePath) -> None:
        with self._mutex:
            self._sizes.pop(path, None)
            self._failed.pop(path, None)

    def put_last(self, path: NotePath) -> None:
        """Retry a note that could not be filed after the others."""
        with self._mutex:
            self._failed[path] = self._failed.get(path, 0) + 1

    def wait(self, stop: threading.Event, deadline: float) -> None:
        """Wait until the queue is empty, or GRACE_SECONDS after a note was queued."""
        while self._sizes and time.monotonic() < min(deadline, self._until) and not stop.wait(POLL_SECONDS):
            pass

    def __bool__(self) -> bool:
        return bool(self._sizes)


def unread(ws: Workspace, noticed: Sequence[NotePath] | None = None) -> list[NotePath]:
    """The notes this reader may see whose text is not in the index yet. `noticed`: those of an earlier snapshot."""
    if noticed is None:
        noticed = [file.path for file in ws.index.with_problem(NOT_INDEXED_YET)]
    return [path for path in noticed if ws.access.sees(path)]


def say_unread(paths: Iterable[NotePath]) -> str:
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
    while not_indexed(ws):
        if time.monotonic() >= deadline:
            raise still_indexing(ws)
        time.sleep(POLL_SECONDS)


def not_indexed(ws: Workspace) -> bool:
    """Whether the text of some note is not in the index yet, seen by the caller or not."""
    return bool(ws.index.with_problem(NOT_INDEXED_YET))


def still_indexing(ws: Workspace) -> Indexing:
    """The error that names the notes which are not in the index yet."""
    left, notes = unread(ws), ws.index.total("notes")
    done = notes - len(left)
    return Indexing(
        f"still indexing ({done} of {notes} notes); {say_unread(left)}",
        hint="try again in a moment",
        done=done,
        total=notes,
        missing=left,
    )


def find_costly_notes_with(ws: Workspace, keys: Iterable[str]) -> list[NotePath]:
    """Of the notes with so many links that the index does not know them, those whose text holds one of the keys."""
    wanted = {written for key in keys for written in (key, key.replace(" ", "%20"))}
    found = []
    for filed in ws.index.with_problem(TOO_COSTLY):
        text = path_key(ws.index.text(filed.path) or "")
        if any(key in text for key in wanted):
            found.append(filed.path)
    return found
