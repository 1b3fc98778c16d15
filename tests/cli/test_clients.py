"""What MCP clients are told, and that their files keep everything else."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from notewright.cli import _jsonc
from notewright.cli.clients import put
from notewright.cli.main import main
from notewright.config.clients import CLIENTS

ENTRY = {"command": "/bin/notewright", "args": ["serve", "/notes"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any settings, in a folder with a note."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "Tea.md").write_text("tea")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.chdir(tmp_path / "notes")
    return tmp_path


def entry_of(client: str, home: Path) -> Any:
    """The server's entry in the file of a client."""
    files = {
        "claude-desktop": ".config/Claude/claude_desktop_config.json",
        "claude-code": ".claude.json",
        "cursor": ".cursor/mcp.json",
        "vscode": ".config/Code/User/mcp.json",
        "zed": ".config/zed/settings.json",
        "windsurf": ".codeium/windsurf/mcp_config.json",
        "gemini-cli": ".gemini/settings.json",
        "codex-cli": ".codex/config.toml",
    }
    text = (home / files[client]).read_text()
    document = tomllib.loads(text) if files[client].endswith(".toml") else json.loads(text)
    return document[CLIENTS[client].key]["notewright"]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_a_command_with_absolute_paths(client: str, home: Path) -> None:
    assert main(["client", client, "--write", "--read-only"]) == 0
    entry = entry_of(client, home)
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == ["serve", str(home / "notes"), "--read-only"]


def test_an_entry_for_zed_is_written_in_the_order_of_its_documentation(home: Path) -> None:
    assert main(["client", "zed", "--write"]) == 0
    assert list(entry_of("zed", home)) == ["source", "command", "args", "env"]


def test_without_write_it_is_printed_and_nothing_is_touched(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "cursor", "Mine=.", "--surface", "octarine", "--name", "mine"]) == 0
    read = capsys.readouterr()
    entry = json.loads(read.out)["mcpServers"]["mine"]
    assert entry["args"] == ["serve", f"Mine={home}/notes", "--surface", "octarine"]
    assert "--write puts it there" in read.err
    assert not (home / ".cursor").exists()


@pytest.mark.parametrize(
    ("place", "runner", "words"),
    [("uv/archive-v0/Xy", "uvx", ["notewright"]), ("pipx/.cache/Xy", "pipx", ["run", "notewright"])],
)
def test_an_environment_that_will_be_thrown_away_is_not_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: str, runner: str, words: list[str]
) -> None:
    monkeypatch.setattr("sys.executable", str(home / place / "bin" / "python"))
    (home / runner).write_text("#!/bin/sh\n")
    (home / runner).chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    assert main(["client", "cursor", "--write"]) == 0
    entry = entry_of("cursor", home)
    assert (entry["command"], entry["args"]) == (str(home / runner), [*words, "serve", str(home / "notes")])


def test_a_json_file_keeps_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    old = '{\n    "theme": "ä",\n    "mcpServers": {\n        "other": {"command": "x"}\n    }\n}\n'
    file.write_text(old)
    file.chmod(0o600)
    backup = put(file, "mcpServers", "notewright", ENTRY)
    assert backup is not None and backup.read_text() == old
    assert json.loads(file.read_text()) == {
        "theme": "ä",
        "mcpServers": {"other": {"command": "x"}, "notewright": ENTRY},
    }
    assert '\n    "theme": "ä",\n' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert put(file, "mcpServers", "notewright", ENTRY) is None
    assert len(list(tmp_path.iterdir())) == 2


ZED = """// Zed settings
//
// For information see the docs
{
  "theme": "One", // mine
  /* the servers */
  "context_servers": {
    "other": { "command": "x", "args": ["// no comment", ","] }, // keep
  },
  "font": 12
}
"""


def test_comments_and_layout_of_a_json_file_stay(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(ZED)
    put(file, "context_servers", "notewright", ENTRY)
    entry = json.dumps(ENTRY, indent=2).replace("\n", "\n    ")
    assert file.read_text() == ZED.replace("// keep\n", f'// keep\n    "notewright": {entry}\n')
    newer = ENTRY | {"args": []}
    put(file, "context_servers", "notewright", newer)
    entry = json.dumps(newer, indent=2).replace("\n", "\n    ")
    assert file.read_text() == ZED.replace("// keep\n", f'// keep\n    "notewright": {entry}\n')
    put(file, "more", "notewright", ENTRY)
    assert _jsonc.read(file.read_text()) == _jsonc.read(ZED) | {
        "context_servers": {"other": {"command": "x", "args": ["// no comment", ","]}, "notewright": newer},
        "more": {"notewright": ENTRY},
    }


@pytest.mark.parametrize(
    "text", ["", "{}", "{ }\n", '{"mcpServers": {}}', '{"mcpServers":{"a":1,},}', "\ufeff{}", "{//\n}"]
)
def test_any_layout_can_be_added_to(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text, encoding="utf-8")
    put(file, "mcpServers", "notewright", ENTRY)
    written = file.read_text(encoding="utf-8")
    assert _jsonc.read(written.removeprefix("\ufeff"))["mcpServers"]["notewright"] == ENTRY
    assert (written.startswith(text[:1]) and "//" in written) or "//" not in text


def test_a_toml_file_keeps_every_other_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    old = 'model = "x"  # mine\n\n[mcp_servers.other]\ncommand = "y"\n\n# the end\n[tools]\nweb = true\n'
    file.write_text(old)
    assert put(file, "mcp_servers", "notewright", ENTRY) is not None
    assert file.read_text().startswith(old.rstrip())
    newer = ENTRY | {"args": ["serve", "/elsewhere"]}
    put(file, "mcp_servers", "notewright", newer)
    assert file.read_text().startswith(old.rstrip())
    assert tomllib.loads(file.read_text())["mcp_servers"]["notewright"] == newer
    assert file.read_text().count("[mcp_servers.notewright]") == 1


def test_a_table_in_the_middle_of_a_toml_file_is_replaced_there(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[mcp_servers.notewright]\ncommand = "old"\n\n# about tools\n[tools]\nweb = true\n')
    put(file, "mcp_servers", "notewright", ENTRY)
    assert tomllib.loads(file.read_text()) == {"mcp_servers": {"notewright": ENTRY}, "tools": {"web": True}}
    assert "# about tools\n[tools]" in file.read_text()


@pytest.mark.parametrize("text", ['{"a": 1 1}', "[]", '{"mcpServers": 1}', "{", '{"a": "x}', "{/* no end }"])
def test_a_file_that_cannot_be_kept_whole_is_left_alone(
    home: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(text)
    assert main(["client", "cursor", "--write"]) == 1
    assert "by hand" in capsys.readouterr().err
    assert file.read_text() == text and len(list(file.parent.iterdir())) == 1


def test_a_settings_file_that_is_a_symlink_stays_one(home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)
    assert main(["client", "claude-code", "--write"]) == 0
    assert (home / ".claude.json").is_symlink()
    assert "notewright" in json.loads(real.read_text())["mcpServers"]


def test_a_folder_without_notes_is_answered_with_the_vaults_of_obsidian(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "empty").mkdir()
    monkeypatch.chdir(home / "empty")
    assert main(["client", "cursor"]) == 2
    for name in ("One", "Two"):
        (home / name).mkdir()
    vaults = {"1": {"path": str(home / "One"), "ts": 1}, "2": {"path": str(home / "gone")}}
    place = home / ".config" / "obsidian" / "obsidian.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"vaults": vaults}))
    capsys.readouterr()
    assert main(["client", "cursor"]) == 0
    assert json.loads(capsys.readouterr().out)["mcpServers"]["notewright"]["args"] == ["serve", str(home / "One")]
    vaults["3"] = {"path": str(home / "Two"), "ts": 2}
    place.write_text(json.dumps({"vaults": vaults}))
    assert main(["client", "cursor"]) == 2
    assert f"Obsidian knows {home / 'Two'}, {home / 'One'}" in capsys.readouterr().err


def test_workspaces_of_a_configuration_file_are_handed_on_by_the_file(home: Path) -> None:
    (home / "n.toml").write_text('[workspaces.Mine]\nlocation = "notes"\n')
    assert main(["client", "claude-desktop", "--config", "../n.toml", "--write"]) == 0
    assert entry_of("claude-desktop", home)["args"] == ["serve", "--config", str(home / "n.toml")]


def test_a_place_that_is_not_there_is_wrong_usage(home: Path) -> None:
    assert main(["client", "cursor", "nowhere"]) == 2
    with pytest.raises(SystemExit):
        main(["client", "netscape"])
