"""Front doors that load their parts late say the same to the type checker as to Python."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src" / "notewright"
ROOMS = ["notes", "engine"]


def told_to_the_checker(room: str) -> dict[str, str]:
    """Names and the modules they come from, as the TYPE_CHECKING block says."""
    tree = ast.parse((SRC / room / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_comes_from_where_the_checker_thinks(room: str) -> None:
    door = importlib.import_module(f"notewright.{room}")
    told = told_to_the_checker(room)
    assert sorted(told) == sorted(door.__all__)
    for name, module in told.items():
        assert getattr(door, name) is getattr(importlib.import_module(module), name), name


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_that_is_not_there_is_an_attribute_error(room: str) -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        importlib.import_module(f"notewright.{room}").nothing_like_this  # noqa: B018


@pytest.mark.parametrize(
    "heavy", ["mcp", "starlette", "asyncio", "re2", "rich", "watchfiles", "notewright.engine.grep"]
)
def test_a_search_on_the_command_line_loads_nothing_heavy(heavy: str) -> None:
    code = f"import sys, notewright.cli.commands; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
