"""Bringing files into a workspace from a folder, a zip file or a bucket, with a report of what did not come and why.

The rules for new files hold: names that work everywhere, sizes, quotas, where the caller may write. It is one change
set, or a few where it is much, so that undo takes it back.
"""

import os
import unicodedata
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from notewright.engine.changes.batch_write import BatchResult, IncomingFile, SkippedFile, UnreadableFile, write_files
from notewright.engine.changes.quotas import room
from notewright.engine.transfer.backup import Report
from notewright.engine.transfer.import_sources import Source, SourceFile, StoreSource, source_files
from notewright.engine.transfer.manifest import refuse_overlap
from notewright.engine.workspace import Workspace
from notewright.engine.write import refuse_twin
from notewright.errors import Invalid, Problem, ReadOnly
from notewright.notes.path import NotePath, name_problem, path_key
from notewright.stores.base import Entry, parents

_RUBBISH = {"__macosx", "thumbs.db", "desktop.ini"}  # what systems put into folders and zip files for themselves


@dataclass(frozen=True)
class ImportReport(BatchResult):
    """What came, or would come."""

    dry_run: bool = False

    def record(self) -> dict[str, Any]:
        """As it is told to programs."""
        record = {**super().record(), "dry_run": self.dry_run}
        del record["deleted"]
        return record


def import_files(
    ws: Workspace,
    source: Source,
    *,
    into: str = "",
    overwrite: bool = False,
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> ImportReport:
    """Import a folder, zip file or bucket under the folder `into`. Files that are there stay, unless `overwrite`."""
    if ws.access.read_only:
        raise ReadOnly("this workspace is read-only", hint="ask its owner to allow writing")
    if isinstance(source, str | os.PathLike) and os.path.isdir(os.path.expanduser(source)):
        place = os.path.expanduser(os.fspath(source))
        refuse_overlap(ws.store, ws.name, place, None, "the folder to import")
    if isinstance(source, StoreSource):
        refuse_overlap(ws.store, ws.name, source.name, source.store.objects, "the bucket to import")
    folder = _folder(ws, into)
    ws.follower.may_write()
    admission = _Admission(ws, folder, overwrite)
    came = write_files(
        ws,
        map(admission.judge, source_files(source)),
        summary=lambda count: f"imported {count} file{'' if count == 1 else 's'}" + _where(source, folder),
        overwrite=overwrite,
        dry_run=dry_run,
        report=lambda done: report(done, None),
    )
    return ImportReport(**vars(came), dry_run=dry_run)


def _where(source: Source, folder: str) -> str:
    named = f" from {source.name}" if isinstance(source, StoreSource) else ""
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


class _Admission:
    """Which files may come in, each judged as if those before it had come."""

    def __init__(self, ws: Workspace, folder: str, overwrite: bool) -> None:
        self.ws, self.folder, self.overwrite = ws, folder, overwrite
        self.there: dict[NotePath, Entry | None] = {entry.path: entry for entry in ws.store.entries()}  # None: arrived
        self.kinds: dict[str, dict[str, str]] = {}  # file or folder, by the key of its name and its spellings
        for path in self.there:
            self._add_name(path)
        self.room = room(ws)

    def judge(self, one: SourceFile) -> SourceFile:
        try:
            return self._admit(one)
        except UnreadableFile as refused:
            return refused.skipped(one.path)

    def _admit(self, one: SourceFile) -> IncomingFile:
        """The file under its name in the workspace; UnreadableFile where something is against it."""
        pieces = one.path.split("/")
        if any(piece.lower() in _RUBBISH for piece in pieces):
            raise UnreadableFile("rubbish", "it is of the system, not of the notes")
        if any(piece.startswith(".") and piece not in (".", "..") for piece in pieces):
            raise UnreadableFile("dotted", "a name in it begins with a dot")
        if isinstance(one, SkippedFile):
            raise UnreadableFile(one.reason, one.words)
        path = self._path(one.path)
        if one.size > self.ws.limits.note_bytes:
            most = self.ws.limits.note_bytes
            raise UnreadableFile("too_large", f"it has {one.size:,} bytes; the most is {most:,}")
        self._refuse_taken(path)
        self._refuse_over_quota(path, one.size)
        self.there[path] = None
        self._add_name(path)
        return replace(one, path=path)

    def _path(self, name: str) -> NotePath:
        try:
            path = NotePath.parse(unicodedata.normalize("NFC", f"{self.folder}/{name}" if self.folder else name))
        except Invalid as problem:
            raise UnreadableFile("bad_name", problem.message) from None
        if words := name_problem(path):
            raise UnreadableFile("bad_name", words)
        try:
            self.ws.access.may_write(path)
        except Problem as problem:
            raise UnreadableFile("not_allowed", str(problem)) from None
        return path

    def _refuse_taken(self, path: NotePath) -> None:
        if path not in self.there:
            return self._refuse_twin(path)
        there = self.there[path]
        if there is None:
            raise UnreadableFile("twice", "it is in there twice; the first one was taken")
        if there.kind == "symlink":
            raise UnreadableFile("symlink", "a symlink is there, and those are not written through")

    def _refuse_over_quota(self, path: NotePath, size: int) -> None:
        there = self.there.get(path)
        if there is not None and not self.overwrite:
            return
        more = {"files": 0, "bytes": size - there.size} if there else {"files": 1, "bytes": size}
        for unit, left in self.room.items():
            if left is not None and more[unit] > max(left, 0):
                raise UnreadableFile("quota", f"the workspace may hold no more {unit}")
        self.room = {unit: None if left is None else left - more[unit] for unit, left in self.room.items()}

    def _add_name(self, path: NotePath) -> None:
        for place in (path, *parents(path)):
            spellings = self.kinds.setdefault(path_key(place), {})
            if place in spellings:
                break
            spellings[place] = "file" if place == path else "folder"

    def _refuse_twin(self, path: NotePath) -> None:
        """A new name must be no other spelling of one that is there."""
        for place in (*reversed(parents(path)), path):
            spellings = self.kinds.get(path_key(place), {})
            for there, kind in spellings.items():
                if kind == ("folder" if place == path else "file"):
                    self._refuse(there, f"{there} is a {kind}")
            if spellings and place not in spellings:
                there = next(iter(spellings))
                self._refuse(there, f"there is {there}, the same name in another spelling")

    def _refuse(self, there: str, words: str) -> NoReturn:
        """A name the caller may not see is not told."""
        if self.ws.access.sees(there):
            raise UnreadableFile("exists", words)
        raise UnreadableFile("not_allowed", "writing there is not allowed")
