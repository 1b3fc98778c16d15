"""Restore a backup: into the workspace, so that it can be undone, or as plain files into a folder or bucket.

It is the owner's: rules that hide notes from agents, or keep agents from writing, do not apply to it. A file is
restored only where its bytes are those that were backed up.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from notewright.engine.changes.batch_write import BatchResult, IncomingFile, SkippedFile, write_files
from notewright.engine.transfer.backup import Report
from notewright.engine.transfer.backup_folder import make_symlink
from notewright.engine.transfer.export import ExportResult, FetchedFile, copy_files, open_empty_place
from notewright.engine.transfer.manifest import BackupPlace, Manifest, WorkspacePart, readable_manifests
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound, ReadOnly, Unavailable
from notewright.notes.path import NotePath, with_md
from notewright.stores.base import Store

_LINKED = "a symlink is there now, and those are not written through"


@dataclass(frozen=True)
class RestoreResult(BatchResult):
    """What was restored from the backup of a day, or would be."""

    date: str = ""

    def record(self) -> dict[str, Any]:
        return {"date": self.date, **super().record(), "unchanged": len(self.unchanged)}


def last_good_backup(place: BackupPlace) -> float | None:
    """When the newest backup without errors was made, in seconds since 1970; None if there is none."""
    with suppress(NotFound, Unavailable):  # the folder is made by the first backup
        for manifest in readable_manifests(place):
            if not manifest.errors:
                return datetime.fromisoformat(manifest.made).timestamp()
    return None


def restore(
    ws: Workspace,
    place: BackupPlace,
    *,
    date: str | None = None,
    paths: Sequence[str] = (),
    exact: bool = False,
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> RestoreResult:
    """Restore files of a workspace as they were: all of them, or those at or under `paths`. Newer files stay, unless it
    is `exact`. In change sets, so that undo takes it back."""
    if ws.access.read_only:
        raise ReadOnly("this workspace is read-only", hint="allow writing, or restore into another folder")
    with _open_backup(place, date) as manifest:
        # A workspace that was backed up alone may have had another name.
        part = manifest.parts[0] if len(manifest.parts) == 1 else _find_part(manifest, ws.id, ws.name)
        there = {entry.path: entry for entry in ws.store.entries()}
        links = {path for path, entry in there.items() if entry.kind == "symlink"}
        files: list[IncomingFile | SkippedFile] = []
        for _, path in _find_files((part,), paths):
            kept = part.files[path]
            if path in links:
                files.append(SkippedFile(path, "symlink", _LINKED))
            else:
                files.append(
                    IncomingFile(path, kept.size, partial(_fetch_data, place, manifest.date, part, path), kept.sha256)
                )
        extra = [path for path in there if exact and path not in part.files and _is_asked(path, paths)]
        files += [IncomingFile(path, there[path].size, None) for path in extra if path not in links]
        from_day = f"from the backup of {manifest.date}"
        result = write_files(
            ws,
            files,
            summary=lambda count: f"restored {count} file{'' if count == 1 else 's'} {from_day}",
            overwrite=True,
            dry_run=dry_run,
            report=lambda done: report(done, len(files)),
        )
    return RestoreResult(**vars(result), date=manifest.date)


def restore_to(
    into: str,
    make: Callable[[], Store],
    place: BackupPlace,
    *,
    date: str | None = None,
    workspace: str | None = None,
    paths: Sequence[str] = (),
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> RestoreResult:
    """Copy a backup into an empty folder or prefix, which `make` opens: the same bytes, and in a folder the same times.
    Of several workspaces the one named, else each into a folder of its own."""
    if f"{into}/".startswith(f"{place.name}/"):
        raise Invalid(f"{into} is inside the folder of backups", hint="choose a folder elsewhere", what="into")
    done = ExportResult()
    with _open_backup(place, date) as manifest, ExitStack() as opened:
        parts = manifest.parts if workspace is None else (_find_part(manifest, workspace),)

        def target(part: WorkspacePart, path: str) -> str:
            return path if len(parts) == 1 else f"{part.id}/{path}"

        todo = _find_files(parts, paths)
        store = None if dry_run else opened.enter_context(closing(make()))
        put, threads = opened.enter_context(open_empty_place(store)) if store else (lambda name, found: None, 1)
        files = [(target(part, path), partial(_fetch, place, manifest.date, part, path)) for part, path in todo]
        for count, _ in enumerate(copy_files(files, put, max(place.threads, threads), done), 1):
            report(count, len(todo))
        if store is not None and store.objects is None:  # symlinks as they were, where their targets are restored too
            root, only = store.full_path(NotePath("")), {path for _, path in todo}
            for part in parts:
                for path, real in part.links.items():
                    if not paths or path in only or NotePath(real) in only:
                        make_symlink(root, target(part, path), target(part, real))
    skipped = tuple(sorted(done.skipped, key=lambda skip: skip.path))
    return RestoreResult(created=tuple(sorted(done.sizes)), skipped=skipped, date=manifest.date)


def _fetch(place: BackupPlace, date: str, part: WorkspacePart, path: NotePath) -> FetchedFile:
    kept = part.files[path]
    data, mode = place.read(date, part.place(path), kept)
    return FetchedFile(data, kept.modified_ns, mode)


def _fetch_data(place: BackupPlace, date: str, part: WorkspacePart, path: NotePath) -> bytes:
    return _fetch(place, date, part, path).data


@contextmanager
def _open_backup(place: BackupPlace, date: str | None) -> Iterator[Manifest]:
    """Lock the place, and give the backup of that day or the newest."""
    with place.lock():
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
    """The files at or under these paths; NotFound for a path that was not backed up."""
    everything = [(part, path) for part in parts for path in sorted(part.files)]
    for raw in paths:
        if not any(_is_asked(path, [raw]) for _, path in everything):
            near = difflib.get_close_matches(raw, [path for _, path in everything], n=3, cutoff=0.5)
            hint = f"near are {', '.join(near)}" if near else ""
            raise NotFound(f"{raw} is not in that backup", hint=hint, what="file", path=raw, nearest=near)
    return [(part, path) for part, path in everything if _is_asked(path, paths)]


def _is_asked(path: str, paths: Sequence[str]) -> bool:
    """Whether it is at or under one of these paths; without paths, everything is."""
    asked = [raw.strip("/") for raw in paths]
    return not asked or any(path in (one, with_md(one)) or path.startswith(f"{one}/") for one in asked)
