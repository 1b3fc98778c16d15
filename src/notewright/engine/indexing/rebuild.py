"""Rebuild the index: begun in one process, its progress read in any.

The process that builds holds a lock on a file beside the index, and writes to another how it ended. A file outlives its
writer and a lock does not: where the file says "running" and the lock is free, the rebuild has failed.
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
READY_SECONDS = 600.0  # that a rebuild waits for the first index: two builds at once are no use


@dataclass(frozen=True, slots=True)
class RebuildStatus:
    """How far a rebuild is, or how the last one ended."""

    status: Literal["idle", "running", "done", "failed"]
    done: int | None = None  # files, while it runs
    total: int | None = None
    message: str = ""  # why it failed
    began: float | None = None
    ended: float | None = None


class Rebuild:
    """The right to rebuild one index, held until `run` returns."""

    def __init__(self, lock: Lock, folder: Path) -> None:
        self._lock, self._file = lock, folder / STATUS
        self._began = time.time()
        self._write_status("running")

    def run(self, ws: Workspace) -> None:
        """Build the index and write down how it ended, for every process to read."""
        try:
            with contextlib.suppress(Problem):  # an index that is behind is what a rebuild is for
                ws.follower.wait(READY_SECONDS)
            before = ws.index.generation().name
            ws.follower.rebuild(lambda done, total: None)
            if ws.index.generation().name == before:
                raise Unavailable("the server was stopped before the index was built")
            self._write_status("done")
        except Problem as problem:
            self._write_status("failed", problem.message)
        except BaseException:
            self._write_status("failed", "something went wrong here")
            raise
        finally:
            self._lock.release()

    def _write_status(self, status: str, message: str = "") -> None:
        ended = None if status == "running" else time.time()
        values = {"status": status, "message": message, "began": self._began, "ended": ended}
        with contextlib.suppress(OSError):  # a full disk does not make an index that was built a failure
            fresh = self._file.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(values))
            fresh.replace(self._file)


def begin_rebuild(folder: Path) -> Rebuild | None:
    """Take the right to rebuild the index in this folder; None while another process rebuilds it."""
    try:
        for _ in range(20):  # `rebuild_progress` holds the lock for an instant
            lock = FileLocks(folder).try_lock(LOCK)
            if lock is not None:
                return Rebuild(lock, folder)
            time.sleep(0.005)
    except OSError as error:
        raise Unavailable(f"the index cannot be built: {error.strerror}", hint="look at the cache directory") from error
    return None


def rebuild_progress(ws: Workspace, folder: Path) -> RebuildStatus:
    """The state of the index in this folder, whichever process builds it."""
    now, is_held = ws.index.progress(), False
    with contextlib.suppress(OSError):
        if folder.is_dir():
            lock = FileLocks(folder).try_lock(LOCK, shared=True)
            is_held = lock is None
            if lock is not None:
                lock.release()
    last: Any = None
    with contextlib.suppress(OSError, ValueError):
        last = json.loads((folder / STATUS).read_text()[:10_000])
    last = last if isinstance(last, dict) else {}
    status, began, ended = last.get("status"), last.get("began"), last.get("ended")
    if now.building or is_held:
        return RebuildStatus("running", now.done if now.building else 0, now.total, began=began if is_held else None)
    if status == "running":
        return RebuildStatus("failed", message="the server ended before the index was built", began=began)
    if status not in ("done", "failed"):
        return RebuildStatus("idle")
    return RebuildStatus(status, None, None, str(last.get("message", "")), began, ended)
