"""Outgoing and incoming links: the index stores them as written, this resolves them at query time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from notewright.engine.indexing.ready import snapshot
from notewright.engine.workspace import Workspace
from notewright.index.base import LinkRow, PathTest, Selection
from notewright.notes.excerpts import MAX_SENTENCE_CHARS, NO_LINE, Excerpt, shorten_to_sentence
from notewright.notes.links.names import Names, Namesakes, OtherName
from notewright.notes.links.resolve import (
    OBSIDIAN,
    LinkPolicy,
    Resolution,
    link_key,
    name_keys,
    resolve_link,
    resolve_unique_name,
    slug_key,
)
from notewright.notes.path import NotePath, without_md

_new = tuple.__new__  # makes a link in half the time of calling its type
T = TypeVar("T")
P = ParamSpec("P")
WRITTEN_AS_NAMES = frozenset(("wikilink", "embed", "frontmatter"))  # kinds of links that name a note in brackets
NOTES_AT_ONCE = 2_000  # so many notes' links are read and resolved together
MAX_CACHED_RESOLUTIONS = 4_096  # during one answer


class ResolvedLink(NamedTuple):
    """One link with its resolution. `path` is the other end: target of an outgoing, note of an incoming link."""

    path: NotePath | None
    source: NotePath
    target: str  # as written
    subpath: str
    kind: str
    line: int
    context: Excerpt  # its line, of a long one the part around the link
    status: str  # ok, broken, ambiguous

    @property
    def sentence(self) -> Excerpt:
        """The part of the line to show: all of a short one, else the sentence; always with the whole link."""
        return self.context if len(self.context.text) <= MAX_SENTENCE_CHARS else shorten_to_sentence(self.context)

    def record(self) -> dict[str, Any]:
        """The link as a dict, for programs."""
        names = ("source", "line", "path", "target", "kind", "status")
        values = {name: getattr(self, name) for name in names}
        return values | {"target": self.target + self.subpath, "text": self.sentence.with_ellipses}


class LinkReport(NamedTuple):
    path: NotePath
    outgoing: tuple[ResolvedLink, ...]
    incoming: tuple[ResolvedLink, ...]


class VisibleNames:
    """Names as far as a reader may see their notes: a link to a hidden note is broken. `known` were looked up together
    by `resolver`, and hold visible paths only."""

    __slots__ = ("_known", "_names", "_sees")

    def __init__(
        self, names: Names, sees: PathTest | None, known: Mapping[str, Sequence[NotePath]] = MappingProxyType({})
    ) -> None:
        self._names, self._sees, self._known = names, sees, known

    def by_name(self, key: str) -> Sequence[NotePath]:
        found = self._known.get(key)
        return self.only_visible(self._names.by_name(key)) if found is None else found

    def by_other_name(self, kind: OtherName, key: str) -> Sequence[NotePath]:
        return self.only_visible(self._names.by_other_name(kind, key))

    def only_visible(self, paths: Sequence[NotePath]) -> Sequence[NotePath]:
        return paths if self._sees is None else [path for path in paths if self._sees(path)]


def resolver(
    ws: Workspace, policy: LinkPolicy = OBSIDIAN, expected: Iterable[str] = ()
) -> Callable[[str, NotePath], Resolution]:
    """A function that resolves a target written in a source, and caches that during one answer: by the folder of the
    source if the policy depends on it, by the source itself where there are several roots. The names of `expected`
    targets are looked up together."""
    sees, keys = ws.access.path_test, {target: link_key(target.strip()) for target in set(expected)}
    known: dict[str, Sequence[NotePath]] = dict.fromkeys(keys.values(), ())
    if keys:
        known.update(ws.index.by_names(list(known)))
    if sees is not None:
        known = {key: Namesakes(path for path in paths if sees(path)) for key, paths in known.items()}
    names = VisibleNames(ws.index, sees, known)
    everywhere: dict[str, Resolution] = {}  # of targets that resolve the same in every source
    if policy.unique_name_decides:
        for target, key in keys.items():
            meant = resolve_unique_name(target, known[key], policy)
            if meant is not None:
                everywhere[target] = meant
    by_place: dict[tuple[str, str], Resolution] = {}

    def resolve(target: str, source: NotePath) -> Resolution:
        meant = everywhere.get(target)
        if meant is not None:
            return meant
        if policy.roots or not target.strip():
            place = (target, str(source))
        else:
            place = (target, source.folder if policy.depends_on_folder else "")
        meant = by_place.get(place)
        if meant is None:
            if len(by_place) >= MAX_CACHED_RESOLUTIONS:
                by_place.clear()
            meant = by_place[place] = resolve_link(target, source, names, policy)
        return meant

    return resolve


def from_note_snapshot(
    answer: Callable[Concatenate[Workspace, NotePath, P], T],
) -> Callable[Concatenate[Workspace, NotePath, P], T]:
    """Wrap a function of a note: NotFound at once if the caller may not see it, and one `snapshot` for the answer."""

    def ask(ws: Workspace, path: NotePath, /, *args: P.args, **kwargs: P.kwargs) -> T:
        ws.access.may_see(path)
        return snapshot(ws, partial(answer, ws, path, *args, **kwargs))

    return ask


def _outgoing(ws: Workspace, path: NotePath, policy: LinkPolicy = OBSIDIAN) -> tuple[ResolvedLink, ...]:
    """Every link of a note in order, resolved."""
    rows = ws.index.links_from([path])
    if not rows:
        return ()
    resolve = resolver(ws, policy, [row.target for row in rows])
    return tuple(map(to_resolved_link, rows, [resolve(row.target, path) for row in rows], ws.index.lines_of(rows)))


def _incoming(
    ws: Workspace, path: NotePath, policy: LinkPolicy = OBSIDIAN, *, own: bool = False, lines: bool = True
) -> tuple[ResolvedLink, ...]:
    """Every link that leads to a note, by source and line; with `own` also its links to itself. Without `lines`, for a
    caller that only needs the notes that link to it."""
    sees = ws.access.path_test
    keys = all_keys(path, ws.index.other_keys(path)) if policy.other_names else name_keys(path)
    rows = ws.index.links_toward(keys, slugs=policy.other_names)
    resolve = resolver(ws, policy, [row.target for row in rows])
    found = [
        (row, meant)
        for row in rows
        if (own or row.source != path)
        and (sees is None or sees(row.source))
        and (meant := resolve(row.target, row.source)).path == path
    ]
    return tuple(to_incoming_links(ws, found, lines=lines))


outgoing, incoming = from_note_snapshot(_outgoing), from_note_snapshot(_incoming)


def all_keys(path: NotePath, others: Iterable[str]) -> tuple[str, ...]:
    """Keys of a note's names and other names, slugs included."""
    slugs = (slug_key(name) for name in (without_md(path), path.stem, *others))
    return tuple(dict.fromkeys((*name_keys(path, others), *slugs)))


def to_resolved_link(row: LinkRow, meant: Resolution, line: Excerpt, other: NotePath | None = None) -> ResolvedLink:
    """Make a resolved link; `other` is its other end, where that is not the target."""
    status = "broken" if meant.path is None else "ambiguous" if meant.ambiguous else "ok"
    where = other if other is not None else meant.path
    return _new(ResolvedLink, (where, row.source, row.target, row.subpath, row.kind, row.line, line, status))


def to_incoming_links(
    ws: Workspace, found: list[tuple[LinkRow, Resolution]], *, lines: bool = True
) -> list[ResolvedLink]:
    """Make links to a note, by source and line."""
    if len(found) > 1:
        found.sort(key=lambda pair: (pair[0].source, pair[0].line))
    shown = ws.index.lines_of([row for row, _ in found]) if lines and found else [NO_LINE] * len(found)
    return [to_resolved_link(row, meant, line, row.source) for (row, meant), line in zip(found, shown, strict=True)]


@from_note_snapshot
def links(ws: Workspace, path: NotePath, direction: str = "both", depth: int = 1) -> LinkReport:
    """Links of a note; with a depth, of the notes they lead to as well, each note once."""
    found = _walk(ws, path, depth, _outgoing) if direction != "in" else ()
    return LinkReport(path, found, _walk(ws, path, depth, _incoming) if direction != "out" else ())


def _walk(
    ws: Workspace, start: NotePath, depth: int, step: Callable[[Workspace, NotePath], tuple[ResolvedLink, ...]]
) -> tuple[ResolvedLink, ...]:
    """Follow links breadth first: all of the first level, of the next ones those to notes not seen before."""
    found = step(ws, start)
    if depth == 1:
        return found
    seen, every, level = {start}, list(found), list[NotePath]()
    for link in found:
        if link.path is not None and link.path not in seen:
            seen.add(link.path)
            level.append(link.path)
    for _ in range(depth - 1):
        if not level:  # all that can be reached was seen; a person may give any depth
            break
        fresh: list[NotePath] = []
        for path in level:
            for link in step(ws, path) if path.is_note else ():
                if link.path is not None and link.path not in seen:
                    seen.add(link.path)
                    every.append(link)
                    fresh.append(link.path)
        level = fresh
    return tuple(every)


def resolved_links(ws: Workspace) -> Iterator[ResolvedLink]:
    """Every link of every note this reader may see, by note and line. Call it inside of one `snapshot`."""
    for rows in all_links(ws):
        resolve = resolver(ws, expected=[row.target for row in rows])
        meanings = (resolve(row.target, row.source) for row in rows)
        yield from map(to_resolved_link, rows, meanings, ws.index.lines_of(rows))


def all_links(ws: Workspace) -> Iterator[list[LinkRow]]:
    """Every link as written, some notes at a time: their texts and names are looked up together."""
    notes, _ = ws.index.select(Selection(visible=ws.access.visibility))
    for start in range(0, len(notes), NOTES_AT_ONCE):
        yield ws.index.links_from([filed.path for filed in notes[start : start + NOTES_AT_ONCE]])
