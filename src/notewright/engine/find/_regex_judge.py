"""A pattern's tree written for the `regex` module, which backtracks, and what that costs it in memory.

It keeps a place to go back to for every turn of a repetition, with all groups that are remembered. So no group is
remembered that nothing refers to, and `pushes` says how much is kept for each character of a text.
"""

import regex  # type: ignore[import-untyped]

from notewright.engine.find._regex_source import ranges_of, times
from notewright.engine.find._regex_tree import (
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
    grown,
    inner_nodes,
)
from notewright.errors import Invalid

PUSH_BYTES = 64  # kept for one push; 50 to 60 were measured

_EDGES = {
    "line-start": r"(?<![^\n])",
    "line-end": r"(?![^\n])",
    "text-start": r"\A",
    "text-end": r"\Z",
    "word": r"\b",
    "not-word": r"\B",
    "ascii-word": r"(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))",
    "ascii-not-word": r"(?:(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<![0-9A-Za-z_])(?![0-9A-Za-z_]))",
    "left-free": r"(?<!\w)",
    "right-free": r"(?!\w)",
}


def for_regex(node: Node) -> str:
    """The source for the `regex` module: everything the tree says. Invalid for a group that is not there."""
    return _RegexWriter(node).node(node)


def _captured(node: Node) -> list[Capture]:
    """In the order of their numbers."""
    own = [node] if isinstance(node, Capture) and node.captures else []
    return sum(map(_captured, inner_nodes(node)), own)


def _referred(node: Node) -> set[int | str]:
    """The groups that back references name, by number or name."""
    own = {node.group} if isinstance(node, Backreference) else set()
    return own.union(*map(_referred, inner_nodes(node)))


class _RegexWriter:
    """One pass over a tree, from left to right, as groups are numbered. Those that are kept get names: their numbers
    change where others are not kept."""

    def __init__(self, node: Node) -> None:
        captured = _captured(node)
        names = [group.name for group in captured]
        self.numbers = [names.index(name) + 1 if name else at for at, name in enumerate(names, 1)]
        self.names: dict[int | str, int] = dict(enumerate(self.numbers, 1))
        self.names |= {group.name: number for group, number in zip(captured, self.numbers, strict=True) if group.name}
        self.kept = {self.number(group) for group in _referred(node)}
        self.seen = 0

    def number(self, group: int | str) -> int:
        if group not in self.names:
            raise Invalid(f"not a regular expression: there is no group {group}", what="pattern")
        return self.names[group]

    def node(self, node: Node) -> str:
        match node:
            case Char(char, fold):
                return _folded(regex.escape(char, special_only=False), fold)
            case Set(_, _, fold):
                return _folded(_set(node), fold)
            case Capture():
                return self.group(node)
            case Repeat(inner, low, high, lazy, possessive):
                return f"(?:{self.node(inner)}){times(low, high)}" + ("?" if lazy else "+" if possessive else "")
            case Chain(nodes):
                return "".join(map(self.node, nodes))
            case Choice(nodes):
                return "(?:" + "|".join(map(self.node, nodes)) + ")"
            case Boundary(kind):
                return _EDGES[kind]
            case Lookaround(inner, behind, negated):
                return f"(?{'<' if behind else ''}{'!' if negated else '='}{self.node(inner)})"
            case Backreference(group, fold):
                name = f"g{self.number(group)}"
                return f"(?({name}){_folded(f'(?P={name})', fold)}|)"  # what took no part is nothing, as in JavaScript

    def group(self, group: Capture) -> str:
        opening = "?>" if group.atomic else "?:"
        if group.captures:
            self.seen += 1
            number = self.numbers[self.seen - 1]
            opening = f"?P<g{number}>" if number in self.kept else "?:"
        return f"({opening}{self.node(group.node)})"


def _folded(source: str, fold: bool) -> str:
    return f"(?i:{source})" if fold else source


def _set(node: Set) -> str:
    if not node.items:
        return r"(?s:.)" if node.negated else "(?!)"
    inside = "".join(map(_item, node.items))
    if node.negated and len(node.items) == 1 and isinstance(node.items[0], tuple):
        inside *= 2  # regex makes [^ab] of [^a]|[^b]; it leaves alone what is not one character
    return f"[{'^' if node.negated else ''}{inside}]"


def _item(item: Range | Named) -> str:
    if isinstance(item, tuple):
        return "-".join(f"\\U{code:08x}" for code in dict.fromkeys(item))
    if item.name.startswith("p:"):
        return f"\\{'P' if item.negated else 'p'}{{{item.name[2:]}}}"
    if item.name in ("d", "w"):
        return "\\" + (item.name.upper() if item.negated else item.name)
    return "".join(_item(span) for span in ranges_of(item.name, item.negated))


# ---- what it costs ------------------------------------------------------------------------------------


def pushes(node: Node) -> int:
    """How many places to go back to may be kept for each character of a text; none where no repetition without an end
    goes round more than single characters."""
    if not _goes_round(node):
        return 0
    kept = len(_referred(node))
    return grown(node, lambda one: _pushes(one, kept))


def _pushes(node: Node, kept: int) -> int:
    if isinstance(node, Repeat | Lookaround):
        return 1 + kept
    return int(isinstance(node, Choice) or (isinstance(node, Capture) and (node.captures or node.atomic)))


def _goes_round(node: Node) -> bool:
    if isinstance(node, Repeat) and node.high is None and not _single(node.node):
        return True
    return any(map(_goes_round, inner_nodes(node)))


def _single(node: Node) -> bool:
    while isinstance(node, Capture) and not node.captures and not node.atomic:
        node = node.node
    return isinstance(node, Char | Set)
