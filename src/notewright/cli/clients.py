"""`notewright client`: the configuration with which MCP clients start the server, printed or put into their files.

What is in a client's file already stays as it is; the file as it was is kept beside it.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from notewright.cli import _jsonc, printing
from notewright.cli.arguments import load_config
from notewright.config.clients import CLIENTS, ClientEntry, toml_table
from notewright.config.load import UserFolders, user_folders
from notewright.errors import Invalid, NotFound

# Folders of environments that `uvx` and `pipx run` delete some day: there the client is given the runner instead.
TEMPORARY_ENVIRONMENTS = {"/archive-v0/": ("uvx", "notewright"), "/pipx/.cache/": ("pipx", "run", "notewright")}


def client(args: argparse.Namespace) -> int:
    """Print the configuration of a client, or write it."""
    user = user_folders()
    chosen = CLIENTS[args.client]
    file, entry = chosen.file(user), chosen.started(_build_command(args, _locations(args, user)))
    record = {"client": args.client, "file": str(file)}
    if not args.write:
        text = chosen.text(args.name, entry)
        belongs = f"This belongs into {file}; --write puts it there"
        printing.print_answer(args, record | {"text": text, "written": False}, [text], belongs)
        return 0
    backup = put(file, chosen.key, args.name, entry)
    kept = str(backup) if backup else None
    line = f"{args.name} is in {file}" + (f"; as it was before: {kept}" if kept else "")
    printing.print_answer(args, record | {"written": True, "backup": kept}, [line], "Start the client again to have it")
    return 0


# ---- what the client is to start ----------------------------------------------------------------------


def _build_command(args: argparse.Namespace, locations: Sequence[str]) -> list[str]:
    """With absolute paths: a client starts it in a folder of its own choice."""
    command = [*_find_program(), "serve", *locations]
    command += ["--surface", args.surface] if args.surface else []
    command += ["--config", os.path.abspath(args.config)] if args.config else []
    command += ["--state", os.path.abspath(args.state)] if args.state else []
    return command + (["--read-only"] if args.read_only else [])


def _find_program() -> list[str]:
    beside = Path(sys.executable).parent / "notewright"
    for folder, runner in TEMPORARY_ENVIRONMENTS.items():
        if folder in beside.as_posix() and (found := shutil.which(runner[0])):
            return [found, *runner[1:]]
    found = str(beside) if beside.is_file() else shutil.which("notewright")
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "notewright.cli"]


def _locations(args: argparse.Namespace, user: UserFolders) -> list[str]:
    """The notes that were named, else those of the configuration, else this folder if it holds notes, else the vault
    that Obsidian knows."""
    raw = tuple(args.locations) or ((args.workspace,) if args.workspace else ())
    flags = {"surface": args.surface, "read_only": args.read_only}
    config = load_config(args, raw, flags)
    if not config.workspaces:
        raw = (_find_notes(args, user),)
        config = load_config(args, raw, flags)
    elif not raw:
        return []  # the file that is handed on names them
    named = [one.partition("=")[0] if "=" in one and not os.path.isdir(one) else "" for one in raw]
    pairs = zip(named, config.workspaces, strict=True)
    return [f"{name}={workspace.location}" if name else workspace.location for name, workspace in pairs]


def _find_notes(args: argparse.Namespace, user: UserFolders) -> str:
    here = Path.cwd()
    if (here / ".obsidian").is_dir() or any(here.glob("*.md")) or any(here.glob("*/*.md")):
        return str(here)
    vaults = obsidian_vaults(user)
    if len(vaults) == 1:
        print(f"Using the vault that Obsidian knows: {vaults[0]}", file=sys.stderr)
        return vaults[0]
    args.usage = True
    known = "; Obsidian knows " + ", ".join(vaults) if vaults else ""
    hint = f"name the folder: notewright client {args.client} FOLDER{known}"
    raise NotFound("there are no notes in this folder", hint=hint, what="folder")


def obsidian_vaults(user: UserFolders) -> list[str]:
    """The vaults in the Obsidian app's own list that are there, the one used last first."""
    found: dict[str, int] = {}
    for place in user.obsidian_lists:
        try:
            vaults = json.loads(place.read_bytes())["vaults"].values()
            found |= {vault["path"]: int(vault.get("ts", 0)) for vault in vaults if os.path.isdir(vault["path"])}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not installed, or another list than we know
    return sorted(found, key=lambda path: -found[path])


# ---- files --------------------------------------------------------------------------------------------


def put(file: Path, key: str, name: str, entry: ClientEntry) -> Path | None:
    """Put an entry into a client's file and keep everything else in it. The path of the backup, if the file changed."""
    file = Path(os.path.realpath(file))
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    new = _add_to_toml(old, name, entry) if file.suffix == ".toml" else _add_to_json(file, old, key, name, entry)
    if new == old:
        return None
    backup = None
    if old:
        names = (file.with_name(f"{file.name}.backup-{number}") for number in itertools.count(1))
        backup = next(name for name in names if not name.exists())
        shutil.copy2(file, backup)
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.notewright")
    beside.write_text(new, encoding="utf-8")
    if old:
        shutil.copymode(file, beside)
    os.replace(beside, file)
    return backup


def _add_to_json(file: Path, old: str, key: str, name: str, entry: ClientEntry) -> str:
    text = old.removeprefix("\ufeff")
    by_hand = "put the lines in by hand, as printed without --write"
    try:
        document = _jsonc.read(text)
        if not isinstance(document, dict) or not isinstance(document.get(key, {}), dict):
            raise Invalid(f"{file} does not hold an object of servers", hint=by_hand, what="client")
        if document.get(key, {}).get(name) == entry:
            return old
        return old[: len(old) - len(text)] + _jsonc.put(text, key, name, entry)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file} is not JSON that we can add to ({error})", hint=by_hand, what="client") from None


def _add_to_toml(old: str, name: str, entry: ClientEntry) -> str:
    """The text with our table in place of an older one, or after everything else. Other lines stay as they are."""
    before = _parse_toml(old)
    table = toml_table(name, entry)
    head = rf"^\[\s*mcp_servers\s*\.\s*(?:{re.escape(name)}|\"{re.escape(name)}\")\s*\][^\n]*\n?"
    found = re.search(head + r"(?:(?!\s*\[)[^\n]*\n?)*", old, re.MULTILINE)
    if found:
        tail = re.search(r"\n(?:\s*(?:#[^\n]*)?\n?)*\Z", found[0])  # blank lines and comments belong to what follows
        rest = tail[0].lstrip("\n") if tail else ""
        new = old[: found.start()] + table + "\n" + ("\n" + rest if rest else "") + old[found.end() :]
    else:
        new = f"{old.rstrip()}\n\n{table}\n".lstrip()
    after = _parse_toml(new)
    expected = before | {"mcp_servers": before.get("mcp_servers", {}) | {name: entry}}
    if after != expected:
        raise Invalid("the file is laid out in a way we cannot add to", hint="put the printed lines in by hand")
    return old if before == after else new


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise Invalid(f"the client's file is not TOML ({error})", hint="fix it first", what="client") from None
