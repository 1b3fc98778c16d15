"""The values of a block scan: leaves of the text, and the quotes and list items that hold them."""

from typing import NamedTuple

from notewright.notes.definitions import Definitions

PARAGRAPH, TABLE, HEADING = "paragraph", "table", "heading"
FENCE, INDENTED, HTML, COMMENT, RULE = "code", "indented", "html", "comment", "rule"
RUNNING = frozenset((PARAGRAPH, TABLE, HEADING, COMMENT))  # kinds whose text can hold links and tags


class Holder:
    """A quote or a list item, open or closed."""

    __slots__ = ("end", "filled", "mark", "number", "parent", "start", "width")

    def __init__(self, mark: str, width: int, start: int, number: int = -1):
        self.mark = mark  # ">" a quote; "-", "+", "*" a bullet; "." or ")" a numbered item
        self.width = width  # columns that a line must be indented by to belong to the item
        self.start = start  # of its marker
        self.parent = -1  # index of the holder around it, -1 for none
        self.number = number  # of a numbered item
        self.filled = False  # something stands in it
        self.end = start


class Leaf(NamedTuple):
    kind: str
    start: int
    end: int
    holder: int  # index of the innermost holder, -1 for none


class Found(NamedTuple):
    """A heading as found."""

    level: int
    text: str
    start: int  # of its first line
    end: int  # after its last line's ending
    holder: int


class Blocks(NamedTuple):
    headings: list[Found]
    leaves: list[Leaf]
    holders: list[Holder]
    definitions: Definitions
