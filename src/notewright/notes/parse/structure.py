"""Block ids, and which block each of them names."""

import re

from notewright.notes.model import Block
from notewright.notes.parse.grammar import HEADING, PARAGRAPH, TABLE, Blocks, Holder, Leaf, Lines

_ID = re.compile(r"(?:(?<=[ \t\n])|\A)\^([A-Za-z0-9-]+)[ \t]*\Z")
_ANY_ID = re.compile(r"\^[A-Za-z0-9-]+[ \t]*\n")


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
