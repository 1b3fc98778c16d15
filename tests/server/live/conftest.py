"""What tests of live documents over HTTP share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.live.parts import LiveServer, live_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as running:
        yield running
