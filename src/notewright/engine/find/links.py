"""Links both ways: the index knows what was written, and what it means is decided here when asked."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from notewright.engine.indexing.ready import snapshot
from notewright.engine.workspace import Workspace
from notewright.index.base import LinkRow, PathTest, Selection
from notewright.notes.excerpts import NO_LINE, Excerpt, shorten_to_sentence
from notewright.notes.links.names import Names, OtherName
from notewright.notes.links.resolve import OBSIDIAN, LinkPolicy, Resolution, link_key, name_keys, resolve_link, slug_key
from notewright.notes.path import NotePath, without_md

T = TypeVar("T")
P = ParamSpec("P")
WRITTEN_AS_NAMES = frozenset(("wikilink", "embed", "frontmatter"))  # kinds of links that name a note in brackets
NOTES_AT_ONCE = 2_000  # whose links are read and resolved together
MOST_NAMES = 4_096  # whose meaning is remembered while one answer is made


class ResolvedLink(NamedTuple):
    """One link, with what it means. `path` is the other end: where it leads, or the note it stands in."""

    path: NotePath | None
    source: NotePath
    target: str  # as written
    subpath: str
    kind: str
    line: int
    context: Excerpt  # the line it stands in, of a long one the part around the link
    status: str  # ok, broken, ambiguous

    @property
    def sentence(self) -> Excerpt:
        """What is shown of the line: all of a short one, else the sentence; the link is whole in it."""
        return shorten_to_sentence(self.context)

    def record(self) -> dict[str, Any]:
        """As it is told to programs."""
        names = ("source", "line", "path", "target", "kind", "status")
        told = {name: getattr(self, name) for name in names}
        return told | {"target": self.target + self.subpath, "text": self.sentence.with_ellipses}


class LinkReport(NamedTuple):
    path: NotePath
    outgoing: tuple[ResolvedLink, ...]
    incoming: tuple[ResolvedLink, ...]


@dataclass(frozen=True, slots=True)
class SeenNames:
    """Names as a reader sees them: a link to a hidden note is a link to nothing. `learned` were looked up together."""

    names: Names
    sees: PathTest | None
    learned: Mapping[str, Sequence[NotePath]] = field(default_factory=dict)

    def by_name(self, key: str) -> Sequence[NotePath]:
        found = self.learned.get(key)
        return self._only_visible(self.names.by_name(key) if found is None else found)

    def by_other_name(self, kind: OtherName, key: str) -> Sequence[NotePath]:
        return self._only_visible(self.names.by_other_name(kind, key))

    def _only_visible(self, paths: Sequence[NotePath]) -> Sequence[NotePath]:
        return paths if self.sees is None else [path for path in paths if self.sees(path)]


def resolver(
    ws: Workspace, policy: LinkPolicy = OBSIDIAN, expected: Iterable[str] = ()
) -> Callable[[str, NotePath], Resolution]:
    """What a target written in a source means, remembered for as long as the answer is being made: of the source only
    its folder may matter, and its workspace where there are several. `expected` are targets that will be asked for."""
    keys = list({link_key(target.strip()) for target in expected})
    learned = {**dict.fromkeys(keys, ()), **ws.index.by_names(keys)} if keys else {}
    names = SeenNames(ws.index, ws.access.visibility.test, learned)
    known: dict[tuple[str, str], Resolution] = {}

    def asked(target: str, source: NotePath) -> Resolution:
        if policy.roots or not target.strip():
            place = (target, str(source))
        else:
            place = (target, source.folder if policy.depends_on_folder else "")
        meant = known.get(place)
        if meant is None:
            if len(known) >= MOST_NAMES:
                known.clear()
            meant = known[place] = resolve_link(target, source, names, policy)
        return meant

    return asked


def about_note(
    answer: Callable[Concatenate[Workspace, NotePath, P], T],
) -> Callable[Concatenate[Workspace, NotePath, P], T]:
    """A function of a note the caller may see, else NotFound at once, answered from one `snapshot`."""

    def asked(ws: Workspace, path: NotePath, /, *args: P.args, **kwargs: P.kwargs) -> T:
        ws.access.may_see(path)
        return snapshot(ws, lambda: answer(ws, path, *args, **kwargs))

    return asked


def _outgoing(ws: Workspace, path: NotePath, policy: LinkPolicy = OBSIDIAN) -> tuple[ResolvedLink, ...]:
    """Every link of a note in order, with where it leads."""
    rows = ws.index.links_from([path])
    if not rows:
        return ()
    means = resolver(ws, policy, [row.target for row in rows])
    return tuple(map(link_seen, rows, [means(row.target, path) for row in rows], ws.index.lines_of(rows)))


def _incoming(
    ws: Workspace, path: NotePath, policy: LinkPolicy = OBSIDIAN, *, own: bool = False, lines: bool = True
) -> tuple[ResolvedLink, ...]:
    """Every link that leads to a note, by the note it stands in and its line; its `own` links to itself on request.
    Without `lines`, who only wants to know which notes link to it."""
    means, sees = resolver(ws, policy), ws.access.visibility.test
    keys = all_keys(path, ws.index.other_keys(path)) if policy.other_names else name_keys(path)
    found = [
        (row, meant)
        for row in ws.index.links_toward(keys, slugs=policy.other_names)
        if (own or row.source != path)
        and (sees is None or sees(row.source))
        and (meant := means(row.target, row.source)).path == path
    ]
    return tuple(links_shown(ws, found, lines=lines))


outgoing, incoming = about_note(_outgoing), about_note(_incoming)


def all_keys(path: NotePath, others: Iterable[str]) -> tuple[str, ...]:
    """Keys of a note's names and other names, slugs included."""
    slugs = (slug_key(name) for name in (without_md(path), path.stem, *others))
    return tuple(dict.fromkeys((*name_keys(path, others), *slugs)))


def link_seen(row: LinkRow, meant: Resolution, line: Excerpt, *, other: NotePath | None = None) -> ResolvedLink:
    status = "broken" if meant.path is None else "ambiguous" if meant.ambiguous else "ok"
    where = other if other is not None else meant.path
    return ResolvedLink(where, row.source, row.target, row.subpath, row.kind, row.line, line, status)


def links_shown(ws: Workspace, found: list[tuple[LinkRow, Resolution]], *, lines: bool = True) -> list[ResolvedLink]:
    """Links to a note, by the note they stand in and their line."""
    found.sort(key=lambda one: (one[0].source, one[0].line))
    shown = ws.index.lines_of([row for row, _ in found]) if lines and found else [NO_LINE] * len(found)
    return [link_seen(row, meant, line, other=row.source) for (row, meant), line in zip(found, shown, strict=True)]


@about_note
def links(ws: Workspace, path: NotePath, direction: str = "both", depth: int = 1) -> LinkReport:
    """Links of a note; with a depth, of the notes they lead to as well, each note once."""
    ways = (_outgoing if direction in ("both", "out") else None, _incoming if direction in ("both", "in") else None)
    return LinkReport(path, *(tuple(_spread(ws, path, depth, step)) if step else () for step in ways))


def _spread(
    ws: Workspace, start: NotePath, depth: int, step: Callable[[Workspace, NotePath], tuple[ResolvedLink, ...]]
) -> Iterator[ResolvedLink]:
    """Breadth first; the first level whole, the next ones as far as they lead to something new."""
    seen = {start}
    waiting = deque([(start, 1)])
    while waiting:
        path, level = waiting.popleft()
        for link in step(ws, path):
            new = link.path is not None and link.path not in seen
            if level == 1 or new:
                yield link
            if new and link.path is not None:
                seen.add(link.path)
                if level < depth and link.path.is_note:
                    waiting.append((link.path, level + 1))


def resolved_links(ws: Workspace) -> Iterator[ResolvedLink]:
    """Every link of every note this reader may see, by note and line. To be asked within one `snapshot`."""
    for rows in all_links(ws):
        means = resolver(ws, expected=[row.target for row in rows])
        yield from map(link_seen, rows, (means(row.target, row.source) for row in rows), ws.index.lines_of(rows))


def all_links(ws: Workspace) -> Iterator[list[LinkRow]]:
    """The same as written, some notes at a time: their texts and names are looked up together."""
    notes, _ = ws.index.select(Selection(visible=ws.access.visibility))
    for start in range(0, len(notes), NOTES_AT_ONCE):
        yield ws.index.links_from([filed.path for filed in notes[start : start + NOTES_AT_ONCE]])
