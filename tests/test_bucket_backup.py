"""Backups in a bucket and of a bucket: day by day, nothing uploaded or read that did not change, whole after a kill."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest
from tests.api.api_site import config_of, served
from tests.bucket import READ_KEY, READ_SECRET, Bucket
from tests.conftest import ROOT, write_files
from tests.engine.parts import memory_workspace
from tests.engine.transfer.backup_parts import back_up, day, files, folder_workspace, restore_to, times
from tests.waiting import eventually

from notewright.app.opening import close_workspace, open_workspace
from notewright.cli.main import main
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.transfer.backup import BackupResult
from notewright.engine.transfer.backup_bucket import STAGED, UNFINISHED, BackupBucket
from notewright.engine.transfer.manifest import NAME, readable_manifests
from notewright.engine.transfer.restore import restore
from notewright.engine.write import create
from notewright.errors import Exists, Invalid
from notewright.notes.path import NotePath
from notewright.stores.s3.store import S3Store

pytestmark = pytest.mark.slow

NOTES: dict[str, str | bytes] = {f"f/N {number}.md": f"note {number}\n" for number in range(12)} | {
    "Tea.md": "# Tea\n",
    "cup.png": bytes(range(256)),
}
MONDAY, TUESDAY = "2026-05-04", "2026-05-05"
OpenAt = Callable[[str], S3Store]


@pytest.fixture
def at(bucket: Bucket, tmp_path: Path) -> Iterator[OpenAt]:
    """A store at a place below the test's prefix, through the proxy."""
    made: list[S3Store] = []

    def open_at(name: str) -> S3Store:
        made.append(S3Store(f"{bucket.location}/{name}", bucket.settings(), state=tmp_path / "state"))
        bucket.proxy.reset()
        return made[-1]

    yield open_at
    for store in made:
        store.close()


def inside(bucket: Bucket, folder: str) -> dict[str, bytes]:
    """The files in a folder of the bucket that are not behind a dot."""
    names = [key.removeprefix(f"{folder}/") for key in bucket.keys() if key.startswith(f"{folder}/")]  # noqa: SIM118
    return {name: bucket.get(f"{folder}/{name}") for name in names if not name.startswith(".") and "/." not in name}


def sent(bucket: Bucket, run: Callable[[], BackupResult]) -> tuple[BackupResult, list[tuple[str, str]]]:
    """What came of a backup, and its requests about files: kind and key."""
    asked: list[tuple[str, str]] = []
    bucket.proxy.breaks = lambda kind, key, number: asked.append((kind, key))
    result = run()
    bucket.proxy.breaks = None
    return result, [(kind, key) for kind, key in asked if kind != "LIST" and ".notewright" not in key]


def test_a_day_in_a_bucket_is_laid_out_as_in_a_folder_and_comes_back_the_same(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    assert back_up([ws], place, now=day(0)).files_backed_up == len(NOTES)
    assert inside(bucket, f"backups/{MONDAY}") == files(tmp_path / "notes")
    (tmp_path / "notes" / "Tea.md").write_text("# Tea\n\nchanged\n")
    (tmp_path / "notes" / "cup.png").unlink()
    assert back_up([ws], place, now=day(1)).files_skipped == len(NOTES) - 2
    assert inside(bucket, f"backups/{TUESDAY}") == files(tmp_path / "notes")
    assert "cup.png" in inside(bucket, f"backups/{MONDAY}")
    assert [one.date for one in readable_manifests(place)] == [TUESDAY, MONDAY]
    assert restore_to(tmp_path / "out", place).skipped == ()
    assert (files(tmp_path / "out"), times(tmp_path / "out")) == (files(tmp_path / "notes"), times(tmp_path / "notes"))
    back = restore(ws, place, date=MONDAY)
    assert (back.created, back.replaced) == (("cup.png",), ("Tea.md",))


def test_what_did_not_change_is_neither_uploaded_nor_read(bucket: Bucket, at: OpenAt, tmp_path: Path) -> None:
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    back_up([ws], place, now=day(0))
    (tmp_path / "notes" / "Tea.md").write_text("more\n")
    uploads: list[int] = []
    put = place.objects.put
    place.objects.put = lambda key, data: uploads.append(len(data)) or put(key, data)  # type: ignore[method-assign,func-returns-value]
    _, asked = sent(bucket, lambda: back_up([ws], place, now=day(1)))
    assert Counter(kind for kind, _ in asked) == {"PUT": len(NOTES)}, "all but one of them are copies in the service"
    assert sorted(uploads)[:2] == [0, 5] and len(uploads) == 3, "the mark, the note that changed, the manifest"
    _, asked = sent(bucket, lambda: back_up([ws], place, now=day(1)))
    assert asked == [], "a second backup of a day writes nothing but the manifest"


def test_a_workspace_in_a_bucket_is_backed_up_into_a_folder_by_its_etags(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    for path, text in NOTES.items():
        bucket.put(f"notes/{path}", text.encode() if isinstance(text, str) else text)
    ws, to = memory_workspace(at("notes")), tmp_path / "to"
    back_up([ws], to, now=day(0))
    bucket.put("notes/Tea.md", b"changed\n")
    result, asked = sent(bucket, lambda: back_up([ws], to, now=day(1)))
    assert [key.rpartition("/")[2] for kind, key in asked if kind == "GET"] == ["Tea.md"]
    assert (result.files_backed_up, result.files_skipped) == (1, len(NOTES) - 1)
    assert files(to / TUESDAY) == inside(bucket, "notes")
    assert (to / MONDAY / "cup.png").stat().st_ino == (to / TUESDAY / "cup.png").stat().st_ino
    (to / TUESDAY / "f" / "N 1.md").unlink()
    assert back_up([ws], to, now=day(2)).success, "what is not there to be linked is read again"
    assert files(to / "2026-05-06") == inside(bucket, "notes")


def test_from_bucket_to_bucket_unchanged_notes_are_copied_by_the_service(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    for path, text in NOTES.items():
        bucket.put(f"notes/{path}", text.encode() if isinstance(text, str) else text)
    ws, place = memory_workspace(at("notes")), BackupBucket(at("backups"))
    assert back_up([ws], place, now=day(0)).success
    result, asked = sent(bucket, lambda: back_up([ws], place, now=day(1)))
    assert Counter(kind for kind, _ in asked) == {"PUT": len(NOTES)} and result.files_backed_up == 0
    assert inside(bucket, f"backups/{TUESDAY}") == inside(bucket, "notes")
    with pytest.raises(Invalid, match="the workspace Desk lies in"):
        back_up([ws], BackupBucket(bucket.open()))
    with pytest.raises(Invalid, match="is inside the workspace"):
        back_up([ws], BackupBucket(at("notes/backups")))


def test_a_changed_note_whose_hash_the_index_knows_does_not_pass_through_this_machine(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    for path, text in NOTES.items():
        bucket.put(f"notes/{path}", text.encode() if isinstance(text, str) else text)
    asked = WorkspaceConfig("Notes", "notes", f"{bucket.location}/notes", endpoint=bucket.proxy.endpoint)
    config = Config((asked,), str(tmp_path / "state"), str(tmp_path / "cache"))
    ws, place = open_workspace(asked, config), BackupBucket(at("backups"))
    try:
        ws.follower.wait(30)
        _, requests = sent(bucket, lambda: back_up([ws], place, now=day(0)))
        read = [key.rpartition("/")[2] for kind, key in requests if kind == "GET"]
        assert read == ["cup.png"], "the index knows no hash of an attachment"
        assert inside(bucket, f"backups/{MONDAY}") == inside(bucket, "notes")
        create(ws, NotePath("New.md"), b"new\n")
        _, requests = sent(bucket, lambda: back_up([ws], place, now=day(1)))
        assert [key for kind, key in requests if kind == "GET"] == []
        assert inside(bucket, f"backups/{TUESDAY}")["New.md"] == b"new\n"
        assert restore_to(tmp_path / "out", place).skipped == (), "the hashes in the manifest are right"
    finally:
        close_workspace(ws)


def test_old_days_go_and_what_is_not_ours_stays(bucket: Bucket, at: OpenAt, tmp_path: Path) -> None:
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    bucket.put("backups/2020-01-01/mine.txt", b"mine")
    bucket.put(f"backups/2026-04-01/{UNFINISHED}", b"")
    bucket.put("backups/2026-04-01/Tea.md", b"half of a backup")
    back_up([ws], place, now=day(0))
    assert back_up([ws], place, now=day(2), keep_days=2).removed == (MONDAY,)
    days = {key.split("/")[1] for key in bucket.keys() if key.startswith("backups/2")}  # noqa: SIM118
    assert days == {"2020-01-01", "2026-05-06"} and bucket.get("backups/2020-01-01/mine.txt") == b"mine"
    bucket.put("backups/2026-05-07/mine.txt", b"mine")
    with pytest.raises(Exists, match="is in the way and is no backup of ours"):
        back_up([ws], place, now=day(3))


def test_a_file_that_was_damaged_in_the_bucket_is_not_linked_and_not_restored(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    back_up([ws], place, now=day(0))
    bucket.put(f"backups/{MONDAY}/Tea.md", b"# Tee\n")
    done = restore_to(tmp_path / "out", place)
    assert [(one.path, one.reason) for one in done.skipped] == [("Tea.md", "damaged")]
    assert back_up([ws], place, now=day(1)).success
    assert inside(bucket, f"backups/{TUESDAY}") == files(tmp_path / "notes")


@pytest.mark.parametrize("count", [1, 7, 13])
def test_a_backup_that_is_killed_is_finished_by_the_next_and_yesterday_is_whole(
    bucket: Bucket, at: OpenAt, tmp_path: Path, count: int
) -> None:
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    back_up([ws], place, now=day(0))
    yesterday = inside(bucket, f"backups/{MONDAY}")
    write_files(tmp_path / "notes", {path: f"changed {path}\n" for path in NOTES})
    location = f"{bucket.location}/backups"
    command = [sys.executable, "-m", "tests.killed_backup", str(tmp_path / "notes"), location, bucket.weed.endpoint]
    killed = subprocess.run([*command, "files", str(count)], cwd=ROOT, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert place.dates() == [MONDAY] and inside(bucket, f"backups/{MONDAY}") == yesterday
    assert bucket.get(f"backups/{TUESDAY}/{UNFINISHED}") == b""
    written = len(inside(bucket, f"backups/{TUESDAY}"))
    assert restore_to(tmp_path / "out", place).date == MONDAY
    _, asked = sent(bucket, lambda: back_up([ws], place, now=day(1)))
    assert place.dates() == [MONDAY, TUESDAY]
    assert inside(bucket, f"backups/{TUESDAY}") == files(tmp_path / "notes")
    assert len([kind for kind, _ in asked if kind == "PUT"]) <= len(NOTES) - written, "it goes on where it was"
    keys = bucket.keys()
    assert f"backups/{TUESDAY}/{NAME}" in keys and f"backups/{TUESDAY}/{UNFINISHED}" not in keys


def test_a_second_backup_of_a_day_that_is_killed_anywhere_leaves_the_first_or_is_whole(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    back_up([ws], place, now=day(1))
    first = files(tmp_path / "notes")
    write_files(tmp_path / "notes", {"Tea.md": "# Chai\n", "Later.md": "later\n"})
    (tmp_path / "notes" / "f" / "N 1.md").unlink()
    command = [sys.executable, "-m", "tests.killed_backup", str(tmp_path / "notes"), f"{bucket.location}/backups"]
    found = []
    for before in (3, 4, 5, 99):  # the manifest, copying what lies beside to its place, what comes then
        asked = [*command, bucket.weed.endpoint, "writes", str(before)]
        ran = subprocess.run(asked, cwd=ROOT, capture_output=True, timeout=60)
        assert place.dates() == [TUESDAY]
        assert restore_to(tmp_path / f"out {before}", place).skipped == ()
        found.append(files(tmp_path / f"out {before}"))
        assert found[-1] in (first, files(tmp_path / "notes")), "one or the other"
        assert ran.returncode == (0 if before == 99 else -signal.SIGKILL), ran.stderr
    assert [one == first for one in found] == [True, False, False, False]
    back_up([ws], place, now=day(2))
    assert place.dates() == [TUESDAY, "2026-05-06"]
    assert inside(bucket, f"backups/{TUESDAY}") == files(tmp_path / "notes") == found[-1]
    assert not any(UNFINISHED in key or STAGED in key for key in bucket.keys())  # noqa: SIM118


def test_a_backup_after_one_that_was_killed_while_it_settled_goes_by_what_is_there_then(
    bucket: Bucket, at: OpenAt, tmp_path: Path
) -> None:
    """The note is as it was in the first backup again, which is what lay in its place until the third settled it."""
    write_files(tmp_path / "notes", NOTES)
    ws, place = folder_workspace(tmp_path / "notes"), BackupBucket(at("backups"))
    back_up([ws], place, now=day(1))
    (tmp_path / "notes" / "Tea.md").write_text("# Tee\n")
    command = [sys.executable, "-m", "tests.killed_backup", str(tmp_path / "notes"), f"{bucket.location}/backups"]
    before_it_copies = [*command, bucket.weed.endpoint, "writes", "3"]
    killed = subprocess.run(before_it_copies, cwd=ROOT, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert bucket.get(f"backups/{TUESDAY}/{STAGED}/Tea.md") == b"# Tee\n"
    assert bucket.get(f"backups/{TUESDAY}/Tea.md") == b"# Tea\n"
    (tmp_path / "notes" / "Tea.md").write_text("# Tea\n")
    assert back_up([ws], place, now=day(1)).success
    assert restore_to(tmp_path / "out", place).skipped == ()
    assert files(tmp_path / "out") == files(tmp_path / "notes") == inside(bucket, f"backups/{TUESDAY}")


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_the_command_line_backs_up_lists_and_restores(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    write_files(tmp_path / "notes", NOTES)
    to = f"{bucket.location}/backups" if kind == "bucket" else str(tmp_path / "to")
    (tmp_path / "n.toml").write_text(
        f'[workspaces.Notes]\nlocation = "notes"\n[backup]\nto = "{to}"\nendpoint = "{bucket.weed.endpoint}"\n'
    )
    common = ["--config", str(tmp_path / "n.toml"), "--state", str(tmp_path / "state")]
    assert main(["backup", *common]) == 0
    assert f"14 files copied (348 bytes), 0 unchanged: {to}/20" in capsys.readouterr().out
    assert main(["backup", "--list", *common]) == 0
    assert "14 files, 348 bytes: Notes" in capsys.readouterr().out
    (tmp_path / "notes" / "Tea.md").unlink()
    assert main(["restore", "--workspace", "Notes", *common]) == 0
    assert (tmp_path / "notes" / "Tea.md").read_text() == "# Tea\n"


def test_a_place_for_backups_that_cannot_be_used_is_refused_with_what_to_set(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path / "notes", NOTES)
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    common = ["--workspace", str(tmp_path / "notes"), "--state", str(tmp_path / "state")]
    assert main(["backup", "--to", "s3://nowhere/x", *common]) == 1
    assert "make the bucket, or name another" in capsys.readouterr().err
    serve = ["serve", str(tmp_path / "notes"), "--http", "0", "--state", str(tmp_path / "state")]
    for variable in ("NOTEWRIGHT_BACKUP_TO", "NOTEWRIGHT_WORKSPACES_ROOT"):
        with monkeypatch.context() as told:
            told.setenv(variable, "s3://nowhere/x")
            assert main(serve) == 1
        assert "make the bucket, or name another" in capsys.readouterr().err


def test_a_server_makes_its_daily_backup_in_a_bucket_and_lists_it(bucket: Bucket, tmp_path: Path) -> None:
    flags = {"backup__to": f"{bucket.location}/backups", "backup__endpoint": bucket.weed.endpoint}
    with served(tmp_path, config_of(tmp_path, "Main", **flags)) as site, site.client() as client:

        def listed() -> list[dict[str, object]]:
            found: list[dict[str, object]] = client.get("/api/v1/backups").json().get("backups", [])
            return found

        (made,) = eventually(listed)
        today = str(made["date"])
        assert made["files"] == len(inside(bucket, f"backups/{today}")) == 4
        (tmp_path / "Main" / "New.md").write_text("new")
        (again,) = eventually(lambda: [one.json() for one in [client.post("/admin/backup")] if one.status_code == 200])
        assert again["filesBackedUp"] == 1, "while the daily one was under way it was refused"
        assert inside(bucket, f"backups/{today}")["New.md"] == b"new"
        assert "notewright_backup_last_success_time_seconds" in client.get("/metrics").text


def test_notes_are_imported_from_a_bucket_and_undo_takes_them_back(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    bucket.put("old/Tea.md", b"tea\n")
    bucket.put("old/f/CON.md", b"a name that is a device elsewhere\n")
    write_files(tmp_path / "notes", {"Milk.md": "milk\n"})
    common = ["--workspace", str(tmp_path / "notes"), "--state", str(tmp_path / "state")]
    assert main(["import", f"{bucket.location}/old", "--under", "From", *common]) == 1
    told = capsys.readouterr()
    assert "created From/Tea.md" in told.out and "left out f/CON.md" in told.out
    assert files(tmp_path / "notes") == {"Milk.md": b"milk\n", "From/Tea.md": b"tea\n"}
    assert main(["undo", "--since", "1h", *common]) == 0
    assert files(tmp_path / "notes") == {"Milk.md": b"milk\n"}
    inside_itself = ["import", f"{bucket.location}/old/f", "--workspace", f"{bucket.location}/old"]
    assert main([*inside_itself, "--state", str(tmp_path / "state")]) == 1
    assert "the bucket to import is inside the workspace" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_backup_is_restored_into_an_empty_prefix_which_is_a_workspace_then(
    bucket: Bucket,
    at: OpenAt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.endpoint)
    write_files(tmp_path / "notes", NOTES)
    source = f"{bucket.location}/backups" if kind == "bucket" else str(tmp_path / "to")
    state = ["--state", str(tmp_path / "state")]
    assert main(["backup", "--workspace", str(tmp_path / "notes"), "--to", source, *state]) == 0
    command = ["restore", "--from", source, *state, "--into"]
    assert main([*command, f"{bucket.location}/old", "--dry-run"]) == 0
    assert inside(bucket, "old") == {}
    bucket.proxy.reset()
    assert main([*command, f"{bucket.location}/old"]) == 0
    assert "14 files restored from the backup of" in capsys.readouterr().err
    assert bucket.proxy.most_at_once > 1
    assert inside(bucket, "old") == files(tmp_path / "notes")
    assert obstore.get(bucket.outside, f"{bucket.prefix}/old/Tea.md").attributes["title"] == "Tea"
    assert main([*command, f"{bucket.location}/old"]) == 1
    assert "is not empty" in capsys.readouterr().err
    if kind == "bucket":
        assert main([*command, f"{source}/old"]) == 1
        assert "is inside the folder of backups" in capsys.readouterr().err


def test_notes_are_exported_to_an_empty_prefix_and_come_back_from_there(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    write_files(tmp_path / "notes", NOTES | {f"{'x' * 200}/{'y' * 200}/{'z' * 200}/{'w' * 200}/{'v' * 200}.md": "long"})
    (tmp_path / "notes" / "Link.md").symlink_to("Tea.md")
    state = ["--state", str(tmp_path / "state")]
    export = ["export", f"{bucket.location}/copy", "--workspace", str(tmp_path / "notes"), *state]
    assert main(export) == 1
    told = capsys.readouterr()
    assert "left out Link.md: it is a symlink to Tea.md" in told.out and "its name is too long for a bucket" in told.out
    assert f"14 files, 348 bytes: {bucket.location}/copy" in told.err
    assert inside(bucket, "copy") == {path: (tmp_path / "notes" / path).read_bytes() for path in NOTES}
    assert main(export) == 1
    assert "is not empty" in capsys.readouterr().err
    (tmp_path / "back").mkdir()
    assert main(["import", f"{bucket.location}/copy", "--workspace", str(tmp_path / "back"), *state]) == 0
    assert files(tmp_path / "back") == inside(bucket, "copy")
    inside_itself = ["export", f"{bucket.location}/copy/f", "--workspace", f"{bucket.location}/copy", *state]
    assert main(inside_itself) == 1
    assert "the place to export to is inside the workspace" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READ_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READ_SECRET)
    assert main(["export", f"{bucket.location}/no", "--workspace", str(tmp_path / "back"), *state]) == 1
    assert "these credentials may not write to the bucket" in capsys.readouterr().err
