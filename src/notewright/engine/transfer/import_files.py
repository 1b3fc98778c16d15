"""Bringing files into a workspace from a folder or a zip file, with a report of what did not come and why.

The rules for new files hold: names that work everywhere, sizes, quotas, where the caller may write. It is one change
set, or a few where it is much, so that undo takes it back.
"""

import os
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from notewright.engine.changes.batch_write import IncomingFile, SkippedFile, write_files
from notewright.engine.changes.quotas import room
from notewright.engine.transfer.backup import Report, refuse_overlap
from notewright.engine.transfer.import_sources import Source, SourceFile, source_files
from notewright.engine.workspace import Workspace
from notewright.engine.write import refuse_twin
from notewright.errors import Invalid, Problem, ReadOnly
from notewright.notes.path import NotePath, name_problem, path_key
from notewright.stores.base import Entry

_RUBBISH = {"__macosx", "thumbs.db", "desktop.ini"}  # what systems put into folders and zip files for themselves
Against = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What came, or would come. `changes` take it back; there are several where it was much."""

    created: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    changes: tuple[str, ...] = ()
    dry_run: bool = False

    def record(self) -> dict[str, Any]:
        """As it is told to programs."""
        return {
            "created": list(self.created),
            "replaced": list(self.replaced),
            "unchanged": list(self.unchanged),
            "skipped": [{"path": one.path, "reason": one.reason, "words": one.words} for one in self.skipped],
            "changes": list(self.changes),
            "dry_run": self.dry_run,
        }


def import_files(
    ws: Workspace,
    source: Source,
    *,
    into: str = "",
    overwrite: bool = False,
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> ImportReport:
    """Import a folder or a zip file under the folder `into`. Files that are there stay, unless `overwrite`."""
    if ws.access.read_only:
        raise ReadOnly("this workspace is read-only", hint="ask its owner to allow writing")
    if isinstance(source, str | os.PathLike) and os.path.isdir(os.path.expanduser(source)):
        refuse_overlap([ws], os.path.expanduser(os.fspath(source)), "the folder to import")
    folder = _folder(ws, into)
    ws.follower.may_write()
    door = _Admission(ws, folder, overwrite)
    with source_files(source) as coming:
        came = write_files(
            ws,
            door.let_in(coming),
            summary=lambda count: f"imported {count} file{'' if count == 1 else 's'}" + _where(source, folder),
            overwrite=overwrite,
            dry_run=dry_run,
            report=lambda done: report(done, None),
        )
    skipped = sorted((*door.skipped, *came.skipped), key=lambda one: one.path)
    created, replaced, unchanged = (tuple(sorted(paths)) for paths in (came.created, came.replaced, came.unchanged))
    return ImportReport(created, replaced, unchanged, tuple(skipped), tuple(came.changes), dry_run)


def _where(source: Source, folder: str) -> str:
    named = ""
    if isinstance(source, str | os.PathLike):
        name = os.fsencode(os.path.basename(os.fspath(source).rstrip("/"))).decode("utf-8", "replace")
        named = f" from {name}"
    return named + (f" into {folder}" if folder else "")


def _folder(ws: Workspace, raw: str) -> str:
    """The folder to import into, as a path that may be made."""
    if not raw.strip("/"):
        return ""
    folder = NotePath.parse(unicodedata.normalize("NFC", raw.strip("/")))
    problem = name_problem(folder)
    if problem:
        raise Invalid(f"{raw!r} cannot be a folder: {problem}", hint="choose another name", what="into")
    refuse_twin(ws, folder)
    return folder


@dataclass
class _Admission:
    """Who may come in. What may not is in `skipped` once everything has arrived."""

    ws: Workspace
    folder: str
    overwrite: bool
    skipped: list[SkippedFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.there: dict[NotePath, Entry] = {entry.path: entry for entry in self.ws.store.entries()}
        self.names = _Names(self.ws)
        for path in self.there:
            self.names.add(path)
        self.arrived: set[NotePath] = set()
        self.room = room(self.ws)

    def let_in(self, coming: Iterator[SourceFile]) -> Iterator[IncomingFile]:
        for one in coming:
            path, against = self._judged(one)
            if against is not None:
                self.skipped.append(SkippedFile(one.name, *against))
                continue
            self.arrived.add(path)
            self.names.add(path)
            yield IncomingFile(path, one.size, one.fetch)

    def _judged(self, one: SourceFile) -> tuple[NotePath, Against | None]:
        pieces = one.name.split("/")
        if any(piece.lower() in _RUBBISH for piece in pieces):
            return NotePath(""), ("rubbish", "it is of the system, not of the notes")
        raw = unicodedata.normalize("NFC", f"{self.folder}/{one.name}" if self.folder else one.name)
        if any(piece.startswith(".") and piece not in (".", "..") for piece in pieces):
            return NotePath(""), ("dotted", "a name in it begins with a dot")
        if one.against is not None:
            return NotePath(""), one.against
        try:
            path = NotePath.parse(raw)
        except Invalid as problem:
            return NotePath(""), ("bad_name", problem.message)
        checks: tuple[Callable[[NotePath, SourceFile], Against | None], ...]
        checks = (_portable, self._allowed, self._small, self._free, self._fits)
        return path, next((against for check in checks if (against := check(path, one)) is not None), None)

    def _allowed(self, path: NotePath, one: SourceFile) -> Against | None:
        try:
            self.ws.access.may_write(path)
        except Problem as problem:
            return "not_allowed", str(problem)
        return None

    def _small(self, path: NotePath, one: SourceFile) -> Against | None:
        most = self.ws.limits.note_bytes
        return ("too_large", f"it has {one.size:,} bytes; the most is {most:,}") if one.size > most else None

    def _free(self, path: NotePath, one: SourceFile) -> Against | None:
        if path in self.arrived:
            return "twice", "it is in there twice; the first one was taken"
        there = self.there.get(path)
        if there is not None and there.kind == "symlink":
            return "symlink", "a symlink is there, and those are not written through"
        return None if there is not None else self.names.against(path)

    def _fits(self, path: NotePath, one: SourceFile) -> Against | None:
        """Quotas, as if everything so far had come."""
        there = self.there.get(path)
        if there is not None and not self.overwrite:
            return None
        files, size = (0, one.size - there.size) if there else (1, one.size)
        for unit, more in (("files", files), ("bytes", size)):
            left = self.room[unit]
            if left is not None and more > 0 and more > left:
                return "quota", f"the workspace may hold no more {unit}"
        for unit, more in (("files", files), ("bytes", size)):
            left = self.room[unit]
            self.room[unit] = None if left is None else left - more
        return None


def _portable(path: NotePath, one: SourceFile) -> Against | None:
    problem = name_problem(path)
    return ("bad_name", problem) if problem else None


class _Names:
    """The names there are, to tell a new one from another spelling of an old one."""

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._exactly: set[str] = set()

    def add(self, path: NotePath) -> None:
        self._files.setdefault(path_key(path), path)
        folder = path.folder
        while folder and folder not in self._exactly:
            self._exactly.add(folder)
            self._folders.setdefault(path_key(folder), folder)
            folder = folder.rpartition("/")[0]

    def against(self, path: NotePath) -> Against | None:
        pieces = path.split("/")
        for count in range(1, len(pieces)):
            folder = "/".join(pieces[:count])
            file, twin = self._files.get(path_key(folder)), self._folders.get(path_key(folder))
            if file is not None:
                return self._told(file, f"{file} is a file")
            if twin is not None and folder not in self._exactly:
                return self._told(twin, f"there is {twin}, the same name in another spelling")
        folder, file = self._folders.get(path_key(path), ""), self._files.get(path_key(path))
        if folder:
            return self._told(folder, f"{folder} is a folder")
        if file is not None and file != path:
            return self._told(file, f"there is {file}, the same name in another spelling")
        return None

    def _told(self, there: str, words: str) -> Against:
        """A name the caller may not see is not told."""
        return ("exists", words) if self._ws.access.sees(there) else ("not_allowed", "writing there is not allowed")
