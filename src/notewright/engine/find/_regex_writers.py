"""A pattern's tree written for the engines that run it, and the literal pieces every match must hold.

`for_re2` may be asked for less than the tree says (`relaxed`): what re2 cannot express is left out in a way that lets
more through, never less, and the `regex` module checks what came through. That one keeps a place to go back to for
every turn of a repetition, with all groups it remembers: `pushes` says how much that is for each character of a text.
"""

import re
import sys
from array import array
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]
import regex  # type: ignore[import-untyped]

from notewright.engine.find._regex_reader import (
    LAST,
    Atomic,
    Backreference,
    Boundary,
    Capture,
    Chain,
    Choice,
    Lookaround,
    Named,
    Node,
    Range,
    Repeat,
    Set,
    complement,
    grown,
    walk,
)
from notewright.errors import Invalid

MAX_REPEAT = 1000  # re2's own bound
RE2_BYTES = 8 << 20  # for one pattern: its program and the states it keeps while it searches
_SPACES: tuple[Range, ...] = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
_RANGES: dict[str, tuple[Range, ...]] = {
    "ad": ((48, 57),),
    "aw": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "as": (*_SPACES, (0xFEFF, 0xFEFF)),  # JavaScript's
    "s": (*_SPACES, (0x85, 0x85)),
}
_OTHER_LETTERS = r"\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}"
_RE2_NAMED = {"d": r"\p{Nd}", "w": r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}" + _OTHER_LETTERS}  # as Unicode's word characters
_W = "[0-9A-Za-z_]"
# For `regex`, for re2 (None: it cannot say that) and for re2 where it may let more through. Texts are joined for the
# first look, so there their ends are line ends.
_EDGES: dict[str, tuple[str, str | None, str]] = {
    "line-start": (r"(?<![^\n])", "(?m:^)", "(?m:^)"),
    "line-end": (r"(?![^\n])", "(?m:$)", "(?m:$)"),
    "text-start": (r"\A", r"\A", "(?m:^)"),
    "text-end": (r"\Z", r"\z", "(?m:$)"),
    "word": (r"\b", r"\b", ""),  # re2's own knows only ASCII
    "not-word": (r"\B", r"\B", ""),
    "ascii-word": (rf"(?:(?<={_W})(?!{_W})|(?<!{_W})(?={_W}))", r"\b", r"\b"),
    "ascii-not-word": (rf"(?:(?<={_W})(?={_W})|(?<!{_W})(?!{_W}))", r"\B", r"\B"),
    "left-free": (r"(?<!\w)", None, ""),
    "right-free": (r"(?!\w)", None, ""),
}


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


def for_re2(node: Node, *, relaxed: bool, ascii_classes: bool = False) -> str:
    """The source for re2; `relaxed` lets more through where the exact cannot be said, else that is TooMuchForRe2.

    `ascii_classes`: `\\w`, `\\d` and `\\s` hold what they hold of ASCII, and everything beyond. That is the same in
    ASCII text, finds all there is to find in any other, and is compiled in a hundredth of the time.
    """
    everywhere = all(one.fold for one in walk(node) if isinstance(one, Set))
    writer = _Re2Writer(relaxed, each=not everywhere, write_set=_ascii_set if ascii_classes else _re2_set)
    # one flag in front keeps words whole, which re2 finds faster
    return ("(?i)" if everywhere else "") + writer.node(node)


def for_regex(node: Node) -> str:
    """The source for the `regex` module: everything the tree says. Invalid for a group that is not there."""
    return _RegexWriter(node).node(node)


class _Re2Writer:
    def __init__(self, relaxed: bool, *, each: bool, write_set: Callable[[Set], str]) -> None:
        self.relaxed = relaxed
        self.each = each  # where case is ignored is said at each place
        self.write_set = write_set

    def node(self, node: Node) -> str:
        match node:
            case Set(_, _, fold):
                return f"(?i:{self.write_set(node)})" if fold and self.each else self.write_set(node)
            case Chain(nodes):
                return "".join(self.in_chain(nodes, place) for place in range(len(nodes)))
            case Choice(nodes):
                return "(?:" + "|".join(map(self.node, nodes)) + ")"
            case Capture(inner):
                return self.node(inner)
            case Atomic(inner):
                return self.instead(self.node(inner))
            case Repeat(inner, low, high, lazy):
                source = f"(?:{self.node(inner)})"
                if max(low, high or 0) > MAX_REPEAT:
                    return self.instead(source + _times(min(low, MAX_REPEAT), None))
                return source + _times(low, high) + ("?" if lazy else "")
            case Boundary(kind):
                _, exact, loose = _EDGES[kind]
                return self.instead(loose) if self.relaxed or exact is None else exact
            case Lookaround():
                return self.instead("")
            case Backreference():
                return self.instead("(?s:.*)")

    def instead(self, source: str) -> str:
        """What lets more through than the tree says, if that is asked for."""
        if not self.relaxed:
            raise TooMuchForRe2
        return source

    def in_chain(self, nodes: tuple[Node, ...], place: int) -> str:
        """Beside a letter or digit of ASCII re2's `\\b` holds wherever the real boundary does; but s and k may
        stand for ſ and K, case ignored."""
        node = nodes[place]
        if isinstance(node, Boundary) and (self.relaxed or _EDGES[node.kind][1] is None):
            before = nodes[place - 1 : place] if node.kind in ("word", "right-free") else ()
            after = nodes[place + 1 : place + 2] if node.kind in ("word", "left-free") else ()
            letters = [_letter(one) or " " for one in before + after]
            if any(re.match(r"\w(?<![sk])" if self.relaxed else r"\w", one, re.A | re.I) for one in letters):
                return r"\b"
        return self.node(node)


class _RegexWriter:
    """One pass over a tree, from left to right, as groups are numbered. No group is remembered that nothing refers to;
    the others get names, since their numbers change."""

    def __init__(self, node: Node) -> None:
        self.names = [one.name for one in walk(node) if isinstance(one, Capture)]
        self.kept = {self.number(one.group) for one in walk(node) if isinstance(one, Backreference)}
        self.seen = 0

    def number(self, group: int | str) -> int:
        """Groups that share a name share the number of the first."""
        if isinstance(group, int) and group <= len(self.names):
            name = self.names[group - 1]
            return self.names.index(name) + 1 if name else group
        if group not in self.names:
            raise Invalid(f"not a regular expression: there is no group {group}", what="pattern")
        return self.names.index(str(group)) + 1

    def node(self, node: Node) -> str:
        match node:
            case Set(_, _, fold):
                return _folded(_regex_set(node), fold)
            case Chain(nodes):
                return "".join(map(self.node, nodes))
            case Choice(nodes):
                return "(?:" + "|".join(map(self.node, nodes)) + ")"
            case Capture(inner):
                self.seen += 1
                number = self.number(self.seen)
                return f"(?{f'P<g{number}>' if number in self.kept else ':'}{self.node(inner)})"
            case Atomic(inner):
                return f"(?>{self.node(inner)})"
            case Repeat(inner, low, high, lazy):
                return f"(?:{self.node(inner)}){_times(low, high)}" + ("?" if lazy else "")
            case Boundary(kind):
                return _EDGES[kind][0]
            case Lookaround(inner, behind, negated):
                return f"(?{'<' if behind else ''}{'!' if negated else '='}{self.node(inner)})"
            case Backreference(group, fold):
                name = f"g{self.number(group)}"
                return f"(?({name}){_folded(f'(?P={name})', fold)}|)"  # what took no part is nothing, as in JavaScript


def _folded(source: str, fold: bool) -> str:
    return f"(?i:{source})" if fold else source


def _times(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if short:
        return short
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def letter_of(node: Node) -> str | None:
    """The character a node stands for, if it is a single one."""
    if isinstance(node, Set) and not node.negated and len(node.items) == 1 and isinstance(node.items[0], tuple):
        low, high = node.items[0]
        return chr(low) if low == high else None
    return None


def _letter(node: Node) -> str | None:
    """The one character a node stands for, case ignored."""
    if not isinstance(node, Set) or node.negated:
        return None
    letters = [letter_of(Set((item,), False, node.fold)) or "" for item in node.items]
    return letters[0] if len({letter.lower() for letter in letters}) == 1 and all(letters) else None


# ---- classes of characters ----------------------------------------------------------------------------


def _re2_set(node: Set) -> str:
    items, negated = node.items, node.negated
    if not items:
        return "(?s:.)" if negated else r"[^\x{0}-\x{10ffff}]"
    if len(items) == 1 and isinstance(items[0], Named):
        items, negated = (Named(items[0].name),), negated != items[0].negated
    elif (letter := letter_of(node)) is not None:
        return letter if letter.isalnum() or letter > "\xa0" else f"\\x{{{ord(letter):x}}}"
    if node.fold and (not_word := Named("aw", True)) in items:  # case ignored, re2 takes ſ and K for s and k
        beyond = complement((*_RANGES["aw"], (0x17F, 0x17F), (0x212A, 0x212A)))
        items = (*(item for item in items if item != not_word), *beyond)
    return f"[{'^' if negated else ''}{''.join(map(_re2_item, items))}]"


def _ascii_set(node: Set) -> str:
    """As `_re2_set`, for `ascii_classes`. Case ignored, ſ and K are s and k: they come in with these or not at all."""
    if not any(isinstance(item, Named) for item in node.items):
        return _re2_set(node)
    ranges = [one for item in node.items for one in (_ascii_ranges(item) if isinstance(item, Named) else (item,))]
    if not node.negated:
        ranges += [(0x80, 0x17E), (0x180, 0x2129), (0x212B, LAST)]
        ranges += [] if node.fold else [(0x17F, 0x17F), (0x212A, 0x212A)]
    return f"[{'^' if node.negated else ''}{''.join(map(_re2_item, ranges))}]"


def _ascii_ranges(item: Named) -> Iterator[Range]:
    ranges = _RANGES.get(f"a{item.name}") or _RANGES.get(item.name)
    if ranges is None:
        raise TooMuchForRe2
    for low, high in complement(ranges) if item.negated else ranges:
        if low < 0x80:
            yield low, min(high, 0x7F)


def _re2_item(item: Range | Named) -> str:
    if isinstance(item, tuple):
        return "-".join(f"\\x{{{code:x}}}" for code in dict.fromkeys(item))
    name, short = item.name, _RE2_NAMED.get(item.name)
    if short and not (item.negated and name == "w"):
        return short if not item.negated else r"\P{Nd}"
    if name.startswith("p:") and _re2_knows(name[2:]):
        return f"\\{'P' if item.negated else 'p'}{{{name[2:]}}}"
    return "".join(map(_re2_item, _ranges_of(name, item.negated)))


@lru_cache(maxsize=128)
def _re2_knows(name: str) -> bool:
    try:
        compile_re2(f"\\p{{{name}}}")
    except re2.error:
        return False
    return True


def _regex_set(node: Set) -> str:
    if not node.items:
        return r"(?s:.)" if node.negated else "(?!)"
    inside = "".join(map(_regex_item, node.items))
    if node.negated and len(node.items) == 1 and isinstance(node.items[0], tuple):
        inside *= 2  # regex makes [^ab] of [^a]|[^b]; it leaves alone what is not one character
    return f"[{'^' if node.negated else ''}{inside}]"


def _regex_item(item: Range | Named) -> str:
    if isinstance(item, tuple):
        return "-".join(f"\\U{code:08x}" for code in dict.fromkeys(item))
    if item.name.startswith("p:"):
        return f"\\{'P' if item.negated else 'p'}{{{item.name[2:]}}}"
    if item.name in ("d", "w"):
        return "\\" + (item.name.upper() if item.negated else item.name)
    return "".join(map(_regex_item, _ranges_of(item.name, item.negated)))


@lru_cache(maxsize=32)
def _ranges_of(name: str, negated: bool) -> tuple[Range, ...]:
    known = _RANGES.get(name) or _property_ranges(r"\w" if name == "w" else rf"\p{{{name[2:]}}}")
    return complement(known) if negated else known


def _property_ranges(source: str) -> tuple[Range, ...]:
    """By trying every character there is: a few hundredths of a second, once."""
    try:
        wanted = regex.compile(f"{source}+")
    except regex.error:
        raise Invalid(f"{source} names no property of characters", hint="one is \\p{Greek}", what="pattern") from None
    codes = array("I", range(0xD800))
    codes.extend(range(0xE000, LAST + 1))
    every = codes.tobytes().decode("utf-32-le" if sys.byteorder == "little" else "utf-32-be")
    spans = (found.span() for found in wanted.finditer(every))
    return tuple((start + (start >= 0xD800) * 2048, end - 1 + (end > 0xD800) * 2048) for start, end in spans)


# ---- sizes --------------------------------------------------------------------------------------------


def places(node: Node) -> int:
    """How large it grows where each place of it, and each member of a class, is written out."""
    return grown(node, lambda one: max(1, len(one.items)) if isinstance(one, Set) else 1)


def pushes(node: Node) -> int:
    """How many places to go back to `regex` may keep for each character of a text; none where no repetition without an
    end goes round more than single characters."""
    if not any(isinstance(one, Repeat) and one.high is None and not _single(one.node) for one in walk(node)):
        return 0
    kept = len({one.group for one in walk(node) if isinstance(one, Backreference)})

    def pushed(one: Node) -> int:
        return 1 + kept if isinstance(one, Repeat | Lookaround) else int(isinstance(one, Choice | Capture | Atomic))

    return grown(node, pushed)


def _single(node: Node) -> bool:
    while isinstance(node, Chain) and len(node.nodes) == 1:
        node = node.nodes[0]
    return isinstance(node, Set)


# ---- needles ------------------------------------------------------------------------------------------

MAX_MEMBERS = 32
Groups = tuple[tuple[str, ...], ...]


def required(node: Node) -> Groups:
    """What every match must hold, case ignored: one member of every group. Nothing where nothing is sure."""
    groups: list[tuple[str, ...]] = []
    run = ""
    for one in (*_flat(node), None):
        letter = None if one is None else _letter(one)
        if letter is not None:
            run += letter
            continue
        groups += [(run,)] if run else []
        run = ""
        if isinstance(one, Choice):
            groups += _required_by_choice(one.nodes)
        elif isinstance(one, Repeat) and one.low > 0:
            groups += required(one.node)
    return tuple(dict.fromkeys(groups))


def _flat(node: Node) -> Iterator[Node]:
    """Edges have no width: letters on both sides of one stand side by side. Groups open up."""
    if isinstance(node, Chain | Capture | Atomic):
        for inner in node.nodes if isinstance(node, Chain) else (node.node,):
            yield from _flat(inner)
    elif not isinstance(node, Boundary | Lookaround):
        yield node


def _required_by_choice(nodes: tuple[Node, ...]) -> Groups:
    """One group that holds the best piece of every branch, if every branch has one."""
    best = [
        max(required(branch), key=lambda group: (min(map(len, group)), -len(group)), default=()) for branch in nodes
    ]
    members = tuple(dict.fromkeys(member for group in best for member in group))
    return (members,) if all(best) and len(members) <= MAX_MEMBERS else ()
