"""What every ledger promises."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from notewright.errors import Exists, Problem, Unavailable
from notewright.ledger.base import Actor, Change, ChangeQuery, Ledger, Step
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.sqlite_file import open_file, set_up
from notewright.stores.base import version_of

A, B, C = (version_of(text) for text in (b"a", b"b", b"c"))
BLOBS = {A: b"a", B: b"b", C: b"c"}


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    opened = SqliteLedger.open(tmp_path / "state") if request.param == "file" else SqliteLedger.in_memory()
    yield opened
    opened.close()


def step(path: str, before: str | None, after: str | None, source: str | None = None) -> Step:
    return Step(NotePath(path), before, after, NotePath(source) if source else None)


def change(name: str, *steps: Step, at: float = 1.0, client: str = "", undoes: tuple[str, ...] = ()) -> Change:
    return Change(name, at, Actor("ann", client, "notes", "write"), f"did {name}", steps, undoes=undoes)


def done(ledger: Ledger, what: Change) -> Change:
    ledger.record(what, BLOBS)
    ledger.close_change(what.id, "done")
    return what


def ids(changes: list[Change]) -> list[str]:
    return [each.id for each in changes]


def test_a_recorded_change_is_unfinished_until_it_is_closed(ledger: Ledger) -> None:
    steps = (step("b.md", None, A, "a.md"), step("a.md", A, None))
    whole = Change(
        "one", 5.0, Actor("ann", "desk", "notes", "move"), "moved", steps,
        undoes=("zero",), emptied=("old",), made=("x/y", "x"),
    )  # fmt: skip
    ledger.record(whole, BLOBS)
    assert ledger.find_unfinished() == [whole] == [ledger.change("one")]
    assert ledger.find_changes(ChangeQuery()) == []
    ledger.close_change("one", "done")
    assert ledger.find_unfinished() == []
    assert ids(ledger.find_changes(ChangeQuery())) == ["one"]


def test_changes_that_are_recorded_together_are_recorded_all_or_none(ledger: Ledger) -> None:
    one, two = change("one", step("a.md", None, A)), change("two", step("a.md", A, B))
    with pytest.raises(Problem):
        ledger.record(one, BLOBS, two, one)
    assert ledger.find_unfinished() == [] and ledger.change("one") is None and ledger.blob(A) is None
    ledger.record(one, BLOBS, two)
    assert ledger.find_unfinished() == [one, two] and ledger.blob(B) == BLOBS[B]


def test_the_data_version_differs_after_every_step_of_a_change_and_only_then(ledger: Ledger) -> None:
    still = ledger.data_version()
    ledger.find_changes(ChangeQuery())
    assert ledger.data_version() == still
    ledger.record(change("one", step("a.md", None, A)), BLOBS)
    recorded = ledger.data_version()
    ledger.close_change("one", "done")
    assert len({still, recorded, ledger.data_version()}) == 3


def test_a_change_closed_twice_is_closed_once(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", None, A)))
    ledger.close_change("one", "taken_back")
    ledger.close_change("never", "done")
    assert ids(ledger.find_changes(ChangeQuery())) == ["one"]


def test_what_was_taken_back_is_not_in_the_history(ledger: Ledger) -> None:
    ledger.record(change("one", step("a.md", None, A)), BLOBS)
    ledger.close_change("one", "taken_back")
    assert ledger.find_unfinished() == [] == ledger.find_changes(ChangeQuery())


def test_closing_with_other_steps_keeps_those(ledger: Ledger) -> None:
    ledger.record(change("one", step("a.md", None, A), step("b.md", B, None)), BLOBS)
    ledger.close_change("one", "done", steps=(step("a.md", None, A),))
    found = ledger.change("one")
    assert found and found.steps == (step("a.md", None, A),)


def test_a_change_that_could_not_be_closed_is_closed_before_anybody_asks_what_is_unfinished(tmp_path: Path) -> None:
    ledger = SqliteLedger.open(tmp_path)
    ledger.record(change("one", step("a.md", None, A)), BLOBS)
    ledger._db.execute("pragma query_only = on")
    with pytest.raises(Unavailable):
        ledger.close_change("one", "taken_back")
    ledger._db.execute("pragma query_only = off")
    assert ledger.find_unfinished() == [] == ledger.find_changes(ChangeQuery())
    ledger.close()


def test_a_name_is_given_once(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", None, A)))
    with pytest.raises(Exists):
        ledger.record(change("one", step("a.md", A, B)), BLOBS)
    assert ledger.find_unfinished() == []


def test_the_past_is_asked_by_path_folder_time_client_and_user_newest_first(ledger: Ledger) -> None:
    done(ledger, change("one", step("f/a.md", None, A), at=1, client="x"))
    done(ledger, change("two", step("f/a.md", A, B), at=2, client="y"))
    done(ledger, change("three", step("f0.md", None, A), at=3, client="x"))
    assert ids(ledger.find_changes(ChangeQuery())) == ["three", "two", "one"]
    assert ids(ledger.find_changes(ChangeQuery(path="f/a.md"))) == ["two", "one"]
    assert ids(ledger.find_changes(ChangeQuery(path="f"))) == ["two", "one"]
    assert ids(ledger.find_changes(ChangeQuery(since=2))) == ["three", "two"]
    assert ids(ledger.find_changes(ChangeQuery(until=2))) == ["one"]
    assert ids(ledger.find_changes(ChangeQuery(client="x"))) == ["three", "one"]
    assert ids(ledger.find_changes(ChangeQuery(user="bob"))) == []
    assert ids(ledger.find_changes(ChangeQuery(limit=1, offset=1))) == ["two"]


def test_kept_bytes_are_given_back(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", A, B)))
    assert ledger.blob(A) == b"a"
    assert ledger.blob(version_of(b"other")) is None


def test_it_knows_what_it_wrote_where(ledger: Ledger) -> None:
    ledger.record(change("one", step("a.md", A, B)), BLOBS)
    assert ledger.has_written("a.md", B)
    assert not ledger.has_written("a.md", A)
    assert not ledger.has_written("b.md", B)


def test_bytes_a_path_once_had_are_found_by_how_their_version_begins(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", A, B)))
    assert ledger.find_blob("a.md", A[:12]) == b"a"
    assert ledger.find_blob("a.md", B.upper()) == b"b"
    assert ledger.find_blob("a.md", "") is None, "more than one begins so"
    assert ledger.find_blob("b.md", A[:12]) is None
    ledger.purge("a.md")
    assert ledger.find_blob("a.md", A[:12]) is None


def test_undoing_marks_and_undoing_that_clears(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", None, A)))
    done(ledger, change("two", step("a.md", A, None), undoes=("one",)))
    assert [(each.id, each.undone_by) for each in ledger.find_changes(ChangeQuery())] == [("two", None), ("one", "two")]
    done(ledger, change("three", step("a.md", None, A), undoes=("two",)))
    assert [each.undone_by for each in ledger.find_changes(ChangeQuery())] == [None, "three", None]
    done(ledger, change("four", step("a.md", A, None), undoes=("three",)))
    assert [each.undone_by for each in ledger.find_changes(ChangeQuery())] == [None, "four", None, "two"]


def test_a_note_is_first_seen_when_created_and_keeps_that_when_moved_or_brought_back(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", None, A), at=1))
    done(ledger, change("two", step("a.md", A, B), at=2))
    done(ledger, change("three", step("b.md", None, B, "a.md"), step("a.md", B, None), at=3))
    assert ledger.first_seen(["b.md", "nowhere.md"]) == {"b.md": 1}
    done(ledger, change("four", step("b.md", B, None), at=4))
    done(ledger, change("five", step("b.md", None, B), at=5, undoes=("four",)))
    assert ledger.first_seen(["b.md"]) == {"b.md": 1}
    done(ledger, change("six", step("b.md", B, None), at=6))
    done(ledger, change("seven", step("b.md", None, C), at=7))
    assert ledger.first_seen(["b.md"]) == {"b.md": 7}


def test_a_note_that_was_there_before_us_keeps_the_time_it_had_when_we_first_changed_it(ledger: Ledger) -> None:
    done(ledger, change("one", replace(step("a.md", A, B), modified=1), at=5))
    done(ledger, change("two", replace(step("a.md", B, C), modified=5), at=6))
    assert ledger.first_seen(["a.md"]) == {"a.md": 1}
    done(ledger, change("three", step("b.md", None, C, "a.md"), replace(step("a.md", C, None), modified=6), at=7))
    assert ledger.first_seen(["b.md"]) == {"b.md": 1}


def test_purging_a_note_forgets_its_bytes_under_every_name_and_no_others(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", None, A)))
    done(ledger, change("two", step("b.md", None, A, "a.md"), step("a.md", A, None)))
    done(ledger, change("three", step("c.md", None, C)))
    assert ledger.purge("b.md") == 1
    assert ledger.blob(A) is None
    assert ledger.blob(C) == b"c"
    assert ids(ledger.find_changes(ChangeQuery(path="b.md"))) == ["two"], "that something happened stays"


def test_purging_leaves_what_an_unfinished_change_needs(ledger: Ledger) -> None:
    ledger.record(change("one", step("a.md", A, B)), {A: b"a", B: b"b"})
    assert ledger.purge("a.md") == 0
    assert ledger.blob(B) == b"b"


def test_trimming_by_days_forgets_old_changes_and_never_unfinished_ones(ledger: Ledger) -> None:
    day = 86_400.0
    ledger.record(change("zero", step("z.md", None, A), at=0), {A: b"a"})
    done(ledger, change("one", step("a.md", None, C), at=0))
    done(ledger, change("two", step("a.md", C, B), at=5 * day))
    ledger.trim(keep_days=3, keep_bytes=1000, now=6 * day)
    assert ids(ledger.find_changes(ChangeQuery())) == ["two"]
    assert ids(ledger.find_unfinished()) == ["zero"]
    assert ledger.blob(A) == b"a"
    assert ledger.blob(C) == b"c", "the later change still needs it"


def test_trimming_by_bytes_keeps_the_newest(ledger: Ledger) -> None:
    texts = [bytes([65 + number]) * 100 for number in range(10)]
    for number, text in enumerate(texts):
        version = version_of(text)
        ledger.record(change(f"c{number}", step(f"{number}.md", None, version)), {version: text})
        ledger.close_change(f"c{number}", "done")
    ledger.trim(keep_days=1000, keep_bytes=350, now=2)
    assert ids(ledger.find_changes(ChangeQuery())) == ["c9", "c8", "c7"]
    assert ledger.blob(version_of(texts[0])) is None
    assert ledger.first_seen(["0.md"]) == {"0.md": 1}


def test_it_is_there_again_when_opened_again(tmp_path: Path) -> None:
    first = SqliteLedger.open(tmp_path)
    ledger_change = change("one", step("a.md", None, A))
    first.record(ledger_change, BLOBS)
    second = SqliteLedger.open(tmp_path)
    assert second.find_unfinished() == [ledger_change]
    second.close_change("one", "done")
    assert ids(first.find_changes(ChangeQuery())) == ["one"]
    first.close()
    second.close()


def test_the_data_version_tells_what_another_process_wrote(tmp_path: Path) -> None:
    mine, theirs = SqliteLedger.open(tmp_path), SqliteLedger.open(tmp_path)
    seen = [mine.data_version()]
    for name in ("one", "two"):
        done(theirs, change(name, step("a.md", None, A)))
        seen.append(mine.data_version())
    assert len(set(seen)) == 3
    assert mine.data_version() == seen[-1]
    mine.close()
    theirs.close()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    SqliteLedger.open(tmp_path / "deep" / "state").close()
    assert (tmp_path / "deep" / "state").stat().st_mode & 0o077 == 0
    assert (tmp_path / "deep" / "state" / "ledger.db").stat().st_mode & 0o077 == 0


def test_purged_bytes_are_nowhere_in_the_files(tmp_path: Path) -> None:
    secret = b"the combination is 12-34-56 " * 40
    ledger = SqliteLedger.open(tmp_path)
    ledger.record(change("one", step("a.md", None, version_of(secret))), {version_of(secret): secret})
    ledger.close_change("one", "done")
    ledger.purge("a.md")
    assert not any(b"12-34-56" in file.read_bytes() for file in tmp_path.iterdir())
    ledger.close()


def test_a_ledger_of_a_newer_schema_is_refused_with_words(tmp_path: Path) -> None:
    SqliteLedger.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("pragma user_version = 999")
    db.close()
    with pytest.raises(Unavailable, match="newer Notewright"):
        SqliteLedger.open(tmp_path)


def test_a_place_or_file_that_cannot_be_used_is_said_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="history cannot be used"):
        SqliteLedger.open(tmp_path / "file" / "state")
    (tmp_path / "ledger.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(Unavailable, match="history cannot be used"):
        SqliteLedger.open(tmp_path)


def test_an_error_after_which_sqlite_rolls_back_by_itself_is_told(tmp_path: Path) -> None:
    migration = "create table note(path unique on conflict rollback); insert into note values('a'), ('a')"
    db = open_file(tmp_path / "other.db", "the history")  # as on a full disk
    with pytest.raises(Exists, match="of this name is in the history"):
        set_up(db, "the history", "pragma foreign_keys = on", (migration,))
    db.close()


def test_many_threads_opening_and_recording_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(number: int) -> None:
        ledger = SqliteLedger.open(tmp_path)
        for count in range(5):
            done(ledger, change(f"t{number}x{count}", step("a.md", None, A)))
        ledger.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = SqliteLedger.open(tmp_path)
    assert len(ledger.find_changes(ChangeQuery(limit=100))) == 40
    ledger.close()


def test_where_a_file_went_is_told_with_the_time_of_each_going(ledger: Ledger) -> None:
    done(ledger, change("one", step("a.md", None, A), at=1.0))
    done(ledger, change("two", step("b.md", None, A, "a.md"), step("a.md", A, None), at=2.0))
    done(ledger, change("three", step("a.md", None, B), at=3.0))
    done(ledger, change("four", step("a.md", B, None), at=4.0))
    ledger.record(change("five", step("c.md", None, A, "b.md"), step("b.md", A, None), at=5.0), BLOBS)
    assert ledger.find_departures("a.md") == [(2.0, "b.md"), (4.0, None)]
    assert ledger.find_departures("b.md") == []
