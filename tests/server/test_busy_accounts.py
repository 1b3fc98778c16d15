"""Somebody else holds the accounts file: the event loop does not wait for it."""

import contextlib
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.conftest import write_files
from tests.server.lines import NOTEWRIGHT, over_http

pytestmark = pytest.mark.slow

HELD_SECONDS = 3.0
SOON_SECONDS = 1.5  # a loop that waits for the file waits until it is let go


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Locked for writing by another connection, as a process that hangs in the middle of a change would."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("begin immediate")
        yield
        db.execute("rollback")


def test_while_the_accounts_are_locked_requests_are_answered_all_the_same(tmp_path: Path) -> None:
    write_files(tmp_path / "notes", {"Tea.md": "# Tea\n"})
    place = ["--state", str(tmp_path / "state")]
    add = [NOTEWRIGHT, "token", "add", "ann", *place]
    secret = subprocess.run(add, capture_output=True, text=True, check=True).stdout.split()[-1]
    (file,) = (tmp_path / "state").rglob("registry.db")
    told: list[int] = []
    with (
        over_http(str(tmp_path / "notes"), *place) as address,
        httpx2.Client(base_url=address, timeout=30) as client,
        httpx2.Client(base_url=address, headers={"authorization": f"Bearer {secret}"}, timeout=30) as ann,
    ):
        client.get("/healthz")
        adding = threading.Thread(
            target=lambda: told.append(ann.post("/api/v1/tokens", json={"name": "ben"}).status_code)
        )
        slowest = 0.0
        with held(file):
            adding.start()  # its first use is to be remembered, and a token to be added
            end = time.monotonic() + HELD_SECONDS
            while time.monotonic() < end:
                began = time.monotonic()
                assert client.get("/healthz").status_code == 200
                slowest = max(slowest, time.monotonic() - began)
                assert client.get("/", headers={"authorization": f"Bearer {secret}"}).status_code == 200
                time.sleep(0.01)
            assert told == []
        adding.join(20)
    assert told == [201]
    assert slowest < SOON_SECONDS
