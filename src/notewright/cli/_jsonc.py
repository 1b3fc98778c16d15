"""Putting one member into a JSON file of somebody else's: comments, trailing commas and layout stay as they are."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BLANK = r"\s+|//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf'(?P<blank>{_BLANK})|"(?:\\.|[^"\\])*"|[{{}}\[\],:]|[^\s{{}}\[\],:"/]+', re.DOTALL)


@dataclass(slots=True)
class _Value:
    """Where a value stands, and where the values of an object's members do."""

    start: int
    end: int
    members: dict[str, "_Value"] | None = None  # None: no object
    last: int = 0  # of an object: the end of its last member or comma, or of its brace
    comma: bool = False  # a comma is wanted there before anything more


def read(text: str) -> Any:
    """What it says; ValueError where it is no JSON, even without its comments and trailing commas."""
    kept = "".join(" " if blank else token for token, blank, _ in _tokens(text))
    plain = re.sub(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', lambda found: found[1] or "", kept)
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
    top = _parsed(text)
    held = (top.members or {}).get(key)
    if held is None:
        return _added(text, top, key, {name: entry}, indent, 0)
    old = (held.members or {}).get(name)
    if old is None:
        return _added(text, held, name, entry, indent, 1)
    return text[: old.start] + _laid_out(entry, indent, 2) + text[old.end :]


def _added(text: str, into: _Value, name: str, value: Any, indent: str, depth: int) -> str:
    member = f"\n{indent * (depth + 1)}{json.dumps(name, ensure_ascii=False)}: {_laid_out(value, indent, depth + 1)}"
    beside = re.compile(r"[ \t]*//[^\n]*").match(text, into.last)  # a comment on the line belongs to the line
    at = beside.end() if beside else into.last
    rest = text[at:]
    if not rest[: into.end - at - 1].strip():  # the brace follows at once
        rest = f"\n{indent * depth}{rest.lstrip()}"
    return text[: into.last] + ("," if into.comma else "") + text[into.last : at] + member + rest


def _laid_out(value: Any, indent: str, depth: int) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", "\n" + indent * depth)


def _tokens(text: str) -> Iterator[tuple[str, bool, int]]:
    """Each piece of the text, whether it means nothing, and where it begins."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"what stands at {at} is no JSON")
        yield found[0], found["blank"] is not None, at
        at = found.end()


def _parsed(text: str) -> _Value:
    """The value of a text that `read` has taken."""
    tokens = ((token, at) for token, blank, at in _tokens(text) if not blank)
    token, at = next(tokens)
    return _value(token, at, tokens)


def _value(token: str, at: int, tokens: Iterator[tuple[str, int]]) -> _Value:
    if token not in "{[":
        return _Value(at, at + len(token))
    made = _Value(at, 0, {} if token == "{" else None, at + 1)
    name: str | None = None
    for token, at in tokens:
        if token in "}]":
            made.end = at + 1
            break
        if token in ",:":
            made.last, made.comma = (at + 1, False) if token == "," else (made.last, made.comma)
            continue
        inner = _value(token, at, tokens)
        made.last, made.comma = inner.end, True
        if made.members is not None and name is not None:
            made.members[name], name = inner, None
        elif made.members is not None:
            name = json.loads(token)
    return made
