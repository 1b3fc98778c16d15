"""Tools as `tools/list` shows them: what they take, in pieces of JSON schema, and what a docstring says of them."""

from collections.abc import Callable, Mapping
from typing import Any

from notewright.surfaces.base import Answer, Args, Call, Schema, Tool

LOOKS = {"readOnlyHint": True, "openWorldHint": False}
CHANGES = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}


def tool(
    name: str,
    run: Callable[[Call, Args], str | Answer],
    schema: Schema,
    annotations: Mapping[str, Any] | None = None,
    *,
    by_index: bool = True,
) -> Tool:
    """A tool; its description is the docstring of its function."""
    description = getattr(run, "func", run).__doc__ or ""
    return Tool(name, " ".join(description.split()), schema, run, annotations or {}, by_index)


def takes(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object of arguments; each says of itself whether it is `required`."""
    required = [name for name, one in properties.items() if one.get("required")]
    plain = {name: {key: one[key] for key in one if key != "required"} for name, one in properties.items()}
    return {"type": "object", "properties": plain, "required": required}


def takes_only(**properties: dict[str, Any]) -> dict[str, Any]:
    """The same, where unknown arguments are refused."""
    return takes(**properties) | {"additionalProperties": False}


def field(kind: str | list[str], about: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, **more} | ({"description": about} if about else {})


def text(about: str = "", **more: Any) -> dict[str, Any]:
    return field("string", about, **more)


def texts(about: str = "") -> dict[str, Any]:
    return field("array", about, items={"type": "string"})


def flag(about: str = "", **more: Any) -> dict[str, Any]:
    return field("boolean", about, **more)


def whole(about: str = "", **more: Any) -> dict[str, Any]:
    return field("integer", about, **more)
