"""SIGHUP while the configuration is being read: what was written meanwhile is read too."""

import asyncio

import pytest
import uvicorn

from notewright.app.compose_http import ReloadingServer
from notewright.server.listen import supervisor


def test_who_asks_while_the_configuration_is_read_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "terminal_gone", lambda: False)
    written, read = ["first"], []

    async def scenario() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def again() -> None:
            read.append(written[-1])
            begun.set()
            await go.wait()

        async def nobody(scope: object, receive: object, send: object) -> None: ...

        server = ReloadingServer(uvicorn.Config(nobody))
        server.again = again
        server._hang_up()
        await begun.wait()
        written.append("second")
        server._hang_up()
        server._hang_up()
        go.set()
        assert server._reading is not None
        await server._reading

    asyncio.run(scenario())
    assert read == ["first", "second"]
