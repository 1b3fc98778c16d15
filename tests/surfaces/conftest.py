"""What tests of surfaces share."""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import open_folder
from tests.surfaces import cairn_agent, notes_agent
from tests.surfaces.vault import Vault, filled

from notewright.app.opening import close_workspace

OpenVault = Callable[..., Vault]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[notes_agent.MakeAgent]:
    with notes_agent.agents(tmp_path) as made:
        yield made


@pytest.fixture
def cairn(tmp_path: Path) -> Iterator[cairn_agent.OpenAgent]:
    with cairn_agent.agents(tmp_path) as made:
        yield made


@pytest.fixture
def vault(tmp_path: Path) -> Generator[OpenVault, None, None]:
    """`vault({"A": "[[B]]", "pic.png": b"…"}, read_only=True)`: names are notes, what has a dot is a file.

    Nobody watches the folder unless `watch` is asked for: starting and stopping that takes longer than most tests.
    """
    opened: list[Vault] = []

    def make(notes: Mapping[str, str | bytes] | None = None, *, watch: bool = False, **settings: Any) -> Vault:
        root = tmp_path / f"Vault{len(opened) or ''}"
        root.mkdir()
        filled(root, notes or {})
        opened.append(Vault(root, open_folder(root, tmp_path, watch=watch, **settings)))
        return opened[-1]

    yield make
    for one in opened:
        close_workspace(one.ws)
