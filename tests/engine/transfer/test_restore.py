"""Bringing notes back: into the workspace so that it can be undone, or into a folder, byte for byte."""

import errno
import os
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.conftest import MakeWorkspace, write_files
from tests.engine.mounting import small_disk
from tests.engine.transfer.backup_parts import (
    back_up,
    backups,
    day,
    files,
    folder_workspace,
    restore_backup,
    restore_to,
    times,
)

from notewright.engine.changes import batch_write
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.find.search import parse_query, search
from notewright.engine.transfer.backup_folder import BackupFolder
from notewright.engine.transfer.restore import last_good_backup
from notewright.engine.workspace import Workspace
from notewright.engine.write import change_text
from notewright.errors import Busy, Conflict, Exists, Forbidden, Invalid, NoSpace, NotFound, ReadOnly
from notewright.ledger.base import ChangeQuery
from notewright.notes.path import NotePath

NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nGreen.\n",
    "Drinks/Coffee.md": "Black.\r\n\r\nLike [[Tea]].\r\n",
    "Drinks/cup.png": bytes(range(256)) * 4,
    "Empty.md": "",
    "Latin.md": "caf\xe9\n".encode("latin-1"),
    'Odd/What?: "x" .md': "odd\n",
}


@pytest.fixture
def kept(workspace: MakeWorkspace, tmp_path: Path) -> Workspace:
    """A workspace with a backup in `to` of 2026-05-04, changed in every way since."""
    ws = workspace(NOTES)
    back_up([ws], tmp_path / "to", now=day(0))
    write_files(tmp_path / "Main", {"Tea.md": "spilt\n", "Drinks/cup.png": b"\0", "Later/New.md": "new\n"})
    for name in ("Empty.md", "Latin.md"):
        (tmp_path / "Main" / name).unlink()
    shutil.rmtree(tmp_path / "Main" / "Odd")
    ws.follower.wait(20)
    return ws


def test_restoring_brings_back_what_was_changed_or_deleted_and_leaves_the_rest(kept: Workspace, tmp_path: Path) -> None:
    done = restore_backup(kept, tmp_path / "to")
    assert done.created == ("Empty.md", "Latin.md", 'Odd/What?: "x" .md')
    assert done.replaced == ("Drinks/cup.png", "Tea.md")
    assert done.unchanged == ("Drinks/Coffee.md",)
    assert (done.date, done.deleted, done.skipped, len(done.changes)) == ("2026-05-04", (), (), 1)
    assert files(tmp_path / "Main") == files(tmp_path / "to" / "2026-05-04") | {"Later/New.md": b"new\n"}
    summary = list_changes(kept, ChangeQuery())[0].summary
    assert summary == "restored 5 files from the backup of 2026-05-04"


@pytest.mark.parametrize("exact", [False, True])
def test_a_restore_can_be_undone_byte_for_byte(kept: Workspace, tmp_path: Path, exact: bool) -> None:
    before = files(tmp_path / "Main")
    done = restore_backup(kept, tmp_path / "to", exact=exact)
    assert done.deleted == (("Later/New.md",) if exact else ())
    assert (tmp_path / "Main" / "Later").exists() is not exact
    if exact:
        assert files(tmp_path / "Main") == files(tmp_path / "to" / "2026-05-04")
    undo(kept, done.changes[0])
    assert files(tmp_path / "Main") == before
    assert not (tmp_path / "Main" / "Odd").exists()


def test_a_dry_run_says_the_same_and_changes_nothing(kept: Workspace, tmp_path: Path) -> None:
    before = files(tmp_path / "Main")
    planned = restore_backup(kept, tmp_path / "to", exact=True, dry_run=True)
    assert (files(tmp_path / "Main"), planned.changes) == (before, ())
    done = restore_backup(kept, tmp_path / "to", exact=True)
    assert planned.record() | {"changes": list(done.changes)} == done.record()


def test_only_some_notes_and_folders_are_brought_back(kept: Workspace, tmp_path: Path) -> None:
    done = restore_backup(kept, tmp_path / "to", paths=["Tea", "Drinks/"])
    assert (done.created, done.replaced) == ((), ("Drinks/cup.png", "Tea.md"))
    assert not (tmp_path / "Main" / "Empty.md").exists()
    write_files(tmp_path / "Main", {"Drinks/More.md": "x\n"})
    assert restore_backup(kept, tmp_path / "to", paths=["Drinks"], exact=True).deleted == ("Drinks/More.md",)
    assert (tmp_path / "Main" / "Later" / "New.md").exists()
    with pytest.raises(NotFound, match=r"Latn.md is not in that backup. near are Latin.md"):
        restore_backup(kept, tmp_path / "to", paths=["Latn.md"])


def test_restored_notes_are_found_at_once(kept: Workspace, tmp_path: Path) -> None:
    restore_backup(kept, tmp_path / "to")
    assert [hit.path for hit in search(kept, parse_query("green")).items] == ["Tea.md"]


def test_an_older_backup_is_named_by_its_date(kept: Workspace, tmp_path: Path) -> None:
    back_up([kept], tmp_path / "to", now=day(3))
    assert restore_backup(kept, tmp_path / "to", dry_run=True).replaced == ()
    assert restore_backup(kept, tmp_path / "to", date="2026-05-04").replaced == ("Drinks/cup.png", "Tea.md")
    with pytest.raises(NotFound, match=r"no backup of 2026-05-05. there is .*2026-05-04"):
        restore_backup(kept, tmp_path / "to", date="2026-05-05")
    with pytest.raises(NotFound, match="there is no backup in"):
        restore_backup(kept, tmp_path / "Main")
    with pytest.raises(NotFound, match="is not a folder"):
        restore_backup(kept, tmp_path / "nowhere")
    assert [one.date for one in backups(tmp_path / "to")] == ["2026-05-07", "2026-05-04"]


def test_files_that_were_damaged_in_the_backup_are_left_out_and_named(kept: Workspace, tmp_path: Path) -> None:
    made = tmp_path / "to" / "2026-05-04"
    (made / "Tea.md").write_text("# Tea\n\nBlack.\n")
    (made / "Latin.md").unlink()
    (made / "Empty.md").unlink()
    (made / "Empty.md").symlink_to("/etc/hostname")
    done = restore_backup(kept, tmp_path / "to")
    assert [(one.path, one.reason) for one in done.skipped] == [
        ("Empty.md", "damaged"),
        ("Latin.md", "damaged"),
        ("Tea.md", "damaged"),
    ]
    assert (tmp_path / "Main" / "Tea.md").read_text() == "spilt\n"
    copied = restore_to(tmp_path / "out", tmp_path / "to")
    assert [one.path for one in copied.skipped] == ["Empty.md", "Latin.md", "Tea.md"]
    assert sorted(files(tmp_path / "out")) == ["Drinks/Coffee.md", "Drinks/cup.png", 'Odd/What?: "x" .md']


def test_a_disk_that_refuses_times_is_told_in_words(
    kept: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def utime(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "utime", utime)
    with pytest.raises(Forbidden, match="the file system does not let us use"):
        restore_to(tmp_path / "out", tmp_path / "to")


def test_a_list_that_would_lead_out_of_the_backup_is_not_believed(kept: Workspace, tmp_path: Path) -> None:
    said = tmp_path / "to" / "2026-05-04" / ".notewright-backup.json"
    text = said.read_text()
    for evil in ("../../outside.md", "/etc/passwd", ".ssh/authorized_keys", "a\\b.md"):
        said.write_text(text.replace('"Tea.md"', f'"{evil}"'.replace("\\", "\\\\")))
        with pytest.raises(Invalid, match="the list of the backup 2026-05-04 cannot be read"):
            restore_to(tmp_path / "out", tmp_path / "to")
    said.write_text(text[:-50])
    with pytest.raises(Invalid, match="cannot be read"):
        restore_backup(kept, tmp_path / "to")
    assert back_up([kept], tmp_path / "to", now=day(1)).success, "the next backup is made all the same"


def test_what_is_much_becomes_several_changes(kept: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_write, "MAX_FILES", 2)
    before = files(tmp_path / "Main")
    done = restore_backup(kept, tmp_path / "to", exact=True)
    assert len(done.changes) == 3
    assert files(tmp_path / "Main") == files(tmp_path / "to" / "2026-05-04")
    for change in reversed(done.changes):
        undo(kept, change)
    assert files(tmp_path / "Main") == before


@pytest.mark.slow
def test_what_stops_in_the_middle_says_how_to_take_back_the_part_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_write, "MAX_FILES", 1)
    write_files(tmp_path / "whole", {"A.md": "small\n", "B.bin": random.Random(1).randbytes(400_000)})
    back_up([folder_workspace(tmp_path / "whole")], tmp_path / "to", now=day(0))
    with small_disk(tmp_path / "disk", 200):
        ws = folder_workspace(tmp_path / "disk")
        with pytest.raises(NoSpace) as refused:
            restore_backup(ws, tmp_path / "to")
        done = [change.id for change in list_changes(ws, ChangeQuery())]
        assert refused.value.hint.startswith(f"a part is done; undo takes it back: {done[0]}") and len(done) == 1
        assert files(tmp_path / "disk") == {"A.md": b"small\n"}
        undo(ws, done[0])
        assert files(tmp_path / "disk") == {}


def test_a_folder_that_has_the_name_of_a_note_is_in_the_way_of_that_note_only(kept: Workspace, tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"Latin.md/in the way.md": "x", "Odd": "a file where a folder was"})
    done = restore_backup(kept, tmp_path / "to")
    assert [(one.path, one.reason) for one in done.skipped] == [
        ("Latin.md", "exists"),
        ('Odd/What?: "x" .md', "exists"),
    ]
    assert (done.created, done.replaced) == (("Empty.md",), ("Drinks/cup.png", "Tea.md"))


def test_a_note_saved_while_it_is_restored_is_not_lost(kept: Workspace, tmp_path: Path) -> None:
    """The bytes that were replaced are in the history, the last of them too."""

    def save(done: int, total: int | None) -> None:
        (tmp_path / "Main" / "Tea.md").write_text("saved by hand\n")

    change = restore_backup(kept, tmp_path / "to", report=save).changes[0]
    assert (tmp_path / "Main" / "Tea.md").read_text() == "# Tea\n\nGreen.\n"
    undo(kept, change)
    assert (tmp_path / "Main" / "Tea.md").read_text() == "saved by hand\n"


def test_symlinks_are_not_written_through(kept: Workspace, tmp_path: Path) -> None:
    (tmp_path / "Main" / "Latin.md").symlink_to(tmp_path / "Main" / "Tea.md")
    done = restore_backup(kept, tmp_path / "to", paths=["Latin.md"])
    assert [(one.path, one.reason) for one in done.skipped] == [("Latin.md", "symlink")]
    assert (tmp_path / "Main" / "Latin.md").is_symlink()


def test_notes_come_back_into_a_workspace_that_was_emptied(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({f"N {number}.md": f"{number}\n" for number in range(20)})
    ws.follower.wait(20)
    back_up([ws], tmp_path / "to", now=day(0))
    for path in (tmp_path / "Main").iterdir():
        path.unlink()
    assert len(restore_backup(ws, tmp_path / "to").created) == 20
    assert files(tmp_path / "Main") == files(tmp_path / "to" / "2026-05-04")


def test_rules_for_agents_do_not_keep_the_owner_from_restoring(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Private/Diary.md": "secret\n"}, hide=("Private/**",), write_under=("Inbox/**",), max_file_size=3)
    back_up([ws], tmp_path / "to", now=day(0))
    (tmp_path / "Main" / "Private" / "Diary.md").unlink()
    assert restore_backup(ws, tmp_path / "to").created == ("Private/Diary.md",)


def test_a_read_only_workspace_is_not_restored_into(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace(NOTES, read_only=True)
    back_up([ws], tmp_path / "to", now=day(0))
    with pytest.raises(ReadOnly):
        restore_backup(ws, tmp_path / "to")


def test_the_right_one_of_several_workspaces_is_restored(workspace: MakeWorkspace, tmp_path: Path) -> None:
    work, home = workspace({"Tea.md": "work\n"}, "Work"), workspace({"Tea.md": "home\n"}, "Home")
    other = workspace({}, "Other")
    back_up([work, home], tmp_path / "to", now=day(0))
    (tmp_path / "Home" / "Tea.md").unlink()
    assert restore_backup(home, tmp_path / "to").created == ("Tea.md",)
    assert (tmp_path / "Home" / "Tea.md").read_text() == "home\n"
    with pytest.raises(NotFound, match="there is Home, Work"):
        restore_backup(other, tmp_path / "to")


def test_plain_files_go_only_into_a_folder_that_is_new_or_empty(kept: Workspace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    made = tmp_path / "to" / "2026-05-04"
    for target in (tmp_path / "empty", tmp_path / "new" / "deeper"):
        restore_to(target, tmp_path / "to")
        assert (files(target), times(target)) == (files(made), times(made))
    with pytest.raises(Exists, match="is not empty"):
        restore_to(tmp_path / "Main", tmp_path / "to")
    with pytest.raises(Invalid, match="inside the folder of backups"):
        restore_to(tmp_path / "to" / "copy", tmp_path / "to")
    assert len(restore_to(tmp_path / "dry", tmp_path / "to", dry_run=True).created) == 6
    assert not (tmp_path / "dry").exists()


def test_restoring_waits_for_no_backup_that_is_being_made(kept: Workspace, tmp_path: Path) -> None:
    def restore(done: int, total: int | None) -> None:
        with pytest.raises(Busy):
            restore_backup(kept, tmp_path / "to")
        with pytest.raises(Busy):
            restore_to(tmp_path / "out", tmp_path / "to")

    assert back_up([kept], tmp_path / "to", now=day(1), report=restore).success
    assert not (tmp_path / "out").exists()


def test_a_note_changed_after_a_restore_stands_in_the_way_of_its_undo(kept: Workspace, tmp_path: Path) -> None:
    change = restore_backup(kept, tmp_path / "to").changes[0]
    change_text(kept, NotePath("Tea.md"), lambda text: text.replace("Green", "White"))
    os.utime(tmp_path / "Main" / "Tea.md")
    with pytest.raises(Conflict, match=r"Tea.md was changed since"):
        undo(kept, change)


def test_the_last_good_backup_is_the_newest_without_errors(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws, to = workspace({"A.md": "a"}), tmp_path / "to"
    assert last_good_backup(BackupFolder(to)) is None
    for number in (1, 2):
        back_up([ws], to, now=datetime(2026, 5, number, 2, tzinfo=UTC))
    assert last_good_backup(BackupFolder(to)) == datetime(2026, 5, 2, 2, tzinfo=UTC).timestamp()
    manifest = to / "2026-05-02" / ".notewright-backup.json"
    manifest.write_text(manifest.read_text().replace('"errors": []', '"errors": ["A.md cannot be read"]'))
    assert last_good_backup(BackupFolder(to)) == datetime(2026, 5, 1, 2, tzinfo=UTC).timestamp()
