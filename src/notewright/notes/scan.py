"""Block structure of a note's body: headings, and where running text stands, as CommonMark sees it.

One pass over the lines, no tree. What the scanner leaves out of `leaves` (fenced and indented code, HTML blocks, link
reference definitions) can hold no link and no tag. Nesting is bounded, so that the time stays linear on any text.
"""

import re
from typing import NamedTuple

MAX_DEPTH = 64  # deeper quotes and lists are read as text

PARAGRAPH, TABLE, HEADING, FENCE, INDENTED, HTML, RULE = (
    "paragraph",
    "table",
    "heading",
    "code",
    "indented",
    "html",
    "rule",
)
RUNNING = frozenset((PARAGRAPH, TABLE, HEADING))  # kinds whose text can hold links and tags


class Holder:
    """A quote or a list item, open or closed."""

    __slots__ = ("end", "filled", "line", "mark", "number", "parent", "start", "width")

    def __init__(self, mark: str, width: int, line: int, start: int, parent: int):
        self.mark = mark  # ">" a quote; "-", "+", "*" a bullet; "." or ")" a numbered item
        self.width = width  # columns that a line must be indented by to belong to the item
        self.line = line  # start of its first line
        self.start = start  # of its marker
        self.parent = parent  # index of the holder around it, -1 for none
        self.filled = False
        self.number = -1
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


# Lines that begin so can only be or continue a paragraph: read by the run, not line by line.
_PLAIN = re.compile(r"(?:[^\s#>\-+*_=~`<0-9\[|:][^\n]*\n)+")
_EMPTY = re.compile(r"(?:[ \t]*\n)+")
_BLANKS = re.compile(r"[ \t]*")
_RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|(?:-[ \t]*){3,})\n")
_ATX = re.compile(r"(#{1,6})(?:[ \t]+|(?=\n))")
_SETEXT = re.compile(r"(?:=+|-+)[ \t]*\n")
_FENCE = re.compile(r"`{3,}(?=[^`\n]*\n)|~{3,}")
_ITEM = re.compile(r"(?:([*+-])|([0-9]{1,9})([.)]))(?=[ \t\n])")
_DELIMITERS = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\n")
_CELL_BAR = re.compile(r"(?<!\\)\|")

_TAG = (
    r"[A-Za-z][A-Za-z0-9-]*(?:\s+[A-Za-z_:][A-Za-z0-9_.:-]*(?:\s*=\s*(?:[^\s\"'=<>`]+|'[^']*'|\"[^\"]*\"))?)*\s*/?>"
    r"|/[A-Za-z][A-Za-z0-9-]*\s*>"
)
HTML_TAG = re.compile(f"<(?:{_TAG})")
_HTML_STARTS = re.compile(
    r"<(?:(?P<raw>(?:script|pre|textarea|style)(?=[\s>]))|(?P<comment>!--)|(?P<question>\?)|(?P<cdata>!\[CDATA\[)"
    r"|(?P<declaration>![A-Za-z])|(?P<block>/?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col"
    r"|colgroup|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header"
    r"|hr|html|iframe|legend|li|link|main|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary"
    r"|table|tbody|td|tfoot|th|thead|title|tr|track|ul)(?=[\s>]|/>))"
    rf"|(?P<alone>(?:{_TAG.replace(chr(92) + 's', '[ ' + chr(92) + 't]')})(?=[ \t]*\n)))",
    re.IGNORECASE,
)
_HTML_ENDS = {
    "raw": re.compile(r"</(?:script|pre|textarea|style)>", re.IGNORECASE),
    "comment": re.compile("-->"),
    "question": re.compile(r"\?>"),
    "cdata": re.compile(r"\]\]>"),
    "declaration": re.compile(">"),
}
_DEFINITION = re.compile(
    r"[ \t]*\[(?!\^)(?=[^\]]*[^\s\]])(?:\\.|[^\\\[\]]){1,999}\]:[ \t]*\n?[ \t]*(?:<(?:\\.|[^<>\\\n])*>|[^\s<]\S*)"
    r"(?:(?:[ \t]+|[ \t]*\n[ \t]*)(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\))[ \t]*(?:\n|\Z)"
    r"|[ \t]*(?:\n|\Z))",
    re.DOTALL,
)


def scan(text: str, start: int = 0) -> Blocks:
    """The blocks of `text` from `start`, which is the beginning of a line. Line endings must be `\\n`."""
    return _Scanner(text if text.endswith("\n") else text + "\n", start).run()


class _Scanner:
    """The state between two lines: open holders, and one open leaf or none."""

    __slots__ = (
        "contents", "fence", "headings", "holders", "html_end", "last", "leaf", "leaf_end", "leaf_start", "leaves",
        "pos", "size", "stack", "table", "text",
    )  # fmt: skip

    def __init__(self, text: str, start: int):
        self.text, self.pos, self.size = text, start, len(text)
        self.headings: list[Found] = []
        self.leaves: list[Leaf] = []
        self.holders: list[Holder] = []
        self.stack: list[int] = []
        self.leaf = ""  # kind of the open leaf
        self.leaf_start = self.leaf_end = self.last = start
        self.table = False
        self.fence = ("", 0)
        self.html_end: re.Pattern[str] | None = None
        self.contents: dict[int, int] = {}  # line start → where its text begins, in the open paragraph of a holder

    def run(self) -> Blocks:
        text, size, plain, empty = self.text, self.size, _PLAIN.match, _EMPTY.match
        while self.pos < size:
            kind = self.leaf
            if kind == "" or kind == PARAGRAPH:
                run = plain(text, self.pos)
                if run is not None:
                    self.plain(run.end())
                    continue
                if not self.stack:
                    run = empty(text, self.pos)
                    if run is not None:
                        if kind:
                            self.close()
                        self.pos = run.end()
                        continue
            self.line(self.pos)
        self.cut(0)
        return Blocks(self.headings, self.leaves, self.holders)

    def plain(self, end: int) -> None:
        """Lines at the margin that cannot begin a block: they go on with a paragraph, or begin one."""
        if not self.leaf:
            if self.stack:
                self.cut(0)
            self.leaf, self.leaf_start, self.table = PARAGRAPH, self.pos, False
        self.pos = end
        self.leaf_end = self.last = end - 1

    # ---- one line, in general

    def line(self, begin: int) -> None:
        text = self.text
        end = text.find("\n", begin)
        self.pos = end + 1
        at, column = self.skip(begin, 0)
        have = depth = 0
        for index in self.stack:
            holder = self.holders[index]
            if holder.mark == ">":
                if column - have > 3 or text[at] != ">":
                    break
                have = column + 1
                at, column = self.skip(at + 1, have)
                if column > have:
                    have += 1
            elif at == end:
                if not holder.filled:
                    break
            elif column - have >= holder.width:
                have += holder.width
            else:
                break
            depth += 1
        if self.leaf and self.leaf != PARAGRAPH and self.goes_on(depth, at, column - have, end):
            return
        self.starts(begin, end, at, column, have, depth)

    def skip(self, at: int, column: int) -> tuple[int, int]:
        """Past blanks: where the next character stands, and its column."""
        text = self.text
        if text[at] not in " \t":
            return at, column
        end = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if text.find("\t", at, end) < 0:
            return end, column + end - at
        for place in range(at, end):
            column += 4 - column % 4 if text[place] == "\t" else 1
        return end, column

    def goes_on(self, depth: int, at: int, indent: int, end: int) -> bool:
        """Whether the open code or HTML takes the line; else it is closed."""
        kind = self.leaf
        if depth < len(self.stack):
            self.close()
            return False
        if kind == FENCE:
            char, length = self.fence
            if indent < 4 and self.text[at] == char:
                run = len(self.text[at:end]) - len(self.text[at:end].lstrip(char))
                if run >= length and not self.text[at + run : end].strip(" \t"):
                    self.leaf_end = self.last = end
                    self.close()
                    return True
        elif kind == INDENTED:
            if at == end:
                return True
            if indent < 4:
                self.close()
                return False
        elif self.html_end is None:
            if at == end:
                self.close()
                return False
        elif self.html_end.search(self.text, at, end):
            self.leaf_end = self.last = end
            self.close()
            return True
        self.leaf_end = self.last = end
        return True

    def starts(self, begin: int, end: int, at: int, column: int, have: int, depth: int) -> None:
        """Open what begins on this line, else go on with the paragraph."""
        text = self.text
        within = self.leaf == PARAGRAPH and depth == len(self.stack)  # the paragraph is in the holders of this line
        while at < end:
            indent = column - have
            if indent > 3:
                if not self.leaf:
                    self.cut(depth)
                    self.open(INDENTED, at, end)
                    return
                break
            char = text[at]
            if char == ">":
                if depth >= MAX_DEPTH:
                    break
                self.cut(depth)
                self.push(Holder(">", 0, begin, at, self.inner()))
                have = column + 1
                at, column = self.skip(at + 1, have)
                if column > have:
                    have += 1
            elif char in "*+-0123456789":
                if char == "-" and within and self.setext(at, end):
                    return
                if char in "*-" and _RULE.match(text, at):
                    self.cut(depth)
                    self.single(RULE, at, end)
                    return
                item = _ITEM.match(text, at) if depth < MAX_DEPTH else None
                if item is None:
                    break
                mark_end = item.end()
                next_at, next_column = self.skip(mark_end, column + mark_end - at)
                if within and (next_at == end or (item[2] is not None and int(item[2]) != 1)):
                    break
                self.cut(depth)
                holder = Holder(item[1] or item[3], 0, begin, at, self.inner())
                if item[2] is not None:
                    holder.number = int(item[2])
                blanks = next_column - (column + mark_end - at)
                used = 1 if blanks > 4 or blanks < 1 or next_at == end else blanks
                holder.width = indent + mark_end - at + used
                have = column + mark_end - at + min(used, blanks)
                self.push(holder)
                at, column = next_at, next_column
            elif char in "#=`~<_" and self.single_start(char, begin, end, at, depth, within):
                return
            else:
                break
            depth += 1
            within = False
        if at == end:
            self.cut(depth)
        elif self.leaf == PARAGRAPH:
            self.more(begin, end, at)
        else:
            self.cut(depth)
            self.open(PARAGRAPH, at, end)
            self.table = False

    def single_start(self, char: str, begin: int, end: int, at: int, depth: int, within: bool) -> bool:
        """Whether a heading, rule, fence or HTML block begins here; then it has been taken."""
        text = self.text
        if char == "#":
            found = _ATX.match(text, at)
            if found is None:
                return False
            self.cut(depth)
            self.heading(len(found[1]), found.end(), end, begin)
        elif char == "=":
            return within and self.setext(at, end)
        elif char == "_":
            if not _RULE.match(text, at):
                return False
            self.cut(depth)
            self.single(RULE, at, end)
        elif char == "<":
            return self.html(at, end, depth)
        else:
            found = _FENCE.match(text, at)
            if found is None:
                return False
            self.cut(depth)
            self.open(FENCE, at, end)
            self.fence = (char, found.end() - at)
        return True

    # ---- leaves

    def open(self, kind: str, at: int, end: int) -> None:
        self.leaf, self.leaf_start, self.leaf_end, self.last = kind, at, end, end
        if self.stack:
            self.holders[self.stack[-1]].filled = True

    def single(self, kind: str, at: int, end: int) -> None:
        """A leaf of one line."""
        self.open(kind, at, end)
        self.close()

    def close(self) -> None:
        """Close the open leaf."""
        kind, start = self.leaf, self.leaf_start
        self.leaf = ""
        if kind == PARAGRAPH:
            if self.text[start] == "[":
                start = self.after_definitions()
            if start < self.leaf_end:
                self.leaves.append(Leaf(TABLE if self.table else PARAGRAPH, start, self.leaf_end, self.inner()))
            if self.contents:
                self.contents = {}
        else:
            self.leaves.append(Leaf(kind, start, self.leaf_end, self.inner()))

    def more(self, begin: int, end: int, at: int) -> None:
        """Go on with the open paragraph; a row of delimiters makes its last line the head of a table."""
        if self.text[at] in "|:-" and not self.table and self.delimiters(at, end):
            self.table = True
        if self.stack:
            self.contents[begin] = at
        self.leaf_end = self.last = end

    def delimiters(self, at: int, end: int) -> bool:
        """Whether this line makes the paragraph's last line the head of a table; lines before that are split off."""
        text = self.text
        if text.find("|", at, end) < 0 or not _DELIMITERS.match(text, at):
            return False
        begin = text.rfind("\n", self.leaf_start, self.leaf_end) + 1
        head = self.contents.get(begin, begin) if begin else self.leaf_start
        if _cells(text[head : self.leaf_end]) != _cells(text[at:end]):
            return False
        if head > self.leaf_start:
            self.leaf_end = begin - 1
            kept = self.contents
            self.contents = {}
            self.close()
            self.leaf, self.leaf_start, self.contents = PARAGRAPH, head, kept
        return True

    def heading(self, level: int, at: int, end: int, begin: int) -> None:
        content = self.text[at:end].rstrip(" \t")
        bare = content.rstrip("#")
        if bare != content and (not bare or bare[-1] in " \t"):
            content = bare.rstrip(" \t")
        self.single(HEADING, at, end)
        self.headings.append(Found(level, content, begin, self.pos, self.inner()))

    def setext(self, at: int, end: int) -> bool:
        """Whether this line underlines the open paragraph and makes it a heading."""
        text = self.text
        if not _SETEXT.match(text, at):
            return False
        if text[self.leaf_start] == "[":
            self.leaf_start = self.after_definitions()
            if self.leaf_start >= self.leaf_end:
                self.leaf_start = at
                if text[at] == "-":
                    self.leaf = ""
                return False
        begin = text.rfind("\n", 0, self.leaf_start) + 1
        content = " ".join(self.lines(self.leaf_start))
        self.leaves.append(Leaf(HEADING, self.leaf_start, self.leaf_end, self.inner()))
        self.headings.append(Found(1 if text[at] == "=" else 2, content, begin, self.pos, self.inner()))
        self.leaf, self.contents, self.last = "", {}, end
        return True

    def html(self, at: int, end: int, depth: int) -> bool:
        found = _HTML_STARTS.match(self.text, at)
        if found is None or (found.lastgroup == "alone" and self.leaf == PARAGRAPH):
            return False
        self.cut(depth)
        self.open(HTML, at, end)
        self.html_end = _HTML_ENDS.get(found.lastgroup or "")
        after = at + 2 if found.lastgroup == "comment" else found.end()  # "<!-->" is a whole comment
        if self.html_end is not None and self.html_end.search(self.text, after, end):
            self.close()
        return True

    def lines(self, start: int) -> list[str]:
        """The open paragraph's lines from `start`, without what belongs to its holders."""
        text, found = self.text, []
        while start < self.leaf_end:
            end = min(text.find("\n", start), self.leaf_end)
            found.append(text[start:end].strip(" \t"))
            start = self.contents.get(end + 1, end + 1)
        return found

    def after_definitions(self) -> int:
        """Where the open paragraph begins when its leading link reference definitions are left out."""
        lines = self.lines(self.leaf_start)
        whole = "\n".join(lines)
        at, used = 0, 0
        while at < len(whole) and whole[at] == "[":
            found = _DEFINITION.match(whole, at)
            if found is None:
                break
            used += whole.count("\n", at, found.end())
            at = found.end()
        if at >= len(whole):
            return self.leaf_end
        start = self.leaf_start
        for _ in range(used):
            begin = self.text.find("\n", start) + 1
            start = self.contents.get(begin, begin)
        return start

    # ---- holders

    def inner(self) -> int:
        return self.stack[-1] if self.stack else -1

    def push(self, holder: Holder) -> None:
        if self.stack:
            self.holders[self.stack[-1]].filled = True
        self.stack.append(len(self.holders))
        self.holders.append(holder)
        self.last = self.pos - 1

    def cut(self, depth: int) -> None:
        """Close the open leaf and all holders but the outer `depth`."""
        if self.leaf:
            self.close()
        while len(self.stack) > depth:
            holder = self.holders[self.stack.pop()]
            holder.end = max(self.last, holder.start)


def _cells(row: str) -> int:
    row = row.strip(" \t")
    bars = len(_CELL_BAR.findall(row))
    return bars + 1 - row.startswith("|") - (row.endswith("|") and not row.endswith("\\|") and len(row) > 1)
