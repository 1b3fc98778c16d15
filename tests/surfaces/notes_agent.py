"""Workspaces that are spoken to through `notes`, as one client sees them."""

import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.conftest import open_folder, write_files

from notewright.app.opening import close_workspace
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor
from notewright.surfaces.base import Answer, Call, Session
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.perform import perform

CODES = "not_found|ambiguous|exists|conflict|invalid|too_large|read_only|forbidden|busy|internal"
UNDO = re.compile(r'Undo: undo\(change="([a-z0-9]{6,})"\)')
VERSION = re.compile(r"version ([0-9a-f]{12})\b")
WRITTEN = 1793577600  # when the files of every agent were last saved: 2026-11-02T00:00:00Z
Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Agent:
    """`agent("read", path="Tea")` calls the tool; the first workspace's files lie at `root`."""

    workspaces: tuple[Workspace, ...]
    root: Path
    client: str = "claude"
    session: Session = field(default_factory=Session)

    @property
    def ws(self) -> Workspace:
        return self.workspaces[0]

    def __call__(self, tool: str, /, **args: Any) -> Answer:
        actor = Actor("ann", self.client, "notes", tool)
        answer = perform(SURFACE, Call(Library.of(self.workspaces), actor, self.session), tool, args)
        if answer.is_error:
            assert re.match(rf"({CODES}): \S.*[.:]($|\n)", answer.text), answer.text
        return answer

    def said(self, tool: str, /, **args: Any) -> str:
        """The text of an answer that is no refusal."""
        answer = self(tool, **args)
        assert not answer.is_error, answer.text
        return answer.text

    def refused(self, tool: str, /, **args: Any) -> str:
        answer = self(tool, **args)
        assert answer.is_error, answer.text
        return answer.text

    def done(self, tool: str, /, **args: Any) -> str:
        """The id of the change a call made: the last line says it."""
        found = UNDO.fullmatch(self.said(tool, **args).split("\n")[-1])
        assert found
        return found[1]

    def version(self, path: str) -> str:
        found = VERSION.search(self.said("read", path=path).split("\n")[0])
        assert found
        return found[1]

    def raw(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def text(self, path: str) -> str:
        return self.raw(path).decode()

    def there(self, path: str) -> bool:
        return (self.root / path).exists()

    def outside(self, path: str, content: str | bytes) -> None:
        """Somebody saves a file with an editor, a while ago."""
        write_files(self.root, {path: content})
        before = time.time() - 60
        os.utime(self.root / path, (before, before))

    def another(self, client: str = "cursor") -> "Agent":
        """The same notes, spoken to by another client."""
        return replace(self, client=client, session=Session())


MakeAgent = Callable[..., Agent]


@contextmanager
def agents(tmp_path: Path) -> Generator[MakeAgent, None, None]:
    """`make({"A.md": "text"}, hide=("Private/**",))`, or `make(Work={…}, Home={…})` for several workspaces."""
    opened: list[Workspace] = []

    def make(files: Files | None = None, *, clock: Callable[[], float] = time.time, **more: Any) -> Agent:
        named = {name: given for name, given in more.items() if name[0].isupper()}
        settings = {name: given for name, given in more.items() if not name[0].isupper()}
        count = len(opened)
        for name, content in (named or {"Main": files or {}}).items():
            root = tmp_path / f"{count}" / name
            write_files(root, content)
            for path in content:
                os.utime(root / path, (WRITTEN, WRITTEN))
            opened.append(replace(open_folder(root, tmp_path, watch=False, **settings), clock=clock))
        first = next(iter(named), "Main")
        return Agent(tuple(opened[count:]), tmp_path / f"{count}" / first)

    yield make
    for ws in opened:
        close_workspace(ws)
