"""Disks that take no writes, and disks that are full: what was there stays, and the words say why."""

from pathlib import Path

import pytest
from tests.conftest import MakeWorkspace, open_folder, read_files, write_files
from tests.engine.mounting import read_only, small_disk
from tests.engine.proving import differences, found

from notewright.app.opening import close_workspace
from notewright.cli.main import main
from notewright.engine.changes.history import undo
from notewright.engine.find.links import incoming
from notewright.engine.move import move
from notewright.engine.write import change_text, create, delete
from notewright.errors import Forbidden, NoSpace, Problem, Unavailable
from notewright.ledger.base import ChangeQuery
from notewright.notes.path import NotePath

pytestmark = pytest.mark.slow


def test_a_folder_on_a_read_only_disk_is_read_and_searched_and_refuses_writes(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    write_files(tmp_path / "Main", {"Tea.md": "green\n", "L.md": "[[Tea]]\n"})
    with read_only(tmp_path / "Main"):
        ws = workspace()
        assert found(ws, "green") == ["Tea.md"]
        assert [link.source for link in incoming(ws, NotePath("Tea.md"))] == ["L.md"]
        for change in (
            lambda: create(ws, NotePath("New.md"), b"new\n"),
            lambda: move(ws, NotePath("Tea.md"), "Chai"),
            lambda: delete(ws, NotePath("Tea.md")),
            lambda: change_text(ws, NotePath("Tea.md"), lambda text: text + "more\n"),
        ):
            with pytest.raises(Forbidden, match="file system does not let"):
                change()
        assert ws.ledger.find_unfinished() == [] and ws.ledger.find_changes(ChangeQuery()) == []
    assert read_files(tmp_path / "Main") == {"Tea.md": b"green\n", "L.md": b"[[Tea]]\n"}


@pytest.mark.parametrize("ours", ["state", "cache"])
def test_a_state_or_cache_folder_that_takes_no_writes_is_named(
    tmp_path: Path, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path / "Main", {"Tea.md": "green\n"})
    (tmp_path / ours).mkdir()
    with read_only(tmp_path / ours):
        with pytest.raises(Unavailable) as refused:
            open_folder(tmp_path / "Main", tmp_path)
        assert str(tmp_path / ours) in str(refused.value) and f"{ours} directory" in refused.value.hint
        words = ["search", "green", "--workspace", str(tmp_path / "Main"), "--state", str(tmp_path / ours)]
        assert main(words) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "cannot be used" in err and "Traceback" not in err


def test_a_change_set_that_does_not_fit_on_the_disk_is_refused_whole(tmp_path: Path) -> None:
    linking = {f"L{number}.md": f"see [[Old]] {'x' * 3000}\n" for number in range(40)}
    with small_disk(tmp_path / "Main", 300):
        write_files(tmp_path / "Main", {"Old.md": "the note\n", **linking})
        before = read_files(tmp_path / "Main")
        ws = open_folder(tmp_path / "Main", tmp_path)
        try:
            with pytest.raises(NoSpace, match="no space"):
                move(ws, NotePath("Old.md"), "A much longer name than the old one was")
            assert read_files(tmp_path / "Main") == before, "the old bytes are there, and nothing beside them"
            assert ws.ledger.find_unfinished() == [] and ws.ledger.find_changes(ChangeQuery()) == []
            assert differences(ws) == {}
            for number in range(20):
                (tmp_path / "Main" / f"L{number}.md").unlink()
            assert move(ws, NotePath("Old.md"), "New").change_id
            assert "[[New]]" in (tmp_path / "Main" / "L30.md").read_text()
        finally:
            close_workspace(ws)


def test_a_full_disk_of_the_history_refuses_a_change_and_keeps_what_was_there(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Tea.md": "green\n"})
    with small_disk(tmp_path / "state", 400):
        ws = open_folder(tmp_path / "Main", tmp_path)
        try:
            first = change_text(ws, NotePath("Tea.md"), lambda text: text + "more\n").change_id
            (tmp_path / "state" / "filler").write_bytes(b"x" * 150_000)
            with pytest.raises(NoSpace, match="history is full"):
                for number in range(20):
                    create(ws, NotePath(f"{number}.md"), bytes(f"{number}\n" * 20_000, "ascii"))
            kept = {path: data for path, data in read_files(tmp_path / "Main").items() if len(data) < 100}
            assert kept == {"Tea.md": b"green\nmore\n"}
            (tmp_path / "state" / "filler").unlink()
            assert first
            undo(ws, first)
            assert (tmp_path / "Main" / "Tea.md").read_text() == "green\n"
        finally:
            close_workspace(ws)


def test_a_full_disk_of_the_index_refuses_no_write_and_it_catches_up(tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Tea.md": "green\n"})
    with small_disk(tmp_path / "cache", 16_000):
        ws = open_folder(tmp_path / "Main", tmp_path)
        try:
            assert found(ws, "green") == ["Tea.md"]
            filler = tmp_path / "cache" / "filler"
            with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 1000)
            for number in range(10):
                create(ws, NotePath(f"{number}.md"), bytes(f"apple {number} [[Tea]]\n" * 50, "ascii"))
            assert len(read_files(tmp_path / "Main")) == 11
            with pytest.raises(Problem):
                move(ws, NotePath("Tea.md"), "Chai")
            filler.unlink()
            assert len(move(ws, NotePath("Tea.md"), "Chai").files) == 10
            assert differences(ws) == {}
        finally:
            close_workspace(ws)
