"""Workers of a bare application, for the tests of what looks after them: `python team.py PLAN FOLDER`.

Says its port on the first line. Every worker tells its number and process id to whoever asks; in FOLDER each start
leaves a line, and so does each SIGHUP.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from notewright.server.listen import supervisor

PLAN, FOLDER = sys.argv[1], Path(sys.argv[2])


class App:
    def __init__(self, slot: supervisor.WorkerSlot) -> None:
        self.told = f"{slot.number} {os.getpid()}".encode()
        self.turn, self.waiting = asyncio.Lock(), 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, note, "again")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
            await send({"type": "lifespan.startup.complete"})
            note("begun")
            await receive()
            return await send({"type": "lifespan.shutdown.complete"})
        if scope["path"] == "/slow":
            note("slow")
            await asyncio.sleep(0.7)
        if scope["path"] == "/in-line":
            self.waiting += 1
            async with self.turn:
                self.waiting -= 1
                await asyncio.sleep(0.05)
        if scope["path"] == "/hang":
            note("hang")
            time.sleep(60)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": self.told})


def note(what: str) -> None:
    with (FOLDER / what).open("a") as file:
        file.write(f"{os.getpid()}\n")


def work(slot: supervisor.WorkerSlot) -> int:
    if PLAN == "broken" or (PLAN == "half" and slot.number == 1):
        note("tried")
        raise ValueError("the disk is on fire")
    import uvicorn

    from notewright.server.listen import uvicorn_server

    app = App(slot)
    if PLAN == "line":
        uvicorn_server.HOLD_SECONDS = 600.0  # however slow this machine is
    config = uvicorn.Config(app, **uvicorn_server.settings())
    server = uvicorn_server.Server(config, slot=slot, behind=lambda: app.waiting > 0)
    server.run([door])
    return 0 if server.started else 1


if __name__ == "__main__":
    door = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(door.getsockname()[1], flush=True)
    code = supervisor.Supervisor(2, work, sockets=[door], patience=3 if PLAN == "hasty" else 20).run()
    heavy = {"uvicorn", "starlette", "mcp", "asyncio", "uvloop"} & set(sys.modules) - {"asyncio"}
    print("heavy:", *sorted(heavy), flush=True)
    sys.exit(code)
