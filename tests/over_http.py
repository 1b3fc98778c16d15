"""All surfaces over HTTP in a thread of this process: real requests, without the wait for another Python."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from tests.server.lines import HELLO
from tests.serving import in_thread

from notewright.accounts.sqlite import SqliteAccounts
from notewright.app import compose, compose_http
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.config.load import Config
from notewright.config.settings import SURFACES
from notewright.engine.library import Library
from notewright.surfaces.base import Surface


def http_app(
    opened: Callable[[], Library],
    surfaces: Sequence[Surface],
    config: Config | None = None,
    **settings: Any,
) -> Starlette:
    """Some surfaces over HTTP, as an ASGI application by itself: what is kept is gone with it.

    `settings` are some of the configuration, by their names with `_` for the dot (`http_origins=…`).
    """
    config = config or Config((), "", "")
    values = {**config.values, **{name.replace("_", ".", 1): value for name, value in settings.items()}}
    site = compose_http.Site(replace(config, values=values), SqliteAccounts.in_memory(), opened)

    app = site.build_app(surfaces)
    running = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def open_site(app: Starlette) -> AsyncIterator[None]:
        with site:
            async with running(app):
                yield

    app.router.lifespan_context = open_site
    return app


@contextlib.contextmanager
def on_the_web(config: Config, *, live: bool = False) -> Iterator[str]:
    """The address at which every surface is served, until the end of the block."""
    surfaces = [compose.load_surface(name, config) for name in SURFACES]
    web = http_app(partial(OpenWorkspaces, config, live=live), surfaces)
    server = uvicorn.Server(uvicorn.Config(web, log_level="error", timeout_graceful_shutdown=5))
    with in_thread(server) as port:
        yield f"http://127.0.0.1:{port}"


class Http:
    """Requests to one surface, in a session where it has them."""

    def __init__(self, client: httpx2.Client, surface: str) -> None:
        self.client, self.path, self.numbers = client, f"/mcp/{surface}", itertools.count(1)
        hello = self._post("initialize", HELLO)
        session = hello.headers.get("mcp-session-id")
        client.headers.update({"mcp-session-id": session} if session else {})
        client.post(self.path, json={"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __call__(self, tool: str, /, **args: Any) -> str:
        """The text of an answer that is no refusal."""
        result = self.call(tool, args)["result"]
        assert not result.get("isError"), result
        return str(result["content"][0]["text"])

    def call(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._post("tools/call", {"name": tool, "arguments": args}).json()
        return answer

    def _post(self, method: str, params: dict[str, Any]) -> httpx2.Response:
        asked = {"jsonrpc": "2.0", "id": next(self.numbers), "method": method, "params": params}
        return self.client.post(self.path, json=asked)


@contextlib.contextmanager
def client_of(address: str, surface: str, token: str | None = None) -> Iterator[Http]:
    """A client of one surface at an address."""
    accept = {"accept": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    with httpx2.Client(base_url=address, headers=accept, timeout=60) as client:
        yield Http(client, surface)
