"""Files as they lie in their folders: listings with what a file system knows, and copies kept beside."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from notewright.engine.changes import Plan, Put, commit_latest, read_or_none
from notewright.engine.workspace import Workspace
from notewright.engine.write import admit, within_quota
from notewright.errors import Exists, NotFound
from notewright.notes import NotePath
from notewright.stores import Entry, Stored, version_of

BACKUPS = ".backups"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file that was written, and the copy of what it held before."""

    path: NotePath
    created: bool
    size: int
    version: str
    backup: NotePath | None


def walk(ws: Workspace, folder: str, *, recursive: bool, hidden: bool = False) -> Iterator[Entry]:
    """What is in a folder as its caller may see it; with `hidden` also what begins with a dot."""
    for entry in ws.store.children(folder, hidden=hidden):
        if not _seen(ws, entry.path, hidden):
            continue
        yield entry
        if recursive and entry.kind == "folder":
            yield from walk(ws, entry.path, recursive=True, hidden=hidden)


def _seen(ws: Workspace, path: NotePath, hidden: bool) -> bool:
    """Hiding holds for the visible part of a path, wherever dots stand in it."""
    if not hidden:
        return ws.access.sees(path)
    plain = "/".join(segment for segment in path.split("/") if not segment.startswith("."))
    return not plain or ws.access.sees(plain)


def fetch_copy(ws: Workspace, path: NotePath) -> Stored:
    """The bytes of a file, or of a copy kept in a `.backups` folder."""
    dotted = [segment for segment in path.split("/") if segment.startswith(".")]
    if dotted and (set(dotted) != {BACKUPS} or path.name.startswith(".") or not _seen(ws, path, True)):
        raise NotFound(f"there is no {path}", what="note", path=path)
    if not dotted:
        ws.access.may_see(path)
    return ws.store.read(path, hidden=bool(dotted))


def replace_with_copy(ws: Workspace, path: NotePath, data: bytes, *, overwrite: bool, make_folders: bool) -> Replaced:
    """Write a file; what it held before is kept beside it in the same change set."""
    admit(ws, path, len(data))
    outcome: list[Replaced] = []

    def make() -> Plan:
        old = read_or_none(ws.store, path)
        if old is None and not make_folders and not _is_folder(ws, path.folder):
            raise NotFound(f"the folder {path.folder} is not there", what="folder", path=path.folder)
        if old is not None and not overwrite:
            raise Exists(f"{path} is there already", hint="allow overwriting", path=path)
        within_quota(ws, 1 if old is None else 0, len(data) - (len(old.data) if old else 0))
        backup = None if old is None or old.data == data else backup_place(ws, path, ws.clock())
        outcome[:] = [Replaced(path, old is None, len(data), version_of(data), backup)]
        steps = [Put(path, data, old.version if old else None)]
        if backup is not None and old is not None:
            steps.insert(0, Put(backup, old.data, None))
        return Plan(tuple(steps), f"{'created' if old is None else 'overwrote'} {path}")

    commit_latest(ws, make)
    return outcome[0]


def _is_folder(ws: Workspace, folder: str) -> bool:
    try:
        return not folder or ws.store.stat(NotePath(folder)).kind == "folder"
    except NotFound:
        return False


def backup_place(ws: Workspace, path: NotePath, at: float) -> NotePath:
    """`{folder}/.backups/{stem}.{time}.md`; within one second `-1`, `-2` before the extension."""
    folder = f"{path.folder}/{BACKUPS}" if path.folder else BACKUPS
    stem, dot, extension = path.name.rpartition(".")
    stem, ending = (stem, dot + extension) if stem else (path.name, "")
    moment = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(at))
    number, name = 0, f"{stem}.{moment}{ending}"
    while read_or_none(ws.store, NotePath(f"{folder}/{name}")) is not None:
        number += 1
        name = f"{stem}.{moment}-{number}{ending}"
    return NotePath(f"{folder}/{name}")
