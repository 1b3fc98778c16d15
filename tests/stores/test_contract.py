"""What every store promises, asked of each of them."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.memory_store import MemoryStore

from notewright.errors import Busy, Conflict, Exists, NotFound, Problem, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import OpId, Store, Stored, Swap, version_of
from notewright.stores.folder.paths import Abilities
from notewright.stores.folder.store import FolderStore
from notewright.stores.live.documents import LiveDocuments
from notewright.stores.live.store import LiveStore

A, B = NotePath("a.md"), NotePath("f/b.md")


def memory_store(place: Path) -> Store:
    return MemoryStore()


def folder_store(place: Path) -> Store:
    return FolderStore(place)


def folder_store_of_a_poor_system(place: Path) -> Store:
    return FolderStore(place, able=Abilities(openat2=False, exchange=False, noreplace=False))


def folder_store_without_links(place: Path) -> Store:
    return FolderStore(place, able=Abilities(openat2=False, exchange=False, noreplace=False, link=False))


def live_store(place: Path) -> Store:
    """With a document open for every note that anybody writes."""
    folder = FolderStore(place)
    documents = LiveDocuments(folder, place.with_name(place.name + "-state"))
    return EverythingOpen(folder, documents)


class EverythingOpen(LiveStore):
    def swap(self, swap: Swap, *, op: OpId, hidden: bool = False) -> Stored | None:
        stored = super().swap(swap, op=op, hidden=hidden)
        with contextlib.suppress(Problem):
            self._documents.open(self._documents.id_of(swap.path))
        return stored


STORES = [memory_store, folder_store, folder_store_of_a_poor_system, folder_store_without_links, live_store]


def in_a_bucket(place: Path) -> Store:
    raise NotImplementedError("the fixture opens it")


def in_a_bucket_of_ceph(place: Path) -> Store:
    raise NotImplementedError("the fixture opens it")


BUCKETS = {in_a_bucket: "bucket", in_a_bucket_of_ceph: "ceph_bucket"}
ON_WEED = pytest.param(in_a_bucket, marks=pytest.mark.slow)
ON_CEPH = pytest.param(in_a_bucket_of_ceph, marks=pytest.mark.torture)


@pytest.fixture(params=[*STORES, ON_WEED, ON_CEPH], ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    bucket = BUCKETS.get(request.param)
    made: Store = request.getfixturevalue(bucket).open() if bucket else request.param(tmp_path)
    yield made
    made.close()


def paths(store: Store) -> list[str]:
    return [entry.path for entry in store.entries()]


def names(store: Store, folder: str) -> list[tuple[str, str]]:
    return [(entry.path, entry.kind) for entry in store.children(folder)]


def create(store: Store, path: str, data: bytes = b"x\n") -> str:
    return store.write(NotePath(path), data, seen=None, op=f"create-{path.replace('/', '-')}").version


def in_threads(work: Callable[[int], None], count: int) -> list[BaseException]:
    """Run `work` in so many threads at once; what they raised."""
    raised: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:
            raised.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_what_was_created_can_be_read(store: Store) -> None:
    written = store.write(A, b"one\r\n\xff", seen=None, op="1")
    read = store.read(A)
    assert (read.data, read.version) == (written.data, written.version) == (b"one\r\n\xff", read.version)
    assert written.entry.stamp == read.entry.stamp == store.stat(A).stamp
    assert (written.entry.kind, written.entry.size) == ("file", 6)


def test_creating_what_exists_is_refused_and_changes_nothing(store: Store) -> None:
    create(store, "a.md", b"old")
    with pytest.raises(Exists) as refused:
        store.write(A, b"new", seen=None, op="2")
    assert refused.value.details["path"] == "a.md"
    assert store.read(A).data == b"old"


def test_replacing_what_was_seen_succeeds_and_gives_a_new_version(store: Store) -> None:
    first = create(store, "a.md")
    second = store.write(A, b"two", seen=first, op="2").version
    assert second != first
    assert store.read(A).version == second


def test_writing_over_a_version_you_did_not_see_is_a_conflict(store: Store) -> None:
    if isinstance(store, LiveStore):
        pytest.skip("an open document merges: tests/stores/test_live.py")
    first = create(store, "a.md", b"one")
    second = store.write(A, b"two", seen=first, op="2").version
    with pytest.raises(Conflict) as refused:
        store.write(A, b"three", seen=first, op="3")
    assert refused.value.details == {"path": "a.md", "current": second}
    assert store.read(A).data == b"two"


def test_replacing_what_is_gone_is_a_conflict(store: Store) -> None:
    with pytest.raises(Conflict) as refused:
        store.write(A, b"new", seen=version_of(b"old"), op="1")
    assert refused.value.details["current"] is None
    assert paths(store) == []


def test_a_write_repeated_with_the_same_op_is_the_same_write(store: Store) -> None:
    first = create(store, "a.md", b"one")
    second = store.write(A, b"two", seen=first, op="2").version
    assert store.write(A, b"two", seen=first, op="2").version == second
    again = store.write(NotePath("b.md"), b"new", seen=None, op="3")
    assert store.write(NotePath("b.md"), b"new", seen=None, op="3").version == again.version


def test_deleting_what_was_seen_removes_it_and_deleting_again_is_success(store: Store) -> None:
    version = create(store, "a.md")
    store.delete(A, seen=version, op="2")
    store.delete(A, seen=version, op="2")
    assert paths(store) == []
    with pytest.raises(NotFound):
        store.read(A)


def test_deleting_a_version_you_did_not_see_is_a_conflict(store: Store) -> None:
    first = create(store, "a.md", b"one")
    store.write(A, b"two", seen=first, op="2")
    with pytest.raises(Conflict):
        store.delete(A, seen=first, op="3")
    assert store.read(A).data == b"two"


def test_deleting_where_a_folder_is_now_is_a_conflict(store: Store) -> None:
    create(store, "f/a.md")
    with pytest.raises(Conflict):
        store.delete(NotePath("f"), seen=version_of(b"x"), op="2")
    assert paths(store) == ["f/a.md"]


def test_reading_what_is_not_there_or_is_a_folder_is_not_found(store: Store) -> None:
    create(store, "f/a.md")
    for path in ("nothing.md", "f", "f/nothing.md", "f/a.md/deeper.md", "g/h.md"):
        with pytest.raises(NotFound):
            store.read(NotePath(path))
    with pytest.raises(NotFound):
        store.stat(NotePath("nothing.md"))


def test_a_folder_or_a_file_in_the_way_is_named(store: Store) -> None:
    create(store, "f/a.md")
    for path, blocking in (("f", "f"), ("f/a.md/b.md", "f/a.md"), ("f/a.md/c/d.md", "f/a.md")):
        with pytest.raises(Exists) as refused:
            store.write(NotePath(path), b"new", seen=None, op="2")
        assert refused.value.details["path"] == blocking
    assert paths(store) == ["f/a.md"]


def test_a_listing_of_one_folder_is_that_part_of_the_whole_listing(store: Store) -> None:
    for path in ("a.md", "b/c.md", "b/d/e.md", "bb/f.md", "b.md"):
        create(store, path)
    assert [entry.path for entry in store.entries("b")] == ["b/c.md", "b/d/e.md"]
    assert list(store.entries("b")) == [entry for entry in store.entries() if entry.path.startswith("b/")]
    for below in ("", "b"):
        for listed in (store.entries, store.children):
            named = [(entry.path, entry.kind) for entry in listed(below, bare=True)]
            assert named == [(entry.path, entry.kind) for entry in listed(below)]
    assert list(store.entries("nowhere")) == list(store.entries("a.md")) == list(store.entries(".hidden")) == []


def test_of_what_is_known_by_its_stamp_only_what_differs_is_listed(store: Store) -> None:
    for path in ("a.md", "b/c.md", "b/d/e.png", "b/f.md"):
        create(store, path)
    known = {str(entry.path): entry.stamp for entry in store.entries()}
    left = dict(known)
    assert list(store.changed_entries(left, sys.maxsize)) == [] and left == {}
    assert {entry.path for entry in store.changed_entries(dict(known), 0)} == set(
        known
    )  # modified since: not to be believed
    store.write(NotePath("b/c.md"), b"longer\n", seen=version_of(b"x\n"), op="2")
    create(store, "b/new.md")
    left = known | {"b/gone.md": "1"}
    now = {entry.path: entry for entry in store.entries()}
    differing = {entry.path: entry for entry in store.changed_entries(left, sys.maxsize)}
    assert differing == {path: now[path] for path in ("b/c.md", "b/new.md")} and left == {"b/gone.md": "1"}


def test_a_listing_is_complete_and_folder_by_folder(store: Store) -> None:
    made = {"z.md", "a.md", "b/z.md", "b/c/x.png", "b/a.md", "b c/é.md"}
    for path in made:
        create(store, path)
    listed = paths(store)
    assert set(listed) == made and len(listed) == len(made)
    folders = [NotePath(path).folder for path in listed]
    assert [folder for i, folder in enumerate(folders) if folder not in folders[:i]] == ["", "b", "b/c", "b c"]
    assert listed[:2] == ["a.md", "z.md"]


def test_children_are_files_and_folders_directly_inside(store: Store) -> None:
    for path in ("a.md", "b/z.md", "b/c/x.png"):
        create(store, path)
    assert names(store, "") == [("a.md", "file"), ("b", "folder")]
    assert names(store, "b") == [("b/c", "folder"), ("b/z.md", "file")]
    for folder in ("nothing", "a.md", "b/z.md"):
        with pytest.raises(NotFound):
            store.children(folder)


def test_dot_names_do_not_exist_unless_asked_for(store: Store) -> None:
    secret = NotePath("f/.backups/a.md")
    with pytest.raises(NotFound):
        store.write(secret, b"old", seen=None, op="1")
    with pytest.raises(NotFound):
        store.stage(secret, b"old", op="1")
    version = store.write(secret, b"old", seen=None, op="1", hidden=True).version
    assert paths(store) == [] and names(store, "f") == []
    for call in (store.read, store.stat):
        with pytest.raises(NotFound):
            call(secret)
    with pytest.raises(NotFound):
        store.children("f/.backups")
    with pytest.raises(NotFound):
        store.delete(secret, seen=version, op="2")
    assert store.read(secret, hidden=True).data == b"old"
    assert store.stat(secret, hidden=True).size == 3
    assert [entry.path for entry in store.children("f", hidden=True)] == ["f/.backups"]
    assert [entry.path for entry in store.children("f/.backups", hidden=True)] == [secret]
    store.delete(secret, seen=version, op="2", hidden=True)
    with pytest.raises(NotFound):
        store.read(secret, hidden=True)


def test_a_stamp_changes_when_the_bytes_do_and_not_otherwise(store: Store) -> None:
    version = create(store, "a.md", b"one")
    before = {entry.path: entry.stamp for entry in store.entries()}
    store.read(A)
    assert {entry.path: entry.stamp for entry in store.entries()} == before
    written = store.write(A, b"two", seen=version, op="2")
    after = {entry.path: entry.stamp for entry in store.entries()}
    assert after["a.md"] != before["a.md"]
    assert after["a.md"] == written.entry.stamp == store.stat(A).stamp


def test_what_was_staged_is_not_seen_until_it_is_written(store: Store) -> None:
    version = create(store, "a.md", b"one")
    store.stage(A, b"two", op="2")
    store.stage(NotePath("new/b.md"), b"new", op="2")
    assert store.read(A).data == b"one"
    assert paths(store) == ["a.md"]
    store.write(A, b"two", seen=version, op="2")
    store.write(NotePath("new/b.md"), b"new", seen=None, op="2")
    store.settle("2")
    assert store.read(A).data == b"two"
    assert paths(store) == ["a.md", "new/b.md"]


def test_an_op_that_comes_to_nothing_leaves_nothing(store: Store) -> None:
    store.stage(NotePath("new/deep/b.md"), b"new", op="2")
    store.settle("2")
    assert names(store, "") == []
    assert store.children("", hidden=True) == []


def test_a_write_may_differ_from_what_was_staged(store: Store) -> None:
    store.stage(A, b"planned", op="1")
    store.write(A, b"merged", seen=None, op="1")
    store.settle("1")
    assert store.read(A).data == b"merged"


def test_settling_removes_the_emptied_folders_and_keeps_the_others(store: Store) -> None:
    version = create(store, "old/deep/a.md")
    create(store, "kept/b.md")
    store.delete(NotePath("old/deep/a.md"), seen=version, op="2")
    store.settle("2", emptied=("old", "old/deep", "kept", "nothing"))
    assert names(store, "") == [("kept", "folder")]


def test_names_that_differ_only_in_case_or_composition_are_left_to_the_engine(store: Store) -> None:
    create(store, "e\u0301.md", b"apart")
    assert store.read(NotePath("e\u0301.md")).data == b"apart"
    assert paths(store) == ["e\u0301.md"]


def test_where_two_spellings_are_two_names_nothing_is_respelled(store: Store) -> None:
    create(store, "Folder/Tea.md", b"tea")
    assert store.respell(NotePath("Folder/Tea.md"), NotePath("folder/tea.md")) is None
    assert paths(store) == ["Folder/Tea.md"]
    create(store, "Folder/tea.md", b"other")
    assert paths(store) == ["Folder/Tea.md", "Folder/tea.md"]


def test_of_racing_creators_exactly_one_wins(store: Store) -> None:
    raised = in_threads(lambda n: create(store, "a.md", b"by %d" % n) and None, 8)
    assert [type(problem) for problem in raised] == [Exists] * 7
    assert store.read(A).data.startswith(b"by ")


def test_concurrent_appends_by_compare_and_swap_lose_nothing(store: Store) -> None:
    create(store, "a.md", b"")

    def append(number: int) -> None:
        for turn in range(10):
            while True:
                old = store.read(A)
                try:
                    store.write(A, old.data + b"%d.%d\n" % (number, turn), seen=old.version, op=f"{number}-{turn}")
                    break
                except Conflict:
                    continue

    assert in_threads(append, 4) == []
    lines = store.read(A).data.split()
    assert sorted(lines) == sorted(b"%d.%d" % (n, t) for n in range(4) for t in range(10))


def test_the_lock_lets_in_one_at_a_time_and_says_busy(store: Store) -> None:
    inside: list[int] = []

    def enter(number: int) -> None:
        with store.lock():
            inside.append(number)
            assert len(inside) == 1
            inside.remove(number)

    with store.lock(), pytest.raises(Busy):
        store.lock(timeout=0.05).__enter__()
    assert in_threads(enter, 8) == []
    with store.lock(timeout=0.05):
        pass


@pytest.mark.parametrize(("first", "second"), [(A, A), (A, None), (None, A)])
def test_a_lock_of_one_file_keeps_out_who_wants_that_file_or_all(
    store: Store, first: NotePath | None, second: NotePath | None
) -> None:
    with store.lock(first), pytest.raises(Busy):
        store.lock(second, timeout=0.05).__enter__()
    with store.lock(second, timeout=0.05):
        pass


def test_several_files_are_read_and_written_in_one_call(store: Store) -> None:
    old = store.write(A, b"a", seen=None, op="0")
    swaps = [Swap(B, b"b", None), Swap(A, b"a2", old.version, source=B)]
    outcomes = store.write_many(swaps, op="1")
    assert [isinstance(one, Stored) and one.data for one in outcomes] == [b"b", b"a2"]
    store.settle("1")
    found = store.read_many([A, B, NotePath("nowhere.md")])
    assert [isinstance(one, Stored) and one.data for one in found[:2]] == [b"a2", b"b"]
    assert isinstance(found[2], NotFound)
    gone = store.write_many([Swap(A, None, version_of(b"a2")), Swap(B, None, version_of(b"b"))], op="2")
    store.settle("2")
    assert gone == [None, None]
    assert [type(one) for one in store.read_many([A, B])] == [NotFound, NotFound]


def test_in_one_call_each_file_has_its_own_outcome(store: Store) -> None:
    store.write(A, b"a", seen=None, op="0")
    outcomes = store.write_many([Swap(B, b"b", None), Swap(A, b"mine", version_of(b"old"))], op="1")
    assert isinstance(outcomes[0], Stored) and isinstance(outcomes[1], Conflict)
    assert store.read(A).data == b"a" and store.read(B).data == b"b"
    stopped = store.write_many([Swap(A, b"mine", None), Swap(B, b"b2", version_of(b"b"))], op="2")
    assert isinstance(stopped[0], Exists) and len(stopped) == (1 if store.in_order else 2)


def test_what_a_store_does_not_recall_it_does_not_merge(store: Store) -> None:
    store.write(A, b"a", seen=None, op="0")
    assert store.read_old_version(A, version_of(b"old")) is None
    assert store.find_applied("0", [A]) <= {A}


def test_the_lock_is_free_again_after_an_exception(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.lock():
        raise ZeroDivisionError
    with store.lock(timeout=0.05):
        pass


def test_watching_says_when_it_begins_and_then_what_changed(store: Store) -> None:
    stop = threading.Event()
    feed = store.changes(stop)
    guard = threading.Timer(10, stop.set)
    guard.start()
    assert next(feed) is None
    create(store, "f/a.md")
    hinted: set[str] = set()
    for hint in feed:
        hinted |= set(hint or ())
        if "f/a.md" in hinted:
            break
    stop.set()
    guard.cancel()
    assert "f/a.md" in hinted
    assert list(feed) == [] or stop.is_set()


def test_a_closed_store_is_unavailable(store: Store) -> None:
    create(store, "a.md")
    store.close()
    assert not store.healthy()
    with pytest.raises(Unavailable):
        store.read(A)
    with pytest.raises(Unavailable):
        list(store.entries())


def test_every_refusal_is_a_problem_with_a_code(store: Store) -> None:
    create(store, "a.md")
    with pytest.raises(Problem) as refused:
        store.write(A, b"new", seen="not a version", op="2")
    assert refused.value.code == "conflict"


def test_sweeping_leaves_the_notes_and_the_living_alone(store: Store) -> None:
    create(store, "f/a.md")
    store.stage(NotePath("f/b.md"), b"b", op="2")
    with store.lock():
        store.sweep(["", "f", "nothing"])
    store.write(NotePath("f/b.md"), b"b", seen=None, op="2")
    store.settle("2")
    assert paths(store) == ["f/a.md", "f/b.md"]
