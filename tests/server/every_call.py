"""Every tool, prompt and resource of every surface, called with arguments made from its own schema."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from notewright.app import compose
from notewright.config.load import Config
from notewright.config.settings import SURFACES
from notewright.surfaces.base import Surface, Tool

Args = dict[str, Any]
FIXED = {"workspace": "Garden", "since": "2000-01-01", "modified_since": "2000-01-01", "date": "2026-01-01"}
NUMBERS = {"limit": 50, "max_results": 50, "max_matches": 50, "budget": 2000, "max_chars": 4000, "max_bytes": 4000}


def surfaces() -> list[Surface]:
    return [compose.load_surface(name, Config((), "", "")) for name in SURFACES]


def calls(tool: Tool, *words: str, dull: str = "Tea") -> Iterator[Args]:
    """Calls with each word in every place where one may stand: in all at once, and in each beside dull ones. No call
    comes twice: half of them are the same for every word, or for every way to place it."""
    made = set[str]()
    for args in itertools.chain.from_iterable(_calls(tool, word, dull) for word in words):
        if (written := json.dumps(args, sort_keys=True)) not in made:
            made.add(written)
            yield args


def _calls(tool: Tool, word: str, dull: str) -> Iterator[Args]:
    shapes: Mapping[str, Any] = tool.schema.get("properties", {})
    needed = tool.schema.get("required", [])
    yield {name: _value(name, shapes[name], word) for name in needed}
    yield {name: _value(name, shape, word) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        around = {other: _value(other, shapes[other], dull) for other in needed if other != name}
        for choice in _choices(shape):
            yield around | {name: choice}
        yield around | {name: _value(name, shape, word)}


def _choices(shape: Mapping[str, Any]) -> list[Any]:
    if shape.get("type") == "boolean":
        return [True, False]
    return list(shape.get("enum", ()))


def _value(name: str, shape: Mapping[str, Any], word: str) -> Any:
    kind = shape.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if "enum" in shape:
        return shape["enum"][0]
    if kind in ("integer", "number"):
        return NUMBERS.get(name, max(1, shape.get("minimum", 1)))
    if kind == "array":
        return [_value("", shape.get("items", {}), word)]
    if kind == "object":
        inside = shape.get("properties", {})
        return {key: _value(key, each, word) for key, each in inside.items()} or {word: word}
    return False if kind == "boolean" else FIXED.get(name, word)
