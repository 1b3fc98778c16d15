"""What a client's model must read before it can do anything: the list of tools, as small as it can be."""

import json

import pytest

from notewright.app import compose
from notewright.config.load import Config
from notewright.config.settings import SURFACES
from notewright.mcp import wire_format

MOST = {"notes": 12_000, "cairn": 6_000, "lens": 2_000, "obsidian": 9_000, "second_brain": 4_000, "octarine": 5_000}


@pytest.mark.parametrize("name", SURFACES)
def test_the_list_of_tools_is_within_its_bound(name: str) -> None:
    surface = compose.load_surface(name, Config((), "", ""))
    listed = json.dumps(wire_format.tools(surface.tools), separators=(",", ":"), ensure_ascii=False).encode()
    print(f"{name}: {len(surface.tools)} tools in {len(listed):,} bytes of {MOST[name]:,}")
    assert len(listed) <= MOST[name]


def test_every_surface_has_a_bound() -> None:
    assert set(MOST) == set(SURFACES)


@pytest.mark.parametrize("name", SURFACES)
def test_every_tool_and_parameter_says_what_it_is_for(name: str) -> None:
    for tool in compose.load_surface(name, Config((), "", "")).tools:
        assert 10 <= len(tool.description) <= 400, tool.name
        assert tool.schema["type"] == "object"
        assert set(tool.schema.get("required", ())) <= set(tool.schema["properties"])
