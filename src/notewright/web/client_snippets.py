"""What each client must be told to come to this server over HTTP: a command, or lines for one of its files."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NAME = "notewright"
SECRET = "YOUR_TOKEN"  # where the token goes
VARIABLE = "NOTEWRIGHT_TOKEN"


@dataclass(frozen=True, slots=True)
class Snippet:
    """For one client: what to do with the text, and the text."""

    client: str
    what: str
    text: str


def snippets(address: str, *, token: bool) -> list[Snippet]:
    """For every client we know. With `token` each brings one along, in the place of `YOUR_TOKEN`."""
    return [
        Snippet("Claude Code", "Run this:", _command("claude mcp add --transport http", address, token)),
        Snippet(
            "Claude Desktop",
            "Into claude_desktop_config.json (Settings, Developer, Edit Config); it needs Node.js:",
            _desktop(address, token),
        ),
        Snippet("Cursor", "Into ~/.cursor/mcp.json:", _entry("mcpServers", address, token, _plain)),
        Snippet(
            "VS Code",
            "Into mcp.json (command “MCP: Open User Configuration”):",
            _entry("servers", address, token, _typed),
        ),
        Snippet("Zed", "Into settings.json:", _entry("context_servers", address, token, _plain)),
        Snippet(
            "Windsurf", "Into ~/.codeium/windsurf/mcp_config.json:", _entry("mcpServers", address, token, _windsurf)
        ),
        Snippet("Gemini CLI", "Into ~/.gemini/settings.json:", _entry("mcpServers", address, token, _gemini)),
        Snippet("Codex CLI", _codex_words(token), _codex(address, token)),
        Snippet("Any other MCP client", "Add a server of the kind “streamable HTTP”:", _any(address, token)),
    ]


def _plain(address: str) -> dict[str, Any]:
    return {"url": address}


def _typed(address: str) -> dict[str, Any]:
    return {"type": "http", "url": address}


def _windsurf(address: str) -> dict[str, Any]:
    return {"serverUrl": address}


def _gemini(address: str) -> dict[str, Any]:
    return {"httpUrl": address}


def _entry(key: str, address: str, token: bool, shape: Callable[[str], dict[str, Any]]) -> str:
    headers = {"headers": {"Authorization": f"Bearer {SECRET}"}} if token else {}
    return json.dumps({key: {NAME: shape(address) | headers}}, indent=2)


def _command(begin: str, address: str, token: bool) -> str:
    header = f' \\\n  --header "Authorization: Bearer {SECRET}"' if token else ""
    return f"{begin} {NAME} {address}{header}"


def _desktop(address: str, token: bool) -> str:
    """Through mcp-remote: the file knows servers that are started, not addresses."""
    arguments = ["-y", "mcp-remote", address]
    arguments += ["--allow-http"] if address.startswith("http://") else []
    entry: dict[str, Any] = {"command": "npx", "args": arguments}
    if token:  # no blank in an argument: some systems break it there
        entry = {"command": "npx", "args": [*arguments, "--header", "Authorization:${AUTH}"]}
        entry["env"] = {"AUTH": f"Bearer {SECRET}"}
    return json.dumps({"mcpServers": {NAME: entry}}, indent=2)


def _codex_words(token: bool) -> str:
    where = "Into ~/.codex/config.toml"
    return f"{where}, with the token in the environment variable {VARIABLE}:" if token else f"{where}:"


def _codex(address: str, token: bool) -> str:
    secret = f'\nbearer_token_env_var = "{VARIABLE}"' if token else ""
    return f"[mcp_servers.{NAME}]\nurl = {json.dumps(address)}{secret}"


def _any(address: str, token: bool) -> str:
    return f"{address}\nAuthorization: Bearer {SECRET}" if token else address
