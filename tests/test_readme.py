"""The README's exchange is a real one."""

import json
import re
import shutil
from pathlib import Path

import pytest

from notewright.app.open_workspaces import OpenWorkspaces
from notewright.config.load import Config, WorkspaceConfig
from notewright.ledger.base import Actor
from notewright.surfaces.base import Call
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.perform import perform

ROOT = Path(__file__).resolve().parent.parent


def exchange() -> list[tuple[str, dict[str, object], str]]:
    block = re.search(r"```transcript\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block
    lines = block[1].splitlines()
    calls = [re.fullmatch(r"> (\w+) (\{.*\})", line) for line in lines[::2]]
    return [(call[1], json.loads(call[2]), said) for call, said in zip(calls, lines[1::2], strict=True) if call]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    shutil.copytree(ROOT / "examples" / "notes", tmp_path / "notes")
    asked = WorkspaceConfig("Examples", "examples", str(tmp_path / "notes"))
    opened = OpenWorkspaces(Config((asked,), str(tmp_path / "state"), str(tmp_path / "cache")))
    yield Call(opened, Actor("reader", "readme", "notes", ""))
    opened.close()


def test_the_exchange_in_the_readme_is_real(call: Call) -> None:
    assert [tool for tool, _, _ in exchange()] == ["search", "edit", "move", "undo"]
    change = ""
    for tool, args, said in exchange():
        if "change" in args:
            args["change"] = change
        answer = perform(SURFACE, call, tool, args)
        first, last = answer.text.splitlines()[0], answer.text.splitlines()[-1]
        assert re.fullmatch(re.escape(said).replace("…", ".+"), first), first
        change = "".join(re.findall(r'undo\(change="(\w+)"\)', last))
