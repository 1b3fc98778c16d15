"""Other servers are compared fairly: a wrong answer has no time, and the page says what was found."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import compare
import compare_truth as truth
from bench_client import Refused
from compare_found import Found
from compare_page import Cell, Compared, Entry, page
from compare_servers import MCPVAULT, NOTEWRIGHT_SERVER, Place, Running, Tool, install
from make_vault import make_vault


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare") / "notes"
    make_vault(60, folder)
    truth.plant(folder)
    return folder


@pytest.mark.slow
def test_our_own_answers_are_right_and_have_times(vault: Path) -> None:
    questions = truth.read_truth(vault).questions()
    assert all(questions.values())
    running = Running(NOTEWRIGHT_SERVER, Place(vault, vault.parent / "state"))
    try:
        assert compare.until_right(running, questions["rare"][:5], 60) > 0
        cells = {"together": compare.together(running, questions["read"])}
        for row in compare.ROWS:
            cells[row.name] = cell = Cell()
            compare.burst(running, row.asking(running, questions), cell, counts=True)
        assert {name: cell.reason for name, cell in cells.items() if cell.median is None} == {}
    finally:
        running.close()


@pytest.mark.slow
def test_a_tool_that_answers_something_else_has_no_time_but_a_reason(vault: Path) -> None:
    questions = truth.read_truth(vault).questions()
    names = Tool("list", lambda at, path: {"folder": "Compare/Codes"}, NOTEWRIGHT_SERVER.tools["glob"].read)
    lines = Tool("read", lambda at, path: {"path": path, "lines": "1-1"})
    server = replace(NOTEWRIGHT_SERVER, tools=NOTEWRIGHT_SERVER.tools | {"backlinks": names, "read": lines})
    running = Running(server, Place(vault, vault.parent / "state"))
    try:
        for row, why in (("backlinks", "12 of 12 missing, 7 too many"), ("read", "not the whole text of the note")):
            cell = Cell()
            compare.burst(running, iter(questions[row]), cell, counts=True)
            assert (cell.median, cell.reason) == (None, why)
    finally:
        running.close()


def test_a_rename_that_leaves_links_behind_is_told(tmp_path: Path) -> None:
    truth.plant(tmp_path)
    old, new = truth.renamed(0), truth.renamed(1)
    assert truth.moved(tmp_path, old, new) == "the file is not where it should be"
    (tmp_path / old).rename(tmp_path / new)
    assert truth.moved(tmp_path, old, new) == ""
    assert truth.links_followed(tmp_path, old, new) == "50 of 50 links were left on the old name"
    for file in (tmp_path / "Compare/Fans").iterdir():
        file.write_text(file.read_text().replace("[[Well known 0]]", "[[Compare/Known/Well known 1|Well known]]"))
    assert truth.links_followed(tmp_path, old, new) == ""


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (truth.among("a.md", 1), ["a.md", "b.md"], ["b.md", "a.md"]),
        (truth.among("a.md", 1), ["a.md"], []),
        (truth.exactly(["a.md", "b.md"]), ["b.md", "a.md"], ["a.md"]),
        (truth.exactly(["a.md"]), ["a.md"], ["a.md", "b.md"]),
        (truth.holds("---\nx: 1\n---\none\n\ntwo\n"), '"one\r\n\r\ntwo"', "one"),
        (lambda after: truth.appended("# Log\n", after, "new\n"), "# Log\n\nnew\n", "# Log\nother\nnew\n"),
        (lambda after: truth.appended("# Log\n", after, "new\n"), "# Log\nnew\n", "# Log\n"),
    ],
)
def test_an_answer_is_right_or_there_is_a_reason(check: truth.Check, right: object, wrong: object) -> None:
    assert check(right) == ""
    assert check(wrong)


@pytest.mark.slow
def test_what_cannot_be_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="npm is not installed here"):
        install(MCPVAULT, tmp_path / "servers")


def test_the_page_gives_times_reasons_and_where_others_are_ahead() -> None:
    ours, theirs = NOTEWRIGHT_SERVER.name, MCPVAULT.name
    table = {
        "create": {ours: Cell([4.0, 2.0, 3.0]), theirs: Cell([1.0])},
        "backlinks": {ours: Cell([0.5]), theirs: Cell(lacks="no tool for backlinks")},
        "search": {ours: Cell([2.0]), theirs: Cell([1.0], wrong=["nothing found"], asked=2)},
    }
    compared = Compared(1000, table, {"create": [0.5]}, {"create": "sync1"}, {ours: 90.0, theirs: 120.0}, (0.1, 0.2))
    found = Found()
    found.add({"vault": "x", "way": "a", "source": "s.md", "target": "t.md"}, ["s.md", "o.md", "t.md"])
    missing = Entry(replace(MCPVAULT, name="absent"), "npm is not installed here", "")
    entries = [Entry(NOTEWRIGHT_SERVER, "", "6 fsyncs in 3 writes"), Entry(MCPVAULT, "", "no fsync"), missing]
    text = page("2026-01-02", "Python 3, 2 cores", entries, [compared], {ours: found, theirs: "no search by words"})
    for line in (
        "| create | sync1 0.5 | 3 (6 ×) | **1** (2 ×) |",
        "| backlinks |  | **0.5** | no tool |",
        "| search |  | **2** | wrong |",
        "| memory after all of it | | **90 MB** | 120 MB |",
        "- **mcpvault**, 1,000 notes: create 1 ms (no fsync), ours 3.",
        "- **mcpvault**: no tool for backlinks (backlinks); search: 1 of 2 answers: nothing found.",
        "- absent 0.16.0 (npm): npm is not installed here.",
        "| Notewright | 100 % | 0.50 | 0 % | 0 % | 0 % | 0 % | 0 |",
    ):
        assert line in text.splitlines()
