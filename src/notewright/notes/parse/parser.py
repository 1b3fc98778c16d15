"""From a note's text to its value: one pass over blocks, one over running text."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from notewright.notes.links.syntax import find_property_links
from notewright.notes.model import Block, Frontmatter, Heading, Note, Tag
from notewright.notes.parse.block_scanner import (
    HEADING,
    PARAGRAPH,
    TABLE,
    TEXT_LEAVES,
    Blocks,
    Container,
    Leaf,
    LineNumbers,
    normalize_line_endings,
    scan,
)
from notewright.notes.parse.frontmatter import parse_frontmatter
from notewright.notes.parse.inline import Inline
from notewright.notes.parse.tags import list_property_tags, locate_tags
from notewright.notes.path import NotePath

LARGE_CHARS = 256 << 10  # in a shorter text nothing is counted
MOST_MARKS = 500_000  # of a text that is parsed whole
_MARKS = ("[", "#", ">", "\n", "^", "- ", "* ", "+ ", ". ", ") ")  # what links, headings, tags and items begin with
_ID = re.compile(r"(?:(?<=[ \t\n])|\A)\^([A-Za-z0-9-]+)[ \t]*\Z")
_FIRST_HEADING = re.compile(r"(?:[ \t]*+\n)*+# ++\w.*")
_ANY_ID = re.compile(r"\^[A-Za-z0-9-]+[ \t]*\n")


def is_costly(text: str) -> bool:
    """Whether parsing all of it would take seconds and hundreds of megabytes: told by counting, which takes neither."""
    return len(text) > LARGE_CHARS and sum(map(text.count, _MARKS)) > MOST_MARKS


def parse(path: NotePath, text: str) -> Note:
    """What `text` says. Never raises: what cannot be read is left out, and `frontmatter.problem` says why."""
    flat = normalize_line_endings(text)
    front = parse_frontmatter(flat, text)
    blocks = scan(flat, front.end)
    paragraphs = _paragraphs(flat, blocks)
    found = Inline(flat, blocks.definitions)
    for start, end in paragraphs:
        found.read(start, end)
    headings = _headings(flat, blocks)
    links = [*find_property_links(flat, front.inner_start, front.inner_end, front.properties), *found.links]
    tags = [*_own_tags(flat, front), *found.tags]
    return Note(
        path=path,
        text=text,
        title=_title(path, front.properties, headings),
        frontmatter=front,
        headings=headings,
        links=tuple(links),
        tags=tuple(tags),
        blocks=find_blocks(flat, blocks),
        aliases=_aliases(front.properties),
        paragraphs=paragraphs,
    )


def parse_without_body(path: NotePath, text: str) -> Note:
    """The note without what would have to be looked for in its body: headings, links, tags, block ids."""
    flat = normalize_line_endings(text)
    front = parse_frontmatter(flat, text)
    title, aliases = _title(path, front.properties, ()), _aliases(front.properties)
    return Note(path, text, title, front, (), (), tuple(_own_tags(flat, front)), (), aliases)


def parse_head(path: NotePath, text: str) -> tuple[str, Mapping[str, Any]]:
    """The title and the properties alone, as `parse` finds them."""
    flat = normalize_line_endings(text)
    front = parse_frontmatter(flat, text)
    title = _title(path, front.properties, ())
    if title == path.stem:  # no property says otherwise
        first = _FIRST_HEADING.match(flat, front.end)  # then nothing that follows it matters
        flat = flat if first is None else flat[: first.end()]
        title = _title(path, front.properties, _headings(flat, scan(flat, front.end)))
    return title, front.properties


def _paragraphs(text: str, blocks: Blocks) -> tuple[tuple[int, int], ...]:
    """Where running text stands; the rows of a table each for itself."""
    found: list[tuple[int, int]] = []
    for kind, start, end, holder in blocks.leaves:
        if kind == TABLE:
            found += _rows(text, start, end)
        elif kind in TEXT_LEAVES:
            boxed = text[start] == "[" and text.startswith("] ", start + 2, end) and holder >= 0
            found.append((start + 4 if boxed and _begins(text, blocks.holders[holder], start) else start, end))
    return tuple(found)


def _begins(text: str, holder: Container, at: int) -> bool:
    """Whether the text of a list item begins at `at`, where the box of a task may stand."""
    return holder.mark != ">" and text.find("\n", holder.start, at) < 0


def _rows(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        yield start, stop
        start = stop + 1


def _headings(text: str, blocks: Blocks) -> tuple[Heading, ...]:
    line, counted, headings = 1, 0, []
    for level, content, start, end, holder in blocks.headings:
        line += text.count("\n", counted, start)
        counted = start
        headings.append(Heading(level, content, line, start, min(end, len(text)), holder < 0))
    return tuple(headings)


def _own_tags(text: str, front: Frontmatter) -> list[Tag]:
    names = list_property_tags(front.properties)
    return locate_tags(text, front.inner_start, front.inner_end, names) if names else []


def _title(path: NotePath, properties: Mapping[str, Any], headings: tuple[Heading, ...]) -> str:
    title = properties.get("title")
    if isinstance(title, str | int | float) and not isinstance(title, bool) and str(title).strip():
        return str(title).strip()
    return next((heading.text for heading in headings if heading.level == 1 and heading.text), path.stem)


def _aliases(properties: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for key, value in properties.items():
        if isinstance(key, str) and key.lower() == "aliases":
            members = value if isinstance(value, list) else str(value).split(",") if value is not None else []
            found += [str(member).strip() for member in members if not isinstance(member, dict | list | None)]
    return tuple(alias for alias in found if alias)


# ---- block ids ----------------------------------------------------------------------------------------


class Tree:
    """The children of every quote and item, in order; lists are runs of items with one kind of mark."""

    __slots__ = ("blocks", "children", "first")

    def __init__(self, blocks: Blocks):
        self.blocks = blocks
        self.children: dict[int, list[int | Leaf]] = {}
        self.first: dict[int, int] = {}  # an item → the first item of its list
        ahead = 0
        for leaf in blocks.leaves:
            while ahead < len(blocks.holders) and blocks.holders[ahead].start <= leaf.start:
                self.add(blocks.holders[ahead].parent, ahead)
                ahead += 1
            self.add(leaf.holder, leaf)
        for index in range(ahead, len(blocks.holders)):
            self.add(blocks.holders[index].parent, index)

    def add(self, parent: int, child: int | Leaf) -> None:
        siblings = self.children.setdefault(parent, [])
        if not isinstance(child, Leaf):
            before = siblings[-1] if siblings else None
            mark = self.blocks.holders[child].mark
            same = before is not None and not isinstance(before, Leaf) and self.blocks.holders[before].mark == mark
            self.first[child] = self.first[before] if same and mark != ">" else child  # type: ignore[index]
        siblings.append(child)

    def span(self, child: int | Leaf) -> tuple[int, int]:
        """Start and end of a leaf, a quote, or a list up to an item."""
        if isinstance(child, Leaf):
            return child.start, child.end
        return self.blocks.holders[self.first[child]].start, self.blocks.holders[child].end

    def holder(self, leaf: Leaf) -> Container | None:
        """What an id at the end of `leaf` names: the innermost item, else the outermost quote around it."""
        found, index = None, leaf.holder
        while index >= 0:
            found = self.blocks.holders[index]
            if found.mark != ">":
                return found
            index = found.parent
        return found


def find_blocks(text: str, blocks: Blocks) -> tuple[Block, ...]:
    """Everything with a block id. `text` has `\\n` line endings."""
    if not _ANY_ID.search(text) and not _ID.search(text, text.rfind("\n") + 1):
        return ()
    lines, tree = LineNumbers(text), Tree(blocks)
    found = []
    for siblings in tree.children.values():
        for place, leaf in enumerate(siblings):
            if isinstance(leaf, Leaf) and leaf.kind in (PARAGRAPH, TABLE, HEADING):
                block = _block(text, lines, tree, leaf, siblings[place - 1] if place else None)
                if block is not None:
                    found.append(block)
    return tuple(sorted(found, key=lambda block: block.start))


def _block(text: str, lines: LineNumbers, tree: Tree, leaf: Leaf, before: int | Leaf | None) -> Block | None:
    last = max(text.rfind("\n", leaf.start, leaf.end) + 1, leaf.start)
    mark = _ID.search(text[last : leaf.end])
    if mark is None:
        return None
    start, end = last + mark.start(1), last + mark.end(1)
    alone = not text[last : start - 1].strip(" \t>")
    if alone and last == leaf.start:
        if before is None:
            return None
        span = tree.span(before)
    elif alone and leaf.holder >= 0 and text[last] == "^":  # at the margin below a list: the whole list
        span = tree.span(leaf.holder)
    else:
        holder = tree.holder(leaf)
        span = (leaf.start, leaf.end) if holder is None else (holder.start, holder.end)
    return Block(mark[1], lines.at(span[0]), lines.at(max(span[1] - 1, span[0])), start, end)
