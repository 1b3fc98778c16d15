"""Renaming and moving: which texts change so that every link still means what it meant.

Pure planning over names before and after. A link is touched only if it leads to something that moved, or would now
lead elsewhere; its written form is kept where that form still leads there. Every text is read again before it is
part of the plan: a link sent to a wrong note is the one thing that may never happen.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from posixpath import relpath

from notewright.errors import Exists, Invalid, NotFound
from notewright.notes.edits.splices import Splice, apply_splices
from notewright.notes.edits.yaml import yaml_item
from notewright.notes.links.names import Names, Namesakes
from notewright.notes.links.resolve import OBSIDIAN, LinkPolicy, link_key, name_keys, resolve
from notewright.notes.links.syntax import decode_destination, is_reference
from notewright.notes.model import Link, Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, path_key, with_md, without_md

Moves = Mapping[NotePath, NotePath]
Rewrite = Callable[[str], tuple[str, int]]  # a text with its links rewritten, and how many they were
_HEX = re.compile(r"%(?=[0-9A-Fa-f]{2})")
_ENTITY_START = re.compile(r"&(?=#?\w+;)")
MAX_MOVES_SEARCHED = 20  # paths that a text is searched for one by one
PIECE_CHARS = 1 << 18  # of a large text that are decoded at once: that takes many times their memory
MAX_TARGET_CHARS = 1 << 15  # of a link, with every character escaped
_ENDS_A_LINK = re.compile(r"[][|]")  # in a display text they could be taken for the link's own
_JSON_STRING = re.compile(r'(?P<key>"text"\s*:\s*)?(?P<string>"(?:[^"\\]|\\.)*")(?P<colon>\s*:)?')
_YAML_VALUE = re.compile(
    r"""(?:[:,\[-][ \t]+|\[)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"'#\[\]{},](?:[^\n#,\]}:]|:(?!\s))*?)"""
    r"""[ \t]*(?=[\r\n,\]#}]|$)"""
)


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """A file whose text changes: where it is before and after, its new text and how many links in it changed."""

    before: NotePath
    after: NotePath
    text: str
    links: int


def plan_moves(old: str, new: str, paths: Collection[NotePath]) -> dict[NotePath, NotePath]:
    """The new path of every file that moves when `old`, a note (`.md` optional), a file or a folder, becomes `new`.

    `new` ending in `/` is a folder to move into. Raises NotFound and Exists; a change of case alone is no
    collision.
    """
    known = set(paths)
    target = new + old.rstrip("/").rpartition("/")[2] if new.endswith("/") else new
    for source in (old, with_md(old)):
        if source in known:
            place = with_md(target) if source[-3:].lower() == ".md" else target
            moves = {NotePath(source): NotePath.parse(place)}
            break
    else:
        inside = [path for path in known if path.startswith(old.rstrip("/") + "/")]
        moves = {path: NotePath.parse(target.rstrip("/") + path[len(old.rstrip("/")) :]) for path in sorted(inside)}
        if moves and f"{target}/".startswith(old.rstrip("/") + "/"):
            raise Invalid(f"{old} cannot move into itself", what="to")
    if not moves:
        raise NotFound(f"there is no {old}", what="note", path=old)
    staying = {path_key(path): path for path in known if path not in moves}
    for place in moves.values():
        twin = staying.get(path_key(place))
        if twin is not None:
            raise Exists(f"{twin} is there already", hint="choose another name", path=twin)
    return moves


def affected_keys(moves: Moves) -> set[str]:
    """The keys of links that a move can change the meaning of. Other links matter in moved notes only."""
    return {key for pair in moves.items() for path in pair for key in name_keys(path)}


def may_hold_key(text: str, keys: Collection[str]) -> bool:
    """Whether a text holds one of these keys, plainly or as links write it. Much quicker than to parse a large text."""
    pieces = [text[at : at + PIECE_CHARS + MAX_TARGET_CHARS] for at in range(0, len(text), PIECE_CHARS)]

    def has_key(piece: str) -> bool:
        folded = path_key.__wrapped__(piece)  # path_key itself would cache these texts
        return any(key in folded for key in keys)

    decoded = (decode_destination(piece).replace("''", "'") for piece in pieces)  # '' is a quotation mark in YAML
    return any(map(has_key, pieces)) or any(map(has_key, decoded))


class MovedNames(Names):
    """The names after a move. An index is asked once for each key.

    Paths only: no policy that a rename is planned with looks at aliases, titles or slugs."""

    def __init__(self, before: Names, moves: Moves) -> None:
        self.before, self.moves = before, moves
        self.known: dict[str, Namesakes] = {}
        self.moved_here: dict[str, list[NotePath]] = {}
        for new in moves.values():
            for key in name_keys(new):
                self.moved_here.setdefault(key, []).append(new)

    def by_name(self, key: str) -> Sequence[NotePath]:
        if key not in self.known:
            staying = [path for path in self.before.by_name(key) if path not in self.moves]
            self.known[key] = Namesakes([*staying, *self.moved_here.get(key, ())])
        return self.known[key]


def plan_rename(
    moves: Moves,
    names: Names,
    notes: Iterable[Note],
    others: Mapping[NotePath, str] | None = None,
    policy: LinkPolicy = OBSIDIAN,
) -> tuple[RewrittenFile, ...]:
    """The texts that change with these moves; files that move as they are are not among them.

    `names` are those before. `notes` are the moved notes and all with a link of `affected_keys`; more do no harm.
    `others` are texts of `.canvas` and `.base` files. Invalid where a link cannot be written to a new name.
    """
    before = MovedNames(names, {})
    planner = _Planner(moves, before, MovedNames(before, moves), policy, affected_keys(moves))
    planned = []
    for note in notes:
        text, count = planner.rewrite_links(note)
        if count:
            planned.append(RewrittenFile(note.path, moves.get(note.path, note.path), text, count))
    for path, text in (others or {}).items():
        found = _find_references(path, text, moves, partial(planner.rewrite_card, path))
        if count := sum(count for _, count in found):
            new = apply_splices(text, [splice for splice, _ in found])
            planned.append(RewrittenFile(path, moves.get(path, path), new, count))
    return tuple(planned)


# ---- one note -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Planner:
    moves: Moves
    names: Names
    after: Names
    policy: LinkPolicy
    keys: set[str]

    def rewrite_card(self, path: NotePath, text: str) -> tuple[str, int]:
        """As `rewrite_links`, for Markdown inside another file, such as a card of a canvas."""
        return self.rewrite_links(parse(path, text))

    def rewrite_links(self, note: Note) -> tuple[str, int]:
        """The text after the moves and how many links in it changed."""
        here = self.moves.get(note.path, note.path)
        meant = [self._resolve(link, note.path) for link in note.links]
        changes = [
            list(self._splices(note, link, path, here))
            for link, path in zip(note.links, meant, strict=True)
            if path is not None and link.target
        ]
        splices = {splice for change in changes for splice in change}
        if not splices:
            return note.text, 0
        text = apply_splices(note.text, splices)
        self._verify(note, parse(here, text), meant)
        return text, sum(map(bool, changes))

    def _resolve(self, link: Link, source: NotePath) -> NotePath | None:
        """The file a link leads to if this move may change that, else None."""
        if source not in self.moves and link_key(link.target) not in self.keys:
            return None
        return resolve(link.target, source, self.names, self.policy)

    def _splices(self, note: Note, link: Link, meant: NotePath, here: NotePath) -> Iterator[Splice]:
        """The changes to one link: to its target, and to a display text that was the old name."""
        goal = self.moves.get(meant, meant)
        renamed = goal.name != meant.name
        respelled = goal != meant and path_key(goal) == path_key(meant)  # leads there all the same, here
        leads = resolve(link.target, here, self.after, self.policy)
        if leads == goal and not renamed and not respelled:
            return
        target = self._target(link, meant, goal, note.path, here)
        written = encode_target(note.text, link, target)
        if written == note.text[link.target_start : link.target_end]:
            return
        yield Splice(link.target_start, link.target_end, written)
        if renamed and link.display is not None and link.display.strip() == meant.stem:
            in_quotes = link.kind == "frontmatter"
            old, new = (encode_target(note.text, link, path.stem) if in_quotes else path.stem for path in (meant, goal))
            place = _display_place(note.text, link, old)
            if place >= 0 and not _ENDS_A_LINK.search(goal.stem):
                yield Splice(place, place + len(old), new)

    def _target(self, link: Link, meant: NotePath, goal: NotePath, source: NotePath, here: NotePath) -> str:
        """The target in the form it had, else the path, else whatever leads there."""
        for target in _forms(link.target, meant, goal, source, here):
            is_bare = "/" in goal and "/" not in target  # at the root the bare name is the path
            if is_bare and any(path != goal for key in name_keys(goal) for path in self.after.by_name(key)):
                continue  # it could mean another file
            if resolve(target, here, self.after, self.policy) == goal:
                return target
        raise Invalid(
            f"no link in {source} could mean {goal}", hint="choose another name", what="to", path=source, to=goal
        )

    def _verify(self, old: Note, new: Note, meant: Sequence[NotePath | None]) -> None:
        """Refuse a new text unless it has the same links, each leading where it led."""
        same = len(new.links) == len(meant) and all(
            path is None or resolve(link.target, new.path, self.after, self.policy) == self.moves.get(path, path)
            for link, path in zip(new.links, meant, strict=True)
        )
        if not same:
            names = sorted({path.stem for path in self.moves.values()})
            raise Invalid(
                f"links in {old.path} cannot be written to {', '.join(names[:3])}",
                hint="choose a name without any of # ^ | [ ]",
                what="to",
                path=old.path,
            )


# ---- how a link is written ----------------------------------------------------------------------------


def _forms(target: str, meant: NotePath, goal: NotePath, source: NotePath, here: NotePath) -> Iterator[str]:
    """The ways to write a link to `goal`, the one most like the old target first."""
    ending = not meant.is_note or target[-3:].lower() == ".md"
    path = str(goal) if ending or not goal.is_note else without_md(goal)
    name = path.rpartition("/")[2]
    if target.startswith(("./", "../")):
        yield _dotted(path, here)
    elif target.startswith("/"):
        yield "/" + path
    elif "/" not in target:
        yield name
    else:
        key, spelled = path_key(without_md(target)), path_key(without_md(meant))
        if key == spelled:
            yield path
        elif source.folder and path_key(source.folder) + "/" + key == spelled:  # relative, as Markdown elsewhere has it
            beside = relpath(path, here.folder or ".")
            yield _dotted(path, here) if beside.startswith("..") else beside
        else:
            yield "/".join(path.split("/")[-len(target.split("/")) :])
    yield from (path, str(goal), "/" + path, "/" + goal, _dotted(path, here), _dotted(goal, here))


def _dotted(path: str, here: NotePath) -> str:
    relative = relpath(path, here.folder or ".")
    return relative if relative.startswith("../") else "./" + relative


def encode_target(text: str, link: Link, target: str) -> str:
    """A target, or a piece of a subpath, as it must be written in this link."""
    if link.kind.startswith("markdown"):
        return _destination(target, angled=text[link.target_start - 1] == "<")
    if link.kind == "frontmatter":
        quote = text[link.start - 1 : link.start]
        if quote == "'":
            return target.replace("'", "''")
        if quote == '"':
            return target.replace("\\", "\\\\").replace('"', '\\"')
    return target


def _destination(target: str, *, angled: bool) -> str:
    """A path in a Markdown link: only blanks are encoded, and what would not be read as part of the path."""
    target = _ENTITY_START.sub("%26", _HEX.sub("%25", target)).replace("#", "%23").replace("\\", "%5C")
    target = target.replace("<", "%3C").replace(">", "%3E")
    first, slash, rest = target.partition("/")
    target = first.replace(":", "%3A") + slash + rest
    if angled:
        return target
    depths = list(accumulate((sign == "(") - (sign == ")") for sign in target))
    if not all(0 <= depth <= 2 for depth in depths) or (depths and depths[-1]):  # of a definition, no deeper is read
        target = target.replace("(", "%28").replace(")", "%29")
    return re.sub(r"\s", lambda blank: "".join(f"%{byte:02X}" for byte in blank[0].encode()), target)


def _display_place(text: str, link: Link, written: str) -> int:
    """Where the display text begins, outer blanks left out; -1 if it is not written so."""
    if link.kind.startswith("markdown"):
        start = text.index("[", link.start) + 1
        close = start + len(link.display or "")
        if is_reference(link) and (text[close : close + 2] != "][" or text[close + 2] == "]"):
            return -1  # what it shows is the label of its definition
    else:
        start = text.find("|", link.target_end, link.end) + 1
        if not start:
            return -1
    while start < link.end and text[start].isspace():
        start += 1
    return start if text.startswith(written, start) else -1


# ---- files that are no notes: paths and cards in `.canvas`, plain paths in `.base` ---------------------


def _find_references(path: NotePath, text: str, moves: Moves, rewrite: Rewrite) -> list[tuple[Splice, int]]:
    """The splices for every reference to a moved file, each with how many it stands for. `rewrite` is for Markdown."""
    kind = path.lower().rpartition(".")[2]
    return _in_canvas(text, moves, rewrite) if kind == "canvas" else _in_base(text, moves) if kind == "base" else []


def _in_canvas(text: str, moves: Moves, rewrite: Rewrite) -> list[tuple[Splice, int]]:
    found: list[tuple[Splice, int]] = []
    is_plain = (
        len(moves) <= MAX_MOVES_SEARCHED and "\\" not in text and '"text"' not in text
    )  # no card, every path as it is
    if is_plain and not any(f'"{path}"' in text for path in moves):
        return found  # as most canvases of a large vault, of which every rename reads all
    for match in _JSON_STRING.finditer(text):
        string = match["string"]
        if match["colon"]:
            continue
        try:
            value = json.loads(string) if match["key"] or "\\" in string else NotePath(string[1:-1])
        except ValueError:
            continue
        if not value:
            continue
        new, count = rewrite(value) if match["key"] else (moves.get(value, value), 1)
        if new != value:
            written = json.dumps(new, ensure_ascii=string.isascii() and not value.isascii())
            found.append((Splice(*match.span("string"), written), count))
    return found


def _in_base(text: str, moves: Moves) -> list[tuple[Splice, int]]:
    found = []
    for match in _YAML_VALUE.finditer(text):
        value = match["value"]
        quote = value[0] if value[0] in "\"'" else ""
        new = moves.get(NotePath(value.strip(quote) if quote else value))
        if new is not None:
            simple = quote and quote not in new and "\\" not in new
            found.append(
                (Splice(*match.span("value"), quote + new + quote if simple else yaml_item(new, inside=True)), 1)
            )
    return found
