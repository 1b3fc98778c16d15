"""An agent at work: it calls tools, and we count what that costs it."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor
from notewright.surfaces.base import Answer, Call, Session
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.perform import perform

EXAMPLES = Path(__file__).parents[2] / "examples" / "notes"


@dataclass
class Agent:
    """Speaks `notes`. `root` is for looking at the files afterwards."""

    ws: Workspace
    root: Path
    name: str = "agent"
    calls: int = 0
    bytes: int = 0  # of what was asked and answered
    session: Session = field(default_factory=Session)

    def ask(self, tool: str, /, **args: Any) -> Answer:
        actor = Actor("nora", self.name, "notes", tool)
        answer = perform(SURFACE, Call(Library.of([self.ws]), actor, self.session), tool, args)
        self.calls += 1
        self.bytes += len(json.dumps(args, ensure_ascii=False).encode()) + len(answer.text.encode())
        return answer

    def __call__(self, tool: str, /, **args: Any) -> str:
        answer = self.ask(tool, **args)
        assert not answer.is_error, answer.text
        return answer.text

    def refused(self, tool: str, /, **args: Any) -> str:
        answer = self.ask(tool, **args)
        assert answer.is_error, answer.text
        return answer.text

    def text(self, path: str) -> str:
        """What is in a file now, not counted."""
        return (self.root / path).read_text()


def first_path(answer: str) -> str:
    """The path of the best hit."""
    found = re.search(r"^1\. (.+?\.md)", answer, re.MULTILINE)
    assert found, answer
    return found[1]


def version(answer: str) -> str:
    found = re.search(r"version ([0-9a-f]{12})", answer)
    assert found, answer
    return found[1]


def change(answer: str) -> str:
    found = re.search(r'undo\(change="(\w+)"\)', answer)
    assert found, answer
    return found[1]


def paths(answer: str) -> list[str]:
    """Every note an answer names, once, in order."""
    return list(dict.fromkeys(re.findall(r"^(?:[←→○~] )?(.+?\.md)\b", answer, re.MULTILINE)))


@contextmanager
def at_work(place: Path) -> Iterator[Agent]:
    """An agent in a copy of the example notes."""
    root = place / "notes"
    shutil.copytree(EXAMPLES, root)
    asked = WorkspaceConfig("Bakery", "bakery", str(root))
    ws = open_workspace(asked, Config((asked,), str(place / "state"), str(place / "cache")), watch=False)
    try:
        yield Agent(ws, root)
    finally:
        close_workspace(ws)
