"""All surfaces over HTTP in a thread of this process: real requests, without the wait for another Python."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial

import uvicorn

from notewright import app
from notewright.config import SURFACES, Config
from notewright.opening import open_library


@contextlib.contextmanager
def on_the_web(config: Config) -> Iterator[str]:
    """The address at which every surface is served, until the end of the block."""
    surfaces = [app.surface_named(name, config) for name in SURFACES]
    web = app.http_app(partial(open_library, config), surfaces)
    server = uvicorn.Server(uvicorn.Config(web, log_level="error", timeout_graceful_shutdown=5))
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
