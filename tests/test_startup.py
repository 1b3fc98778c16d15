"""What a command loads before it answers: Python spends longer on defining classes than SQLite on answering."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import write_files

SEARCH = """
import sys
from notewright.cli.main import main
code = main(["search", "tea", "--workspace", sys.argv[1], "--state", sys.argv[2]])
print("loaded:", *(name for name in sys.argv[3:] if name in sys.modules))
sys.exit(code)
"""
HEAVY = ["mcp", "starlette", "uvicorn", "asyncio", "re2", "rich", "watchfiles", "notewright.engine.find.grep"]


def test_a_search_on_the_command_line_loads_nothing_heavy(tmp_path: Path) -> None:
    write_files(tmp_path / "notes", {"Tea.md": "Green tea."})
    command = [sys.executable, "-c", SEARCH, str(tmp_path / "notes"), str(tmp_path / "state"), *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Tea.md" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("web", ["mcp", "starlette", "uvicorn"])
def test_serving_on_stdio_loads_no_web_stack(web: str) -> None:
    code = f"import sys, notewright.app.compose, notewright.surfaces.notes.tools; sys.exit({web!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_process_that_fills_an_index_loads_only_what_writes_rows() -> None:
    unneeded = ["notewright.index.base", "notewright.index.sqlite.generations", "subprocess", "secrets"]
    code = f"import sys, notewright.index.sqlite._filler; sys.exit(', '.join(set({unneeded}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


SITE = """
import sys
from dataclasses import replace
from notewright.app.compose_http import Site
from notewright.config.load import Config, WorkspaceConfig
spaces = (WorkspaceConfig("Notes", "notes", sys.argv[1], live=sys.argv[3] == "live"),)
with Site(Config(spaces, sys.argv[2], sys.argv[2] + "-cache")) as site:
    site.app()
    site.library.workspaces()
print("loaded:", *(name for name in sys.argv[4:] if name in sys.modules))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "live"])
def test_what_live_documents_need_is_loaded_where_there_are_some(tmp_path: Path, kind: str) -> None:
    write_files(tmp_path / "notes", {"Tea.md": "Green tea."})
    needed = ["pycrdt", "notewright.server.live.routes"]
    command = [
        sys.executable,
        "-c",
        SITE,
        str(tmp_path / "notes"),
        str(tmp_path / "state"),
        kind,
        *needed,
        "websockets",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == (needed if kind == "live" else [])
