"""backup, restore, export and import as a person types them."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine
from tests.conftest import ROOT, write_files
from tests.engine.transfer.backup_parts import files

NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nGreen.\n",
    "Drinks/Coffee.md": "Black.\r\n",
    "Drinks/cup.png": bytes(range(256)),
}


class Desk(CommandLine):
    """A folder of notes, a folder for backups, and the command line on them; `anywhere` names no workspace."""

    def __init__(self, place: Path, capture: pytest.CaptureFixture[str], name: str = "notes") -> None:
        state = ("--state", str(place / "state"))
        super().__init__(capture, "--workspace", str(place / name), *state)
        self.place, self.root, self.to = place, place / name, str(place / "to")
        self.anywhere = CommandLine(capture, *state)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    write_files(tmp_path / "notes", NOTES)
    return Desk(tmp_path, capsys)


def test_backup_says_what_was_copied_and_where(desk: Desk) -> None:
    out, err = desk.run("backup", "--to", desk.to)
    assert out.startswith(f"3 files copied (278 bytes), 0 unchanged: {desk.to}/20") and err == ""
    record = desk.json("backup", "--to", desk.to)
    assert (record["success"], record["filesBackedUp"], record["filesSkipped"], record["errors"]) == (True, 0, 3, [])
    assert files(Path(record["folder"])) == files(desk.root)
    assert f"{record['date']}  3 files, 278 bytes: notes\n" in desk.run("backup", "--to", desk.to, "--list")[0]


@pytest.mark.parametrize("words", [["backup", "--to"], ["restore", "--from"]])
def test_a_place_for_backups_that_is_no_bucket_is_refused(desk: Desk, words: list[str]) -> None:
    assert "'b' is no bucket's name. write it as s3://bucket/prefix" in desk.run(*words, "s3://b/x", code=2)[1]


@pytest.mark.parametrize("words", [["restore", "--from", ".", "--into"], ["export"]])
def test_a_place_to_copy_to_that_is_no_bucket_or_a_zip_file_in_one_is_refused(desk: Desk, words: list[str]) -> None:
    assert "'b' is no bucket's name" in desk.run(*words, "s3://b/x", code=2)[1]
    err = desk.run(*words, "s3://bucket/x.zip", code=2)[1]
    assert err.endswith("no zip file is written to a bucket. write s3://bucket/x: the notes are objects there\n")


def test_a_command_on_what_is_no_bucket_is_refused(desk: Desk) -> None:
    err = desk.anywhere.run("search", "x", "--workspace", "s3://b/x", code=2)[1]
    assert err == "notewright: 's3://b/x': 'b' is no bucket's name. write it as s3://bucket/prefix\n"


def test_backup_without_a_place_is_wrong_usage(desk: Desk) -> None:
    err = desk.run("backup", code=2)[1]
    assert err.startswith("notewright: no folder for backups was given. name a folder with --to, or set backup.to")
    assert "is inside the workspace" in desk.run("backup", "--to", str(desk.root / "to"), code=1)[1]
    desk.run("backup", "--to", desk.to, "--keep-days", "0", code=2)


def test_a_backup_with_errors_names_them_and_ends_with_1(desk: Desk) -> None:
    (desk.root / os.fsdecode(b"caf\xe9.md")).write_text("x")
    out, err = desk.run("backup", "--to", desk.to, code=1)
    assert out.startswith("3 files copied")
    assert err == "notewright: not backed up: caf\\xe9.md: its name is not text that can be written in a path\n"
    record = desk.json("backup", "--to", desk.to, code=1)
    assert not record["success"] and len(record["errors"]) == 1


def test_a_configuration_backs_up_all_its_workspaces(desk: Desk) -> None:
    write_files(desk.place / "more", {"Milk.md": "milk\n"})
    (desk.place / "server.toml").write_text(
        f'[workspaces.Notes]\nlocation = "notes"\n[workspaces.More]\nlocation = "more"\n'
        f'[backup]\nto = "{desk.to}"\nkeep_days = 3\n'
    )
    config = ("--config", str(desk.place / "server.toml"))
    write_files(Path(desk.to), {"2020-01-01/mine.txt": "mine"})
    record = desk.anywhere.json("backup", *config)
    assert files(Path(record["folder"])) == {f"notes/{name}": data for name, data in files(desk.root).items()} | {
        "more/Milk.md": b"milk\n"
    }
    (desk.place / "more" / "Milk.md").unlink()
    assert desk.anywhere.run("restore", *config, "--workspace", "More")[0] == "created Milk.md\n"
    assert (desk.place / "more" / "Milk.md").read_text() == "milk\n"
    out = str(desk.place / "out")
    assert desk.anywhere.json("restore", *config, "--into", out)["created"] == sorted(files(Path(record["folder"])))
    assert desk.anywhere.json("backup", *config, "--workspace", "More")["filesSkipped"] == 1
    assert len(files(Path(record["folder"]))) == 4, "the other workspace stays in the backup of the day"


def test_restore_brings_notes_back_and_undo_takes_that_back(desk: Desk) -> None:
    date = desk.json("backup", "--to", desk.to)["date"]
    saved = files(desk.root)
    write_files(desk.root, {"Tea.md": "spilt\n", "New.md": "new\n"})
    (desk.root / "Drinks" / "Coffee.md").unlink()
    spilt = files(desk.root)
    out, err = desk.run("restore", "--from", desk.to, "--exact", "--dry-run")
    assert out == "created Drinks/Coffee.md\nreplaced Tea.md\ndeleted New.md\n"
    assert err == f"2 files would be restored from the backup of {date}, 1 would be deleted, 1 as they are\n"
    assert files(desk.root) == spilt
    done = desk.json("restore", "--from", desk.to, "--exact")
    assert files(desk.root) == saved and len(done["changes"]) == 1
    assert "restored 3 files from the backup of" in desk.run("log")[0]
    desk.run("undo", done["changes"][0])
    assert files(desk.root) == spilt
    assert "Take it back: notewright undo " in desk.run("restore", "--from", desk.to)[1]


def test_restore_takes_a_date_and_paths(desk: Desk) -> None:
    date = desk.json("backup", "--to", desk.to)["date"]
    for name in NOTES:
        (desk.root / name).unlink()
    assert desk.run("restore", "--from", desk.to, "Tea")[0] == "created Tea.md\n"
    assert desk.run("restore", "--from", desk.to, "newest", "./Drinks/cup.png")[0] == "created Drinks/cup.png\n"
    assert desk.run("restore", "--from", desk.to, date, str(desk.root / "Drinks"))[0] == "created Drinks/Coffee.md\n"
    assert "there is no backup of 2020-01-01" in desk.run("restore", "--from", desk.to, "2020-01-01", code=1)[1]
    assert "Nope is not in that backup" in desk.run("restore", "--from", desk.to, "Nope", code=1)[1]
    desk.run("restore", "--from", desk.to, "--into", "x", "--exact", code=2)


def test_restore_into_a_folder_makes_plain_files(desk: Desk) -> None:
    date = desk.json("backup", "--to", desk.to)["date"]
    new = desk.place / "new"
    out, err = desk.anywhere.run("restore", "--from", desk.to, "--into", str(new))
    assert (out, err) == ("", f"3 files restored from the backup of {date}\n")
    assert files(new) == files(desk.root)
    assert "is not empty" in desk.anywhere.run("restore", "--from", desk.to, "--into", str(new), code=1)[1]


def test_a_damaged_backup_ends_with_1_and_the_rest_comes_back(desk: Desk) -> None:
    folder = Path(desk.json("backup", "--to", desk.to)["folder"])
    (folder / "Tea.md").write_text("rotten\n")
    for name in ("Tea.md", "Drinks/Coffee.md"):
        (desk.root / name).unlink()
    out = desk.run("restore", "--from", desk.to, code=1)[0]
    assert out == (
        "created Drinks/Coffee.md\nleft out Tea.md: its bytes in the backup are not those that were backed up\n"
    )


def test_export_and_import(desk: Desk) -> None:
    target = desk.place / "out.zip"
    out, err = desk.run("export", str(target))
    assert (out, err) == ("", f"3 files, 278 bytes: {target}\n")
    assert desk.json("export", str(target))["files"] == 3, "an older file of that name is replaced"
    desk = Desk(desk.place, desk.capture, "other")
    desk.root.mkdir()
    assert desk.run("import", str(target), "--dry-run")[1] == "3 files would come\n"
    assert files(desk.root) == {}
    report = desk.json("import", str(target))
    assert report["created"] == sorted(NOTES) and files(desk.root) == files(desk.place / "notes")
    assert desk.run("import", str(target))[1] == "0 files came, 3 were there already\n"
    desk.run("undo", report["changes"][0])
    assert files(desk.root) == {}
    out, err = desk.run("import", str(desk.place / "notes"), "--under", "Old")
    assert out == "created Old/Drinks/Coffee.md\ncreated Old/Drinks/cup.png\ncreated Old/Tea.md\n"
    assert err.startswith("3 files came. Take it back: notewright undo ")
    assert sorted(path.name for path in desk.place.iterdir()) == ["notes", "other", "out.zip", "state"]


def test_import_ends_with_1_where_something_is_missed_and_0_where_it_is_left_out_by_rule(desk: Desk) -> None:
    source = desk.place / "in.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("Tea.md", "theirs\n")
        archive.writestr(".obsidian/app.json", "{}")
    out, err = desk.run("import", str(source))
    assert out == (
        "left out .obsidian/app.json: a name in it begins with a dot\n"
        "left out Tea.md: there is another file of this name\n"
    )
    assert err == "0 files came, 2 left out\n"
    assert desk.run("import", str(source), "--overwrite")[0].startswith("replaced Tea.md\n")
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("../evil.md", "x")
    assert "left out ../evil.md: " in desk.run("import", str(source), code=1)[0]
    assert not (desk.place / "evil.md").exists()


def test_a_zip_file_is_not_written_among_the_notes_nor_half(desk: Desk) -> None:
    assert "would lie among the notes" in desk.run("export", str(desk.root / "all.zip"), code=1)[1]
    assert "is a folder" in desk.run("export", str(desk.place), code=1)[1]
    assert "is not there" in desk.run("export", str(desk.place / "no" / "all.zip"), code=1)[1]
    assert "is not there" in desk.run("import", str(desk.place / "nothing.zip"), code=1)[1]
    assert sorted(path.name for path in desk.place.iterdir()) == ["notes", "state"]


def test_export_says_what_it_cannot_take_along(desk: Desk) -> None:
    (desk.root / "two\nlines.md").write_text("x")
    out, err = desk.run("export", str(desk.place / "out.zip"), code=1)
    assert out == "left out two\nlines.md: its name is not text that can be written in a path\n"
    assert err.startswith("3 files, 278 bytes")
    assert desk.json("export", str(desk.place / "out.zip"), code=1)["skipped"][0]["path"] == "two\nlines.md"


def test_export_replaces_no_pipe_and_no_device(desk: Desk) -> None:
    pipe = desk.place / "pipe"
    os.mkfifo(pipe)
    assert f"export - > {pipe}" in desk.run("export", str(pipe), code=1)[1]
    assert pipe.is_fifo()


@pytest.mark.slow
def test_export_to_standard_output_is_the_zip_file_alone(desk: Desk) -> None:
    words = [sys.executable, "-m", "notewright.cli", "export", "-", "--workspace", desk.root]
    done = subprocess.run([*words, "--state", desk.place / "state"], cwd=ROOT, capture_output=True, check=True)
    assert done.stderr == b"3 files, 278 bytes\n"
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files(desk.root)
    desk.run("export", "-", "--json", code=2)
