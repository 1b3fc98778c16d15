"""Links as written: taking `[[…]]` and `[…](…)` apart, links in properties, and the text a link shows."""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any
from urllib.parse import unquote

from notewright.notes.model import Link

WIKI = re.compile(r"\[\[((?:[^\[\]\n]|\](?!\])|\[(?!\[))*)\]\]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:|//")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_BARE = re.compile(r"(?:\\[!-/:-@\[-`{-~]|[^\s()\\\x00-\x1f\x7f]|\\)+")
_ANGLED = re.compile(r"<((?:\\.|[^<>\\\n])*)>")
_TITLE = re.compile(r"[ \t\n]+(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\))", re.DOTALL)
_GAP = re.compile(r"[ \t]*\n?[ \t]*")
_MAX_PARENS = 32
_WIKI_TEXT = re.compile(r"!?\[\[(?:[^\[\]\n|]*\|([^\[\]\n]+)|([^\[\]\n]*))\]\]")
_TEXT_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\((?:<[^<>\n]*>|(?:[^()\s]|\([^()\s]*\))*)(?:\s+\"[^\"\n]*\")?\)")


def wikilink(text: str, start: int, inner: int, end: int, line: int, key: str | None = None) -> Link | None:
    """The link `text[start:end]` whose brackets open before `inner`; None for empty brackets."""
    close = end - 2
    if not text[inner:close].strip():
        return None
    bar = text.find("|", inner, close)
    display: str | None = None
    path_end = close
    if bar > inner and text[inner:bar].strip(" \t\\"):
        display = text[bar + 1 : close].strip()
        path_end = bar - 1 if text[bar - 1] == "\\" else bar
    hash_ = text.find("#", inner, path_end)
    target_end = path_end if hash_ < 0 else hash_
    target = text[inner:target_end]
    subpath = "" if hash_ < 0 else text[hash_:path_end].rstrip()
    target_start = inner + len(target) - len(target.lstrip())
    target = target.strip()
    kind = "frontmatter" if key is not None else "embed" if text[start] == "!" else "wikilink"
    place = min(target_start, target_end)
    return Link(kind, target, subpath, display, line, start, end, place, place + len(target), key)


def destination(text: str, at: int, limit: int) -> tuple[int, int, int] | None:
    """What `(…)` at `at` holds: start and end of the destination, and the end of the whole; None if it is no link."""
    at = _GAP.match(text, at + 1, limit).end()  # type: ignore[union-attr]
    if at >= limit:
        return None
    if text[at] == "<":
        angled = _ANGLED.match(text, at, limit)
        if angled is None:
            return None
        start, end, at = angled.start(1), angled.end(1), angled.end()
    else:
        start = at
        end = at = _bare_end(text, at, limit)
        if at < start:
            return None
    title = _TITLE.match(text, at, limit)
    if title is not None:
        at = title.end()
    at = _GAP.match(text, at, limit).end()  # type: ignore[union-attr]
    return (start, end, at + 1) if at < limit and text[at] == ")" else None


def _bare_end(text: str, at: int, limit: int) -> int:
    depth = 0
    while at < limit:
        run = _BARE.match(text, at, limit)
        if run is not None:
            at = run.end()
            continue
        if text[at] == "(":
            depth += 1
            if depth > _MAX_PARENS:
                return -1
        elif text[at] == ")" and depth:
            depth -= 1
        else:
            break
        at += 1
    return -1 if depth else at


def markdown_link(text: str, start: int, shown: int, close: int, where: tuple[int, int, int], line: int) -> Link | None:
    """The link `[…](…)` at `start`, its text between `shown` and `close`; None if it is empty or leads to a URL."""
    begin, end, after = where
    written = text[begin:end]
    if not written or _SCHEME.match(written):
        return None
    hash_ = written.find("#")
    path = written if hash_ < 0 else written[:hash_]
    subpath = "" if hash_ < 0 else _decoded(written[hash_:])
    kind = "markdown-embed" if text[start] == "!" else "markdown"
    return Link(kind, _decoded(path), subpath, text[shown:close], line, start, after, begin, begin + len(path))


def _decoded(written: str) -> str:
    if "\\" in written:
        written = _ESCAPED.sub(r"\1", written)
    if "&" in written:
        written = _ENTITY.sub(lambda found: unescape(found[0]), written)
    return unquote(written) if "%" in written else written


def property_links(text: str, start: int, end: int, properties: Mapping[str, Any]) -> Iterator[Link]:
    """Links in properties: each value that is a whole `[[link]]`, where it is written."""
    at, line, counted = start, None, start
    for key, value in _strings("", properties, 0):
        raw = value.strip()
        if not raw.startswith("[[") or not WIKI.fullmatch(raw):
            continue
        place = text.find(raw, at, end)
        if place < 0:
            place = text.find(raw, start, end)
        if place < 0:  # written with escapes
            continue
        if line is None or place < counted:
            line, counted = text.count("\n", 0, start) + 1, start
        line += text.count("\n", counted, place)
        counted = place
        at = place + len(raw)
        link = wikilink(text, place, place + 2, at, line, key)
        if link is not None:
            yield link


def _strings(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Every text in a value with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping | list) and depth < 20:
        members = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, member in members:
            yield from _strings(f"{key}.{name}" if key else str(name), member, depth + 1)


def shown_text(link: Link) -> str:
    """What a reader sees for a link: its display text, else `Note > Heading > Sub`."""
    if link.display:
        return link.display
    pieces = [link.target, *(piece.strip() for piece in link.subpath.split("#"))]
    return " > ".join(piece for piece in pieces if piece)


def shown_markdown(markdown: str) -> str:
    """`markdown` with each link replaced by the text it shows."""
    return _TEXT_LINK.sub(r"\1", _WIKI_TEXT.sub(lambda found: found[1] or found[2], markdown))
