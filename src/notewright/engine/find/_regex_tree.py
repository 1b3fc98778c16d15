"""What a regular expression says, as a tree: so that each engine gets exactly what the writer's dialect means.

`\\s`, `.`, `\\b`, `\\d`, `\\w`, `^` and `$` differ between dialects and between engines: `regex_reader` makes them
values that say what they are, and `regex_source` writes them for the engine that will run them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from notewright.errors import Invalid

MAX_LENGTH = 1000
LAST = 0x10FFFF
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Named:
    """A class with a name: `d`, `w`, `s` (with `a` before it: of ASCII), or a Unicode property."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Char:
    char: str
    fold: bool


@dataclass(frozen=True, slots=True)
class Set:
    """One character of these, or of all others."""

    items: tuple[Range | Named, ...]
    negated: bool
    fold: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place without width: line-start, line-end, text-start, text-end, word, not-word, with `ascii-` before the last
    two; left-free and right-free: no character of a word before, or after."""

    kind: str


@dataclass(frozen=True, slots=True)
class Lookaround:
    node: "Node"
    behind: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Backreference:
    """What a group matched, again."""

    group: int | str
    fold: bool


@dataclass(frozen=True, slots=True)
class Capture:
    node: "Node"
    captures: bool = True
    name: str | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    node: "Node"
    low: int
    high: int | None
    lazy: bool = False
    possessive: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    nodes: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    nodes: tuple["Node", ...]


Node = Char | Set | Boundary | Lookaround | Backreference | Capture | Repeat | Chain | Choice


def inner_nodes(node: Node) -> tuple[Node, ...]:
    match node:
        case Chain(nodes) | Choice(nodes):
            return nodes
        case Capture(inner) | Repeat(inner) | Lookaround(inner):
            return (inner,)
    return ()


def grown(node: Node, weigh: Callable[[Node], int], most: int | None = None) -> int:
    """The weight of all nodes when every counted repetition is written out, as engines do; `most` times at most."""
    inside = sum(grown(inner, weigh, most) for inner in inner_nodes(node))
    if isinstance(node, Repeat):
        count = max(1, node.low, node.high or 0)
        inside *= count if most is None else min(count, most)
    return weigh(node) + inside


def literal(text: str, *, ignore_case: bool) -> Node:
    """The tree that matches exactly this text."""
    if len(text) > MAX_LENGTH:
        raise Invalid(f"the text to look for is longer than {MAX_LENGTH} characters", what="pattern")
    return Chain(tuple(Char(char, ignore_case) for char in text))


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Every character outside of these ranges."""
    rest, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            rest.append((at, low - 1))
        at = max(at, high + 1)
    return (*rest, (at, LAST)) if at <= LAST else tuple(rest)
