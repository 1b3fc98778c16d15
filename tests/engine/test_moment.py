"""Links and names are asked of the index in several questions: a rename that is filed between them must not show."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import MakeWorkspace

from notewright import engine
from notewright.engine import Workspace
from notewright.notes import NotePath


class Interrupted:
    """An index between whose first two questions about links something happens."""

    def __init__(self, index: Any, happens: Callable[[], object]) -> None:
        self._index, self._happens = index, happens

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._index, name)
        if name not in ("links_from", "links_toward") or self._happens is None:
            return asked

        def answer(*args: Any) -> Any:
            found = asked(*args)
            happens, self._happens = self._happens, lambda: None
            happens()
            return found

        return answer


def forward(ws: Workspace) -> list[str | None]:
    return [link.path for link in engine.outgoing(ws, NotePath("About.md"))]


def across(ws: Workspace) -> list[str | None]:
    return [*engine.forward_across([ws], ws, NotePath("About.md"))]


@pytest.mark.parametrize(("ask", "prefix"), [(forward, ""), (across, "Main/")])
def test_a_rename_between_two_questions_shows_the_link_of_before_or_after_it(
    workspace: MakeWorkspace, ask: Callable[[Workspace], list[str | None]], prefix: str
) -> None:
    ws = workspace({"Topic.md": "t", "About.md": "See [[Topic]]."})
    ws.follower.wait(20)
    seen = replace(ws, index=Interrupted(ws.index, lambda: engine.move(ws, NotePath("Topic.md"), "Topic 2.md")))
    assert ask(seen) == [f"{prefix}Topic.md"]
    assert ask(seen) == [f"{prefix}Topic 2.md"]
