"""A server in a thread of this process."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn


@contextlib.contextmanager
def in_thread(server: uvicorn.Server, door: socket.socket | None = None) -> Iterator[int]:
    """The port at which it answers, until the end of the block. Who comes before it has started waits."""
    with door or socket.create_server(("127.0.0.1", 0), backlog=512) as door:
        thread = threading.Thread(target=server.run, args=([door],))
        thread.start()
        try:
            yield door.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
