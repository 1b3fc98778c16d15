"""Bringing back what was backed up: into the workspace, so that it can be undone, or as plain files into a folder.

It is the owner's: rules that hide notes from agents, or keep agents from writing, do not hold for it. Files are
believed only where their bytes are those that were backed up.
"""

import difflib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from notewright.engine.changes.batch_write import BatchResult, IncomingFile, SkippedFile, UnreadableFile, write_files
from notewright.engine.transfer.backup import Report
from notewright.engine.transfer.backup_folder import BackupFolder, describe_error
from notewright.engine.transfer.backup_manifest import BackedUpFile, Manifest, WorkspacePart
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, ReadOnly, Unavailable
from notewright.notes.path import NotePath, with_md
from notewright.stores.base import version_of

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Restored:
    """What was brought back, or would be. `changes` take it back; there are several where it was much."""

    date: str
    created: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    changes: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As it is told to programs."""
        skipped = [{"path": one.path, "reason": one.reason, "words": one.words} for one in self.skipped]
        return {
            "date": self.date,
            "created": list(self.created),
            "replaced": list(self.replaced),
            "deleted": list(self.deleted),
            "unchanged": len(self.unchanged),
            "skipped": skipped,
            "changes": list(self.changes),
        }


@dataclass(frozen=True, slots=True)
class BackupListed:
    """One backup there is."""

    date: str
    made: str
    files: int
    size: int
    workspaces: tuple[str, ...]
    errors: tuple[str, ...]


def last_good_backup(source: str | os.PathLike[str]) -> float | None:
    """When the newest backup without errors was made, in seconds since 1970; None if there is none."""
    with suppress(Unavailable):  # the folder comes with the first backup
        for listed in _newest_first(BackupFolder(source)):
            if not listed.errors:
                return datetime.fromisoformat(listed.made).timestamp()
    return None


def backups(source: str | os.PathLike[str]) -> list[BackupListed]:
    """The backups in a folder, newest first; those whose list cannot be read are left out."""
    place = BackupFolder(source)
    place.check()
    return list(_newest_first(place))


def _newest_first(place: BackupFolder) -> Iterator[BackupListed]:
    for date in reversed(place.dates()):
        with suppress(Invalid, NotFound):
            manifest = place.manifest(date)
            sizes = [kept.size for part in manifest.parts for kept in part.files.values()]
            names = tuple(part.name for part in manifest.parts)
            yield BackupListed(date, manifest.made, len(sizes), sum(sizes), names, manifest.errors)


def restore(
    ws: Workspace,
    source: str | os.PathLike[str],
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
    place = BackupFolder(source)
    place.check()
    with place.still():
        manifest = _chosen(place, date)
        part = _part_of(manifest, ws)
        wanted = [path for _, path in _wanted((part,), paths)]
        links = _links_there(ws)
        left = [path for path in wanted if path in links]
        going = _extra(ws, part, paths) if exact else []
        total = len(wanted) - len(left) + len(going)
        came = write_files(
            ws,
            (_coming(place, manifest.date, part, path) for path in wanted if path not in links),
            going,
            summary=lambda count: f"restored {count} {_files(count)} from the backup of {manifest.date}",
            overwrite=True,
            dry_run=dry_run,
            report=lambda done: report(done, total),
        )
    came.skipped += [
        SkippedFile(path, "symlink", "a symlink is there now, and those are not written through") for path in left
    ]
    return _restored(manifest.date, came)


def restore_to(
    folder: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    date: str | None = None,
    workspace: str | None = None,
    paths: Sequence[str] = (),
    dry_run: bool = False,
    report: Report = lambda done, total: None,
) -> Restored:
    """Copy a backup into a folder that is new or empty: the same bytes, the same times. Of several workspaces the one
    named, else each into a folder of its own."""
    place, target = BackupFolder(source), Path(os.path.realpath(Path(folder).expanduser()))
    place.check()
    if os.path.commonpath((place.path, target)) == str(place.path):
        raise Invalid(f"{target} is inside the folder of backups", hint="choose a folder elsewhere", what="into")
    with place.still():
        manifest = _chosen(place, date)
        parts = manifest.parts if workspace is None else (_named(manifest, workspace),)
        todo = _wanted(parts, paths)
        came = BatchResult()
        if not dry_run:
            _make_empty(target)
        for count, (part, path) in enumerate(todo, 1):
            there = path if len(parts) == 1 else f"{part.id}/{path}"
            _copy(place, manifest.date, part, path, None if dry_run else target / there, there, came)
            report(count, len(todo))
        if not dry_run:
            _make_links(target, parts, {path for _, path in todo} if paths else None)
            _sync_folders(target)
    return _restored(manifest.date, came)


def _restored(date: str, came: BatchResult) -> Restored:
    lists = (came.created, came.replaced, came.deleted, came.unchanged)
    created, replaced, deleted, unchanged = (tuple(sorted(paths)) for paths in lists)
    return Restored(date, created, replaced, deleted, unchanged, tuple(came.skipped), tuple(came.changes))


def _files(count: int) -> str:
    return "file" if count == 1 else "files"


# ---- which backup, which files ------------------------------------------------------------------------


def _chosen(place: BackupFolder, date: str | None) -> Manifest:
    dates = place.dates()
    if not dates:
        raise NotFound(f"there is no backup in {place.path}", hint="is it the right folder?", what="backup")
    if date is None:
        return place.manifest(dates[-1])
    if date not in dates:
        near = difflib.get_close_matches(date, dates, n=3) or dates[-3:]
        raise NotFound(f"there is no backup of {date}", hint=f"there is {', '.join(near)}", what="backup", nearest=near)
    return place.manifest(date)


def _part_of(manifest: Manifest, ws: Workspace) -> WorkspacePart:
    """The workspace in the backup; one that was backed up alone may have had another name."""
    if len(manifest.parts) == 1:
        return manifest.parts[0]
    return _named(manifest, ws.id, ws.name)


def _named(manifest: Manifest, *names: str) -> WorkspacePart:
    for part in manifest.parts:
        if part.id in names or part.name in names:
            return part
    there = ", ".join(part.name for part in manifest.parts) or "nothing"
    words = f"there is no workspace {names[-1]!r} in the backup of {manifest.date}"
    raise NotFound(words, hint=f"there is {there}", what="workspace", workspace=names[-1])


def _wanted(parts: Sequence[WorkspacePart], paths: Sequence[str]) -> list[tuple[WorkspacePart, NotePath]]:
    """The files at or under these paths; NotFound for one that was not backed up."""
    everything = [(part, path) for part in parts for path in sorted(part.files)]
    for raw in paths:
        if not any(_is_under(path, raw) for _, path in everything):
            near = difflib.get_close_matches(raw, [path for _, path in everything], n=3, cutoff=0.5)
            hint = f"near are {', '.join(near)}" if near else ""
            raise NotFound(f"{raw} is not in that backup", hint=hint, what="file", path=raw, nearest=near)
    return [one for one in everything if not paths or any(_is_under(one[1], raw) for raw in paths)]


def _is_under(path: str, raw: str) -> bool:
    asked = raw.strip("/")
    return path in (asked, with_md(asked)) or path.startswith(f"{asked}/")


def _extra(ws: Workspace, part: WorkspacePart, paths: Sequence[str]) -> list[tuple[NotePath, int]]:
    """Files that are in the workspace and were not in the backup, among those asked for."""
    there = (entry for entry in ws.store.entries() if entry.kind != "symlink" and entry.path not in part.files)
    asked = (entry for entry in there if not paths or any(_is_under(entry.path, raw) for raw in paths))
    return [(entry.path, entry.size) for entry in asked]


def _links_there(ws: Workspace) -> set[NotePath]:
    return {entry.path for entry in ws.store.entries() if entry.kind == "symlink"}


def _coming(place: BackupFolder, date: str, part: WorkspacePart, path: NotePath) -> IncomingFile:
    kept = part.files[path]

    def fetch() -> bytes:
        try:
            with place.open(date, part.place(path)) as file:
                data = file.read(kept.size + 1)
        except NotFound as problem:
            raise UnreadableFile("damaged", problem.message) from None
        if version_of(data) != kept.sha256:
            raise _damaged()
        return data

    return IncomingFile(path, kept.size, fetch, kept.sha256)


def _damaged() -> UnreadableFile:
    return UnreadableFile("damaged", "its bytes in the backup are not those that were backed up")


# ---- into a folder ------------------------------------------------------------------------------------


def _make_empty(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
        with os.scandir(target) as names:
            something = next(names, None)
    except OSError as error:
        raise describe_error(error, target) from error
    if something is not None:
        hint = "name a new folder, or restore into the workspace"
        raise Exists(f"{target} is not empty", hint=hint, path=str(target))


def _copy(
    place: BackupFolder,
    date: str,
    part: WorkspacePart,
    path: NotePath,
    target: Path | None,
    name: str,
    came: BatchResult,
) -> None:
    try:
        with place.open(date, part.place(path)) as file:
            if target is None:
                _verified(part.files[path], iter(lambda: file.read(_PIECE), b""), lambda piece: None)
            else:
                _write(target, part.files[path], file.fileno())
    except FileExistsError:
        came.skipped.append(SkippedFile(name, "exists", "this folder takes it for another file with a name like it"))
    except UnreadableFile as skipped:
        came.skipped.append(SkippedFile(name, skipped.reason, skipped.words))
    except NotFound as problem:
        came.skipped.append(SkippedFile(name, "damaged", problem.message))
    except OSError as error:
        raise describe_error(error, target or name) from error
    else:
        came.created.append(name)


def _write(target: Path, kept: BackedUpFile, source: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            _verified(kept, iter(lambda: os.read(source, _PIECE), b""), file.write)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(target)
        raise
    with suppress(OSError):  # some disks know no modes
        os.chmod(target, stat.S_IMODE(os.fstat(source).st_mode))
    os.utime(target, ns=(kept.modified_ns, kept.modified_ns))


def _verified(kept: BackedUpFile, pieces: Iterable[bytes], use: Callable[[bytes], Any]) -> None:
    seen = hashlib.sha256()
    for piece in pieces:
        seen.update(piece)
        use(piece)
    if seen.hexdigest() != kept.sha256:
        raise _damaged()


def _make_links(target: Path, parts: Sequence[WorkspacePart], only: set[NotePath] | None) -> None:
    """Symlinks as they were, where all they lead to is there again; a folder that cannot hold them goes without."""
    for part in parts:
        home = target if len(parts) == 1 else target / part.id
        for path, real in part.links.items():
            if only is None or path in only or NotePath(real) in only:
                with suppress(OSError):
                    (home / path).parent.mkdir(parents=True, exist_ok=True)
                    os.symlink(os.path.relpath(real, os.path.dirname(path) or "."), home / path)


def _sync_folders(target: Path) -> None:
    for folder, _, _ in os.walk(target):
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
