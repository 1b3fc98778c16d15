"""Writes a pattern's tree as source for the engines that run it, and finds the literal pieces every match must hold.

`to_re2_source(relaxed=True)` replaces what re2 cannot express with something that matches more, never less; the `regex`
module then checks what re2 let through. `regex` backtracks: it keeps a place to go back to for every turn of a
repetition, with all remembered groups. `count_pushes` says how many that can be for each character of a text.
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
    MAX_CODE_POINT,
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
    walk,
    weigh_expanded,
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
_ASCII_WORD = "[0-9A-Za-z_]"
# Source for `regex`, for re2 (None: re2 cannot express it) and for relaxed re2, which may match more. Texts are joined
# for the relaxed search, so there the ends of a text are ends of lines.
_BOUNDARIES: dict[str, tuple[str, str | None, str]] = {
    "line-start": (r"(?<![^\n])", "(?m:^)", "(?m:^)"),
    "line-end": (r"(?![^\n])", "(?m:$)", "(?m:$)"),
    "text-start": (r"\A", r"\A", "(?m:^)"),
    "text-end": (r"\Z", r"\z", "(?m:$)"),
    "word": (r"\b", r"\b", ""),  # re2's own `\b` knows only ASCII
    "not-word": (r"\B", r"\B", ""),
    "ascii-word": (rf"(?:(?<={_ASCII_WORD})(?!{_ASCII_WORD})|(?<!{_ASCII_WORD})(?={_ASCII_WORD}))", r"\b", r"\b"),
    "ascii-not-word": (rf"(?:(?<={_ASCII_WORD})(?={_ASCII_WORD})|(?<!{_ASCII_WORD})(?!{_ASCII_WORD}))", r"\B", r"\B"),
    "left-free": (r"(?<!\w)", None, ""),
    "right-free": (r"(?!\w)", None, ""),
}


class TooMuchForRe2(Exception):
    """The tree holds something that re2 cannot express."""


def compile_re2(source: str, *, lines: bool = False, memory: int = RE2_BYTES) -> Any:
    """Compile a pattern, or raise re2.error. Not by re2.compile, which caches the last 128 with all their memory."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = lines
    options.max_mem = memory
    return re2._Regexp(source, options)


def to_re2_source(node: Node, *, relaxed: bool, write_set: "Callable[[Set], str] | None" = None) -> str:
    """The source for re2. Where re2 cannot express the tree: `relaxed` matches more, otherwise TooMuchForRe2.
    `write_set` writes classes for some texts only."""
    everywhere = all(inner.fold for inner in walk(node) if isinstance(inner, Set))
    writer = _Re2Writer(relaxed, each=not everywhere, write_set=write_set or write_re2_set)
    # one flag in front keeps literal words whole, which re2 finds faster
    return ("(?i)" if everywhere else "") + writer.write(node)


def to_regex_source(node: Node) -> str:
    """The source for the `regex` module, which can express every tree. Invalid for a reference to a missing group."""
    return _RegexWriter(node).write(node)


class _Re2Writer:
    def __init__(self, relaxed: bool, *, each: bool, write_set: Callable[[Set], str]) -> None:
        self.relaxed = relaxed
        self.each = each  # write `(?i:…)` at each place: not all of the pattern ignores case
        self.write_set = write_set

    def write(self, node: Node) -> str:
        match node:
            case Set(_, _, fold):
                return f"(?i:{self.write_set(node)})" if fold and self.each else self.write_set(node)
            case Chain(nodes):
                return "".join(self.write_in_chain(nodes, place) for place in range(len(nodes)))
            case Choice(nodes):
                return "(?:" + "|".join(map(self.write, nodes)) + ")"
            case Capture(inner):
                return self.write(inner)
            case Atomic(inner):
                return self.write_relaxed(self.write(inner))
            case Repeat(inner, low, high, lazy):
                source = f"(?:{self.write(inner)})"
                if max(low, high or 0) > MAX_REPEAT:
                    return self.write_relaxed(source + _write_quantifier(min(low, MAX_REPEAT), None))
                return source + _write_quantifier(low, high) + ("?" if lazy else "")
            case Boundary(kind):
                _, exact, loose = _BOUNDARIES[kind]
                return self.write_relaxed(loose) if self.relaxed or exact is None else exact
            case Lookaround():
                return self.write_relaxed("")
            case Backreference():
                return self.write_relaxed("(?s:.*)")

    def write_relaxed(self, source: str) -> str:
        """Return source that matches more than the tree, or raise TooMuchForRe2 unless `relaxed`."""
        if not self.relaxed:
            raise TooMuchForRe2
        return source

    def write_in_chain(self, nodes: tuple[Node, ...], place: int) -> str:
        """Write one node, a boundary as `\\b` where that is safe: beside an ASCII letter or digit re2's `\\b` matches
        wherever the Unicode boundary does. Not beside s and k, which stand for ſ and K when case is ignored."""
        node = nodes[place]
        if isinstance(node, Boundary) and (self.relaxed or _BOUNDARIES[node.kind][1] is None):
            before = nodes[place - 1 : place] if node.kind in ("word", "right-free") else ()
            after = nodes[place + 1 : place + 2] if node.kind in ("word", "left-free") else ()
            letters = [_letter_ignoring_case(each) or " " for each in before + after]
            if any(re.match(r"\w(?<![sk])" if self.relaxed else r"\w", letter, re.A | re.I) for letter in letters):
                return r"\b"
        return self.write(node)


class _RegexWriter:
    """Writes a tree from left to right, the order in which groups are numbered. Only groups that something refers to
    capture; they get names, since their numbers change when the others do not capture."""

    def __init__(self, node: Node) -> None:
        self.names = [each.name for each in walk(node) if isinstance(each, Capture)]
        self.referenced = {self.get_number(each.group) for each in walk(node) if isinstance(each, Backreference)}
        self.groups_seen = 0

    def get_number(self, group: int | str) -> int:
        """The number of a group; groups that share a name have the number of the first."""
        if isinstance(group, int) and group <= len(self.names):
            name = self.names[group - 1]
            return self.names.index(name) + 1 if name else group
        if group not in self.names:
            raise Invalid(f"not a regular expression: there is no group {group}", what="pattern")
        return self.names.index(str(group)) + 1

    def write(self, node: Node) -> str:
        match node:
            case Set(_, _, fold):
                return _wrap_fold(_write_regex_set(node), fold)
            case Chain(nodes):
                return "".join(map(self.write, nodes))
            case Choice(nodes):
                return "(?:" + "|".join(map(self.write, nodes)) + ")"
            case Capture(inner):
                self.groups_seen += 1
                number = self.get_number(self.groups_seen)
                return f"(?{f'P<g{number}>' if number in self.referenced else ':'}{self.write(inner)})"
            case Atomic(inner):
                return f"(?>{self.write(inner)})"
            case Repeat(inner, low, high, lazy):
                return f"(?:{self.write(inner)}){_write_quantifier(low, high)}" + ("?" if lazy else "")
            case Boundary(kind):
                return _BOUNDARIES[kind][0]
            case Lookaround(inner, behind, negated):
                return f"(?{'<' if behind else ''}{'!' if negated else '='}{self.write(inner)})"
            case Backreference(group, fold):
                name = f"g{self.get_number(group)}"
                return f"(?({name}){_wrap_fold(f'(?P={name})', fold)}|)"  # unset: empty, as in JavaScript


def _wrap_fold(source: str, fold: bool) -> str:
    return f"(?i:{source})" if fold else source


def _write_quantifier(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    if short:
        return short
    return f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"


def letter_of(node: Node) -> str | None:
    """The character a node stands for, or None unless it is exactly one."""
    if isinstance(node, Set) and not node.negated and len(node.items) == 1 and isinstance(node.items[0], tuple):
        low, high = node.items[0]
        return chr(low) if low == high else None
    return None


def _letter_ignoring_case(node: Node) -> str | None:
    """The character a node stands for when case is ignored, or None unless it is exactly one."""
    if not isinstance(node, Set) or node.negated:
        return None
    letters = [letter_of(Set((item,), False, node.fold)) or "" for item in node.items]
    return letters[0] if len({letter.lower() for letter in letters}) == 1 and all(letters) else None


# ---- classes of characters ----------------------------------------------------------------------------


def write_re2_set(node: Set) -> str:
    items, negated = node.items, node.negated
    if not items:
        return "(?s:.)" if negated else r"[^\x{0}-\x{10ffff}]"
    if len(items) == 1 and isinstance(items[0], Named):
        items, negated = (Named(items[0].name),), negated != items[0].negated
    elif (letter := letter_of(node)) is not None:
        return letter if letter.isalnum() or letter > "\xa0" else f"\\x{{{ord(letter):x}}}"
    if node.fold and (not_word := Named("aw", True)) in items:  # case ignored, re2 takes ſ and K for s and k
        beyond = complement((*_RANGES["aw"], (0x17F, 0x17F), (0x212A, 0x212A)))
        items = (*(item for item in items if item != not_word), *beyond)
    return f"[{'^' if negated else ''}{''.join(map(_write_re2_item, items))}]"


def write_ascii_set(node: Set) -> str:
    """Like `write_re2_set`, but named classes hold their characters in ASCII and every one beyond it. That matches the
    same in ASCII text, at least as much in any other, and is compiled in a hundredth of the time. Where case is
    ignored, ſ and K belong to s and k: not added here."""
    if not any(isinstance(item, Named) for item in node.items):
        return write_re2_set(node)
    ranges = _list_ascii_ranges(node)
    if not node.negated:
        ranges += [(0x80, 0x17E), (0x180, 0x2129), (0x212B, MAX_CODE_POINT)]
        ranges += [] if node.fold else [(0x17F, 0x17F), (0x212A, 0x212A)]
    return _write_ranges(ranges, node.negated)


def write_narrow_set(letters: str, node: Set) -> str:
    """Like `write_re2_set`, for texts that hold these characters and ASCII alone; compiled as quickly as
    `write_ascii_set`."""
    if not any(isinstance(item, Named) for item in node.items):
        return write_re2_set(node)
    held = [(ord(letter), ord(letter)) for letter in letters if _is_in_set(node, letter) != node.negated]
    return _write_ranges([*_list_ascii_ranges(node), *held], node.negated)


@lru_cache(maxsize=4_096)
def _is_in_set(node: Set, letter: str) -> bool:
    data = letter.encode()
    return bool(_compile_set(node)._regexp.Match(re2._Anchor.ANCHOR_START, data, 0, len(data))[0][0] == 0)


@lru_cache(maxsize=32)
def _compile_set(node: Set) -> Any:
    return compile_re2(("(?i)" if node.fold else "") + write_re2_set(node))


def _list_ascii_ranges(node: Set) -> list[Range]:
    """The ranges of a set, of its named classes those in ASCII."""
    return [pair for item in node.items for pair in (_ascii_ranges(item) if isinstance(item, Named) else (item,))]


def _write_ranges(ranges: list[Range], negated: bool) -> str:
    return write_re2_set(Set(tuple(ranges), negated, False))


def _ascii_ranges(item: Named) -> Iterator[Range]:
    ranges = _RANGES.get(f"a{item.name}") or _RANGES.get(item.name)
    if ranges is None:
        raise TooMuchForRe2
    for low, high in complement(ranges) if item.negated else ranges:
        if low < 0x80:
            yield low, min(high, 0x7F)


def _write_re2_item(item: Range | Named) -> str:
    if isinstance(item, tuple):
        return "-".join(f"\\x{{{code:x}}}" for code in dict.fromkeys(item))
    name, short = item.name, _RE2_NAMED.get(item.name)
    if short and not (item.negated and name == "w"):
        return short if not item.negated else r"\P{Nd}"
    if name.startswith("p:") and _is_known_to_re2(name[2:]):
        return f"\\{'P' if item.negated else 'p'}{{{name[2:]}}}"
    return "".join(map(_write_re2_item, _list_ranges(name, item.negated)))


@lru_cache(maxsize=128)
def _is_known_to_re2(name: str) -> bool:
    try:
        compile_re2(f"\\p{{{name}}}")
    except re2.error:
        return False
    return True


def _write_regex_set(node: Set) -> str:
    if not node.items:
        return r"(?s:.)" if node.negated else "(?!)"
    inside = "".join(map(_write_regex_item, node.items))
    if node.negated and len(node.items) == 1 and isinstance(node.items[0], tuple):
        inside *= 2  # regex wrongly joins [^a]|[^b] into [^ab], but only where each is one character: so write it twice
    return f"[{'^' if node.negated else ''}{inside}]"


def _write_regex_item(item: Range | Named) -> str:
    if isinstance(item, tuple):
        return "-".join(f"\\U{code:08x}" for code in dict.fromkeys(item))
    if item.name.startswith("p:"):
        return f"\\{'P' if item.negated else 'p'}{{{item.name[2:]}}}"
    if item.name in ("d", "w"):
        return "\\" + (item.name.upper() if item.negated else item.name)
    return "".join(map(_write_regex_item, _list_ranges(item.name, item.negated)))


@lru_cache(maxsize=32)
def _list_ranges(name: str, negated: bool) -> tuple[Range, ...]:
    known = _RANGES.get(name) or _find_property_ranges(r"\w" if name == "w" else rf"\p{{{name[2:]}}}")
    return complement(known) if negated else known


def _find_property_ranges(source: str) -> tuple[Range, ...]:
    """Find the characters of a class by trying every character there is: a few hundredths of a second, then cached."""
    try:
        wanted = regex.compile(f"{source}+")
    except regex.error:
        raise Invalid(f"{source} names no property of characters", hint="one is \\p{Greek}", what="pattern") from None
    codes = array("I", range(0xD800))
    codes.extend(range(0xE000, MAX_CODE_POINT + 1))
    every = codes.tobytes().decode("utf-32-le" if sys.byteorder == "little" else "utf-32-be")
    spans = (found.span() for found in wanted.finditer(every))
    return tuple((start + (start >= 0xD800) * 2048, end - 1 + (end > 0xD800) * 2048) for start, end in spans)


# ---- sizes --------------------------------------------------------------------------------------------


def count_places(node: Node) -> int:
    """The size of a pattern when every repetition and every member of a class is written out."""
    return weigh_expanded(node, lambda inner: max(1, len(inner.items)) if isinstance(inner, Set) else 1)


def count_pushes(node: Node) -> int:
    """How many places to go back to `regex` may keep for each character of a text; 0 where every unbounded repetition
    repeats a single character."""
    if all(_is_single(each.node) for each in walk(node) if isinstance(each, Repeat) and each.high is None):
        return 0
    groups = len({each.group for each in walk(node) if isinstance(each, Backreference)})

    def count_own(each: Node) -> int:
        return 1 + groups if isinstance(each, Repeat | Lookaround) else int(isinstance(each, Choice | Capture | Atomic))

    return weigh_expanded(node, count_own)


def _is_single(node: Node) -> bool:
    while isinstance(node, Chain) and len(node.nodes) == 1:
        node = node.nodes[0]
    return isinstance(node, Set)


# ---- needles ------------------------------------------------------------------------------------------

MAX_MEMBERS = 32  # of one group
Groups = tuple[tuple[str, ...], ...]


def find_required(node: Node) -> Groups:
    """Groups of texts: every match holds, case ignored, one member of each. Empty where nothing is certain."""
    groups: list[tuple[str, ...]] = []
    run = ""
    for inner in (*_flatten(node), None):
        letter = None if inner is None else _letter_ignoring_case(inner)
        if letter is not None:
            run += letter
            continue
        groups += [(run,)] if run else []
        run = ""
        if isinstance(inner, Choice):
            groups += _find_required_by_choice(inner.nodes)
        elif isinstance(inner, Repeat) and inner.low > 0:
            groups += find_required(inner.node)
    return tuple(dict.fromkeys(groups))


def _flatten(node: Node) -> Iterator[Node]:
    """Nodes with groups opened and boundaries left out: they have no width, so letters beside one are adjacent."""
    if isinstance(node, Chain | Capture | Atomic):
        for inner in node.nodes if isinstance(node, Chain) else (node.node,):
            yield from _flatten(inner)
    elif not isinstance(node, Boundary | Lookaround):
        yield node


def _find_required_by_choice(nodes: tuple[Node, ...]) -> Groups:
    """One group with the best piece of every branch, if every branch has one."""
    groups = map(find_required, nodes)
    best = [max(each, key=lambda group: (min(map(len, group)), -len(group)), default=()) for each in groups]
    members = tuple(dict.fromkeys(member for group in best for member in group))
    return (members,) if all(best) and len(members) <= MAX_MEMBERS else ()
