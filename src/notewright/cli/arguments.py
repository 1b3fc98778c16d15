"""Parsed arguments as values for the engine: the configuration, the workspace, times."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import tzinfo
from typing import Any

from notewright.config.load import CommandLine, Config, WorkspaceConfig, load, prepare_config
from notewright.errors import Invalid, Problem
from notewright.notes.times import parse_duration, parse_time

_TIME_HINTS = {
    "since": ("a time", "write 2026-05-04, 2026-05-04T10:00:00Z, 30m, 2h or 3d"),
    "expires": ("a time to come", "write 90d, 12h, 2027-01-31 or 2027-01-31T10:00:00Z"),
}


def load_config(
    args: argparse.Namespace, locations: tuple[str, ...] = (), flags: Mapping[str, Any] | None = None
) -> Config:
    """The Config these flags ask for; what is wrong with it is wrong usage."""
    with refuse_as_usage(args):
        return load(CommandLine(locations, args.config, {"state": args.state, **(flags or {})}))


@contextmanager
def refuse_as_usage(args: argparse.Namespace) -> Iterator[None]:
    """Report a Problem raised inside as wrong usage, with exit code 2."""
    try:
        yield
    except Problem:
        args.usage = True
        raise


def choose_workspace(args: argparse.Namespace) -> tuple[WorkspaceConfig, Config]:
    """The workspace of `--workspace`: one of the configuration or of the owner by its name, else a location; else this
    folder. What the owner changed of it holds."""
    from notewright.app import opening

    with refuse_as_usage(args):
        configure = prepare_config(CommandLine((), args.config, {"state": args.state}))
        config = configure(())
    config = opening.with_owner_changes(config)
    if args.workspace and config.workspaces:
        from notewright.engine.library import find_by_id_or_name

        if named := find_by_id_or_name(config.workspaces, args.workspace):
            return named, config
    with refuse_as_usage(args):
        here = configure((args.workspace or ".",))
    here = opening.with_owner_changes(here, added=False)
    for workspace in config.workspaces:  # a folder that is configured brings its settings with it
        if workspace.location == here.workspaces[0].location:
            return workspace, config
    return here.workspaces[0], here


def parse_moment(raw: str, zone: tzinfo, now: float, what: str = "since") -> float:
    """A time as people write it, in seconds since 1970: a date, RFC 3339, or a span (`2h`) before or after now."""
    span = parse_duration(raw)
    if span is not None:
        return now - span if what == "since" else now + span
    at = parse_time(raw, zone)
    if at is None:
        called, hint = _TIME_HINTS[what]
        raise Invalid(f"{raw!r} is not {called}", hint=hint, what=what)
    return at
