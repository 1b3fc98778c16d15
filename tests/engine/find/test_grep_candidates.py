"""Narrowing by the real index never loses a line: the same answers as looking at every text."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.fake_workspace import WholeIndex, fake_ws

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import CommandLine, load
from notewright.engine.find.grep import Find, Grep, find_notes_containing, find_text, grep
from notewright.engine.workspace import Workspace

MIXED = (
    "tea Tea teapot STEAM straße STRASSE ſteam Kelvin kelvin naïve naive cafe\u0301 café İstanbul istanbul ılık 日本語 "
    "日本 語学 笔记 笔 한국어 привет ПРИВЕТ Ελλάς ελλασ ǅ ǆ ﬁre fire don't foo_bar foo-bar foo.bar x2y 3.14 a\u200db "
    "_under_ #tag/sub [[Link]] https://a.b/c?d=e 😀tea tea😀 ①② ª º µm μm Å Å"
)
WORDS = tuple(MIXED.split(" "))


def texts() -> dict[str, str]:
    """Three hundred notes, so that few of them hold any one word and narrowing pays."""
    chance = random.Random(7)
    made = {}
    for number in range(300):
        rare = [chance.choice(WORDS) for _ in range(3)] if number % 4 == 0 else []
        words = [f"word{chance.randrange(400)}" for _ in range(30)] + rare
        chance.shuffle(words)
        glue = chance.choice((" ", "\n", ", ", " "))
        made[f"note {number}.md"] = glue.join(words) + "\n"
    return made


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root: Path = tmp_path_factory.mktemp("narrowed")
    (root / "notes").mkdir()
    for path, text in texts().items():
        (root / "notes" / path).write_text(text)
    config = load(CommandLine((str(root / "notes"),), flags={"state": str(root / "state")}))
    ws = open_workspace(config.workspaces[0], config, watch=False)
    ws.follower.wait(60)
    yield ws
    close_workspace(ws)


EVERYTHING = fake_ws(dict(texts()))
EVERYTHING.index = WholeIndex(texts())


TEXTS = [text for number, text in enumerate(texts().values()) if number % 4 == 0]


@st.composite
def pieces(draw: st.DrawFn) -> str:
    """A part of a text as it stands there, often across the edges of words."""
    text = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, len(text) - 2))
    return text[start : start + draw(st.integers(1, 9))].replace("\n", " ")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(pieces(), st.booleans(), st.booleans())
def test_plain_text_is_found_wherever_it_stands(workspace: Workspace, piece: str, ignore: bool, word: bool) -> None:
    asked = Grep(piece, dialect="literal", ignore_case=ignore, whole_word=word, limit=1000)
    expected, found = grep(EVERYTHING, asked), grep(workspace, asked)
    assert [(item.path, item.line) for item in found.items] == [(item.path, item.line) for item in expected.items]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(pieces(), min_size=1, max_size=3), st.sampled_from(["|", ".*", r"\s*", ".?"]))
def test_patterns_of_several_pieces_are_found(workspace: Workspace, parts: list[str], glue: str) -> None:
    asked = Grep(glue.join(map(re.escape, parts)), dialect="python-like", limit=1000)
    expected, found = grep(EVERYTHING, asked), grep(workspace, asked)
    assert [(item.path, item.line) for item in found.items] == [(item.path, item.line) for item in expected.items]


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_found_in_any_case(workspace: Workspace, word: str) -> None:
    for asked in (word, word.lower(), word.upper(), word.swapcase()):
        assert find_text(workspace, Find(asked)).notes == find_text_of_everything(workspace, asked)
        assert sorted(find_notes_containing(workspace, asked)) == sorted(find_notes_containing(EVERYTHING, asked))


def find_text_of_everything(workspace: Workspace, asked: str) -> tuple[object, ...]:
    """The same notes, found without the index, with the times the index knows."""
    known = {note.path: note for note in find_text(workspace, Find("")).notes}
    expected = find_text(EVERYTHING, Find(asked)).notes
    return tuple(type(note)(**{**_fields(note), "modified_ns": known[note.path].modified_ns}) for note in expected)


def _fields(note: object) -> dict[str, object]:
    return {name: getattr(note, name) for name in ("path", "matches", "first", "length", "modified_ns", "size")}
