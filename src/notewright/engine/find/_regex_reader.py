"""Regular expressions of several dialects read into trees. What is wrong is said in words, with its place."""

import re
from dataclasses import dataclass

from notewright.engine.find._regex_tree import (
    LAST,
    MAX_LENGTH,
    Backreference,
    Boundary,
    Capture,
    Chain,
    Char,
    Choice,
    Lookaround,
    Named,
    Node,
    Range,
    Repeat,
    Set,
    complement,
)
from notewright.errors import Invalid

MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Syntax:
    """What a dialect allows and means."""

    unicode: bool = True  # \\d \\w \\s \\b know every script
    look: bool = True  # look-around, back references, atomic groups
    flags: bool = True  # (?i) in the middle of a pattern
    python: bool = True  # (?P<name>…), (?#…), \\A, \\Z, possessive quantifiers
    javascript: bool = False  # [^], \\cX, \\uXXXX, unknown escapes are the letter itself


LINEAR = Syntax(look=False)
PYTHON_LIKE = Syntax()
JAVASCRIPT = Syntax(unicode=False, flags=False, python=False, javascript=True)

_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}", re.ASCII)
_NAME = re.compile(r"[^\W\d]\w*")
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_PROPERTY = re.compile(r"\{(\^?)([\w =:&\-]+)\}|(\w)", re.ASCII)
_GROUPS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(\((?!\?)|\(\?P?<(?![=!]))", re.DOTALL)
_FLAGS = re.compile(r"([imsu]*)(?:-([ims]+))?([:)])")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_POSIX_RANGES: dict[str, tuple[Range, ...]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_JAVASCRIPT_LINE_ENDS: tuple[Range, ...] = ((10, 10), (13, 13), (0x2028, 0x2029))


def parse_pattern(pattern: str, syntax: Syntax, *, ignore_case: bool, multiline: bool) -> Node:
    """The tree of a pattern, or Invalid that says what is wrong and where."""
    if len(pattern) > MAX_LENGTH:
        raise Invalid(f"the pattern is longer than {MAX_LENGTH} characters", what="pattern")
    return _PatternParser(pattern, syntax, ignore_case, multiline).whole()


class _PatternParser:
    """One pass over a pattern. Flags are state because `(?i)` holds from where it stands to the end of its group."""

    def __init__(self, pattern: str, syntax: Syntax, ignore_case: bool, multiline: bool) -> None:
        self.pattern, self.syntax = pattern, syntax
        self.fold, self.multiline, self.dot_all = ignore_case, multiline, False
        self.place, self.depth = 0, 0
        self.total = sum(bool(found[1]) for found in _GROUPS.finditer(pattern))

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

    def choice(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong(f"groups stand more than {MAX_DEPTH} deep in each other")
        flags = self.fold, self.multiline, self.dot_all
        branches = [self.chain()]
        while self.take("|"):
            branches.append(self.chain())
        self.fold, self.multiline, self.dot_all = flags
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
        low, high = self.bounds(found)
        if high is not None and high < low:
            raise self.wrong(f"{found[0]} runs backwards", start)
        lazy = self.take("?")
        possessive = not lazy and self.syntax.python and self.syntax.look and self.take("+")
        again = _QUANTIFIER.match(self.pattern, self.place)
        if again:
            raise self.wrong(f"{again[0]} repeats a repetition")
        return Repeat(node, low, high, lazy, possessive)

    @staticmethod
    def bounds(found: re.Match[str]) -> tuple[int, int | None]:
        if found[1] is None:
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[0]]
        low = min(int(found[1][:9]), 10**6)
        if found[2] is None:
            return low, low
        return low, min(int(found[3][:9]), 10**6) if found[3] else None

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
            return self.dot()
        if sign == "^":
            return Boundary("line-start" if self.multiline else "text-start")
        if sign == "$":
            return Boundary("line-end" if self.multiline else "text-end")
        if sign in "*+?" or (sign == "{" and _QUANTIFIER.match(self.pattern, start)):
            raise self.wrong(f"{sign} has nothing to repeat", start)
        return Char(sign, self.fold)

    def dot(self) -> Node:
        ends: tuple[Range, ...] = _JAVASCRIPT_LINE_ENDS if self.syntax.javascript else ((10, 10),)
        return Set(() if self.dot_all else ends, True, False)

    # ---- groups ----------------------------------------------------------------------------------------

    def group(self, start: int) -> Node | None:
        if not self.take("?"):
            return self.closed(start)
        if self.take(":"):
            return self.closed(start, captures=False)
        for opening, behind, negated in (("=", 0, 0), ("!", 0, 1), ("<=", 1, 0), ("<!", 1, 1)):
            if self.take(opening):
                self.looks(start, "look-around")
                return Lookaround(self.closed(start, captures=False).node, bool(behind), bool(negated))
        if self.syntax.python and self.take(">"):
            self.looks(start, "an atomic group")
            return Capture(self.closed(start, captures=False).node, captures=False, atomic=True)
        if self.syntax.python and self.take("P="):
            return self.named_back(start, ")")
        if self.take("<") or (self.syntax.python and self.take("P<")):
            return self.named(start)
        if self.syntax.python and self.take("#"):
            self.comment(start)
            return None
        return self.flagged(start)

    def looks(self, start: int, what: str) -> None:
        if not self.syntax.look:
            raise self.wrong(f"{what} cannot be searched for in linear time", start)

    def closed(self, start: int, *, captures: bool = True, name: str | None = None) -> Capture:
        node = self.choice()
        if not self.take(")"):
            raise self.wrong("this ( is never closed", start)
        return Capture(node, captures, name)

    def named(self, start: int) -> Capture:
        return self.closed(start, name=self.name(">"))

    def name(self, end: str) -> str:
        found = _NAME.match(self.pattern, self.place)
        if found is None or not self.pattern.startswith(end, found.end()):
            raise self.wrong("a name of letters and digits must stand here")
        self.place = found.end() + len(end)
        return found[0]

    def named_back(self, start: int, end: str) -> Backreference:
        self.looks(start, "a back reference")
        return Backreference(self.name(end), self.fold)

    def comment(self, start: int) -> None:
        end = self.pattern.find(")", self.place)
        if end < 0:
            raise self.wrong("this ( is never closed", start)
        self.place = end + 1

    def flagged(self, start: int) -> Node | None:
        """`(?i)`, `(?-i)` to the end of the group around it, or `(?i:…)` for what is inside."""
        found = _FLAGS.match(self.pattern, self.place)
        if found is None or (found[3] == ")" and not self.syntax.flags) or not (found[1] or found[2]):
            raise self.wrong("this kind of group is not known", start)
        self.place = found.end()
        before = self.fold, self.multiline, self.dot_all
        for letters, on in ((found[1], True), (found[2] or "", False)):
            self.fold = on if "i" in letters else self.fold
            self.multiline = on if "m" in letters else self.multiline
            self.dot_all = on if "s" in letters else self.dot_all
        if found[3] == ")":
            return None
        group = self.closed(start, captures=False)
        self.fold, self.multiline, self.dot_all = before
        return group

    # ---- escapes and classes ---------------------------------------------------------------------------

    def escape(self, start: int) -> Node:
        sign = self.sign_after_backslash(start)
        ascii_only = "" if self.syntax.unicode else "ascii-"
        if sign in "bB":
            return Boundary(ascii_only + ("word" if sign == "b" else "not-word"))
        if sign in "AzZ" and self.syntax.python:
            return Boundary("text-start" if sign == "A" else "text-end")
        if sign in "123456789":
            return self.numbered_back(start, sign)
        if sign == "k" and self.take("<"):
            return self.named_back(start, ">")
        item = self.item(start, sign)
        if isinstance(item, Named):
            return Set((item,), False, self.fold)
        return Char(chr(item), self.fold)

    def sign_after_backslash(self, start: int) -> str:
        if self.place == len(self.pattern):
            raise self.wrong("nothing follows the last backslash", start)
        self.place += 1
        return self.pattern[self.place - 1]

    def numbered_back(self, start: int, sign: str) -> Node:
        while self.place < len(self.pattern) and self.pattern[self.place] in "0123456789":
            sign += self.pattern[self.place]
            self.place += 1
        if int(sign[:6]) > self.total:
            if not self.syntax.javascript:
                raise self.wrong(f"there is no group {sign}", start)
            self.place = start + 2
            return Char(self.pattern[start + 1], self.fold)
        self.looks(start, "a back reference")
        return Backreference(int(sign[:6]), self.fold)

    def item(self, start: int, sign: str) -> int | Named:
        """What an escape means in a class and outside of one."""
        if sign in "dDwWsS":
            return Named(("" if self.syntax.unicode else "a") + sign.lower(), sign.isupper())
        if sign in "pP":
            return self.property(start, sign == "P")
        if sign in _CONTROLS and not (sign == "a" and self.syntax.javascript):
            return ord(_CONTROLS[sign])
        if sign in "xuU":
            return self.hexadecimal(start, sign)
        if sign == "0":
            return 0
        if sign == "c" and self.syntax.javascript and self.pattern[self.place : self.place + 1].isalpha():
            self.place += 1
            return ord(self.pattern[self.place - 1]) % 32
        if sign.isascii() and sign.isalnum() and not self.syntax.javascript:
            raise self.wrong(f"\\{sign} is not known", start)
        return ord(sign)

    def hexadecimal(self, start: int, sign: str) -> int:
        digits = {"x": 2, "u": 4, "U": 8}[sign]
        found = re.compile(rf"\{{([0-9A-Fa-f]{{1,8}})\}}|([0-9A-Fa-f]{{{digits}}})").match(self.pattern, self.place)
        if found is None:
            if self.syntax.javascript:
                return ord(sign)
            raise self.wrong(f"\\{sign} needs {digits} hexadecimal digits", start)
        self.place = found.end()
        code = int(found[1] or found[2], 16)
        if code > LAST or 0xD800 <= code < 0xE000:
            raise self.wrong(f"{found[0]} is no character", start)
        return code

    def property(self, start: int, negated: bool) -> Named | int:
        found = _PROPERTY.match(self.pattern, self.place)
        if found is None and self.syntax.javascript:
            return ord(self.pattern[self.place - 1])
        if found is None:
            raise self.wrong("\\p needs the name of a property, as in \\p{Greek}", start)
        self.place = found.end()
        return Named("p:" + (found[2] or found[3]), negated != bool(found[1]))

    def char_class(self, start: int) -> Set:
        negated = self.take("^")
        items: list[Range | Named] = []
        first = self.place
        while not (self.pattern.startswith("]", self.place) and (self.place > first or self.syntax.javascript)):
            if self.place >= len(self.pattern):
                raise self.wrong("this [ is never closed", start)
            items.extend(self.members())
        self.place += 1
        return Set(tuple(items), negated, self.fold)

    def members(self) -> list[Range | Named]:
        """One character, a range, or a class in a class."""
        posix = None if self.syntax.javascript else _POSIX.match(self.pattern, self.place)
        if posix:
            return self.posix(posix)
        start = self.place
        low = self.member()
        if isinstance(low, Named):
            return [low]
        if self.pattern[self.place : self.place + 1] != "-" or self.pattern[self.place + 1 : self.place + 2] in (
            "",
            "]",
        ):
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
        ranges = _POSIX_RANGES.get(found[2])
        if ranges is None:
            raise self.wrong(f"[:{found[2]}:] is not known")
        self.place = found.end()
        return list(complement(ranges) if found[1] else ranges)
