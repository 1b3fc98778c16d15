"""Putting one member into a JSON file of somebody else's: comments, trailing commas and layout stay as they are."""

import json
import re
from typing import Any, NamedTuple

_STRING = r'("(?:\\.|[^"\\])*")'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_BETWEEN = re.compile(r"[\s,:]*")


class _Object(NamedTuple):
    """Where the values of an object's members stand, and where another member can be put."""

    members: dict[str, tuple[int, int]]
    last: int  # the end of its last member or comma, or of its brace
    end: int  # of its closing brace
    comma: bool  # one is wanted before anything more


def read(text: str) -> Any:
    """What it says; ValueError where it is no JSON, even without its comments and trailing commas."""
    plain = _blank(_TRAILING_COMMA, _blank(_COMMENT, text))
    return json.loads(plain if plain.strip() else "{}")


def put(text: str, key: str, name: str, entry: Any) -> str:
    """The text with `{key: {name: entry}}` in it; ValueError where that cannot be done without touching the rest."""
    expected = read(text)
    expected.setdefault(key, {})[name] = entry
    indent = re.search(r"^([ \t]+)\"", text, re.MULTILINE)
    new = _put(text if text.strip() else "{}\n", key, name, entry, indent[1] if indent else "  ")
    if read(new) != expected:
        raise ValueError("it is laid out in a way we cannot add to")
    return new


def _put(text: str, key: str, name: str, entry: Any, indent: str) -> str:
    top = _find_members(text, 0)
    if key not in top.members:
        return _add(text, top, key, {name: entry}, indent, 0)
    held = _find_members(text, top.members[key][0])
    if name not in held.members:
        return _add(text, held, name, entry, indent, 1)
    start, end = held.members[name]
    return text[:start] + _lay_out(entry, indent, 2) + text[end:]


def _add(text: str, into: _Object, name: str, value: Any, indent: str, depth: int) -> str:
    member = f"\n{indent * (depth + 1)}{json.dumps(name, ensure_ascii=False)}: {_lay_out(value, indent, depth + 1)}"
    beside = re.compile(r"[ \t]*//[^\n]*").match(text, into.last)  # a comment on the line belongs to the line
    at = beside.end() if beside else into.last
    rest = text[at:]
    if not rest[: into.end - at - 1].strip():  # the brace follows at once
        rest = f"\n{indent * depth}{rest.lstrip()}"
    return text[: into.last] + ("," if into.comma else "") + text[into.last : at] + member + rest


def _lay_out(value: Any, indent: str, depth: int) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", "\n" + indent * depth)


def _blank(what: re.Pattern[str], text: str) -> str:
    """Blanks in its place, except in strings: everything else stands where it stood."""
    return what.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)


def _find_members(text: str, at: int) -> _Object:
    """The object that begins there, in a text that `read` has taken."""
    bare = _blank(_COMMENT, text)
    plain, decode = _blank(_TRAILING_COMMA, bare), json.JSONDecoder().raw_decode
    members: dict[str, tuple[int, int]] = {}
    last = at = plain.index("{", at) + 1
    while plain[at := _BETWEEN.match(plain, at).end()] != "}":  # type: ignore[union-attr]
        name, at = decode(plain, at)
        start = _BETWEEN.match(plain, at).end()  # type: ignore[union-attr]
        last = at = decode(plain, start)[1]
        members[name] = start, at
    comma = bare.find(",", last, at)
    return _Object(members, last if comma < 0 else comma + 1, at + 1, bool(members) and comma < 0)
