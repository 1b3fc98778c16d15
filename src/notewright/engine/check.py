"""Find what is wrong in a workspace: broken links, odd names, unreadable files, an index that is behind."""

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
from notewright.notes.parse.block_scanner import normalize_line_endings
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
    """Everything that may be wrong, by path and line. Changes nothing."""
    wait(ws)
    entries = [entry for entry in ws.store.entries() if entry.kind != "folder" and ws.access.sees(entry.path)]
    found = [*_check_names(entries), *_check_index(ws, entries)]
    for link in snapshot(ws, lambda: [one for one in resolved_links(ws) if one.status != "ok"]):
        leads = "leads nowhere" if link.path is None else f"could mean several notes; it means {link.path}"
        words = f"[[{link.target}{link.subpath}]] {leads}"
        found.append(Finding(f"{link.status}_link", link.source, link.line, words))
    for alias, paths in ws.index.shared_aliases():
        visible = [path for path in paths if ws.access.sees(path)]
        for path in visible[1:]:
            found.append(Finding("alias", path, None, f"the alias {alias!r} is also that of {visible[0]}"))
    files, _ = ws.index.select(Selection(notes_only=True, visible=ws.access.visibility))
    found += [Finding("content", file.path, None, file.problem) for file in files if file.problem]
    for odd in ws.store.unlisted_files():
        if ws.access.sees("/".join(part for part in odd.path.split("/") if part not in (".", ".."))):  # no hidden names
            found.append(Finding("file", odd.path, None, odd.why))
    return sorted(found, key=lambda finding: (finding.path, finding.line or 0, finding.kind))


def _check_names(entries: list[Entry]) -> Iterator[Finding]:
    spellings: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        spellings[path_key(entry.path)].append(entry.path)
        if problem := name_problem(entry.path):
            yield Finding("name", entry.path, None, f"the name does not travel: {problem}")
    for twins in spellings.values():
        for path in twins[1:]:
            yield Finding("twin", path, None, f"differs from {twins[0]} only in case or accents' form")


def _check_index(ws: Workspace, entries: list[Entry]) -> Iterator[Finding]:
    """Compare the index with the files themselves, content included."""
    known = {path: stamp for path, stamp in ws.index.stamps() if ws.access.sees(path)}
    for entry in entries:
        is_known = known.pop(entry.path, None) is not None
        is_note = entry.path.is_note and entry.kind == "file"
        version = None
        try:
            if is_note if is_known else not ws.store.has_folders:
                version = ws.store.read(entry.path).version
        except NotFound:
            if not is_known:  # a service may list a name and give nothing under it
                yield Finding("file", entry.path, None, "it is listed and cannot be read: its key may end with a slash")
                continue
        except Problem:
            pass  # unreadable now: that is a finding of its own
        if not is_known:
            yield Finding("index", entry.path, None, "the index does not know it yet")
        elif is_note:
            file = ws.index.find_file(entry.path)
            if file is None or (version is not None and file.version not in ("", version)):
                yield Finding("index", entry.path, None, "the index holds an older text")
    for path in sorted(known):
        yield Finding("index", path, None, "the index knows a file that is not there")


class BrokenLinks(NamedTuple):
    """The links of one folder and below. `late`: time ran out, so there may be more links, and orphans are unknown."""

    links: tuple[ResolvedLink, ...]  # broken and ambiguous, by note and line
    orphans: tuple[NotePath, ...]
    late: bool


@from_snapshot
def broken_links(ws: Workspace, folder: str) -> BrokenLinks:
    """Find broken and ambiguous links, and notes that nothing links to, by resolving every link of the workspace."""
    until = time.monotonic() + ws.limits.seconds
    inside = f"{folder}/" if folder else ""
    broken: list[ResolvedLink] = []
    linked: set[NotePath] = set()
    for link in resolved_links(ws):
        if time.monotonic() > until:
            return BrokenLinks(tuple(broken), (), True)
        if link.status != "ok" and link.source.startswith(inside):
            broken.append(link)
        if link.path is not None and link.path != link.source:
            linked.add(link.path)
    notes, _ = ws.index.select(Selection(folder=folder, visible=ws.access.visibility))
    return BrokenLinks(tuple(broken), tuple(note.path for note in notes if note.path not in linked), False)


MAX_MENTIONS = 200


class UnlinkedMention(NamedTuple):
    path: NotePath
    line: int
    context: Excerpt  # the line, with the name in it


@from_snapshot
def mentions(ws: Workspace, path: NotePath) -> list[UnlinkedMention]:
    """Find lines that name this note, or an alias of it, in notes that do not link to it; bounded."""
    linked = {path, *(link.source for link in incoming(ws, path, lines=False))}
    names = dict.fromkeys(name for name in (path.stem, *read(ws, path).note.aliases) if len(name.strip()) > 1)
    found: dict[tuple[NotePath, int], UnlinkedMention] = {}
    for name in names:
        for body in chain.from_iterable(ws.index.bodies(Needles(((name,),)), visible=ws.access.visibility)):
            text = body.text
            if len(found) >= MAX_MENTIONS:
                break
            if body.path in linked or name.casefold() not in text.casefold():
                continue
            lines = normalize_line_endings(text).split("\n")
            wanted = re.compile(re.escape(name.strip()), re.IGNORECASE)
            for line in find_unlinked_mentions(parse(body.path, text), [name]):
                at = wanted.search(lines[line - 1])  # a long line is shown by the sentence with the name
                excerpt = shorten_to_sentence(excerpt_line(lines[line - 1], *(at.span() if at else (0, 0))))
                found[body.path, line] = UnlinkedMention(body.path, line, excerpt)
    return sorted(found.values(), key=lambda one: (one.path, one.line))
