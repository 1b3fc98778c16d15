"""A surface that says back what it is told, to try the wires with. `python echo.py` serves it on stdio."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from notewright import errors
from notewright.app import compose
from notewright.engine.workspace import IndexFollower, Workspace
from notewright.errors import Limited, NotFound
from notewright.index.base import IndexedFile
from notewright.notes.path import NotePath
from notewright.surfaces.base import (
    INVALID_PARAMS,
    RATE_LIMITED,
    Answer,
    Args,
    Argument,
    BadArgument,
    Call,
    FailedCall,
    Image,
    Prompt,
    RpcError,
    Style,
    Surface,
    Tool,
)
from notewright.surfaces.resources import NoteResources


class Plain(Style):
    table = MappingProxyType({code: code for code in errors.codes()})

    def render_problem(self, failed: FailedCall) -> Answer:
        wait = failed.problem.details.get("retry_after")
        if wait is not None and failed.call.transport == "http":
            raise RpcError(
                RATE_LIMITED, "slow down", {"retryAfter": wait}, status=429, headers={"Retry-After": str(wait)}
            )
        return Answer.error(f"{failed.problem.code}: {failed.problem}")


class Strict(Plain):
    def render_bad_arguments(self, failed: FailedCall, fault: BadArgument) -> Answer:
        raise RpcError(INVALID_PARAMS, fault.message)


class Told(IndexFollower):
    """A follower that is told by a tool what changed."""

    def __init__(self) -> None:
        self._heard: list[Callable[[frozenset[str] | None], None]] = []

    def subscribe(self, heard: Callable[[frozenset[str] | None], None]) -> Callable[[], None]:
        self._heard.append(heard)
        return lambda: self._heard.remove(heard)

    def file_again(self, paths: Iterable[str]) -> None:
        for heard in list(self._heard):
            heard(frozenset(paths))


class Shelf:
    """Workspaces that hold nothing."""

    def __init__(self, *names: str) -> None:
        nothing = cast(Any, None)
        self._all = [Workspace(name, name.lower(), nothing, nothing, nothing, nothing, Told()) for name in names]

    def workspaces(self) -> Sequence[Workspace]:
        return self._all

    @property
    def default(self) -> Workspace:
        return self._all[0]

    def find_workspace(self, id_or_name: str) -> Workspace:
        for workspace in self._all:
            if id_or_name in (workspace.id, workspace.name):
                return workspace
        raise NotFound(f"there is no workspace {id_or_name}", what="workspace")

    def close(self) -> None:
        print("library closed", file=sys.stderr)


class Files(NoteResources):
    """Three hundred files that are not there."""

    paths = tuple(f"n{number:03}.md" for number in range(300))

    def list_files(self, workspace: Workspace, offset: int, limit: int | None) -> Sequence[IndexedFile]:
        paths = self.paths[offset:] if limit is None else self.paths[offset : offset + limit]
        return [IndexedFile(NotePath(path), "", "", 5, 0, "") for path in paths]

    def read_bytes(self, workspace: Workspace, path: str) -> bytes:
        if path not in self.paths:
            raise NotFound(f"no {path}", what="file")
        return f"# {path} é".encode()


def echo(call: Call, args: Args) -> str:
    return cast(str, args["text"])


def noop(call: Call, args: Args) -> str:
    return "ok"


def slow(call: Call, args: Args) -> str:
    """Sleeps in small steps, tells how far it is, and says on standard error when it was stopped."""
    steps = max(1, int(args["seconds"] / 0.02))
    for step in range(steps):
        if call.cancelled():
            print("slow was cancelled", file=sys.stderr, flush=True)
        call.stop_if_cancelled()
        call.report(step, steps, "sleeping")
        time.sleep(0.02)
    return "slept"


def who(call: Call, args: Args) -> str:
    actor = call.workspace.actor
    first = call.session.mark_once("who")
    spaces = ",".join(workspace.id for workspace in call.workspaces)
    return f"{actor.client} {actor.surface} {actor.tool} {call.transport} {spaces} {first}"


def fail(call: Call, args: Args) -> str:
    if args["how"] == "limited":
        raise Limited("too many", retry_after=7)
    if args["how"] == "crash":
        raise RuntimeError("a secret")
    if args["how"] == "print":
        print("stray words")
        return "printed"
    raise NotFound("nothing there")


def odd(call: Call, args: Args) -> Answer:
    return Answer.of("a\udcffb", Image(b"\x89PNG", "image/png"), meta={"truncated": True})


def touch(call: Call, args: Args) -> str:
    call.workspace.follower.file_again([args["path"]])
    return f"touched in {threading.current_thread().name}"


def one(name: str, kind: str = "string") -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}


TOOLS = (
    Tool("echo", "Says it back.", one("text"), echo, {"readOnlyHint": True}),
    Tool("noop", "Does nothing.", {"type": "object", "properties": {}}, noop),
    Tool("slow", "Takes its time.", one("seconds", "number"), slow),
    Tool("who", "Who calls.", {"type": "object"}, who),
    Tool("fail", "Fails.", one("how"), fail),
    Tool("odd", "Odd answers.", {"type": "object"}, odd),
    Tool("touch", "Changes a file.", one("path"), touch),
)
PROMPT = Prompt("greet", "Greets.", (Argument("name", "whom", True),), lambda call, args: f"Greet {args['name']}.")
RESOURCES = Files("note:///")
ECHO = Surface("echo", "Say things.", TOOLS, Plain(), (PROMPT,), RESOURCES)
STRICT = Surface("strict", "", TOOLS, Strict(), sessions="required", handshake=True, sse=False)
NOTES = Surface("notes", "", TOOLS, Plain())
CAIRN = Surface("cairn", "", TOOLS, Plain())

if __name__ == "__main__":
    chosen = {"strict": STRICT}.get(Path(sys.argv[-1]).name, ECHO)
    compose.serve_stdio(lambda: Shelf("Main", "Other"), [chosen])
