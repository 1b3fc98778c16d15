"""A vault as one client of the obsidian surface sees it, for tests."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import read_files

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor
from notewright.surfaces.base import Answer, Call, Session
from notewright.surfaces.obsidian.tools import SURFACE
from notewright.surfaces.perform import perform

BEFORE_BLOCK = "\n\n---\n## Your personal notes"


class Vault:
    """Files in a real folder, and one session of calls."""

    def __init__(self, root: Path, ws: Workspace) -> None:
        self.root, self.ws = root, ws
        self.session = Session("test")

    def another_session(self) -> "Vault":
        return Vault(self.root, self.ws)

    def answer(self, tool: str, /, **args: Any) -> Answer:
        """Whatever comes back, as it is on the wire."""
        return perform(
            SURFACE, Call(Library.of([self.ws]), Actor("ann", "test", "obsidian", tool), self.session), tool, args
        )

    def whole(self, tool: str, /, **args: Any) -> str:
        """The text of a success, the block included."""
        answer = self.answer(tool, **args)
        assert not answer.is_error, answer.text
        assert isinstance(answer.blocks[0], str)
        return answer.blocks[0]

    def text(self, tool: str, /, **args: Any) -> str:
        """The text of a success without the block."""
        return self.whole(tool, **args).partition(BEFORE_BLOCK)[0]

    def told(self, tool: str, /, **args: Any) -> Any:
        """The JSON of a success."""
        return json.loads(self.text(tool, **args))

    def refused(self, tool: str, /, **args: Any) -> str:
        """The words of a refusal, without its frame."""
        answer = self.answer(tool, **args)
        assert answer.is_error, answer.text
        frame = f"Error executing tool {tool}: "
        assert answer.text.startswith(frame)
        return answer.text.removeprefix(frame)

    # ---- the files, past the surface ------------------------------------------------------------------

    def file(self, name: str) -> str:
        return (self.root / f"{name}.md").read_bytes().decode()

    def files(self) -> dict[str, bytes]:
        """Every file, hidden ones too."""
        return read_files(self.root)

    def write(self, path: str, content: str | bytes) -> None:
        """Somebody else saves a file; some time ago, so that nobody has to wait until it is still."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        then = time.time() - 3600
        os.utime(place, (then, then))


def note(body: str = "", **properties: Any) -> str:
    """A note's text with frontmatter."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in properties.items()]
    return f"---\n{''.join(lines)}---\n{body}" if lines else body


def tagged(*tags: str, body: str = "") -> str:
    return note(body, tags=list(tags))


def filled(root: Path, notes: Mapping[str, str | bytes]) -> None:
    """Write notes (by name) and other files (by path)."""
    writer = Vault(root, None)  # type: ignore[arg-type]
    for name, content in notes.items():
        writer.write(name if "." in name.rpartition("/")[2] else f"{name}.md", content)
