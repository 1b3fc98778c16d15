"""`notewright serve`: from flags to a Config, and on to `app/compose.py`."""

import argparse
import re

from notewright.cli.arguments import load_config
from notewright.config.load import Config
from notewright.errors import Invalid


def serve(args: argparse.Namespace) -> int:
    """Serve until the client goes or somebody stops it."""
    config = serving_config(args)
    from notewright.app import compose

    return compose.serve(config, lambda: serving_config(args))


def serving_config(args: argparse.Namespace) -> Config:
    """The Config that the flags of `serve` ask for; wrong usage where they cannot be followed."""
    host, port = None, None
    if args.http:
        found = re.fullmatch(r"(?:(\[[0-9a-fA-F:.]+\]|[^:\[\]]*):)?(\d{1,5})", args.http)  # IPv6 stands in brackets
        if found is None or not 0 <= int(found[2]) <= 65535:
            args.usage = True
            raise Invalid(f"--http takes [HOST:]PORT, not {args.http!r}", hint="for example --http 8484", what="http")
        host, port = (found[1] or "").strip("[]") or None, int(found[2])
    flags = {
        "surface": tuple(args.surface) if args.surface else None,
        "http.host": host,
        "http.port": port,
        "read_only": args.read_only,
        "rate_limits": False if args.no_rate_limits else None,
        "http.workers": args.workers,
    }
    config = load_config(args, tuple(args.locations), flags)
    if config.workspaces:
        return config
    if port is not None:  # over HTTP also those are served that the owner added, and those that may be made later
        from notewright.app import opening

        if config["workspaces_root"] is not None or opening.with_owner_changes(config).workspaces:
            return config
    args.usage = True
    raise Invalid("there is nothing to serve", hint="name a folder: notewright serve ~/Notes", what="location")
