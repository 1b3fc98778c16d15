"""Lines, places and notes that match: over texts in memory, narrowed by the needles as an index would narrow them."""

import threading
import time
from typing import Any

import pytest
from tests.engine.fake_workspace import fake_ws

from notewright.engine.find import grep as grep_module
from notewright.engine.find.grep import Find, Grep, LineMatch, find_notes_containing, find_places, find_text, grep
from notewright.errors import Busy, Invalid, NotFound

TEA = {
    "Garden/Herbs.md": "# Herbs\n\nMint makes a tea.\nSage too.\n",
    "Tea.md": "---\ntags: [tea]\n---\n# Tea\nGreen tea\nBlack tea\n\nWater\n",
    "Water.md": "Boil it for the TEA.",
    "notes.txt": "tea in a file\n",
    "picture.png": b"\x89PNG\0\0 tea",
}


def shown(items: tuple[LineMatch, ...]) -> list[str]:
    return [f"{item.path}:{item.line}: {item.text}" for item in items]


def test_lines_come_by_path_and_number_with_the_totals() -> None:
    found = grep(fake_ws(TEA), Grep("tea", limit=3))
    assert shown(found.items) == [
        "Garden/Herbs.md:3: Mint makes a tea.",
        "Tea.md:2: tags: [tea]",
        "Tea.md:4: # Tea",
    ]
    assert (found.total_lines, found.total_notes, found.cut, found.late) == (6, 3, True, False)


def test_a_line_says_where_in_it_the_matches_are() -> None:
    line = grep(fake_ws({"a.md": "日 tea, Tea\n"}), Grep("tea")).items[0]
    assert [line.text[start:end] for start, end in line.spans] == ["tea", "Tea"]


def test_context_lines_stop_at_the_ends_of_the_note() -> None:
    line = grep(fake_ws(TEA), Grep("green", context=2)).items[0]
    assert (line.before, line.after) == (("---", "# Tea"), ("Black tea", ""))
    line = grep(fake_ws(TEA), Grep("boil", context=3)).items[0]
    assert (line.before, line.after) == ((), ())
    assert grep(fake_ws(TEA), Grep("green", context=10**12)) == grep(fake_ws(TEA), Grep("green", context=100))


def test_only_texts_that_hold_the_needles_are_looked_at() -> None:
    ws = fake_ws(TEA)
    grep(ws, Grep(r"\bmint\b.*tea"))
    assert ws.index.looked_at == ["Garden/Herbs.md"]


def test_folder_glob_and_path_say_where_to_look() -> None:
    ws = fake_ws(TEA)
    assert {item.path for item in grep(ws, Grep("tea", folder="Garden")).items} == {"Garden/Herbs.md"}
    assert {item.path for item in grep(ws, Grep("tea", glob="T*.md")).items} == {"Tea.md"}
    assert {item.path for item in grep(ws, Grep("tea", folder="Garden", glob="*.md")).items} == {"Garden/Herbs.md"}
    assert {item.path for item in grep(ws, Grep("tea", path="Garden/")).items} == {"Garden/Herbs.md"}
    assert {item.path for item in grep(ws, Grep("tea", path="*.md")).items} == {"Tea.md", "Water.md"}
    assert {item.path for item in grep(ws, Grep("tea", path="Water.md")).items} == {"Water.md"}
    assert grep(ws, Grep("tea", path="Gard")).items == ()


def test_a_folder_that_is_not_there_is_not_found() -> None:
    for folder in ("Nowhere", "Tea.md"):
        with pytest.raises(NotFound):
            grep(fake_ws(TEA), Grep("tea", folder=folder))


def test_files_that_are_no_notes_are_looked_into_on_request_and_in_order() -> None:
    found = grep(fake_ws(TEA), Grep("tea", files=True))
    assert [item.path for item in found.items] == ["Garden/Herbs.md", *["Tea.md"] * 4, "Water.md", "notes.txt"]


def test_hidden_notes_and_files_are_absent_and_uncounted() -> None:
    ws = fake_ws(TEA | {".secret/a.md": "tea", "Private/b.txt": "tea"}, hide=("Private/**", "Tea.md"))
    found = grep(ws, Grep("tea", files=True))
    assert {item.path for item in found.items} == {"Garden/Herbs.md", "Water.md", "notes.txt"}
    assert found.total_notes == 3


def test_line_endings_and_byte_order_marks_are_no_part_of_a_line() -> None:
    ws = fake_ws({"a.md": "\ufefffirst\r\nsecond \r\nthird"})
    assert shown(grep(ws, Grep(r"^first$|d $")).items) == ["a.md:1: first", "a.md:2: second "]


def test_an_empty_line_matches_and_the_end_of_a_note_is_none() -> None:
    assert shown(grep(fake_ws({"a.md": "x\n\ny\n", "b.md": ""}), Grep("^$")).items) == ["a.md:2: "]


def test_text_that_is_not_utf8_is_searched_as_it_is_shown() -> None:
    assert shown(grep(fake_ws({"a.md": b"caf\xe9 tea"}), Grep("tea$")).items) == ["a.md:1: caf\ufffd tea"]


def test_a_very_long_line_is_cut() -> None:
    line = grep(fake_ws({"a.md": "tea " * 100_000}), Grep("tea")).items[0]
    assert len(line.text) == 10_000


def test_a_search_that_is_no_longer_wanted_stops() -> None:
    found = grep(fake_ws(TEA), Grep("tea", cancelled=lambda: True))
    assert (found.items, found.late, found.cut) == ((), True, True)


def test_a_pattern_that_takes_for_ever_gives_what_was_found_in_time() -> None:
    ws = fake_ws({"a.md": "tea\n", "b.md": "b\n", "c.md": "a" * 60 + "c"}, seconds=0.4)
    began = time.process_time()
    found = grep(ws, Grep("tea|(?:a|a|aa)+(?<=b)c", dialect="python-like"))
    assert time.process_time() - began < 4
    assert found.late and shown(found.items) == ["a.md:1: tea"]


def test_notes_that_hold_a_text_are_not_listed_in_part_when_time_runs_out() -> None:
    with pytest.raises(Busy, match="took too long"):
        find_notes_containing(fake_ws(TEA, seconds=-1.0), "tea")


def test_a_bad_pattern_is_refused_before_anything_is_read() -> None:
    ws = fake_ws(TEA)
    with pytest.raises(Invalid):
        grep(ws, Grep("tea("))
    assert ws.index.looked_at == []


def test_text_is_counted_in_every_note_with_its_first_place() -> None:
    found = find_text(fake_ws(TEA), Find("tea"))
    assert [(note.path, note.matches, note.first) for note in found.notes] == [
        ("Garden/Herbs.md", 1, 22),
        ("Tea.md", 4, 11),
        ("Water.md", 1, 16),
    ]


def test_places_have_lines_from_one_and_columns_from_zero() -> None:
    text = "Next project planning\n\n日本 project"
    found = list(find_places(fake_ws({}), Find("project"), text))
    assert [(place.line, place.column, place.length, place.start) for place in found] == [(1, 5, 7, 5), (3, 3, 7, 26)]


def test_places_after_a_leading_newline_are_counted_from_their_own_line() -> None:
    found = list(find_places(fake_ws({}), Find("tea"), "\ntea\n\n tea tea"))
    assert [(place.line, place.column, place.start) for place in found] == [(2, 0, 1), (4, 1, 7), (4, 5, 11)]
    found = list(find_places(fake_ws({}), Find("\n"), "\n\na\n"))
    assert [(place.line, place.column, place.start) for place in found] == [(1, 0, 0), (2, 0, 1), (3, 1, 3)]


def test_options_of_finding_text() -> None:
    ws = fake_ws({"a.md": "Tea teas t.a", "b.md": "TEA"})
    assert [note.matches for note in find_text(ws, Find("tea", case_sensitive=True)).notes] == [1]
    assert [note.matches for note in find_text(ws, Find("tea", whole_word=True)).notes] == [1, 1]
    assert [note.matches for note in find_text(ws, Find("t.a")).notes] == [1]
    assert [note.matches for note in find_text(ws, Find("t.a", regex=True)).notes] == [3, 1]
    assert [note.matches for note in find_text(ws, Find("^tea$", regex=True)).notes] == [1]
    with pytest.raises(Invalid):
        find_text(ws, Find("(?P<a>x)", regex=True))


def test_a_match_may_cross_lines_but_never_notes() -> None:
    ws = fake_ws({"a.md": "one\ntwo", "b.md": "one", "c.md": "two one two"})
    found = find_text(ws, Find(r"one\s+two", regex=True))
    assert [(note.path, note.matches) for note in found.notes] == [("a.md", 1), ("c.md", 1)]


def test_no_text_at_all_is_in_every_note() -> None:
    found = find_text(fake_ws(TEA), Find(""))
    assert [(note.path, note.matches) for note in found.notes] == [
        ("Garden/Herbs.md", 0),
        ("Tea.md", 0),
        ("Water.md", 0),
    ]


def test_only_the_body_holds_text() -> None:
    ws = fake_ws(
        {
            "a.md": "---\ntitle: tea\n---\nnothing\n",
            "b.md": "---\ntitle: x\n---\nTea\n",
            "c.md": "---\nno frontmatter, but tea\n",
            "d.md": "tea",
        }
    )
    assert find_notes_containing(ws, "tea") == ["b.md", "c.md", "d.md"]
    assert find_notes_containing(ws, "-\ntea") == []
    assert find_notes_containing(ws, "") == ["a.md", "b.md", "c.md", "d.md"]


def test_large_batches_are_searched_by_threads_of_their_own_with_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = fake_ws({f"{number:03}.md": f"# {number}\r\n\nTea {'x' * number}\nno {number}" for number in range(99)})
    asked = [Grep("tea x+", limit=10), Grep("no 9|x{90}", context=1), Grep("(?=tea)tea", dialect="python-like")]
    alone = [grep(notes, one) for one in asked]
    searched_by = set()
    find_lines = grep_module.Matcher.find_lines

    def noting(*args: Any) -> Any:
        searched_by.add(threading.get_ident())
        return find_lines(*args)

    monkeypatch.setattr(grep_module, "MIN_THREAD_BYTES", 100)  # less than two notes of these, which are a batch
    monkeypatch.setattr(grep_module.Matcher, "find_lines", noting)
    assert [grep(notes, one) for one in asked] == alone
    assert searched_by - {threading.get_ident()}


def test_what_a_thread_found_before_it_was_cancelled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, "MIN_THREAD_BYTES", 0)
    notes = fake_ws({f"{number}.md": "tea\n" for number in range(8)})
    found = grep(notes, Grep("tea", cancelled=lambda: len(notes.index.looked_at) > 4))
    assert found.late and found.cut
    assert shown(found.items)[:2] == ["0.md:1: tea", "1.md:1: tea"]
    assert not [thread for thread in threading.enumerate() if thread.name == "grep"]
