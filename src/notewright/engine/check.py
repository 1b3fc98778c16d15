"""Looking after a workspace: what a person should know before it bites."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from notewright.engine.find.links import ResolvedLink, incoming, resolved_links
from notewright.engine.indexing.ready import from_snapshot, snapshot, wait
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.errors import NotFound, Problem
from notewright.index.base import Needles, Selection
from notewright.notes.excerpts import Excerpt, excerpt_line, shorten_to_sentence
from notewright.notes.mentions import find_unlinked_mentions
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, name_problem, path_key
from notewright.stores.base import Entry


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str  # broken_link, ambiguous_link, name, twin, alias, content, index, file
    path: str
    line: int | None
    message: str


def check(ws: Workspace) -> list[Finding]:
    """Everything worth telling, by path and line. Changes nothing."""
    wait(ws)
    entries = [entry for entry in ws.store.entries() if entry.kind != "folder" and ws.access.sees(entry.path)]
    found = [*_links(ws), *_names(entries), *_aliases(ws), *_contents(ws), *_index(ws, entries)]
    for path, why in ws.store.unlisted_files():
        if ws.access.sees("/".join(part for part in path.split("/") if part not in (".", ".."))):  # no hidden names
            found.append(Finding("file", path, None, why))
    return sorted(found, key=lambda finding: (finding.path, finding.line or 0, finding.kind))


def _links(ws: Workspace) -> Iterator[Finding]:
    for link in snapshot(ws, lambda: [one for one in resolved_links(ws) if one.status != "ok"]):
        leads = "leads nowhere" if link.path is None else f"could mean several notes; it means {link.path}"
        yield Finding(f"{link.status}_link", link.source, link.line, f"[[{link.target}{link.subpath}]] {leads}")


def _names(entries: list[Entry]) -> Iterator[Finding]:
    spellings: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        spellings[path_key(entry.path)].append(entry.path)
        problem = name_problem(entry.path)
        if problem:
            yield Finding("name", entry.path, None, f"the name does not travel: {problem}")
    for twins in spellings.values():
        for path in twins[1:]:
            yield Finding("twin", path, None, f"differs from {twins[0]} only in case or accents' form")


def _aliases(ws: Workspace) -> Iterator[Finding]:
    for alias, paths in ws.index.shared_aliases():
        visible = [path for path in paths if ws.access.sees(path)]
        for path in visible[1:]:
            yield Finding("alias", path, None, f"the alias {alias!r} is also that of {visible[0]}")


def _contents(ws: Workspace) -> Iterator[Finding]:
    files, _ = ws.index.select(Selection(notes_only=True, visible=ws.access.visibility))
    for filed in files:
        if filed.problem:
            yield Finding("content", filed.path, None, filed.problem)


def _index(ws: Workspace, entries: list[Entry]) -> Iterator[Finding]:
    """The index against the files themselves, content included."""
    known = {path: stamp for path, stamp in ws.index.stamps() if ws.access.sees(path)}
    for entry in entries:
        stamp = known.pop(entry.path, None)
        if stamp is None and _is_there(ws, entry):
            yield Finding("index", entry.path, None, "the index does not know it yet")
        elif stamp is None:
            yield Finding("file", entry.path, None, "it is listed and cannot be read: its key may end with a slash")
        elif entry.path.is_note and entry.kind == "file" and not _same(ws, entry):
            yield Finding("index", entry.path, None, "the index holds an older text")
    for path in sorted(known):
        yield Finding("index", path, None, "the index knows a file that is not there")


def _is_there(ws: Workspace, entry: Entry) -> bool:
    """A service may list what it does not give under that name."""
    try:
        return ws.store.has_folders or bool(ws.store.read(entry.path))
    except NotFound:
        return False
    except Problem:
        return True


def _same(ws: Workspace, entry: Entry) -> bool:
    filed = ws.index.find_file(entry.path)
    try:
        return filed is not None and filed.version in ("", ws.store.read(NotePath(entry.path)).version)
    except Problem:
        return True  # unreadable now: _contents tells


class BrokenLinks(NamedTuple):
    """Of one folder and everything below it. `late`: time ran out, and there may be more links; orphans are unknown."""

    links: tuple[ResolvedLink, ...]  # broken and ambiguous, by note and line
    orphans: tuple[NotePath, ...]
    late: bool


@from_snapshot
def broken_links(ws: Workspace, folder: str) -> BrokenLinks:
    """One look at every link of the workspace."""
    until = time.monotonic() + ws.limits.seconds
    inside = f"{folder}/" if folder else ""
    loose: list[ResolvedLink] = []
    linked: set[NotePath] = set()
    for seen in resolved_links(ws):
        if time.monotonic() > until:
            return BrokenLinks(tuple(loose), (), True)
        if seen.status != "ok" and seen.source.startswith(inside):
            loose.append(seen)
        if seen.path is not None and seen.path != seen.source:
            linked.add(seen.path)
    notes, _ = ws.index.select(Selection(folder=folder, visible=ws.access.visibility))
    return BrokenLinks(tuple(loose), tuple(note.path for note in notes if note.path not in linked), False)


MAX_MENTIONS = 200


class UnlinkedMention(NamedTuple):
    path: NotePath
    line: int
    context: Excerpt  # the line, with the name in it


@from_snapshot
def mentions(ws: Workspace, path: NotePath) -> list[UnlinkedMention]:
    """Lines of notes that do not link to this one and yet name it, by its name or an alias; bounded."""
    linked = {path, *(link.source for link in incoming(ws, path, lines=False))}
    called = dict.fromkeys(name for name in (path.stem, *read(ws, path).note.aliases) if len(name.strip()) > 1)
    found: dict[tuple[NotePath, int], UnlinkedMention] = {}
    for name in called:
        for body in chain.from_iterable(ws.index.bodies(Needles(((name,),)), visible=ws.access.visibility)):
            text = body.text
            if len(found) >= MAX_MENTIONS:
                break
            if body.path in linked or name.casefold() not in text.casefold():
                continue
            lines = text.split("\n")
            for line in find_unlinked_mentions(parse(body.path, text), [name]):
                found[body.path, line] = UnlinkedMention(body.path, line, _excerpt_with(lines[line - 1], name))
    return sorted(found.values(), key=lambda one: (one.path, one.line))


def _excerpt_with(line: str, name: str) -> Excerpt:
    """The line, of a long one the sentence with the name."""
    found = re.search(re.escape(name.strip()), line, re.IGNORECASE)
    return shorten_to_sentence(excerpt_line(line, *(found.span() if found else (0, 0))))
