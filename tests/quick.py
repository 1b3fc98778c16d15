"""Which tests `make check` runs: those that need nothing but their own process.

A test that starts another process or listens on a port is marked slow, or its whole module is
(`pytestmark = pytest.mark.slow`); so is one that computes for more than a second. The first half of the rule is held
here: such a test fails until it is marked. How long tests took is no reason to fail, on a busy machine it says nothing.
"""

import sys
import threading
from typing import Any

STARTS = {"subprocess.Popen": "starts a process", "os.fork": "starts a process", "socket.bind": "listens on a port"}
ALL_THE_SAME = {  # quick, though they start processes: short ones, for what a commit breaks most easily
    "test_cases.py",
    "test_docs.py",
    "test_golden.py",
    "test_project.py",
}
_seen: list[str] = []


def watch() -> None:
    sys.addaudithook(_note)


def _note(event: str, args: tuple[Any, ...]) -> None:
    """What a thread does that an earlier test left behind is not held against this one."""
    if event not in STARTS or threading.current_thread() is not threading.main_thread():
        return
    if event != "socket.bind" or isinstance(args[1], tuple):  # else it is a socket in a folder
        _seen.append(STARTS[event])


def forget() -> None:
    _seen.clear()


def refuse(file: str) -> None:
    """After a test that is not marked slow."""
    if _seen and file not in ALL_THE_SAME:
        raise AssertionError(f"this test {_seen[0]}: mark it slow (tests/quick.py says why)")
