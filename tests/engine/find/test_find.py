"""Searching as people write: a sentence that quotes something is still a sentence."""

from notewright.engine.find.search import parse_query, search

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
