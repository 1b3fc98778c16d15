"""Parses regular expressions of several dialects into one tree; a syntax error says what is wrong and where.

`\\s`, `.`, `\\b`, `\\d`, `\\w`, `^` and `$` differ between dialects and between engines: here they become nodes with
one meaning, and `_regex_writers.py` writes those for the engine that will run them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import regex  # type: ignore[import-untyped]

from notewright.errors import Invalid

MAX_PATTERN_CHARS = 1000
MAX_GROUP_DEPTH = 100
MAX_CODE_POINT = 0x10FFFF
Dialect = Literal["re2", "python-like", "javascript", "literal"]
Range = tuple[int, int]


# ---- the tree -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """A named character class: `d`, `w`, `s`, their ASCII forms `ad`, `aw`, `as`, or a Unicode property `p:…`."""

    name: str
    negated: bool = False


class Set(NamedTuple):
    """Matches one character: of these, or where negated of all others."""

    items: tuple[Range | Named, ...]
    negated: bool
    fold: bool


class Boundary(NamedTuple):
    """A zero-width assertion: line-start, line-end, text-start, text-end, word, not-word, ascii-word, ascii-not-word;
    left-free and right-free: no word character before, or after."""

    kind: str


class Lookaround(NamedTuple):
    node: "Node"
    behind: bool
    negated: bool


class Backreference(NamedTuple):
    """Matches again what a group matched."""

    group: int | str
    fold: bool


class Capture(NamedTuple):
    node: "Node"
    name: str | None = None


class Atomic(NamedTuple):
    """Never backtracks into its node: `(?>…)`, `a++`."""

    node: "Node"


class Repeat(NamedTuple):
    node: "Node"
    low: int
    high: int | None
    lazy: bool = False


class Chain(NamedTuple):
    nodes: tuple["Node", ...]


class Choice(NamedTuple):
    nodes: tuple["Node", ...]


Node = Set | Boundary | Lookaround | Backreference | Capture | Atomic | Repeat | Chain | Choice


def inner_nodes(node: Node) -> tuple[Node, ...]:
    match node:
        case Chain(nodes) | Choice(nodes):
            return nodes
        case Capture(inner) | Atomic(inner) | Repeat(inner) | Lookaround(inner):
            return (inner,)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all its descendants, from left to right: the order in which groups are numbered."""
    yield node
    for inner in inner_nodes(node):
        yield from walk(inner)


def weigh_expanded(node: Node, weigh: Callable[[Node], int]) -> int:
    """Sum the weights of all nodes with every counted repetition written out, as engines do."""
    inside = sum(weigh_expanded(inner, weigh) for inner in inner_nodes(node))
    if isinstance(node, Repeat):
        inside *= max(1, node.low, node.high or 0)
    return weigh(node) + inside


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """The ranges of all other characters."""
    rest, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            rest.append((at, low - 1))
        at = max(at, high + 1)
    return (*rest, (at, MAX_CODE_POINT)) if at <= MAX_CODE_POINT else tuple(rest)


# ---- reading ------------------------------------------------------------------------------------------

_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_POSIX_NAMES = re.compile("alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit")
_PROPERTY = re.compile(r"\{(\^?)([\w =:&\-]+)\}|(\w)", re.ASCII)
_GROUPS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\((?!\?)|\(\?P?<(?![=!]))", re.DOTALL)
_LOOKAROUND = re.compile(r"(<?)([=!])")
_FLAGS = re.compile(r"([imsu]*)(?:-([ims]+))?([:)])")
_HEX = {
    sign: re.compile(rf"\{{([0-9A-Fa-f]{{1,8}})\}}|([0-9A-Fa-f]{{{n}}})") for sign, n in (("x", 2), ("u", 4), ("U", 8))
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_JAVASCRIPT_LINE_ENDS: tuple[Range, ...] = ((10, 10), (13, 13), (0x2028, 0x2029))


def parse_pattern(pattern: str, dialect: Dialect, *, ignore_case: bool, multiline: bool) -> Node:
    """Parse a pattern into its tree, or raise Invalid that says what is wrong and where."""
    if dialect == "literal":
        if len(pattern) > MAX_PATTERN_CHARS:
            raise Invalid(f"the text to look for is longer than {MAX_PATTERN_CHARS} characters", what="pattern")
        return Chain(tuple(Set(((ord(char), ord(char)),), False, ignore_case) for char in pattern))
    if len(pattern) > MAX_PATTERN_CHARS:
        raise Invalid(f"the pattern is longer than {MAX_PATTERN_CHARS} characters", what="pattern")
    return _PatternParser(pattern, dialect, ignore_case, multiline).parse()


class _PatternParser:
    """A recursive descent parser. Flags are state because `(?i)` holds from where it stands to the end of its group.

    `re2` is `python-like` without what re2 cannot express. In `javascript` `\\d \\w \\s \\b` mean ASCII, `(?i)` and
    Python's own syntax are refused, unknown escapes mean the letter itself.
    """

    def __init__(self, pattern: str, dialect: Dialect, ignore_case: bool, multiline: bool) -> None:
        self.pattern, self.linear, self.javascript = pattern, dialect == "re2", dialect == "javascript"
        self.flags = {flag for flag, on in (("i", ignore_case), ("m", multiline)) if on}
        self.position, self.depth = 0, 0
        self.group_count = sum(bool(found[1]) for found in _GROUPS.finditer(pattern))

    @property
    def fold(self) -> bool:
        return "i" in self.flags

    def parse(self) -> Node:
        node = self.parse_choice()
        if self.position < len(self.pattern):
            raise self.syntax_error("this ) closes nothing")
        return node

    def syntax_error(self, why: str, at: int | None = None) -> Invalid:
        place = (self.position if at is None else at) + 1
        shown = self.pattern if len(self.pattern) <= 80 else self.pattern[:80] + "…"
        hint = "put a backslash before a sign that is meant as itself"
        return Invalid(f"{shown!r} is not a regular expression: {why}, at character {place}", hint=hint, what="pattern")

    def skip_if_next(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def match_next(self, wanted: re.Pattern[str]) -> re.Match[str] | None:
        found = wanted.match(self.pattern, self.position)
        self.position = found.end() if found else self.position
        return found

    def parse_choice(self) -> Node:
        self.depth += 1
        if self.depth > MAX_GROUP_DEPTH:
            raise self.syntax_error(f"groups stand more than {MAX_GROUP_DEPTH} deep in each other")
        flags = self.flags
        branches = [self.parse_chain()]
        while self.skip_if_next("|"):
            branches.append(self.parse_chain())
        self.flags = flags
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def parse_chain(self) -> Node:
        nodes: list[Node] = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            node = self.parse_atom()
            if node is not None:
                nodes.append(self.parse_quantifier(node))
        return nodes[0] if len(nodes) == 1 else Chain(tuple(nodes))

    def parse_quantifier(self, node: Node) -> Node:
        start = self.position
        found = _QUANTIFIER.match(self.pattern, start)
        if found is None:
            return node
        if isinstance(node, Boundary):
            raise self.syntax_error(f"{found[0]} has nothing to repeat")
        self.position = found.end()
        low, high = _read_repeat_bounds(found)
        if high is not None and high < low:
            raise self.syntax_error(f"{found[0]} runs backwards", start)
        lazy = self.skip_if_next("?")
        possessive = not lazy and not self.javascript and not self.linear and self.skip_if_next("+")
        again = _QUANTIFIER.match(self.pattern, self.position)
        if again:
            raise self.syntax_error(f"{again[0]} repeats a repetition")
        repeat = Repeat(node, low, high, lazy)
        return Atomic(repeat) if possessive else repeat

    def parse_atom(self) -> Node | None:
        start, sign = self.position, self.pattern[self.position]
        self.position += 1
        if sign == "(":
            return self.parse_group(start)
        if sign == "[":
            return self.parse_char_class(start)
        if sign == "\\":
            return self.parse_escape(start)
        if sign == ".":
            ends = _JAVASCRIPT_LINE_ENDS if self.javascript else ((10, 10),)
            return Set(() if "s" in self.flags else ends, True, self.fold)
        if sign in "^$":
            return Boundary(("line-" if "m" in self.flags else "text-") + ("start" if sign == "^" else "end"))
        if sign in "*+?" or (sign == "{" and _QUANTIFIER.match(self.pattern, start)):
            raise self.syntax_error(f"{sign} has nothing to repeat", start)
        return self.to_char_set(ord(sign))

    def to_char_set(self, code: int) -> Set:
        return Set(((code, code),), False, self.fold)

    # ---- groups ----------------------------------------------------------------------------------------

    def parse_group(self, start: int) -> Node | None:
        if not self.skip_if_next("?"):
            return Capture(self.parse_group_body(start))
        if self.skip_if_next(":"):
            return self.parse_group_body(start)
        if look := self.match_next(_LOOKAROUND):
            self.refuse_if_linear(start, "look-around")
            return Lookaround(self.parse_group_body(start), bool(look[1]), look[2] == "!")
        if self.skip_if_next("<") or (not self.javascript and self.skip_if_next("P<")):
            name = self.parse_group_name(">")
            return Capture(self.parse_group_body(start), name)
        if not self.javascript:
            if self.skip_if_next(">"):
                self.refuse_if_linear(start, "an atomic group")
                return Atomic(self.parse_group_body(start))
            if self.skip_if_next("P="):
                return self.parse_named_backreference(start, ")")
            if self.skip_if_next("#"):
                self.skip_comment(start)
                return None
        return self.parse_flags(start)

    def refuse_if_linear(self, start: int, what: str) -> None:
        if self.linear:
            raise self.syntax_error(f"{what} cannot be searched for in linear time", start)

    def parse_group_body(self, start: int) -> Node:
        """Parse up to the closing `)`. The chain around it lets a boundary in a group be repeated."""
        node = self.parse_choice()
        if not self.skip_if_next(")"):
            raise self.syntax_error("this ( is never closed", start)
        return Chain((node,))

    def parse_group_name(self, end: str) -> str:
        found = _NAME.match(self.pattern, self.position)
        if found is None or not self.pattern.startswith(end, found.end()):
            raise self.syntax_error("a name of letters and digits must stand here")
        self.position = found.end() + len(end)
        return found[0]

    def parse_named_backreference(self, start: int, end: str) -> Backreference:
        self.refuse_if_linear(start, "a back reference")
        return Backreference(self.parse_group_name(end), self.fold)

    def skip_comment(self, start: int) -> None:
        end = self.pattern.find(")", self.position)
        if end < 0:
            raise self.syntax_error("this ( is never closed", start)
        self.position = end + 1

    def parse_flags(self, start: int) -> Node | None:
        """Parse `(?i)` or `(?-i)`, which hold to the end of the group around them, or `(?i:…)`, a group of its own."""
        found = _FLAGS.match(self.pattern, self.position)
        if found is None or (found[3] == ")" and self.javascript) or not (found[1] or found[2]):
            raise self.syntax_error("this kind of group is not known", start)
        self.position = found.end()
        before = self.flags
        self.flags = (before | set(found[1])) - set(found[2] or "")
        if found[3] == ")":
            return None
        group = self.parse_group_body(start)
        self.flags = before
        return group

    # ---- escapes and classes ---------------------------------------------------------------------------

    def parse_escape(self, start: int) -> Node:
        sign = self.read_escaped_sign(start)
        if sign in "bB":
            return Boundary(("ascii-" if self.javascript else "") + ("word" if sign == "b" else "not-word"))
        if sign in "AzZ" and not self.javascript:
            return Boundary("text-start" if sign == "A" else "text-end")
        if sign in "123456789":
            return self.parse_numbered_backreference(start, sign)
        if sign == "k" and self.skip_if_next("<"):
            return self.parse_named_backreference(start, ">")
        item = self.parse_class_or_character(start, sign)
        return Set((item,), False, self.fold) if isinstance(item, Named) else self.to_char_set(item)

    def read_escaped_sign(self, start: int) -> str:
        if self.position == len(self.pattern):
            raise self.syntax_error("nothing follows the last backslash", start)
        self.position += 1
        return self.pattern[self.position - 1]

    def parse_numbered_backreference(self, start: int, sign: str) -> Node:
        while self.position < len(self.pattern) and self.pattern[self.position] in "0123456789":
            sign += self.pattern[self.position]
            self.position += 1
        number = int(sign[:6])
        if number > self.group_count:
            if not self.javascript:
                raise self.syntax_error(f"there is no group {sign}", start)
            self.position = start + 2
            return self.to_char_set(ord(sign[0]))
        self.refuse_if_linear(start, "a back reference")
        return Backreference(number, self.fold)

    def parse_class_or_character(self, start: int, sign: str) -> int | Named:
        """Parse an escape that means the same inside and outside of `[…]`."""
        if sign in "dDwWsS":
            return Named(("a" if self.javascript else "") + sign.lower(), sign.isupper())
        if sign in "pP":
            return self.parse_property(start, sign)
        if sign in _CONTROLS and not (sign == "a" and self.javascript):
            return ord(_CONTROLS[sign])
        if sign in "xuU":
            return self.parse_hexadecimal(start, sign)
        if sign == "0":
            return 0
        if sign == "c" and self.javascript and self.pattern[self.position : self.position + 1].isalpha():
            self.position += 1
            return ord(self.pattern[self.position - 1]) % 32
        if sign.isascii() and sign.isalnum() and not self.javascript:
            raise self.syntax_error(f"\\{sign} is not known", start)
        return ord(sign)

    def parse_hexadecimal(self, start: int, sign: str) -> int:
        found = self.match_next(_HEX[sign])
        if found is None:
            if self.javascript:
                return ord(sign)
            raise self.syntax_error(f"\\{sign} needs { {'x': 2, 'u': 4, 'U': 8}[sign] } hexadecimal digits", start)
        code = int(found[1] or found[2], 16)
        if code > MAX_CODE_POINT or 0xD800 <= code < 0xE000:
            raise self.syntax_error(f"{found[0]} is no character", start)
        return code

    def parse_property(self, start: int, sign: str) -> Named | int:
        found = self.match_next(_PROPERTY)
        if found is not None:
            return Named("p:" + (found[2] or found[3]), (sign == "P") != bool(found[1]))
        if self.javascript:
            return ord(sign)
        raise self.syntax_error("\\p needs the name of a property, as in \\p{Greek}", start)

    def parse_char_class(self, start: int) -> Set:
        negated = self.skip_if_next("^")
        items: list[Range | Named] = []
        first = self.position
        while not (self.pattern.startswith("]", self.position) and (self.position > first or self.javascript)):
            if self.position >= len(self.pattern):
                raise self.syntax_error("this [ is never closed", start)
            items += self.parse_class_members()
        self.position += 1
        return Set(tuple(items), negated, self.fold)

    def parse_class_members(self) -> list[Range | Named]:
        """Parse one character, a range, or a named class inside `[…]`."""
        posix = None if self.javascript else _POSIX.match(self.pattern, self.position)
        if posix:
            return self.parse_posix_class(posix)
        start = self.position
        low = self.parse_class_character()
        if isinstance(low, Named):
            return [low]
        if not re.compile(r"-[^\]]", re.DOTALL).match(self.pattern, self.position):
            return [(low, low)]
        self.position += 1
        high = self.parse_class_character()
        if isinstance(high, Named):
            return [(low, low), (45, 45), high]
        if high < low:
            raise self.syntax_error("this range runs backwards", start)
        return [(low, high)]

    def parse_class_character(self) -> int | Named:
        start = self.position
        self.position += 1
        if self.pattern[start] != "\\":
            return ord(self.pattern[start])
        sign = self.read_escaped_sign(start)
        return 8 if sign == "b" else self.parse_class_or_character(start, sign)

    def parse_posix_class(self, found: re.Match[str]) -> list[Range | Named]:
        if not _POSIX_NAMES.fullmatch(found[2]):
            raise self.syntax_error(f"[:{found[2]}:] is not known")
        self.position = found.end()
        runs = regex.finditer(f"[[:{found[2]}:]]+", "".join(map(chr, range(128))))
        ranges = tuple((run.start(), run.end() - 1) for run in runs)
        return list(complement(ranges) if found[1] else ranges)


def _read_repeat_bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[1] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[0]]
    low = min(int(found[1][:9]), 10**6)
    if found[2] is None:
        return low, low
    return low, min(int(found[3][:9]), 10**6) if found[3] else None
