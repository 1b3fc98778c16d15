"""One pass over running text: links and tags, with code spans, HTML, mathematics and escapes left out."""

import re

from notewright.notes.grammar import HTML_TAG
from notewright.notes.links import WIKI, destination, markdown_link, wikilink
from notewright.notes.model import Link, Tag
from notewright.notes.tags import NAME

_SPECIAL = re.compile(r"[\\`\[\]<#$]")
_TICKS = re.compile(r"`+")
_AUTOLINK = re.compile(r"<[A-Za-z][A-Za-z0-9+.\-]{1,31}:[^\s<>]*>|<[\w.!#$%&'*+/=?^`{|}~-]+@[\w.-]+>")
_MATH = re.compile(r"\$\$.+?\$\$|\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![0-9])", re.DOTALL)
_OPENS_TAG = frozenset(" \t\n\u00a0\u3000([{,;*_~\"'|>!+")  # what may stand before a tag


class Inline:
    """Collects the links and tags of a note's running text, leaf by leaf."""

    __slots__ = ("counted", "leaf_end", "line", "links", "missing", "openers", "tags", "text", "ticks")

    def __init__(self, text: str):
        self.text = text
        self.links: list[Link] = []
        self.tags: list[Tag] = []
        self.counted, self.line = 0, 1  # the line number at an offset, counted forward
        self.leaf_end = 0
        self.openers: list[int] = []
        self.missing: set[str] = set()  # closers that this leaf does not have any more
        self.ticks: dict[int, int] | None = None  # length of a run of backticks → where the last such run is

    def line_at(self, at: int) -> int:
        if at < self.counted:
            return self.line - self.text.count("\n", at, self.counted)
        self.line += self.text.count("\n", self.counted, at)
        self.counted = at
        return self.line

    def read(self, start: int, end: int) -> None:
        """Collect from the leaf between `start` and `end`."""
        text, search = self.text, _SPECIAL.search
        found = search(text, start, end)
        if found is None:
            return
        self.leaf_end, self.ticks = end, None
        if self.openers:
            self.openers = []
        if self.missing:
            self.missing = set()
        at = start
        while found is not None:
            here = found.start()
            at = self.take(text[here], here, at)
            found = search(text, at, end)

    def take(self, char: str, here: int, done: int) -> int:
        """Take what begins at `here`; `done` is where the last thing taken ended. Returns where to go on."""
        if char == "[":
            return self.bracket(here, done)
        if char == "#":
            return self.tag(here, done)
        if char == "`":
            return self.code(here)
        if char == "\\":
            return here + 2
        if char == "]":
            return self.close(here) if self.openers else here + 1
        if char == "<":
            return self.html(here)
        return self.math(here)

    def bracket(self, here: int, done: int) -> int:
        text = self.text
        start = here - 1 if here > done and text[here - 1] == "!" else here
        if text.startswith("[[", here) and not text.startswith("[", here + 2):
            found = WIKI.match(text, here, self.leaf_end)
            if found is not None and not self.code_crosses(found.start(1), found.end()):
                link = wikilink(text, start, here + 2, found.end(), self.line_at(here))
                if link is not None:
                    self.links.append(link)
                    return found.end()
        self.openers.append(start)
        return here + 1

    def code_crosses(self, at: int, end: int) -> bool:
        """Whether a code span begins before `end` and ends behind it."""
        tick = self.text.find("`", at, end)
        while tick >= 0:
            after = self.code(tick)
            if after > end:
                return self.text[after - 1] == "`"
            tick = self.text.find("`", after, end)
        return False

    def close(self, here: int) -> int:
        """A `]`: the end of a Markdown link, or nothing."""
        start = self.openers.pop()
        text = self.text
        if not text.startswith("(", here + 1):
            return here + 1
        where = destination(text, here + 1, self.leaf_end)
        if where is None:
            return here + 1
        shown = start + 2 if text[start] == "!" else start + 1
        link = markdown_link(text, start, shown, here, where, self.line_at(start))
        if link is not None:
            self.place(link)
        if text[start] != "!":  # links hold no links
            self.openers = [opener for opener in self.openers if text[opener] == "!"]
        return where[2]

    def place(self, link: Link) -> None:
        """Add a link before those that stand in its text."""
        at = len(self.links)
        while at and self.links[at - 1].start > link.start:
            at -= 1
        self.links.insert(at, link)

    def tag(self, here: int, done: int) -> int:
        text = self.text
        if here > done and text[here - 1] not in _OPENS_TAG:
            return here + 1
        found = NAME.match(text, here + 1, self.leaf_end)
        if found is None:
            return here + 1
        name = found[0]
        if name.strip("0123456789/") and not self.in_address(done, here):
            self.tags.append(Tag(name, self.line_at(here), here + 1, found.end(), True))
        return found.end()

    def in_address(self, done: int, here: int) -> bool:
        """Whether the text before `here` is the beginning of a bare URL."""
        scheme = self.text.rfind("://", done, here)
        return scheme >= 0 and not any(char.isspace() for char in self.text[scheme:here])

    def code(self, here: int) -> int:
        """Past the code span that begins at `here`, or past the backticks when nothing closes them."""
        text, end = self.text, self.leaf_end
        opening = _TICKS.match(text, here, end).end()  # type: ignore[union-attr]
        length = opening - here
        if self.ticks is None:
            self.ticks = {run.end() - run.start(): run.start() for run in _TICKS.finditer(text, here, end)}
        if self.ticks.get(length, -1) < opening:
            return opening
        for run in _TICKS.finditer(text, opening, end):
            if run.end() - run.start() == length:
                return run.end()
        return opening

    def html(self, here: int) -> int:
        text, end = self.text, self.leaf_end
        follows = text[here + 1 : here + 2]
        if follows == "!":
            if text.startswith("<!-->", here) or text.startswith("<!--->", here):
                return text.index(">", here) + 1
            opener, closer = ("<!--", "-->") if text.startswith("<!--", here) else ("<!", ">")
            return self.until(here + len(opener), closer, here)
        if follows == "?":
            return self.until(here + 2, "?>", here)
        if not follows.isalpha() and follows != "/":
            return here + 1
        found = _AUTOLINK.match(text, here, end) or HTML_TAG.match(text, here, end)
        return found.end() if found else here + 1

    def until(self, at: int, closer: str, here: int) -> int:
        """Past the next `closer`, or just past `here` when there is none."""
        if closer in self.missing:
            return here + 1
        place = self.text.find(closer, at, self.leaf_end)
        if place < 0:
            self.missing.add(closer)
            return here + 1
        return place + len(closer)

    def math(self, here: int) -> int:
        if "$" in self.missing:
            return here + 1
        found = _MATH.match(self.text, here, self.leaf_end)
        if found is not None:
            return found.end()
        if self.text.find("$", here + 1, self.leaf_end) < 0:
            self.missing.add("$")
        return here + 2 if self.text.startswith("$$", here) else here + 1
