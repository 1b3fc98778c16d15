"""The counts that several worker processes share: one file for each process and kind, in one folder.

The files are those of prometheus_client's multiprocess mode. What a dead process counted still counts, so its files are
folded into one: however often workers come and go, the folder stays small.
"""

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.mmap_dict import MmapedDict

log = logging.getLogger(__name__)

KEPT = ("counter", "histogram")  # what stays true of a process that is gone
GONE = "gone"  # stands where a process's number would


def clear_folder(folder: Path) -> None:
    """An empty folder for a server that begins, named by the number of its process. Those of servers that have ended
    are removed: their numbers are over."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for other in folder.parent.iterdir():
        if other == folder or not _lives(other.name):
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _lives(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def forget_process(folder: Path, process: int) -> None:
    """A worker has died: what it was in the middle of is over, what it counted is added to that of the dead."""
    with reading(folder, alone=True):
        for file in folder.glob(f"*_{process}.db"):
            kind = file.name.split("_")[0]
            if kind in KEPT:
                _add(file, folder / f"{kind}_{GONE}.db")
            file.unlink(missing_ok=True)


def processes(folder: Path) -> list[int]:
    """The workers that live, as far as they have counted anything."""
    numbers = {file.stem.rpartition("_")[2] for file in folder.glob("gauge_live*_*.db")}
    return sorted(int(number) for number in numbers if number.isdecimal())


@contextlib.contextmanager
def reading(folder: Path, *, alone: bool = False) -> Iterator[None]:
    """While the files are read nothing is folded: it would be counted twice."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _add(file: Path, to: Path) -> None:
    try:
        counted = list(MmapedDict.read_all_values_from_file(str(file)))  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError, ValueError):  # it died while it wrote down a new name
        log.warning("what a worker had counted cannot be read and is forgotten")
        return
    total: Any = MmapedDict(str(to))  # type: ignore[no-untyped-call]
    for key, value, *_ in counted:
        total.write_value(key, total.read_value(key)[0] + value, 0.0)
    total.close()
