"""Backups: every day whole, unchanged files linked, old days removed after a success only, whatever dies on the way."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import ROOT, MakeWorkspace, write_files
from tests.engine.mounting import read_only, small_disk
from tests.engine.parts import memory_workspace
from tests.engine.transfer.backup_parts import back_up, backups, day, files, folder_workspace, restore_to, times
from tests.memory_store import MemoryStore

from notewright.engine.transfer.backup import BackupResult, Schedule, find_last_due, is_backup_due
from notewright.engine.transfer.backup_folder import BackupFolder
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Exists, Forbidden, Invalid, NoSpace, NotFound, Unavailable
from notewright.notes.path import path_problem

NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nGreen.\n",
    "Drinks/Coffee.md": "Black.\r\n\r\nLike [[Tea]].\r\n",
    "Drinks/cup.png": bytes(range(256)) * 4,
    "Empty.md": "",
    "Latin.md": "caf\xe9\n".encode("latin-1"),
    "日本/ほうじ茶.md": "\ufeff# 茶\n",
}
NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=12
).filter(lambda name: path_problem(name) is None and not name.startswith("."))
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.just(b"a\r\nb\r") | st.just(b"\xff\xfe\x00"),
    max_size=8,
)


def numbered(count: int) -> dict[str, str | bytes]:
    return {f"N {number}.md": f"note {number}\n" for number in range(count)}


def written(root: Path, tree: dict[str, bytes]) -> dict[str, bytes]:
    """As much of a tree as there can be: a file is no folder, and some systems ignore case."""
    there = {}
    for number, (path, data) in enumerate(tree.items()):
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            with open(root / path, "xb") as file:
                file.write(data)
        except OSError:
            continue
        os.utime(root / path, ns=(0, 1_700_000_000_123_456_789 + number))
        there[path] = data
    return there


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(TREES, TREES)
def test_a_restored_backup_has_the_same_bytes_names_and_times(
    before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        root, to = Path(place, "notes"), Path(place, "backups")
        root.mkdir()
        for number, tree in enumerate((before, after)):
            written(root, tree)
            seen, when = files(root), times(root)
            ws = folder_workspace(root)
            assert back_up([ws], to, now=day(number)).success
            out = Path(place, f"out {number}")
            done = restore_to(out, to, date=day(number).date().isoformat())
            assert (files(out), times(out)) == (seen, when)
            assert (len(done.created), done.skipped) == (len(seen), ())
            ws.store.close()
        assert files(to / "2026-05-04") == files(Path(place, "out 0"))


def test_the_folder_of_a_day_can_be_read_without_us(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace(NOTES | {".obsidian/app.json": "{}", ".trash/Old.md": "x"})
    result = back_up([ws], tmp_path / "to", now=day(0))
    size = sum(len(data) for data in files(tmp_path / "Main").values())
    assert result.record() == {
        "success": True,
        "filesBackedUp": 6,
        "filesSkipped": 0,
        "totalBytes": size,
        "errors": [],
        "date": "2026-05-04",
        "removed": [],
    }
    made = tmp_path / "to" / "2026-05-04"
    assert files(made) == files(tmp_path / "Main")
    assert times(made) == times(tmp_path / "Main")
    assert not (made / ".obsidian").exists() and not (made / ".trash").exists()
    said = json.loads((made / ".notewright-backup.json").read_text())["workspaces"]["main"]
    assert said["name"] == "Main" and said["files"]["Empty.md"]["size"] == 0


def test_what_did_not_change_is_linked_and_counted_as_skipped(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace(NOTES), tmp_path / "to"
    back_up([ws], to, now=day(0))
    write_files(tmp_path / "Main", {"Tea.md": "# Tea\n\nBlack.\n"})
    (tmp_path / "Main" / "Empty.md").unlink()
    result = back_up([ws], to, now=day(1))
    assert (result.files_backed_up, result.files_skipped, result.total_bytes) == (1, 4, 14)
    first, second = to / "2026-05-04", to / "2026-05-05"
    linked = [name for name in files(second) if (first / name).samefile(second / name)]
    assert sorted(linked) == ["Drinks/Coffee.md", "Drinks/cup.png", "Latin.md", "日本/ほうじ茶.md"]
    assert (first / "Tea.md").read_text() == "# Tea\n\nGreen.\n" and (first / "Empty.md").exists()
    assert not any((tmp_path / "Main" / name).samefile(second / name) for name in files(second))
    BackupFolder(to).remove("2026-05-04")
    assert files(second) == files(tmp_path / "Main")


def test_a_second_backup_of_the_day_takes_the_place_of_the_first(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace(NOTES), tmp_path / "to"
    back_up([ws], to, now=day(0))
    inode = (to / "2026-05-04" / "Latin.md").stat().st_ino
    write_files(tmp_path / "Main", {"New.md": "new\n"})
    (tmp_path / "Main" / "Tea.md").unlink()
    result = back_up([ws], to, now=day(0) + timedelta(hours=3))
    assert (result.files_backed_up, result.files_skipped) == (1, 5)
    assert files(to / "2026-05-04") == files(tmp_path / "Main")
    assert (to / "2026-05-04" / "Latin.md").stat().st_ino == inode
    assert sorted(os.listdir(to)) == [".notewright-backup.lock", "2026-05-04"]


def test_a_file_that_was_only_touched_is_skipped_and_has_its_new_time(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace(NOTES), tmp_path / "to"
    back_up([ws], to, now=day(0))
    os.utime(tmp_path / "Main" / "Tea.md", ns=(0, 1_234_567_890_000_000_000))
    result = back_up([ws], to, now=day(1))
    assert (result.files_backed_up, result.files_skipped) == (0, 6)
    assert times(to / "2026-05-05") == times(tmp_path / "Main")
    assert times(to / "2026-05-04")["Tea.md"] != 1_234_567_890_000_000_000


def test_a_change_that_keeps_size_and_time_is_seen(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to, note = workspace(NOTES), tmp_path / "to", tmp_path / "Main" / "Tea.md"
    back_up([ws], to, now=day(0))
    when = note.stat().st_mtime_ns
    note.write_text("# Tea\n\nBlack.\n")
    os.utime(note, ns=(when, when))
    assert back_up([ws], to, now=day(1)).files_backed_up == 1
    assert (to / "2026-05-05" / "Tea.md").read_text() == "# Tea\n\nBlack.\n"
    assert (to / "2026-05-04" / "Tea.md").read_text() == "# Tea\n\nGreen.\n"


def test_a_copy_that_somebody_edited_is_not_handed_on(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace(NOTES), tmp_path / "to"
    back_up([ws], to, now=day(0))
    (to / "2026-05-04" / "Tea.md").write_text("# Tea\n\nSpilt.\n")
    (to / "2026-05-04" / "Latin.md").unlink()
    assert back_up([ws], to, now=day(1)).success
    assert files(to / "2026-05-05") == files(tmp_path / "Main")


@pytest.mark.slow
def test_a_disk_without_hard_links_gets_copies(workspace: MakeWorkspace, tmp_path: Path) -> None:
    """Two file systems: the day before lies on another one, as nothing can be linked across."""
    ws, to = workspace(NOTES), tmp_path / "to"
    back_up([ws], to, now=day(0))
    with small_disk(tmp_path / "disk", 500):
        os.rename(to / "2026-05-04", tmp_path / "kept")
        (tmp_path / "disk" / "day").mkdir()
        subprocess.run(["cp", "-a", f"{tmp_path / 'kept'}/.", tmp_path / "disk" / "day"], check=True)
        (to / "2026-05-04").symlink_to(tmp_path / "disk" / "day")
        result = back_up([ws], to, now=day(1))
        assert (result.success, result.files_backed_up, result.files_skipped) == (True, 0, 6)
        assert files(to / "2026-05-05") == files(tmp_path / "Main")


def test_thirty_days_are_kept(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace({"Tea.md": "tea\n"}), tmp_path / "to"
    removed = [back_up([ws], to, now=day(number)).removed for number in range(32)]
    assert removed == [()] * 30 + [("2026-05-04",), ("2026-05-05",)]
    assert len(BackupFolder(to).dates()) == 30
    assert back_up([ws], to, now=day(31), keep_days=2).removed == tuple(
        day(number).date().isoformat() for number in range(2, 30)
    )
    with pytest.raises(Invalid):
        back_up([ws], to, now=day(31), keep_days=0)


def test_what_is_not_a_backup_of_ours_is_never_removed(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace({"Tea.md": "tea\n"}), tmp_path / "to"
    mine: dict[str, str | bytes] = {
        "2020-01-01/letter.txt": "mine",
        "2020-01-02/.notewright-backup.json": '{"some": "other"}',
        "photos/a.jpg": "x",
        "2020-01-03": "a file",
        "2020-13-45/.notewright-backup.json": "[]",
    }
    write_files(to, mine)
    for number in (0, 40):
        assert back_up([ws], to, now=day(number)).success
    assert all((to / name).exists() for name in mine)
    assert BackupFolder(to).dates()[-1:] == ["2026-06-13"]
    assert not (to / "2026-05-04").exists()


def test_a_folder_with_the_name_of_today_that_is_not_ours_is_in_the_way(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({"Tea.md": "tea\n"})
    write_files(tmp_path / "to", {"2026-05-04/letter.txt": "mine"})
    with pytest.raises(Exists, match="no backup of ours"):
        back_up([ws], tmp_path / "to", now=day(0))
    assert (tmp_path / "to" / "2026-05-04" / "letter.txt").read_text() == "mine"


class Failing:
    """Notes in memory of which some cannot be read."""

    def __init__(self, notes: dict[str, str]) -> None:
        self.broken: set[str] = set()
        self.store = MemoryStore(step=self._step)
        for path, text in notes.items():
            self.store.put(path, text.encode())
        self.ws = memory_workspace(self.store)

    def _step(self, what: str, path: str) -> None:
        if what == "read" and path in self.broken:
            raise Unavailable(f"{path} cannot be reached: input/output error", path=path)


def test_a_file_that_cannot_be_read_is_an_error_and_the_rest_is_backed_up(tmp_path: Path) -> None:
    failing, to = Failing({"Tea.md": "tea", "Bad.md": "worth keeping", "C/Cup.md": "cup"}), tmp_path / "to"
    assert back_up([failing.ws], to, now=day(0)).success
    failing.broken = {"Bad.md"}
    failing.store.put("New.md", b"new")
    result = back_up([failing.ws], to, now=day(40))
    assert result.errors == ("Bad.md: Bad.md cannot be reached: input/output error",)
    assert (result.success, result.files_backed_up, result.files_skipped, result.removed) == (False, 1, 2, ())
    assert set(BackupFolder(to).dates()) == {"2026-05-04", "2026-06-13"}, "old ones are removed after a success only"
    assert files(to / "2026-06-13") == {
        "Tea.md": b"tea",
        "C/Cup.md": b"cup",
        "New.md": b"new",
        "Bad.md": b"worth keeping",
    }
    assert backups(to)[0].errors == result.errors
    failing.broken = set()
    assert back_up([failing.ws], to, now=day(40)).removed == ("2026-05-04",)


def test_a_failed_second_backup_of_the_day_loses_nothing_of_the_first(tmp_path: Path) -> None:
    failing, to = Failing({"Bad.md": "only in today's backup"}), tmp_path / "to"
    back_up([failing.ws], to, now=day(0))
    failing.store.disk.present = False
    result = back_up([failing.ws], to, now=day(0))
    assert not result.success and result.errors[0].startswith("Desk: ")
    assert files(to / "2026-05-04") == {"Bad.md": b"only in today's backup"}


def test_files_with_names_that_are_no_text_are_named_as_errors(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "tea\n"})
    (tmp_path / os.fsdecode(b"Main/caf\xe9.md")).write_text("x")
    result = back_up([ws], tmp_path / "to", now=day(0))
    assert not result.success
    assert result.errors == ("caf\\xe9.md: its name is not text that can be written in a path",)
    assert files(tmp_path / "to" / "2026-05-04") == {"Tea.md": b"tea\n"}


def test_a_workspace_that_is_suddenly_empty_is_not_believed(tmp_path: Path) -> None:
    """Its disk may not be mounted: after thirty such days nothing would be left of it."""
    root, to = tmp_path / "notes", tmp_path / "to"
    write_files(root, numbered(12))
    ws = folder_workspace(root)
    back_up([ws], to, now=day(0))
    for path in root.iterdir():
        path.unlink()
    for number in (1, 40):
        result = back_up([ws], to, now=day(number))
        assert result.errors == ("Desk: it is empty, and held 12 files when it was last backed up",)
        assert len(files(to / result.date)) == 12
    assert len(BackupFolder(to).dates()) == 3


def test_hidden_notes_are_in_the_backup(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "tea\n", "Private/Diary.md": "secret\n"}, hide=("Private/**",), read_only=True)
    back_up([ws], tmp_path / "to", now=day(0))
    assert (tmp_path / "to" / "2026-05-04" / "Private" / "Diary.md").read_text() == "secret\n"


def test_symlinks_are_kept_as_symlinks_within_the_backup(tmp_path: Path) -> None:
    root = tmp_path / "notes"
    write_files(root, {"Drinks/Tea.md": "tea\n"})
    (root / "Also.md").symlink_to(root / "Drinks" / "Tea.md")
    (root / "Out.md").symlink_to("/etc/hostname")
    result = back_up([folder_workspace(root)], tmp_path / "to", now=day(0))
    assert (result.success, result.files_backed_up) == (True, 1)
    made = tmp_path / "to" / "2026-05-04"
    assert os.readlink(made / "Also.md") == "Drinks/Tea.md" and not (made / "Out.md").is_symlink()
    restore_to(tmp_path / "out", tmp_path / "to")
    assert os.readlink(tmp_path / "out" / "Also.md") == "Drinks/Tea.md"


def test_what_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """A note moved from where nothing was read yet to where everything was must not be missed."""
    root, to = tmp_path / "notes", tmp_path / "to"
    write_files(root, {"A.md": "[[Z]]\n", "B.md": "b\n", "Z.md": "z\n"})
    moved: list[bool] = []

    def interfere(done: int, total: int | None) -> None:
        if not moved:
            moved.append(True)
            (root / "A.md").write_text("[[A2]]\n")
            os.rename(root / "Z.md", root / "A2.md")
            (root / "B.md").unlink()

    assert back_up([folder_workspace(root)], to, now=day(0), report=interfere).success
    assert files(to / "2026-05-04") == {"A.md": b"[[A2]]\n", "A2.md": b"z\n"}


# ---- several workspaces -------------------------------------------------------------------------------


def test_several_workspaces_have_a_folder_each(workspace: MakeWorkspace, tmp_path: Path) -> None:
    workspaces = [workspace({"Tea.md": "tea\n"}, "Work"), workspace({"Tea.md": "more\n"}, "At Home")]
    to = tmp_path / "to"
    assert back_up(workspaces, to, now=day(0)).files_backed_up == 2
    assert files(to / "2026-05-04") == {"work/Tea.md": b"tea\n", "at-home/Tea.md": b"more\n"}
    assert back_up(workspaces[:1], to, now=day(1)).files_skipped == 1
    assert files(to / "2026-05-05") == {"Tea.md": b"tea\n"}
    assert (to / "2026-05-05" / "Tea.md").samefile(to / "2026-05-04" / "work" / "Tea.md")


def test_backing_up_one_of_several_keeps_the_others_of_the_day(workspace: MakeWorkspace, tmp_path: Path) -> None:
    workspaces = [workspace({"Tea.md": "tea\n"}, "Work"), workspace({"Tea.md": "more\n"}, "Home")]
    to = tmp_path / "to"
    back_up(workspaces, to, now=day(0))
    write_files(tmp_path / "Work", {"New.md": "new\n"})
    result = back_up(workspaces[:1], to, now=day(0))
    assert (result.files_backed_up, result.files_skipped) == (1, 1)
    assert files(to / "2026-05-04") == {"work/Tea.md": b"tea\n", "work/New.md": b"new\n", "home/Tea.md": b"more\n"}
    assert restore_to(tmp_path / "out", to, workspace="Home").created == ("Tea.md",)
    assert restore_to(tmp_path / "all", to).created == ("home/Tea.md", "work/New.md", "work/Tea.md")


def test_another_folder_of_the_same_name_does_not_take_the_place_of_todays_backup(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_files(tmp_path / name, {"Tea.md": f"{name}\n"})
    to = tmp_path / "to"
    back_up([folder_workspace(tmp_path / "a")], to, now=day(0))
    with pytest.raises(Exists, match="of another folder"):
        back_up([folder_workspace(tmp_path / "b")], to, now=day(0))
    assert files(to / "2026-05-04") == {"Tea.md": b"a\n"}


def test_the_last_backup_of_a_workspace_that_is_gone_stays(workspace: MakeWorkspace, tmp_path: Path) -> None:
    """Its disk may be away, or somebody took it out of the configuration by mistake."""
    work, home = workspace({"Tea.md": "tea\n"}, "Work"), workspace({"Tea.md": "more\n"}, "Home")
    to = tmp_path / "to"
    for number in (0, 1, 2):
        back_up([work, home], to, now=day(number))
    assert back_up([work], to, now=day(60)).removed == ("2026-05-04", "2026-05-05")
    assert back_up([work], to, now=day(61)).removed == ()
    assert BackupFolder(to).dates()[0] == "2026-05-06"
    assert back_up([work, home], to, now=day(62)).removed == ("2026-05-06",)


# ---- where it goes ------------------------------------------------------------------------------------


def test_backups_are_neither_among_the_notes_nor_around_them(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "tea\n"})
    (tmp_path / "way").symlink_to(tmp_path / "Main")
    for place in (tmp_path / "Main" / "to", tmp_path / "Main" / ".to", tmp_path / "Main", tmp_path / "way" / "to"):
        with pytest.raises(Invalid, match="is inside the workspace Main"):
            back_up([ws], place, now=day(0))
    with pytest.raises(Invalid, match="the workspace Main lies in the place for backups"):
        back_up([ws], tmp_path, now=day(0))
    with pytest.raises(NotFound, match="is not there"):
        back_up([ws], tmp_path / "no" / "such", now=day(0))
    assert files(tmp_path / "Main") == {"Tea.md": b"tea\n"} and not (tmp_path / "Main" / ".to").exists()


@pytest.mark.slow
def test_a_full_disk_ends_the_backup_and_leaves_the_old_ones(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "tea\n"})
    with small_disk(tmp_path / "disk", 200):
        to = tmp_path / "disk" / "to"
        back_up([ws], to, now=day(0))
        write_files(tmp_path / "Main", {"Large.bin": random.Random(1).randbytes(400_000), "Small.md": "x\n"})
        with pytest.raises(NoSpace):
            back_up([ws], to, now=day(1))
        assert sorted(os.listdir(to)) == [".notewright-backup.lock", "2026-05-04"]
        assert files(to / "2026-05-04") == {"Tea.md": b"tea\n"}
        (tmp_path / "Main" / "Large.bin").unlink()
        assert back_up([ws], to, now=day(1)).success


@pytest.mark.slow
def test_a_disk_that_takes_no_writes_says_so_and_can_be_restored_from(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace({"Tea.md": "tea\n"}), tmp_path / "to"
    back_up([ws], to, now=day(0))
    with read_only(to):
        with pytest.raises((Forbidden, Unavailable)):
            back_up([ws], to, now=day(1))
        assert restore_to(tmp_path / "out", to).created == ("Tea.md",)


# ---- two at once, and death ---------------------------------------------------------------------------


def test_of_two_backups_at_once_the_second_is_refused(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace(NOTES), tmp_path / "to"
    halfway, go_on, results = threading.Event(), threading.Event(), []

    def wait(done: int, total: int | None) -> None:
        halfway.set()
        go_on.wait(30)

    first = threading.Thread(target=lambda: results.append(back_up([ws], to, now=day(0), report=wait)))
    first.start()
    assert halfway.wait(30)
    with pytest.raises(Busy):
        back_up([ws], to, now=day(0))
    go_on.set()
    first.join(30)
    assert results[0].success and back_up([ws], to, now=day(0)).files_skipped == 6


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20, 40])
def test_a_backup_that_is_killed_leaves_the_old_ones_whole(tmp_path: Path, count: int) -> None:
    root, to = tmp_path / "notes", tmp_path / "to"
    write_files(root, numbered(40))
    ws = folder_workspace(root)
    back_up([ws], to, now=day(0))
    back_up([ws], to, now=day(1))
    old = files(root)
    write_files(root, {f"N {number}.md": f"new {number}\n" for number in range(0, 40, 2)})
    words = [sys.executable, "-m", "tests.engine.transfer.backup_parts", root, to, "2026-05-05", str(count)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "stopped\n"
        with pytest.raises(Busy):
            back_up([ws], to, now=day(1))
        process.kill()
    assert (to / ".2026-05-05.partial").is_dir()
    for date in ("2026-05-04", "2026-05-05"):
        assert files(to / date) == old
        assert restore_to(tmp_path / f"out {date}", to, date=date).skipped == ()
    assert back_up([ws], to, now=day(1)).files_backed_up == 20
    assert files(to / "2026-05-05") == files(root) and files(to / "2026-05-04") == old
    assert sorted(os.listdir(to)) == [".notewright-backup.lock", "2026-05-04", "2026-05-05"]


@pytest.mark.slow
def test_killed_at_any_step_a_backup_leaves_each_day_old_or_new(tmp_path: Path) -> None:
    write_files(tmp_path / "notes", {"Changed.md": "x\n", "Same.md": "same\n", "In/Deeper/Also.md": "also\n"})
    words = [sys.executable, "-m", "tests.engine.transfer.backup_parts", tmp_path / "notes", tmp_path / "to"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40


def test_a_death_between_the_old_and_the_new_of_a_day_brings_the_old_back(tmp_path: Path) -> None:
    root, to = tmp_path / "notes", tmp_path / "to"
    write_files(root, {"Tea.md": "tea\n"})
    back_up([folder_workspace(root)], to, now=day(0))
    os.rename(to / "2026-05-04", to / ".2026-05-04.old")
    write_files(to, {".2026-05-04.partial/Tea.md": "half"})
    with BackupFolder(to).lock(exclusive=True):
        assert files(to / "2026-05-04") == {"Tea.md": b"tea\n"}
        assert sorted(os.listdir(to)) == [".notewright-backup.lock", "2026-05-04"]


# ---- by itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "last_one"),
    [
        ("2026-05-04T01:59:59+00:00", "2026-05-03T02:00:00+00:00"),
        ("2026-05-04T02:00:00+00:00", "2026-05-04T02:00:00+00:00"),
        ("2027-01-01T01:00:00+00:00", "2026-12-31T02:00:00+00:00"),
        ("2026-05-04T11:00:00+10:00", "2026-05-03T02:00:00+00:00"),
        ("2026-05-04T13:00:00+10:00", "2026-05-04T02:00:00+00:00"),
    ],
)
def test_a_backup_is_due_at_its_time_in_utc(now: str, last_one: str) -> None:
    assert find_last_due("02:00", datetime.fromisoformat(now)).isoformat() == last_one


@pytest.mark.parametrize(
    ("now", "dates", "is_due"),
    [
        ("2026-05-04T03:00", [], True),
        ("2026-05-04T03:00", ["2026-05-03"], True),
        ("2026-05-04T01:00", ["2026-05-03"], False),
        ("2026-05-04T02:00", ["2026-05-03", "2026-05-04"], False),
        ("2026-05-04T01:00", ["2026-05-02"], True),
        ("2026-05-04T03:00", ["2026-05-03", "2036-01-01"], True),
    ],
)
def test_a_backup_is_due_if_its_day_has_none(now: str, dates: list[str], is_due: bool) -> None:
    assert is_backup_due("02:00", datetime.fromisoformat(now).replace(tzinfo=UTC), dates) is is_due


@pytest.mark.parametrize("at", ["2", "24:00", "02:60", "", "02:00:00", "noon"])
def test_a_time_that_is_none_is_refused_before_anything_starts(at: str) -> None:
    with pytest.raises(Invalid, match="time of day"):
        Schedule(lambda: [], lambda: BackupFolder("nowhere"), at=at)


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def scheduled(ws: Workspace, to: Path, clock: Clock, made: "list[str]", seen: threading.Semaphore) -> Schedule:
    def told(result: BackupResult) -> None:
        made.append(result.date)
        seen.release()

    return Schedule(lambda: [ws], lambda: BackupFolder(to), clock=clock, on_result=told, max_wait_seconds=0.01)


def test_of_many_processes_one_makes_the_backup_each_day(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to, clock = workspace(NOTES), tmp_path / "to", Clock(day(0) - timedelta(hours=1))
    made, seen = list[str](), threading.Semaphore(0)
    several = [scheduled(ws, to, clock, made, seen) for _ in range(4)]
    for one in several:
        one.start()
    try:
        assert seen.acquire(timeout=30)  # missed while nobody ran: at once
        for number in (1, 2):
            clock.now = day(number) + timedelta(minutes=number)
            assert seen.acquire(timeout=30)
        back_up([ws], to, now=day(3) - timedelta(hours=1))
        clock.now = day(3) + timedelta(seconds=1)
        assert not seen.acquire(timeout=0.3), "somebody made one that day already"
    finally:
        for one in several:
            one.close()
    assert made == ["2026-05-04", "2026-05-05", "2026-05-06"]


def test_a_backup_that_lasts_past_the_next_time_does_not_skip_it(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to, clock = workspace(NOTES), tmp_path / "to", Clock(day(0))
    made, seen = list[str](), threading.Semaphore(0)

    def workspaces() -> list[Workspace]:
        if clock.now == day(0):
            clock.now = day(1) + timedelta(hours=1)
        return [ws]

    def told(result: BackupResult) -> None:
        made.append(result.date)
        seen.release()

    schedule = Schedule(workspaces, lambda: BackupFolder(to), clock=clock, on_result=told)
    schedule.start()
    try:
        assert seen.acquire(timeout=30) and seen.acquire(timeout=30)
    finally:
        schedule.close()
    assert made == ["2026-05-04", "2026-05-05"]


def test_closing_gives_up_a_backup_that_is_being_made(workspace: MakeWorkspace, tmp_path: Path) -> None:
    begun, closed = threading.Event(), threading.Event()

    def workspaces() -> list[Workspace]:
        begun.set()
        closed.wait(30)
        return [ws]

    ws, to = workspace(NOTES), tmp_path / "to"
    schedule = Schedule(workspaces, lambda: BackupFolder(to), clock=Clock(day(0)))
    schedule.start()
    assert begun.wait(30)
    ending = threading.Thread(target=schedule.close)
    ending.start()
    assert schedule._stop.wait(30)
    closed.set()
    ending.join(30)
    assert os.listdir(to) == [".notewright-backup.lock"]


def test_a_schedule_survives_what_goes_wrong_and_tries_again(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, clock = workspace(NOTES), Clock(day(0))
    made, seen, asked = list[str](), threading.Semaphore(0), threading.Semaphore(0)

    def workspaces() -> list[Workspace]:
        asked.release()
        return [ws]

    schedule = Schedule(
        workspaces,
        lambda: BackupFolder(tmp_path / "disk" / "to"),
        clock=clock,
        on_result=lambda result: (made.append(result.date), seen.release())[0],
        max_wait_seconds=0.01,
    )
    schedule.start()
    try:
        assert asked.acquire(timeout=30)
        (tmp_path / "disk").mkdir()
        clock.now += timedelta(minutes=61)
        assert seen.acquire(timeout=30)
    finally:
        schedule.close()
    assert made == ["2026-05-04"]


def test_a_copy_of_a_day_under_an_older_name_is_let_go_like_any_other(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace({"A.md": "a"}), tmp_path / "to"
    back_up([ws], to, now=datetime(2026, 5, 1, 2, tzinfo=UTC))
    for old in ("2026-01-01", "2026-03-31"):
        shutil.copytree(to / "2026-05-01", to / old)
    assert back_up([ws], to, now=datetime(2026, 5, 2, 2, tzinfo=UTC)).removed == ("2026-01-01", "2026-03-31")
    assert sorted(place.name for place in to.glob("2*")) == ["2026-05-01", "2026-05-02"]
