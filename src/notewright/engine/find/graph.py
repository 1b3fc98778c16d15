"""The link graph around a note: its backlinks and its links, each other end once, broken links included.

A broken link is identified by the path of the deleted note it used to lead to, as long as the history still holds that
note's names; after that by its own text.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from notewright.engine.changes.history import iter_changes
from notewright.engine.find.links import (
    WRITTEN_AS_NAMES,
    ResolvedLink,
    VisibleNames,
    all_keys,
    from_note_snapshot,
    incoming,
    outgoing,
    resolver,
    to_incoming_links,
)
from notewright.engine.indexing.ready import snapshot
from notewright.engine.read import decode, exists, missing_note_error
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Change, ChangeQuery, Ledger
from notewright.notes.links.resolve import InMemoryNames, LinkPolicy, resolve_link
from notewright.notes.model import Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, path_key, with_md

LinkStep = Callable[[Workspace, NotePath, LinkPolicy], list[ResolvedLink]]  # from one note to the next
MAX_NEIGHBOURS = 5_000  # other ends in one answer
MAX_CHANGES = 2_000  # of the history that are searched for deleted notes
MAX_DELETED = 500  # deleted notes whose names are remembered


class NearbyNote(NamedTuple):
    """A note near another and the first link between them. The title of a missing note is the link's text."""

    path: NotePath
    title: str
    link: ResolvedLink


class Neighbourhood(NamedTuple):
    """The notes that link to one and those it links to, nearest first. `cut`: there were more."""

    incoming: tuple[NearbyNote, ...]
    outgoing: tuple[NearbyNote, ...]
    cut: bool


@from_note_snapshot
def find_links_to(ws: Workspace, path: NotePath, policy: LinkPolicy) -> list[ResolvedLink]:
    """The first link of each note to this one, by path; for a missing note, the broken links identified by its path."""
    is_there = ws.index.find_file(path) is not None
    found = incoming(ws, path, policy) if is_there else _find_links_to_missing(ws, path, policy)
    firsts: dict[NotePath, ResolvedLink] = {}
    for link in found:
        if link.kind in WRITTEN_AS_NAMES:
            firsts.setdefault(link.source, link)
    return list(firsts.values())


@from_note_snapshot
def find_links_from(ws: Workspace, path: NotePath, policy: LinkPolicy) -> list[ResolvedLink]:
    """The first link of a note to each other end, in order; `path` of a broken link is what identifies it."""
    missing_path: Callable[[str, NotePath], NotePath] | None = None
    firsts: dict[str, ResolvedLink] = {}
    for link in outgoing(ws, path, policy):
        if link.kind not in WRITTEN_AS_NAMES or link.path == path:
            continue
        if link.path is None:
            missing_path = missing_path or _make_missing_path_finder(ws, policy)
            link = link._replace(path=missing_path(link.target, path))
        firsts.setdefault(path_key(link.path or ""), link)
    return list(firsts.values())


def find_neighbourhood(
    ws: Workspace,
    path: NotePath,
    policy: LinkPolicy,
    *,
    direction: Literal["in", "out", "both"] = "both",
    depth: int = 1,
    between: Callable[[], None] = lambda: None,
) -> Neighbourhood:
    """The notes up to `depth` links away in each direction, each once. `between` runs between steps and may raise.

    NotFound where there is neither a note at this path nor a broken link identified by it.
    """
    if not exists(ws, path) and not find_links_to(ws, path, policy):
        raise missing_note_error(ws, path)

    def walk() -> Neighbourhood:
        near, cut = dict[str, tuple[NearbyNote, ...]](), False
        for way, step in (("in", find_links_to), ("out", find_links_from)):
            if direction in (way, "both"):
                links, more = _follow_links(ws, path, depth, step, policy, between)
                near[way] = tuple(_to_nearby_note(ws, link) for link in links)
                cut = cut or more
        return Neighbourhood(near.get("in", ()), near.get("out", ()), cut)

    return snapshot(ws, walk)


def _follow_links(
    ws: Workspace, start: NotePath, depth: int, step: LinkStep, policy: LinkPolicy, between: Callable[[], None]
) -> tuple[list[ResolvedLink], bool]:
    """Follow links breadth first, each other end once; and say whether a bound cut them off."""
    deadline = time.monotonic() + ws.limits.seconds
    known, found, level = {path_key(start)}, list[ResolvedLink](), [start]
    while level and depth:
        fresh: list[NotePath] = []
        for path in level:
            between()
            for link in step(ws, path, policy):
                end = link.path or start
                if path_key(end) in known:
                    continue
                if len(found) == MAX_NEIGHBOURS or time.monotonic() > deadline:
                    return found, True
                known.add(path_key(end))
                found.append(link)
                if link.status != "broken" or end == link.source:  # there is a note whose links can be followed
                    fresh.append(end)
        level, depth = fresh, depth - 1
    return found, False


def _to_nearby_note(ws: Workspace, link: ResolvedLink) -> NearbyNote:
    """Treat a hidden note as missing: a link to it is broken, though it says the note's path."""
    path = link.path or link.source
    filed = ws.index.find_file(path) if ws.access.sees(path) else None
    return NearbyNote(path, filed.title if filed else link.target, link)


# ---- broken links -------------------------------------------------------------------------------------


def _find_links_to_missing(ws: Workspace, path: NotePath, policy: LinkPolicy) -> list[ResolvedLink]:
    """The broken links identified by this path."""
    rows = ws.index.links_toward(all_keys(path, _read_deleted_notes(ws.ledger).other_names(path)))
    resolve, missing_path = resolver(ws, policy, [row.target for row in rows]), _make_missing_path_finder(ws, policy)
    wanted = path_key(path)
    found = [
        (row, meant)
        for row in rows
        if ws.access.sees(row.source)
        and (meant := resolve(row.target, row.source)).path is None
        and path_key(missing_path(row.target, row.source)) == wanted
    ]
    return to_incoming_links(ws, found)


def _make_missing_path_finder(ws: Workspace, policy: LinkPolicy) -> Callable[[str, NotePath], NotePath]:
    """A function that returns the path by which a broken link is identified."""
    names = VisibleNames(_read_deleted_notes(ws.ledger).names, ws.access.sees)

    def find_missing_path(target: str, source: NotePath) -> NotePath:
        led_to = resolve_link(target, source, names, policy).path
        if led_to is None or ws.index.find_file(led_to) is not None:
            return NotePath(with_md(target.strip("/")))
        return led_to

    return find_missing_path


# ---- deleted notes ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _DeletedNotes:
    """The names of notes that were deleted through us, as far as one ledger's history was read."""

    data_version: int | None = None  # of the ledger at that time
    newest: str = ""  # the last change that was read
    versions: dict[NotePath, str] = field(default_factory=dict)  # of the last bytes, the latest deletion last
    notes: dict[str, Note] = field(default_factory=dict)  # by version, without their texts
    names: InMemoryNames = field(default_factory=InMemoryNames)

    def other_names(self, path: NotePath) -> tuple[str, ...]:
        note = self.notes.get(self.versions.get(path, ""))
        return (note.title, *note.aliases) if note else ()


_deleted: WeakKeyDictionary[Ledger, _DeletedNotes] = WeakKeyDictionary()
_deleted_lock = threading.Lock()


def _read_deleted_notes(ledger: Ledger) -> _DeletedNotes:
    """Bring the cached notes up to date: deleted through us and not created again through us."""
    with _deleted_lock:
        known, data_version = _deleted.get(ledger) or _DeletedNotes(), ledger.data_version()
        if data_version != known.data_version:
            newer = takewhile(lambda change: change.id != known.newest, iter_changes(ledger, ChangeQuery()))
            known = _deleted[ledger] = _add_changes(ledger, known, data_version, list(islice(newer, MAX_CHANGES)))
        return known


def _add_changes(ledger: Ledger, known: _DeletedNotes, data_version: int, changes: Sequence[Change]) -> _DeletedNotes:
    """A copy brought up to date with these changes, newest first."""
    versions = dict(known.versions)
    for change in reversed(changes):
        _apply_change(versions, change)
    versions = dict(list(versions.items())[-MAX_DELETED:])
    notes: dict[str, Note] = {}
    for path, version in versions.items():
        note = known.notes.get(version) or _parse_last_version(ledger, path, version)
        if note is not None:
            notes[version] = note
    named_notes = (notes[version]._replace(path=path) for path, version in versions.items() if version in notes)
    return _DeletedNotes(
        data_version, changes[0].id if changes else known.newest, versions, notes, InMemoryNames(versions, named_notes)
    )


def _apply_change(versions: dict[NotePath, str], change: Change) -> None:
    """Add the notes a change deleted, by path. A moved note is not deleted, unless it moved into the trash."""
    moved = {step.source for step in change.steps if step.source and not step.path.is_hidden}
    for step in change.steps:
        versions.pop(step.path, None)
        if step.after is None and step.before and step.path.is_note and step.path not in moved:
            versions[step.path] = step.before


def _parse_last_version(ledger: Ledger, path: NotePath, version: str) -> Note | None:
    """Parse the names of a deleted note, if the history still holds it; its text is not kept in memory."""
    data = ledger.blob(version)
    if data is None:
        return None
    note = parse(path, decode(data)[0])
    front = note.frontmatter._replace(properties={})
    return Note(path, "", note.title, front, (), (), (), (), note.aliases)
