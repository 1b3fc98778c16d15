"""Lens: three tools, word for word (contracts B)."""

from collections.abc import Callable
from typing import Any

import pytest

from notewright.engine.library import Library
from notewright.ledger.base import Actor
from notewright.surfaces.base import Answer, Call
from notewright.surfaces.lens.tools import SURFACE
from notewright.surfaces.perform import perform

Ask = Callable[..., Answer]


@pytest.fixture
def ask(workspace) -> Ask:
    edu = workspace({"Syllabus.md": "[[Photosynthesis]] and [[Lens/Cell Theory]]\n"}, name="Lens Edu")
    lens = workspace(
        {
            "Photosynthesis.md": "# Photosynthesis\n\nPlants use [[Chloroplast|them]], ![[Cell Theory#Cells]].\n"
            "[[Nowhere]]\n",
            "Chloroplast.md": "`[[Photosynthesis]]`\n```\n[[Photosynthesis]]\n",
            "Cell Theory.md": "[[photosynthesis#x]]\n[[Cell Theory]]\n",
            "Biology 101.md": "[[Photosynthesis]] twice [[Photosynthesis]]\r\nlast",
            "sub/Deep.md": "[[../Photosynthesis]]\n",
            "Empty.md": "",
            "Shout.MD": "loud\n",
            "image.png": b"\x89PNG",
        },
        name="Lens",
    )
    call = Call(Library.of([edu, lens]), Actor("u", "c", "lens", ""))

    def asked(tool: str, /, **args: Any) -> Answer:
        return perform(SURFACE, call, tool, args)

    return asked


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"offset": 2}, "     2\tlast"),
        ({"offset": 0, "limit": 1}, "     1\t[[Photosynthesis]] twice [[Photosynthesis]]"),
        ({"offset": 3}, ""),
        ({"offset": 1.0, "limit": 1.0}, "     1\t[[Photosynthesis]] twice [[Photosynthesis]]"),
    ],
)
def test_offset_is_the_first_line_from_one(ask: Ask, args: dict[str, Any], said: str) -> None:
    assert ask("read", file_path="Lens/Biology 101.md", **args).text == said


def test_an_empty_document_reads_as_nothing(ask: Ask) -> None:
    assert ask("read", file_path="Lens/Empty.md").text == ""


@pytest.mark.parametrize(
    "path", ["Lens/photosynthesis.md", "Nope/A.md", "Lens/../x.md", "Lens/image.png", "Lens/sub", ""]
)
def test_a_document_that_is_not_there_is_an_error_answer(ask: Ask, path: str) -> None:
    for tool in ("read", "get_links"):
        answer = ask(tool, file_path=path)
        assert (answer.is_error, answer.text) == (True, f"Error: Document not found: {path}")


def test_every_path_that_glob_lists_can_be_read_and_asked_for_links(ask: Ask) -> None:
    paths = ask("glob", pattern="**").text.split("\n")
    assert "Lens/Shout.MD" in paths
    assert not any(ask(tool, file_path=path).is_error for tool in ("read", "get_links") for path in paths)


def test_long_lines_are_cut_at_two_thousand_characters(ask: Ask, workspace, tmp_path) -> None:
    (tmp_path / "Lens" / "Long.md").write_text("日" * 3000 + "\n")
    assert ask("read", file_path="Lens/Long.md").text == "     1\t" + "日" * 2000


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"pattern": "*.md", "path": "Lens Edu"}, "Lens Edu/Syllabus.md"),
        ({"pattern": "Lens Edu/*", "path": "Lens Edu"}, "Lens Edu/Syllabus.md"),
        ({"pattern": "*.md", "path": "Lens/sub"}, "Lens/sub/Deep.md"),
        ({"pattern": "Lens/{Empty,Chloro*}.md"}, "Lens/Chloroplast.md\nLens/Empty.md"),
        ({"pattern": "nope"}, "No matches found."),
        ({"pattern": "*", "path": "Nope"}, "No matches found."),
    ],
)
def test_glob_looks_below_its_scope(ask: Ask, args: dict[str, Any], said: str) -> None:
    answer = ask("glob", **args)
    assert (answer.is_error, answer.text) == (False, said)


def test_links_both_ways_cross_folders(ask: Ask) -> None:
    assert ask("get_links", file_path="Lens/Photosynthesis.md").text == (
        "Backlinks (documents linking to this):\n"
        "- Lens Edu/Syllabus.md\n- Lens/Biology 101.md\n- Lens/Cell Theory.md\n- Lens/sub/Deep.md\n"
        "\nForward links (documents this links to):\n- Lens/Cell Theory.md\n- Lens/Chloroplast.md"
    )


def test_a_link_may_name_another_folder_in_any_case_and_places_in_oneself_are_no_links(workspace) -> None:
    edu = workspace({"Welcome.md": "[[#top]] [[LENS/home#x]]\n"}, name="Lens Edu")
    lens = workspace({"Home.md": "[[lens edu/welcome]] [[Home]]\n"}, name="Lens")
    call = Call(Library.of([edu, lens]), Actor("u", "c", "lens", ""))
    assert perform(SURFACE, call, "get_links", {"file_path": "Lens Edu/Welcome.md"}).text == (
        "Backlinks (documents linking to this):\n- Lens/Home.md\n\n"
        "Forward links (documents this links to):\n- Lens/Home.md"
    )
    assert perform(SURFACE, call, "get_links", {"file_path": "Lens/Home.md"}).text == (
        "Backlinks (documents linking to this):\n- Lens Edu/Welcome.md\n- Lens/Home.md\n\n"
        "Forward links (documents this links to):\n- Lens Edu/Welcome.md\n- Lens/Home.md"
    )


def test_a_document_made_a_moment_ago_is_there(ask: Ask, tmp_path) -> None:
    (tmp_path / "Lens" / "Fresh.md").write_text("new\n")
    assert ask("read", file_path="Lens/Fresh.md").text == "     1\tnew"
