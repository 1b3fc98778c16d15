"""Replacing an application while it answers."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.server.listener import listening_to
from tests.waiting import until

from notewright.server.listen.uvicorn_server import ReplaceableApp


class Site:
    """An application with a name, whose slow request ends when it is let."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.let = asyncio.Event()
        self.left = False
        self.lived: list[str] = []
        routes = [Route("/", self.answer), Route("/slow", self.slow)]
        self.app = Starlette(routes=routes, lifespan=self.lifespan)
        self.app.state.end_streams = self.leave

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.lived.append("begun")
        yield
        self.lived.append("ended")

    def leave(self) -> None:
        self.left = True

    async def answer(self, _: Request) -> PlainTextResponse:
        return PlainTextResponse(self.name)

    async def slow(self, _: Request) -> PlainTextResponse:
        self.lived.append("slow")
        await self.let.wait()
        return PlainTextResponse(f"slow {self.name}")


@contextlib.asynccontextmanager
async def alive(site: ReplaceableApp) -> AsyncIterator[Callable[[str], Coroutine[Any, Any, str]]]:
    """The site with its lifespan running, and a way to ask it."""
    told: asyncio.Queue[str] = asyncio.Queue()
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(message: Any) -> None:
        await told.put(message["type"])

    life = asyncio.create_task(site({"type": "lifespan", "state": {}}, heard.get, send))
    await heard.put({"type": "lifespan.startup"})
    assert await told.get() == "lifespan.startup.complete"
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(site), base_url="http://here")

    async def ask(path: str) -> str:
        return (await client.get(path)).text

    try:
        yield ask
    finally:
        await client.aclose()
        await heard.put({"type": "lifespan.shutdown"})
        assert await told.get() == "lifespan.shutdown.complete"
        await life


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def soon(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


def test_new_requests_go_to_the_new_one_and_the_old_one_answers_those_it_has() -> None:
    async def test() -> None:
        old, new = Site("old"), Site("new")
        site = ReplaceableApp(old.app)
        async with alive(site) as ask:
            assert await ask("/") == "old"
            slow = asyncio.create_task(ask("/slow"))
            await soon(lambda: "slow" in old.lived)
            site.replace(new.app)
            assert await ask("/") == "new"
            old.let.set()
            assert await slow == "slow old"
            assert site.app is new.app
            assert old.lived == ["begun", "slow"], "its lifespan is that of all"
        assert old.lived == ["begun", "slow", "ended"] and new.lived == []

    run(test())


def test_who_is_on_the_way_out_is_told_so_that_streams_end() -> None:
    async def test() -> None:
        old, new = Site("old"), Site("new")
        site = ReplaceableApp(old.app)
        async with alive(site):
            site.replace(new.app)
            assert old.left and not new.left
            site.end_streams()
            assert new.left

    run(test())


@pytest.mark.slow
def test_under_load_no_request_is_lost_while_applications_come_and_go() -> None:
    """Real sockets: every request has an answer, of the old one or of the new one."""
    loops: list[asyncio.AbstractEventLoop] = []
    site: ReplaceableApp = ReplaceableApp(Site("0").app)

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        if not loops:
            loops.append(asyncio.get_running_loop())
        await site(scope, receive, send)

    answers: list[str] = []
    stop = threading.Event()

    def ask(port: int) -> None:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while not stop.is_set():
                answers.append(client.get("/").text)

    with listening_to(noted) as port:
        threads = [threading.Thread(target=ask, args=(port,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) > 3)
        for number in range(1, 30):
            loops[0].call_soon_threadsafe(site.replace, Site(str(number)).app)
            before = len(answers)
            until(lambda: len(answers) > before)  # noqa: B023  (called at once)
        stop.set()
        for thread in threads:
            thread.join(60)
    assert len(answers) > 30 and "" not in answers
    assert all(answer.isdigit() for answer in answers)
