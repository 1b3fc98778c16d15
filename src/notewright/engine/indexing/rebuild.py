"""A whole new index, begun in one process and asked about in any.

Whoever builds holds a lock on a file beside the index, and says in it how it ended. What a file says outlives who wrote
it and a lock does not: a rebuild that is said to go on while nobody holds the lock has failed.
"""

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from notewright.engine.workspace import Workspace
from notewright.errors import Problem, Unavailable

READY_SECONDS = 600.0  # how long a rebuild waits for a first index to be there: two at once are no use


@dataclass(frozen=True, slots=True)
class RebuildStatus:
    """How far a rebuild is, or how the last one ended."""

    status: Literal["idle", "running", "done", "failed"]
    done: int | None = None  # files, while it runs
    total: int | None = None
    message: str = ""  # why it failed
    began: float | None = None
    ended: float | None = None


class RebuildRunning:
    """The right to rebuild one index, held until it was used."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._began = time.time()
        self._say("running")

    def run(self, ws: Workspace) -> None:
        """Build it; whatever comes of that can be asked for by everybody."""
        try:
            self._build(ws)
            self._say("done")
        except Problem as problem:
            self._say("failed", problem.message)
        except BaseException as error:
            self._say("failed", "something went wrong here")
            raise error
        finally:
            os.close(self._handle)

    def _build(self, ws: Workspace) -> None:
        with contextlib.suppress(Problem):  # an index that is behind is what a rebuild is for
            ws.follower.wait(READY_SECONDS)
        before = ws.index.generation().name
        ws.follower.rebuild(lambda done, total: None)
        if ws.index.generation().name == before:
            raise Unavailable("the server was stopped before the index was built")

    def _say(self, status: str, message: str = "") -> None:
        ended = None if status == "running" else time.time()
        told = {"status": status, "message": message, "began": self._began, "ended": ended}
        with contextlib.suppress(OSError):  # a full disk does not make an index that was built a failure
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(told).encode(), 0)


def begin_rebuild(folder: Path) -> RebuildRunning | None:
    """The right to rebuild the index in this folder; None while somebody else does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "rebuild", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"the index cannot be built: {error.strerror}", hint="look at the cache directory") from error
    for _ in range(20):  # who asks how far it is holds the lock for an instant
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return RebuildRunning(handle)
        except BlockingIOError:
            time.sleep(0.005)
    os.close(handle)
    return None


def rebuild_progress(ws: Workspace, folder: Path) -> RebuildStatus:
    """How it is with the index in this folder, whichever process works on it."""
    now, (held, told) = ws.index.progress(), _told(folder / "rebuild")
    began, ended = told.get("began"), told.get("ended")
    if now.building or held:
        return RebuildStatus("running", now.done if now.building else 0, now.total, began=began if held else None)
    if told.get("status") == "running":
        return RebuildStatus("failed", message="the server ended before the index was built", began=began)
    if told.get("status") not in ("done", "failed"):
        return RebuildStatus("idle")
    return RebuildStatus(told["status"], None, None, str(told.get("message", "")), began, ended)


def _told(file: Path) -> tuple[bool, dict[str, Any]]:
    """Whether somebody holds the file, and what it says."""
    held, told = False, None
    with contextlib.suppress(OSError, ValueError), file.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            held = True
        told = json.loads(opened.read(10_000))
    return held, told if isinstance(told, dict) else {}
