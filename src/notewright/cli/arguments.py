"""From what was typed to what the engine is asked with: the configuration, the workspace, times."""

import argparse
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any

from notewright.config.load import CommandLine, Config, WorkspaceConfig, load
from notewright.errors import Invalid, Problem

_AGO = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def configured(
    args: argparse.Namespace, locations: tuple[str, ...] = (), flags: Mapping[str, Any] | None = None
) -> Config:
    """The Config these flags ask for. What is wrong with it is wrong usage."""
    try:
        return load(CommandLine(locations, args.config, {"state": args.state, **(flags or {})}))
    except Problem:
        args.usage = True
        raise


def chosen(args: argparse.Namespace) -> tuple[WorkspaceConfig, Config]:
    """The workspace of `--workspace`: one of the configuration or of the owner by its name, else a location; else this
    folder. What the owner changed of it holds."""
    from notewright.app import opening

    config = opening.as_owned(configured(args))
    for workspace in config.workspaces:
        if args.workspace in (workspace.name, workspace.id):
            return workspace, config
    here = opening.as_owned(configured(args, (args.workspace or ".",)), added=False)
    for workspace in config.workspaces:  # a folder that is configured brings its settings with it
        if workspace.location == here.workspaces[0].location:
            return workspace, config
    return here.workspaces[0], here


def moment(raw: str, zone: tzinfo, now: float) -> float:
    """A time as people write it, in seconds since 1970: a date, RFC 3339, or so long ago (`30m`, `2h`, `3d`)."""
    ago = re.fullmatch(r"(\d{1,6})([mhdw])", raw)
    if ago:
        return now - timedelta(**{_AGO[ago[2]]: int(ago[1])}).total_seconds()
    try:
        when = datetime.fromisoformat(raw)
    except ValueError:
        hint = "write 2026-05-04, 2026-05-04T10:00:00Z, 30m, 2h or 3d"
        raise Invalid(f"{raw!r} is not a time", hint=hint, what="since") from None
    return (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
