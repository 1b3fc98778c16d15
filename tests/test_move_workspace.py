"""Moving a workspace between folders and buckets: verified by hash, gone on with after a kill, the history with it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import obstore
import pytest
from tests.bucket import BUCKET, KEY, READ_KEY, READ_SECRET, SECRET, Bucket
from tests.conftest import ROOT, read_files, write_files
from tests.engine.transfer.backup_parts import files, times

from notewright.cli.main import main
from notewright.engine.transfer.move_workspace import MoveJournal, MoveResult, move_files
from notewright.errors import Busy, Conflict, Problem
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Store, Stored, Swap
from notewright.stores.folder.store import FolderStore
from notewright.stores.s3._signed_requests import BucketAddress, sign

pytestmark = pytest.mark.slow

NOTES: dict[str, str | bytes] = {
    "Tea.md": "# Tea\n\nGreen.\n",
    "Drinks/Cup.md": "for [[Tea]]\r\n",
    "Drinks/cup.png": bytes(range(256)) * 4,
    "Empty.md": "",
    "日本/ほうじ茶.md": "\ufeff# 茶\n",
    ".trash/Old.md": "old\n",
    "Drinks/.backups/Cup.2026-05-04T10-00-00.md": "for [[Coffee]]\n",
}
CARRIED = {path: text.encode() if isinstance(text, str) else text for path, text in NOTES.items()}


class Places:
    """A state directory, folders and prefixes, and the command line on them."""

    def __init__(self, place: Path, bucket: Bucket, capture: pytest.CaptureFixture[str]) -> None:
        self.place, self.bucket, self.capture = place, bucket, capture

    def make(self, kind: str, name: str) -> str:
        return str(self.place / name) if kind == "folder" else f"{self.bucket.location}/{name}"

    def write(self, location: str, notes: dict[str, str | bytes]) -> None:
        if not location.startswith("s3:"):
            return write_files(Path(location), notes)
        for path, text in notes.items():
            self.bucket.put(f"{location.rpartition('/')[2]}/{path}", text.encode() if isinstance(text, str) else text)

    def read(self, location: str) -> dict[str, bytes]:
        """Everything there, without what is ours in a bucket."""
        if not location.startswith("s3:"):
            return read_files(Path(location))
        prefix = location.removeprefix(f"s3://{BUCKET}/")
        found = [meta["path"] for page in obstore.list(self.bucket.outside, prefix) for meta in page]
        named = {key.removeprefix(f"{prefix}/"): key for key in found}
        return {
            name: bytes(obstore.get(self.bucket.outside, key).bytes())
            for name, key in named.items()
            if not name.startswith(".notewright/")
        }

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        assert main([*words, "--state", str(self.place / "state")]) == code, self.capture.readouterr()
        read = self.capture.readouterr()
        return read.out, read.err


@pytest.fixture
def places(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Places:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.weed.endpoint)
    return Places(tmp_path, bucket, capsys)


@pytest.mark.parametrize("target", ["folder", "bucket"])
@pytest.mark.parametrize("source", ["folder", "bucket"])
def test_a_workspace_moves_with_its_history_and_the_old_place_stays(places: Places, source: str, target: str) -> None:
    old, new = places.make(source, "old"), places.make(target, "new")
    places.write(old, NOTES)
    places.run("rename", "Tea", "Chai", "--workspace", old)
    before = places.read(old)
    _, err = places.run("move-workspace", old, new, "--dry-run")
    assert f"7 files would be copied to {new}" in err and not Path(new).exists()
    out, err = places.run("move-workspace", old, new)
    assert f"7 files in {new} the same as in {old}; 7 copied now" in out
    assert "The history came along (1 change)" in err and f"notewright serve old={new}" in err
    assert places.read(old) == before and places.read(new) == before
    assert before["Drinks/Cup.md"] == b"for [[Chai]]\r\n"
    assert "0 copied now (0 bytes)" in places.run("move-workspace", old, new)[0]
    places.run("undo", "--since", "1h", "--workspace", new)
    assert places.read(new) == CARRIED and places.read(old) == before


def test_a_bucket_that_can_only_be_read_is_refused_as_the_new_place(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READ_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READ_SECRET)
    assert "these credentials may not write" in places.run("move-workspace", old, places.make("bucket", "x"), code=1)[1]
    back = ("backup", "--workspace", old, "--to", places.make("bucket", "backups"))
    assert "these credentials may not write" in places.run(*back, code=1)[1]


def test_a_file_keeps_its_time_from_folder_to_folder(places: Places) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    os.utime(Path(old, "Tea.md"), ns=(0, 1_700_000_000_123_456_789))
    places.run("move-workspace", old, new := places.make("folder", "new"))
    assert times(Path(new)) == times(Path(old))


def test_inside_one_service_no_note_passes_through_this_machine(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    places.write(old := places.make("bucket", "old"), {f"{number}.md": f"note {number}\n" for number in range(30)})
    monkeypatch.setenv("AWS_ENDPOINT_URL", places.bucket.proxy.endpoint)
    asked: list[tuple[str, str]] = []
    places.bucket.proxy.breaks = lambda kind, key, number: asked.append((kind, key))
    places.run("move-workspace", old, new := places.make("bucket", "new"))
    assert len(places.read(new)) == 30
    assert [key for kind, key in asked if kind == "GET" and key.endswith(".md")] == []
    assert len([key for kind, key in asked if kind == "PUT" and key.endswith(".md")]) == 30


def test_two_buckets_of_one_service_are_copied_between_by_the_service(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BucketAddress(f"{places.bucket.weed.endpoint}/other", "us-east-1", 10.0)
    keys = {"access_key_id": KEY, "secret_access_key": SECRET}
    made = sign(place, keys, {}, datetime.now(UTC), method="PUT")
    urllib.request.urlopen(urllib.request.Request(made, method="PUT"), timeout=30).close()
    places.write(old := places.make("bucket", "old one"), {"a b/ü+&.md": "odd name\n", "Tea.md": "tea\n"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", places.bucket.proxy.endpoint)
    asked: list[tuple[str, str]] = []
    places.bucket.proxy.breaks = lambda kind, key, number: asked.append((kind, key))
    places.run("move-workspace", old, f"s3://other/{places.bucket.prefix}/new one")
    assert [key for kind, key in asked if kind == "GET" and key.endswith(".md")] == []
    places.bucket.proxy.breaks = None
    places.run("move-workspace", f"s3://other/{places.bucket.prefix}/new one", back := places.make("folder", "back"))
    assert files(Path(back)) == {"a b/ü+&.md": b"odd name\n", "Tea.md": b"tea\n"}


@pytest.mark.parametrize(("source", "target"), [("folder", "bucket"), ("bucket", "folder"), ("bucket", "bucket")])
def test_a_move_that_is_killed_goes_on_where_it_was(places: Places, source: str, target: str) -> None:
    old, new = places.make(source, "old"), places.make(target, "new")
    places.write(old, NOTES)
    ended = []
    for count in (2, 3, 4, 5, 8):
        places.write(old, {"Changed.md": f"before the kill at {count}\n"})
        command = [sys.executable, "-m", "tests.killed_move", old, new, str(places.place / "state"), str(count)]
        ended.append(subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode)
        assert places.read(old).items() >= CARRIED.items()
    assert ended.count(-signal.SIGKILL) >= 4, ended
    places.write(old, {"Changed.md": "at last\n"})
    out, _ = places.run("move-workspace", old, new)
    assert "8 files in " in out and places.read(new) == CARRIED | {"Changed.md": b"at last\n"}


def test_requests_that_fail_in_passing_are_repeated(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = places.make("folder", "old"), places.make("bucket", "new")
    places.write(old, NOTES)
    monkeypatch.setenv("AWS_ENDPOINT_URL", places.bucket.proxy.endpoint)
    faults = {20: "503", 21: "drop_before", 23: "drop_after", 25: "429"}
    places.bucket.proxy.breaks = lambda kind, key, number: faults.get(number)
    places.run("move-workspace", old, new)
    assert places.read(new) == CARRIED and places.bucket.proxy.counts.total() > max(faults)


class BadDisk(FolderStore):
    """Writes a wrong byte as often as it is told to."""

    wrong = 0

    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        if swap.path == "Tea.md":
            self.wrong -= 1
        bad = swap._replace(data=b"?" + (swap.data or b"")[1:])
        return super().swap(bad if swap.path == "Tea.md" and self.wrong >= 0 else swap, op=op, hidden=hidden)


@pytest.mark.parametrize(("wrong", "failed"), [(1, []), (9, ["Tea.md"])])
def test_a_copy_that_is_not_the_same_is_made_again_and_then_named(
    tmp_path: Path, wrong: int, failed: list[str]
) -> None:
    write_files(tmp_path / "old", NOTES)
    (tmp_path / "new").mkdir()
    target = BadDisk(tmp_path / "new")
    target.wrong = wrong
    finished: list[bool] = []
    done = moved(tmp_path, FolderStore(tmp_path / "old"), target, finish=lambda: finished.append(True))
    assert [one.path for one in done.failed] == failed and done.files == 7 - len(failed)
    assert finished == ([] if failed else [True]), "what is not whole gets no history and is not served"
    if failed:
        assert done.failed[0].words == "its bytes in the new place are not those of the old one"
    else:
        assert files(tmp_path / "new") == files(tmp_path / "old")


class MovedAtTheEnd(FolderStore):
    """Somebody saves a note just before the last round, and it is elsewhere when it is to be read."""

    place: Path
    is_last = False

    def lock(self, *args: Any, **options: Any) -> Any:
        write_files(self.place, {"Tea.md": "changed\n"})
        self.is_last = True
        return super().lock(*args, **options)

    def read_many(self, *args: Any, **options: Any) -> list[Stored | Problem]:
        if not self.is_last:
            return super().read_many(*args, **options)
        (self.place / "Tea.md").rename(self.place / "Chai.md")
        found = super().read_many(*args, **options)
        (self.place / "Chai.md").rename(self.place / "Tea.md")
        return found


def test_what_is_not_known_to_be_the_same_after_the_last_round_is_named_and_nothing_is_switched(tmp_path: Path) -> None:
    write_files(tmp_path / "old", NOTES)
    (tmp_path / "new").mkdir()
    source, target = MovedAtTheEnd(tmp_path / "old"), FolderStore(tmp_path / "new")
    source.place = tmp_path / "old"
    finished: list[bool] = []
    done = moved(tmp_path, source, target, finish=lambda: finished.append(True))
    assert [(one.path, one.words) for one in done.failed] == [
        ("Tea.md", "it is not known to be the same yet: run it again")
    ]
    assert (done.files, finished) == (6, [])
    again = moved(tmp_path, FolderStore(tmp_path / "old"), FolderStore(tmp_path / "new"))
    assert (again.files, again.copied, again.failed) == (7, 1, ())
    assert files(tmp_path / "new") == files(tmp_path / "old")


def moved(place: Path, source: Store, target: Store, **how: Any) -> MoveResult:
    journal = MoveJournal(place / "state" / "move.jsonl", "old")
    try:
        return move_files(source, target, journal, **how)
    finally:
        journal.close()
        source.close()
        target.close()


def test_what_somebody_changes_in_the_new_place_meanwhile_is_found_and_left(bucket: Bucket, tmp_path: Path) -> None:
    write_files(tmp_path / "old", NOTES)

    def spoil(done: int, total: int | None) -> None:
        if "Tea.md" in bucket.keys():  # noqa: SIM118
            bucket.put("Tea.md", b"spoilt\n")

    done = moved(tmp_path, FolderStore(tmp_path / "old"), bucket.open(), report=spoil)
    assert [(one.path, one.words) for one in done.failed] == [
        ("Tea.md", "it was changed in the new place, and stays so")
    ]
    assert bucket.get("Tea.md") == b"spoilt\n"


def test_notes_that_change_while_they_are_moved_come_as_they_are_at_the_end(bucket: Bucket, tmp_path: Path) -> None:
    write_files(tmp_path / "old", NOTES)
    steps: list[Callable[[], object]] = [
        lambda: (tmp_path / "old" / "Tea.md").write_text("changed\n"),
        lambda: (tmp_path / "old" / "Empty.md").unlink(),
        lambda: (tmp_path / "old" / "New.md").write_text("new\n"),
    ]

    def change(done: int, total: int | None) -> None:
        if steps:
            steps.pop(0)()

    assert not moved(tmp_path, FolderStore(tmp_path / "old"), bucket.open(), report=change).failed
    visible = {key: bucket.get(key) for key in bucket.keys() if not key.startswith(".") and "/." not in key}  # noqa: SIM118
    assert visible == files(tmp_path / "old") and visible["Tea.md"] == b"changed\n" and "Empty.md" not in visible


def test_a_note_that_changes_before_and_after_the_service_copies_it_comes_as_it_is_at_the_end(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied is neither what was listed nor what is there now, and yet it is our copy."""
    old, new, bucket = places.make("bucket", "old"), places.make("bucket", "new"), places.bucket
    places.write(old, NOTES)
    texts = iter(["second\n", "third\n"])

    def change(kind: str, key: str, number: int) -> None:
        when = ("PUT", f"{bucket.prefix}/new/Tea.md"), ("GET", f"{bucket.prefix}/old/Tea.md")
        if (kind, key) in when and (text := next(texts, "")):
            bucket.put("old/Tea.md", text.encode())

    bucket.proxy.breaks = change
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.endpoint)
    places.run("move-workspace", old, new)
    assert next(texts, None) is None, "it was changed both times"
    assert places.read(new) == CARRIED | {"Tea.md": b"third\n"}


def test_nothing_of_others_is_written_over_in_the_new_place(places: Places) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    places.write(new := places.make("bucket", "new"), {"Mine.md": "mine\n", "Tea.md": "mine too\n"})
    err = places.run("move-workspace", old, new, code=1)[1]
    assert "the new place holds other files: Mine.md. name an empty one" in err
    places.write(half := places.make("folder", "half"), {"Tea.md": "mine too\n"})
    out, err = places.run("move-workspace", old, half, code=1)
    assert "not moved Tea.md: another file of that name is in the new place" in out and "not complete" in err
    assert places.read(half)["Tea.md"] == b"mine too\n"
    places.write(other := places.make("folder", "other"), {"Tea.md": "other\n"})
    assert f"notes are being moved there from {old}" in places.run("move-workspace", other, half, code=1)[1]
    assert "overlap" in places.run("move-workspace", old, f"{old}/inside", code=2)[1]
    assert "location cannot be set by a move" in places.run("move-workspace", old, new, "location=x", code=2)[1]


def test_run_again_it_carries_over_what_changed_since_and_leaves_what_the_new_place_did(places: Places) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    places.run("move-workspace", old, new := places.make("bucket", "new"))
    places.write(new, {"Empty.md": "filled there\n", "There.md": "new there\n"})
    places.write(old, {"Tea.md": "changed here\n", "Here.md": "new here\n"})
    assert "2 copied now" in places.run("move-workspace", old, new)[0]
    now = places.read(new)
    assert (now["Empty.md"], now["There.md"]) == (b"filled there\n", b"new there\n")
    assert (now["Tea.md"], now["Here.md"]) == (b"changed here\n", b"new here\n")
    places.write(old, {"Empty.md": "filled here\n"})
    assert "not moved Empty.md: another file of that name" in places.run("move-workspace", old, new, code=1)[0]


def test_run_again_it_removes_nothing_in_the_new_place(places: Places) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    places.run("move-workspace", old, new := places.make("folder", "new"))
    Path(old, "Tea.md").unlink()
    out = places.run("move-workspace", old, new)[0]
    assert "left behind Tea.md: it is gone from the old place and stays in the new one" in out and "6 files in" in out
    assert places.read(new) == CARRIED
    Path(old).rename(places.place / "unmounted")
    Path(old).mkdir()
    err = places.run("move-workspace", old, new, code=1)[1]
    assert "the old place is empty now" in err and "is it mounted? nothing was removed" in err
    assert places.read(new) == CARRIED


def test_an_old_place_that_becomes_empty_takes_nothing_out_of_a_new_one_that_is_not_complete(tmp_path: Path) -> None:
    write_files(tmp_path / "old", NOTES)
    (tmp_path / "new").mkdir()
    target = BadDisk(tmp_path / "new")
    target.wrong = 9
    assert moved(tmp_path, FolderStore(tmp_path / "old"), target).failed
    copied = files(tmp_path / "new")
    (tmp_path / "old").rename(tmp_path / "unmounted")
    (tmp_path / "old").mkdir()
    with pytest.raises(Conflict, match="the old place is empty now"):
        moved(tmp_path, FolderStore(tmp_path / "old"), FolderStore(tmp_path / "new"))
    assert files(tmp_path / "new") == copied


def test_a_workspace_that_was_added_is_served_from_the_new_place_under_its_id(places: Places) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    places.run("workspace", "add", f"Work={old}", "timezone=Asia/Tokyo")
    new = places.make("bucket", "new")
    err = places.run("move-workspace", "Work", new, f"endpoint={places.bucket.weed.endpoint}")[1]
    assert "Servers that run with this state serve Work from there now" in err
    places.write(old, {"Late.md": "written by a call that was under way\n"})
    again = err.rpartition("comes along with: notewright ")[2].split()
    assert "1 copied now" in places.run(*again)[0] and "Late.md" in places.read(new)
    (one,) = json.loads(places.run("workspace", "list", "--json")[0])["workspaces"]
    assert (one["id"], one["location"], one["timezone"]) == ("work", new, "Asia/Tokyo")
    assert "Tea.md" in places.run("search", "green", "--workspace", "Work")[0]
    places.run("move-workspace", "Work", back := places.make("folder", "back"))
    (one,) = json.loads(places.run("workspace", "list", "--json")[0])["workspaces"]
    assert (one["id"], one["location"]) == ("work", back)


def test_a_place_of_a_configuration_is_said_as_it_is_to_be_written(places: Places) -> None:
    places.write(old := places.make("folder", "old"), NOTES)
    (places.place / "n.toml").write_text(f'[workspaces.Work]\nlocation = "{old}"\n')
    new, endpoint = places.make("bucket", "new"), places.bucket.weed.endpoint
    words = ("move-workspace", "Work", new, f"endpoint={endpoint}", "--config", str(places.place / "n.toml"))
    assert f'under [workspaces.Work]: location = "{new}", endpoint = "{endpoint}"' in places.run(*words)[1]


def test_a_journal_of_another_move_is_refused_and_a_line_cut_off_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "move.jsonl"
    MoveJournal(file, "here").close()
    with file.open("a") as cut:
        cut.write('["done", "Tea.md", "1", "2"]\n')
        cut.write('["done", "Cup.md", "1"')
    journal = MoveJournal(file, "here")
    assert list(journal.copied) == ["Tea.md"]
    journal.plan(NotePath("Cup.md"), "x")
    with pytest.raises(Busy, match="under way already"):
        MoveJournal(file, "here")
    journal.close()
    again = MoveJournal(file, "here")
    assert again.planned["Cup.md"] == {"x"}
    again.close()
    with pytest.raises(Conflict, match="being moved there from here"):
        MoveJournal(file, "elsewhere")
    finished = MoveJournal(file, "here")
    finished.complete()
    finished.close()
    other = MoveJournal(file, "elsewhere")
    assert (other.copied, other.planned, other.is_complete) == ({}, {}, False)
    other.close()
