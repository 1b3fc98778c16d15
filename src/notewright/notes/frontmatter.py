"""The properties at a note's beginning: where they stand and what they say. Bad YAML is reported, never fatal."""

import json
import re
from typing import Any

from notewright.notes.model import Frontmatter

_FENCES = re.compile(r"---[ \t]*\n(?:(?P<inner>.*?\n)??)(?P<close>---[ \t]*(?:\n|\Z))", re.DOTALL)


def frontmatter(text: str, start: int) -> Frontmatter:
    """The block at `start`, if one begins there. Line endings must be `\\n`."""
    if not text.startswith("---", start):
        return Frontmatter(False, start, start, start, start, {})
    found = _FENCES.match(text, start)
    if found is None:
        return Frontmatter(False, start, start, start, start, {})
    inner = text.index("\n", start) + 1
    properties, problem = read_properties(text[inner : found.start("close")])
    return Frontmatter(True, start, found.end(), inner, found.start("close"), properties, problem)


def read_properties(inner: str) -> tuple[dict[str, Any], str | None]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if inner.lstrip().startswith("{"):
        try:
            return json.loads(inner), None
        except ValueError:
            pass
    try:
        value = YAML(typ="safe", pure=True).load(inner)
    except (YAMLError, ValueError) as error:
        return {}, str(error)
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "it is no mapping"
    return value, None
