"""Clients that go away before their answer comes."""

import asyncio
import threading

from starlette.types import Receive

LOOK_SECONDS = 0.02  # after which a call is long enough to ask whether anybody still waits for it


class Leaving:
    """Sets `gone` when the client has gone, until it is ended. Most calls end before that is worth a look."""

    def __init__(self, receive: Receive, gone: threading.Event) -> None:
        self._receive = receive
        self._gone = gone
        self._watching: asyncio.Task[None] | None = None
        self._soon = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def end(self) -> None:
        self._soon.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _look(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
