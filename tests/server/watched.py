"""The whole site over real HTTP in a thread of this process, as `notewright serve --http` puts it together."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from tests.over_http import Http, client_of
from tests.serving import in_thread

from notewright.accounts.base import Grant
from notewright.app.compose_http import Site
from notewright.config.load import CommandLine, Config, load
from notewright.engine.library import new_token


@dataclass(frozen=True)
class Watched:
    """A server and its owner's view of it."""

    address: str
    site: Site
    notes: Path

    @property
    def state(self) -> Path:
        return Path(self.site.config.state)

    def token(self, name: str, **narrowed: Any) -> str:
        return new_token(self.site.registry, name, Grant(**narrowed), now=time.time())

    @contextlib.contextmanager
    def client(self, surface: str, token: str | None = None) -> Iterator[Http]:
        """A client of a surface, with a token if one is needed."""
        if token is None:
            with client_of(self.address, surface) as client:
                yield client
            return
        headers = {"accept": "application/json", "authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=self.address, headers=headers, timeout=60) as http:
            yield Http(http, surface)

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return httpx2.get(self.address + path, headers=headers, timeout=30)

    def numbers(self, **headers: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """What /metrics says, by the name and the labels of each sample."""
        answer = self.get("/metrics", **headers)
        assert answer.status_code == 200, answer.text
        return samples(answer.text)

    def audit(self) -> list[dict[str, Any]]:
        file = self.state / "audit.jsonl"
        return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()] if file.exists() else []


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            values = found.setdefault(sample.name, {})
            assert labels not in values, f"{sample.name}{labels} twice"
            values[labels] = sample.value
    return found


def config_of(folder: Path, **settings: Any) -> Config:
    """A workspace `Private Diary` in a folder; settings by their names with `_` for the dot."""
    (folder / "notes").mkdir(exist_ok=True)
    flags = {name.replace("_", ".", 1) if name.startswith("http_") else name: value for name, value in settings.items()}
    asked = CommandLine((f"Private Diary={folder / 'notes'}",), flags={"state": str(folder / "kept"), **flags})
    return load(asked, environ={}, folder=str(folder))


@contextlib.contextmanager
def watched(folder: Path, opened: Callable[[], Any] | None = None, **settings: Any) -> Iterator[Watched]:
    """Served until the end of the block. `opened` opens another library than that of the configuration."""
    with Site(config_of(folder, **settings), opened=opened) as site:
        server = uvicorn.Server(
            uvicorn.Config(site.build_app(), log_config=None, proxy_headers=False, timeout_graceful_shutdown=5)
        )
        with in_thread(server) as port:
            yield Watched(f"http://127.0.0.1:{port}", site, folder / "notes")
