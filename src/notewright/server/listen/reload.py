"""An application that can be replaced by another while requests are under way."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, MutableMapping
from typing import Any, Generic, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)
PATIENCE = 30.0  # seconds that the requests of a replaced application have to end

App = TypeVar("App", bound=ASGIApp)


class ReloadFailed(Exception):
    """The new application could not begin, in its own words; the old one goes on."""


class Replaceable(Generic[App]):
    """Hands every request to the application of the moment. Each ends when its last request has ended.

    `leave` is told of an application that is on its way out, and ends those of its requests that would not end by
    themselves.
    """

    def __init__(
        self, first: App, *, leave: Callable[[App], object] = lambda app: None, patience: float = PATIENCE
    ) -> None:
        self._now = _Life(first)
        self._leave = leave
        self._patience = patience
        self._one_at_a_time = asyncio.Lock()
        self._retiring: dict[asyncio.Task[None], _Life[App]] = {}

    @property
    def app(self) -> App:
        """The application of the moment."""
        return self._now.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        life = self._now  # once taken, a request keeps to it
        await life.answer(scope, receive, send)

    async def replace(self, new: App) -> None:
        """Begin with the new application; the old one ends by and by. Failed, and all stays as it was, if it cannot."""
        async with self._one_at_a_time:
            life = _Life(new)
            await life.begin()
            old, self._now = self._now, life
            self._leave(old.app)
            retiring = asyncio.create_task(old.end(self._patience))
            self._retiring[retiring] = old
            retiring.add_done_callback(self._retired)

    def leave(self) -> None:
        """Everything is on its way out."""
        for life in (self._now, *self._retiring.values()):
            self._leave(life.app)

    def _retired(self, task: "asyncio.Task[None]") -> None:
        del self._retiring[task]
        if not task.cancelled() and task.exception() is not None:
            log.error("a replaced application did not end well", exc_info=task.exception())

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
            await asyncio.gather(*self._retiring, return_exceptions=True)
            await self._now.end(self._patience)
        await send({"type": "lifespan.shutdown.complete"})


class _Life(Generic[App]):
    """One application from its beginning to its end, both in one task: what it enters there it must leave there."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._requests: set[asyncio.Task[Any]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._state: MutableMapping[str, Any] = {}
        self._task: asyncio.Task[None] | None = None

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        self._quiet.clear()
        try:
            await self.app({**scope, "state": dict(self._state)}, receive, send)
        finally:
            self._requests.discard(task)
            if not self._requests:
                self._quiet.set()

    async def begin(self) -> None:
        """Its lifespan has begun; Failed if it could not."""
        self._ending = asyncio.Event()
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(begun))
        await begun

    async def end(self, patience: float) -> None:
        """When its requests have ended, or by force."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._quiet.wait()
        for request in list(self._requests):
            request.cancel()
        if self._requests:
            log.warning("%d requests did not end in time and were ended", len(self._requests))
            await asyncio.wait(set(self._requests), timeout=1)
        if self._task is not None:
            self._ending.set()
            await self._task

    async def _run(self, begun: "asyncio.Future[None]") -> None:
        heard = iter(("lifespan.startup", "lifespan.shutdown"))

        async def receive() -> MutableMapping[str, Any]:
            said = next(heard)
            if said == "lifespan.shutdown":
                await self._ending.wait()
            return {"type": said}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "lifespan.startup.complete":
                begun.set_result(None)
            elif message["type"] == "lifespan.startup.failed":
                begun.set_exception(ReloadFailed(message.get("message") or "the application could not begin"))
            elif message["type"] == "lifespan.shutdown.failed":
                log.error("an application did not end well: %s", message.get("message", ""))

        try:
            await self.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}, receive, send)
        except Exception as error:
            if begun.done():
                log.error("an application did not end well", exc_info=error)
            else:
                begun.set_exception(ReloadFailed(f"{type(error).__name__}: {error}"))
        finally:
            if not begun.done():
                begun.set_exception(ReloadFailed("the application knows no lifespan"))
