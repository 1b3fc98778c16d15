"""Bringing back what was backed up: into the workspace, so that it can be undone, or as plain files into a
folder or bucket.

It is the owner's: rules that hide notes from agents, or keep agents from writing, do not hold for it. Files are
believed only where their bytes are those that were backed up.
"""

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from notewright.engine.changes.batch_write import BatchResult, IncomingFile, SkippedFile, write_files
from notewright.engine.transfer.backup import Report, backup_place
from notewright.engine.transfer.backup_folder import NewFolder
from notewright.engine.transfer.manifest import (
    BackupPlace,
    Destination,
    FetchedFile,
    Manifest,
    OutgoingFile,
    WorkspacePart,
    copy_out,
    readable_manifests,
)
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound, ReadOnly, Unavailable
from notewright.notes.path import NotePath, with_md

BackupSource = str | os.PathLike[str] | BackupPlace  # a folder by its name
_LINKED = "a symlink is there now, and those are not written through"


@dataclass(frozen=True)
class Restored(BatchResult):
    """What was brought back of the backup of a day, or would be."""

    date: str = ""

    def record(self) -> dict[str, Any]:
        return {"date": self.date, **super().record(), "unchanged": len(self.unchanged)}


def last_good_backup(source: BackupSource) -> float | None:
    """When the newest backup without errors was made, in seconds since 1970; None if there is none."""
    with suppress(Unavailable):  # the folder comes with the first backup
        for manifest in readable_manifests(backup_place(source)):
            if not manifest.errors:
                return datetime.fromisoformat(manifest.made).timestamp()
    return None


def backups(source: BackupSource) -> list[Manifest]:
    """The backups in a place, newest first; those whose list cannot be read are left out."""
    place = backup_place(source)
    place.check()
    return list(readable_manifests(place))


def restore(
    ws: Workspace,
    source: BackupSource,
    *,
    date: str | None = None,
    paths: Sequence[str] = (),
    exact: bool = False,
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> Restored:
    """Bring files back into a workspace as they were: all of them, or those at or under `paths`. Others stay, unless it
    shall be `exact`. In change sets, so that undo takes it back."""
    if ws.access.read_only:
        raise ReadOnly("this workspace is read-only", hint="allow writing, or restore into another folder")
    place = backup_place(source)
    with _open_backup(place, date) as manifest:
        # One that was backed up alone may have had another name.
        part = manifest.parts[0] if len(manifest.parts) == 1 else _find_part(manifest, ws.id, ws.name)
        wanted = [path for _, path in _find_files((part,), paths)]
        there = {entry.path: entry for entry in ws.store.entries()}
        links = {path for path, entry in there.items() if entry.kind == "symlink"}
        extra = [path for path in there if exact and path not in part.files and _is_asked(path, paths)]
        files: list[IncomingFile | SkippedFile] = [
            SkippedFile(path, "symlink", _LINKED) if path in links else _incoming(place, manifest.date, part, path)
            for path in wanted
        ]
        files += [IncomingFile(path, there[path].size, None) for path in extra if path not in links]
        came = write_files(
            ws,
            files,
            summary=lambda count: (
                f"restored {count} file{'' if count == 1 else 's'} from the backup of {manifest.date}"
            ),
            overwrite=True,
            dry_run=dry_run,
            report=lambda done: report(done, len(files)),
        )
    return Restored(**vars(came), date=manifest.date)


def restore_to(
    to: str | os.PathLike[str] | Destination,
    source: BackupSource,
    *,
    date: str | None = None,
    workspace: str | None = None,
    paths: Sequence[str] = (),
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> Restored:
    """Copy a backup into an empty folder or prefix: the same bytes, and in a folder the same times. Of several
    workspaces the one named, else each into a folder of its own."""
    place, target = backup_place(source), NewFolder(to) if isinstance(to, str | os.PathLike) else to
    place.check()
    if f"{target.name}/".startswith(f"{place.name}/"):
        raise Invalid(f"{target.name} is inside the folder of backups", hint="choose a folder elsewhere", what="into")
    created, skipped = list[str](), list[SkippedFile]()
    with _open_backup(place, date) as manifest:
        parts = manifest.parts if workspace is None else (_find_part(manifest, workspace),)
        todo = _find_files(parts, paths)
        if not dry_run:
            target.make()
        files = [
            OutgoingFile(_target_name(parts, part, path), partial(_fetch, place, manifest.date, part, path))
            for part, path in todo
        ]
        at_once = max(place.at_once, target.at_once)
        for count, outcome in enumerate(copy_out(files, None if dry_run else target, at_once), 1):
            if isinstance(outcome, SkippedFile):
                skipped.append(outcome)
            elif outcome is not None:
                created.append(outcome[0])
            report(count, len(todo))
        if not dry_run:
            _make_links(target, parts, {path for _, path in todo} if paths else None)
            target.sync()
    return Restored(created=tuple(sorted(created)), skipped=tuple(skipped), date=manifest.date)


def _fetch(place: BackupPlace, date: str, part: WorkspacePart, path: NotePath) -> FetchedFile:
    kept = part.files[path]
    data, mode = place.read(date, part.place(path), kept)
    return FetchedFile(data, kept.modified_ns, mode)


# ---- which backup, which files ------------------------------------------------------------------------


@contextmanager
def _open_backup(place: BackupPlace, date: str | None) -> Iterator[Manifest]:
    """The backup of that day, or the newest, which nobody changes meanwhile."""
    place.check()
    with place.still():
        dates = place.dates()
        if not dates:
            raise NotFound(f"there is no backup in {place.name}", hint="is it the right place?", what="backup")
        if date is not None and date not in dates:
            near = difflib.get_close_matches(date, dates, n=3) or dates[-3:]
            hint = f"there is {', '.join(near)}"
            raise NotFound(f"there is no backup of {date}", hint=hint, what="backup", nearest=near)
        yield place.manifest(date or dates[-1])


def _find_part(manifest: Manifest, *names: str) -> WorkspacePart:
    for part in manifest.parts:
        if part.id in names or part.name in names:
            return part
    there = ", ".join(manifest.workspaces) or "nothing"
    words = f"there is no workspace {names[-1]!r} in the backup of {manifest.date}"
    raise NotFound(words, hint=f"there is {there}", what="workspace", workspace=names[-1])


def _find_files(parts: Sequence[WorkspacePart], paths: Sequence[str]) -> list[tuple[WorkspacePart, NotePath]]:
    """The files at or under these paths; NotFound for one that was not backed up."""
    everything = [(part, path) for part in parts for path in sorted(part.files)]
    for raw in paths:
        if not any(_is_asked(path, [raw]) for _, path in everything):
            near = difflib.get_close_matches(raw, [path for _, path in everything], n=3, cutoff=0.5)
            hint = f"near are {', '.join(near)}" if near else ""
            raise NotFound(f"{raw} is not in that backup", hint=hint, what="file", path=raw, nearest=near)
    return [(part, path) for part, path in everything if _is_asked(path, paths)]


def _is_asked(path: str, paths: Sequence[str]) -> bool:
    """At or under one of these, or everything."""
    asked = [raw.strip("/") for raw in paths]
    return not asked or any(path in (one, with_md(one)) or path.startswith(f"{one}/") for one in asked)


def _incoming(place: BackupPlace, date: str, part: WorkspacePart, path: NotePath) -> IncomingFile:
    kept = part.files[path]
    return IncomingFile(path, kept.size, lambda: _fetch(place, date, part, path).data, kept.sha256)


# ---- into another place ------------------------------------------------------------------------------------


def _target_name(parts: Sequence[WorkspacePart], part: WorkspacePart, path: str) -> str:
    return path if len(parts) == 1 else f"{part.id}/{path}"


def _make_links(target: Destination, parts: Sequence[WorkspacePart], only: set[NotePath] | None) -> None:
    """Symlinks as they were, where all they lead to is there again; a folder that cannot hold them goes without."""
    for part in parts:
        for path, real in part.links.items():
            if only is None or path in only or NotePath(real) in only:
                target.point(_target_name(parts, part, path), _target_name(parts, part, real))
