"""The folder that the worker processes of one server share for counts: calls, sessions, and Prometheus metrics.

Nothing in it is synced. The files of prometheus_client's multiprocess mode are named by the worker's slot in place of
its process id. So the successor of a worker that died goes on counting in its files: nothing is lost, and there are
never more of them than workers.
"""

import contextlib
import os
import shutil
from pathlib import Path

from prometheus_client import values
from prometheus_client.multiprocess import mark_process_dead


def empty_folder(state: Path) -> Path:
    """An empty folder for a server that starts, named by its process id. Those of servers that have ended are
    removed with what they counted."""
    folder = state / "workers" / str(os.getpid())
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for other in folder.parent.iterdir():
        if other == folder or not _is_alive(other.name):
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except PermissionError:  # of another user
        return True
    except (ValueError, ProcessLookupError):
        return False
    return True


def register_worker(folder: Path, slot: int) -> None:
    """Make this process the worker of that slot: from now on it counts in the folder."""
    (folder / f"{slot}.pid").write_text(str(os.getpid()), encoding="ascii")
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


def forget_worker(folder: Path, slot: int) -> None:
    """Drop a dead worker's live gauges (its calls under way). What it counted stays."""
    mark_process_dead(slot, str(folder))  # type: ignore[no-untyped-call]
    (folder / f"{slot}.pid").unlink(missing_ok=True)


def live_workers(folder: Path) -> list[int]:
    """The process ids of the workers."""
    found = []
    for file in folder.glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):  # it has just died, or just begins
            found.append(int(file.read_text(encoding="ascii")))
    return found
