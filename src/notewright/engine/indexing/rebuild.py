"""A whole new index, begun in one process and asked about in any.

Whoever builds holds a lock on a file beside the index, and says in it how it ended. What a file says outlives who wrote
it and a lock does not: a rebuild that is said to go on while nobody holds the lock has failed.
"""

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from notewright.engine.workspace import Workspace
from notewright.errors import Problem, Unavailable
from notewright.locks import FileLocks, Lock

LOCK, STATUS = "rebuilding", "rebuild"
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

    def __init__(self, lock: Lock, folder: Path) -> None:
        self._lock, self._file = lock, folder / STATUS
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
            self._lock.release()

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
            fresh = self._file.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(told))
            fresh.replace(self._file)


def begin_rebuild(folder: Path) -> RebuildRunning | None:
    """The right to rebuild the index in this folder; None while somebody else does."""
    try:
        for _ in range(20):  # who asks how far it is holds the lock for an instant
            lock = FileLocks(folder).try_lock(LOCK)
            if lock is not None:
                return RebuildRunning(lock, folder)
            time.sleep(0.005)
    except OSError as error:
        raise Unavailable(f"the index cannot be built: {error.strerror}", hint="look at the cache directory") from error
    return None


def rebuild_progress(ws: Workspace, folder: Path) -> RebuildStatus:
    """How it is with the index in this folder, whichever process works on it."""
    now, held, told = ws.index.progress(), _is_held(folder), _read_status(folder / STATUS)
    began, ended = told.get("began"), told.get("ended")
    if now.building or held:
        return RebuildStatus("running", now.done if now.building else 0, now.total, began=began if held else None)
    if told.get("status") == "running":
        return RebuildStatus("failed", message="the server ended before the index was built", began=began)
    if told.get("status") not in ("done", "failed"):
        return RebuildStatus("idle")
    return RebuildStatus(told["status"], None, None, str(told.get("message", "")), began, ended)


def _is_held(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        lock = FileLocks(folder).try_lock(LOCK, shared=True)
    except OSError:
        return False
    if lock is not None:
        lock.release()
    return lock is None


def _read_status(file: Path) -> dict[str, Any]:
    told = None
    with contextlib.suppress(OSError, ValueError):
        told = json.loads(file.read_text()[:10_000])
    return told if isinstance(told, dict) else {}
