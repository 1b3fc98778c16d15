"""Alive, and ready: whether questions are answered, told to anybody without a name in it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.watched import config_of, watched
from tests.waiting import eventually

from notewright.app.opening import close_workspace, open_workspace
from notewright.engine.indexing.indexer import Indexer
from notewright.engine.workspace import Workspace
from notewright.errors import Unavailable
from notewright.locks import FileLocks
from notewright.mcp.thread_pool import ThreadPool
from notewright.server.ops import health
from notewright.server.ops.health import CachedProbe, WorkspaceHealth, workspace_health

FRESH = WorkspaceHealth("fresh", 3, 3, reachable=True)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace of twelve notes, followed and indexed."""
    config = config_of(tmp_path)
    for number in range(12):
        (tmp_path / "notes" / f"n{number}.md").write_text("words\n", encoding="utf-8")
    ws = open_workspace(config.workspaces[0], config)
    ws.follower.wait(20)
    yield ws
    close_workspace(ws)


@pytest.mark.slow
def test_a_server_is_alive_at_once_and_ready_when_its_notes_are_indexed(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        alive = server.get("/healthz")
        assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
        (server.notes / "Heron.md").write_text("# Heron\n", encoding="utf-8")
        with server.client("notes") as notes:
            eventually(lambda: "Heron" in notes("search", query="heron"))
        answer = eventually(lambda: (told := server.get("/readyz")).json()["workspaces"][0]["done"] == 1 and told)
        assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
        assert answer.json() == {
            "ready": True,
            "store": "reachable",
            "workspaces": [{"index": "fresh", "done": 1, "total": 1}],
        }


@pytest.mark.slow
def test_strangers_may_ask_and_learn_no_name(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        server.token("anna")
        assert server.get("/mcp/notes").status_code == 401
        for path in ("/healthz", "/health", "/readyz"):
            answer = server.get(path)
            assert answer.status_code in (200, 503)
            assert not any(word in answer.text.lower() for word in ("private", "diary", "anna", str(tmp_path)))


@pytest.mark.slow
def test_a_server_whose_notes_are_gone_is_not_ready_until_they_are_back(tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        eventually(lambda: server.get("/readyz").status_code == 200)
        server.notes.rename(tmp_path / "elsewhere")
        lost = eventually(lambda: (told := server.get("/readyz")).status_code == 503 and told)
        assert lost.json()["ready"] is False and lost.json()["store"] == "unreachable"
        assert server.get("/healthz").status_code == 200
        (tmp_path / "elsewhere").rename(server.notes)
        assert eventually(lambda: server.get("/readyz").status_code == 200)


def test_an_index_that_is_built_for_the_first_time_is_building(tmp_path: Path, space: Workspace) -> None:
    nobody_began = Indexer(space.store, space.index, FileLocks(tmp_path / "elsewhere"))
    told = workspace_health(replace(space, follower=nobody_began))
    assert (told.index, told.reachable, told.ready) == ("building", True, False)
    assert workspace_health(space).index == "fresh"


def test_while_a_new_index_is_built_beside_the_old_one_we_are_ready(space: Workspace) -> None:
    with space.index.rebuild(12):
        told = workspace_health(space)
    assert (told.index, told.done, told.total) == ("fresh", 0, 12) and told.ready


def test_an_index_that_does_not_believe_its_folder_is_stale(tmp_path: Path, space: Workspace) -> None:
    for file in (tmp_path / "notes").iterdir():
        file.unlink()
    assert eventually(lambda: workspace_health(space).index == "stale")
    assert not workspace_health(space).ready


@pytest.mark.parametrize(
    ("standings", "status", "store"),
    [
        ([FRESH, FRESH], 200, "reachable"),
        ([FRESH, replace(FRESH, index="building")], 503, "reachable"),
        ([FRESH, replace(FRESH, index="stale")], 503, "reachable"),
        ([FRESH, replace(FRESH, reachable=False)], 503, "unreachable"),
        ([], 503, "reachable"),
        (None, 503, "unknown"),
    ],
)
def test_all_workspaces_must_be_ready(standings: Any, status: int, store: str) -> None:
    told, words = health.health_document(standings)
    assert (told, words["ready"], words["store"]) == (status, status == 200, store)
    assert len(words["workspaces"]) == len(standings or [])


@pytest.mark.slow
def test_a_library_that_cannot_be_opened_is_not_ready(tmp_path: Path) -> None:
    def broken() -> Any:
        raise Unavailable("no such disk")

    with watched(tmp_path, opened=broken) as server:
        answer = server.get("/readyz")
        assert answer.status_code == 503 and answer.json()["store"] == "unknown"
        assert server.get("/metrics").status_code == 200


def test_what_hangs_is_not_waited_for_and_costs_one_thread() -> None:
    held, asked = threading.Event(), []

    def hang() -> str:
        asked.append(threading.current_thread().name)
        held.wait(20)
        return "found"

    async def ask() -> None:
        workers = ThreadPool()
        glance = CachedProbe(hang, workers, wait=0.05, keep=0.2)
        began = time.monotonic()
        assert await asyncio.gather(*(glance.now() for _ in range(50))) == [None] * 50
        assert await glance.now() is None
        assert time.monotonic() - began < 10
        until = time.monotonic() + 30
        while not asked and time.monotonic() < until:  # on a busy machine a thread begins late
            await asyncio.sleep(0.01)
        assert len(asked) == 1
        held.set()
        while (found := await glance.now()) is None and time.monotonic() < until:
            pass
        assert found == "found" == await glance.now() and len(asked) == 1  # and remembered for a moment
        await asyncio.sleep(0.25)
        while (found := await glance.now()) is None and time.monotonic() < until:
            pass
        assert found == "found" and len(asked) == 2
        workers.close()

    asyncio.run(ask())


def test_what_fails_is_not_known() -> None:
    def fail() -> str:
        raise OSError("no disk")

    async def ask() -> None:
        workers = ThreadPool()
        assert await CachedProbe(fail, workers).now() is None
        workers.close()

    asyncio.run(ask())


def test_asking_again_and_again_looks_once_a_second(tmp_path: Path) -> None:
    looks = []

    async def ask() -> None:
        workers = ThreadPool()
        glance = CachedProbe(lambda: looks.append(1), workers, keep=60)
        for _ in range(10):
            await glance.now()
        workers.close()

    asyncio.run(ask())
    assert len(looks) == 1
