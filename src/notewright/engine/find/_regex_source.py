"""A pattern's tree written for the engines that run it, and the literal pieces every match must hold.

`for_re2` may be asked for less than the tree says (`relaxed`): what re2 cannot express is left out in a way that lets
more through, never less, and another engine judges what came through.
"""

import sys
from array import array
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import re2  # type: ignore[import-untyped]
import regex  # type: ignore[import-untyped]

from notewright.engine.find._regex_tree import (
    LAST,
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
    grown,
)
from notewright.errors import Invalid
from notewright.index.base import Needles

MAX_REPEAT = 1000  # re2's own bound
RE2_BYTES = 8 << 20  # for one pattern: its program and the states it keeps while it searches
_SPACES_OF_ALL: tuple[Range, ...] = (
    (9, 13),
    (32, 32),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
)
_RANGES: dict[str, tuple[Range, ...]] = {
    "ad": ((48, 57),),
    "aw": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "as": (*_SPACES_OF_ALL, (0xFEFF, 0xFEFF)),  # JavaScript's
    "s": (*_SPACES_OF_ALL, (0x85, 0x85)),
}
_OTHER_LETTERS = r"\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
_RE2_NAMED = {"d": r"\p{Nd}", "w": r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}" + _OTHER_LETTERS}  # as Unicode's word characters


class TooMuchForRe2(Exception):
    """The tree says something re2 cannot."""


def compile_re2(source: str, *, lines: bool = False, memory: int = RE2_BYTES) -> Any:
    """A pattern of re2's, or re2.error. Not by re2.compile, which keeps the last 128 with all the memory they took."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = lines
    options.max_mem = memory
    return re2._Regexp(source, options)


# ---- for re2 ------------------------------------------------------------------------------------------


def for_re2(node: Node, *, relaxed: bool) -> str:
    """The source for re2; `relaxed` lets more through where the exact cannot be said, else that is TooMuchForRe2."""
    everywhere = _folds(node) == {True}  # one flag in front keeps words whole, which re2 finds faster
    return ("(?i)" if everywhere else "") + _Re2(relaxed, each=not everywhere).node(node)


def _folds(node: Node) -> set[bool]:
    """Where case is ignored: everywhere, nowhere, or here and there. What has no case does not count."""
    match node:
        case Char(char, fold):
            return {fold} if _has_case(char) else set()
        case Set(items, _, fold):
            return {fold} if any(map(_item_has_case, items)) else set()
        case Chain(nodes) | Choice(nodes):
            return set().union(*map(_folds, nodes))
        case Capture(inner) | Repeat(inner) | Lookaround(inner):
            return _folds(inner)
    return set()


@dataclass(frozen=True, slots=True)
class _Re2:
    relaxed: bool
    each: bool  # where case is ignored is said at each place

    def node(self, node: Node) -> str:
        match node:
            case Char(char, fold):
                return self.folded(_code(ord(char)), fold and _has_case(char))
            case Set(_, _, fold):
                return self.folded(re2_set(node), fold)
            case Chain(nodes):
                return "".join(self.in_chain(nodes, place) for place in range(len(nodes)))
            case Choice(nodes):
                return "(?:" + "|".join(map(self.node, nodes)) + ")"
            case Capture(inner, _, _, atomic):
                return f"(?:{self.node(inner)})" if not atomic else self.instead(f"(?:{self.node(inner)})")
            case Repeat():
                return self.repeat(node)
            case Boundary():
                return self.edge(node.kind, before=False, after=False)
            case Lookaround():
                return self.instead("(?:)")
            case Backreference():
                return self.instead("(?s:.*)")

    def instead(self, source: str) -> str:
        """What lets more through than re2 can say, if that is asked for."""
        if not self.relaxed:
            raise TooMuchForRe2
        return source

    def folded(self, source: str, fold: bool) -> str:
        return f"(?i:{source})" if fold and self.each else source

    def in_chain(self, nodes: tuple[Node, ...], place: int) -> str:
        node = nodes[place]
        if not isinstance(node, Boundary):
            return self.node(node)
        before = place > 0 and _in_word(nodes[place - 1], first=False)
        after = place + 1 < len(nodes) and _in_word(nodes[place + 1], first=True)
        return self.edge(node.kind, before=before, after=after)

    def edge(self, kind: str, *, before: bool, after: bool) -> str:
        """`before` and `after`: a letter or digit of ASCII is sure to stand there. Then re2's `\\b`, which knows only
        ASCII, holds wherever the real one does. Texts are joined for the first look, so their ends are line ends."""
        if kind in _RE2_EDGES:
            exact, loose = _RE2_EDGES[kind]
            return loose if self.relaxed else exact
        if before or after:
            sure = kind == "word" or (kind == "left-free" and after) or (kind == "right-free" and before)
            return r"\b" if sure else self.edge(kind, before=False, after=False)
        if kind in ("word", "not-word") and not self.relaxed:
            return r"\b" if kind == "word" else r"\B"
        return self.instead("(?:)")

    def repeat(self, node: Repeat) -> str:
        low, high = node.low, node.high
        source = f"(?:{self.node(node.node)})" if not isinstance(node.node, Set) else self.node(node.node)
        lazy = "?" if node.lazy else ""
        if max(low, high or 0) <= MAX_REPEAT and not node.possessive:
            return source + times(low, high) + lazy
        return self.instead(source + times(min(low, MAX_REPEAT), None))


_RE2_EDGES = {  # the exact form and the relaxed one
    "line-start": ("(?m:^)", "(?m:^)"),
    "line-end": ("(?m:$)", "(?m:$)"),
    "text-start": (r"\A", "(?m:^)"),
    "text-end": (r"\z", "(?m:$)"),
    "ascii-word": (r"\b", r"\b"),
    "ascii-not-word": (r"\B", r"\B"),
}


def _in_word(node: Node, *, first: bool) -> bool:
    """Its first (or last) character is an ASCII letter, digit or underscore, in every match."""
    match node:
        case Char(char, fold):
            return char.isascii() and (char.isalnum() or char == "_") and not (fold and char in "sSkK")
        case Set(items, negated, fold):
            plain = [item for item in items if isinstance(item, tuple)]
            inside = all(any(low >= a and high <= b for a, b in _RANGES["aw"]) for low, high in plain)
            return bool(items) and len(plain) == len(items) and inside and not negated and not fold
        case Capture(inner):
            return _in_word(inner, first=first)
        case Repeat(inner, low):
            return low > 0 and _in_word(inner, first=first)
        case Chain(nodes):
            return bool(nodes) and _in_word(nodes[0 if first else -1], first=first)
        case Choice(nodes):
            return all(_in_word(branch, first=first) for branch in nodes)
    return False


def times(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if short:
        return short
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def _item_has_case(item: Range | Named) -> bool:
    if isinstance(item, Named):
        return item.name.startswith("p:")
    return item[1] - item[0] > 32 or any(_has_case(chr(code)) for code in range(item[0], item[1] + 1))


def _has_case(char: str) -> bool:
    return char.lower() != char or char.upper() != char or char.casefold() != char


def _code(code: int) -> str:
    char = chr(code)
    return char if char.isalnum() or code > 0xA0 else f"\\x{{{code:x}}}"


def re2_set(node: Set) -> str:
    items, negated = node.items, node.negated
    if not items:
        return "(?s:.)" if negated else r"[^\x{0}-\x{10ffff}]"
    if len(items) == 1 and isinstance(items[0], Named):
        items, negated = (Named(items[0].name),), negated != items[0].negated
    inside = "".join(_re2_item(item) for item in items)
    return f"[{'^' if negated else ''}{inside}]"


def _re2_item(item: Range | Named) -> str:
    if isinstance(item, tuple):
        return _span(item)
    name, short = item.name, _RE2_NAMED.get(item.name)
    if short and not (item.negated and name == "w"):
        return short if not item.negated else r"\P{Nd}"
    if name.startswith("p:") and _re2_knows(name[2:]):
        return f"\\{'P' if item.negated else 'p'}{{{name[2:]}}}"
    return "".join(map(_span, ranges_of(name, item.negated)))


def _span(span: Range) -> str:
    low, high = span
    return f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}"


@lru_cache(maxsize=128)
def _re2_knows(name: str) -> bool:
    try:
        compile_re2(f"\\p{{{name}}}")
    except re2.error:
        return False
    return True


@lru_cache(maxsize=32)
def ranges_of(name: str, negated: bool) -> tuple[Range, ...]:
    known = _RANGES.get(name)
    if known is None:
        known = _property_ranges(r"\w" if name == "w" else rf"\p{{{name[2:]}}}")
    return complement(known) if negated else known


def _property_ranges(source: str) -> tuple[Range, ...]:
    """By trying every character there is: a few hundredths of a second, once."""
    try:
        wanted = regex.compile(f"{source}+")
    except regex.error:
        raise Invalid(f"{source} names no property of characters", hint="one is \\p{Greek}", what="pattern") from None
    spans = (found.span() for found in wanted.finditer(_every_character()))
    return tuple((start + (start >= 0xD800) * 2048, end - 1 + (end > 0xD800) * 2048) for start, end in spans)


def _every_character() -> str:
    codes = array("I", range(0xD800))
    codes.extend(range(0xE000, LAST + 1))
    return codes.tobytes().decode("utf-32-le" if sys.byteorder == "little" else "utf-32-be")


# ---- sizes --------------------------------------------------------------------------------------------


def places(node: Node) -> int:
    """How large it grows where each place of it, and each member of a class, is written out."""
    return grown(node, lambda one: max(1, len(one.items)) if isinstance(one, Set) else 1)


def instructions(node: Node) -> int:
    """About the size of re2's program, before it is made: a class of Unicode's is a thousand instructions."""
    return grown(node, _instructions, MAX_REPEAT)


def _instructions(node: Node) -> int:
    if isinstance(node, Set):
        return _set_instructions(re2_set(node), node.fold)
    if isinstance(node, Char):
        return 6 if node.fold else len(node.char.encode(errors="replace"))
    return 1


@lru_cache(maxsize=128)
def _set_instructions(source: str, fold: bool) -> int:
    size: int = compile_re2(f"(?i:{source})" if fold else source).programsize
    return size


# ---- needles ------------------------------------------------------------------------------------------

MAX_MEMBERS = 32
Groups = tuple[tuple[str, ...], ...]


def needles_of(node: Node) -> Needles:
    """What every match must hold, case ignored: one member of every group. Nothing where nothing is sure."""
    return Needles(_required(node))


def _required(node: Node) -> Groups:
    match node:
        case Chain(nodes):
            return _required_by_chain(nodes)
        case Choice(nodes):
            return _required_by_choice(nodes)
        case Capture(inner):
            return _required(inner)
        case Repeat(inner, low):
            return _required(inner) if low > 0 else ()
        case _:
            return _required_by_chain((node,))


def _required_by_chain(nodes: tuple[Node, ...]) -> Groups:
    groups: list[tuple[str, ...]] = []
    for known, run in groupby(_flat(nodes), key=lambda node: _letter(node) is not None):
        members = list(run)
        if known:
            groups.append(("".join(_letter(node) or "" for node in members),))
        else:
            for node in members:
                groups.extend(
                    () if isinstance(node, Char | Set | Boundary | Lookaround | Backreference) else _required(node)
                )
    return tuple(dict.fromkeys(groups))


def _flat(nodes: tuple[Node, ...]) -> list[Node]:
    """Edges have no width: letters on both sides of one stand side by side. Plain groups open up."""
    flat: list[Node] = []
    for node in nodes:
        if isinstance(node, Boundary | Lookaround):
            continue
        inner = node.node if isinstance(node, Capture) else node
        flat.extend(_flat(inner.nodes) if isinstance(inner, Chain) else [inner])
    return flat


def _letter(node: Node) -> str | None:
    """The one character a node stands for, case ignored."""
    if isinstance(node, Char):
        return node.char
    if isinstance(node, Set) and not node.negated and 0 < len(node.items) <= 4:
        letters = {chr(item[0]) for item in node.items if isinstance(item, tuple) and item[0] == item[1]}
        if len({letter.lower() for letter in letters}) == 1 and all(
            isinstance(i, tuple) and i[0] == i[1] for i in node.items
        ):
            return letters.pop()
    return None


def _required_by_choice(nodes: tuple[Node, ...]) -> Groups:
    """One group that holds the best piece of every branch, if every branch has one."""
    best = [max(_required(branch), key=_worth, default=()) for branch in nodes]
    members = tuple(dict.fromkeys(member for group in best for member in group))
    return (members,) if all(best) and len(members) <= MAX_MEMBERS else ()


def _worth(group: tuple[str, ...]) -> tuple[int, int]:
    return min(map(len, group)), -len(group)
