"""Tags: which characters they have, where they stand in properties."""

import re
from collections.abc import Mapping
from typing import Any

from notewright.notes.links.syntax import ValueLocator
from notewright.notes.model import Tag

# Letters, digits, "_", "-", "/" and other Unicode, as Obsidian: what ends a tag is listed, not what it is made of.
_ENDS = "\\s\u2000-\u206f\u2e00-\u2e7f\u3001\u3002\uff0c\uff1b\uff1a\uff01\uff1f'!\"#$%&()*+,.:;<=>?@^`{|}~\\[\\]\\\\"
NAME = re.compile(f"[^{_ENDS}]+")
_KEY = re.compile(r"^(?P<indent>[ \t]*+)(?:\{[ \t]*+)?[\"']?tags[\"']?[ \t]*:", re.IGNORECASE | re.MULTILINE)
_NO_VALUE = re.compile(  # comments, anchors and types, beside what is in quotes
    r"""(?<![^\s\[{,])(?:(?P<quoted>"(?:[^"\\\n]|\\.)*"|'[^'\n]*')|\#[^\n]*|[&*!][^\s,\[\]{}]*)"""
)
_SEPARATORS = re.compile(r"[,\s]+")


def is_tag(name: str) -> bool:
    """Whether `name` (without `#`) can be a tag: at least one character that is no digit."""
    return NAME.fullmatch(name) is not None and name.strip("0123456789/") != ""


def list_property_tags(properties: Mapping[str, Any]) -> list[str]:
    """The tags in a note's properties: a list, or text cut at commas and blanks."""
    found: list[str] = []
    for key, value in properties.items():
        if isinstance(key, str) and key.lower() == "tags":
            for member in value if isinstance(value, list) else [value]:
                if isinstance(member, bool | dict | list) or member is None:
                    continue
                whole = isinstance(value, list) and "," not in str(member)
                pieces = [str(member).strip()] if whole else _SEPARATORS.split(str(member))
                found += [name for piece in pieces if (name := piece.lstrip("#"))]
    return found


def locate_tags(text: str, start: int, end: int, names: list[str]) -> list[Tag]:
    """The tags of the properties between `start` and `end`, each where it is written."""
    keys = _KEY.finditer(text, start, end)
    key = min(keys, key=lambda found: len(found["indent"]), default=None)  # the outermost
    begin = key.end() if key else start
    value = _NO_VALUE.sub(lambda found: found["quoted"] or " " * len(found[0]), text[begin:end])
    finder = ValueLocator(text[:begin] + value, begin, begin + _find_value_end(value, len(key["indent"]) if key else 0))
    found = []
    for name in names:
        place = finder.find(name)
        start, end = (finder.at, finder.at) if place is None else (place, place + len(name))
        found.append(Tag(name, finder.line, start, end, False))  # an empty span: there is nothing to replace
    return found


# The beginning of a member of a list in brackets with all of its quoted text, or the closing bracket.
_FLOW_PART = re.compile(r"""[\[,]\s*(?:"(?:[^"\\]|\\.)*(?:"|\Z)|'(?:[^']|'')*(?:'|\Z))?|\]""", re.DOTALL)


def _find_value_end(text: str, indent: int) -> int:
    """Where the value that `text` begins with ends: behind its bracket, or before the next key."""
    if text.lstrip()[:1] == "[":
        return next((found.end() for found in _FLOW_PART.finditer(text) if found[0] == "]"), len(text))
    next_key = re.compile(rf"^[ \t]{{0,{indent}}}(?![\s#-])[^\n]*:(?:\s|\Z)", re.MULTILINE).search(text, 1)
    return next_key.start() if next_key else len(text)
