"""The notes around a note: who links to it and where it links, each other end once, links that lead nowhere included.

A link that leads nowhere is known by the path of the note it led to before that was deleted, as long as the history
remembers what that was called; after that by what is written.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from notewright.engine.changes.history import all_changes
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
MAX_CHANGES = 2_000  # of the history that are looked at for deleted notes
MAX_DELETED = 500  # deleted notes whose names are remembered


class NearbyNote(NamedTuple):
    """A note near another and the first link between them. What is not there has the link's text for a title."""

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
    """The first link of each note to this one, by path; to a note that is not there, those that are known by it."""
    there = ws.index.find_file(path) is not None
    found = incoming(ws, path, policy) if there else _links_to_missing(ws, path, policy)
    firsts: dict[NotePath, ResolvedLink] = {}
    for link in found:
        if link.kind in WRITTEN_AS_NAMES:
            firsts.setdefault(link.source, link)
    return list(firsts.values())


@from_note_snapshot
def find_links_from(ws: Workspace, path: NotePath, policy: LinkPolicy) -> list[ResolvedLink]:
    """The first link of a note to each other end, in order; where it leads nowhere, `path` is what that is known by."""
    missing_path: Callable[[str, NotePath], NotePath] | None = None
    firsts: dict[str, ResolvedLink] = {}
    for link in outgoing(ws, path, policy):
        if link.kind not in WRITTEN_AS_NAMES or link.path == path:
            continue
        if link.path is None:
            missing_path = missing_path or _missing_path(ws, policy)
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
    """As far as `depth` links lead in each direction, each note once. `between` is called between steps and may raise.

    NotFound where there is neither a note nor a link that is known by this path.
    """
    if not exists(ws, path) and not find_links_to(ws, path, policy):
        raise missing_note_error(ws, path)

    def found() -> Neighbourhood:
        near, cut = dict[str, tuple[NearbyNote, ...]](), False
        for way, step in (("in", find_links_to), ("out", find_links_from)):
            if direction in (way, "both"):
                links, more = _walk(ws, path, depth, step, policy, between)
                near[way] = tuple(_to_nearby_note(ws, link) for link in links)
                cut = cut or more
        return Neighbourhood(near.get("in", ()), near.get("out", ()), cut)

    return snapshot(ws, found)


def _walk(
    ws: Workspace, start: NotePath, depth: int, step: LinkStep, policy: LinkPolicy, between: Callable[[], None]
) -> tuple[list[ResolvedLink], bool]:
    """The links from note to note, breadth first, each other end once; and whether a bound cut them off."""
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
                if link.status != "broken" or end == link.source:  # there is a note to go on from
                    fresh.append(end)
        level, depth = fresh, depth - 1
    return found, False


def _to_nearby_note(ws: Workspace, link: ResolvedLink) -> NearbyNote:
    """A hidden note is one that is not there: a link that leads to it leads nowhere, though it says its path."""
    path = link.path or link.source
    filed = ws.index.find_file(path) if ws.access.sees(path) else None
    return NearbyNote(path, filed.title if filed else link.target, link)


# ---- links that lead nowhere --------------------------------------------------------------------------


def _links_to_missing(ws: Workspace, path: NotePath, policy: LinkPolicy) -> list[ResolvedLink]:
    """Links that lead nowhere and are known by this path."""
    resolve, missing_path, wanted = resolver(ws, policy), _missing_path(ws, policy), path_key(path)
    others = _deleted_notes(ws.ledger).other_names(path)
    found = [
        (row, meant)
        for row in ws.index.links_toward(all_keys(path, others))
        if ws.access.sees(row.source)
        and (meant := resolve(row.target, row.source)).path is None
        and path_key(missing_path(row.target, row.source)) == wanted
    ]
    return to_incoming_links(ws, found)


def _missing_path(ws: Workspace, policy: LinkPolicy) -> Callable[[str, NotePath], NotePath]:
    """A function that gives the path a link is known by that leads nowhere."""
    names = VisibleNames(_deleted_notes(ws.ledger).names, ws.access.sees)

    def known(target: str, source: NotePath) -> NotePath:
        led_to = resolve_link(target, source, names, policy).path
        if led_to is None or ws.index.find_file(led_to) is not None:
            return NotePath(with_md(target.strip("/")))
        return led_to

    return known


# ---- deleted notes ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _DeletedNotes:
    """Notes that were deleted through us, as far as one ledger's history was looked at: what their last text said."""

    data_version: int | None = None  # of the ledger at that time
    newest: str = ""  # the change up to which
    versions: dict[NotePath, str] = field(default_factory=dict)  # of the last bytes, the latest deletion last
    notes: dict[str, Note] = field(default_factory=dict)  # by version, without their texts
    names: InMemoryNames = field(default_factory=InMemoryNames)

    def other_names(self, path: NotePath) -> tuple[str, ...]:
        note = self.notes.get(self.versions.get(path, ""))
        return (note.title, *note.aliases) if note else ()


_memory: WeakKeyDictionary[Ledger, _DeletedNotes] = WeakKeyDictionary()
_memory_lock = threading.Lock()


def _deleted_notes(ledger: Ledger) -> _DeletedNotes:
    """Notes deleted through us and not made again through us."""
    with _memory_lock:
        known, data_version = _memory.get(ledger) or _DeletedNotes(), ledger.data_version()
        if data_version != known.data_version:
            newer = takewhile(lambda change: change.id != known.newest, all_changes(ledger, ChangeQuery()))
            known = _memory[ledger] = _with_changes(ledger, known, data_version, list(islice(newer, MAX_CHANGES)))
        return known


def _with_changes(ledger: Ledger, known: _DeletedNotes, data_version: int, changes: Sequence[Change]) -> _DeletedNotes:
    """What is known after these changes, newest first, too."""
    versions = dict(known.versions)
    for change in reversed(changes):
        _apply_change(versions, change)
    versions = dict(list(versions.items())[-MAX_DELETED:])
    notes: dict[str, Note] = {}
    for path, version in versions.items():
        note = known.notes.get(version) or _parse_last_version(ledger, path, version)
        if note is not None:
            notes[version] = note
    called = (notes[version]._replace(path=path) for path, version in versions.items() if version in notes)
    return _DeletedNotes(
        data_version, changes[0].id if changes else known.newest, versions, notes, InMemoryNames(versions, called)
    )


def _apply_change(versions: dict[NotePath, str], change: Change) -> None:
    """Add the notes a change deleted, by path. A note that was moved is not deleted, unless into the trash."""
    moved = {step.source for step in change.steps if step.source and not step.path.is_hidden}
    for step in change.steps:
        versions.pop(step.path, None)
        if step.after is None and step.before and step.path.is_note and step.path not in moved:
            versions[step.path] = step.before


def _parse_last_version(ledger: Ledger, path: NotePath, version: str) -> Note | None:
    """What a deleted note was called, if the history still holds it; its text is not kept in memory."""
    data = ledger.blob(version)
    if data is None:
        return None
    note = parse(path, decode(data)[0])
    front = note.frontmatter._replace(properties={})
    return Note(path, "", note.title, front, (), (), (), (), note.aliases)
