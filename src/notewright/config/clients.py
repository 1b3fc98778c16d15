"""The MCP clients we know: the file each keeps its servers in, and what an entry there looks like."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewright.config.load import UserFolders

SECRET = "YOUR_TOKEN"  # where the token goes
TOKEN_VARIABLE = "NOTEWRIGHT_TOKEN"  # of the environment, for clients that read it there
ClientEntry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Client:
    """Where a client keeps its servers, under which key, and what an entry looks like there."""

    label: str
    path: str  # of its file: in the home folder with `~/`, else in the folder of settings
    key: str
    started: Callable[[Sequence[str]], ClientEntry]  # for a server that it starts with this command
    reached: Callable[[str, bool], ClientEntry]  # for one at this address, with or without a token
    where: str = ""  # how people find the file, if not by its path

    def file(self, user: UserFolders) -> Path:
        return user.home / self.path[2:] if self.path.startswith("~/") else user.settings / self.path

    def text(self, name: str, entry: ClientEntry) -> str:
        """The lines of its file with an entry of this name."""
        if self.key == "mcp_servers":
            return toml_table(name, entry)
        return json.dumps({self.key: {name: entry}}, ensure_ascii=False, indent=2)


def toml_table(name: str, entry: ClientEntry) -> str:
    """One table; JSON's texts and lists of texts are TOML's too."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
    lines = [f"{word} = {json.dumps(value, ensure_ascii=False)}" for word, value in entry.items()]
    return "\n".join([f"[mcp_servers.{key}]", *lines])


def _stdio(env: dict[str, str] | None = None, **more: Any) -> Callable[[Sequence[str]], ClientEntry]:
    """An entry with a command to start, and what else that client wants in it."""
    last = {} if env is None else {"env": env}
    return lambda command: {**more, "command": command[0], "args": list(command[1:]), **last}


def _http(word: str = "url", **more: str) -> Callable[[str, bool], ClientEntry]:
    """An entry with the address under this word, and the token in a header."""

    def entry(address: str, token: bool) -> ClientEntry:
        headers = {"headers": {"Authorization": f"Bearer {SECRET}"}} if token else {}
        return {**more, word: address, **headers}

    return entry


def _mcp_remote(address: str, token: bool) -> ClientEntry:
    """Claude Desktop's file knows servers that are started, not addresses."""
    arguments = ["-y", "mcp-remote", address]
    arguments += ["--allow-http"] if address.startswith("http://") else []
    if not token:
        return {"command": "npx", "args": arguments}
    arguments += ["--header", "Authorization:${AUTH}"]  # no blank in an argument: some systems break it there
    return {"command": "npx", "args": arguments, "env": {"AUTH": f"Bearer {SECRET}"}}


def _codex(address: str, token: bool) -> ClientEntry:
    return {"url": address} | ({"bearer_token_env_var": TOKEN_VARIABLE} if token else {})


_DESKTOP = "claude_desktop_config.json (Settings, Developer, Edit Config); it needs Node.js"
_VSCODE = "mcp.json (command “MCP: Open User Configuration”)"
CLIENTS = {
    "claude-desktop": Client(
        "Claude Desktop", "Claude/claude_desktop_config.json", "mcpServers", _stdio(), _mcp_remote, _DESKTOP
    ),
    "claude-code": Client("Claude Code", "~/.claude.json", "mcpServers", _stdio(type="stdio"), _http(type="http")),
    "cursor": Client("Cursor", "~/.cursor/mcp.json", "mcpServers", _stdio(), _http()),
    "vscode": Client("VS Code", "Code/User/mcp.json", "servers", _stdio(type="stdio"), _http(type="http"), _VSCODE),
    "zed": Client(
        "Zed",
        "~/.config/zed/settings.json",
        "context_servers",
        _stdio(source="custom", env={}),
        _http(),
        "settings.json",
    ),
    "windsurf": Client("Windsurf", "~/.codeium/windsurf/mcp_config.json", "mcpServers", _stdio(), _http("serverUrl")),
    "gemini-cli": Client("Gemini CLI", "~/.gemini/settings.json", "mcpServers", _stdio(), _http("httpUrl")),
    "codex-cli": Client("Codex CLI", "~/.codex/config.toml", "mcp_servers", _stdio(), _codex),
}
