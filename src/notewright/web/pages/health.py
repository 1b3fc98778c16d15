"""What `check` finds in a workspace, and how far its index is.

A check reads every note and may take long: it runs in a thread of its own, a page waits a little for it and then shows
what was found last.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.responses import Response

from notewright.api.workspaces import count_notes
from notewright.engine.check import Finding
from notewright.engine.check import check as check_workspace
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import Internal, Problem
from notewright.web.frame import PageRequest

log = logging.getLogger(__name__)

FRESH_SECONDS = 60.0  # seconds
WAIT_SECONDS = 1.5  # seconds a page waits
MAX_EACH = 500  # findings of one kind
MAX_KEPT = 64  # results, of workspaces as somebody may see them
MAX_RUNNING = 2
KINDS = {
    "broken_link": "Links that lead nowhere",
    "ambiguous_link": "Links that could mean several notes",
    "name": "Names that do not travel to every system",
    "twin": "Names that differ only in case or accents' form",
    "alias": "Aliases that several notes claim",
    "content": "Notes that can be read only in part",
    "index": "Where the index differs from the files",
    "file": "Files that cannot be served",
}


@dataclass(frozen=True, slots=True)
class Result:
    at: float
    groups: tuple["FindingGroup", ...] = ()
    problem: Problem | None = None


FindingGroup = tuple[str, int, list[Finding]]  # what they are, how many, and the first of them


def group_findings(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    kinds: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    every = ((KINDS.get(kind, kind.replace("_", " ")), found) for kind, found in kinds.items() if found)
    return tuple((words, len(found), found[:MAX_EACH]) for words, found in every)


class Checks:
    """Checks of workspaces, one for each set of access rules. Results are cached, and few run at once. Any thread may
    call."""

    def __init__(self, check: Callable[[Workspace], list[Finding]] = check_workspace) -> None:
        self._check = check
        self._lock = threading.Lock()
        self._results: OrderedDict[object, Result] = OrderedDict()
        self._running: dict[object, tuple[float, threading.Event]] = {}  # since when, and set when it has ended

    def latest_result(self, ws: Workspace, key: object) -> tuple[Result | None, float | None]:
        """The latest result, and when the running check began, if there is one."""
        with self._lock:
            result, run = self._results.get(key), self._running.get(key)
            fresh = result is not None and time.time() - result.at < FRESH_SECONDS
            if run is None and not fresh and len(self._running) < MAX_RUNNING:
                run = self._running[key] = time.time(), threading.Event()
                threading.Thread(target=self._run, args=(ws, key, run[1]), name="check", daemon=True).start()
        if run is None:
            return result, None if fresh else time.time()
        begun, done = run
        ended = done.wait(WAIT_SECONDS)
        with self._lock:
            return self._results.get(key, result), None if ended else begun

    def _run(self, ws: Workspace, key: object, done: threading.Event) -> None:
        try:
            result = Result(time.time(), group_findings(self._check(ws)))
        except Problem as problem:
            result = Result(time.time(), problem=problem)
        except Exception:  # as when the workspace is closed meanwhile
            log.exception("a check failed")
            result = Result(time.time(), problem=Internal("the check failed", hint="the log says why"))
        with self._lock:
            del self._running[key]
            self._results[key] = result
            self._results.move_to_end(key)
            while len(self._results) > MAX_KEPT:
                self._results.popitem(last=False)
        done.set()


def health(checks: Checks, request: PageRequest) -> Response:
    ws = request.ws
    result, since = checks.latest_result(ws, (ws.id, id(ws.ledger), ws.access.hide))
    progress = ws.follower.progress()
    return request.page(
        "health.html",
        result=result,
        since=since,
        progress=progress,
        share=round(100 * progress.done / progress.total) if progress.total else None,
        notes=count_notes(with_timeout(ws, 0.5)),
    )
