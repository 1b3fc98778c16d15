"""The properties at a note's beginning: where they stand and what they say. Bad YAML is reported, never fatal."""

import json
import math
import re
from contextlib import suppress
from typing import Any

from yaml12 import Yaml, parse_yaml

from notewright.notes.model import Frontmatter

MAX_CHARS = 1 << 20
MAX_EXPANDED_CHARS = 4_000_000  # aliases written out
_CLOSE = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)
_OPEN = re.compile(r"---[ \t]*\n")
# The YAML library goes down one call for each level of blocks: deep nesting is refused before it gets there.
_DEEP = re.compile(r"^ *(?:[-?:][ \t]+){17}|^ {101,}(?:[-?:] |[^\s#][^\n]*:(?:[ \n]|\Z))", re.MULTILINE)
_KEY = re.compile(
    r"^([^\s#\-\"'\[\]{}?:,&*!|>%@`][^\n:]*+(?::(?![ \t\n]|\Z)[^\n:]*+)*+|(?:\"[^\"\n]*\"|'[^'\n]*')[ \t]*)"
    r":(?:[ \t\n]|\Z)",
    re.MULTILINE,
)
_ANCHOR = re.compile(r"(?:^|[\s\[{,])&([^\s,\[\]{}]+)")
_ALIAS = re.compile(r"(?:^|[\s\[{,])\*([^\s,\[\]{}]+)")
# What YAML would read as something not meant: template marks, with what follows them in their value, and numbers
# with leading zeros or more digits than 64 bits hold.
_MARK = r"(?:[^\n{}\\']|'(?!'))*+"
_UNMEANT = re.compile(
    rf"(?:\{{\{{\{{{_MARK}\}}\}}\}}|\{{\{{{_MARK}\}}\}})(?:[^\n\[\]{{}},\"'\\]*[^\s\[\]{{}},\"'\\])?"
    r"|(?<![^\s\[{,])[-+]?(?:0[0-9]++|9[0-9]{18}|[0-9]{20,}+)(?=[\s\]},]|:\s|\Z)"
)
_FENCE = "\U0010fffd"  # a character for private use: what it surrounds is text wherever it stands
_PLACEHOLDER = re.compile(f"{_FENCE}([0-9]+){_FENCE}")
_LONE = re.compile("[\ud800-\udfff]")  # half a pair, written as an escape: no file and no database takes it


def parse_frontmatter(text: str, original: str) -> Frontmatter:
    """The block a note begins with, if any. Line endings of `text` are `\\n`, those of `original` as written."""
    start = int(text.startswith("\ufeff"))
    opening = _OPEN.match(text, start)
    closing = _CLOSE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return Frontmatter(False, start, start, start, start, {})
    inner, end = opening.end(), closing.start()
    written = original[inner:end]
    if "\r" in written:
        written = written.replace("\r\n", "\n").replace("\r", "\n")
    properties, problem = read_properties(written)
    return Frontmatter(True, start, closing.end(), inner, end, properties, problem)


def read_properties(inner: str) -> tuple[dict[str, Any], str | None]:
    """What stands between the fences, as JSON values (dates are text), and why it cannot be read if it cannot."""
    problem = _find_problem(inner)
    if problem is not None:
        return {}, problem
    try:
        value = None
        if inner.lstrip().startswith("{"):
            with suppress(ValueError):  # YAML reads what is not quite JSON
                value = _plain(json.loads(inner))
        value = _yaml(inner) if value is None else value
    except (ValueError, TypeError, RecursionError) as error:
        return {}, next(iter(str(error).removeprefix("YAML parse error: ").splitlines()), type(error).__name__)
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, "it is not a list of `key: value` lines"
    return value, None


def _find_problem(inner: str) -> str | None:
    """Why `inner` is refused without being parsed: its size, depth or aliases, or a key that stands twice."""
    if len(inner) > MAX_CHARS:
        return f"it is longer than {MAX_CHARS} characters"
    if "\0" in inner:  # where the YAML library would stop reading
        return "it holds a control character"
    if _DEEP.search(inner):
        return "it is nested too deeply"
    if "&" in inner and "*" in inner:
        anchors = set(_ANCHOR.findall(inner))
        aliases = sum(name in anchors for name in _ALIAS.findall(inner))
        if (
            len(inner) * 3 ** min(aliases / 3, 100) > MAX_EXPANDED_CHARS
        ):  # the most that so many aliases can multiply it by
            return "its aliases would make it too large"
    seen: set[str] = set()
    for key in (found.rstrip(" \t") for found in _KEY.findall(inner)):
        if key in seen:
            return f"the key {key} stands twice"
        seen.add(key)
    return None


def _yaml(inner: str) -> Any:
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(json.dumps(found[0], ensure_ascii=False)[1:-1])
        return f"{_FENCE}{len(kept) - 1}{_FENCE}"

    documents = parse_yaml(inner if _FENCE in inner else _UNMEANT.sub(keep, inner), multi=True)
    if len(documents) > 1:
        raise ValueError("it is more than one document")
    value = _plain(documents[0]) if documents else None
    if not kept:
        return value
    written = json.dumps(value, ensure_ascii=False)
    return json.loads(_PLACEHOLDER.sub(lambda found: kept[int(found[1])], written))


def _plain(value: Any) -> Any:
    """`value` as JSON has it: tags dropped, keys as text, no numbers that JSON cannot say."""
    match value:
        case str():
            return value if value.isascii() else _LONE.sub("\ufffd", value)
        case bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else f"{'-' if value < 0 else ''}.{'nan' if value != value else 'inf'}"
        case list():
            return [_plain(member) for member in value]
        case dict():
            return {_key(key): _plain(member) for key, member in value.items()}
        case Yaml():
            return _plain(value.value)
    return str(value)


def _key(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
