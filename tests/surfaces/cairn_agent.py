"""A workspace that is spoken to in Cairn's dialect."""

import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.conftest import open_folder, write_files

from notewright.app.opening import close_workspace
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor
from notewright.surfaces.base import Answer, Call
from notewright.surfaces.cairn.tools import SURFACE
from notewright.surfaces.perform import perform

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
NOON = 1_771_934_400.0  # 2026-02-24T12:00:00Z
JAMIE = "---\ntitle: Jamie Wilson\ntype: person\ntags: [co-founder, ceo]\n---\n\n# Jamie\n\nCEO.\n"
PARTS = "# Plan\n\n## Meetings\n\n- one\n\n### Deep\n- two\n\n\n## Later\nend\n"


@dataclass(frozen=True)
class Agent:
    """`agent("read", path="a")` calls `cairn_read`."""

    ws: Workspace
    root: Path

    def __call__(self, tool: str, /, **args: Any) -> Answer:
        return perform(SURFACE, Call(Library.of([self.ws]), Actor("u", "c", "cairn", tool)), f"cairn_{tool}", args)

    def said(self, tool: str, /, **args: Any) -> str:
        """The text of an answer that is no refusal."""
        answer = self(tool, **args)
        assert not answer.is_error, answer.text
        return answer.text

    def json(self, tool: str, /, **args: Any) -> Any:
        return json.loads(self.said(tool, **args))

    def refused(self, tool: str, /, **args: Any) -> str:
        answer = self(tool, **args)
        assert answer.is_error, answer.text
        return answer.text

    def body(self, **args: Any) -> str:
        """What `cairn_read` shows below the frontmatter."""
        return self.said("read", **args).split("\n---", 1)[1].removeprefix("\n\n")

    def shown(self, **args: Any) -> Mapping[str, str]:
        """The lines of the shown frontmatter, by key."""
        block = self.said("read", **args).split("\n---", 1)[0]
        return dict(line.split(": ", 1) for line in block.split("\n")[1:] if not line.startswith(" ") and ": " in line)

    def file(self, path: str) -> str:
        """The stored bytes, as text."""
        return (self.root / f"{path}.md").read_bytes().decode()

    def stored_body(self, path: str) -> str:
        return self.file(path).split("\n---\n", 1)[1]

    def paths(self, tool: str, /, **args: Any) -> list[str]:
        found = self.json(tool, **args)
        return [row["path"] for row in found["results" if tool == "search" else "notes"]]

    def at(self, seconds: float) -> "Agent":
        """The same agent at another time."""
        return replace(self, ws=replace(self.ws, clock=lambda: seconds))


OpenAgent = Callable[..., Agent]


@contextmanager
def agents(tmp_path: Path) -> Generator[OpenAgent, None, None]:
    """`make({"a/b": "text"}, times={"a/b": 1_700_000_000}, read_only=True)`: paths have no `.md`. Nobody watches."""
    opened: list[Agent] = []

    def make(
        notes: Mapping[str, str | bytes] | None = None, *, times: Mapping[str, float] | None = None, **settings: Any
    ) -> Agent:
        root = tmp_path / f"Notes{len(opened) or ''}"
        write_files(root, {f"{path}.md": text for path, text in (notes or {}).items()})
        for path, seconds in (times or {}).items():
            os.utime(root / f"{path}.md", (seconds, seconds))
        opened.append(Agent(open_folder(root, tmp_path, watch=False, **settings), root))
        return opened[-1]

    yield make
    for agent in opened:
        close_workspace(agent.ws)
