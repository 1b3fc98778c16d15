"""What holds what: block ids with the blocks they name, a note's top-level blocks, its list items."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from notewright.notes.model import Block, Note
from notewright.notes.parse.block_scanner import scan
from notewright.notes.parse.grammar import (
    HEADING,
    HTML,
    INDENTED,
    PARAGRAPH,
    RULE,
    TABLE,
    Blocks,
    Holder,
    Leaf,
    Lines,
    flat_lines,
)

_ID = re.compile(r"(?:(?<=[ \t\n])|\A)\^([A-Za-z0-9-]+)[ \t]*\Z")
_ANY_ID = re.compile(r"\^[A-Za-z0-9-]+[ \t]*\n")
_TASK = re.compile(r"\[(.)\][ \t]")
_CALLOUT = re.compile(r">[ \t]*\[![^\]\n]+\]")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:")
_KINDS = {INDENTED: "code", RULE: "thematicBreak", HTML: "html"}


@dataclass(frozen=True, slots=True)
class TopBlock:
    """A block at a note's top level: yaml, heading, paragraph, list, code, callout, blockquote, table, comment, …"""

    kind: str
    start_line: int
    end_line: int  # inclusive


@dataclass(frozen=True, slots=True)
class ListItem:
    """One item of a list, without the items below it."""

    line: int
    end_line: int
    task: str | None  # the character between the brackets
    parent_line: int | None


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

    def goes_on(self, child: int | Leaf, after: int | Leaf | None) -> bool:
        """Whether `after` is the next item of the list that `child` is an item of."""
        if after is None or isinstance(child, Leaf) or isinstance(after, Leaf):
            return False
        return self.first[after] == self.first[child]

    def span(self, child: int | Leaf, whole: bool = True) -> tuple[int, int]:
        """Start and end of a leaf, a quote or an item; `whole` takes the list up to the item."""
        if isinstance(child, Leaf):
            return child.start, child.end
        first = self.blocks.holders[self.first[child] if whole else child]
        return first.start, self.blocks.holders[child].end

    def holder(self, leaf: Leaf) -> Holder | None:
        """What an id at the end of `leaf` names: the innermost item, else the outermost quote around it."""
        found, index = None, leaf.holder
        while index >= 0:
            found = self.blocks.holders[index]
            if found.mark != ">":
                return found
            index = found.parent
        return found


def block_ids(text: str, blocks: Blocks) -> tuple[Block, ...]:
    """Everything with a block id. `text` has `\\n` line endings."""
    if not _ANY_ID.search(text) and not _ID.search(text, text.rfind("\n") + 1):
        return ()
    lines, tree = Lines(text), Tree(blocks)
    found = []
    for siblings in tree.children.values():
        for place, leaf in enumerate(siblings):
            if isinstance(leaf, Leaf) and leaf.kind in (PARAGRAPH, TABLE, HEADING):
                block = _block(text, lines, tree, leaf, siblings[place - 1] if place else None)
                if block is not None:
                    found.append(block)
    return tuple(sorted(found, key=lambda block: block.start))


def _block(text: str, lines: Lines, tree: Tree, leaf: Leaf, before: int | Leaf | None) -> Block | None:
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


def block_structure(note: Note) -> list[TopBlock]:
    """The blocks at the note's top level, in order."""
    text = flat_lines(note.text)
    lines, blocks = Lines(text), scan(text, note.frontmatter.end)
    found = []
    if note.frontmatter.present:
        found.append(TopBlock("yaml", lines.at(note.frontmatter.start), lines.at(note.frontmatter.inner_end)))
    tree = Tree(blocks)
    siblings = tree.children.get(-1, [])
    for place, child in enumerate(siblings):
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        if tree.goes_on(child, after):
            continue
        start, end = tree.span(child)
        found.append(TopBlock(_kind(text, blocks, child), lines.at(start), lines.at(max(end - 1, start))))
    return found


def _kind(text: str, blocks: Blocks, child: int | Leaf) -> str:
    if isinstance(child, Leaf):
        if child.kind == PARAGRAPH and _FOOTNOTE.match(text, child.start):
            return "footnoteDefinition"
        return _KINDS.get(child.kind, child.kind)
    holder = blocks.holders[child]
    if holder.mark != ">":
        return "list"
    return "callout" if _CALLOUT.match(text, holder.start) else "blockquote"


def list_items(note: Note) -> list[ListItem]:
    """Every list item of the note, in order."""
    text = flat_lines(note.text)
    lines, blocks = Lines(text), scan(text, note.frontmatter.end)
    tree = Tree(blocks)
    ends = {index: end for siblings in tree.children.values() for index, end in _item_ends(lines, tree, siblings)}
    found = []
    for index, holder in enumerate(blocks.holders):
        if holder.mark != ">":
            task = _TASK.match(text, _content(text, holder))
            above = blocks.holders[holder.parent] if holder.parent >= 0 else None
            parent = lines.at(above.start) if above is not None and above.mark != ">" else None
            found.append(ListItem(lines.at(holder.start), ends[index], task[1] if task else None, parent))
    return found


def _content(text: str, holder: Holder) -> int:
    place = holder.start + 1 if holder.number < 0 else text.index(holder.mark, holder.start) + 1
    while text[place : place + 1] in (" ", "\t"):
        place += 1
    return place


def _item_ends(lines: Lines, tree: Tree, siblings: list[int | Leaf]) -> Iterator[tuple[int, int]]:
    """The last line of each item among `siblings`, items below it left out, a blank line before the next taken in."""
    for place, child in enumerate(siblings):
        if isinstance(child, Leaf) or tree.blocks.holders[child].mark == ">":
            continue
        holder = tree.blocks.holders[child]
        below = next((c for c in tree.children.get(child, []) if not isinstance(c, Leaf)), None)
        if below is not None:
            start = tree.blocks.holders[below].start
            yield child, max(lines.at(start) - 1, lines.at(holder.start))
            continue
        last = lines.at(max(holder.end - 1, holder.start))
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        if tree.goes_on(child, after):
            last = min(last + 1, lines.at(tree.span(siblings[place + 1], whole=False)[0]) - 1)
        yield child, max(last, lines.at(holder.start))
