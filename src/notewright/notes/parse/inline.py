"""One pass over running text: links and tags, with code spans, HTML, mathematics and escapes left out."""

import re
from operator import attrgetter

from notewright.notes.links.syntax import WIKI, parse_destination, parse_markdown_link, parse_wikilink
from notewright.notes.model import Link, Tag
from notewright.notes.parse.block_scanner import HTML_TAG, LineNumbers
from notewright.notes.parse.definitions import MAX_LABEL_CHARS, Definitions, label_key
from notewright.notes.parse.tags import NAME

_SPECIAL = re.compile(r"[\\`\[\]<#$]")
_TICKS = re.compile(r"`+")
_AUTOLINK = re.compile(r"<[A-Za-z][A-Za-z0-9+.\-]{1,31}:[^\s<>]*>|<[\w.!#$%&'*+/=?^`{|}~-]+@[\w.-]+>")
_MATH = re.compile(r"\$\$.+?\$\$|\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![0-9])", re.DOTALL)
_BEFORE_TAG = frozenset(" \t\n\u00a0\u3000([{,;*_~\"'|>!+")  # what may stand before a tag
_MAX_OUTER_CHARS = 1000  # characters of a link's text that may hold other links
_LABEL = re.compile(rf"\[((?:\\.|[^\\\[\]]){{0,{MAX_LABEL_CHARS}}})\]", re.DOTALL)
_MIN_REPEATED = 100_000  # characters of destinations that uses of definitions may repeat in any note


class Inline:
    """Collects the links and tags of a note's running text, leaf by leaf."""

    def __init__(self, text: str, definitions: Definitions):
        self.text = text
        self.definitions = definitions
        self.room = max(len(text), _MIN_REPEATED)  # for more destinations: they take no more than the note itself
        self.links: list[Link] = []
        self.tags: list[Tag] = []
        self.counted, self.line = 0, 1  # the line number at an offset, counted forward
        self.lines: LineNumbers | None = None
        self.has_code = "`" in text
        self.tangled = False  # links are not in order
        # of the leaf being read
        self.leaf_start = self.leaf_end = 0
        self.openers: list[int] = []
        self.opened = 0  # where the last bracket was opened: a label holds none
        self.missing: set[str] = set()  # closers that it does not have any more
        self.ticks: dict[int, int] | None = None  # length of a run of backticks → where its last such run is

    def line_at(self, at: int) -> int:
        if at < self.counted:  # an image that began before links in its text
            if self.lines is None:
                self.lines = LineNumbers(self.text)
            return self.lines.at(at)
        self.line += self.text.count("\n", self.counted, at)
        self.counted = at
        return self.line

    def read_leaf(self, start: int, end: int) -> None:
        """Collect from the leaf between `start` and `end`."""
        text, search = self.text, _SPECIAL.search
        found = search(text, start, end)
        if found is None:
            return
        self.leaf_start, self.leaf_end, self.ticks = start, end, None
        if self.openers:
            self.openers = []
        if self.missing:
            self.missing = set()
        first, done = len(self.links), start
        while found is not None:
            here = found.start()
            done = _READERS[text[here]](self, here, done)
            found = search(text, done, end)
        if self.tangled:
            self.links[first:] = sorted(self.links[first:], key=attrgetter("start"))
            self.tangled = False

    def open_bracket(self, here: int, done: int) -> int:
        text = self.text
        start = here - 1 if here > done and text[here - 1] == "!" else here
        self.opened = start
        if text.startswith("[[", here) and not text.startswith("[", here + 2):
            found = WIKI.match(text, here, self.leaf_end)
            if found is not None and not (self.has_code and self.is_cut_by_code(here + 2, found.end())):
                end = found.end()
                link = parse_wikilink(text, start, here + 2, end, self.line_at(here))
                if link is not None:
                    self.links.append(link)
                    if start == here:
                        self.drop_link_openers()
                    return end
        self.openers.append(start)
        return here + 1

    def is_cut_by_code(self, at: int, end: int) -> bool:
        """Whether a code span begins before `end` and ends behind it."""
        tick = self.text.find("`", at, end)
        while tick >= 0:
            after = self.skip_code(tick)
            if after > end:
                return self.text[after - 1] == "`"
            tick = self.text.find("`", after, end)
        return False

    def close_bracket(self, here: int, _done: int) -> int:
        """A `]`: the end of a Markdown link, or nothing."""
        if not self.openers:
            return here + 1
        start = self.openers.pop()
        text = self.text
        where = parse_destination(text, here + 1, self.leaf_end) if text.startswith("(", here + 1) else None
        if where is None and self.definitions:
            where = self.resolve_reference(start, here)
        if where is None:
            return here + 1
        around = bool(self.links) and self.links[-1].start > start  # an image in its text, or links in an image's
        if not around or here - start < _MAX_OUTER_CHARS:
            shown = start + 2 if text[start] == "!" else start + 1
            link = parse_markdown_link(text, start, shown, here, where, self.line_at(start))
            if link is not None:
                self.tangled |= around
                self.links.append(link)
        if text[start] != "!":
            self.drop_link_openers()
        return where[2]

    def resolve_reference(self, start: int, here: int) -> tuple[int, int, int] | None:
        """Where the definition of `[text][label]`, `[label][]` or `[label]` leads, as from `parse_destination`."""
        text = self.text
        label = _LABEL.match(text, here + 1, self.leaf_end)
        if label is not None and label[1].strip():
            found, end = self.definitions.get(label_key(label[1])), label.end()
        else:
            begin, found = start + 2 if text[start] == "!" else start + 1, None
            if self.opened <= start and here - begin <= MAX_LABEL_CHARS:  # the text of the brackets itself is the label
                found = self.definitions.get(label_key(text[begin:here]))
            end = here + 3 if label is not None and not label[1] else here + 1
        if found is None or found.end - found.start > self.room:
            return None
        self.room -= found.end - found.start
        return found.start, found.end, end

    def drop_link_openers(self) -> None:
        """Forget brackets that a link would open: links hold no links, only images do."""
        if self.openers:
            self.openers = [opener for opener in self.openers if self.text[opener] == "!"]

    def read_tag(self, here: int, done: int) -> int:
        text = self.text
        if here > self.leaf_start and text[here - 1] not in _BEFORE_TAG:
            return here + 1
        found = NAME.match(text, here + 1, self.leaf_end)
        if found is None:
            return here + 1
        name = found[0]
        if name.strip("0123456789/"):
            scheme = text.rfind("://", done, here)
            if scheme < 0 or any(char.isspace() for char in text[scheme:here]):  # else it is part of a bare URL
                self.tags.append(Tag(name, self.line_at(here), here + 1, found.end(), True))
        return found.end()

    def skip_code(self, here: int, _done: int = 0) -> int:
        """Where the code span at `here` ends, or its backticks when nothing closes them."""
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

    def skip_html(self, here: int, _done: int) -> int:
        text, end = self.text, self.leaf_end
        follows = text[here + 1 : here + 2]
        if follows == "!":
            if text.startswith(("<!-->", "<!--->"), here):
                return text.index(">", here) + 1
            if text.startswith("<!--", here):
                return self.skip_to(here + 4, "-->", here)
            if text.startswith("<![CDATA[", here):
                return self.skip_to(here + 9, "]]>", here)
            return self.skip_to(here + 3, ">", here) if text[here + 2 : here + 3].isalpha() else here + 1
        if follows == "?":
            return self.skip_to(here + 2, "?>", here)
        if not follows.isalpha() and follows != "/":
            return here + 1
        found = _AUTOLINK.match(text, here, end) or HTML_TAG.match(text, here, end)
        return found.end() if found else here + 1

    def skip_to(self, at: int, closer: str, here: int) -> int:
        """Where the next `closer` ends, or the character after `here` when there is none."""
        if closer in self.missing:
            return here + 1
        place = self.text.find(closer, at, self.leaf_end)
        if place < 0:
            self.missing.add(closer)
            return here + 1
        return place + len(closer)

    def skip_math(self, here: int, _done: int) -> int:
        if "$" in self.missing:
            return here + 1
        found = _MATH.match(self.text, here, self.leaf_end)
        if found is not None:
            return found.end()
        if self.text.find("$", here + 1, self.leaf_end) < 0:
            self.missing.add("$")
        return here + 2 if self.text.startswith("$$", here) else here + 1


# What reads each special character: given where it is and where the last thing read ended, it returns where to go on.
_READERS = {
    "[": Inline.open_bracket,
    "]": Inline.close_bracket,
    "#": Inline.read_tag,
    "`": Inline.skip_code,
    "\\": lambda inline, here, done: here + 2,
    "<": Inline.skip_html,
    "$": Inline.skip_math,
}
