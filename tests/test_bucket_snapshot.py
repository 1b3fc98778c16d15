"""The copy of the index in a bucket: a new machine is ready without reading every object, whatever it finds there."""

import hashlib
import json
import logging
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from tests.bucket import Bucket

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.find.search import parse_query, search
from notewright.engine.indexing import index_snapshot
from notewright.engine.workspace import Workspace
from notewright.engine.write import edit_note
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath

pytestmark = pytest.mark.slow

NOTES = 300
MANIFEST = ".notewright/index/snapshot.json"
Open = Callable[..., Workspace]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_snapshot, "MIN_FILES", NOTES)


@pytest.fixture
def machine(bucket: Bucket, tmp_path: Path) -> Iterator[Open]:
    made: list[Workspace] = []

    def open_on(name: str, *, read_only: bool = False) -> Workspace:
        one = WorkspaceConfig("Notes", "notes", bucket.location, endpoint=bucket.proxy.endpoint, poll_seconds=3600)
        one = replace(one, read_only=read_only)
        ws = open_workspace(one, Config((one,), str(tmp_path / name / "state"), str(tmp_path / name / "cache")))
        made.append(ws)
        ws.follower.wait(60)
        return ws

    yield open_on
    for ws in made:
        close_workspace(ws)


def fill(bucket: Bucket) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda i: bucket.put(f"f{i % 7}/n{i}.md", f"# Note {i}\n\nword{i}\n".encode()),
                range(NOTES),
            )
        )


def await_manifest(bucket: Bucket) -> dict[str, object]:
    until = time.monotonic() + 30
    while MANIFEST not in bucket.keys():  # noqa: SIM118
        assert time.monotonic() < until, "no snapshot was written"
        time.sleep(0.05)
    told: dict[str, object] = json.loads(bucket.get(MANIFEST))
    return told


def found(ws: Workspace, words: str) -> list[str]:
    return [hit.path for hit in search(ws, parse_query(words)).items]


def gets(bucket: Bucket, start: Callable[[], Workspace]) -> tuple[Workspace, Counter[str]]:
    """What was read of the notes until the index was ready."""
    seen: Counter[str] = Counter()

    def note(kind: str, key: str, number: int) -> None:
        seen.update([key.removeprefix(f"{bucket.prefix}/")] if kind == "GET" else [])

    bucket.proxy.breaks = note
    ws = start()
    bucket.proxy.breaks = None
    return ws, Counter({key: count for key, count in seen.items() if not key.startswith(".notewright")})


def test_a_new_machine_reads_only_what_changed_since_the_snapshot(bucket: Bucket, machine: Open) -> None:
    fill(bucket)
    first, read = gets(bucket, lambda: machine("first"))
    assert len(read) == NOTES
    assert await_manifest(bucket)["files"] == NOTES
    edit_note(first, NotePath("f1/n1.md"), [Append("kettle")])
    close_workspace(first)
    bucket.put("f2/n2.md", b"# Note 2\n\nteapot\n")
    bucket.put("new.md", b"samovar\n")
    obstore.delete(bucket.outside, f"{bucket.prefix}/f3/n3.md")
    second, read = gets(bucket, lambda: machine("second"))
    assert read == {"f1/n1.md": 1, "f2/n2.md": 1, "new.md": 1}
    for words, paths in {
        "kettle": ["f1/n1.md"], "teapot": ["f2/n2.md"], "samovar": ["new.md"], "word9": ["f2/n9.md"], "word3": [],
    }.items():  # fmt: skip
        assert found(second, words) == paths, words
    assert dict(second.index.stamps()) == {entry.path: entry.stamp for entry in second.store.entries()}
    edit_note(second, NotePath("f1/n1.md"), [Append("pot")])
    assert bucket.get("f1/n1.md").endswith(b"kettle\npot")


def test_a_large_index_goes_in_several_parts(bucket: Bucket, machine: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_snapshot, "PART_BYTES", 50_000)
    fill(bucket)
    close_workspace(machine("first"))
    assert len(await_manifest(bucket)["parts"]) > 2  # type: ignore[arg-type]
    second, read = gets(bucket, lambda: machine("second"))
    assert not read and found(second, "word9") == ["f2/n9.md"]


def too_deep(told: dict[str, object]) -> bytes:
    return b"[" * 60_000


def endless(told: dict[str, object]) -> bytes:
    return json.dumps(told | {"bytes": float("inf")}).encode()


def endless_serial(told: dict[str, object]) -> bytes:
    return json.dumps(told | {"serial": float("inf")}).encode()


@pytest.mark.parametrize("spoil", [too_deep, endless, endless_serial])
def test_a_snapshot_that_somebody_made_to_do_harm_does_not_end_the_indexing(
    bucket: Bucket, machine: Open, spoil: Callable[[dict[str, object]], bytes]
) -> None:
    fill(bucket)
    close_workspace(machine("first"))
    right = await_manifest(bucket)
    bucket.put(MANIFEST, spoil(right))
    second, read = gets(bucket, lambda: machine("second", read_only=True))
    assert len(read) == NOTES and found(second, "word9") == ["f2/n9.md"]
    close_workspace(second)
    first = machine("first")  # it has an index, and asks whether the snapshot is worth writing
    close_workspace(first)
    assert await_manifest(bucket)["form"] == right["form"]
    third, read = gets(bucket, lambda: machine("third"))
    assert not read and found(third, "word9") == ["f2/n9.md"]


@pytest.mark.parametrize("wrong", ["no json", "another form", "other notes", "a part is cut", "a part is gone"])
def test_a_snapshot_that_is_not_right_is_passed_over_and_replaced(
    bucket: Bucket, machine: Open, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    fill(bucket)
    close_workspace(machine("first"))
    told = await_manifest(bucket)
    part = f".notewright/index/{told['parts'][0]['name']}"  # type: ignore[index]
    if wrong == "no json":
        bucket.put(MANIFEST, b"\xff{")
    elif wrong == "another form":
        bucket.put(MANIFEST, json.dumps(told | {"form": "sqlite-0"}).encode())
    elif wrong == "other notes":
        bucket.put(MANIFEST, json.dumps(told | {"notes": "s3://elsewhere/notes"}).encode())
    elif wrong == "a part is cut":
        bucket.put(part, bucket.get(part)[:-10])
    else:
        obstore.delete(bucket.outside, f"{bucket.prefix}/{part}")
    with caplog.at_level(logging.WARNING, index_snapshot.__name__):
        second, read = gets(bucket, lambda: machine("second"))
    assert len(read) == NOTES and found(second, "word9") == ["f2/n9.md"]
    assert "the snapshot of the index is not used and every note is read" in caplog.text
    close_workspace(second)
    third, read = gets(bucket, lambda: machine("third"))
    assert not read and found(third, "word9") == ["f2/n9.md"]


def test_a_file_that_is_no_index_of_ours_is_not_installed(bucket: Bucket, machine: Open) -> None:
    """Whole and rightly described, but with a trigger that we did not make."""
    fill(bucket)
    close_workspace(machine("first"))
    told = await_manifest(bucket)
    (part,) = told["parts"]  # type: ignore[misc]
    file = bucket.state / "strange.db"
    bucket.state.mkdir(exist_ok=True)
    file.write_bytes(zlib.decompress(bucket.get(f".notewright/index/{part['name']}")))
    with sqlite3.connect(file) as strange:
        strange.execute("create trigger t after insert on files begin delete from files; end")
    packed = zlib.compress(file.read_bytes())
    bucket.put(f".notewright/index/{part['name']}", packed)
    part["sha256"] = hashlib.sha256(packed).hexdigest()
    bucket.put(MANIFEST, json.dumps(told | {"bytes": file.stat().st_size}).encode())
    second, read = gets(bucket, lambda: machine("second"))
    assert len(read) == NOTES and found(second, "word9") == ["f2/n9.md"]


def test_it_is_renewed_when_much_has_changed_and_only_by_the_machine_that_writes(
    bucket: Bucket, machine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bucket)
    reader = machine("reader", read_only=True)
    writer = machine("writer")
    old = await_manifest(bucket)
    edit_note(writer, NotePath("f1/n1.md"), [Append("kettle")])
    close_workspace(reader)
    close_workspace(writer)
    assert await_manifest(bucket) == old  # one change is not worth it
    monkeypatch.setattr(index_snapshot, "MIN_CHANGED", 2)
    monkeypatch.setattr(index_snapshot, "MIN_CHANGED_SHARE", 0)
    writer, read = gets(bucket, lambda: machine("writer"))
    assert not read
    edit_note(writer, NotePath("f1/n1.md"), [Append("pot")])
    close_workspace(writer)
    new = await_manifest(bucket)
    assert new["parts"] != old["parts"]
    kept = [key for key in bucket.keys() if key.startswith(".notewright/index/")]  # noqa: SIM118
    assert len(kept) == 1 + len(new["parts"])  # type: ignore[arg-type]
    second, read = gets(bucket, lambda: machine("second"))
    assert not read and found(second, "kettle pot") == ["f1/n1.md"]


def test_an_error_that_nobody_expected_while_it_is_written_does_not_end_the_following(
    bucket: Bucket, machine: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, raised = index_snapshot._compressed_parts, list[str]()

    def breaking(file: Path) -> Iterator[bytes]:
        if not raised:
            raised.append("once")
            raise sqlite3.OperationalError("not expected")
        return packed(file)

    monkeypatch.setattr(index_snapshot, "_compressed_parts", breaking)
    monkeypatch.setattr(index_snapshot, "MINUTES_BETWEEN", 0)
    fill(bucket)
    ws = machine("first")
    assert await_manifest(bucket)["files"] == NOTES and raised
    edit_note(ws, NotePath("f1/n1.md"), [Append("kettle")])
    assert found(ws, "kettle") == ["f1/n1.md"]


def test_a_bucket_that_was_emptied_since_is_empty_on_the_new_machine(bucket: Bucket, machine: Open) -> None:
    fill(bucket)
    close_workspace(machine("first"))
    await_manifest(bucket)
    for key in bucket.keys():  # noqa: SIM118
        if not key.startswith(".notewright/"):
            obstore.delete(bucket.outside, f"{bucket.prefix}/{key}")
    second, read = gets(bucket, lambda: machine("second"))
    assert not read and second.index.total("files") == 0 and not second.follower.progress().stale
