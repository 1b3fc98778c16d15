"""Regular expressions of several dialects, read into one tree. What is wrong is said in words, with its place.

`\\s`, `.`, `\\b`, `\\d`, `\\w`, `^` and `$` differ between dialects and between engines: here they become values that
say what they are, and `_regex_writers.py` writes them for the engine that will run them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import regex  # type: ignore[import-untyped]

from notewright.errors import Invalid

MAX_LENGTH = 1000
MAX_DEPTH = 100
LAST = 0x10FFFF
Dialect = Literal["re2", "python-like", "javascript", "literal"]
Range = tuple[int, int]


# ---- the tree -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """A class with a name: `d`, `w`, `s` (with `a` before it: of ASCII), or a Unicode property."""

    name: str
    negated: bool = False


class Set(NamedTuple):
    """One character of these, or of all others."""

    items: tuple[Range | Named, ...]
    negated: bool
    fold: bool


class Boundary(NamedTuple):
    """A place without width: line-start, line-end, text-start, text-end, word, not-word, with `ascii-` before the last
    two; left-free and right-free: no character of a word before, or after."""

    kind: str


class Lookaround(NamedTuple):
    node: "Node"
    behind: bool
    negated: bool


class Backreference(NamedTuple):
    """What a group matched, again."""

    group: int | str
    fold: bool


class Capture(NamedTuple):
    node: "Node"
    name: str | None = None


class Atomic(NamedTuple):
    """The first way its node matches and no other: `(?>…)`, `a++`."""

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
    """A node and all below it, from left to right, as groups are numbered."""
    yield node
    for inner in inner_nodes(node):
        yield from walk(inner)


def grown(node: Node, weigh: Callable[[Node], int]) -> int:
    """The weight of all nodes when every counted repetition is written out, as engines do."""
    inside = sum(grown(inner, weigh) for inner in inner_nodes(node))
    if isinstance(node, Repeat):
        inside *= max(1, node.low, node.high or 0)
    return weigh(node) + inside


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Every character outside of these ranges."""
    rest, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            rest.append((at, low - 1))
        at = max(at, high + 1)
    return (*rest, (at, LAST)) if at <= LAST else tuple(rest)


# ---- reading ------------------------------------------------------------------------------------------

_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_POSIX_NAMES = re.compile("alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit")
_PROPERTY = re.compile(r"\{(\^?)([\w =:&\-]+)\}|(\w)", re.ASCII)
_GROUPS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\((?!\?)|\(\?P?<(?![=!]))", re.DOTALL)
_LOOK = re.compile(r"(<?)([=!])")
_FLAGS = re.compile(r"([imsu]*)(?:-([ims]+))?([:)])")
_HEX = {
    sign: re.compile(rf"\{{([0-9A-Fa-f]{{1,8}})\}}|([0-9A-Fa-f]{{{n}}})") for sign, n in (("x", 2), ("u", 4), ("U", 8))
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_JAVASCRIPT_LINE_ENDS: tuple[Range, ...] = ((10, 10), (13, 13), (0x2028, 0x2029))


def parse_pattern(pattern: str, dialect: Dialect, *, ignore_case: bool, multiline: bool) -> Node:
    """The tree of a pattern, or Invalid that says what is wrong and where."""
    if dialect == "literal":
        if len(pattern) > MAX_LENGTH:
            raise Invalid(f"the text to look for is longer than {MAX_LENGTH} characters", what="pattern")
        return Chain(tuple(Set(((ord(char), ord(char)),), False, ignore_case) for char in pattern))
    if len(pattern) > MAX_LENGTH:
        raise Invalid(f"the pattern is longer than {MAX_LENGTH} characters", what="pattern")
    return _PatternParser(pattern, dialect, ignore_case, multiline).whole()


class _PatternParser:
    """One pass over a pattern. Flags are state because `(?i)` holds from where it stands to the end of its group.

    `re2` and `python-like` differ in what the first cannot say. In `javascript` `\\d \\w \\s \\b` are of ASCII, `(?i)`
    and what only Python has are refused, unknown escapes are the letter itself.
    """

    def __init__(self, pattern: str, dialect: Dialect, ignore_case: bool, multiline: bool) -> None:
        self.pattern, self.linear, self.javascript = pattern, dialect == "re2", dialect == "javascript"
        self.flags = {flag for flag, on in (("i", ignore_case), ("m", multiline)) if on}
        self.place, self.depth = 0, 0
        self.total = sum(bool(found[1]) for found in _GROUPS.finditer(pattern))

    @property
    def fold(self) -> bool:
        return "i" in self.flags

    def whole(self) -> Node:
        node = self.choice()
        if self.place < len(self.pattern):
            raise self.wrong("this ) closes nothing")
        return node

    def wrong(self, why: str, at: int | None = None) -> Invalid:
        place = (self.place if at is None else at) + 1
        shown = self.pattern if len(self.pattern) <= 80 else self.pattern[:80] + "…"
        hint = "put a backslash before a sign that is meant as itself"
        return Invalid(f"{shown!r} is not a regular expression: {why}, at character {place}", hint=hint, what="pattern")

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.place):
            self.place += len(text)
            return True
        return False

    def match(self, wanted: re.Pattern[str]) -> re.Match[str] | None:
        found = wanted.match(self.pattern, self.place)
        self.place = found.end() if found else self.place
        return found

    def choice(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong(f"groups stand more than {MAX_DEPTH} deep in each other")
        flags = self.flags
        branches = [self.chain()]
        while self.take("|"):
            branches.append(self.chain())
        self.flags = flags
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def chain(self) -> Node:
        nodes: list[Node] = []
        while self.place < len(self.pattern) and self.pattern[self.place] not in "|)":
            node = self.atom()
            if node is not None:
                nodes.append(self.repeated(node))
        return nodes[0] if len(nodes) == 1 else Chain(tuple(nodes))

    def repeated(self, node: Node) -> Node:
        start = self.place
        found = _QUANTIFIER.match(self.pattern, start)
        if found is None:
            return node
        if isinstance(node, Boundary):
            raise self.wrong(f"{found[0]} has nothing to repeat")
        self.place = found.end()
        low, high = _bounds(found)
        if high is not None and high < low:
            raise self.wrong(f"{found[0]} runs backwards", start)
        lazy = self.take("?")
        possessive = not lazy and not self.javascript and not self.linear and self.take("+")
        again = _QUANTIFIER.match(self.pattern, self.place)
        if again:
            raise self.wrong(f"{again[0]} repeats a repetition")
        repeat = Repeat(node, low, high, lazy)
        return Atomic(repeat) if possessive else repeat

    def atom(self) -> Node | None:
        start, sign = self.place, self.pattern[self.place]
        self.place += 1
        if sign == "(":
            return self.group(start)
        if sign == "[":
            return self.char_class(start)
        if sign == "\\":
            return self.escape(start)
        if sign == ".":
            ends = _JAVASCRIPT_LINE_ENDS if self.javascript else ((10, 10),)
            return Set(() if "s" in self.flags else ends, True, self.fold)
        if sign in "^$":
            return Boundary(("line-" if "m" in self.flags else "text-") + ("start" if sign == "^" else "end"))
        if sign in "*+?" or (sign == "{" and _QUANTIFIER.match(self.pattern, start)):
            raise self.wrong(f"{sign} has nothing to repeat", start)
        return self.char(ord(sign))

    def char(self, code: int) -> Set:
        return Set(((code, code),), False, self.fold)

    # ---- groups ----------------------------------------------------------------------------------------

    def group(self, start: int) -> Node | None:
        if not self.take("?"):
            return Capture(self.closed(start))
        if self.take(":"):
            return self.closed(start)
        if look := self.match(_LOOK):
            self.refuse_if_linear(start, "look-around")
            return Lookaround(self.closed(start), bool(look[1]), look[2] == "!")
        if self.take("<") or (not self.javascript and self.take("P<")):
            name = self.name(">")
            return Capture(self.closed(start), name)
        if not self.javascript:
            if self.take(">"):
                self.refuse_if_linear(start, "an atomic group")
                return Atomic(self.closed(start))
            if self.take("P="):
                return self.named_back(start, ")")
            if self.take("#"):
                self.comment(start)
                return None
        return self.flagged(start)

    def refuse_if_linear(self, start: int, what: str) -> None:
        if self.linear:
            raise self.wrong(f"{what} cannot be searched for in linear time", start)

    def closed(self, start: int) -> Node:
        """What stands in a group; a boundary in one may be repeated."""
        node = self.choice()
        if not self.take(")"):
            raise self.wrong("this ( is never closed", start)
        return Chain((node,))

    def name(self, end: str) -> str:
        found = _NAME.match(self.pattern, self.place)
        if found is None or not self.pattern.startswith(end, found.end()):
            raise self.wrong("a name of letters and digits must stand here")
        self.place = found.end() + len(end)
        return found[0]

    def named_back(self, start: int, end: str) -> Backreference:
        self.refuse_if_linear(start, "a back reference")
        return Backreference(self.name(end), self.fold)

    def comment(self, start: int) -> None:
        end = self.pattern.find(")", self.place)
        if end < 0:
            raise self.wrong("this ( is never closed", start)
        self.place = end + 1

    def flagged(self, start: int) -> Node | None:
        """`(?i)`, `(?-i)` to the end of the group around it, or `(?i:…)` for what is inside."""
        found = _FLAGS.match(self.pattern, self.place)
        if found is None or (found[3] == ")" and self.javascript) or not (found[1] or found[2]):
            raise self.wrong("this kind of group is not known", start)
        self.place = found.end()
        before = self.flags
        self.flags = (before | set(found[1])) - set(found[2] or "")
        if found[3] == ")":
            return None
        group = self.closed(start)
        self.flags = before
        return group

    # ---- escapes and classes ---------------------------------------------------------------------------

    def escape(self, start: int) -> Node:
        sign = self.sign_after_backslash(start)
        if sign in "bB":
            return Boundary(("ascii-" if self.javascript else "") + ("word" if sign == "b" else "not-word"))
        if sign in "AzZ" and not self.javascript:
            return Boundary("text-start" if sign == "A" else "text-end")
        if sign in "123456789":
            return self.numbered_back(start, sign)
        if sign == "k" and self.take("<"):
            return self.named_back(start, ">")
        item = self.item(start, sign)
        return Set((item,), False, self.fold) if isinstance(item, Named) else self.char(item)

    def sign_after_backslash(self, start: int) -> str:
        if self.place == len(self.pattern):
            raise self.wrong("nothing follows the last backslash", start)
        self.place += 1
        return self.pattern[self.place - 1]

    def numbered_back(self, start: int, sign: str) -> Node:
        while self.place < len(self.pattern) and self.pattern[self.place] in "0123456789":
            sign += self.pattern[self.place]
            self.place += 1
        number = int(sign[:6])
        if number > self.total:
            if not self.javascript:
                raise self.wrong(f"there is no group {sign}", start)
            self.place = start + 2
            return self.char(ord(sign[0]))
        self.refuse_if_linear(start, "a back reference")
        return Backreference(number, self.fold)

    def item(self, start: int, sign: str) -> int | Named:
        """What an escape means in a class and outside of one."""
        if sign in "dDwWsS":
            return Named(("a" if self.javascript else "") + sign.lower(), sign.isupper())
        if sign in "pP":
            return self.property(start, sign)
        if sign in _CONTROLS and not (sign == "a" and self.javascript):
            return ord(_CONTROLS[sign])
        if sign in "xuU":
            return self.hexadecimal(start, sign)
        if sign == "0":
            return 0
        if sign == "c" and self.javascript and self.pattern[self.place : self.place + 1].isalpha():
            self.place += 1
            return ord(self.pattern[self.place - 1]) % 32
        if sign.isascii() and sign.isalnum() and not self.javascript:
            raise self.wrong(f"\\{sign} is not known", start)
        return ord(sign)

    def hexadecimal(self, start: int, sign: str) -> int:
        found = self.match(_HEX[sign])
        if found is None:
            if self.javascript:
                return ord(sign)
            raise self.wrong(f"\\{sign} needs { {'x': 2, 'u': 4, 'U': 8}[sign] } hexadecimal digits", start)
        code = int(found[1] or found[2], 16)
        if code > LAST or 0xD800 <= code < 0xE000:
            raise self.wrong(f"{found[0]} is no character", start)
        return code

    def property(self, start: int, sign: str) -> Named | int:
        found = self.match(_PROPERTY)
        if found is not None:
            return Named("p:" + (found[2] or found[3]), (sign == "P") != bool(found[1]))
        if self.javascript:
            return ord(sign)
        raise self.wrong("\\p needs the name of a property, as in \\p{Greek}", start)

    def char_class(self, start: int) -> Set:
        negated = self.take("^")
        items: list[Range | Named] = []
        first = self.place
        while not (self.pattern.startswith("]", self.place) and (self.place > first or self.javascript)):
            if self.place >= len(self.pattern):
                raise self.wrong("this [ is never closed", start)
            items += self.members()
        self.place += 1
        return Set(tuple(items), negated, self.fold)

    def members(self) -> list[Range | Named]:
        """One character, a range, or a class in a class."""
        posix = None if self.javascript else _POSIX.match(self.pattern, self.place)
        if posix:
            return self.posix(posix)
        start = self.place
        low = self.member()
        if isinstance(low, Named):
            return [low]
        if not re.compile(r"-[^\]]", re.DOTALL).match(self.pattern, self.place):
            return [(low, low)]
        self.place += 1
        high = self.member()
        if isinstance(high, Named):
            return [(low, low), (45, 45), high]
        if high < low:
            raise self.wrong("this range runs backwards", start)
        return [(low, high)]

    def member(self) -> int | Named:
        start = self.place
        self.place += 1
        if self.pattern[start] != "\\":
            return ord(self.pattern[start])
        sign = self.sign_after_backslash(start)
        return 8 if sign == "b" else self.item(start, sign)

    def posix(self, found: re.Match[str]) -> list[Range | Named]:
        if not _POSIX_NAMES.fullmatch(found[2]):
            raise self.wrong(f"[:{found[2]}:] is not known")
        self.place = found.end()
        runs = regex.finditer(f"[[:{found[2]}:]]+", "".join(map(chr, range(128))))
        ranges = tuple((run.start(), run.end() - 1) for run in runs)
        return list(complement(ranges) if found[1] else ranges)


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[1] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[0]]
    low = min(int(found[1][:9]), 10**6)
    if found[2] is None:
        return low, low
    return low, min(int(found[3][:9]), 10**6) if found[3] else None
