"""An application that can be replaced by another while requests are under way."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)
RETIRE_SECONDS = 30.0  # that the requests of a replaced application have to end


class ReloadFailed(Exception):
    """The new application could not begin, in its own words; the old one goes on."""


class Replaceable:
    """Hands every request to the application of the moment. Each ends when its last request has ended.

    `leave` is told of an application that is on its way out, and ends those of its requests that would not end by
    themselves.
    """

    def __init__(
        self,
        first: Starlette,
        *,
        leave: Callable[[Starlette], object] = lambda app: None,
        patience: float = RETIRE_SECONDS,
    ) -> None:
        self._now = _Life(first)
        self._leave = leave
        self._patience = patience
        self._one_at_a_time = asyncio.Lock()
        self._retiring: dict[asyncio.Task[None], _Life] = {}

    @property
    def app(self) -> Starlette:
        """The application of the moment."""
        return self._now.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        life = self._now  # once taken, a request keeps to it
        await life.answer(scope, receive, send)

    async def replace(self, new: Starlette) -> None:
        """Begin with the new application; the old one ends by and by. ReloadFailed, and all stays, if it cannot."""
        async with self._one_at_a_time:
            life = _Life(new)
            await life.begin()
            old, self._now = self._now, life
            self._leave(old.app)
            retiring = asyncio.create_task(old.end(self._patience))
            self._retiring[retiring] = old
            retiring.add_done_callback(self._retiring.pop)

    def leave(self) -> None:
        """Everything is on its way out."""
        for life in (self._now, *self._retiring.values()):
            self._leave(life.app)

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan of the server that we are in."""
        await receive()
        try:
            await self._now.begin()
        except ReloadFailed as failed:
            return await send({"type": "lifespan.startup.failed", "message": str(failed)})
        await send({"type": "lifespan.startup.complete"})
        await receive()
        async with self._one_at_a_time:
            await asyncio.gather(*self._retiring)
            await self._now.end(self._patience)
        await send({"type": "lifespan.shutdown.complete"})


class _Life:
    """One application from its beginning to its end, both in one task: what it enters there it must leave there."""

    def __init__(self, app: Starlette) -> None:
        self.app = app
        self._requests: set[asyncio.Task[Any]] = set()
        self._ending = asyncio.Event()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            await self.app(scope, receive, send)
        finally:
            self._requests.discard(task)

    async def begin(self) -> None:
        """Its lifespan has begun; ReloadFailed if it could not."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(begun))
        await begun

    async def end(self, patience: float) -> None:
        """When its requests have ended, or by force."""
        late = set(self._requests)
        if late:
            _, late = await asyncio.wait(late, timeout=patience)
        for request in late:
            request.cancel()
        if late:
            log.warning("%d requests did not end in time and were ended", len(late))
            await asyncio.wait(late, timeout=1)
        self._ending.set()
        await self._task

    async def _run(self, begun: "asyncio.Future[None]") -> None:
        try:
            async with self.app.router.lifespan_context(self.app):
                begun.set_result(None)
                await self._ending.wait()
        except Exception as error:
            if begun.done():
                log.error("an application did not end well", exc_info=error)
            else:
                begun.set_exception(ReloadFailed(f"{type(error).__name__}: {error}"))
