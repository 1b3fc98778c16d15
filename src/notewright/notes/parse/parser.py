"""From a note's text to its value: one pass over blocks, one over running text."""

import re
from collections.abc import Mapping
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

LARGE_CHARS = 256 << 10  # a shorter text is never costly
MAX_MARKS = 500_000  # of a text of which everything is parsed
_MARKS = ("[", "#", ">", "\n", "^", "- ", "* ", "+ ", ". ", ") ")  # what links, headings, tags and items begin with
_ID = re.compile(r"(?:(?<=[ \t\n])|\A)\^([A-Za-z0-9-]+)[ \t]*\Z")
_FIRST_HEADING = re.compile(r"(?:[ \t]*+\n)*+# ++\w.*")
_ANY_ID = re.compile(r"\^[A-Za-z0-9-]+[ \t]*\n")


def is_costly(text: str) -> bool:
    """Whether parsing all of it would take seconds and hundreds of megabytes, estimated by counting its marks."""
    return len(text) > LARGE_CHARS and sum(map(text.count, _MARKS)) > MAX_MARKS


def parse(path: NotePath, text: str) -> Note:
    """What `text` says. Never raises: what cannot be read is left out, and `frontmatter.problem` says why."""
    flat = normalize_line_endings(text)
    front = parse_frontmatter(flat, text)
    blocks = scan(flat, front.end)
    paragraphs = _paragraphs(flat, blocks)
    found = Inline(flat, blocks.definitions)
    for start, end in paragraphs:
        found.read_leaf(start, end)
    headings = _headings(flat, blocks)
    links = [*find_property_links(flat, front.inner_start, front.inner_end, front.properties), *found.links]
    tags = [*_frontmatter_tags(flat, front), *found.tags]
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
    """The note without what its body would have to be parsed for: headings, links, tags, block ids."""
    flat = normalize_line_endings(text)
    front = parse_frontmatter(flat, text)
    title, aliases = _title(path, front.properties, ()), _aliases(front.properties)
    return Note(path, text, title, front, (), (), tuple(_frontmatter_tags(flat, front)), (), aliases)


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
    """The spans of running text; of a table one for each row."""
    found: list[tuple[int, int]] = []
    for kind, start, end, container in blocks.leaves:
        if kind == TABLE:
            while start < end:
                stop = text.find("\n", start, end)
                stop = end if stop < 0 else stop
                found.append((start, stop))
                start = stop + 1
        elif kind in TEXT_LEAVES:
            if text[start] == "[" and text.startswith("] ", start + 2, end) and container >= 0:
                item = blocks.containers[container]
                if item.mark != ">" and text.find("\n", item.start, start) < 0:  # the box of a task begins its item
                    start += 4
            found.append((start, end))
    return tuple(found)


def _headings(text: str, blocks: Blocks) -> tuple[Heading, ...]:
    line, counted, headings = 1, 0, []
    for level, content, start, end, container in blocks.headings:
        line += text.count("\n", counted, start)
        counted = start
        headings.append(Heading(level, content, line, start, min(end, len(text)), container < 0))
    return tuple(headings)


def _frontmatter_tags(text: str, front: Frontmatter) -> list[Tag]:
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
            while ahead < len(blocks.containers) and blocks.containers[ahead].start <= leaf.start:
                self.add(blocks.containers[ahead].parent, ahead)
                ahead += 1
            self.add(leaf.container, leaf)
        for index in range(ahead, len(blocks.containers)):
            self.add(blocks.containers[index].parent, index)

    def add(self, parent: int, child: int | Leaf) -> None:
        siblings = self.children.setdefault(parent, [])
        if not isinstance(child, Leaf):
            before = siblings[-1] if siblings else None
            mark = self.blocks.containers[child].mark
            same = before is not None and not isinstance(before, Leaf) and self.blocks.containers[before].mark == mark
            self.first[child] = self.first[before] if same and mark != ">" else child  # type: ignore[index]
        siblings.append(child)

    def span(self, child: int | Leaf) -> tuple[int, int]:
        """Start and end of a leaf, a quote, or a list up to an item."""
        if isinstance(child, Leaf):
            return child.start, child.end
        return self.blocks.containers[self.first[child]].start, self.blocks.containers[child].end

    def find_container(self, leaf: Leaf) -> Container | None:
        """The container an id at the end of `leaf` names: the innermost item, else the outermost quote around it."""
        found, index = None, leaf.container
        while index >= 0:
            found = self.blocks.containers[index]
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
            if not isinstance(leaf, Leaf) or leaf.kind not in (PARAGRAPH, TABLE, HEADING):
                continue
            last = max(text.rfind("\n", leaf.start, leaf.end) + 1, leaf.start)  # where its last line begins
            mark = _ID.search(text[last : leaf.end])
            if mark is None:
                continue
            start, end = last + mark.start(1), last + mark.end(1)
            alone = not text[last : start - 1].strip(" \t>")
            if alone and last == leaf.start:
                if not place:
                    continue
                span = tree.span(siblings[place - 1])
            elif alone and leaf.container >= 0 and text[last] == "^":  # at the margin below a list: the whole list
                span = tree.span(leaf.container)
            else:
                container = tree.find_container(leaf)
                span = (leaf.start, leaf.end) if container is None else (container.start, container.end)
            found.append(Block(mark[1], lines.at(span[0]), lines.at(max(span[1] - 1, span[0])), start, end))
    return tuple(sorted(found, key=lambda block: block.start))
