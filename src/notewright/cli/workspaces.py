"""`notewright workspace`: which folders are served and what holds in them. A running server knows at once."""

import argparse
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from notewright.accounts.base import Accounts
from notewright.app import opening
from notewright.cli import printing
from notewright.cli.arguments import configured
from notewright.config.load import CHANGEABLE, Config, WorkspaceConfig, with_settings
from notewright.config.locations import is_bucket, split_location
from notewright.engine import library
from notewright.errors import Invalid


def workspace(args: argparse.Namespace) -> None:
    config = configured(args)
    with closing(opening.open_registry(config)) as registry:
        _VERBS[args.what](args, config, registry)


def _add(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    name, location = split_location(args.location, Path.cwd())
    pairs = _pairs(args.settings)
    if is_bucket(location):  # refused now, by whoever can set it right
        asked = with_settings(WorkspaceConfig(name, "", location), pairs)
        opening.open_store(asked, config).close()
    one = library.add_folder(config, registry, name, location, pairs)
    _tell(config, "workspace_added", one, pairs)
    said = f"{one.name} is {one.location}; servers that run with this state serve it from now on"
    printing.show(args, document(one, registry), [said], f"Its address is /w/{one.id}/…")


def _list(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    served = library.effective_workspaces(config, registry)
    known = {one.location for one in served}
    elsewhere = [record.location for record in registry.records() if record.location not in known]
    lines = [line for one in served for line in _lines(one, registry)]
    lines += [f"{location}: changed; served by servers that were started with it" for location in elsewhere]
    summary = "" if lines else "There is none here. notewright workspace add FOLDER adds one to servers that run."
    told = {"workspaces": [document(one, registry) for one in served], "changed_elsewhere": elsewhere}
    printing.show(args, told, lines, summary)


def _rename(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    one = library.change(config, registry, args.name, {"name": args.new}, by_location=True)
    _tell(config, "workspace_changed", one, ["name"])
    printing.show(
        args, document(one, registry), [f"{args.name} is called {one.name} now"], f"Its address stays /w/{one.id}/…"
    )


def _set(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    pairs = _pairs(args.settings)
    one = library.change(config, registry, args.name, pairs, by_location=True)
    _tell(config, "workspace_changed", one, pairs)
    printing.show(args, document(one, registry), _lines(one, registry), _where(one, config, registry))


def _where(one: WorkspaceConfig, config: Config, registry: Accounts) -> str:
    """A server may have been told of a folder on its command line: we cannot know, and what is set waits for it."""
    served = library.effective_workspaces(config, registry)
    return "" if one in served else "This holds wherever that folder is served with this state"


def _remove(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    one = library.drop(config, registry, args.name, by_location=True)
    _tell(config, "workspace_dropped", one)
    said = f"{one.name} is not served any more; its notes stay in {one.location}"
    printing.show(args, {"removed": one.id, "name": one.name, "location": one.location}, [said])


def _tell(config: Config, action: str, one: WorkspaceConfig, settings: Iterable[str] = ()) -> None:
    from notewright.app import compose

    compose.tell_audit(config, action, workspace=one.id, settings=sorted(settings))


_VERBS = {"add": _add, "list": _list, "rename": _rename, "set": _set, "remove": _remove}


def document(one: WorkspaceConfig, registry: Accounts) -> dict[str, Any]:
    record = next((record for record in registry.records() if record.location == one.location), None)
    return {
        "id": one.id,
        "name": one.name,
        "location": one.location,
        "added": record is not None and record.added,
        **{key: getattr(one, key) for key in CHANGEABLE},
        "changed": sorted(set(record.settings) - {"id"}) if record is not None else [],
    }


def _lines(one: WorkspaceConfig, registry: Accounts) -> list[str]:
    """The workspace, and below it what is not as it would be by itself."""
    told = document(one, registry)
    plain = WorkspaceConfig(one.name, one.id, one.location)
    origin = "added" if told["added"] else ""
    return [
        f"{one.name:20}  {one.id:20}  {origin:5}  {one.location}",
        *(f"    {key} = {_render_value(told[key])}" for key in CHANGEABLE if told[key] != getattr(plain, key)),
    ]


def _render_value(value: Any) -> str:
    return (
        ",".join(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _pairs(settings: Sequence[str]) -> dict[str, str | None]:
    """`key=value` as they were typed; `key=` is as if it had never been set."""
    pairs: dict[str, str | None] = {}
    for raw in settings:
        key, equals, value = raw.partition("=")
        if not equals:
            hint = f"write {key}=VALUE, or {key}= to take it back; there is {', '.join(CHANGEABLE)}"
            raise Invalid(f"{raw!r} sets nothing", hint=hint, what="settings")
        if key.strip() == "name":
            raise Invalid("a name is no setting", hint="use notewright workspace rename", what="name")
        pairs[key.strip().replace("-", "_")] = value.strip() or None
    return pairs
