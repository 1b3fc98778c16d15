"""What only Lens's tools need: links across workspaces, with paths that begin with the workspace's name."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from notewright.engine.find.links import WRITTEN_AS_NAMES, all_links
from notewright.engine.indexing.ready import wait
from notewright.engine.workspace import Workspace
from notewright.notes.links.names import Names
from notewright.notes.links.resolve import lens_policy, name_keys, resolve
from notewright.notes.path import NotePath


@dataclass(frozen=True, slots=True)
class AcrossNames(Names):
    """The notes of several workspaces that the caller may see, by name."""

    workspaces: Sequence[Workspace]

    def by_name(self, key: str) -> Sequence[NotePath]:
        return [
            full_name(ws, path)
            for ws in self.workspaces
            for path in ws.index.by_name(key)
            if path.is_note and ws.access.sees(path)
        ]


def full_name(ws: Workspace, path: str) -> NotePath:
    return NotePath(f"{ws.name}/{path}")


def find_forward_links(workspaces: Sequence[Workspace], ws: Workspace, path: NotePath) -> list[NotePath]:
    """The notes that the wikilinks of a note lead to, each once, in code point order."""
    source = full_name(ws, path)
    with _snapshots(workspaces):
        rows = [row for row in ws.index.links_from([path]) if row.kind in WRITTEN_AS_NAMES and row.target.strip()]
        found = {_resolve(workspaces, row.target, source) for row in rows}
    return sorted(target for target in found if target is not None)


def find_backlinks(workspaces: Sequence[Workspace], ws: Workspace, path: NotePath) -> list[NotePath]:
    """Notes of any workspace with a wikilink to this note, each once, in code point order."""
    wanted, keys = full_name(ws, path), tuple(name_keys(path))
    with _snapshots(workspaces):
        found = {
            source
            for other in workspaces
            for row in other.index.links_toward(keys)
            if row.kind in WRITTEN_AS_NAMES and other.access.sees(row.source)
            if _resolve(workspaces, row.target, source := full_name(other, row.source)) == wanted
        }
    return sorted(found)


def find_all_backlinks(ws: Workspace) -> dict[NotePath, set[NotePath]]:
    """The backlinks of every note of one workspace: the notes with a wikilink to it."""
    found: dict[NotePath, set[NotePath]] = {}
    prefix = len(ws.name) + 1
    with _snapshots([ws]):
        for rows in all_links(ws):
            for row in rows:
                if row.kind in WRITTEN_AS_NAMES and row.target.strip():
                    target = _resolve([ws], row.target, full_name(ws, row.source))
                    if target is not None:
                        found.setdefault(NotePath(target[prefix:]), set()).add(row.source)
    return found


@contextmanager
def _snapshots(workspaces: Sequence[Workspace]) -> Iterator[None]:
    """Wait for every index, and read one snapshot of each."""
    for ws in workspaces:
        wait(ws)
    with ExitStack() as stack:
        for ws in workspaces:
            stack.enter_context(ws.index.snapshot())
        yield


def _resolve(workspaces: Sequence[Workspace], target: str, source: NotePath) -> NotePath | None:
    return resolve(target, source, AcrossNames(workspaces), lens_policy([ws.name for ws in workspaces]))
