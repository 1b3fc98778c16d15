"""Block structure of a note's body: headings, and where running text stands, as CommonMark sees it.

One pass over the lines, no tree. What the scanner leaves out of `leaves` (fenced and indented code, HTML blocks, link
reference definitions) can hold no link and no tag. Nesting is bounded, so that the time stays linear on any text.
"""

import re
from bisect import bisect_right
from typing import NamedTuple

from notewright.notes.parse.definitions import Definitions, join_paragraph, skip_definitions

MAX_DEPTH = 64  # deeper quotes and lists are read as text
_STARTERS = frozenset("#=`~<_%*-+>0123456789")  # characters that something other than a paragraph may begin with
_SINGLE = frozenset("#=`~<_%*-")
PARAGRAPH, TABLE, HEADING = "paragraph", "table", "heading"
FENCE, INDENTED, HTML, COMMENT, RULE = "code", "indented", "html", "comment", "rule"
TEXT_LEAVES = frozenset((PARAGRAPH, TABLE, HEADING, COMMENT))  # kinds whose text can hold links and tags

# Lines that begin so can only be or continue a paragraph: read by the run, not line by line.
_PLAIN_LINES = re.compile(r"(?:[^\s#>\-+*_=~`<0-9\[|:%][^\n]*\n)+")
_BULLET_LINE = re.compile(r"([ \t]*)[-*+] (?=[^\s#>\-+*_=~`<0-9%])[^\n]*")  # nothing but a paragraph can begin in it
_EMPTY_LINES = re.compile(r"(?:[ \t]*\n)+")
_BLANKS = re.compile(r"[ \t]*")
_RULE_LINE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})\n")
_ATX = re.compile(r"(#{1,6})(?:[ \t]+|(?=\n))")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*\n")
_FENCE_OPEN = re.compile(r"`{3,}(?=[^`\n]*\n)|~{3,}")
_FENCE_CLOSE = {char: re.compile(rf"\n {{0,3}}({char}{{3,}})[ \t]*(?=\n)") for char in "`~"}  # at the margin
_ITEM = re.compile(r"(?:([*+-])|([0-9]{1,9})([.)]))(?=[ \t\n])")

_NAME = r"[A-Za-z][A-Za-z0-9-]*"
_ATTRIBUTE = r"\s+[A-Za-z_:][A-Za-z0-9_.:-]*(?:\s*=\s*(?:[^\s\"'=<>`]+|'[^']*'|\"[^\"]*\"))?"
_TAG = rf"(?:{_NAME}(?:{_ATTRIBUTE})*+\s*/?>|/{_NAME}\s*>)"
HTML_TAG = re.compile(f"<{_TAG}")
_HTML_OPEN = re.compile(
    r"<(?:(?P<raw>(?:script|pre|textarea|style)(?=[\s>]))|(?P<comment>!--)|(?P<question>\?)|(?P<cdata>!\[CDATA\[)"
    r"|(?P<declaration>![A-Za-z])|(?P<block>/?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col"
    r"|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header"
    r"|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary"
    rf"|table|tbody|td|tfoot|th|thead|title|tr|track|ul)(?=[\s>]|/>))|(?P<alone>{_TAG}(?=[ \t]*\n)))",
    re.IGNORECASE,
)
_HTML_CLOSE = {
    "raw": re.compile(r"</(?:script|pre|textarea|style)>", re.IGNORECASE),
    "comment": re.compile("-->"),
    "question": re.compile(r"\?>"),
    "cdata": re.compile(r"\]\]>"),
    "declaration": re.compile(">"),
}  # the others end before a blank line

_DELIMITERS = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*+\|?[ \t]*\n")
_BAR = re.compile(r"\\.|\|")


def normalize_line_endings(text: str) -> str:
    """`text` with every line ending as `\\n` and every offset as before."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", " \n").replace("\r", "\n")


class LineNumbers:
    """Line numbers of offsets. The text has `\\n` line endings."""

    __slots__ = ("ends",)

    def __init__(self, text: str):
        self.ends = [found.end() for found in re.finditer("\n", text)]

    def at(self, offset: int) -> int:
        return bisect_right(self.ends, offset) + 1


class Container:
    """A quote or a list item, open or closed."""

    __slots__ = ("end", "filled", "mark", "parent", "start", "width")

    def __init__(self, mark: str, width: int, start: int):
        self.mark = mark  # ">" a quote; "-", "+", "*" a bullet; "." or ")" a numbered item
        self.width = width  # columns that a line must be indented by to belong to the item
        self.start = start  # of its marker
        self.parent = -1  # index of the holder around it, -1 for none
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
    holders: list[Container]
    definitions: Definitions


def scan(text: str, start: int = 0) -> Blocks:
    """The blocks of `text` from `start`, which is the beginning of a line. Line endings must be `\\n`."""
    return _Scanner(text if text.endswith("\n") else text + "\n", start).run()


class _Scanner:
    """The state between two lines: open holders, and one open leaf or none."""

    def __init__(self, text: str, start: int):
        self.text, self.pos, self.size = text, start, len(text)
        self.headings: list[HeadingMatch] = []
        self.leaves: list[Leaf] = []
        self.holders: list[Container] = []
        self.definitions: Definitions = {}
        self.stack: list[int] = []
        self.quotes = 0  # among the open holders
        self.leaf = ""  # kind of the open leaf
        self.leaf_start = self.leaf_end = self.last = start
        self.table = False
        self.fence = ("", 0)
        self.html_end: re.Pattern[str] | None = None
        self.unclosed = False  # no "%%" follows that could close a comment
        self.contents: dict[int, int] = {}  # line start → where its text begins, in the open paragraph of a holder
        # the line being read: its span, and where in it we are, in characters and in columns
        self.begin = self.end = self.at = self.column = 0
        self.have = self.depth = 0  # columns and holders already used

    def run(self) -> Blocks:
        text, size = self.text, self.size
        plain, empty, bullet = _PLAIN_LINES.match, _EMPTY_LINES.match, _BULLET_LINE.match
        while self.pos < size:
            kind = self.leaf
            if kind == "" or kind == PARAGRAPH:
                run = plain(text, self.pos)
                if run is not None:
                    self.plain(run.end())
                    continue
                run = bullet(text, self.pos)
                if run is not None and self.bullet(run):
                    continue
                if not self.stack or (kind and not self.quotes):
                    run = empty(text, self.pos)
                    if run is not None:
                        if kind:
                            self.close()
                        self.pos = run.end()
                        continue
            self.line()
        self.cut(0)
        return Blocks(self.headings, self.leaves, self.holders, self.definitions)

    def plain(self, end: int) -> None:
        """Lines at the margin that cannot begin a block: they go on with a paragraph, or begin one."""
        if not self.leaf:
            if self.stack:
                self.cut(0)
            self.leaf, self.leaf_start = PARAGRAPH, self.pos
        self.pos = end
        self.leaf_end = self.last = end - 1

    def bullet(self, found: re.Match[str]) -> bool:
        """Take an ordinary bullet with text; False if it is deeper than the open items allow."""
        begin, at = found.start(), found.end(1)
        column = at - begin if "\t" not in found[1] else len(found[1].expandtabs(4))
        have = depth = 0
        for index in self.stack:
            holder = self.holders[index]
            if holder.mark == ">" or column < have + holder.width:
                break
            have += holder.width
            depth += 1
        if column - have > 3 or depth >= MAX_DEPTH:
            return False
        self.pos, self.begin, self.end = found.end() + 1, begin, found.end()
        self.push(Container(self.text[at], column - have + 2, at), depth)
        self.open(PARAGRAPH, at + 2)
        return True

    # ---- one line, in general

    def line(self) -> None:
        text = self.text
        self.begin, self.end = self.pos, text.find("\n", self.pos)
        self.pos = self.end + 1
        self.have = self.depth = 0
        self.skip(self.begin, 0)
        for index in self.stack:
            if not self.belongs(self.holders[index]):
                break
            self.depth += 1
        if self.leaf in ("", PARAGRAPH) or not self.goes_on():
            self.starts()

    def skip(self, at: int, column: int) -> None:
        """Go to the next character that is no blank."""
        text = self.text
        if text[at] in " \t":
            begin, at = at, _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            if text.find("\t", begin, at) < 0:
                column += at - begin
            else:
                for char in text[begin:at]:
                    column += 4 - column % 4 if char == "\t" else 1
        self.at, self.column = at, column

    def belongs(self, holder: Container) -> bool:
        """Whether the line belongs to the quote or item; then its mark or indentation has been used."""
        if holder.mark == ">":
            if self.column - self.have > 3 or self.text[self.at] != ">":
                return False
            self.quote()
        elif self.at == self.end:
            return holder.filled
        elif self.column - self.have < holder.width:
            return False
        else:
            self.have += holder.width
        return True

    def quote(self) -> None:
        """Use a `>` and one blank after it."""
        self.have = self.column + 1
        self.skip(self.at + 1, self.have)
        if self.column > self.have:
            self.have += 1

    def goes_on(self) -> bool:
        """Whether the open code or HTML takes the line; else it is closed."""
        goes_on = ends = False
        if self.depth == len(self.stack):
            if self.leaf == FENCE:
                goes_on, ends = True, self.closes_fence()
            elif self.leaf == INDENTED:
                if self.at == self.end:
                    return True  # blank lines are part of it only if more follows
                goes_on = self.column - self.have > 3
            elif self.html_end is None:
                goes_on = self.at < self.end
            else:
                goes_on, ends = True, self.html_end.search(self.text, self.at, self.end) is not None
        if goes_on:
            self.leaf_end = self.last = self.end
        if ends or not goes_on:
            self.close()
        return goes_on

    def closes_fence(self) -> bool:
        if self.column - self.have > 3:
            return False
        char, length = self.fence
        written = self.text[self.at : self.end].rstrip(" \t")
        return len(written) >= length and not written.strip(char)

    def starts(self) -> None:
        """Open what begins on this line, else go on with the paragraph."""
        within = self.leaf == PARAGRAPH and self.depth == len(self.stack)  # the paragraph is in this line's holders
        while self.at < self.end:
            if self.column - self.have > 3:
                if self.leaf:
                    break
                self.cut(self.depth)
                return self.open(INDENTED, self.at)
            char = self.text[self.at]
            if char not in _STARTERS:
                break
            if char in _SINGLE and self.single_start(char, within):
                return
            if not self.holder_start(char, within):
                break
            self.depth += 1
            within = False
        if self.leaf == PARAGRAPH and self.at < self.end:
            return self.more()
        self.cut(self.depth)
        if self.at < self.end:
            self.open(PARAGRAPH, self.at)

    def holder_start(self, char: str, within: bool) -> bool:
        """Whether a quote or list item begins here; then it is open."""
        if self.depth >= MAX_DEPTH:
            return False
        if char == ">":
            self.push(Container(">", 0, self.at), self.depth)
            self.quote()
            return True
        found = _ITEM.match(self.text, self.at)
        if found is None:
            return False
        at, column, size = self.at, self.column, found.end() - found.start()
        self.skip(found.end(), column + size)
        number = int(found[2]) if found[2] else -1
        if within and (self.at == self.end or number not in (-1, 1)):  # such an item cannot interrupt a paragraph
            self.at, self.column = at, column
            return False
        blanks = self.column - column - size
        used = blanks if 1 <= blanks <= 4 and self.at < self.end else 1
        width = column - self.have + size + used
        self.have = column + size + min(used, blanks)
        self.push(Container(found[1] or found[3], width, at), self.depth)
        return True

    def single_start(self, char: str, within: bool) -> bool:
        """Whether a heading, rule, fence, comment or HTML block begins here; then it has been taken."""
        text, at = self.text, self.at
        if char == "#":
            found = _ATX.match(text, at)
            if found is None:
                return False
            self.cut(self.depth)
            self.single(HEADING, found.end())
            content = _atx_text(text[found.end() : self.end])
            self.headings.append(HeadingMatch(len(found[1]), content, self.begin, self.pos, self.inner()))
            return True
        if char in "=-" and within and self.setext():
            return True
        if char in "*-_":
            if not _RULE_LINE.match(text, at):
                return False
            self.cut(self.depth)
            self.single(RULE, at)
            return True
        if char in "`~":
            return self.fenced(char)
        return self.html() if char == "<" else char == "%" and self.comment()

    # ---- leaves

    def open(self, kind: str, at: int) -> None:
        """A leaf that begins on this line."""
        self.leaf, self.leaf_start, self.leaf_end, self.last = kind, at, self.end, self.end
        if self.stack:
            self.holders[self.stack[-1]].filled = True

    def single(self, kind: str, at: int) -> None:
        """A leaf of one line."""
        self.open(kind, at)
        self.close()

    def close(self) -> None:
        """Close the open leaf."""
        kind, start = self.leaf, self.leaf_start
        if kind == PARAGRAPH:
            if self.text[start] == "[":
                start = skip_definitions(self.text, start, self.leaf_end, self.contents, self.definitions)
            if self.table:
                kind, self.table = TABLE, False
            if self.contents:
                self.contents = {}
        self.leaf = ""
        if start < self.leaf_end:
            self.leaves.append(Leaf(kind, start, self.leaf_end, self.inner()))

    def more(self) -> None:
        """Go on with the open paragraph; a row of delimiters makes its last line the head of a table."""
        if not self.table and self.text[self.at] in "|:-":
            self.table = self.delimiters()
        if self.stack:
            self.contents[self.begin] = self.at
        self.leaf_end = self.last = self.end

    def delimiters(self) -> bool:
        """Whether this line makes the paragraph's last line the head of a table; lines before that are split off."""
        begin = self.text.rfind("\n", self.leaf_start, self.leaf_end) + 1
        head = self.contents.get(begin, begin) if begin else self.leaf_start
        if not _heads_table(self.text, head, self.leaf_end, self.at, self.end):
            return False
        if head > self.leaf_start:
            leaf_end, contents = self.leaf_end, self.contents
            self.leaf_end = begin - 1
            self.close()
            self.leaf, self.leaf_start, self.leaf_end, self.contents = PARAGRAPH, head, leaf_end, contents
        return True

    def setext(self) -> bool:
        """Whether this line underlines the open paragraph and makes it a heading."""
        text, at = self.text, self.at
        if self.table or not _UNDERLINE.match(text, at):
            return False
        begin = text.rfind("\n", 0, self.leaf_start) + 1
        if text[self.leaf_start] == "[":
            self.leaf_start = skip_definitions(text, self.leaf_start, self.leaf_end, self.contents, self.definitions)
            if self.leaf_start >= self.leaf_end:  # nothing but definitions: there is no paragraph to underline
                self.leaf_start = at
                self.leaf = PARAGRAPH if text[at] == "=" else ""
                return False
        content = join_paragraph(text, self.leaf_start, self.leaf_end, self.contents)
        self.headings.append(HeadingMatch(1 if text[at] == "=" else 2, content, begin, self.pos, self.inner()))
        self.leaf, self.last, self.contents = HEADING, self.end, {}
        self.close()
        return True

    def fenced(self, char: str) -> bool:
        found = _FENCE_OPEN.match(self.text, self.at)
        if found is None:
            return False
        self.cut(self.depth)
        self.open(FENCE, self.at)
        self.fence = (char, length := found.end() - found.start())
        if not self.depth:  # only its closing fence can end it: go there at once
            closing = (run.end() for run in _FENCE_CLOSE[char].finditer(self.text, self.end) if len(run[1]) >= length)
            self.leaf_end = self.last = next(closing, self.size - 1)
            self.pos = self.leaf_end + 1
            self.close()
        return True

    def comment(self) -> bool:
        """Whether a comment block (`%%` to `%%`, over several lines) begins here; then it has been taken."""
        text = self.text
        if self.depth or self.unclosed or not text.startswith("%%", self.at):
            return False
        closing = text.find("%%", self.at + 2)
        if closing < self.end:
            self.unclosed = closing < 0
            return False
        self.cut(0)
        self.end = text.find("\n", closing)
        self.pos = self.end + 1
        self.single(COMMENT, self.at)
        return True

    def html(self) -> bool:
        found = _HTML_OPEN.match(self.text, self.at, self.end + 1)
        if found is None or (found.lastgroup == "alone" and self.leaf == PARAGRAPH):
            return False
        self.cut(self.depth)
        self.open(HTML, self.at)
        self.html_end = _HTML_CLOSE.get(found.lastgroup or "")
        if self.html_end is not None and self.html_end.search(self.text, self.at, self.end):
            self.close()
        return True

    # ---- holders

    def inner(self) -> int:
        return self.stack[-1] if self.stack else -1

    def push(self, holder: Container, depth: int) -> None:
        """Open a holder inside the outer `depth` ones; the others end."""
        self.cut(depth)
        if self.stack:
            holder.parent = self.stack[-1]
            self.holders[holder.parent].filled = True
        self.stack.append(len(self.holders))
        self.holders.append(holder)
        self.quotes += holder.mark == ">"
        self.last = self.end

    def cut(self, depth: int) -> None:
        """Close the open leaf and all holders but the outer `depth`."""
        if self.leaf:
            self.close()
        while len(self.stack) > depth:
            holder = self.holders[self.stack.pop()]
            holder.end = max(self.last, holder.start)
            self.quotes -= holder.mark == ">"


# ---- headings and tables -------------------------------------------------------------------------------


def _atx_text(content: str) -> str:
    """The text of a heading line after its `#` marks: without blanks and closing marks."""
    content = content.rstrip(" \t")
    bare = content.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else content


def _heads_table(text: str, head: int, head_end: int, row: int, row_end: int) -> bool:
    """Whether the line at `row` is a row of delimiters for as many cells as the line at `head` has."""
    if text.find("|", row, row_end) < 0 or not _DELIMITERS.match(text, row):
        return False
    return _cells(text[head:head_end]) == _cells(text[row:row_end])


def _cells(row: str) -> int:
    row = row.strip(" \t")
    bars = [bar.start() for bar in _BAR.finditer(row) if bar[0] == "|"]
    return len(bars) + 1 - (0 in bars) - (len(row) > 1 and len(row) - 1 in bars)
