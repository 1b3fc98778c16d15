"""Text that is none, or too much: in every argument of every tool of every surface."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.server.every_call import calls, surfaces
from tests.surfaces.conftest import OpenVault

from notewright.engine.library import Library
from notewright.errors import Problem
from notewright.surfaces.base import Call, RpcError, Surface
from notewright.surfaces.perform import perform

ODD = {
    "half a letter": "\ud800",
    "half a letter among others": "Te\udfffa.md",
    "NUL": "\x00",
    "NUL among others": "Te\x00a.md",
    "long": "x" * 70_000,
    "long and deep": "x/" * 5_000 + "x",
    "letters of four bytes": "\U0001f375" * 300,
    "noncharacter": "\uffff",
}
DEEP = json.loads("[" * 600 + "]" * 600)
EVERY = [replace(surface, guard=None) for surface in surfaces()]  # no limit to the calls


@pytest.mark.slow
@pytest.mark.parametrize("word", ODD.values(), ids=ODD)
@pytest.mark.parametrize("surface", EVERY, ids=lambda surface: surface.name)
def test_no_text_in_any_argument_is_our_fault(vault: OpenVault, surface: Surface, word: str) -> None:
    library = Library.of([vault({"Tea": "# Tea\n\nHot. [[Milk]]\n", "Milk": "White.\n"}).ws])
    for tool in surface.tools:
        for args in calls(tool, word):
            assert _code(surface, library, tool.name, args) != "internal", (tool.name, _short(args))


@pytest.mark.parametrize("surface", EVERY, ids=lambda surface: surface.name)
def test_no_depth_of_any_argument_is_our_fault(vault: OpenVault, surface: Surface) -> None:
    library = Library.of([vault({"Tea": "Hot.\n"}).ws])
    for tool in surface.tools:
        for name in (*tool.schema.get("properties", {}), "unknown"):
            needed = next(calls(tool, "Tea"))
            for deep in (DEEP, {"a": DEEP}, json.loads('{"a":' * 600 + "1" + "}" * 600)):
                assert _code(surface, library, tool.name, needed | {name: deep}) == "invalid", (tool.name, name)


@pytest.mark.parametrize("surface", EVERY, ids=lambda surface: surface.name)
def test_a_name_that_is_no_text_is_no_tool(vault: OpenVault, surface: Surface) -> None:
    with pytest.raises(RpcError) as refused:
        perform(surface, Call(Library.of([vault().ws])), "\ud800", {})
    assert (refused.value.code, refused.value.message) == (-32602, "Unknown tool: \ufffd")


def _code(surface: Surface, library: Library, tool: str, args: dict[str, Any]) -> str:
    """What stood in the way of a call, if anything did."""
    told: list[Problem] = []
    try:
        answer = perform(surface, Call(library, record_refusal=told.append), tool, args)
    except RpcError as error:
        assert error.code == -32602
        return told[0].code if told else "invalid"
    "".join(block for block in answer.blocks if isinstance(block, str)).encode()
    return told[0].code if told else "ok"


def _short(args: dict[str, Any]) -> str:
    return ascii(args)[:300]
