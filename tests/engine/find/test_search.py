"""Searching as people write: a sentence that quotes something is still a sentence."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import write_files

from notewright.engine.find.search import Hits, describe_counts, parse_query, search

NOTES = {
    "Quoted.md": "Use the deck oven setting for rye\n",
    "Meant.md": "Advance the clock automatically whenever the default applies to a progress track\n",
    "Task.md": "Write tests covering new behaviour\n",
}


def test_a_sentence_with_a_quotation_finds_notes_without_it_after_those_with_it(workspace) -> None:
    ws = workspace(NOTES)
    asked = parse_query('Under "deck oven" the clock will always advance automatically by default')
    assert [hit.path for hit in search(ws, asked).items] == ["Quoted.md", "Meant.md"]


def test_a_search_for_a_phrase_is_held_to_it(workspace) -> None:
    ws = workspace(NOTES)
    assert [hit.path for hit in search(ws, parse_query('"deck oven" clock')).items] == ["Quoted.md"]
    assert search(ws, parse_query('"no such phrase" clock')).items == ()


def test_a_task_box_is_no_condition(workspace) -> None:
    ws = workspace(NOTES)
    assert search(ws, parse_query("[ ] Write tests covering the behaviour")).items[0].path == "Task.md"


def test_a_sentence_that_links_to_a_note_without_text_is_found(workspace, tmp_path: Path) -> None:
    """A symlink is not indexed twice; a note that may not be read, or not yet, has no text either."""
    write_files(tmp_path / "Main", {"Real.md": "real\n", "A.md": "green tea from [[Symlink]] and [[Large]]\n"})
    (tmp_path / "Main/Symlink.md").symlink_to("Real.md")
    ws = workspace({"Large.md": "- x\n" * 80_000})
    assert "A.md" in [hit.path for hit in search(ws, parse_query("green tea")).items]


@pytest.mark.slow
def test_the_one_note_with_all_of_the_words_is_on_the_first_page_whatever_else_is_named_after_one_of_them(
    workspace,
) -> None:
    filler = "Nothing of it stands here, but much else does. " * 200
    notes = {"Long.md": f"{filler}A harbour by the river.\n\n{filler}An old lantern.\n"}
    for word in ("harbour", "river", "lantern"):
        notes |= {
            f"{word.title()} {number}.md": f"# {word.title()} {number}\n\n{word} {word}\n" for number in range(40)
        }
    notes |= {f"Other {number}.md": "of other things\n" for number in range(400)}
    found = search(workspace(notes), parse_query("river lantern harbour"))
    assert found.with_all == 1
    place = [hit.path for hit in found.items].index("Long.md")
    assert place < 10
    assert "lantern" in found.items[place].snippet or "harbour" in found.items[place].snippet


def test_times_that_no_clock_has_keep_no_note_from_being_found(workspace, tmp_path: Path) -> None:
    write_files(tmp_path / "Main", {"B.md": "new lantern\n"})
    os.utime(tmp_path / "Main" / "B.md", (400_000_000_000, 400_000_000_000))
    ws = workspace({"A.md": "---\ncreated: 9999-12-31\n---\nold lantern\n"})
    assert {hit.path for hit in search(ws, parse_query("lantern")).items} == {"A.md", "B.md"}
    far = replace(parse_query("lantern"), since_ns=10**21)
    assert [hit.path for hit in search(ws, far).items] == ["B.md"], "the last time that is kept"


def test_only_a_count_that_ended_is_told_as_the_least() -> None:
    exact, ended = Hits((), 600, 2, True), Hits((), 1_000, 1_000, True, is_bounded=True)
    assert describe_counts(exact, exact) == ("1,200", "4")
    assert describe_counts(exact, ended) == ("1,600 or more", "1,002 or more")
    assert describe_counts(Hits((), 3_000, 3_000, True)) == ("3,000", "3,000"), "of conditions alone all are counted"
