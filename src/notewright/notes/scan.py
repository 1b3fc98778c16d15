"""Block structure of a note's body: headings, and where running text stands, as CommonMark sees it.

One pass over the lines, no tree. What the scanner leaves out of `leaves` (fenced and indented code, HTML blocks, link
reference definitions) can hold no link and no tag. Nesting is bounded, so that the time stays linear on any text.
"""

import re

from notewright.notes.blocks import (
    COMMENT,
    FENCE,
    HEADING,
    HTML,
    INDENTED,
    PARAGRAPH,
    RULE,
    TABLE,
    Blocks,
    Found,
    Holder,
    Leaf,
)
from notewright.notes.grammar import (
    ATX,
    BLANKS,
    BULLET_LINE,
    EMPTY_LINES,
    FENCE_CLOSE,
    FENCE_OPEN,
    HTML_CLOSE,
    HTML_OPEN,
    ITEM,
    PLAIN_LINES,
    RULE_LINE,
    UNDERLINE,
    definition_lines,
    heads_table,
)

MAX_DEPTH = 64  # deeper quotes and lists are read as text


def scan(text: str, start: int = 0) -> Blocks:
    """The blocks of `text` from `start`, which is the beginning of a line. Line endings must be `\\n`."""
    return _Scanner(text if text.endswith("\n") else text + "\n", start).run()


class _Scanner:
    """The state between two lines: open holders, and one open leaf or none."""

    def __init__(self, text: str, start: int):
        self.text, self.pos, self.size = text, start, len(text)
        self.headings: list[Found] = []
        self.leaves: list[Leaf] = []
        self.holders: list[Holder] = []
        self.stack: list[int] = []
        self.quotes = 0  # among the open holders
        self.leaf = ""  # kind of the open leaf
        self.leaf_start = self.leaf_end = self.last = start
        self.table = False
        self.fence = ("", 0)
        self.html_end: re.Pattern[str] | None = None
        self.unclosed = False  # no "%%" follows that could close a comment
        self.contents: dict[int, int] = {}  # line start → where its text begins, in the open paragraph of a holder

    def run(self) -> Blocks:
        text, size = self.text, self.size
        plain, empty, bullet = PLAIN_LINES.match, EMPTY_LINES.match, BULLET_LINE.match
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
        self.cut(depth)
        self.pos = found.end() + 1
        self.push(Holder(self.text[at], column - have + 2, begin, at, self.inner()))
        self.paragraph(at + 2, found.end())
        return True

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
        end = BLANKS.match(text, at).end()  # type: ignore[union-attr]
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
                if char in "*-" and RULE_LINE.match(text, at):
                    self.cut(depth)
                    self.single(RULE, at, end)
                    return
                item = ITEM.match(text, at) if depth < MAX_DEPTH else None
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
            elif char in "#=`~<_%" and self.single_start(char, begin, end, at, depth, within):
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
            self.paragraph(at, end)

    def single_start(self, char: str, begin: int, end: int, at: int, depth: int, within: bool) -> bool:
        """Whether a heading, rule, fence or HTML block begins here; then it has been taken."""
        text = self.text
        if char == "#":
            found = ATX.match(text, at)
            if found is None:
                return False
            self.cut(depth)
            self.heading(len(found[1]), found.end(), end, begin)
        elif char == "=":
            return within and self.setext(at, end)
        elif char == "_":
            if not RULE_LINE.match(text, at):
                return False
            self.cut(depth)
            self.single(RULE, at, end)
        elif char == "<":
            return self.html(at, end, depth)
        elif char == "%":
            return depth == 0 and self.comment(at, end)
        else:
            found = FENCE_OPEN.match(text, at)
            if found is None:
                return False
            self.cut(depth)
            self.open(FENCE, at, end)
            self.fence = (char, found.end() - at)
            if not depth:
                self.to_fence_end()
        return True

    # ---- leaves

    def open(self, kind: str, at: int, end: int) -> None:
        self.leaf, self.leaf_start, self.leaf_end, self.last = kind, at, end, end
        if self.stack:
            self.holders[self.stack[-1]].filled = True

    def paragraph(self, at: int, end: int) -> None:
        self.open(PARAGRAPH, at, end)
        self.table = False

    def single(self, kind: str, at: int, end: int) -> None:
        """A leaf of one line."""
        self.open(kind, at, end)
        self.close()

    def close(self) -> None:
        """Close the open leaf."""
        kind, start = self.leaf, self.leaf_start
        if kind == PARAGRAPH:
            if self.text[start] == "[":
                start = self.after_definitions()
            if self.table:
                kind = TABLE
        self.leaf = ""
        if self.contents:
            self.contents = {}
        if start < self.leaf_end:
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
        begin = self.text.rfind("\n", self.leaf_start, self.leaf_end) + 1
        head = self.contents.get(begin, begin) if begin else self.leaf_start
        if not heads_table(self.text, head, self.leaf_end, at, end):
            return False
        if head > self.leaf_start:
            leaf_end, contents = self.leaf_end, self.contents
            self.leaf_end = begin - 1
            self.close()
            self.leaf, self.leaf_start, self.leaf_end, self.contents = PARAGRAPH, head, leaf_end, contents
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
        if self.table or not UNDERLINE.match(text, at):
            return False
        begin = text.rfind("\n", 0, self.leaf_start) + 1
        if text[self.leaf_start] == "[":
            self.leaf_start = self.after_definitions()
            if self.leaf_start >= self.leaf_end:  # nothing but definitions: there is no paragraph to underline
                self.leaf_start = at
                self.leaf = PARAGRAPH if text[at] == "=" else ""
                return False
        level, content = 1 if text[at] == "=" else 2, " ".join(self.lines(self.leaf_start))
        self.headings.append(Found(level, content, begin, self.pos, self.inner()))
        self.leaf, self.last = HEADING, end
        self.close()
        return True

    def to_fence_end(self) -> None:
        """Past the fenced code that was just opened at the margin."""
        char, length = self.fence
        closing = FENCE_CLOSE.get((char, length))
        if closing is not None:
            found = closing.search(self.text, self.leaf_end)
            self.leaf_end = self.last = found.end() if found else self.size - 1
            self.pos = self.leaf_end + 1
            self.close()

    def comment(self, at: int, end: int) -> bool:
        """Whether a comment block (`%%` to `%%`, over several lines) begins here; then it has been taken."""
        text = self.text
        if self.unclosed or not text.startswith("%%", at) or text.find("%%", at + 2, end) >= 0:
            return False
        closing = text.find("%%", end)
        if closing < 0:
            self.unclosed = True
            return False
        self.cut(0)
        end = text.find("\n", closing)
        self.pos = end + 1
        self.single(COMMENT, at, end)
        return True

    def html(self, at: int, end: int, depth: int) -> bool:
        found = HTML_OPEN.match(self.text, at, end + 1)
        if found is None or (found.lastgroup == "alone" and self.leaf == PARAGRAPH):
            return False
        self.cut(depth)
        self.open(HTML, at, end)
        self.html_end = HTML_CLOSE.get(found.lastgroup or "")
        if self.html_end is not None and self.html_end.search(self.text, at, end):
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
        used = definition_lines(lines)
        if used == len(lines):
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
        self.quotes += holder.mark == ">"
        self.holders.append(holder)
        self.last = self.pos - 1

    def cut(self, depth: int) -> None:
        """Close the open leaf and all holders but the outer `depth`."""
        if self.leaf:
            self.close()
        while len(self.stack) > depth:
            holder = self.holders[self.stack.pop()]
            holder.end = max(self.last, holder.start)
            self.quotes -= holder.mark == ">"
