"""`notewright workspace`: which folders are served and what holds in them. A running server knows at once.
`notewright move-workspace`: the same notes in another place."""

import argparse
import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from notewright.accounts.base import Accounts
from notewright.app import opening
from notewright.cli import printing
from notewright.cli.arguments import choose_workspace, load_config, refuse_as_usage
from notewright.config.load import CHANGEABLE_SETTINGS, Config, WorkspaceConfig, apply_settings
from notewright.config.locations import (
    is_bucket,
    parse_folder_or_bucket,
    refuse_inside,
    refuse_overlap,
    split_location,
)
from notewright.config.settings import BUCKET_SETTINGS
from notewright.engine import library
from notewright.engine.transfer.move_workspace import JOURNAL, MoveJournal, MoveResult, move_files, preview_move
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound


def workspace(args: argparse.Namespace) -> None:
    config = load_config(args)
    with closing(opening.open_registry(config)) as registry:
        _SUBCOMMANDS[args.what](args, config, registry)


def _add(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    name, location = split_location(args.location, Path.cwd())
    pairs = _parse_settings(args.settings)
    if is_bucket(location):  # refused now, while the owner can correct it
        asked = apply_settings(WorkspaceConfig(name, "", location), pairs)
        opening.open_store(asked, config).close()
    one = library.add_folder(config, registry, name, location, pairs)
    _audit(config, "workspace_added", one, pairs)
    said = f"{one.name} is {one.location}; servers that run with this state serve it from now on"
    printing.print_answer(args, library.workspace_record(one, registry), [said], f"Its address is /w/{one.id}/…")


def _list(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    served = library.effective_workspaces(config, registry)
    known = {one.location for one in served}
    elsewhere = [record.location for record in registry.records() if record.location not in known]
    lines = [line for one in served for line in _describe(one, registry)]
    lines += [f"{location}: changed; served by servers that were started with it" for location in elsewhere]
    summary = "" if lines else "There is none here. notewright workspace add FOLDER adds one to servers that run."
    records = [library.workspace_record(one, registry) for one in served]
    printing.print_answer(args, {"workspaces": records, "changed_elsewhere": elsewhere}, lines, summary)


def _rename(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    one = library.change(config, registry, args.name, {"name": args.new}, by_location=True)
    _audit(config, "workspace_changed", one, ["name"])
    record = library.workspace_record(one, registry)
    printing.print_answer(args, record, [f"{args.name} is called {one.name} now"], f"Its address stays /w/{one.id}/…")


def _set(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    pairs = _parse_settings(args.settings)
    one = library.change(config, registry, args.name, pairs, by_location=True)
    _audit(config, "workspace_changed", one, pairs)
    # a server may have been started with the folder on its command line: there the settings apply as well
    served = one in library.effective_workspaces(config, registry)
    summary = "" if served else "This holds wherever that folder is served with this state"
    printing.print_answer(args, library.workspace_record(one, registry), _describe(one, registry), summary)


def _remove(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    one = library.drop(config, registry, args.name, by_location=True)
    _audit(config, "workspace_dropped", one)
    said = f"{one.name} is not served any more; its notes stay in {one.location}"
    printing.print_answer(args, {"removed": one.id, "name": one.name, "location": one.location}, [said])


def _audit(config: Config, action: str, one: WorkspaceConfig, settings: Iterable[str] = ()) -> None:
    opening.record_admin_action(config, action, workspace=one.id, settings=sorted(settings))


_SUBCOMMANDS = {"add": _add, "list": _list, "rename": _rename, "set": _set, "remove": _remove}


def _describe(one: WorkspaceConfig, registry: Accounts) -> list[str]:
    """The workspace, and below it what is not as it would be by itself."""
    record, plain = library.workspace_record(one, registry), WorkspaceConfig(one.name, one.id, one.location)
    changed = (key for key in CHANGEABLE_SETTINGS if record[key] != getattr(plain, key))
    origin = "added" if record["added"] else ""
    return [
        f"{one.name:20}  {one.id:20}  {origin:5}  {one.location}",
        *(f"    {key} = {_render_value(record[key])}" for key in changed),
    ]


def _render_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_settings(settings: Sequence[str]) -> dict[str, str | None]:
    """`key=value` as they were typed; `key=` is as if it had never been set."""
    pairs: dict[str, str | None] = {}
    for raw in settings:
        key, equals, value = raw.partition("=")
        if not equals:
            hint = f"write {key}=VALUE, or {key}= to take it back; there is {', '.join(CHANGEABLE_SETTINGS)}"
            raise Invalid(f"{raw!r} sets nothing", hint=hint, what="settings")
        if key.strip() == "name":
            raise Invalid("a name is no setting", hint="use notewright workspace rename", what="name")
        pairs[key.strip().replace("-", "_")] = value.strip() or None
    return pairs


# ---- moving -------------------------------------------------------------------------------------------


def move_workspace(args: argparse.Namespace) -> int:
    old, config = choose_workspace(args)
    with refuse_as_usage(args):
        pairs = _parse_settings(args.settings)
        if strange := sorted(pairs.keys() - set(BUCKET_SETTINGS)):
            hint = f"there is {', '.join(BUCKET_SETTINGS)}; all else stays as it is"
            raise Invalid(f"{strange[0]} cannot be set by a move", hint=hint, what="settings")
        plain = WorkspaceConfig("", "", _new_place(args.target))
        place = {key: getattr(plain, key) for key in ("location", *BUCKET_SETTINGS)}
        new = apply_settings(replace(old, **place), pairs)
        refuse_overlap([(old.location, old.name), (new.location, "the new place")])
        for ours in (config.state, config.cache):
            refuse_inside(ours, new.location, chosen=True)
    ws = opening.open_workspace(old, config, watch=False, follow=False)
    try:
        if not args.dry_run:
            return _move(args, ws, old, new, config)
        exists = is_bucket(new.location) or os.path.isdir(new.location)
        with closing(opening.open_store(new, config)) if exists else nullcontext() as store:
            would = preview_move(ws.store, store)
        summary = f"{printing.pluralize(would.copied, 'file')} would be copied to {new.location} ({would.size:,} bytes)"
        printing.print_answer(args, {"dry_run": True, **asdict(would)}, _list_left_behind(would), summary)
        return 0
    finally:
        opening.close_workspace(ws)


def _new_place(raw: str) -> str:
    """A bucket, or a folder that may be made: the one it is in must be there."""
    place = parse_folder_or_bucket(raw)
    if is_bucket(place) or os.path.isdir(place):
        return place
    if not os.path.isdir(os.path.dirname(place)) or os.path.exists(place):
        hint = "name a folder, and make the one it is in"
        raise NotFound(f"{raw!r} cannot be the new place", hint=hint, what="folder")
    return place


def _move(args: argparse.Namespace, ws: Workspace, old: WorkspaceConfig, new: WorkspaceConfig, config: Config) -> int:
    if not is_bucket(new.location):
        os.makedirs(new.location, mode=0o700, exist_ok=True)
    history, switched = None, False
    store = opening.open_store(new, config)
    place = Path(config.state) / store.identity / JOURNAL

    def finish() -> None:
        nonlocal history, switched
        history = opening.transfer_history(ws, store, config)
        settings = {key: getattr(new, key) for key in BUCKET_SETTINGS if is_bucket(new.location)}
        with closing(opening.open_registry(config)) as registry:
            switched = library.relocate(load_config(args), registry, old, new.location, settings)

    with (
        closing(store),
        closing(MoveJournal(place, old.location)) as journal,
        printing.show_progress("Moving") as report,
    ):
        done = move_files(ws.store, store, journal, report=report, finish=finish)
    lines = _list_left_behind(done)
    copied = f"{printing.pluralize(done.files, 'file')} in {new.location} the same as in {old.location}"
    lines.append(f"{copied}; {done.copied:,} copied now ({done.size:,} bytes)")
    command = shlex.join(["notewright", "move-workspace", old.location, new.location, *args.settings])
    again = f"The old place stays as it is; what is still changed there comes along with: {command}"
    if done.failed:
        summary = "It is not complete: see to those files and run it again. Nothing else was changed."
    else:
        summary = "The new place has a history of its own, which stays; undo of older changes works in the old place."
        if history is not None:
            summary = f"The history came along ({printing.pluralize(history, 'change')}): undo works there."
        summary += f" {_how_to_serve(args, new, switched)}\n{again}"
    document = {"location": new.location, "history": history, "served": switched, "dry_run": False, **asdict(done)}
    printing.print_answer(args, document, lines, summary)
    return 1 if done.failed or any(one.reason == "unreadable" for one in done.left_out) else 0


def _list_left_behind(done: MoveResult) -> list[str]:
    lines = [f"left behind {one.path}: {one.words}" for one in done.left_out]
    return lines + [f"not moved {one.path}: {one.words}" for one in done.failed]


def _how_to_serve(args: argparse.Namespace, new: WorkspaceConfig, switched: bool) -> str:
    """What is left to do until the new place is served."""
    if switched:
        return f"Servers that run with this state serve {new.name} from there now."
    plain = WorkspaceConfig("", "", "")
    settings = {key: getattr(new, key) for key in BUCKET_SETTINGS if getattr(new, key) != getattr(plain, key)}
    if any(one.name == new.name for one in load_config(args).workspaces):
        written = {"location": new.location} | settings
        rendered = {
            key: f'"{value}"' if isinstance(value, str) else _render_value(value) for key, value in written.items()
        }
        table = ", ".join(f"{key} = {value}" for key, value in rendered.items())
        return f"Write in the configuration, under [workspaces.{new.name}]: {table}; then reload the server."
    words = [f"{new.name}={new.location}", *(f"{key}={_render_value(value)}" for key, value in settings.items())]
    if settings:
        return f"Serve it: notewright workspace add {shlex.join(words)}"
    return f"Serve it: notewright serve {shlex.join(words)}"
