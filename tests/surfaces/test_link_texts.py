"""The text shown around a link holds the link whole, on every surface, for every link of real vaults."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import REAL_VAULTS, open_folder
from tests.surfaces.notes_agent import MakeAgent

from notewright.app.opening import close_workspace
from notewright.engine.find.context import pack_for_note
from notewright.engine.find.links import incoming, outgoing
from notewright.engine.library import Library
from notewright.engine.read import list_files, read
from notewright.engine.workspace import Workspace
from notewright.index.base import Selection
from notewright.ledger.base import Actor
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath
from notewright.surfaces.base import Call
from notewright.surfaces.cairn import render as cairn_words
from notewright.surfaces.cairn import tools as cairn
from notewright.surfaces.notes import render as notes_words
from notewright.surfaces.perform import perform

LONGEST = 210  # 200, two marks and an ellipsis on each side; or as long as the link itself
FILLER = "This sentence is here to make the line long, and says nothing more. " * 8


def on_one_line(text: str) -> str:
    return "".join(" " if char in "\r\n\t" else char for char in text)


def note_paths(ws: Workspace) -> list[NotePath]:
    return [filed.path for filed in list_files(ws, Selection(limit=None, folder="", recursive=True))[0]]


@pytest.fixture(scope="module", params=REAL_VAULTS)
def real(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    place = shared / "vaults" / request.param
    if not place.is_dir():
        pytest.skip(f"the vault {request.param} is not among the shared ones")
    kept = tmp_path_factory.mktemp("kept")
    ws = open_folder(place / "vault", kept)
    yield ws
    close_workspace(ws)


@pytest.mark.slow
def test_every_outgoing_link_is_whole_in_the_text_shown_for_it(real: Workspace) -> None:
    seen = 0
    for path in note_paths(real):
        text = read(real, path).text
        for link, one in zip(parse(path, text).links, outgoing(real, path), strict=True):
            written = on_one_line(text[link.start : link.end])
            line = notes_words.format_link("→", "x", one, "L1")
            assert written in line and written in cairn_words.cut_context(one)
            assert f"«{written}»" in line or line.endswith(f": {one.sentence.text}")  # all of a short line
            assert len(line) <= 30 + len(one.subpath) + max(LONGEST, len(written) + 4)
            seen += 1
    assert seen


@pytest.mark.slow
def test_every_backlink_is_whole_in_the_text_shown_for_it(real: Workspace) -> None:
    seen = 0
    for path in note_paths(real):
        for one in incoming(real, path):
            text = read(real, one.source).text
            written = {on_one_line(text[link.start : link.end]) for link in parse(one.source, text).links}
            shown = one.sentence
            assert shown.text[shown.start : shown.end] in written
            seen += 1
    assert seen


def test_a_link_at_the_end_of_a_long_line_is_shown_both_ways_and_in_loose_ends(make: MakeAgent) -> None:
    agent = make({"A.md": f"{FILLER}Then read [[B]] first. {FILLER}", "B.md": f"{FILLER}Not [[Nowhere]] yet."})
    assert "→ B.md (L1): …Then read «[[B]]» first.…" in agent.said("links", path="A")
    assert "← A.md (L1): …Then read «[[B]]» first.…" in agent.said("links", path="B")
    assert "(B.md L1) [broken]: …Not «[[Nowhere]]» yet." in agent.said("links", path="/")


def test_a_mention_at_the_end_of_a_long_line_is_shown(make: MakeAgent) -> None:
    agent = make({"A.md": f"{FILLER}Then read Blackcurrant first.", "Blackcurrant.md": "x"})
    assert "~ A.md (L1): …Then read «Blackcurrant» first." in agent.said("links", path="Blackcurrant", mentions=True)


def test_cairn_cuts_the_line_around_the_link(make: MakeAgent) -> None:
    agent = make({"A.md": f"- {FILLER}[[{'B' * 10}]] {FILLER}", "BBBBBBBBBB.md": "x"})
    call = Call(Library.of(agent.workspaces), Actor("u", "c"))
    answer = json.loads(perform(cairn.SURFACE, call, "cairn_links", {"path": "BBBBBBBBBB"}).text)
    context = answer["incoming"][0]["context"]
    assert "[[BBBBBBBBBB]]" in context and context.startswith("...") and context.endswith("...") and len(context) < 170


def test_what_links_here_is_whole_in_a_context_pack(make: MakeAgent) -> None:
    agent = make({"A.md": f"{FILLER}Then read [[B]] first. {FILLER}", "B.md": "x"})
    pack = pack_for_note(agent.ws, NotePath("B.md"), 1000)
    assert "Then read [[B]] first." in pack.passages[1].text
