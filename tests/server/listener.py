"""A bare application behind our listener, in a thread of this process, and plain sockets to annoy it with."""

import contextlib
import datetime
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.serving import in_thread

from notewright.config.load import Config
from notewright.server.listen import tls, uvicorn_server
from notewright.server.listen.bounded_protocol import ConnectionLimits
from notewright.server.listen.supervisor import WorkerSlot

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


@dataclass
class Echo:
    """Answers with who came, and the size of what came; `/never` waits for ever, `/early` does not read."""

    calls: int = 0
    gone: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await lifespan(receive, send)
        self.calls += 1
        size = 0
        while scope["path"] != "/early":
            message = await receive()
            if message["type"] == "http.disconnect":
                return self.gone.set()
            size += len(message["body"])
            if not message["more_body"] and scope["path"] != "/never":
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/endless":
            with contextlib.suppress(OSError):
                while not self.gone.is_set():
                    await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        words = f"{scope['client'][0]} {scope['scheme']} {size}"
        await send({"type": "http.response.body", "body": words.encode()})


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def config(**values: Any) -> Config:
    plain = {"http.tls_cert": None, "http.tls_key": None}
    return Config((), "", "", plain | {f"http.{name}": value for name, value in values.items()})


@contextlib.contextmanager
def listening_to(
    app: Any,
    given: Config | None = None,
    limits: ConnectionLimits | None = None,
    slot: WorkerSlot | None = None,
    door: socket.socket | None = None,
    refused: Callable[[int], None] = lambda status: None,
    **more: Any,
) -> Iterator[int]:
    """The port at which an application is served, until the end of the block."""
    told = uvicorn_server.settings(tls.load(given or config())) | {"log_level": "critical"} | more
    server = uvicorn_server.Server(uvicorn.Config(app, **told), limits=limits, slot=slot, refused=refused)
    with in_thread(server, door) as port:
        yield port


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=15)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def heard(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def answer(client: socket.socket, count: int = 1) -> bytes:
    """One answer, or some, of a connection that stays: each of ours is one chunk."""
    told = b""
    while told.count(b"\r\n0\r\n\r\n") < count:
        part = client.recv(65536)
        assert part, told
        told += part
    return told


def ask(port: int, request: bytes = GET) -> bytes:
    with connected(port) as client:
        client.sendall(request)
        return answer(client)


def trickle(client: socket.socket, data: bytes, pause: float) -> bool:
    """Byte by byte; False when the server would have no more of it."""
    client.settimeout(pause)
    for byte in data:
        try:
            client.sendall(bytes((byte,)))
            if not client.recv(1, socket.MSG_PEEK):
                return False
            break
        except TimeoutError:
            continue
        except OSError:
            return False
    client.settimeout(15)
    return True


def certificate(folder: Path, name: str = "localhost") -> tuple[str, str]:
    """A self-made certificate and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(cert_file), str(key_file)
