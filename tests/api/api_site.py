"""The whole site with the JSON API over real HTTP, for its tests."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from tests.conftest import write_files
from tests.over_http import Http
from tests.serving import in_thread

from notewright.accounts.base import Grant
from notewright.app.compose_http import Site
from notewright.config.load import CommandLine, Config, load
from notewright.engine.library import new_token

NOTES = {
    "Tea.md": "---\ntags: [drink]\nsteeped: 3\n---\n# Tea\n\nGreen tea is hot.\n\n## Water\n\nAs in [[Milk]].\n",
    "Milk.md": "White, for [[Tea]] and [[Nobody]].\n",
    "Projects/Plan.md": "A plan about tea.\n",
    "Private/Diary.md": "Nobody reads about tea here. [[Tea]]\n",
}


@dataclass(frozen=True)
class Served:
    """A site and a way to ask it."""

    address: str
    site: Site
    folder: Path

    @contextlib.contextmanager
    def client(self, token: str | None = None, **headers: str) -> Iterator[httpx2.Client]:
        headers |= {"authorization": f"Bearer {token}"} if token else {}
        with httpx2.Client(base_url=self.address, headers=headers, timeout=60) as client:
            yield client

    @contextlib.contextmanager
    def surface(self, surface: str, token: str | None = None) -> Iterator[Http]:
        with self.client(token, accept="application/json") as client:
            yield Http(client, surface)

    def token(self, name: str, **narrowed: Any) -> str:
        return new_token(self.site.registry, name, Grant(**narrowed), now=time.time())


def config_of(folder: Path, *names: str, notes: Mapping[str, str] = NOTES, **flags: Any) -> Config:
    """Workspaces of these names, each with some notes. Settings are those of the table with `__` for the dot."""
    for name in names:
        write_files(folder / name, notes)
    given = {"state": str(folder / "kept"), **{key.replace("__", "."): value for key, value in flags.items()}}
    return load(
        CommandLine(tuple(f"{name}={folder / name}" for name in names), flags=given), environ={}, folder=str(folder)
    )


@contextlib.contextmanager
def served(folder: Path, config: Config) -> Iterator[Served]:
    """Until the end of the block."""
    with Site(config) as site:
        made = uvicorn.Config(site.build_app(), log_config=None, proxy_headers=False, timeout_graceful_shutdown=5)
        with in_thread(uvicorn.Server(made)) as port:
            yield Served(f"http://127.0.0.1:{port}", site, folder)
