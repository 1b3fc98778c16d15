"""The servers that are compared: where they come from, how they are started, which tool answers what.

A server is one entry of SERVERS. It is started as its own documentation says, with one folder of notes and a place for
what it keeps. `tools` says which tool answers a kind of question and how its answer is read; where it has none, `lacks`
says so. Nothing here knows what is right: that is compare_truth.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_client import NOTEWRIGHT, Client, Refused
from bench_found import HIT

INSTALL_SECONDS = 400


@dataclass(frozen=True)
class Place:
    """Where a server works: what it serves, what it may keep, and where its programs are."""

    vault: Path
    state: Path
    programs: Path = Path()


@dataclass(frozen=True)
class Tool:
    """A tool that answers one kind of question."""

    name: str
    arguments: Callable[..., dict[str, Any]]  # of the place and what was given
    read: Callable[[Place, str], Any] = lambda place, text: text


@dataclass(frozen=True, eq=False)
class Server:
    """How one server is had, started and asked."""

    name: str
    source: str  # npm, PyPI or here
    packages: tuple[str, ...]  # what is installed; the first is the server
    command: Callable[[Place], tuple[str, ...]]
    tools: dict[str, Tool]
    settings: Callable[[Place], dict[str, str]] = lambda place: {}
    lacks: dict[str, str] = field(default_factory=dict)  # kind -> what it has instead
    about: str = ""  # how it is started, for the page
    python: tuple[int, int] = (3, 11)
    ranks: bool = True  # its search is more than a text to be found as it stands
    any_word: Callable[[str], str] | None = None  # how it is asked for any of the words, where it wants all by itself

    @property
    def version(self) -> str:
        return re.split(r"==|(?<=.)@", self.packages[0])[-1] if self.packages else ""

    @property
    def slug(self) -> str:
        return re.sub(r"\W+", "-", self.name).strip("-")


class Running:
    """A server that runs in its place. One that was ended is started anew for the next question."""

    def __init__(self, server: Server, place: Place) -> None:
        self.server, self.place = server, place
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        return self._client or self.start()

    def start(self, *before: str) -> Client:
        """Start it; `before` is a command to start it under."""
        self._client = start(self.server, self.place, *before)
        return self._client

    def ask(self, kind: str, *given: str) -> Any:
        tool = self.server.tools[kind]
        return tool.read(self.place, call(self.client, tool.name, tool.arguments(self.place, *given)))

    def kill(self) -> None:
        if self._client:
            self._client.process.kill()

    def close(self) -> None:
        if self._client:
            self._client.__exit__()
            self._client = None


def start(server: Server, place: Place, *before: str) -> Client:
    """Start it and greet it."""
    place.state.mkdir(parents=True, exist_ok=True)
    path = f"{place.programs}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(place.state), "PATH": path, **server.settings(place)}
    client = Client(*before, *server.command(place), env=env)
    try:
        return client.handshake()
    except (Refused, OSError):
        client.process.kill()
        client.__exit__()
        raise


def call(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """All text of an answer; Refused where it is an error."""
    result = client.request("tools/call", {"name": tool, "arguments": arguments})
    text = "\n".join(part.get("text", "") for part in result["content"])
    if result.get("isError"):
        raise Refused(text)
    return text


# ---- installing ---------------------------------------------------------------------------------------


def install(server: Server, folder: Path) -> Path:
    """The folder of its programs; Refused, in words for the page, where it cannot be had. Kept for the next time."""
    if not server.packages:
        return Path(NOTEWRIGHT).parent
    home, wanted = folder / server.slug, "\n".join(server.packages)
    programs = home / ("node_modules/.bin" if server.source == "npm" else "bin")
    mark = home / "installed.txt"
    if mark.exists() and mark.read_text() == wanted:
        return programs
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    if server.source == "npm":
        quiet = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel", "error")
        _run("npm", "install", "--prefix", str(home), *quiet, *server.packages)
    else:
        _run(_python(server.python), "-m", "venv", str(home))
        _run(str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", *server.packages)
    mark.write_text(wanted)
    return programs


def _run(*command: str) -> None:
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except FileNotFoundError:
        raise Refused(f"{name} is not installed here") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{name} did not finish within {INSTALL_SECONDS} s") from None
    if done.returncode:
        print(done.stderr[-1500:], file=sys.stderr)
        raise Refused(f"{name} could not install it here: no network, or not in the package index that was asked")


def _python(least: tuple[int, int]) -> str:
    """Our own Python, or another of this machine where a newer one is needed."""
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], least[1] + 4):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run((found, "--version"), capture_output=True).returncode == 0:
            return found
    raise Refused(f"needs Python {least[0]}.{least[1]} or newer, which is not here")


# ---- reading answers ----------------------------------------------------------------------------------


def found(pattern: str) -> Callable[[Place, str], list[str]]:
    """What the pattern's group matches, line by line, below the vault, each once."""
    asked = re.compile(pattern, re.MULTILINE)
    return lambda place, text: [_below(place, path) for path in dict.fromkeys(asked.findall(text))]


def held(*keys: str) -> Callable[[Place, str], list[str]]:
    """The paths of notes that stand under these keys of a JSON answer, in its order, each once."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (text for key in keys for text in _texts(value.get(key)))
            for inner in value.values():
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    return lambda place, text: list(
        dict.fromkeys(_below(place, path) for path in walk(_json(text)) if path.endswith(".md"))
    )


def content(*keys: str) -> Callable[[Place, str], str]:
    """One text of a JSON answer."""

    def read(place: Place, text: str) -> str:
        value = _json(text)
        for key in keys:
            value = value[key]
        return str(value)

    return read


def names(read: Callable[[Place, str], list[str]]) -> Callable[[Place, str], list[str]]:
    return lambda place, text: [path.rpartition("/")[2] for path in read(place, text)]


def _json(text: str) -> Any:
    """The JSON of an answer; some put a line of words before it."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    return json.loads(text[min(starts) :]) if starts else {}


def _texts(value: Any) -> list[str]:
    return (
        [value]
        if isinstance(value, str)
        else [v for v in value if isinstance(v, str)]
        if isinstance(value, list)
        else []
    )


def _below(place: Place, path: str) -> str:
    return path.removeprefix(f"{place.vault}/")


# ---- the servers --------------------------------------------------------------------------------------

NOTEWRIGHT_SERVER = Server(
    name="Notewright",
    source="here",
    packages=(),
    command=lambda at: (NOTEWRIGHT, "serve", f"Notes={at.vault}", "--state", str(at.state)),
    about="`notewright serve FOLDER`",
    tools={
        "read": Tool("read", lambda at, path: {"path": path}),
        "search": Tool("search", lambda at, words: {"query": words}, lambda at, text: HIT.findall(text)),
        "grep": Tool("grep", lambda at, pattern: {"pattern": pattern, "limit": 500}, found(r"^(.+?\.md):\d+: ")),
        "backlinks": Tool("links", lambda at, path: {"path": path, "direction": "in"}, found(r"^← (.+?\.md) \(")),
        "list": Tool("list", lambda at, folder: {"folder": folder}, names(found(r"^(.+?\.md)  "))),
        "glob": Tool("list", lambda at, glob: {"glob": glob, "limit": 1000}, found(r"^(.+?\.md)  ")),
        "move": Tool("move", lambda at, old, new: {"from": old, "to": new}),
        "create": Tool("write", lambda at, path, text: {"path": path, "content": text}),
        "append": Tool("edit", lambda at, path, text: {"path": path, "edits": [{"append": text}]}),
        "replace": Tool("edit", lambda at, path, old, new: {"path": path, "edits": [{"replace": old, "with": new}]}),
    },
)
MCPVAULT = Server(
    name="mcpvault",
    source="npm",
    packages=("@bitbonsai/mcpvault@0.16.0",),
    command=lambda at: ("mcpvault", str(at.vault)),
    about="`mcpvault FOLDER`",
    tools={
        "read": Tool("read_note", lambda at, path: {"path": path}, content("content")),
        "search": Tool("search_notes", lambda at, words: {"query": words, "limit": 20}, held("p")),
        "list": Tool("list_directory", lambda at, folder: {"path": folder}, held("files")),
        "move": Tool("move_note", lambda at, old, new: {"oldPath": old, "newPath": new}),
        "create": Tool("write_note", lambda at, path, text: {"path": path, "content": text}),
        "append": Tool("write_note", lambda at, path, text: {"path": path, "content": text, "mode": "append"}),
        "replace": Tool(
            "patch_note", lambda at, path, old, new: {"path": path, "oldString": old, "newString": new}
        ),
    },
    lacks={
        "grep": "no regular expressions",
        "backlinks": "no tool for backlinks",
        "glob": "no tool for patterns of names",
    },
)  # fmt: skip
FILESYSTEM = Server(
    name="server-filesystem",
    source="npm",
    packages=("@modelcontextprotocol/server-filesystem@2026.8.31",),
    command=lambda at: ("mcp-server-filesystem", str(at.vault)),
    about="`mcp-server-filesystem FOLDER`",
    tools={
        "read": Tool("read_text_file", lambda at, path: {"path": f"{at.vault}/{path}"}),
        "list": Tool("list_directory", lambda at, folder: {"path": f"{at.vault}/{folder}"}, found(r"^\[FILE\] (.+)$")),
        "glob": Tool("search_files", lambda at, glob: {"path": str(at.vault), "pattern": glob}, found(r"^(/.+\.md)$")),
        "move": Tool(
            "move_file", lambda at, old, new: {"source": f"{at.vault}/{old}", "destination": f"{at.vault}/{new}"}
        ),
        "create": Tool("write_file", lambda at, path, text: {"path": f"{at.vault}/{path}", "content": text}),
        "replace": Tool(
            "edit_file",
            lambda at, path, old, new: {"path": f"{at.vault}/{path}", "edits": [{"oldText": old, "newText": new}]},
        ),
    },
    lacks={
        "search": "finds files by name only",
        "grep": "no search in texts",
        "backlinks": "files, not links",
        "append": "no tool that appends",
    },
)
RIPGREP = Server(
    name="mcp-ripgrep",
    source="npm",
    packages=("mcp-ripgrep@0.4.0",),
    command=lambda at: ("mcp-ripgrep",),
    about="`mcp-ripgrep`, the folder with every call",
    ranks=False,
    tools={
        "search": Tool(
            "advanced-search",
            lambda at, words: {
                "pattern": words, "path": str(at.vault), "fixedStrings": True, "showFilenamesOnly": True,
                "caseSensitive": False,
            },
            found(r"^(/.+\.md)$"),
        ),
        "grep": Tool(
            "search",
            lambda at, pattern: {"pattern": pattern, "path": str(at.vault), "caseSensitive": False},
            found(r"^(/.+?\.md):\d+:"),
        ),
        "list": Tool("list-files", lambda at, folder: {"path": f"{at.vault}/{folder}"}, names(found(r"^(/.+\.md)$"))),
        "glob": Tool(
            "list-files", lambda at, glob: {"path": str(at.vault), "filePattern": glob}, found(r"^(/.+\.md)$")
        ),
    },
    lacks={kind: "searches only" for kind in ("read", "backlinks", "move", "create", "append", "replace")},
)  # fmt: skip
OBSIDIAN_NPM = Server(
    name="obsidian-mcp (npm)",
    source="npm",
    packages=("obsidian-mcp@2.0.1", "node@22.23.3"),  # it wants Node 22, wherever another is installed
    command=lambda at: ("obsidian-mcp", "serve", "--vault", f"notes={at.vault}"),
    about="`obsidian-mcp serve --vault notes=FOLDER`, with Node 22",
    ranks=False,
    tools={
        "read": Tool("obsidian_read_note", lambda at, path: {"vault": "notes", "path": path}, content("content")),
        "search": Tool("obsidian_search_vault", lambda at, words: {"vault": "notes", "query": words}, held("path")),
        "move": Tool(
            "obsidian_move_note", lambda at, old, new: {"vault": "notes", "source": old, "destination": new}
        ),
        "create": Tool(
            "obsidian_create_note", lambda at, path, text: {"vault": "notes", "path": path, "content": text}
        ),
        "append": Tool(
            "obsidian_edit_note",
            lambda at, path, text: {"vault": "notes", "path": path, "operation": "append", "content": text},
        ),
    },
    lacks={
        "grep": "no regular expressions",
        "backlinks": "no tool for backlinks",
        "list": "no tool that lists a folder",
        "glob": "no tool for patterns of names",
        "replace": "replaces a whole note only",
    },
)  # fmt: skip
MARKDOWN_VAULT = Server(
    name="markdown-vault-mcp",
    source="PyPI",
    packages=("markdown-vault-mcp[file-watcher]==5.1.0",),
    command=lambda at: (str(at.programs / "markdown-vault-mcp"), "serve"),
    settings=lambda at: {
        "MARKDOWN_VAULT_MCP_SOURCE_DIR": str(at.vault),
        "MARKDOWN_VAULT_MCP_INDEX_PATH": str(at.state / "index.db"),
    },
    about="`markdown-vault-mcp serve`, with SOURCE_DIR and INDEX_PATH, words only (no embeddings)",
    any_word=lambda words: " OR ".join(f'"{word}"' for word in re.findall(r"\w+", words)),
    tools={
        "read": Tool("read", lambda at, path: {"path": path}, content("content")),
        "search": Tool("search", lambda at, words: {"query": words, "limit": 20}, held("path")),
        "backlinks": Tool("get_backlinks", lambda at, path: {"path": path}, held("source_path")),
        "list": Tool("list_documents", lambda at, folder: {"folder": folder}, names(held("path"))),
        "glob": Tool("list_documents", lambda at, glob: {"pattern": glob}, held("path")),
        "move": Tool("rename", lambda at, old, new: {"old_path": old, "new_path": new, "update_links": True}),
        "create": Tool("write", lambda at, path, text: {"path": path, "content": text}),
        "append": Tool("append", lambda at, path, text: {"path": path, "content": text}),
        "replace": Tool("edit", lambda at, path, old, new: {"path": path, "old_text": old, "new_text": new}),
    },
    lacks={"grep": "no regular expressions"},
)
OBSIDIAN_PYPI = Server(
    name="obsidian-mcp (PyPI)",
    source="PyPI",
    # With the newest of what it builds on it does not start: these are of its own time.
    packages=("obsidian-mcp==2.1.6", "fastmcp==2.8.1", "mcp==1.11.0", "pydantic==2.11.10"),
    command=lambda at: (str(at.programs / "obsidian-mcp"),),
    settings=lambda at: {"OBSIDIAN_VAULT_PATH": str(at.vault)},
    about="`obsidian-mcp`, with OBSIDIAN_VAULT_PATH; fastmcp 2.8.1, because it does not start with the newest",
    ranks=False,
    tools={
        "read": Tool("read_note_tool", lambda at, path: {"path": path}, content("details", "content")),
        "search": Tool("search_notes_tool", lambda at, words: {"query": words, "max_results": 20}, held("path")),
        "grep": Tool(
            "search_by_regex_tool",
            lambda at, pattern: {"pattern": pattern, "flags": ["ignorecase"], "max_results": 200},
            held("path"),
        ),
        "backlinks": Tool("get_backlinks_tool", lambda at, path: {"path": path}, held("source_path")),
        "list": Tool(
            "list_notes_tool", lambda at, folder: {"directory": folder, "recursive": False}, names(held("path"))
        ),
        "move": Tool("rename_note_tool", lambda at, old, new: {"old_path": old, "new_path": new}),
        "create": Tool("create_note_tool", lambda at, path, text: {"path": path, "content": text}),
        "append": Tool(
            "update_note_tool", lambda at, path, text: {"path": path, "content": text, "merge_strategy": "append"}
        ),
    },
    lacks={"glob": "no tool for patterns of names", "replace": "replaces a section or a whole note only"},
)  # fmt: skip
BASIC_MEMORY = Server(
    name="basic-memory",
    source="PyPI",
    packages=("basic-memory==0.22.0",),
    python=(3, 12),
    command=lambda at: (str(at.programs / "basic-memory"), "mcp"),
    settings=lambda at: {
        "BASIC_MEMORY_HOME": str(at.vault),
        "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
        "BASIC_MEMORY_NO_PROMOS": "1",
    },
    about="`basic-memory mcp`, with BASIC_MEMORY_HOME, words only (no embeddings)",
    tools={
        "read": Tool("read_content", lambda at, path: {"path": path}),
        "search": Tool(
            "search_notes",
            lambda at, words: {"query": words, "output_format": "json", "page_size": 20},
            held("file_path"),
        ),
        "create": Tool(
            "write_note",
            lambda at, path, text: {"title": Path(path).stem, "directory": str(Path(path).parent), "content": text},
        ),
        "append": Tool(
            "edit_note", lambda at, path, text: {"identifier": path, "operation": "append", "content": text}
        ),
        "replace": Tool(
            "edit_note",
            lambda at, path, old, new: {
                "identifier": path, "operation": "find_replace", "find_text": old, "content": new,
            },
        ),
        "move": Tool("move_note", lambda at, old, new: {"identifier": old, "destination_path": new}),
        "list": Tool(
            "list_directory", lambda at, folder: {"dir_name": f"/{folder}"}, names(found(r"([^\s/][^\n/]*\.md)\b"))
        ),
    },
    lacks={
        "grep": "no regular expressions",
        "backlinks": "relations of its own kind, no backlinks",
        "glob": "patterns of names in one folder only",
    },
)  # fmt: skip
SERVERS = (
    NOTEWRIGHT_SERVER, MCPVAULT, FILESYSTEM, RIPGREP, OBSIDIAN_NPM, MARKDOWN_VAULT, OBSIDIAN_PYPI, BASIC_MEMORY,
)  # fmt: skip
LEFT_OUT = {
    "mcp-obsidian 1.0.0 (npm)": "reads notes and finds them by name; nothing else to compare",
    "obsidian-mcp-server 3.2.12 (npm), mcp-obsidian 0.2.3 and mcp-obsidian-advanced 0.0.1 (PyPI)": "need a running "
    "Obsidian with its REST plugin and an API key",
    "mcp-server-obsidian 0.1.3, obsidian-mcp-server 0.2.0 and mcp-grep 0.2.1 (PyPI)": "do not start with the `mcp` "
    "package that their own requirements install (2.3.0)",
    "@tobilu/qmd 2.8.3 (npm)": "searches and reads only; installs 850 MB to run language models",
}
