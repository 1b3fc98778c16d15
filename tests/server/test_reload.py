"""Replacing an application while it answers."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.server.listener import listening_to, until

from notewright.server.listen.reload import ReloadFailed, Replaceable


class Site:
    """An application with a name, whose task group is entered and left in its lifespan."""

    def __init__(self, name: str, *, broken: bool = False) -> None:
        self.name = name
        self.broken = broken
        self.let = asyncio.Event()
        self.left = False
        self.lived: list[str] = []
        routes = [Route("/", self.answer), Route("/slow", self.slow)]
        self.app = Starlette(routes=routes, lifespan=self.lifespan)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.broken:
            raise ValueError("no such folder")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            self.lived.append("begun")
            yield
            group.cancel_scope.cancel()
        self.lived.append("ended")

    async def answer(self, _: Request) -> PlainTextResponse:
        return PlainTextResponse(self.name)

    async def slow(self, _: Request) -> PlainTextResponse:
        self.lived.append("slow")
        await self.let.wait()
        return PlainTextResponse(f"slow {self.name}")


def leave(app: Starlette) -> None:
    app.state.leave()


@contextlib.asynccontextmanager
async def alive(site: Replaceable) -> AsyncIterator[Callable[[str], Coroutine[Any, Any, str]]]:
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


def test_new_requests_go_to_the_new_one_and_the_old_one_ends_after_its_last() -> None:
    async def test() -> None:
        old, new = Site("old"), Site("new")
        site = Replaceable(old.app)
        async with alive(site) as ask:
            assert await ask("/") == "old"
            slow = asyncio.create_task(ask("/slow"))
            await soon(lambda: "slow" in old.lived)
            await site.replace(new.app)
            assert await ask("/") == "new"
            assert "ended" not in old.lived
            old.let.set()
            assert await slow == "slow old"
            await soon(lambda: "ended" in old.lived)
            assert site.app is new.app
        assert new.lived == ["begun", "ended"]

    run(test())


def test_one_that_cannot_begin_changes_nothing() -> None:
    async def test() -> None:
        old = Site("old")
        site = Replaceable(old.app)
        async with alive(site) as ask:
            with pytest.raises(ReloadFailed, match="no such folder"):
                await site.replace(Site("new", broken=True).app)
            assert await ask("/") == "old" and old.lived == ["begun"]

    run(test())


def test_requests_that_do_not_end_are_ended_after_a_while() -> None:
    async def test() -> None:
        old = Site("old")
        site = Replaceable(old.app, patience=0.05)
        async with alive(site) as ask:
            slow = asyncio.create_task(ask("/slow"))
            await soon(lambda: "slow" in old.lived)
            await site.replace(Site("new").app)
            await soon(lambda: "ended" in old.lived)
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert await ask("/") == "new"

    run(test())


def test_who_is_on_the_way_out_is_told_so_that_streams_end() -> None:
    async def test() -> None:
        old, new = Site("old"), Site("new")
        old.app.state.leave, new.app.state.leave = old.let.set, new.let.set
        site = Replaceable(old.app, leave=leave)
        async with alive(site) as ask:
            stream = asyncio.create_task(ask("/slow"))
            await soon(lambda: "slow" in old.lived)
            await site.replace(new.app)
            assert await stream == "slow old"
            assert not new.let.is_set()
            site.leave()
            assert new.let.is_set()

    run(test())


def test_many_replacements_one_after_the_other_leave_only_the_last() -> None:
    async def test() -> None:
        sites = [Site(str(number)) for number in range(20)]
        site = Replaceable(sites[0].app)
        async with alive(site) as ask:
            await asyncio.gather(*(site.replace(one.app) for one in sites[1:]))
            assert await ask("/") == "19"
            await soon(lambda: all(one.lived[-1] == "ended" for one in sites[:-1]))
            assert sites[-1].lived == ["begun"]

    run(test())


def test_a_first_one_that_cannot_begin_is_told_to_the_server() -> None:
    async def test() -> None:
        site = Replaceable(Site("first", broken=True).app)
        heard = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))
        told: list[dict[str, Any]] = []

        async def receive() -> Any:
            return next(heard)

        async def send(message: Any) -> None:
            told.append(message)

        await site({"type": "lifespan", "state": {}}, receive, send)
        assert told[0]["type"] == "lifespan.startup.failed" and "no such folder" in told[0]["message"]

    run(test())


@pytest.mark.slow
def test_under_load_no_request_is_lost_while_applications_come_and_go() -> None:
    """Real sockets: every request has an answer, of the old one or of the new one."""
    loops: list[asyncio.AbstractEventLoop] = []
    site: Replaceable = Replaceable(Site("0").app)

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
        assert until(lambda: len(answers) > 3)
        for number in range(1, 30):
            replacing = site.replace(Site(str(number)).app)
            asyncio.run_coroutine_threadsafe(replacing, loops[0]).result(60)
            before = len(answers)
            assert until(lambda: len(answers) > before)  # noqa: B023  (called at once)
        stop.set()
        for thread in threads:
            thread.join(60)
    assert len(answers) > 30 and "" not in answers
    assert all(answer.isdigit() for answer in answers)
