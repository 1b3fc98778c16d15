"""Write docs/reference/ from the tools, settings and commands themselves, so that it cannot lie."""

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewright.cli import parser as commands
from notewright.config.octarine import Octarine
from notewright.config.settings import SETTINGS, SURFACES, WORKSPACE_SETTINGS, Setting
from notewright.surfaces.base import Surface

PLACE = Path(__file__).resolve().parent.parent / "docs" / "reference"


def surface(name: str) -> Surface:
    module = importlib.import_module(f"notewright.surfaces.{name}.tools")
    if name == "second_brain":
        made: Surface = module.surface(None)
    elif name == "octarine":
        made = module.surface(None, Octarine())
    else:
        made = module.SURFACE
    return made


def tools(name: str) -> Iterator[str]:
    one = surface(name)
    yield f"# Tools of {name}\n"
    yield f"{one.instructions}\n"
    for tool in one.tools:
        yield f"## {tool.name}\n"
        yield f"{tool.description}\n"
        required = set(tool.schema.get("required", ()))
        for key, shape in tool.schema.get("properties", {}).items():
            yield f"- `{key}` {_kind(shape)}{', required' if key in required else ''}{_about(shape)}"
        yield ""


def _kind(shape: dict[str, Any]) -> str:
    if "enum" in shape:
        return "one of " + ", ".join(f"`{value}`" for value in shape["enum"])
    kind = shape.get("type", "any")
    said = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{said}, default `{json.dumps(shape['default'], ensure_ascii=False)}`" if "default" in shape else said


def _about(shape: dict[str, Any]) -> str:
    return f": {shape['description']}" if shape.get("description") else ""


def settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "In the configuration file (`--config FILE`, TOML), as a variable, or as a flag of `serve`; flags win over\n"
    yield "variables, and these over the file.\n"
    yield from _table("For the server", SETTINGS)
    yield from _table("For a workspace, under `[workspaces.NAME]`", WORKSPACE_SETTINGS)


def _table(title: str, table: tuple[Setting, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    for setting in table:
        default = "none" if setting.default in (None, ()) else f"`{json.dumps(setting.default, ensure_ascii=False)}`"
        yield f"- `{setting.name}` (`{setting.variable}`), default {default}: {setting.help}"
    yield ""


def command_pages() -> Iterator[str]:
    yield "# Commands\n"
    for name, one in commands.all_parsers().items():
        yield f"## {name}\n"
        yield "\n".join(f"    {line}".rstrip() for line in one.format_help().splitlines())
        yield ""


def pages() -> dict[str, str]:
    made = {f"tools-{name}.md": "\n".join(tools(name)) for name in SURFACES}
    made["settings.md"] = "\n".join(settings())
    made["commands.md"] = "\n".join(command_pages())
    return {name: _no_links(text).rstrip() + "\n" for name, text in made.items()}


def _no_links(text: str) -> str:
    """What shows how a link is written is no link of the page."""
    return re.sub(r"(?<!`)\[\[[^\]\n]*\]\](?!`)", lambda shown: f"`{shown[0]}`", text)


def main() -> int:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--check", action="store_true", help="say which pages are old instead of writing them")
    check = args.parse_args().check
    PLACE.mkdir(parents=True, exist_ok=True)
    old = []
    for name, text in pages().items():
        page = PLACE / name
        if not page.exists() or page.read_text() != text:
            old.append(name)
            if not check:
                page.write_text(text)
    print("\n".join(old) if old else "the reference is as it should be")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
