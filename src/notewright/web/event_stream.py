"""The activity as it happens: a stream of server-sent events for every page that is open.

Changes are made by many processes, so the histories themselves are watched: a number that tells whether anything was
written is read twice a second, and only while somebody listens. A stream may tell of a change again that its page has
already: rows have names, and the page knows them.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from notewright.engine.changes.history import find_change, list_changes
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.server.site_context import SiteContext
from notewright.surfaces.http_status import STATUS
from notewright.web.frame import HEADERS, render
from notewright.web.pages.activity import ActivityRow, Filter

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5  # seconds between two checks of the histories
HEARTBEAT_SECONDS = 15.0
MAX_STREAM_SECONDS = 600.0  # seconds of one stream: then the browser reconnects, and is authenticated again
MAX_STREAMS = 64
MAX_NEWS = 100  # changes sent at once; of more only that there are more
FIRST_LOOK = 10
MAX_UPDATES = 50
UNBUFFERED = HEADERS | {"X-Accel-Buffering": "no"}
LATE_SECONDS = 10.0  # seconds by which the time of a change may precede its end


@dataclass(eq=False)
class OpenPage:
    """The filter of one open page, and the changes that it has."""

    library: Library
    chosen: Filter
    after: float | None  # the time of the newest change it has; None: send only later ones
    known: dict[str, set[str]] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)  # by anything that was written

    def collect_events(self) -> list[str]:
        """The events for all changes since the last call."""
        workspaces = self.library.workspaces()
        found = [row for ws in self.chosen.select_workspaces(workspaces) for row in self._unseen_rows(ws)]
        if len(found) > MAX_NEWS:
            return [_format_event("many", {"said": f"More than {MAX_NEWS} changes at once"})]
        several = len(workspaces) > 1
        found.sort(key=lambda row: row.change.at)
        return [text for row in found for text in _events_of_row(row, several)]

    def _unseen_rows(self, ws: Workspace) -> list[ActivityRow]:
        """The changes above the newest known one. Usually one or two: only FIRST_LOOK are read at first."""
        known = self.known.get(ws.id)
        for limit in (FIRST_LOOK, MAX_NEWS + 1):
            newest = [ActivityRow(ws, change) for change in list_changes(ws, self.chosen.history_query(ws, limit))]
            new = list(takewhile(lambda row: not self._is_known(row, known), newest))
            if len(new) < limit:
                break
        self.known[ws.id] = {row.change.id for row in newest}
        return new

    def _is_known(self, row: ActivityRow, known: set[str] | None) -> bool:
        """Whether the page has this row; at first, whether it was rendered with it."""
        if known is not None:
            return row.change.id in known
        return self.after is None or row.change.at <= self.after - LATE_SECONDS


def _events_of_row(row: ActivityRow, several: bool) -> Iterator[str]:
    yield _format_event("change", _row_to_json(row, several), row.change.at)
    for old in _rows_changed_by_undo(row.ws, row.change.undoes):
        yield _format_event("update", _row_to_json(old, several))


def _rows_changed_by_undo(ws: Workspace, names: Iterable[str], deep: bool = True) -> Iterator[ActivityRow]:
    """The rows that an undo changes: those of the changes it took back, and of those it restored."""
    for name in list(names)[:MAX_UPDATES]:
        try:
            change = find_change(ws, name)
        except Problem:
            continue
        yield ActivityRow(ws, change)
        if deep:
            yield from _rows_changed_by_undo(ws, change.undoes, deep=False)


def _row_to_json(row: ActivityRow, several: bool) -> dict[str, str]:
    who = row.change.actor.client or row.change.actor.user or "somebody"
    return {
        "key": row.key,
        "html": render("row.html", row=row, several=several),
        "said": f"{who}: {row.change.summary}",
    }


def _format_event(kind: str, value: dict[str, str], at: float | None = None) -> str:
    place = f"id: {at!r}\n" if at is not None else ""
    return f"{place}event: {kind}\ndata: {json.dumps(value)}\n\n"


class ActivityFeed:
    """The open streams. Used on the event loop only; `close` ends them all."""

    def __init__(self, site: SiteContext) -> None:
        self._library, self._workers, self._registry = site.library, site.workers, site.registry
        self._open: set[OpenPage] = set()
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    def respond_with_stream(self, page: OpenPage) -> ASGIApp:
        """A stream for one page; an error for a stream too many, or an invalid filter."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if self._closed or len(self._open) >= MAX_STREAMS:
                full = Response("Too many pages are open", 503, UNBUFFERED | {"Retry-After": "30"}, "text/plain")
                return await full(scope, receive, send)
            self._open.add(page)
            try:  # its place is given back even if its client goes before it begins
                response = await self._start_response(page)
                await response(scope, receive, send)
            finally:
                self._open.remove(page)

        return answer

    async def _start_response(self, page: OpenPage) -> Response:
        rules = self._registry.data_version()  # before anything is waited for: they were let in by these
        try:
            first_events = await self._workers.run(page.collect_events)  # what happened since the page was made
        except Problem as problem:
            return Response(str(problem), STATUS[problem.code], UNBUFFERED, "text/plain")
        return StreamingResponse(self._events(page, rules, first_events), 200, UNBUFFERED, "text/event-stream")

    def close(self) -> None:
        self._closed = True
        for page in self._open:
            page.woken.set()

    async def _events(self, page: OpenPage, rules: int, first_events: list[str]) -> AsyncIterator[str]:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            end = time.monotonic() + MAX_STREAM_SECONDS
            page.woken.set()  # for what was made since the first events
            yield "".join(["retry: 1000\n: here we are\n\n", *first_events])
            while time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(page.woken.wait(), HEARTBEAT_SECONDS)
                if self._closed or self._registry.data_version() != rules:
                    return  # somebody may have lost a right: whoever still has it comes again
                has_news = page.woken.is_set()
                page.woken.clear()
                yield "".join(await self._workers.run(page.collect_events)) if has_news else ": still here\n\n"
        except Problem as problem:  # the browser comes again
            log.debug("a stream of changes ended: %s", problem)

    async def _watch(self) -> None:
        """Poll the histories and wake the streams after a change, as long as there are streams."""
        seen: dict[str, int] = {}
        while self._open and not self._closed:
            try:
                now = await self._workers.run(self._write_counters)
            except Exception:  # a workspace was just closed, or everybody is busy
                log.debug("the histories could not be watched", exc_info=True)
                now = seen
            if now != seen:
                for page in self._open:
                    page.woken.set()
            seen = now
            await asyncio.sleep(POLL_SECONDS)

    def _write_counters(self) -> dict[str, int]:
        versions = {ws.id: ws.ledger.data_version() for ws in self._library.workspaces()}
        return versions | {"": self._registry.data_version()}
