"""Processes that are killed: run by `test_kill.py`, as `python -m tests.engine.changes.killing`.

Without arguments it reads jobs from stdin, one JSON object a line, does each in a child of its own, and kills the child
at its n-th system call (traced, so it dies exactly there: before the call or right after it). It answers with one JSON
object a line. `worker FOLDER STATE NAME SECONDS` appends and renames in a shared folder for a while.

Jobs called `real …` open the workspace as the product does, index and follower included; with `lose` the index is
deleted at that system call.
"""

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.parts import memory_workspace

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.changes.commit import commit_latest, edit, recover
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import change_text
from notewright.errors import Busy, Conflict, Exists, Indexing, NotFound
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.stores.folder.store import FolderStore

_TRACEME, _DETACH, _SYSCALL, _SETOPTIONS = 0, 17, 24, 0x4200
_OPTIONS = 1 | 8 | 0x100000  # mark stops at system calls, follow threads, nobody outlives the tracer
_ALL_THREADS = 0x40000000


def opened(folder: Path, state: Path) -> Workspace:
    return memory_workspace(FolderStore(folder), SqliteLedger.open(state))


def really_opened(folder: Path, state: Path, *, watch: bool = True) -> Workspace:
    """As the product opens it: a ledger in `state`, an index in `state/cache`."""
    asked = WorkspaceConfig("Main", "main", str(folder))
    return open_workspace(asked, Config((asked,), str(state), str(state / "cache")), watch=watch)


def renaming(ws: Workspace, old: str, new: str) -> Plan:
    """A move with every link to the note, planned from the files themselves."""
    steps: list[Put | Drop] = [
        Put(NotePath(new), None, None, NotePath(old)),
        Drop(NotePath(old), ws.store.read(NotePath(old))),
    ]
    for entry in ws.store.entries():
        if entry.path == old:
            continue
        note = ws.store.read(entry.path)
        data = note.data.replace(f"[[{old[:-3]}]]".encode(), f"[[{new[:-3]}]]".encode())
        if data != note.data:
            steps.append(Put(entry.path, data, note))
    return Plan(tuple(steps), f"moved {old} to {new}")


def rename(ws: Workspace, job: dict[str, Any]) -> None:
    recover(ws)
    commit_latest(ws, lambda: (renaming(ws, job["old"], job["new"]), None))


def append(ws: Workspace, job: dict[str, Any]) -> None:
    recover(ws)
    edit(ws, NotePath(job["path"]), lambda text: f"{text}{job['line']}\n", summary=job["line"])


def finish(ws: Workspace, job: dict[str, Any]) -> None:
    recover(ws)


def real_move(ws: Workspace, job: dict[str, Any]) -> None:
    move(ws, NotePath(job["old"]), job["new"])


def real_start(ws: Workspace, job: dict[str, Any]) -> None:
    ws.follower.wait(20)


JOBS: dict[str, Callable[[Workspace, dict[str, Any]], None]] = {
    "rename": rename,
    "append": append,
    "recover": finish,
    "real move": real_move,
    "real start": real_start,
}


def child(job: dict[str, Any]) -> None:
    real = job["do"].startswith("real")
    ws = (really_opened if real else opened)(Path(job["folder"]), Path(job["state"]))
    JOBS[job["do"]](ws, job)
    with open(job["acks"], "a") as acks:
        acks.write(f"{job.get('line', job['do'])}\n")
    if real:
        return close_workspace(ws)
    ws.store.close()
    ws.ledger.close()


def traced(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job in a child and kill it at system call number `kill` (0: never); how it ended, and how many it made if it
    was `traced`."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    main = os.fork()
    if main == 0:
        libc.ptrace(_TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            child(job)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.waitpid(main, 0)
    if libc.ptrace(_SETOPTIONS, main, None, ctypes.c_void_p(_OPTIONS)) != 0:
        os.kill(main, signal.SIGKILL)
        return {"error": "tracing is not allowed here"}
    if not job["traced"]:
        libc.ptrace(_DETACH, main, None, None)
        return {"code": os.waitstatus_to_exitcode(os.waitpid(main, 0)[1]), "calls": 0}
    calls, living = 0, {main}
    libc.ptrace(_SYSCALL, main, None, None)
    ending = 0
    while living:
        thread, status = os.waitpid(-1, _ALL_THREADS)
        if not os.WIFSTOPPED(status):
            living.discard(thread)
            ending = status if thread == main else ending
            continue
        living.add(thread)
        stop = os.WSTOPSIG(status)
        calls += stop == signal.SIGTRAP | 0x80
        if calls == job.get("lose"):
            shutil.rmtree(Path(job["state"]) / "cache", ignore_errors=True)
        if calls == job["kill"] and job["kill"]:
            os.kill(main, signal.SIGKILL)
        deliver = 0 if stop in (signal.SIGTRAP, signal.SIGTRAP | 0x80, signal.SIGSTOP) else stop
        libc.ptrace(_SYSCALL, thread, None, ctypes.c_void_p(deliver))
    return {"code": os.waitstatus_to_exitcode(ending), "calls": calls}


def worker(folder: Path, state: Path, name: str, seconds: float) -> None:
    """Append lines to shared notes and rename one; every line acknowledged is written down in `name.acks`."""
    ws = opened(folder, state)
    recover(ws)
    rng = random.Random(name)
    until, count = time.monotonic() + seconds, 0
    with open(state / f"{name}.acks", "a", buffering=1) as acks:
        while time.monotonic() < until:
            count += 1
            try:
                if rng.random() < 0.1:
                    rename_target(ws, f"Target {name} {count}.md")
                    continue
                line = f"{name}-{count}"
                note = NotePath(f"Shared {rng.randrange(3)}.md")
                edit(ws, note, lambda text, line=line: f"{text}{line}\n", summary=line)
            except (Conflict, Exists, NotFound, Busy, StopIteration):
                continue
            acks.write(f"{line}\n")


def rename_target(ws: Workspace, new: str) -> None:
    old = next(entry.path for entry in ws.store.entries() if entry.path.startswith("Target"))
    commit_latest(ws, lambda: (renaming(ws, old, new), None))


def real_worker(folder: Path, state: Path, name: str, seconds: float) -> None:
    """The same through the engine's own verbs; each line links to the note that is renamed all the time, by the name
    it has when the line is written."""
    ws = really_opened(folder, state)
    rng, until, count = random.Random(name), time.monotonic() + seconds, 0
    with open(state / f"{name}.acks", "a", buffering=1) as acks:
        while time.monotonic() < until:
            count += 1
            try:
                if rng.random() < 0.2:
                    move(ws, target_of(ws), f"Target {name} {count}")
                    continue
                note = NotePath(f"Shared {rng.randrange(3)}.md")
                change_text(ws, note, lambda text, n=count: f"{text}{name}-{n} [[{target_of(ws).stem}]]\n")
            except (Busy, Conflict, Exists, NotFound, Indexing):
                continue
            acks.write(f"{name}-{count}\n")
    close_workspace(ws)


def target_of(ws: Workspace) -> NotePath:
    return next(entry.path for entry in ws.store.entries() if entry.path.startswith("Target"))


def main() -> None:
    if sys.argv[1:2] in (["worker"], ["real-worker"]):
        kind, folder, state, name, seconds = sys.argv[1:]
        work = real_worker if kind == "real-worker" else worker
        return work(Path(folder), Path(state), name, float(seconds))
    for line in sys.stdin:
        print(json.dumps(traced(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
