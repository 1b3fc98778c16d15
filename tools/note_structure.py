"""What cases ask of notes and the product does not: blocks, list items, block ids renamed, embeds, queries judged."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from notewright.errors import Exists, Invalid, NotFound
from notewright.notes.edits.sections import require_section
from notewright.notes.edits.splices import Splice, apply_splices, line_spans
from notewright.notes.links.names import Names
from notewright.notes.links.relabel import find_subpath_links, rewrite_subpaths
from notewright.notes.links.rename import RewrittenFile
from notewright.notes.links.resolve import OBSIDIAN, LinkPolicy, resolve
from notewright.notes.model import Link, Note, tag_key
from notewright.notes.parse.block_scanner import (
    HTML,
    INDENTED,
    PARAGRAPH,
    RULE,
    Blocks,
    Container,
    Leaf,
    LineNumbers,
    normalize_line_endings,
    scan,
)
from notewright.notes.parse.parser import Tree
from notewright.notes.path import NotePath
from notewright.notes.query import All, Condition, Either, Not, Term, has_property

_TASK = re.compile(r"\[(.)\][ \t]")
_CALLOUT = re.compile(r">[ \t]*\[![^\]\n]+\]")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:")
_KINDS = {INDENTED: "code", RULE: "thematicBreak", HTML: "html"}
_BLOCK_ID = re.compile(r"[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class TopBlock:
    """A block at a note's top level: yaml, heading, paragraph, list, code, callout, blockquote, table, comment, …"""

    kind: str
    start_line: int
    end_line: int  # inclusive


@dataclass(frozen=True, slots=True)
class ListItem:
    """One item of a list, without the items below it."""

    line: int
    end_line: int
    task: str | None  # the character between the brackets
    parent_line: int | None


def _goes_on(tree: Tree, child: int | Leaf, after: int | Leaf | None) -> bool:
    """Whether `after` is the next item of the list that `child` is an item of."""
    if after is None or isinstance(child, Leaf) or isinstance(after, Leaf):
        return False
    return tree.first[after] == tree.first[child]


def block_structure(note: Note) -> list[TopBlock]:
    """The blocks at the note's top level, in order."""
    text = normalize_line_endings(note.text)
    lines, blocks = LineNumbers(text), scan(text, note.frontmatter.end)
    found = []
    if note.frontmatter.present:
        found.append(TopBlock("yaml", lines.at(note.frontmatter.start), lines.at(note.frontmatter.inner_end)))
    tree = Tree(blocks)
    siblings = tree.children.get(-1, [])
    for place, child in enumerate(siblings):
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        if _goes_on(tree, child, after):
            continue
        start, end = tree.span(child)
        found.append(TopBlock(_kind(text, blocks, child), lines.at(start), lines.at(max(end - 1, start))))
    return found


def _kind(text: str, blocks: Blocks, child: int | Leaf) -> str:
    if isinstance(child, Leaf):
        if child.kind == PARAGRAPH and _FOOTNOTE.match(text, child.start):
            return "footnoteDefinition"
        return _KINDS.get(child.kind, child.kind)
    container = blocks.containers[child]
    if container.mark != ">":
        return "list"
    return "callout" if _CALLOUT.match(text, container.start) else "blockquote"


def list_items(note: Note) -> list[ListItem]:
    """Every list item of the note, in order."""
    text = normalize_line_endings(note.text)
    lines, blocks = LineNumbers(text), scan(text, note.frontmatter.end)
    tree = Tree(blocks)
    ends = {index: end for siblings in tree.children.values() for index, end in _item_ends(lines, tree, siblings)}
    found = []
    for index, container in enumerate(blocks.containers):
        if container.mark != ">":
            task = _TASK.match(text, _content(text, container))
            above = blocks.containers[container.parent] if container.parent >= 0 else None
            parent = lines.at(above.start) if above is not None and above.mark != ">" else None
            found.append(ListItem(lines.at(container.start), ends[index], task[1] if task else None, parent))
    return found


def _content(text: str, container: Container) -> int:
    place = container.start + 1 if container.mark in "-+*" else text.index(container.mark, container.start) + 1
    while text[place : place + 1] in (" ", "\t"):
        place += 1
    return place


def _item_ends(lines: LineNumbers, tree: Tree, siblings: list[int | Leaf]) -> Iterator[tuple[int, int]]:
    """The last line of each item among `siblings`, items below it left out, a blank line before the next taken in."""
    for place, child in enumerate(siblings):
        if isinstance(child, Leaf) or tree.blocks.containers[child].mark == ">":
            continue
        container = tree.blocks.containers[child]
        below = next((c for c in tree.children.get(child, []) if not isinstance(c, Leaf)), None)
        if below is not None:
            start = tree.blocks.containers[below].start
            yield child, max(lines.at(start) - 1, lines.at(container.start))
            continue
        last = lines.at(max(container.end - 1, container.start))
        after = siblings[place + 1] if place + 1 < len(siblings) else None
        if _goes_on(tree, child, after):
            last = min(last + 1, lines.at(tree.blocks.containers[after].start) - 1)
        yield child, max(last, lines.at(container.start))


def rename_block(note: Note, old: str, new: str, names: Names, notes: Iterable[Note]) -> tuple[RewrittenFile, ...]:
    """The texts that change when a block id of `note` becomes another."""
    old, new = old.lstrip("#^"), new.lstrip("#^")
    if not _BLOCK_ID.fullmatch(new) or new == old:
        raise Invalid(f"{new!r} cannot be a new block id", hint="use letters, digits and dashes", what="to")
    ids = {block.id.lower(): block for block in note.blocks}
    if old.lower() not in ids:
        raise NotFound(f"no block ^{old} in {note.path}", what="block", path=note.path)
    if new.lower() in ids and new.lower() != old.lower():
        raise Exists(f"{note.path} has a block ^{new} already", hint="choose another id", path=note.path)
    block = ids[old.lower()]
    own = Splice(block.start, block.end, new)
    wanted = f"#^{old.lower()}"
    return rewrite_subpaths(
        note,
        own,
        find_subpath_links(note, names, notes),
        lambda link: f"#^{new}" if link.subpath.lower() == wanted else None,
    )


MAX_DEPTH = 5
MAX_CHARACTERS = 1 << 20
Reader = Callable[[NotePath], Note | None]


def expand_embeds(note: Note, names: Names, read: Reader, policy: LinkPolicy = OBSIDIAN) -> str:
    """The body with every embedded note in its place, a few levels deep; what embeds itself stays a link."""
    return _Expansion(names, read, policy).of(note, note.body, (note.path,))


class _Expansion:
    """One expansion: it counts what it has written, so that embeds of embeds come to an end."""

    def __init__(self, names: Names, read: Reader, policy: LinkPolicy):
        self.names, self.read, self.policy = names, read, policy
        self.left = MAX_CHARACTERS

    def of(self, note: Note, text: str, above: tuple[NotePath, ...]) -> str:
        start = note.text.find(text)
        splices = []
        for link in note.links:
            if link.kind in ("embed", "markdown-embed") and start <= link.start and link.end <= start + len(text):
                shown = self.shown(link, note.path, above)
                if shown is not None:
                    splices.append(Splice(link.start - start, link.end - start, shown))
        return apply_splices(text, splices)

    def shown(self, link: Link, source: NotePath, above: tuple[NotePath, ...]) -> str | None:
        path = resolve(link.target, source, self.names, self.policy)
        if path is None or not path.is_note or path in above or len(above) > MAX_DEPTH or self.left <= 0:
            return None
        note = self.read(path)
        if note is None:
            return None
        try:
            part = section_text(note, link.subpath) if link.subpath else note.body
        except NotFound:
            return None
        self.left -= len(part)
        return self.of(note, part, (*above, path)) if self.left > 0 else None


def section_text(note: Note, wanted: str) -> str:
    """The text of a section, or of the block that `^id` names."""
    if wanted.lstrip("#").startswith("^"):
        return _block_text(note, wanted.lstrip("#")[1:].strip())
    section = require_section(note, wanted)
    return note.text[section.start : section.end]


def _block_text(note: Note, wanted: str) -> str:
    for block in note.blocks:
        if block.id.lower() == wanted.lower():
            lines = line_spans(note.text)[block.start_line - 1 : block.end_line]
            return note.text[lines[0][0] : lines[-1][1]]
    raise NotFound(f"no block ^{wanted} in {note.path}")


def satisfies(note: Note, condition: Condition) -> bool:
    """Whether a note fulfils a query. Words are parts of words, as in Obsidian."""
    match condition:
        case Not():
            return not satisfies(note, condition.of)
        case All():
            return all(satisfies(note, each) for each in condition.of)
        case Either():
            return any(satisfies(note, each) for each in condition.of)
        case Term("tag", text):
            return any(tag_under(tag.name, text or "") for tag in note.tags)
        case Term("path", text):
            return (text or "").casefold() in note.path.casefold()
        case Term("property", text, key):
            return has_property(note.frontmatter.properties, key, text)
        case Term(_, text):
            wanted = (text or "").casefold()
            return wanted in note.text.casefold() or wanted in note.path.stem.casefold()


def tag_under(tag: str, wanted: str) -> bool:
    """Whether a tag is the wanted one or below it, case ignored."""
    key, above = tag_key(tag), tag_key(wanted)
    return key == above or key.startswith(above + "/")


def obsidian_slug(heading: str) -> str:
    """A heading as Obsidian writes it into a link: what would end or break the link left out."""
    return " ".join(re.sub(r"[#|^:\\]|%%|\[\[|\]\]", " ", heading).split())
