"""SIGHUP while the configuration is being read: what was written meanwhile is read too."""

import asyncio

import pytest
import uvicorn

from notewright.server.listen import supervisor
from notewright.server.listen.uvicorn_server import Server


def test_who_asks_while_the_configuration_is_read_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "is_terminal_gone", lambda: False)
    written, read = ["first"], []

    async def scenario() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def again() -> None:
            read.append(written[-1])
            begun.set()
            await go.wait()

        async def nobody(scope: object, receive: object, send: object) -> None: ...

        server = Server(uvicorn.Config(nobody), reload=again)
        server.hang_up()
        await begun.wait()
        written.append("second")
        server.hang_up()
        server.hang_up()
        go.set()
        assert server._reloading is not None
        await server._reloading

    asyncio.run(scenario())
    assert read == ["first", "second"]
