"""Keeping notes safe and carrying them: backup, restore, export, import."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from notewright.app import opening
from notewright.cli import printing
from notewright.cli.arguments import load_config, refuse_as_usage
from notewright.cli.commands import open_chosen_workspace, strip_root
from notewright.config.load import Config, WorkspaceConfig
from notewright.config.locations import is_bucket, parse_folder_or_bucket
from notewright.engine.changes.batch_write import BatchResult, SkippedFile
from notewright.engine.transfer.backup import BackupResult, back_up
from notewright.engine.transfer.export import ExportResult, export_to, export_zip
from notewright.engine.transfer.import_files import ImportResult, StoreSource, import_files
from notewright.engine.transfer.manifest import BackupPlace, Manifest, readable_manifests
from notewright.engine.transfer.restore import RestoreResult, restore_to
from notewright.engine.transfer.restore import restore as restore_backup
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, Invalid, NoSpace, NotFound, Problem
from notewright.notes.path import NotePath

_AS_MEANT = {"dotted", "rubbish", "exists", "symlink", "twice", "special"}  # left out by rule, not for want of anything


def backup(args: argparse.Namespace) -> int:
    config = load_config(args)
    with closing(_place(args, args.to, config, "--to")) as to:
        if args.list:
            _print_backups(list(readable_manifests(to)), args)
            return 0
        days = config["backup.keep_days"] if args.keep_days is None else args.keep_days
        with _shelf(args, config) as shelf, printing.show_progress("Backing up") as report:
            result = back_up(shelf, to, keep_days=days, report=report)
        _print_backup(result, f"{to.name}/{result.date}", args)
    return 0 if result.success else 1


def restore(args: argparse.Namespace) -> int:
    with closing(_place(args, args.source, load_config(args), "--from")) as source:
        restored = _restore(args, source)
    _print_restored(restored, args)
    return 1 if restored.skipped else 0


def _restore(args: argparse.Namespace, source: BackupPlace) -> RestoreResult:
    how: dict[str, Any] = {"date": args.date, "dry_run": args.dry_run}
    if args.into:
        paths = [path.removeprefix("./") for path in args.paths]
        into = _destination(args, args.into)
        make = partial(opening.open_destination, into, load_config(args))
        with printing.show_progress("Restoring") as report:
            return restore_to(into, make, source, workspace=args.workspace, paths=paths, report=report, **how)
    with open_chosen_workspace(args, indexed=False) as ws, printing.show_progress("Restoring") as report:
        paths = [strip_root(ws, path) for path in args.paths]
        return restore_backup(ws, source, paths=paths, exact=args.exact, report=report, **how)


def export(args: argparse.Namespace) -> int:
    with open_chosen_workspace(args, indexed=False, follow=False) as ws:
        if args.file == "-":
            if sys.stdout.isatty():
                args.usage = True
                raise Invalid("a zip file cannot be shown on a terminal", hint="write export - | …, or export FILE.zip")
            done = export_zip(ws, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        elif is_bucket(args.file):
            to = _destination(args, args.file)
            with closing(opening.open_destination(to, load_config(args))) as store:
                done = export_to(ws, store)
        else:
            with _new_file(args.file, ws) as out:
                done = export_zip(ws, out)
    _print_exported(done, args)
    return 1 if _missed(done.skipped) else 0


def import_(args: argparse.Namespace) -> int:
    how = {"overwrite": args.overwrite, "dry_run": args.dry_run}
    progress = printing.show_progress("Importing")
    with open_chosen_workspace(args, indexed=False) as ws, _import_source(args) as source, progress as report:
        done = import_files(ws, source, into=strip_root(ws, args.under), report=report, **how)
    _print_import(done, args)
    return 1 if _missed(done.skipped) else 0


# ---- what they share ----------------------------------------------------------------------------------


@contextmanager
def _import_source(args: argparse.Namespace) -> Iterator[str | StoreSource]:
    if not is_bucket(args.source):
        yield args.source
        return
    with refuse_as_usage(args):
        place = WorkspaceConfig("import", "import", parse_folder_or_bucket(args.source), read_only=True)
    with closing(opening.open_store(place, load_config(args))) as store:
        yield StoreSource(store, place.location)


def _destination(args: argparse.Namespace, given: str) -> str:
    """The location of a folder or bucket to copy files to."""
    with refuse_as_usage(args):
        place = parse_folder_or_bucket(given)
        if is_bucket(place) and place.endswith(".zip"):
            hint = f"write {place.removesuffix('.zip')}: the notes are objects there"
            raise Invalid("no zip file is written to a bucket", hint=hint, what="file")
        return place


def _place(args: argparse.Namespace, given: str | None, config: Config, flag: str) -> BackupPlace:
    """The folder or bucket of the backups, of the flag or else of the configuration, to be closed."""
    with refuse_as_usage(args):
        if not (place := given or config["backup.to"]):
            hint = f"name a folder with {flag}, or set backup.to in the configuration"
            raise Invalid("no folder for backups was given", hint=hint, what="to")
        place = parse_folder_or_bucket(str(place))
    return opening.open_backups(place, config)


@contextmanager
def _shelf(args: argparse.Namespace, config: Config) -> Iterator[Sequence[Workspace]]:
    """All the workspaces of the configuration where none was named, open; else the one."""
    if args.workspace or not config.workspaces:
        with open_chosen_workspace(args, indexed=False, follow=False) as ws:
            yield [ws]
        return
    with ExitStack() as closing:
        shelf = []
        owned = opening.as_owned(config)
        for asked in owned.workspaces:
            shelf.append(opening.open_workspace(asked, owned, watch=False, follow=False))
            closing.callback(opening.close_workspace, shelf[-1])
        yield shelf


@contextmanager
def _new_file(name: str, ws: Workspace) -> Iterator[BinaryIO]:
    """A file that is there when it is whole. Not among the notes: it would be in the next zip file."""
    place = Path(os.path.realpath(Path(name).expanduser()))
    home = os.path.realpath(ws.store.full_path(NotePath("")))
    if ws.store.objects is None and place.is_relative_to(home):
        raise Invalid(f"{name} would lie among the notes", hint="name a file elsewhere", what="file")
    if place.is_dir():
        raise Invalid(f"{name} is a folder", hint=f"write {name.rstrip('/')}/notes.zip", what="file")
    beside = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        with open(beside, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, place)
    except OSError as error:
        raise _describe(error, name) from error
    finally:
        beside.unlink(missing_ok=True)


def _describe(error: OSError, name: str) -> Problem:
    if isinstance(error, FileNotFoundError):
        return NotFound(f"the folder of {name} is not there", hint="make it first", what="folder")
    if isinstance(error, PermissionError):
        return Forbidden(f"the file system does not let {name} be written")
    return NoSpace(f"{name} cannot be written: {(error.strerror or str(error)).lower()}")


def _missed(skipped: Iterable[SkippedFile]) -> bool:
    return any(one.reason not in _AS_MEANT for one in skipped)


# ---- printing -----------------------------------------------------------------------------------------


def _print_backup(result: BackupResult, folder: str, args: argparse.Namespace) -> None:
    copied = f"{printing.pluralize(result.files_backed_up, 'file')} copied ({result.total_bytes:,} bytes)"
    lines = [f"{copied}, {result.files_skipped:,} unchanged: {folder}"]
    lines += [f"removed the backup of {date}" for date in result.removed]
    summary = "\n".join(f"notewright: not backed up: {error}" for error in result.errors)
    if result.errors and args.json:
        print(summary, file=sys.stderr)
    printing.print_answer(args, result.record() | {"folder": folder}, lines, summary)


def _print_backups(found: list[Manifest], args: argparse.Namespace) -> None:
    keys = ("date", "made", "files", "size", "workspaces", "errors")
    told = [{"bytes" if key == "size" else key: getattr(one, key) for key in keys} for one in found]
    lines = [
        f"{one.date}  {printing.pluralize(one.files, 'file')}, {one.size:,} bytes: {', '.join(one.workspaces)}"
        + (f" ({printing.pluralize(len(one.errors), 'error')})" if one.errors else "")
        for one in found
    ]
    printing.print_answer(args, {"backups": told}, lines, "" if found else "There is no backup yet")


def _print_restored(done: RestoreResult, args: argparse.Namespace) -> None:
    would = "would be " if args.dry_run else ""
    summary = f"{_count_written(done)} {would}restored from the backup of {done.date}"
    summary += f", {len(done.deleted):,} {would}deleted" if done.deleted else ""
    summary += f", {len(done.unchanged):,} as they are" if done.unchanged else ""
    document = done.record() | {"dry_run": args.dry_run, "into": args.into}
    lines = _lines(done) if not args.into else _left_out(done.skipped)
    printing.print_answer(args, document, lines, _undo_hint(summary, done.changes))


def _print_exported(done: ExportResult, args: argparse.Namespace) -> None:
    skipped = [asdict(one) for one in done.skipped]
    files, size = len(done.sizes), sum(done.sizes.values())
    document = {"file": args.file, "files": files, "bytes": size, "skipped": skipped}
    summary = f"{printing.pluralize(files, 'file')}, {size:,} bytes"
    if args.file == "-":
        print("\n".join([*_left_out(done.skipped), summary]), file=sys.stderr)
    else:
        printing.print_answer(args, document, _left_out(done.skipped), f"{summary}: {args.file}")


def _print_import(done: ImportResult, args: argparse.Namespace) -> None:
    summary = f"{_count_written(done)} {'would come' if args.dry_run else 'came'}"
    summary += f", {len(done.unchanged):,} were there already" if done.unchanged else ""
    summary += f", {len(done.skipped):,} left out" if done.skipped else ""
    printing.print_answer(args, done.record(), _lines(done), _undo_hint(summary, done.changes))


def _count_written(done: BatchResult) -> str:
    return printing.pluralize(len(done.created) + len(done.replaced), "file")


def _lines(done: BatchResult) -> list[str]:
    kinds = ("created", "replaced", "deleted")
    return [*(f"{kind} {path}" for kind in kinds for path in getattr(done, kind)), *_left_out(done.skipped)]


def _left_out(skipped: Iterable[SkippedFile]) -> list[str]:
    return [f"left out {one.path}: {one.words}" for one in skipped]


def _undo_hint(summary: str, changes: Sequence[str]) -> str:
    """Each change can be taken back by itself, the last one first."""
    if not changes:
        return summary
    undo = "; ".join(f"notewright undo {one}" for one in reversed(changes))
    if len(changes) == 1:
        return f"{summary}. Take it back: {undo}"
    return f"{summary}. It was much, so these are {len(changes)} changes; take them back: {undo}"
