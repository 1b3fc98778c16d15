"""Links and names are asked of the index in several questions: a rename that is filed between them must not show."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import MakeWorkspace

from notewright.engine.check import broken_links, check
from notewright.engine.dialects.cairn import list_note_summaries
from notewright.engine.dialects.lens import find_forward_links
from notewright.engine.dialects.obsidian import find_unresolved_links, list_tag_descriptions
from notewright.engine.find.graph import find_links_to, find_neighbourhood
from notewright.engine.find.links import links, outgoing
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.index.base import Selection
from notewright.notes.links.resolve import CAIRN
from notewright.notes.path import NotePath


class Interrupted:
    """An index between whose first two questions something happens."""

    def __init__(self, index: Any, happens: Callable[[], object]) -> None:
        self._index, self._happens = index, happens

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._index, name)
        if name not in ("links_from", "links_toward", "all_links", "select", "filed", "tagged"):
            return asked

        def answer(*args: Any, **kwargs: Any) -> Any:
            found = asked(*args, **kwargs)
            found = list(found) if name == "all_links" else found
            happens, self._happens = self._happens, lambda: None
            happens()
            return found

        return answer


def forward(ws: Workspace) -> list[str | None]:
    return [link.path for link in outgoing(ws, NotePath("About.md"))]


def across(ws: Workspace) -> list[str | None]:
    return [*find_forward_links([ws], ws, NotePath("About.md"))]


@pytest.mark.parametrize(("ask", "prefix"), [(forward, ""), (across, "Main/")])
def test_a_rename_between_two_questions_shows_the_link_of_before_or_after_it(
    workspace: MakeWorkspace, ask: Callable[[Workspace], list[str | None]], prefix: str
) -> None:
    ws = workspace({"Topic.md": "t", "About.md": "See [[Topic]]."})
    ws.follower.wait(20)
    seen = replace(ws, index=Interrupted(ws.index, lambda: move(ws, NotePath("Topic.md"), "Topic 2.md")))
    assert ask(seen) == [f"{prefix}Topic.md"]
    assert ask(seen) == [f"{prefix}Topic 2.md"]


FILES = {
    "Topic.md": "---\ntags: [one]\ndescription: d\n---\nSee [[Other]].",
    "About.md": "See [[Topic]].",
    "Other.md": "o",
    "x/Deep.md": "d",
}
TOPIC, ABOUT = NotePath("Topic.md"), NotePath("About.md")
ASK: dict[str, Callable[[Workspace], object]] = {
    "links both ways": lambda ws: links(ws, ABOUT, depth=2),
    "notes that link to one": lambda ws: find_links_to(ws, TOPIC, CAIRN),
    "notes around": lambda ws: find_neighbourhood(ws, ABOUT, CAIRN, depth=2),
    "loose ends": lambda ws: broken_links(ws, ""),
    "what check says of links": lambda ws: [one for one in check(ws) if one.kind.endswith("_link")],
    "names that nothing has": find_unresolved_links,
    "notes with a tag": lambda ws: list_tag_descriptions(ws, "one"),
    "cards": lambda ws: [(card.path, card.tags) for card in list_note_summaries(ws, Selection())[0]],
}


@pytest.mark.parametrize("name", ASK)
def test_an_answer_of_many_questions_is_that_of_one_moment(workspace: MakeWorkspace, name: str) -> None:
    ask, ws = ASK[name], workspace(FILES)
    ws.follower.wait(20)

    before = ask(ws)
    seen = replace(ws, index=Interrupted(ws.index, lambda: move(ws, TOPIC, "Topic 2.md")))
    between = ask(seen)
    after = ask(seen)
    assert between == before
    assert after == ask(ws)


def test_which_index_answers_now_is_told_also_inside_one_moment(workspace: MakeWorkspace) -> None:
    ws = workspace(FILES)
    ws.follower.wait(20)
    with ws.index.snapshot():
        before = ws.index.generation()
        assert ws.index.find_file(TOPIC) is not None
        ws.follower.rebuild(lambda done, total: None)
        now = ws.index.generation()
    assert before != now == ws.index.generation()
    assert outgoing(ws, ABOUT)[0].path == TOPIC
