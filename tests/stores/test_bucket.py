"""What is true of notes in a bucket beyond the contract: requests, faults, tombstones, other people's objects."""

import base64
import itertools
import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from tests.bucket import BUCKET, KEY, READ_KEY, READ_SECRET, SECRET, Bucket
from tests.conftest import write_files
from tests.stores.bucket_workspace import RENAMED, TARGET, as_renamed, check, close, linked_notes, open_on

from notewright.config.aws import read_aws_profile
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.move import move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, edit_note, new_path
from notewright.errors import Busy, Conflict, Exists, Forbidden, NotFound, Problem, Unavailable
from notewright.ledger.base import ChangeQuery
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Swap, version_of
from notewright.stores.folder.store import FolderStore
from notewright.stores.s3._signed_requests import list_all
from notewright.stores.s3.metadata import encode
from notewright.stores.s3.settings import BucketSettings
from notewright.stores.s3.store import DELETED, TOMBSTONE, S3Store

pytestmark = pytest.mark.slow

A = NotePath("a.md")
OpenWorkspace = Callable[..., Workspace]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def open_workspace(bucket: Bucket, tmp_path: Path) -> Iterator[OpenWorkspace]:
    """Puts notes into the bucket and opens a workspace on them."""
    opened: list[Workspace] = []

    def make(notes: dict[str, bytes], *, watch: bool = False, **settings: float) -> Workspace:
        for path, data in notes.items():
            bucket.put(path, data)
        ws = open_on(bucket.open(**settings), tmp_path / "state", watch=watch)
        opened.append(ws)
        bucket.proxy.reset()
        return ws

    yield make
    for ws in opened:
        close(ws)


def in_threads(work: Callable[[int], object], count: int) -> float:
    """How many seconds it took; nothing may go wrong."""
    wrong: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    return time.perf_counter() - began


# Requests


def test_a_call_costs_no_more_requests_than_it_must(open_workspace: OpenWorkspace, bucket: Bucket) -> None:
    links = 30
    ws = open_workspace(linked_notes(links))

    def requests(call: Callable[[], object]) -> int:
        bucket.proxy.reset()
        call()
        return bucket.proxy.counts.total()

    note = NotePath("other/o1.md")
    assert requests(lambda: read(ws, note)) == 1
    assert requests(lambda: edit_note(ws, note, [Append("more")])) == 2
    assert requests(lambda: create(ws, new_path(ws, "New.md"), b"new")) == 1
    assert requests(lambda: create(ws, new_path(ws, "other/New.md"), b"new")) <= 3
    assert requests(lambda: move(ws, TARGET, RENAMED)) <= 2 * links + 10


def test_many_are_read_and_written_at_the_same_time(bucket: Bucket) -> None:
    store = bucket.open()
    paths = [NotePath(f"n{i}.md") for i in range(96)]
    bucket.proxy.latency = 0.02
    written = store.write_many([Swap(path, path.encode(), None) for path in paths], op="1")
    assert all(isinstance(one, Stored) for one in written)
    assert [one.data for one in store.read_many(paths) if isinstance(one, Stored)] == [path.encode() for path in paths]
    assert bucket.proxy.most_at_once >= 24


def test_what_is_read_for_the_index_alone_is_not_remembered_and_can_be_written(bucket: Bucket) -> None:
    bucket.put("a.md", b"one")
    store = bucket.open()
    (found,) = store.read_many([A], keep=False)
    assert isinstance(found, Stored)
    bucket.proxy.reset()
    store.write(A, b"two", seen=found.version, op="1")
    assert bucket.proxy.counts.total() == 2  # it is asked for, and put
    with pytest.raises(Conflict):
        store.write(A, b"three", seen=found.version, op="2")
    assert bucket.get("a.md") == b"two"


def test_what_a_look_for_changes_keeps_is_small_and_tells_what_came_went_and_changed(bucket: Bucket) -> None:
    for number in range(60):
        bucket.put(f"Projects/Garden {number % 4}/A note of some length, number {number}.md", b"%d" % number)
    store, stop = bucket.open(), threading.Event()
    kept = store._list_stamps()
    assert kept is not None and len(kept) < 60 * 50 and kept == store._list_stamps()
    hints = store.changes(stop)
    assert next(hints) is None
    bucket.put("Projects/Garden 1/A note of some length, number 1.md", b"another")
    bucket.put("New.md", b"new")
    obstore.delete(bucket.outside, f"{bucket.prefix}/Projects/Garden 2/A note of some length, number 2.md")
    seen = set[str]()
    while len(seen) < 3:
        seen |= next(hints) or set()
    stop.set()
    names = {f"Projects/Garden {number}/A note of some length, number {number}.md" for number in (1, 2)}
    assert seen == names | {"New.md"}


def test_sixty_four_readers_wait_for_nobody(open_workspace: OpenWorkspace, bucket: Bucket) -> None:
    ws = open_workspace({f"n{i}.md": b"begin\n" for i in range(64)})
    bucket.proxy.latency, bucket.proxy.gate = 0.02, 64
    in_threads(lambda number: read(ws, NotePath(f"n{number}.md")), 64)
    assert bucket.proxy.most_at_once == 64


def test_writers_of_different_notes_do_not_wait_for_each_other(open_workspace: OpenWorkspace, bucket: Bucket) -> None:
    ws = open_workspace({f"n{i}.md": b"begin\n" for i in range(64)})
    bucket.proxy.latency = 0.02

    def append(number: int) -> None:
        edit_note(ws, NotePath(f"n{number}.md"), [Append("more")])

    append(0)
    gained: list[float] = []
    while len(gained) < 5 and max(gained, default=0) < 5:  # a machine with other work may spoil some attempts
        one = min(in_threads(append, 1) for _ in range(3))
        gained.append(64 * one / in_threads(append, 64))
    assert max(gained) >= 5


def test_a_rename_of_five_hundred_links_takes_at_most_thirty_two_rounds_longer_than_in_a_folder(
    open_workspace: OpenWorkspace, bucket: Bucket, tmp_path: Path
) -> None:
    notes = linked_notes(500)
    write_files(tmp_path / "folder", notes)
    there = open_workspace(notes)
    here = open_on(FolderStore(tmp_path / "folder"), tmp_path / "folder-state")
    bucket.proxy.latency = 0.02
    store = bucket.open()
    version = store.write(A, b"0", seen=None, op="0").version
    names = [TARGET, NotePath(f"{RENAMED}.md")]
    beyond: list[float] = []
    while len(beyond) < 4 and min(beyond, default=1) > 0:  # a machine with other work may spoil some attempts
        data = str(len(beyond) + 1).encode()
        get = seconds(lambda: store.read(A))
        put = seconds(lambda: store.write(A, data, seen=version, op="x"))  # noqa: B023
        version = version_of(data)
        old, new = names[len(beyond) % 2], names[1 - len(beyond) % 2]
        allowed = seconds(lambda: move(here, old, str(new))) + 2 * math.ceil(500 / 32) * (get + put)  # noqa: B023
        beyond.append(seconds(lambda: move(there, old, str(new))) - allowed)  # noqa: B023
    close(here)
    assert min(beyond) <= 0, beyond


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


# Faults


FAULTS = ["429", "503", "drop_before", "drop_after", "truncate"]


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_on_the_way_nothing_is_lost_or_doubled(
    open_workspace: OpenWorkspace, bucket: Bucket, fault: str
) -> None:
    notes = linked_notes(12)
    ws = open_workspace(notes)
    bucket.proxy.breaks = lambda kind, key, number: fault if number % 3 == 0 else None
    note = NotePath("other/o1.md")
    for number in range(6):
        edit_note(ws, note, [Append(f"line {number}")])
    done = move(ws, TARGET, RENAMED)
    create(ws, new_path(ws, "New.md"), b"new\n")
    bucket.proxy.breaks = None
    text = bucket.get(note)
    assert [text.count(b"line %d" % number) for number in range(6)] == [1] * 6
    notes[note] = text
    check(ws, as_renamed(notes) | {"New.md": b"new\n"})
    undo(ws, done.change_id)
    check(ws, notes | {"New.md": b"new\n"})


def test_a_request_that_hangs_is_given_up_and_repeated(bucket: Bucket) -> None:
    store = bucket.open(timeout_seconds=0.5)
    first = store.write(A, b"one", seen=None, op="1").version
    bucket.proxy.breaks = lambda kind, key, number: "hang" if number in (1, 3) else None
    bucket.proxy.reset()
    second = store.write(A, b"two", seen=first, op="2").version
    assert store.read(A).version == second == version_of(b"two")


def test_a_bucket_that_is_away_is_unavailable_and_comes_back(bucket: Bucket) -> None:
    store = bucket.open(timeout_seconds=0.5, retry_seconds=1.0)
    version = store.write(A, b"one", seen=None, op="1").version
    bucket.proxy.breaks = lambda kind, key, number: "drop_before"
    for call in (lambda: store.read(A), lambda: list(store.entries()), lambda: store.children("")):
        with pytest.raises(Unavailable, match="does not answer"):
            call()
    with pytest.raises(Unavailable) as refused:
        store.write(A, b"two", seen=version, op="2")
    assert refused.value.details["unknown"]
    bucket.proxy.breaks = None
    assert store.read(A).data == b"one"


def test_a_write_whose_answer_never_came_is_found_by_its_operation(bucket: Bucket) -> None:
    store = bucket.open(timeout_seconds=0.4, retry_seconds=0.5)
    version = store.write(A, b"one", seen=None, op="1").version
    bucket.proxy.breaks = lambda kind, key, number: "drop_after" if kind == "PUT" else None
    assert store.write(A, b"two", seen=version, op="2").data == b"two"
    store.delete(A, seen=version_of(b"two"), op="3")
    bucket.proxy.breaks = None
    assert list(store.entries()) == [] and bucket.keys() == []


def test_no_write_is_sent_by_whoever_may_not_write_any_more(bucket: Bucket) -> None:
    store = bucket.open()
    version = store.write(A, b"one", seen=None, op="1").version
    bucket.proxy.reset()
    store._requests.may_write = lambda: False
    for call in (lambda: store.write(A, b"two", seen=version, op="2"), lambda: store.delete(A, seen=version, op="2")):
        with pytest.raises(Busy):
            call()
    assert bucket.proxy.counts["PUT"] == bucket.proxy.counts["DELETE"] == 0
    assert store.read(A).data == b"one"


def to_kill(work: str, bucket: Bucket, tmp_path: Path, argument: str) -> list[str]:
    asked = [work, bucket.location, bucket.proxy.endpoint, str(tmp_path / "state"), argument]
    return [sys.executable, "-m", "tests.stores.bucket_workspace", *asked]


@pytest.mark.parametrize(("seconds", "away"), [(10, 2), pytest.param(60, 10, marks=pytest.mark.torture)])
def test_killed_writers_and_an_absent_bucket_lose_and_double_nothing(
    bucket: Bucket, tmp_path: Path, seconds: float, away: float
) -> None:
    notes = [f"n{number}.md" for number in range(3)]
    for path in notes:
        bucket.put(path, b"begin\n")
    confirmed: list[str] = []
    began = time.monotonic()
    until, gone, back = began + seconds, began + seconds / 3, began + seconds / 3 + away
    bucket.proxy.breaks = lambda kind, key, number: "drop_before" if gone < time.monotonic() < back else None

    def writing(name: int) -> None:
        generation = 0
        while time.monotonic() < until or (len(confirmed) <= 10 and time.monotonic() < until + 60):
            generation += 1
            asked = to_kill("append", bucket, tmp_path, f"w{name}-{generation}")
            with subprocess.Popen(asked, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
                longest = 3.0 if confirmed else 2.0 + generation  # a busy machine is slow to start them
                threading.Timer(random.uniform(0.8, longest), run.kill).start()
                confirmed.extend(line.strip() for line in run.stdout or () if line.endswith(".\n"))

    in_threads(writing, 2)
    ws = open_on(bucket.open(), tmp_path / "state")
    texts = {path: bucket.get(path) for path in notes}
    check(ws, texts)
    text = b"\n".join(texts.values()).decode()
    assert len(confirmed) > 10
    assert {line: text.count(line) for line in confirmed} == dict.fromkeys(confirmed, 1)
    written = [line for line in text.split() if line.startswith("w")]
    assert len(written) == len(set(written))
    ours = ".notewright/"  # who was killed in the middle of its probe leaves that
    assert [key for key in sorted(bucket.keys()) if not key.startswith(ours)] == notes
    close(ws)


WRITES = 203  # of a rename with 200 notes: one creates, one for each note with links, two remove


def test_a_rename_of_two_hundred_notes_killed_now_and_then_is_finished_or_taken_back(
    bucket: Bucket, tmp_path: Path
) -> None:
    rename_killed(bucket, tmp_path, [0, 1, 90, 200, 201, 202])


@pytest.mark.torture
@pytest.mark.parametrize("first", range(8))
def test_a_rename_of_two_hundred_notes_killed_at_every_step(bucket: Bucket, tmp_path: Path, first: int) -> None:
    rename_killed(bucket, tmp_path, range(first, WRITES, 8))


def rename_killed(bucket: Bucket, tmp_path: Path, killed_before: Iterable[int]) -> None:
    """The same rename again and again, killed each time before the PUT or DELETE of such a number."""
    notes = linked_notes(200)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(bucket.put, notes, notes.values()))
    for number in killed_before:
        asked = to_kill("rename", bucket, tmp_path, str(number))
        ran = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
        assert ran.returncode == -9, ran.stderr
        ws = open_on(bucket.open(proxied=False), tmp_path / "state")
        done = [change.id for change in list_changes(ws, ChangeQuery(limit=1)) if not change.undoes]
        check(ws, as_renamed(notes) if done else notes)
        assert len(bucket.keys()) == len(notes)
        if done:
            undo(ws, done[0])
            check(ws, notes)
        close(ws)


# Compare-and-swap and tombstones


def test_the_same_bytes_of_another_operation_are_not_our_write(bucket: Bucket) -> None:
    """Two agents who append the same line must both have theirs."""
    store = bucket.open()
    version = store.write(A, b"one", seen=None, op="1").version
    store.write(A, b"one more", seen=version, op="2")
    with pytest.raises(Conflict):
        store.write(A, b"one more", seen=version, op="3")
    with pytest.raises(Exists):
        store.write(A, b"one more", seen=None, op="4")
    assert store.find_applied("2", [A, NotePath("b.md")]) == {A}
    assert bucket.open().find_applied("2", [A]) == {A}


def test_what_somebody_else_wrote_meanwhile_is_never_overwritten(bucket: Bucket) -> None:
    store = bucket.open()
    version = store.write(A, b"one", seen=None, op="1").version
    bucket.put("a.md", b"theirs")
    for call in (lambda: store.write(A, b"two", seen=version, op="2"), lambda: store.delete(A, seen=version, op="2")):
        with pytest.raises(Conflict) as refused:
            call()
        assert refused.value.details["current"] == version_of(b"theirs")
    assert bucket.get("a.md") == b"theirs"


def test_a_tombstone_left_behind_is_no_note_and_goes_in_time(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bucket.open()
    for name in ("f/a.md", "f/b.md"):
        bucket.put(name, TOMBSTONE, attributes={DELETED: "1"})
    bucket.put("c.md", TOMBSTONE)  # somebody's note that only says the same
    assert [entry.path for entry in store.entries()] == ["c.md"]
    with pytest.raises(NotFound):
        store.children("f")
    for call in (store.read, store.stat):
        with pytest.raises(NotFound):
            call(NotePath("f/a.md"))
    assert store.write(NotePath("f/a.md"), b"new", seen=None, op="1").data == b"new"
    monkeypatch.setattr("notewright.stores.s3.store.TOMBSTONE_SECONDS", -10.0)
    assert [entry.path for entry in store.entries()] == ["c.md", "f/a.md"]
    assert bucket.keys() == ["c.md", "f/a.md"]


def test_two_processes_of_one_machine_share_the_lock(bucket: Bucket) -> None:
    one, other = bucket.open(), bucket.open()
    with one.lock(A), other.lock(NotePath("b.md"), timeout=0.1):
        for path in (A, None):
            with pytest.raises(Busy):
                other.lock(path, timeout=0.05).__enter__()
    with one.lock(), pytest.raises(Busy):
        other.lock(A, timeout=0.05).__enter__()


def test_one_key_is_written_once_a_second_where_the_service_takes_no_more(bucket: Bucket) -> None:
    store = bucket.open(one_write_per_second=True)
    version = store.write(A, b"one", seen=None, op="1").version
    began = time.monotonic()
    store.write(NotePath("b.md"), b"other", seen=None, op="2")
    assert time.monotonic() - began < 0.8
    store.write(A, b"two", seen=version, op="2")
    assert time.monotonic() - began > 0.8


def test_edits_that_wait_for_one_note_go_out_together_where_it_takes_one_write_a_second(
    open_workspace: OpenWorkspace, bucket: Bucket
) -> None:
    ws = open_workspace({"a.md": b""}, one_write_per_second=True)
    sent: list[float] = []

    def note(kind: str, key: str, number: int) -> None:
        sent.extend([time.monotonic()] if kind == "PUT" else [])

    def append(caller: int) -> list[bool]:
        """Was the line in the bucket when the caller was told so?"""
        names = [f"line-{caller}-{number}." for number in range(4)]
        there = []
        for name in names:
            edit_note(ws, A, [Append(name)])
            there.append(name.encode() in bucket.get("a.md"))
        return there

    bucket.proxy.breaks = note
    began = time.monotonic()
    with ThreadPoolExecutor(5) as callers:
        told = [is_there for each in callers.map(append, range(5)) for is_there in each]
    assert time.monotonic() - began < 10 and told == [True] * 20
    assert sorted(bucket.get("a.md").split()) == sorted(f"line-{c}-{n}.".encode() for c in range(5) for n in range(4))
    assert min(later - sooner for sooner, later in itertools.pairwise(sent)) > 0.8
    past = ws.ledger.find_changes(ChangeQuery(limit=100))
    assert len(past) == 20 and ws.ledger.find_unfinished() == []
    undo(ws, past[0].id)
    assert len(bucket.get("a.md").split()) == 19


# What others see, and what others do


def test_an_object_says_title_type_and_tags_after_every_write(bucket: Bucket) -> None:
    store = bucket.open()
    key = f"{bucket.prefix}/a.md"
    text = "---\ntitle: Grüße\ntype: person\ntags: [tea, grün]\n---\nx\n".encode()
    version = store.write(A, text, seen=None, op="1").version
    told = obstore.get(bucket.outside, key).attributes
    assert (told["title"], told["type"]) == (f"=?UTF-8?B?{base64.b64encode('Grüße'.encode()).decode()}?=", "person")
    assert told["tags"] == f"=?UTF-8?B?{base64.b64encode('tea,grün'.encode()).decode()}?="
    assert told["modified"].endswith("Z") and told["Content-Type"].startswith("text/markdown")
    store.write(A, b"# Now\n", seen=version, op="2")
    told = obstore.get(bucket.outside, key).attributes
    assert told["title"] == "Now" and "tags" not in told
    assert all(len(word) <= 75 for word in encode("ä" * 500).split(" "))


def test_what_other_programs_say_of_an_object_stays_when_it_is_changed_and_moved(
    open_workspace: OpenWorkspace, bucket: Bucket
) -> None:
    theirs = {"color": "green", "title": "Old", "Content-Encoding": "identity", "big": "x" * 1500}
    bucket.put("a.md", b"# A\n", attributes=theirs)
    ws = open_workspace({})
    edit_note(ws, A, [Append("more")])
    move(ws, A, "b/Other")
    assert bucket.proxy.counts["HEAD"] <= 2
    told = obstore.get(bucket.outside, f"{bucket.prefix}/b/Other.md").attributes
    assert (told["color"], told["title"], told["big"]) == ("green", "A", "x" * 1500)
    assert "Content-Encoding" not in told and told["Content-Type"].startswith("text/markdown")


def test_a_change_from_outside_is_seen_by_the_next_listing(open_workspace: OpenWorkspace, bucket: Bucket) -> None:
    ws = open_workspace({"a.md": b"old\n", "b.md": b"b\n"}, watch=True, poll_seconds=0.1)
    bucket.put("a.md", b"new\n")
    bucket.put("f/c.md", b"c\n")
    obstore.delete(bucket.outside, f"{bucket.prefix}/b.md")
    expected = {"a.md": version_of(b"new\n"), "f/c.md": version_of(b"c\n")}
    until = time.monotonic() + 20
    while True:
        found = {path: ws.index.find_file(NotePath(path)) for path in ("a.md", "b.md", "f/c.md")}
        if {path: filed.version for path, filed in found.items() if filed} == expected:
            break
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("folder", ["workspace-1/notes", ""])
def test_buckets_of_other_programs_are_served_as_they_are(bucket: Bucket, folder: str) -> None:
    """Cairn's keys are `<id>/notes/path`, Second Brain's are flat: a prefix is enough."""
    base = f"{folder}/" if folder else ""
    for path in ("daily/2026-02-24.md", "Über uns.md", "picture.png", "e\u0301.md", ".notewright/snapshot"):
        bucket.put(base + path, b"x")
    location = f"{bucket.location}/{folder}".rstrip("/")
    store = S3Store(location, bucket.settings(), state=bucket.state)
    visible = {"daily/2026-02-24.md", "Über uns.md", "picture.png", "e\u0301.md"}
    assert {entry.path for entry in store.entries()} == visible
    assert [entry.path for entry in store.children("daily")] == ["daily/2026-02-24.md"]
    assert store.full_path(A) == f"{bucket.prefix}/{base}a.md"
    store.close()


def test_an_object_that_cannot_be_read_disturbs_no_other(bucket: Bucket) -> None:
    store = bucket.open()
    bucket.put("bad.md", b"x", attributes={"title": "Grüße"})  # not ASCII: obstore refuses to read it
    bucket.put("good.md", b"y")
    found = store.read_many([NotePath("bad.md"), NotePath("good.md")])
    assert isinstance(found[0], Forbidden | Stored) and isinstance(found[1], Stored)
    assert [entry.path for entry in store.entries()] == ["bad.md", "good.md"]


def listing_with(*keys: str) -> bytes:
    """What a service answers to LIST that holds such objects, all of them empty."""
    said = "<LastModified>2026-11-16T02:47:53.123Z</LastModified><ETag>&quot;0&quot;</ETag><Size>0</Size>"
    objects = "".join(f"<Contents><Key>{key}</Key>{said}</Contents>" for key in keys)
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>".encode()


def test_keys_that_are_no_paths(bucket: Bucket) -> None:
    """SeaweedFS takes none of them: the proxy answers."""
    store = bucket.open()
    bucket.put("empty.txt", b"")
    own = [f"{bucket.prefix}/{name}" for name in ("", "folder/", "back\\slash.md", "empty.txt", "note.md")]
    bucket.proxy.listing = listing_with(*own)
    assert [entry.path for entry in store.entries()] == ["empty.txt", "note.md"]
    assert [odd.path for odd in store.unlisted_files()] == ["back\\slash.md"]
    keyless = S3Store(bucket.location, replace(bucket.settings(), profile={}), state=bucket.state)
    for bad, problem in (("a//b.md", "''"), ("../b.md", "'..'"), ("tab&#9;.md", "control")):
        keys = ("note.md", bad, "f/deep.md", "f//other.md")
        bucket.proxy.listing = listing_with(*(f"{bucket.prefix}/{key}" for key in keys))
        assert [entry.path for entry in store.entries()] == ["note.md", "f/deep.md"]
        assert problem in " ".join(odd.why for odd in store.unlisted_files()) and len(store.unlisted_files()) == 2
        assert [entry.path for entry in store.children("")] == ["f", "note.md"]
        assert store.stat(NotePath("f")).kind == "folder"
        with pytest.raises(Unavailable, match="is no path") as refused:
            list(keyless.entries())
        assert "rename or remove that object" in refused.value.hint
    keyless.close()


def test_a_listing_without_obstore_says_the_same(bucket: Bucket) -> None:
    store = bucket.open()
    names = ["a b+c.md", "f/é%.md", "f/(x)&y.md", *(f"many/n{number}.md" for number in range(1001))]
    store.write_many([Swap(NotePath(name), name.encode(), None) for name in names], op="1")
    assert store._requests.clients.keys is not None
    found = list_all(store._requests.clients.address, store._requests.clients.keys(), f"{bucket.prefix}/")
    own = {meta["path"].removeprefix(f"{bucket.prefix}/"): meta for meta in found}
    listed = {entry.path: entry for entry in store.entries()}
    assert set(own) == set(names) == set(listed)
    assert all(listed[name].stamp == meta["e_tag"] and listed[name].size == meta["size"] for name, meta in own.items())


def test_an_object_that_changes_while_it_is_looked_for(bucket: Bucket) -> None:
    store = bucket.open()
    bucket.put("a.md", b"one")
    (entry,) = store.entries()
    bucket.put("a.md", b"two")
    assert store.read(A).entry.stamp != entry.stamp
    obstore.delete(bucket.outside, f"{bucket.prefix}/a.md")
    with pytest.raises(NotFound):
        store.read(A)


# Refusals


@pytest.mark.parametrize(("kind", "header"), [("create", "If-None-Match"), ("replace", "If-Match")])
def test_a_service_that_ignores_conditions_is_only_read_from(bucket: Bucket, kind: str, header: str) -> None:
    bucket.put("a.md", b"one")
    first = 2 if kind == "create" else 4
    puts: list[str] = []

    def ignoring(kind: str, key: str, number: int) -> str | None:
        puts.extend([key] if kind == "PUT" else [])
        return "ignore_conditions" if kind == "PUT" and len(puts) >= first else None

    bucket.proxy.breaks = ignoring
    store = bucket.open()
    assert store.refuses_writes is not None and f"ignores {header}," in store.refuses_writes
    bucket.proxy.breaks = None
    with pytest.raises(Forbidden, match="can only be read from"):
        store.write(NotePath("b.md"), b"x", seen=None, op="1")
    assert store.read(A).data == b"one" and bucket.keys() == ["a.md"]


def test_credentials_that_may_only_read(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("a.md", b"one")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READ_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READ_SECRET)
    store = bucket.open()
    assert store.read(A).data == b"one"
    with pytest.raises(Forbidden, match="s3:PutObject"):
        store.delete(A, seen=version_of(b"one"), op="1")


def refusal(location: str, settings: BucketSettings, state: Path) -> Problem:
    with pytest.raises(Problem) as refused:
        S3Store(location, settings, state=state)
    return refused.value


def test_what_cannot_be_served_is_refused_with_what_to_set(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, state = bucket.settings(timeout_seconds=0.4, retry_seconds=0.5, profile={}), bucket.state
    none = refusal("s3://no-such-bucket/x", quick, state)
    assert (none.code, none.hint) == ("unavailable", "make the bucket, or name another")
    for location in ("s3://", "s3:///x", "s3://b/a//b", "s3://b/../c", "http://b/c"):
        assert "names no bucket" in refusal(location, quick, state).message
    assert "is no address" in refusal(bucket.location, BucketSettings(endpoint="localhost:1"), state).message
    nobody = BucketSettings(endpoint="http://127.0.0.1:9", timeout_seconds=0.2, retry_seconds=0.3)
    assert "does not answer" in refusal(bucket.location, nobody, state).message
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "AWS_SECRET_ACCESS_KEY" in refusal(bucket.location, quick, state).hint
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "AWS_ACCESS_KEY_ID" in refusal(bucket.location, quick, state).hint
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    assert "AWS_PROFILE" in refusal(bucket.location, quick, state).hint


def test_a_name_that_no_key_can_have_is_refused(bucket: Bucket) -> None:
    store = bucket.open()
    with pytest.raises(Forbidden, match="longer than 1024 bytes"):
        store.write(NotePath("/".join(["x" * 200] * 6)), b"x", seen=None, op="1")
    for path in ("tab\t.md", "../a.md", "a//b.md"):
        with pytest.raises(NotFound):
            store.read(NotePath(path))


def test_the_service_may_be_named_by_a_variable_alone(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.proxy.endpoint)
    store = bucket.open(endpoint=None)
    store.write(A, b"a\n", seen=None, op="1")
    assert bucket.get("a.md") == b"a\n" and bucket.proxy.counts["PUT"] == 1
    assert store.identity == bucket.open().identity


def test_keys_may_come_from_a_profile(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, config = tmp_path / "credentials", tmp_path / "config"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert read_aws_profile() == {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}  # the variables come first
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    keys.write_text("[mine]\naws_access_key_id = testkey\naws_secret_access_key = testsecret\n")
    printed = '{"Version": 1, "AccessKeyId": "testkey", "SecretAccessKey": "testsecret"}'
    config.write_text(
        f"[profile mine]\nregion = eu-west-1\nendpoint_url = {bucket.weed.endpoint}\n"
        f"[profile printed]\nendpoint_url = {bucket.weed.endpoint}\ncredential_process = echo '{printed}'\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/x\n"
    )
    for name in ("mine", "printed"):
        monkeypatch.setenv("AWS_PROFILE", name)
        store = S3Store(bucket.location, BucketSettings(profile=read_aws_profile()), state=bucket.state)
        assert store.refuses_writes is None
        store.close()
    monkeypatch.setenv("AWS_PROFILE", "role")
    assert "boto3" in refusal(bucket.location, BucketSettings(profile=read_aws_profile()), bucket.state).hint
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Unavailable, match="no AWS profile nobody"):
        read_aws_profile()
    assert BUCKET in bucket.location
