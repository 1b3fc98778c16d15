"""The programs of other people, and a server for them to talk to."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
from tests.clients.conforming import CONFORMING
from tests.mcp.echo import Shelf
from tests.over_http import http_app
from tests.server.lines import NOTEWRIGHT, over_http
from tests.serving import in_thread

if TYPE_CHECKING:
    from tests.clients.yjs import YjsClients

HERE = Path(__file__).resolve().parent
MODULES = HERE / "node_modules"
EXAMPLES = HERE.parent.parent / "examples" / "notes"


@dataclass(frozen=True)
class Npm:
    """Runs what npm installed here, with the Node that it wants."""

    node: str

    def run(self, script: str, *words: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """`script` is a path below node_modules, or the name of a file of ours."""
        place = HERE / script if (HERE / script).is_file() else MODULES / script
        command = [self.node, str(place), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=HERE, check=False)


@pytest.fixture(scope="session")
def npm() -> Npm:
    own = MODULES / ".bin" / "node"
    node = str(own) if own.exists() else shutil.which("node")
    if node is None or not (MODULES / "@modelcontextprotocol").is_dir():
        pytest.skip("service: other people's MCP clients are not installed (make clients)")
    return Npm(node)


@pytest.fixture(scope="session")
def stdio(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that serves the example notes on stdio; a surface may be added."""
    place = tmp_path_factory.mktemp("stdio")
    shutil.copytree(EXAMPLES, place / "notes")
    return [NOTEWRIGHT, "serve", f"Examples={place / 'notes'}", "--state", str(place / "state")]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `notewright serve --http` over the example notes."""
    place = tmp_path_factory.mktemp("http")
    shutil.copytree(EXAMPLES, place / "notes")
    words = [f"Examples={place / 'notes'}", "--state", str(place / "state"), "--no-rate-limits"]
    with over_http(*words) as address:
        yield address


@pytest.fixture(scope="session")
def conforming() -> Iterator[str]:
    """The address of the surface that the conformance suite asks for."""
    site = http_app(lambda: Shelf("Main"), [CONFORMING])
    with in_thread(uvicorn.Server(uvicorn.Config(site, log_level="warning", timeout_graceful_shutdown=2))) as port:
        yield f"http://127.0.0.1:{port}/mcp/conforming"


@pytest.fixture
def clients(npm: Npm) -> Iterator["YjsClients"]:
    from tests.clients.yjs import YjsClients  # which imports this module

    if not (MODULES / "yjs").is_dir():
        pytest.skip("service: other people's Yjs clients are not installed (make clients)")
    with YjsClients(npm) as running:
        yield running
