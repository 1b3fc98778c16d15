"""The folder in which the worker processes of one server count together: calls, sessions, and numbers for Prometheus.

Nothing in it is synced. The files of prometheus_client's multiprocess mode bear the number of a worker's slot in place
of a process id. So whoever takes the place of a worker that died goes on counting in its files: nothing is lost, and
there are never more of them than workers.
"""

import contextlib
import os
import shutil
from pathlib import Path

from prometheus_client import values
from prometheus_client.multiprocess import mark_process_dead


def empty_folder(state: Path) -> Path:
    """An empty folder for a server that begins, named by the number of its process. Those of servers that have ended
    are removed: their numbers are over."""
    folder = state / "workers" / str(os.getpid())
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for other in folder.parent.iterdir():
        if other == folder or not _lives(other.name):
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def join(folder: Path, slot: int) -> None:
    """This process is the worker of that slot: what it counts from now on it counts in the folder."""
    (folder / f"{slot}.pid").write_text(str(os.getpid()), encoding="ascii")
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


def forget_worker(folder: Path, slot: int) -> None:
    """It has died, and what it was in the middle of is over. What it counted stays."""
    mark_process_dead(slot, str(folder))  # type: ignore[no-untyped-call]
    (folder / f"{slot}.pid").unlink(missing_ok=True)


def processes(folder: Path) -> list[int]:
    """The workers that live."""
    found = []
    for file in folder.glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):  # it has just died, or just begins
            found.append(int(file.read_text(encoding="ascii")))
    return found
