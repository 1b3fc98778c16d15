"""A rebuild of an index that one process does and any can be asked about."""

from pathlib import Path

from tests.conftest import MakeWorkspace

from notewright.engine.indexing.rebuild import begin_rebuild, rebuild_progress
from notewright.engine.workspace import Workspace


def folder_of(ws: Workspace, place: Path) -> Path:
    return place / "cache" / ws.store.identity


def test_only_one_rebuilds_and_everybody_knows(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "hot"})
    folder, before = folder_of(ws, tmp_path), ws.index.generation().name
    assert rebuild_progress(ws, folder).status in ("idle", "running")  # the first index may be under way
    ws.follower.wait(20)
    rebuilding = begin_rebuild(folder)
    assert rebuilding is not None
    assert begin_rebuild(folder) is None
    now = rebuild_progress(ws, folder)
    assert (now.status, now.done) == ("running", 0)
    assert now.began is not None
    rebuilding.run(ws)
    done = rebuild_progress(ws, folder)
    assert (done.status, done.message, done.began) == ("done", "", now.began)
    assert ws.index.generation().name != before
    assert begin_rebuild(folder) is not None


def test_a_rebuild_that_is_cut_short_has_failed(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "hot"})
    ws.follower.wait(20)
    rebuilding = begin_rebuild(folder_of(ws, tmp_path))
    assert rebuilding is not None
    ws.follower.close()  # as when the server is stopped
    rebuilding.run(ws)
    now = rebuild_progress(ws, folder_of(ws, tmp_path))
    assert (now.status, "stopped" in now.message) == ("failed", True)


def test_a_cache_that_was_deleted_knows_of_no_rebuild(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "hot"})
    ws.follower.wait(20)
    assert rebuild_progress(ws, tmp_path / "nowhere").status == "idle"
