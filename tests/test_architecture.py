"""The walks of docs/architecture.md are those that the calls really take."""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.conftest import MakeWorkspace
from tests.surfaces.notes_agent import Agent
from tests.waiting import until

from notewright.engine.find.search import parse_query, search

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SRC = f"{ROOT / 'src' / 'notewright'}/"
MOST_MODULES = 10


def walk(name: str) -> list[str]:
    """The modules of one walk, as the page lists them."""
    part = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
    assert part is not None
    return re.findall(r"^\d+\. `([^`]+)`", part[1], re.M)


@contextmanager
def entered() -> Iterator[dict[str, None]]:
    """The modules in which something is called, by their first call, in this thread and those that start inside."""
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, arg: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SRC):
            found.setdefault(file.removeprefix(SRC))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


CALLS: dict[str, Callable[[Agent], object]] = {
    "A read": lambda agent: agent.said("read", path="Water"),
    "A search": lambda agent: agent.said("search", query="hot green"),
    "A write": lambda agent: agent.said("edit", path="Tea", edits=[{"append": "More."}]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_the_walk_that_the_page_shows(name: str, workspace: MakeWorkspace) -> None:
    ws = workspace({"Tea.md": "# Tea\n\nGreen [[Water]].\n", "Water.md": "Hot.\n"})
    agent = Agent((ws,), Path(ws.store.full_path("")))  # type: ignore[arg-type]
    agent.said("search", query="green")  # the index is ready
    with entered() as modules:
        CALLS[name](agent)
    listed = walk(name)
    assert 0 < len(listed) <= MOST_MODULES
    assert [module for module in modules if module in listed] == listed


def test_an_outside_edit_takes_the_walk_that_the_page_shows(workspace: MakeWorkspace, tmp_path: Path) -> None:
    with entered() as modules:
        ws = workspace({"Tea.md": "Green.\n"})
        search(ws, parse_query("green"))  # the index is ready, and the folder is watched
        modules.clear()
        (tmp_path / "Main" / "New.md").write_text("unheard\n")
        until(lambda: ws.index.find_file("New.md") is not None, seconds=20)
    listed = walk("An outside edit")
    assert 0 < len(listed) <= MOST_MODULES
    assert set(listed) <= set(modules)  # in no order: the threads that watch and index also wake by themselves
