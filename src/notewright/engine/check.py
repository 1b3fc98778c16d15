"""Looking after a workspace: what a person should know before it bites."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from notewright.engine.links import broken
from notewright.engine.workspace import Workspace
from notewright.errors import Problem
from notewright.index import Selection
from notewright.notes import NotePath, name_problem, path_key
from notewright.stores import Entry


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str  # broken_link, ambiguous_link, name, twin, alias, content, index, file
    path: str
    line: int | None
    message: str


def check(ws: Workspace) -> list[Finding]:
    """Everything worth telling, by path and line. Changes nothing."""
    ws.follower.wait(ws.limits.index_seconds)
    entries = [entry for entry in ws.store.entries() if entry.kind != "folder" and ws.access.sees(entry.path)]
    found = [*_links(ws), *_names(entries), *_aliases(ws), *_contents(ws), *_index(ws, entries), *_unlisted(ws)]
    return sorted(found, key=lambda finding: (finding.path, finding.line or 0, finding.kind))


def _links(ws: Workspace) -> Iterator[Finding]:
    for link in broken(ws):
        written = f"[[{link.target}{link.subpath}]]"
        if link.status == "broken":
            yield Finding("broken_link", link.source, link.line, f"{written} leads nowhere")
        else:
            yield Finding(
                "ambiguous_link", link.source, link.line, f"{written} could mean several notes; it means {link.path}"
            )


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
    for alias, paths in ws.index.alias_twins():
        visible = [path for path in paths if ws.access.sees(path)]
        for path in visible[1:]:
            yield Finding("alias", path, None, f"the alias {alias!r} is also that of {visible[0]}")


def _contents(ws: Workspace) -> Iterator[Finding]:
    files, _ = ws.index.select(Selection(notes_only=True, visible=ws.access.sees))
    for filed in files:
        if filed.problem:
            yield Finding("content", filed.path, None, filed.problem)


def _index(ws: Workspace, entries: list[Entry]) -> Iterator[Finding]:
    """The index against the files themselves, content included."""
    known = {path: stamp for path, stamp in ws.index.stamps() if ws.access.sees(path)}
    for entry in entries:
        stamp = known.pop(entry.path, None)
        if stamp is None:
            yield Finding("index", entry.path, None, "the index does not know it yet")
        elif entry.path.is_note and entry.kind == "file" and not _same(ws, entry):
            yield Finding("index", entry.path, None, "the index holds an older text")
    for path in known:
        yield Finding("index", path, None, "the index knows a file that is not there")


def _same(ws: Workspace, entry: Entry) -> bool:
    filed = ws.index.filed(entry.path)
    try:
        return filed is not None and filed.version in ("", ws.store.read(NotePath(entry.path)).version)
    except Problem:
        return True  # unreadable now: _contents tells


def _unlisted(ws: Workspace) -> Iterator[Finding]:
    for path, why in ws.store.oddities():
        if ws.access.sees(path):
            yield Finding("file", path, None, why)
