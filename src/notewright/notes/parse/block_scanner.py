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
        self.parent = -1  # index of the container around it, -1 for none
        self.filled = False  # something stands in it
        self.end = start


class Leaf(NamedTuple):
    kind: str
    start: int
    end: int
    container: int  # index of the innermost container, -1 for none


class HeadingMatch(NamedTuple):
    level: int
    text: str
    start: int  # of its first line
    end: int  # after its last line's ending
    container: int


class Blocks(NamedTuple):
    headings: list[HeadingMatch]
    leaves: list[Leaf]
    containers: list[Container]
    definitions: Definitions


def scan(text: str, start: int = 0) -> Blocks:
    """The blocks of `text` from `start`, which is the beginning of a line. Line endings must be `\\n`."""
    return _Scanner(text if text.endswith("\n") else text + "\n", start).run()


class _Scanner:
    """The state between two lines: open containers, and one open leaf or none."""

    def __init__(self, text: str, start: int):
        self.text, self.pos, self.size = text, start, len(text)
        self.headings: list[HeadingMatch] = []
        self.leaves: list[Leaf] = []
        self.containers: list[Container] = []
        self.definitions: Definitions = {}
        self.stack: list[int] = []
        self.quotes = 0  # among the open containers
        self.leaf = ""  # kind of the open leaf
        self.leaf_start = self.leaf_end = self.last = start
        self.table = False
        self.fence = ("", 0)
        self.html_end: re.Pattern[str] | None = None
        self.unclosed = False  # no "%%" follows that could close a comment
        self.contents: dict[int, int] = {}  # line start → where its text begins, in the open paragraph of a container
        # the line being read: its span, and where in it we are, in characters and in columns
        self.begin = self.end = self.at = self.column = 0
        self.have = self.depth = 0  # columns and containers already used

    def run(self) -> Blocks:
        text, size = self.text, self.size
        plain, empty, bullet = _PLAIN_LINES.match, _EMPTY_LINES.match, _BULLET_LINE.match
        while self.pos < size:
            kind = self.leaf
            if kind == "" or kind == PARAGRAPH:
                run = plain(text, self.pos)
                if run is not None:
                    if not kind:
                        if self.stack:
                            self.close_containers(0)
                        self.leaf, self.leaf_start = PARAGRAPH, self.pos
                    self.pos = run.end()
                    self.leaf_end = self.last = self.pos - 1
                    continue
                run = bullet(text, self.pos)
                if run is not None and self.take_bullet(run):
                    continue
                if not self.stack or (kind and not self.quotes):
                    run = empty(text, self.pos)
                    if run is not None:
                        if kind:
                            self.close_leaf()
                        self.pos = run.end()
                        continue
            self.read_line()
        self.close_containers(0)
        return Blocks(self.headings, self.leaves, self.containers, self.definitions)

    def take_bullet(self, found: re.Match[str]) -> bool:
        """Take an ordinary bullet with text; False if it is deeper than the open items allow."""
        begin, at = found.start(), found.end(1)
        column = at - begin if "\t" not in found[1] else len(found[1].expandtabs(4))
        have = depth = 0
        for index in self.stack:
            container = self.containers[index]
            if container.mark == ">" or column < have + container.width:
                break
            have += container.width
            depth += 1
        if column - have > 3 or depth >= MAX_DEPTH:
            return False
        self.pos, self.begin, self.end = found.end() + 1, begin, found.end()
        self.open_container(Container(self.text[at], column - have + 2, at), depth)
        self.open_leaf(PARAGRAPH, at + 2)
        return True

    # ---- one line, in general

    def read_line(self) -> None:
        text = self.text
        self.begin, self.end = self.pos, text.find("\n", self.pos)
        self.pos = self.end + 1
        self.have = self.depth = 0
        self.skip_blanks(self.begin, 0)
        for index in self.stack:
            if not self.enters_container(self.containers[index]):
                break
            self.depth += 1
        if self.leaf in ("", PARAGRAPH) or not self.continue_leaf():
            self.start_blocks()

    def skip_blanks(self, at: int, column: int) -> None:
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

    def enters_container(self, container: Container) -> bool:
        """Whether the line belongs to the quote or item; then `have` is behind its mark or indentation."""
        if container.mark == ">":
            if self.column - self.have > 3 or self.text[self.at] != ">":
                return False
            self.enter_quote()
        elif self.at == self.end:
            return container.filled
        elif self.column - self.have < container.width:
            return False
        else:
            self.have += container.width
        return True

    def enter_quote(self) -> None:
        """Use a `>` and one blank after it."""
        self.have = self.column + 1
        self.skip_blanks(self.at + 1, self.have)
        if self.column > self.have:
            self.have += 1

    def continue_leaf(self) -> bool:
        """Whether the line belongs to the open code or HTML, which is closed otherwise."""
        goes_on = ends = False
        if self.depth == len(self.stack):
            if self.leaf == FENCE:
                char, length = self.fence
                written = self.text[self.at : self.end].rstrip(" \t")
                goes_on = True
                ends = self.column - self.have <= 3 and len(written) >= length and not written.strip(char)
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
            self.close_leaf()
        return goes_on

    def start_blocks(self) -> None:
        """Open what begins on this line, else go on with the paragraph."""
        within = self.leaf == PARAGRAPH and self.depth == len(self.stack)  # the paragraph is in this line's containers
        while self.at < self.end:
            if self.column - self.have > 3:
                if self.leaf:
                    break
                self.close_containers(self.depth)
                return self.open_leaf(INDENTED, self.at)
            char = self.text[self.at]
            if char not in _STARTERS:
                break
            if char in _SINGLE and self.start_leaf(char, within):
                return
            if not self.start_container(char, within):
                break
            self.depth += 1
            within = False
        if self.leaf == PARAGRAPH and self.at < self.end:
            return self.continue_paragraph()
        self.close_containers(self.depth)
        if self.at < self.end:
            self.open_leaf(PARAGRAPH, self.at)

    def start_container(self, char: str, within: bool) -> bool:
        """Open the quote or list item that begins here; False where none does."""
        if self.depth >= MAX_DEPTH:
            return False
        if char == ">":
            self.open_container(Container(">", 0, self.at), self.depth)
            self.enter_quote()
            return True
        found = _ITEM.match(self.text, self.at)
        if found is None:
            return False
        at, column, size = self.at, self.column, found.end() - found.start()
        self.skip_blanks(found.end(), column + size)
        number = int(found[2]) if found[2] else -1
        if within and (self.at == self.end or number not in (-1, 1)):  # such an item cannot interrupt a paragraph
            self.at, self.column = at, column
            return False
        blanks = self.column - column - size
        used = blanks if 1 <= blanks <= 4 and self.at < self.end else 1
        width = column - self.have + size + used
        self.have = column + size + min(used, blanks)
        self.open_container(Container(found[1] or found[3], width, at), self.depth)
        return True

    def start_leaf(self, char: str, within: bool) -> bool:
        """Read the heading, rule, fence, comment or HTML block that begins here; False where none does."""
        text, at = self.text, self.at
        if char == "#":
            found = _ATX.match(text, at)
            if found is None:
                return False
            self.close_containers(self.depth)
            self.add_one_line_leaf(HEADING, found.end())
            content = text[found.end() : self.end].rstrip(" \t")
            bare = content.rstrip("#")
            if not bare or bare[-1] in " \t":  # else the marks at its end belong to a word
                content = bare.rstrip(" \t")
            self.headings.append(HeadingMatch(len(found[1]), content, self.begin, self.pos, self.innermost()))
            return True
        if char in "=-" and within and self.underline_heading():
            return True
        if char in "*-_":
            if not _RULE_LINE.match(text, at):
                return False
            self.close_containers(self.depth)
            self.add_one_line_leaf(RULE, at)
            return True
        if char in "`~":
            return self.start_fence(char)
        if char == "%":
            return self.take_comment()
        found = _HTML_OPEN.match(text, at, self.end + 1) if char == "<" else None
        if found is None or (found.lastgroup == "alone" and self.leaf == PARAGRAPH):
            return False
        self.close_containers(self.depth)
        self.open_leaf(HTML, at)
        self.html_end = _HTML_CLOSE.get(found.lastgroup or "")
        if self.html_end is not None and self.html_end.search(text, at, self.end):
            self.close_leaf()
        return True

    # ---- leaves

    def open_leaf(self, kind: str, at: int) -> None:
        """A leaf that begins on this line."""
        self.leaf, self.leaf_start, self.leaf_end, self.last = kind, at, self.end, self.end
        if self.stack:
            self.containers[self.stack[-1]].filled = True

    def add_one_line_leaf(self, kind: str, at: int) -> None:
        self.open_leaf(kind, at)
        self.close_leaf()

    def close_leaf(self) -> None:
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
            self.leaves.append(Leaf(kind, start, self.leaf_end, self.innermost()))

    def continue_paragraph(self) -> None:
        """Go on with the open paragraph; a row of delimiters makes its last line the head of a table."""
        if not self.table and self.text[self.at] in "|:-":
            self.table = self.start_table()
        if self.stack:
            self.contents[self.begin] = self.at
        self.leaf_end = self.last = self.end

    def start_table(self) -> bool:
        """Whether this line makes the paragraph's last line the head of a table; lines before that are split off."""
        begin = self.text.rfind("\n", self.leaf_start, self.leaf_end) + 1
        head = self.contents.get(begin, begin) if begin else self.leaf_start
        if self.text.find("|", self.at, self.end) < 0 or not _DELIMITERS.match(self.text, self.at):
            return False
        if _count_cells(self.text[head : self.leaf_end]) != _count_cells(self.text[self.at : self.end]):
            return False
        if head > self.leaf_start:
            leaf_end, contents = self.leaf_end, self.contents
            self.leaf_end = begin - 1
            self.close_leaf()
            self.leaf, self.leaf_start, self.leaf_end, self.contents = PARAGRAPH, head, leaf_end, contents
        return True

    def underline_heading(self) -> bool:
        """Make the open paragraph a heading if this line underlines it; False if it does not."""
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
        self.headings.append(HeadingMatch(1 if text[at] == "=" else 2, content, begin, self.pos, self.innermost()))
        self.leaf, self.last, self.contents = HEADING, self.end, {}
        self.close_leaf()
        return True

    def start_fence(self, char: str) -> bool:
        found = _FENCE_OPEN.match(self.text, self.at)
        if found is None:
            return False
        self.close_containers(self.depth)
        self.open_leaf(FENCE, self.at)
        self.fence = (char, length := found.end() - found.start())
        if not self.depth:  # only its closing fence can end it: go there at once
            closing = (run.end() for run in _FENCE_CLOSE[char].finditer(self.text, self.end) if len(run[1]) >= length)
            self.leaf_end = self.last = next(closing, self.size - 1)
            self.pos = self.leaf_end + 1
            self.close_leaf()
        return True

    def take_comment(self) -> bool:
        """Read the comment block (`%%` to `%%`, over several lines) that begins here; False where none does."""
        text = self.text
        if self.depth or self.unclosed or not text.startswith("%%", self.at):
            return False
        closing = text.find("%%", self.at + 2)
        if closing < self.end:
            self.unclosed = closing < 0
            return False
        self.close_containers(0)
        self.end = text.find("\n", closing)
        self.pos = self.end + 1
        self.add_one_line_leaf(COMMENT, self.at)
        return True

    # ---- containers

    def innermost(self) -> int:
        return self.stack[-1] if self.stack else -1

    def open_container(self, container: Container, depth: int) -> None:
        """Open a container inside the outer `depth` ones; the others end."""
        self.close_containers(depth)
        if self.stack:
            container.parent = self.stack[-1]
            self.containers[container.parent].filled = True
        self.stack.append(len(self.containers))
        self.containers.append(container)
        self.quotes += container.mark == ">"
        self.last = self.end

    def close_containers(self, depth: int) -> None:
        """Close the open leaf and all containers but the outer `depth`."""
        if self.leaf:
            self.close_leaf()
        while len(self.stack) > depth:
            container = self.containers[self.stack.pop()]
            container.end = max(self.last, container.start)
            self.quotes -= container.mark == ">"


def _count_cells(row: str) -> int:
    row = row.strip(" \t")
    bars = [bar.start() for bar in _BAR.finditer(row) if bar[0] == "|"]
    return len(bars) + 1 - (0 in bars) - (len(row) > 1 and len(row) - 1 in bars)
