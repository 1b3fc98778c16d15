"""Tags: which characters they have, where they stand in properties."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from notewright.notes.links.syntax import ValueLocator
from notewright.notes.model import Tag

# Letters, digits, "_", "-", "/" and other Unicode, as Obsidian: what ends a tag is listed, not what it is made of.
_ENDS = "\\s\u2000-\u206f\u2e00-\u2e7f\u3001\u3002\uff0c\uff1b\uff1a\uff01\uff1f'!\"#$%&()*+,.:;<=>?@^`{|}~\\[\\]\\\\"
NAME = re.compile(f"[^{_ENDS}]+")
_KEY = re.compile(r"^[ \t{]*[\"']?tags[\"']?[ \t]*:", re.IGNORECASE | re.MULTILINE)
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
                found += _spelled(member, isinstance(value, list))
    return found


def _spelled(value: Any, listed: bool) -> Iterator[str]:
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return
    text = str(value)
    for piece in [text.strip()] if listed and "," not in text else _SEPARATORS.split(text):
        name = piece.lstrip("#")
        if name:
            yield name


def locate_tags(text: str, start: int, end: int, names: list[str]) -> list[Tag]:
    """The tags of the properties between `start` and `end`, each where it is written."""
    key = _KEY.search(text, start, end)
    finder = ValueLocator(text, key.end() if key else start, end)
    found = []
    for name in names:
        place = finder.find(name)
        if place is None:  # an empty span says that there is nothing to replace
            found.append(Tag(name, finder.line, finder.at, finder.at, False))
        else:
            found.append(Tag(name, finder.line, place, place + len(name), False))
    return found
