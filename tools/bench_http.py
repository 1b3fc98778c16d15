"""Calls over HTTP: the rows, what they are compared with, and the servers of both.

`bench_http.py bare N` and `bench_http.py noop N FOLDER` serve with N processes until they are told to stop. The load
comes from wrk, which needs so little of a processor that on a small machine the server has the rest.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench_client import NOTEWRIGHT, PYTHON, Refused
from bench_references import Bench, Sampler, until_answered
from bench_rows import IN_FLIGHT, Row, of_notes

HERE = str(Path(__file__).resolve())
SECONDS = 1  # of one sample: the least that wrk knows
PER_SECOND = "/s"
SCRIPT = """
wrk.method = "POST"
%s
local asked = {%s}
local turn = 0
request = function()
  turn = turn %% #asked + 1
  return wrk.format(nil, nil, nil, asked[turn])
end
"""
Call = tuple[str, dict[str, Any]]  # a tool and its arguments
NOTHING: Sequence[Call] = [("noop", {})]


class Site:
    """A server process with its workers, and a session there."""

    def __init__(self, *command: str) -> None:
        self.scripts = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        told = next((line for line in self.process.stderr if "/mcp/notes" in line), "")
        self.address = told.split()[-1] if told else ""
        self.headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if not self.address:
            self.__exit__()
            raise Refused("nothing is served over HTTP")

    def __enter__(self) -> "Site":
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        _, told = self._post("initialize", about)
        self.headers |= {name: value for name, value in told.items() if name.lower() == "mcp-session-id"}
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self.scripts.cleanup()

    def until_idle(self, seconds: float = 60) -> None:
        """Wait until every worker has begun: one that is not there yet gets none of the connections."""
        end, before = time.monotonic() + seconds, -1
        while (worked := sum(map(_ticks, _family(self.process.pid)))) != before and time.monotonic() < end:
            before = worked
            time.sleep(0.3)

    def call(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's answer; Refused where it is an error."""
        answer, _ = self._post("tools/call", {"name": tool, "arguments": arguments})
        result = answer.get("result", {"isError": True, "content": [{"text": str(answer)}]})
        if result.get("isError"):
            raise Refused(result["content"][0]["text"])
        return str(result["content"][0]["text"])

    def _post(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        asked = urllib.request.Request(self.address, _message(method, params).encode(), self.headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer), dict(answer.headers)

    def sampler(self, calls: Sequence[Call]) -> Sampler:
        """Calls a second with some in flight, one after the other of these; each is tried before."""
        for tool, arguments in calls:
            self.call(tool, **arguments)
        bodies = ", ".join(_lua(_message("tools/call", {"name": tool, "arguments": args})) for tool, args in calls)
        headers = "\n".join(f'wrk.headers["{name}"] = {_lua(value)}' for name, value in self.headers.items())
        script = Path(self.scripts.name) / f"{len(list(Path(self.scripts.name).iterdir()))}.lua"
        script.write_text(SCRIPT % (headers, bodies), encoding="utf-8")
        return lambda: _rate(script, self.address)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def _message(method: str, params: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def _lua(text: str) -> str:
    return f"[==[{text}]==]"


def _rate(script: Path, address: str) -> float:
    asked = ("wrk", "-t1", f"-c{IN_FLIGHT}", f"-d{SECONDS}", "-s", str(script), address)
    told = subprocess.run(asked, capture_output=True, text=True).stdout
    found = re.search(r"Requests/sec:\s+([\d.]+)", told)
    wrong = re.search(r"Non-2xx.*|Socket errors.*", told)
    if found is None or wrong is not None:
        raise Refused(wrong[0] if wrong else "wrk said nothing")
    return float(found[1])


def site(bench: Bench, kind: str, processes: int) -> Site:
    """The server of this kind, started when it is first asked for."""
    if (kind, processes) not in bench.sites:
        place = bench.state.parent / f"{bench.state.name}-{kind}-{processes}"
        ours = (NOTEWRIGHT, "serve", f"Bench={bench.vault}", "--state", str(bench.state), "--no-rate-limits")
        command = {
            "bare": (PYTHON, HERE, "bare", str(processes)),
            "noop": (PYTHON, HERE, "noop", str(processes), str(place)),
            "ours": (*ours, "--http", "0", "--workers", str(processes)),
        }[kind]
        begun = bench.sites[kind, processes] = bench.closing.enter_context(Site(*command))
        if kind == "ours":
            until_answered(lambda: begun.call("search", query="anything"))
        begun.until_idle()
    return bench.sites[kind, processes]


# ---- what is measured ---------------------------------------------------------------------------------


def of(kind: str, processes: int, calls: Callable[[Bench], Sequence[Call]]) -> Callable[[Bench], Sampler]:
    return lambda bench: site(bench, kind, processes).sampler(calls(bench))


def growth(kind: str, calls: Callable[[Bench], Sequence[Call]]) -> Callable[[Bench], Sampler]:
    """How many times more calls a second with two workers than with one."""

    def prepared(bench: Bench) -> Sampler:
        asked = calls(bench)
        one, two = (site(bench, kind, processes).sampler(asked) for processes in (1, 2))
        return lambda: two() / one()

    return prepared


def reading(bench: Bench) -> Sequence[Call]:
    return [("read", given) for given in of_notes()(bench)]


def searching(bench: Bench) -> Sequence[Call]:
    return [("search", {"query": word}) for word in bench.rare]


def rows(what: str, kind: str, calls: Callable[[Bench], Sequence[Call]], sizes: tuple[int, ...]) -> list[Row]:
    """With one worker, with two, and what the second brings."""
    told: dict[str, Any] = {"rounds": 3, "sizes": sizes, "at_least": True}
    counted = [
        Row(f"over HTTP: {what}, {workers}", of(kind, number, calls), (f"bare × {number}",), unit=PER_SECOND, **told)
        for number, workers in ((1, "one worker"), (2, "two workers"))
    ]
    more = Row(f"over HTTP: {what}, two workers for one", growth(kind, calls), (), "≥ 1.5 ×", lambda known: 1.5,
               unit="×", **told)  # fmt: skip
    return [*counted, more]


HTTP_REFERENCES: dict[str, Callable[[Bench], Sampler]] = {
    f"bare × {number}": of("bare", number, lambda bench: NOTHING) for number in (1, 2)
}
HTTP_ROWS = (
    *rows("a tool that does nothing", "noop", lambda bench: NOTHING, (1_000,)),
    *rows("read a note", "ours", reading, (1_000, 10_000)),
    *rows("search, a rare word", "ours", searching, (1_000, 10_000)),
)


# ---- the servers --------------------------------------------------------------------------------------


def bare(workers: int) -> int:
    """The web framework behind our own listener, with one endpoint that takes JSON apart and answers a little."""
    from notewright.server.listen import supervisor as processes

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp/notes", file=sys.stderr, flush=True)
    if workers > 1:
        return processes.Supervisor(workers, lambda slot: _bare(listener, slot), sockets=[listener]).run()
    return _bare(listener, processes.WorkerSlot())


def _bare(listener: socket.socket, slot: Any) -> int:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from notewright.server.listen import uvicorn_server

    async def answer(request: Request) -> JSONResponse:
        asked = await request.json()
        result = {"content": [{"type": "text", "text": "ok"}], "isError": False}
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    app = Starlette(routes=[Route("/mcp/notes", answer, methods=["POST"])])
    uvicorn_server.Server(uvicorn.Config(app, **uvicorn_server.settings()), slot=slot).run([listener])
    return 0


def noop(workers: int, folder: str) -> int:
    """Our own server, all of it, with one tool that does nothing in the place of those for notes."""
    from notewright.app import compose as app
    from notewright.config.load import CommandLine, load
    from notewright.surfaces.base import Surface, Tool
    from notewright.surfaces.notes.tools import SURFACE

    tool = Tool("noop", "Does nothing.", {"type": "object"}, lambda call, args: "ok", {"readOnlyHint": True})
    nothing = Surface("notes", "", (tool,), SURFACE.style)
    known = app.load_surface
    app.load_surface = lambda name, *more: nothing if name == "notes" else known(name, *more)  # type: ignore[assignment]
    (Path(folder) / "notes").mkdir(parents=True)
    flags = {"state": folder, "http.port": 0, "http.workers": workers, "rate_limits": False}
    return app.serve(load(CommandLine((f"Empty={folder}/notes",), None, flags)))


if __name__ == "__main__":
    sys.exit({"bare": bare, "noop": noop}[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:]))
