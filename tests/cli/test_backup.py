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


class Shell(CommandLine):
    """A folder of notes, a folder for backups, and the command line on them; `anywhere` names no workspace."""

    def __init__(self, place: Path, capture: pytest.CaptureFixture[str], name: str = "notes") -> None:
        state = ("--state", str(place / "state"))
        super().__init__(capture, "--workspace", str(place / name), *state)
        self.place, self.root, self.to = place, place / name, str(place / "to")
        self.anywhere = CommandLine(capture, *state)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    write_files(tmp_path / "notes", NOTES)
    return Shell(tmp_path, capsys)


def test_backup_says_what_was_copied_and_where(shell: Shell) -> None:
    out, err = shell.run("backup", "--to", shell.to)
    assert out.startswith(f"3 files copied (278 bytes), 0 unchanged: {shell.to}/20") and err == ""
    record = shell.json("backup", "--to", shell.to)
    assert (record["success"], record["filesBackedUp"], record["filesSkipped"], record["errors"]) == (True, 0, 3, [])
    assert files(Path(record["folder"])) == files(shell.root)
    assert f"{record['date']}  3 files, 278 bytes: notes\n" in shell.run("backup", "--to", shell.to, "--list")[0]


@pytest.mark.parametrize("words", [["backup", "--to"], ["restore", "--from"]])
def test_a_place_for_backups_that_is_no_bucket_is_refused(shell: Shell, words: list[str]) -> None:
    assert "'b' is no bucket's name. write it as s3://bucket/prefix" in shell.run(*words, "s3://b/x", code=2)[1]


@pytest.mark.parametrize("words", [["restore", "--from", ".", "--into"], ["export"]])
def test_a_place_to_copy_to_that_is_no_bucket_or_a_zip_file_in_one_is_refused(shell: Shell, words: list[str]) -> None:
    assert "'b' is no bucket's name" in shell.run(*words, "s3://b/x", code=2)[1]
    err = shell.run(*words, "s3://bucket/x.zip", code=2)[1]
    assert err.endswith("no zip file is written to a bucket. write s3://bucket/x: the notes are objects there\n")


def test_a_command_on_what_is_no_bucket_is_refused(shell: Shell) -> None:
    err = shell.anywhere.run("search", "x", "--workspace", "s3://b/x", code=2)[1]
    assert err == "notewright: 's3://b/x': 'b' is no bucket's name. write it as s3://bucket/prefix\n"


def test_backup_without_a_place_is_wrong_usage(shell: Shell) -> None:
    err = shell.run("backup", code=2)[1]
    assert err.startswith("notewright: no folder for backups was given. name a folder with --to, or set backup.to")
    assert "is inside the workspace" in shell.run("backup", "--to", str(shell.root / "to"), code=1)[1]
    shell.run("backup", "--to", shell.to, "--keep-days", "0", code=2)


def test_a_backup_with_errors_names_them_and_ends_with_1(shell: Shell) -> None:
    (shell.root / os.fsdecode(b"caf\xe9.md")).write_text("x")
    out, err = shell.run("backup", "--to", shell.to, code=1)
    assert out.startswith("3 files copied")
    assert err == "notewright: not backed up: caf\\xe9.md: its name is not text that can be written in a path\n"
    record = shell.json("backup", "--to", shell.to, code=1)
    assert not record["success"] and len(record["errors"]) == 1


def test_a_configuration_backs_up_all_its_workspaces(shell: Shell) -> None:
    write_files(shell.place / "more", {"Milk.md": "milk\n"})
    (shell.place / "server.toml").write_text(
        f'[workspaces.Notes]\nlocation = "notes"\n[workspaces.More]\nlocation = "more"\n'
        f'[backup]\nto = "{shell.to}"\nkeep_days = 3\n'
    )
    config = ("--config", str(shell.place / "server.toml"))
    write_files(Path(shell.to), {"2020-01-01/mine.txt": "mine"})
    record = shell.anywhere.json("backup", *config)
    assert files(Path(record["folder"])) == {f"notes/{name}": data for name, data in files(shell.root).items()} | {
        "more/Milk.md": b"milk\n"
    }
    (shell.place / "more" / "Milk.md").unlink()
    assert shell.anywhere.run("restore", *config, "--workspace", "More")[0] == "created Milk.md\n"
    assert (shell.place / "more" / "Milk.md").read_text() == "milk\n"
    out = str(shell.place / "out")
    assert shell.anywhere.json("restore", *config, "--into", out)["created"] == sorted(files(Path(record["folder"])))
    assert shell.anywhere.json("backup", *config, "--workspace", "More")["filesSkipped"] == 1
    assert len(files(Path(record["folder"]))) == 4, "the other workspace stays in the backup of the day"


def test_restore_brings_notes_back_and_undo_takes_that_back(shell: Shell) -> None:
    date = shell.json("backup", "--to", shell.to)["date"]
    saved = files(shell.root)
    write_files(shell.root, {"Tea.md": "spilt\n", "New.md": "new\n"})
    (shell.root / "Drinks" / "Coffee.md").unlink()
    spilt = files(shell.root)
    out, err = shell.run("restore", "--from", shell.to, "--exact", "--dry-run")
    assert out == "created Drinks/Coffee.md\nreplaced Tea.md\ndeleted New.md\n"
    assert err == f"2 files would be restored from the backup of {date}, 1 would be deleted, 1 as they are\n"
    assert files(shell.root) == spilt
    done = shell.json("restore", "--from", shell.to, "--exact")
    assert files(shell.root) == saved and len(done["changes"]) == 1
    assert "restored 3 files from the backup of" in shell.run("log")[0]
    shell.run("undo", done["changes"][0])
    assert files(shell.root) == spilt
    assert "Take it back: notewright undo " in shell.run("restore", "--from", shell.to)[1]


def test_restore_takes_a_date_and_paths(shell: Shell) -> None:
    date = shell.json("backup", "--to", shell.to)["date"]
    for name in NOTES:
        (shell.root / name).unlink()
    assert shell.run("restore", "--from", shell.to, "Tea")[0] == "created Tea.md\n"
    assert shell.run("restore", "--from", shell.to, "newest", "./Drinks/cup.png")[0] == "created Drinks/cup.png\n"
    assert shell.run("restore", "--from", shell.to, date, str(shell.root / "Drinks"))[0] == "created Drinks/Coffee.md\n"
    assert "there is no backup of 2020-01-01" in shell.run("restore", "--from", shell.to, "2020-01-01", code=1)[1]
    assert "Nope is not in that backup" in shell.run("restore", "--from", shell.to, "Nope", code=1)[1]
    shell.run("restore", "--from", shell.to, "--into", "x", "--exact", code=2)


def test_restore_into_a_folder_makes_plain_files(shell: Shell) -> None:
    date = shell.json("backup", "--to", shell.to)["date"]
    new = shell.place / "new"
    out, err = shell.anywhere.run("restore", "--from", shell.to, "--into", str(new))
    assert (out, err) == ("", f"3 files restored from the backup of {date}\n")
    assert files(new) == files(shell.root)
    assert "is not empty" in shell.anywhere.run("restore", "--from", shell.to, "--into", str(new), code=1)[1]


def test_a_damaged_backup_ends_with_1_and_the_rest_comes_back(shell: Shell) -> None:
    folder = Path(shell.json("backup", "--to", shell.to)["folder"])
    (folder / "Tea.md").write_text("rotten\n")
    for name in ("Tea.md", "Drinks/Coffee.md"):
        (shell.root / name).unlink()
    out = shell.run("restore", "--from", shell.to, code=1)[0]
    assert out == (
        "created Drinks/Coffee.md\nleft out Tea.md: its bytes in the backup are not those that were backed up\n"
    )


def test_export_and_import(shell: Shell) -> None:
    target = shell.place / "out.zip"
    out, err = shell.run("export", str(target))
    assert (out, err) == ("", f"3 files, 278 bytes: {target}\n")
    assert shell.json("export", str(target))["files"] == 3, "an older file of that name is replaced"
    shell = Shell(shell.place, shell.capture, "other")
    shell.root.mkdir()
    assert shell.run("import", str(target), "--dry-run")[1] == "3 files would come\n"
    assert files(shell.root) == {}
    report = shell.json("import", str(target))
    assert report["created"] == sorted(NOTES) and files(shell.root) == files(shell.place / "notes")
    assert shell.run("import", str(target))[1] == "0 files came, 3 were there already\n"
    shell.run("undo", report["changes"][0])
    assert files(shell.root) == {}
    out, err = shell.run("import", str(shell.place / "notes"), "--under", "Old")
    assert out == "created Old/Drinks/Coffee.md\ncreated Old/Drinks/cup.png\ncreated Old/Tea.md\n"
    assert err.startswith("3 files came. Take it back: notewright undo ")
    assert sorted(path.name for path in shell.place.iterdir()) == ["notes", "other", "out.zip", "state"]


def test_import_ends_with_1_where_something_is_missed_and_0_where_it_is_left_out_by_rule(shell: Shell) -> None:
    source = shell.place / "in.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("Tea.md", "theirs\n")
        archive.writestr(".obsidian/app.json", "{}")
    out, err = shell.run("import", str(source))
    assert out == (
        "left out .obsidian/app.json: a name in it begins with a dot\n"
        "left out Tea.md: there is another file of this name\n"
    )
    assert err == "0 files came, 2 left out\n"
    assert shell.run("import", str(source), "--overwrite")[0].startswith("replaced Tea.md\n")
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("../evil.md", "x")
    assert "left out ../evil.md: " in shell.run("import", str(source), code=1)[0]
    assert not (shell.place / "evil.md").exists()


def test_a_zip_file_is_not_written_among_the_notes_nor_half(shell: Shell) -> None:
    assert "would lie among the notes" in shell.run("export", str(shell.root / "all.zip"), code=1)[1]
    assert "is a folder" in shell.run("export", str(shell.place), code=1)[1]
    assert "is not there" in shell.run("export", str(shell.place / "no" / "all.zip"), code=1)[1]
    assert "is not there" in shell.run("import", str(shell.place / "nothing.zip"), code=1)[1]
    assert sorted(path.name for path in shell.place.iterdir()) == ["notes", "state"]


def test_export_says_what_it_cannot_take_along(shell: Shell) -> None:
    (shell.root / "two\nlines.md").write_text("x")
    out, err = shell.run("export", str(shell.place / "out.zip"), code=1)
    assert out == "left out two\nlines.md: its name is not text that can be written in a path\n"
    assert err.startswith("3 files, 278 bytes")
    assert shell.json("export", str(shell.place / "out.zip"), code=1)["skipped"][0]["path"] == "two\nlines.md"


def test_export_replaces_no_pipe_and_no_device(shell: Shell) -> None:
    pipe = shell.place / "pipe"
    os.mkfifo(pipe)
    assert f"export - > {pipe}" in shell.run("export", str(pipe), code=1)[1]
    assert pipe.is_fifo()


@pytest.mark.slow
def test_export_to_standard_output_is_the_zip_file_alone(shell: Shell) -> None:
    words = [sys.executable, "-m", "notewright.cli", "export", "-", "--workspace", shell.root]
    done = subprocess.run([*words, "--state", shell.place / "state"], cwd=ROOT, capture_output=True, check=True)
    assert done.stderr == b"3 files, 278 bytes\n"
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files(shell.root)
    shell.run("export", "-", "--json", code=2)
