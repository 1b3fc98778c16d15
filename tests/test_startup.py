"""What a command loads before it answers: Python spends longer on defining classes than SQLite on answering."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import write_files

from notewright.cli.main import main

pytestmark = pytest.mark.slow

RUN = """
import sys, threading
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from notewright.cli.main import main
try:
    main(sys.argv[1].split("|"))
finally:
    print("loaded:", *(name for name in sys.argv[2:] if name in sys.modules))
    print("threads:", threading.active_count())
    print("read:", sum(name.endswith("server.toml") for name in opened))
"""
HEAVY = ["mcp", "starlette", "uvicorn", "asyncio", "re2", "rich", "watchfiles", "notewright.engine.find.grep"]
FILLING = ["notewright.engine.indexing.indexer", "notewright.notes.parse.parser", "notewright.index.sqlite.rows"]
WRITING = ["notewright.stores.folder.atomic", "notewright.stores.folder.watch", "notewright.engine.changes.commit"]
OTHERS = ["notewright.engine.library", "notewright.accounts.base", "notewright.config.aws", "notewright.engine.read"]
STANDARD = ["logging", "hashlib", "subprocess", "concurrent.futures", "platform", "configparser", "html", "difflib"]
CLASSES = ["dataclasses", "inspect", "ast", "tokenize"]  # what `dataclasses` loads, and what it is loaded for
SELDOM = ["shutil", "lzma", "zoneinfo", "sysconfig", "getpass", "string"]


def run(words: list[str], *watched: str) -> list[str]:
    """What a command prints, and then what it loaded of these, how many threads it left, how often it read its file."""
    command = [sys.executable, "-c", RUN, "|".join(words), *watched]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_a_search_on_the_command_line_loads_little_elects_nobody_and_reads_its_configuration_once(
    tmp_path: Path,
) -> None:
    write_files(tmp_path / "notes", {"Tea.md": "Green tea.", "Brew/Coffee.md": "No [[tea]]."})
    (tmp_path / "server.toml").write_text('[workspaces.Elsewhere]\nlocation = "."\n[http]\nworkers = 2\n')
    for file in ("Tea.md", "Brew/Coffee.md"):  # so long ago that the walk believes its time
        os.utime(tmp_path / "notes" / file, (1_700_000_000, 1_700_000_000))
    where = ["--workspace", str(tmp_path / "notes"), "--state", str(tmp_path / "state")]
    assert main(["index", *where]) == 0
    for lock in (tmp_path / "state" / "cache").glob("*/follower"):
        lock.unlink()
    shown = run(["search", "tea", *where], *HEAVY, *FILLING, *WRITING, *OTHERS, *STANDARD, *CLASSES, *SELDOM, "tomllib")
    assert shown[0].startswith("1. Tea.md")
    assert shown[-3:] == ["loaded:", "threads: 1", "read: 0"]
    with_file = run(["search", "tea", *where, "--config", str(tmp_path / "server.toml")])
    assert with_file[-3:] == ["loaded:", "threads: 1", "read: 1"]
    assert not list((tmp_path / "state" / "cache").glob("*/follower")), "nobody was elected"


def test_a_search_without_a_server_finds_what_was_changed_outside_since_the_last_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path / "notes", {"Pot.md": "Green tea.", "Old.md": "Old tea."})
    where = ["--workspace", str(tmp_path / "notes"), "--state", str(tmp_path / "state"), "--json"]

    def found() -> set[str]:
        assert main(["search", "tea", *where]) == 0
        return {hit["path"] for hit in json.loads(capsys.readouterr().out)["hits"]}

    assert found() == {"Pot.md", "Old.md"}
    (tmp_path / "notes" / "Old.md").unlink()
    write_files(tmp_path / "notes", {"New.md": "Black tea.", "Pot.md": "Water."})
    for file in ("New.md", "Pot.md"):
        os.utime(tmp_path / "notes" / file, (1_700_000_000, 1_700_000_000))
    assert found() == {"New.md"}


def test_a_log_of_all_notes_does_not_load_what_looks_for_one(tmp_path: Path) -> None:
    write_files(tmp_path / "notes", {"Tea.md": "Green tea."})
    where = ["--workspace", str(tmp_path / "notes"), "--state", str(tmp_path / "state")]
    looking = ["notewright.engine.read", "notewright.engine.indexing.before_index", "notewright.notes.links.resolve"]
    assert "loaded:" in run(["log", *where], *looking)
    assert main(["log", *where]) == 0


def test_the_help_loads_nothing_but_the_parser() -> None:
    watched = ["typing", "dataclasses", "json", "pathlib", "logging", "notewright.errors", "notewright.config"]
    watched += ["re2", "regex", "apsw"]
    shown = run(["--help"], *watched)
    assert shown[0].startswith("usage: notewright")
    assert shown[-3] == "loaded:"


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
    site.build_app()
    site.library.workspaces()
print("loaded:", *(name for name in sys.argv[4:] if name in sys.modules))
"""


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
