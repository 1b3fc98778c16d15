"""The commands backup, restore, export and import."""

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
from notewright.engine.transfer.backup import back_up
from notewright.engine.transfer.export import export_to, export_zip
from notewright.engine.transfer.import_files import StoreSource, import_files
from notewright.engine.transfer.manifest import BackupPlace, Manifest, readable_manifests
from notewright.engine.transfer.restore import restore as restore_backup
from notewright.engine.transfer.restore import restore_to
from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, Invalid, NoSpace, NotFound
from notewright.notes.path import NotePath

_SKIPPED_BY_RULE = {"dotted", "rubbish", "exists", "symlink", "twice", "special"}  # the others are failures


def backup(args: argparse.Namespace) -> int:
    config = load_config(args)
    with closing(_open_backups(args, args.to, config, "--to")) as to:
        if args.list:
            _print_backups(list(readable_manifests(to)), args)
            return 0
        days = config["backup.keep_days"] if args.keep_days is None else args.keep_days
        with _open_workspaces(args, config) as workspaces, printing.show_progress("Backing up") as report:
            result = back_up(workspaces, to, keep_days=days, report=report)
    folder = f"{to.name}/{result.date}"
    copied = f"{printing.pluralize(result.files_backed_up, 'file')} copied ({result.total_bytes:,} bytes)"
    lines = [f"{copied}, {result.files_skipped:,} unchanged: {folder}"]
    lines += [f"removed the backup of {date}" for date in result.removed]
    summary = "\n".join(f"notewright: not backed up: {error}" for error in result.errors)
    if result.errors and args.json:
        print(printing.for_stream(summary, sys.stderr), file=sys.stderr)
    printing.print_answer(args, result.record() | {"folder": folder}, lines, summary)
    return 0 if result.success else 1


def _print_backups(found: list[Manifest], args: argparse.Namespace) -> None:
    keys = ("date", "made", "files", "size", "workspaces", "errors")
    records = [{"bytes" if key == "size" else key: getattr(one, key) for key in keys} for one in found]
    lines = [
        f"{one.date}  {printing.pluralize(one.files, 'file')}, {one.size:,} bytes: {', '.join(one.workspaces)}"
        + (f" ({printing.pluralize(len(one.errors), 'error')})" if one.errors else "")
        for one in found
    ]
    printing.print_answer(args, {"backups": records}, lines, "" if found else "There is no backup yet")


def restore(args: argparse.Namespace) -> int:
    how: dict[str, Any] = {"date": args.date, "dry_run": args.dry_run}
    progress = printing.show_progress("Restoring")
    with closing(_open_backups(args, args.source, load_config(args), "--from")) as source:
        if args.into:
            paths = [path.removeprefix("./") for path in args.paths]
            into = _destination(args, args.into)
            make = partial(opening.open_destination, into, load_config(args))
            with progress as report:
                done = restore_to(into, make, source, workspace=args.workspace, paths=paths, report=report, **how)
        else:
            with open_chosen_workspace(args, indexed=False) as ws, progress as report:
                paths = [strip_root(ws, path) for path in args.paths]
                done = restore_backup(ws, source, paths=paths, exact=args.exact, report=report, **how)
    would = "would be " if args.dry_run else ""
    summary = f"{_count_written(done)} {would}restored from the backup of {done.date}"
    summary += f", {len(done.deleted):,} {would}deleted" if done.deleted else ""
    summary += f", {len(done.unchanged):,} as they are" if done.unchanged else ""
    document = done.record() | {"dry_run": args.dry_run, "into": args.into}
    lines = _list_skipped(done.skipped) if args.into else _list_files(done)
    printing.print_answer(args, document, lines, _undo_hint(summary, done.changes))
    return 1 if done.skipped else 0


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
    files, size = len(done.sizes), sum(done.sizes.values())
    lines, summary = _list_skipped(done.skipped), f"{printing.pluralize(files, 'file')}, {size:,} bytes"
    if args.file == "-":
        print(printing.for_stream("\n".join([*lines, summary]), sys.stderr), file=sys.stderr)
    else:
        skipped = [asdict(one) for one in done.skipped]
        document = {"file": args.file, "files": files, "bytes": size, "skipped": skipped}
        printing.print_answer(args, document, lines, f"{summary}: {args.file}")
    return 1 if _has_failures(done.skipped) else 0


def import_(args: argparse.Namespace) -> int:
    how = {"overwrite": args.overwrite, "dry_run": args.dry_run}
    progress = printing.show_progress("Importing")
    with open_chosen_workspace(args, indexed=False) as ws, _import_source(args) as source, progress as report:
        done = import_files(ws, source, into=strip_root(ws, args.under), report=report, **how)
    summary = f"{_count_written(done)} {'would come' if args.dry_run else 'came'}"
    summary += f", {len(done.unchanged):,} were there already" if done.unchanged else ""
    summary += f", {len(done.skipped):,} left out" if done.skipped else ""
    printing.print_answer(args, done.record(), _list_files(done), _undo_hint(summary, done.changes))
    return 1 if _has_failures(done.skipped) else 0


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


def _open_backups(args: argparse.Namespace, given: str | None, config: Config, flag: str) -> BackupPlace:
    """The folder or bucket of the backups, of the flag or else of the configuration, to be closed."""
    with refuse_as_usage(args):
        if not (place := given or config["backup.to"]):
            hint = f"name a folder with {flag}, or set backup.to in the configuration"
            raise Invalid("no folder for backups was given", hint=hint, what="to")
        place = parse_folder_or_bucket(str(place))
    return opening.open_backups(place, config)


@contextmanager
def _open_workspaces(args: argparse.Namespace, config: Config) -> Iterator[Sequence[Workspace]]:
    """All the workspaces of the configuration where none was named, open; else the one."""
    if args.workspace or not config.workspaces:
        with open_chosen_workspace(args, indexed=False, follow=False) as ws:
            yield [ws]
        return
    with ExitStack() as closing:
        workspaces = []
        owned = opening.with_owner_changes(config)
        for asked in owned.workspaces:
            workspaces.append(opening.open_workspace(asked, owned, watch=False, follow=False))
            closing.callback(opening.close_workspace, workspaces[-1])
        yield workspaces


@contextmanager
def _new_file(name: str, ws: Workspace) -> Iterator[BinaryIO]:
    """A file that gets its name when it is whole. Refused among the notes: it would be in the next zip file."""
    place = Path(os.path.realpath(Path(name).expanduser()))
    home = os.path.realpath(ws.store.full_path(NotePath("")))
    if ws.store.objects is None and place.is_relative_to(home):
        raise Invalid(f"{name} would lie among the notes", hint="name a file elsewhere", what="file")
    if place.is_dir():
        raise Invalid(f"{name} is a folder", hint=f"write {name.rstrip('/')}/notes.zip", what="file")
    if place.exists() and not place.is_file():
        raise Invalid(f"{name} is no regular file", hint=f"write export - > {name}", what="file")
    beside = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        with open(beside, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, place)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            missing = f"the folder of {name} is not there"
            raise NotFound(missing, hint="make it first", what="folder") from error
        if isinstance(error, PermissionError):
            raise Forbidden(f"the file system does not let {name} be written") from error
        raise NoSpace(f"{name} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        beside.unlink(missing_ok=True)


def _has_failures(skipped: Iterable[SkippedFile]) -> bool:
    return any(one.reason not in _SKIPPED_BY_RULE for one in skipped)


# ---- printing -----------------------------------------------------------------------------------------


def _count_written(done: BatchResult) -> str:
    return printing.pluralize(len(done.created) + len(done.replaced), "file")


def _list_files(done: BatchResult) -> list[str]:
    kinds = ("created", "replaced", "deleted")
    return [*(f"{kind} {path}" for kind in kinds for path in getattr(done, kind)), *_list_skipped(done.skipped)]


def _list_skipped(skipped: Iterable[SkippedFile]) -> list[str]:
    return [f"left out {one.path}: {one.words}" for one in skipped]


def _undo_hint(summary: str, changes: Sequence[str]) -> str:
    """Each change can be taken back by itself, the last one first."""
    if not changes:
        return summary
    undo = "; ".join(f"notewright undo {one}" for one in reversed(changes))
    if len(changes) == 1:
        return f"{summary}. Take it back: {undo}"
    return f"{summary}. It was much, so these are {len(changes)} changes; take them back: {undo}"
