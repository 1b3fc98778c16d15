"""Search among so many notes that rare words choose who is looked at (`FEW_ROWS`): nothing is missed for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.index.parts import asked, file, paths

from notewright.engine.find.search import find
from notewright.index.base import SearchEvidence
from notewright.index.sqlite import connections as connections_module
from notewright.index.sqlite import evidence as evidence_module
from notewright.index.sqlite.evidence import FEW_ROWS, collect_evidence, make_places_function
from notewright.index.sqlite.index import SqliteIndex
from notewright.index.sqlite.schema import Connection

NOTES = 3_500


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteIndex]:
    folder: Path = tmp_path_factory.mktemp("many")
    made = SqliteIndex(folder)
    texts = {}
    for number in range(NOTES):
        words = ["common"]
        words += ["morning"] if number < 1_500 else []
        words += ["evening"] if 1_490 <= number < 3_000 else []
        words += ["saffron"] if number in (7, 1_495, 3_400) else []
        texts[f"Day {number}.md"] = f"Entry {number}\n\nwords: {' '.join(words)}\n"
    file(made, {**texts, "The common cold.md": "what everybody has\n"})
    assert NOTES > FEW_ROWS + NOTES // 4, "or no word is in too many notes"
    yield made
    made.close()


def test_a_word_that_is_in_every_note_finds_notes(index: SqliteIndex) -> None:
    found = find(index, asked("common", limit=20))
    assert len(found.items) == 20 and found.cut and found.total == found.with_all >= 1_000
    assert found.items[0].path == "The common cold.md"


def test_a_rare_word_beside_one_that_is_everywhere_comes_first(index: SqliteIndex) -> None:
    found = paths(index, "common saffron", limit=20)
    assert set(found[:3]) == {"Day 7.md", "Day 1495.md", "Day 3400.md"}
    assert len(found) == 20, "the others follow"


def test_a_rare_word_that_brings_enough_is_all_that_is_looked_for(
    index: SqliteIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrowed: list[bool] = []

    def watched(*args: Any, **options: Any) -> SearchEvidence:
        found = collect_evidence(*args, **options)
        narrowed.append(found.narrowed)
        return found

    monkeypatch.setattr(evidence_module, "collect_evidence", watched)
    assert {*paths(index, "common saffron", limit=2)} < {"Day 7.md", "Day 1495.md", "Day 3400.md"}
    assert narrowed == [True]


def test_a_note_that_has_two_words_of_many_notes_comes_before_those_with_one(index: SqliteIndex) -> None:
    both = {f"Day {number}.md" for number in range(1_490, 1_500)}
    assert set(paths(index, "morning evening", limit=10)) == both


def test_a_word_of_many_notes_is_found_where_no_name_has_it(index: SqliteIndex) -> None:
    found = paths(index, "morning", limit=20)
    assert len(found) == 20 and all(int(path[4:-3]) < 1_500 for path in found)


def test_pages_of_a_word_that_is_everywhere_go_on(index: SqliteIndex) -> None:
    first, second = paths(index, "common", limit=30), paths(index, "common", limit=30, offset=30)
    assert len(second) == 30 and not {*first} & {*second}


def test_sql_calls_python_for_the_best_notes_alone_and_once(
    index: SqliteIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []

    def watching(con: Connection) -> Callable[..., None]:
        places = make_places_function(con)

        def watched(api: Any, *rest: object) -> None:
            called.append(api.rowid)
            places(api, *rest)

        return watched

    monkeypatch.setattr(connections_module, "make_places_function", watching)
    again = SqliteIndex(index._connections.generations.folder)
    found = again.evidence(asked("morning evening"), 40)
    assert sorted(called) == sorted(found.by_words[0].scores) and len(called) == 40
    called.clear()
    found = again.evidence(asked("evening saffron"), 40)
    again.close()
    assert len(found.whole) == 1 and len(called) == 40, (
        "the note with both words is among them, and not asked for again"
    )
