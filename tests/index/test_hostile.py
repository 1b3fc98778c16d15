"""Notes made to hurt, from their text to the tables: twice the size takes twice the time and memory, not four times."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from notewright.index.base import Filing
from notewright.index.sqlite.rows import to_row, upsert
from notewright.index.sqlite.schema import create_index
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath

SIZE = 40_000  # characters
GROWTH = 2.5  # the most that twice the size may cost
PATH = NotePath("a.md")

Make = Callable[[int], str]


def filled(piece: str, before: str = "", after: str = "") -> Make:
    """So many characters of the piece, with a number in it where it has a place for one."""

    def make(size: int) -> str:
        numbered = "{0}" in piece
        width = len(piece) + 2 if numbered else len(piece)
        body = "".join(map(piece.format, range(size // width))) if numbered else piece * (size // width)
        return before + body + after

    return make


def rising(mark: str, between: str) -> Make:
    return lambda size: between.join(mark * length for length in range(1, int((2 * size) ** 0.5)))


def fence(piece: str, before: str = "", after: str = "") -> Make:
    return filled(piece, f"---\n{before}", f"{after}\n---\n[[x]]\n")


PIECES = (
    "[[x]]", "[[x]] ", "[[x]]\n", "[[x]]\n\n", "[[x{0}]] ", "[[x#h#i|y]] ", "![[x]]", "[a](b)",
    "![a](b)", "[![a](b)](c)", "[", "[[", "![", "](", "[a](", '[a](b "', "[a](<", "[a](b" + " " * 300,
    "[[a|", "[[`a]] ", "<!--", "<!--\n", "%%", "%%\n", "` ", "***", "___", "* ", ">", "> ", "> a\n",
    "- a\n", "- ", "1. ", "|a|b|\n|-|-|\n", "|-", "# a\n", "# a{0}\n", "#\n", "a\n=\n", "# [[x]]\n",
    "#a ", "#a{0} ", "http://,#a", "a ^x\n\n", "^x\n\n", "- a ^x\n", "word ", "w{0} ", "a", " ", " \n",
    "\n", "\t", "a [[x]]\r\n", "# a\r\n- b\r\n", "[^a]: b\n\n", "[a{0}]: b\n", "[a]: (", "<a ",
    '<a b="', "<b>[[x]]</b> ", "$", "$a ", "$$a ", "\\", "    a\n", "```\n", "知识管理", "知识[[管]]理",
    "知识。[[管]]", "\x00", "á", "Ab cd. Ef [[x]] gh. ", "!!!![[x]]", "- [ ] [[x{0}]]\n",
)  # fmt: skip
SHAPES: dict[str, Make] = {
    **{repr(piece): filled(piece) for piece in PIECES},
    **{
        f"{piece!r} and a link": filled(piece, after="[[Target]]")
        for piece in ("!", ".", "!)", "! ", "。", "a", "[a](", "(a)")
    },
    "a link and stops": filled("!", "[[Target]] "),
    "stops, then marks": lambda size: "!" * size + ")" * size + "[[T]]",
    "a long heading": filled("a ", "# "),
    "marks at a heading's end": filled("# ", "# ", "x"),
    "attributes": filled(" b=c", "<a"),
    "a long tag": filled("a", "#"),
    "a long name": filled("a", "[[", "]]"),
    "a long text of a link": filled("a", "[", "](b)"),
    "a long target": filled("b", "[a](", ")"),
    "links in an image": filled("[[x]]", "![", "](b)"),
    "rows": filled("-|", "a\n", "x\n"),
    "a wide table": lambda size: "|a" * size + "|\n" + "|-" * size + "|\n",
    "text in a quote": filled("b\n", ">" * 64 + "a\n"),
    "runs of backticks": rising("`", " "),
    "lines of backticks": rising("`", "\n"),
    "rising fences": rising("~", "\na\n"),
    "items in items": lambda size: "".join("  " * (at % 70) + "- a\n" for at in range(size // 74)),
    "keys": fence("k{0}: v\n"),
    "a key twice": fence("k{0}: v\n", after="k999: v"),
    "a list": fence("  - a{0}\n", "l:\n"),
    "aliases": fence("  - a{0}\n", "aliases:\n"),
    "tags": fence("t{0}, ", "tags: [", "]"),
    "links": fence('k{0}: "[[x{0}]]"\n'),
    "anchors": fence("a{0}: &x{0} 1\n"),
    "a long key": fence("k", after=": v"),
    "blanks in a key": fence(" ", "k", "x"),
    "brackets": fence("[", "a: "),
    "braces": fence("{{", "a: "),
    "templates": fence("{{a}} ", "a: "),
    "zeros": fence("0", "a: "),
}


def file_note(text: str, to: Path) -> None:
    note = parse(PATH, text)
    con = create_index(to)
    with con.db:
        upsert(con, [to_row(Filing(PATH, "1", "1", len(text), 1, note))])
    con.close()
    to.unlink()


def seconds(text: str, to: Path) -> float:
    gc.collect()
    gc.disable()  # how often it runs depends on what other tests left behind
    try:
        start = time.process_time()
        file_note(text, to)
        return time.process_time() - start
    finally:
        gc.enable()


def peak(text: str, to: Path) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        file_note(text, to)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _some(shapes: Iterable[str], each: int) -> list[Any]:
    """One of so many in make test, the others in make torture: all of them take five minutes of a processor."""
    marks = [pytest.mark.slow, *[pytest.mark.torture] * (each - 1)]
    return [pytest.param(shape, marks=marks[number % each]) for number, shape in enumerate(shapes)]


@pytest.mark.parametrize("shape", _some(SHAPES, each=2))
def test_twice_the_size_takes_twice_the_time(shape: str, tmp_path: Path) -> None:
    small, large = SHAPES[shape](SIZE), SHAPES[shape](2 * SIZE)
    to = tmp_path / "index.db"
    seconds(small, to)
    empty = min(seconds("", to) for _ in range(3))
    times = (float("inf"), float("inf"))
    for _ in range(20):  # a busy machine only ever adds to it: the best of several
        times = min(times[0], seconds(small, to)), min(times[1], seconds(large, to))
        if grows_little(times[0] - empty, times[1] - empty, 0.01):
            break
    assert grows_little(times[0] - empty, times[1] - empty, 0.01)


@pytest.mark.parametrize("shape", _some(SHAPES, each=8))
def test_twice_the_size_takes_twice_the_memory(shape: str, tmp_path: Path) -> None:
    to = tmp_path / "index.db"
    assert grows_little(peak(SHAPES[shape](SIZE), to), peak(SHAPES[shape](2 * SIZE), to), 200_000)


def grows_little(small: float, large: float, unnoticed: float) -> bool:
    """What both take at least is not counted: it would hide growth in the small one, and noise looks like it."""
    return large < GROWTH * small + unnoticed


def test_a_note_of_stops_before_a_link_is_filed_at_once(tmp_path: Path) -> None:
    assert seconds("!" * 200_000 + "[[Target]]", tmp_path / "index.db") < 5


def test_what_is_kept_of_a_line_of_links_stays_in_proportion_to_it() -> None:
    text = "[[x]] and " * 20_000
    row = to_row(Filing(PATH, "1", "1", len(text), 1, parse(PATH, text)))
    assert len(row.links) == 20_000
    assert sum(len(sentence) for _, sentence in row.sentences) < 15 * len(text)
