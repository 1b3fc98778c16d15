"""A server as docs/deploy sets it up: the real program behind the real Caddy or nginx, on loopback."""

import contextlib
import datetime
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.server.lines import NOTEWRIGHT

DEPLOY = Path(__file__).resolve().parent.parent / "docs" / "deploy"
NAME = "notes.example.com"
PATIENCE = 30.0  # seconds, on a machine that has much to do


def program(name: str) -> str:
    """Where a program of Debian's is; some are for administrators only."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if found is None:
        pytest.skip(f"service: {name} is missing")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def replaced(text: str, changes: dict[str, str]) -> str:
    """The example with what differs here; every change must have something to change."""
    for old, new in changes.items():
        assert old in text, f"the example does not say {old!r}"
        text = text.replace(old, new)
    return text


def make_certificate(folder: Path) -> None:
    """`cert.pem` and `key.pem` for the example's name, trusted by nobody else."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    (folder / "cert.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)


@dataclass(frozen=True)
class Site:
    """A server behind a proxy, and how to call it."""

    folder: Path
    server_port: int
    port: int
    token: str
    proxy_log: Path

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.folder / "cert.pem")

    @contextlib.contextmanager
    def client(
        self, token: str | None = None, *, source: str = "127.0.0.1", host: str = NAME
    ) -> Iterator[httpx2.Client]:
        """A client from outside: by the public name, over HTTPS. `source` is the address it comes from."""
        headers = {"host": f"{host}:{self.port}", "accept": "application/json, text/event-stream"}
        headers |= {"authorization": f"Bearer {token}"} if token else {}
        wire = httpx2.HTTPTransport(verify=self.trusting(), local_address=source)
        with httpx2.Client(
            base_url=f"https://127.0.0.1:{self.port}", headers=headers, transport=wire, timeout=PATIENCE
        ) as client:
            yield client

    def audited(self, **wanted: Any) -> list[dict[str, Any]]:
        """Lines of the audit log that say so."""
        file = self.folder / "state" / "state" / "audit.jsonl"
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
        return [line for line in lines if wanted.items() <= line.items()]


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


def call(client: httpx2.Client, tool: str, **args: Any) -> dict[str, Any]:
    """What a tool answers."""
    sent = CALL | {"params": {"name": tool, "arguments": args}}
    answer = client.post("/mcp", json=sent, headers=[("accept", "application/json")], extensions=sni())
    assert answer.status_code == 200, (answer.status_code, answer.text[:500])
    result: dict[str, Any] = answer.json()["result"]
    assert not result.get("isError"), result
    return result


def sni() -> dict[str, Any]:
    return {"sni_hostname": NAME}


def wait_until(ready: Any, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.05)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def running(command: list[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the end of the block, where it must end by SIGTERM."""
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def behind(proxy: str, folder: Path, kind: str = "") -> Iterator[Site]:
    """Notewright as in notewright.toml, with the example of `proxy` in front of it. `kind` is `live:`, or nothing."""
    find = program(proxy)
    notes = folder / "notes"
    notes.mkdir()
    (notes / "Tea.md").write_text("# Tea\n\nSteep it.\n", encoding="utf-8")
    make_certificate(folder)
    server_port, port = free_port(), free_port()
    settings = replaced(
        (DEPLOY / "notewright.toml").read_text(encoding="utf-8"),
        {"/srv/notes": f"{kind}{notes}", "port = 8484": f"port = {server_port}"},
    )
    (folder / "notewright.toml").write_text(settings, encoding="utf-8")
    where = ["--config", str(folder / "notewright.toml"), "--state", str(folder / "state")]
    made = subprocess.run([NOTEWRIGHT, "token", "add", "me", "--json", *where], capture_output=True, check=True)
    site = Site(folder, server_port, port, json.loads(made.stdout)["token"], folder / "access.log")
    with (
        running([NOTEWRIGHT, "serve", *where], folder / "server.log"),
        running(*_PROXIES[proxy](find, site), env=os.environ | {"HOME": str(folder)}),
    ):
        for one in (server_port, port):
            wait_until(lambda one=one: listens(one), f"port {one}")
        yield site


def _caddy(find: str, site: Site) -> tuple[list[str], Path]:
    """Its certificate is ours and its doors are on loopback; everything else as in the example."""
    text = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    text = replaced(
        text,
        {
            "\tservers {": "\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n\tservers {",
            f"\n{NAME} {{": f"\nhttps://{NAME}:{site.port} {{\n\ttls {site.folder}/cert.pem {site.folder}/key.pem",
            "127.0.0.1:8484": f"127.0.0.1:{site.server_port}",
            "\tlog {\n": f"\tlog {{\n\t\toutput file {site.proxy_log}\n",
        },
    )
    (site.folder / "Caddyfile").write_text(text, encoding="utf-8")
    return [
        find,
        "run",
        "--config",
        str(site.folder / "Caddyfile"),
        "--adapter",
        "caddyfile",
    ], site.folder / "caddy.log"


def _nginx(find: str, site: Site) -> tuple[list[str], Path]:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    text = replaced(
        re.sub(r"\n *listen \[::\].*", "", text),
        {
            "listen 443": f"listen 127.0.0.1:{site.port}",
            "listen 80": f"listen 127.0.0.1:{free_port()}",
            "/etc/letsencrypt/live/notes.example.com/fullchain.pem": str(site.folder / "cert.pem"),
            "/etc/letsencrypt/live/notes.example.com/privkey.pem": str(site.folder / "key.pem"),
            "127.0.0.1:8484": f"127.0.0.1:{site.server_port}",
            "/var/log/nginx/notewright.log": str(site.proxy_log),
        },
    )
    places = "".join(f"{kind}_temp_path {site.folder}/{kind};" for kind in _NGINX_FOLDERS)
    (site.folder / "site.conf").write_text(text, encoding="utf-8")
    user = "user root;" if os.geteuid() == 0 else ""  # else its workers are somebody who cannot read this folder
    main = f"{user} daemon off; pid {site.folder}/nginx.pid; error_log stderr; events {{}}"
    (site.folder / "nginx.conf").write_text(f"{main} http {{ {places} include site.conf; }}", encoding="utf-8")
    return [find, "-p", str(site.folder), "-c", "nginx.conf", "-e", "stderr"], site.folder / "nginx.log"


_NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
_PROXIES = {"caddy": _caddy, "nginx": _nginx}
