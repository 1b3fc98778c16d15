"""Line endings: one reading for `\\n`, `\\r\\n` and `\\r`, each character where it was."""

import re
from bisect import bisect_right
from typing import NamedTuple

from notewright.notes.parse.definitions import Definitions


def flat_lines(text: str) -> str:
    """`text` with every line ending as `\\n` and every offset as before."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", " \n").replace("\r", "\n")


class Lines:
    """Line numbers of offsets. The text has `\\n` line endings."""

    __slots__ = ("ends",)

    def __init__(self, text: str):
        self.ends = [found.end() for found in re.finditer("\n", text)]

    def at(self, offset: int) -> int:
        return bisect_right(self.ends, offset) + 1


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


class HeadingMatch(NamedTuple):
    """A heading as found."""

    level: int
    text: str
    start: int  # of its first line
    end: int  # after its last line's ending
    holder: int


class Blocks(NamedTuple):
    headings: list[HeadingMatch]
    leaves: list[Leaf]
    holders: list[Holder]
    definitions: Definitions


# Lines that begin so can only be or continue a paragraph: read by the run, not line by line.
PLAIN_LINES = re.compile(r"(?:[^\s#>\-+*_=~`<0-9\[|:%][^\n]*\n)+")
BULLET_LINE = re.compile(r"([ \t]*)[-*+] (?=[^\s#>\-+*_=~`<0-9%])[^\n]*")  # nothing but a paragraph can begin in it
EMPTY_LINES = re.compile(r"(?:[ \t]*\n)+")
BLANKS = re.compile(r"[ \t]*")
RULE_LINE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})\n")
ATX = re.compile(r"(#{1,6})(?:[ \t]+|(?=\n))")
UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*\n")
FENCE_OPEN = re.compile(r"`{3,}(?=[^`\n]*\n)|~{3,}")
FENCE_CLOSE = {char: re.compile(rf"\n {{0,3}}({char}{{3,}})[ \t]*(?=\n)") for char in "`~"}  # at the margin
ITEM = re.compile(r"(?:([*+-])|([0-9]{1,9})([.)]))(?=[ \t\n])")

_NAME = r"[A-Za-z][A-Za-z0-9-]*"
_ATTRIBUTE = r"\s+[A-Za-z_:][A-Za-z0-9_.:-]*(?:\s*=\s*(?:[^\s\"'=<>`]+|'[^']*'|\"[^\"]*\"))?"
_TAG = rf"(?:{_NAME}(?:{_ATTRIBUTE})*+\s*/?>|/{_NAME}\s*>)"
HTML_TAG = re.compile(f"<{_TAG}")
HTML_OPEN = re.compile(
    r"<(?:(?P<raw>(?:script|pre|textarea|style)(?=[\s>]))|(?P<comment>!--)|(?P<question>\?)|(?P<cdata>!\[CDATA\[)"
    r"|(?P<declaration>![A-Za-z])|(?P<block>/?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col"
    r"|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header"
    r"|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary"
    rf"|table|tbody|td|tfoot|th|thead|title|tr|track|ul)(?=[\s>]|/>))|(?P<alone>{_TAG}(?=[ \t]*\n)))",
    re.IGNORECASE,
)
HTML_CLOSE = {
    "raw": re.compile(r"</(?:script|pre|textarea|style)>", re.IGNORECASE),
    "comment": re.compile("-->"),
    "question": re.compile(r"\?>"),
    "cdata": re.compile(r"\]\]>"),
    "declaration": re.compile(">"),
}  # the others end before a blank line

_DELIMITERS = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*+\|?[ \t]*\n")
_BAR = re.compile(r"\\.|\|")


def atx_text(content: str) -> str:
    """The text of a heading line after its `#` marks: without blanks and closing marks."""
    content = content.rstrip(" \t")
    bare = content.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else content


def heads_table(text: str, head: int, head_end: int, row: int, row_end: int) -> bool:
    """Whether the line at `row` is a row of delimiters for as many cells as the line at `head` has."""
    if text.find("|", row, row_end) < 0 or not _DELIMITERS.match(text, row):
        return False
    return _cells(text[head:head_end]) == _cells(text[row:row_end])


def _cells(row: str) -> int:
    row = row.strip(" \t")
    bars = [bar.start() for bar in _BAR.finditer(row) if bar[0] == "|"]
    return len(bars) + 1 - (0 in bars) - (len(row) > 1 and len(row) - 1 in bars)
