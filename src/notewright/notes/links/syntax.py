"""Links as written: taking `[[…]]` and `[…](…)` apart, links in properties, and the text a link shows.

A link by reference (`[text][label]`) is a Markdown link whose target stands in the definition of its label.
"""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any
from urllib.parse import unquote

from notewright.notes.model import Link
from notewright.notes.parse.frontmatter import read_properties

WIKI = re.compile(r"\[\[([^\[\]\n]*(?:(?:\](?!\])|\[(?!\[))[^\[\]\n]*)*)\]\]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:|//")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_BARE = re.compile(r"(?:\\[!-/:-@\[-`{-~]|[^\s()\\\x00-\x1f\x7f]|\\)+")
_ANGLED = re.compile(r"<((?:\\.|[^<>\\\n])*)>")
_TITLE = re.compile(r"[ \t\n]+(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\))", re.DOTALL)
_WORD = re.compile(r"\S*")
_GAP = re.compile(r"[ \t]*\n?[ \t]*")
_MAX_PARENS = 8  # in a destination, one in the other
_NUMBER_MARK = "\U0010fffc"  # a character for private use, around the number of a link
_NUMBERED = re.compile(rf"\[\[{_NUMBER_MARK}([0-9]+){_NUMBER_MARK}\]\]")
_WRITTEN = re.compile(  # as `WIKI`; what is quoted goes on in lines that are indented
    r"\[\[(?:[^\[\]\n]|\n[ \t]+|\](?!\])|\[(?!\[))*+\]\]"
)
_MAX_MISSES = 100  # values that are looked for in vain, before no more are
_WIKI_TEXT = re.compile(r"!?\[\[(?:[^\[\]\n|]*\|([^\[\]\n]+)|([^\[\]\n]*))\]\]")
_TEXT_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\((?:<[^<>\n]*>|(?:[^()\s]|\([^()\s]*\))*)(?:\s+\"[^\"\n]*\")?\)")


def parse_wikilink(text: str, start: int, inner: int, end: int, line: int, key: str | None = None) -> Link | None:
    """The link `text[start:end]` whose brackets open before `inner`; None for empty brackets."""
    written = text[inner : end - 2]
    display: str | None = None
    subpath = ""
    bar = written.find("|")
    if bar > 0 and written[:bar].strip(" \t\\"):
        display = written[bar + 1 :].strip()
        written = written[: bar - 1 if written[bar - 1] == "\\" else bar]  # in tables the bar is written "\|"
    mark = written.find("#")
    if mark >= 0:
        written, subpath = written[:mark], written[mark:].rstrip()
    target = written.strip()
    if not target and not subpath:
        return None
    at = inner if written == target else inner + len(written) - len(written.lstrip())
    kind = "frontmatter" if key is not None else "embed" if text[start] == "!" else "wikilink"
    return Link(kind, target, subpath, display, line, start, end, at, at + len(target), key)


def find_definition_end(text: str, link: Link) -> int:
    """The end of the whole destination, subpath included, in the definition of a link by reference."""
    angled = _ANGLED.match(text, link.target_start - 1)
    return angled.end(1) if angled else _WORD.match(text, link.target_end).end()  # type: ignore[union-attr]


def parse_destination(text: str, at: int, limit: int) -> tuple[int, int, int] | None:
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


def parse_markdown_link(
    text: str, start: int, shown: int, close: int, where: tuple[int, int, int], line: int
) -> Link | None:
    """The link `[…](…)` at `start`, its text between `shown` and `close`; None if it is empty or leads to a URL."""
    begin, end, after = where
    written = text[begin:end]
    if not written or _SCHEME.match(written):
        return None
    hash_ = written.find("#")
    path = written if hash_ < 0 else written[:hash_]
    subpath = "" if hash_ < 0 else decode_destination(written[hash_:])
    kind = "markdown-embed" if text[start] == "!" else "markdown"
    return Link(
        kind, decode_destination(path), subpath, text[shown:close], line, start, after, begin, begin + len(path)
    )


def is_reference(link: Link) -> bool:
    """Whether the target stands in a definition (`[label]: target`), apart from the link."""
    return not link.start <= link.target_start < link.end


def decode_destination(written: str) -> str:
    """What a destination says: without backslashes, entities and percent signs."""
    if "\\" in written:
        written = _ESCAPED.sub(r"\1", written)
    if "&" in written:
        written = _ENTITY.sub(lambda found: unescape(found[0]), written)
    return unquote(written) if "%" in written else written


def find_property_links(text: str, start: int, end: int, properties: Mapping[str, Any]) -> Iterator[Link]:
    """Links in properties: each value that is a whole `[[link]]`, where it is written."""
    line, counted = 1, 0
    for place, after, key, raw in _locate_links(text, start, end, list(_strings("", properties, 0))):
        line += text.count("\n", counted, place)
        counted = place
        said = parse_wikilink(raw, 0, 2, len(raw), 0, key)
        link = parse_wikilink(text, place, place + 2, after, line, key)
        if said is None or link is None:
            continue
        if bool(said.subpath) == bool(link.subpath) and (said.display is None) == (link.display is None):
            # the text may hold escapes, its meaning does not
            yield link._replace(target=said.target, subpath=said.subpath, display=said.display)


def _locate_links(text: str, start: int, end: int, values: list[tuple[str, str]]) -> list[tuple[int, int, str, str]]:
    """Start, end, key and text of every link among these values, in the order in which they are written."""
    links = [(key, raw) for key, value in values if (raw := value.strip()).startswith("[[") and WIKI.fullmatch(raw)]
    found, at = [], start
    if text.count("[[", start, end) == len(links) and text.find("*", start, end) < 0:  # nothing else could be one
        for key, raw in links:
            place = text.find("[[", at, end)
            if not text.startswith(raw, place):
                break
            at = place + len(raw)
            found.append((place, at, key, raw))
    return found if len(found) == len(links) else _locate_links_by_reading(text, start, end, values)


def _locate_links_by_reading(
    text: str, start: int, end: int, values: list[tuple[str, str]]
) -> list[tuple[int, int, str, str]]:
    """As `_locate_links` where comments, keys or longer texts hold links too: each is replaced by a number, and the
    properties are read again. A value that is one of these numbers is the link with that number."""
    written = list(_WRITTEN.finditer(text, start, end))
    pieces, at = [], start
    for number, link in enumerate(written):
        pieces += [text[at : link.start()], f"[[{_NUMBER_MARK}{number}{_NUMBER_MARK}]]"]
        at = link.end()
    numbered = list(_strings("", read_properties("".join(pieces) + text[at:end])[0], 0))
    found: dict[int, tuple[int, int, str, str]] = {}
    if len(numbered) == len(values) and text.find(_NUMBER_MARK, start, end) < 0:
        for (key, value), (_, read) in zip(values, numbered, strict=True):
            link_number = _NUMBERED.fullmatch(read.strip())
            if link_number and WIKI.fullmatch(value.strip()):
                number = int(link_number[1])
                found.setdefault(number, (*written[number].span(), key, value.strip()))
    return [found[number] for number in sorted(found)]


class ValueLocator:
    """Looks up where values are written in properties, one after the other."""

    def __init__(self, text: str, start: int, end: int):
        self.text, self.start, self.end = text, start, end
        self.at, self.line = start, text.count("\n", 0, start) + 1
        self.misses = 0

    def find(self, written: str) -> int | None:
        """Where the next one begins, which ends `at` and on this `line`; None if it stands there in another form."""
        place = self.text.find(written, self.at, self.end) if self.misses < _MAX_MISSES else -1
        if place < 0:
            self.misses += 1
            return None
        after = place + len(written)
        self.line += self.text.count("\n", self.at, after)
        self.at = after
        return place


def _strings(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Every text in a value with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping | list) and depth < 20:
        members = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, member in members:
            yield from _strings(f"{key}.{name}" if key else str(name), member, depth + 1)


def link_display_text(link: Link) -> str:
    """What a reader sees for a link: its display text, else `Note > Heading > Sub`."""
    if link.display:
        return link.display
    pieces = [link.target, *(piece.strip() for piece in link.subpath.split("#"))]
    return " > ".join(piece for piece in pieces if piece)


def strip_links(markdown: str) -> str:
    """`markdown` with each link replaced by the text it shows."""
    return _TEXT_LINK.sub(r"\1", _WIKI_TEXT.sub(lambda found: found[1] or found[2], markdown))
