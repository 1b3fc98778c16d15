"""What tests of the folder store do to a folder, and in which processes."""

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from notewright.notes.path import NotePath
from notewright.stores.base import version_of

A = NotePath("a.md")
OLD, NEW = b"old " * 500, b"new " * 600
JUST_NOW = -0.14  # of age, in seconds: a clock a little ahead, so that a busy machine may look before the file is still


def put(file: Path, data: bytes = OLD, *, age: float = 10.0) -> str:
    """A file as an editor left it some seconds ago; its version."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (time.time() - age,) * 2)
    return version_of(data)


def left_beside(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob(".*")]


def in_child(work: Callable[[], None]) -> int:
    """Run something in a process of its own; how it ended (0: well)."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]
