"""A web site of a few pages that count their visitors and can be made to misbehave."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs


@dataclass(frozen=True)
class Page:
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False  # goes on until the visitor has enough


class Site:
    """Its pages may be changed at any time. `None` is a page that never answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pages: dict[str, Page | None] = {}
        self.visits: Counter[str] = Counter()
        self.encodings: set[str | None] = set()  # that visitors said they understand
        self.forms: list[Mapping[str, list[str]]] = []
        self.closing = threading.Event()

    def put(self, path: str, said: Any, **more: Any) -> None:
        self.pages[path] = Page(json.dumps(said).encode(), **more)


@contextlib.contextmanager
def site() -> Iterator[Site]:
    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            running.visits[self.path] += 1
            running.encodings.add(self.headers["accept-encoding"])
            page = running.pages.get(self.path, Page(b"{}", 404))
            if page is None:
                running.closing.wait(20)
                self.close_connection = True
                return
            self.send_response(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            if not page.endless:
                self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(page.body)
                while page.endless and not running.closing.wait(0.01):
                    self.wfile.write(page.body)
            self.close_connection = page.endless

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            running.forms.append(parse_qs(body.decode()))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            return None

    class Listening(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Listening(("127.0.0.1", 0), Answering)
    running = Site(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield running
    finally:
        running.closing.set()
        server.shutdown()
        thread.join(10)
        server.server_close()
