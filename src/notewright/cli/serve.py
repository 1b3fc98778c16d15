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
    """What the flags of `serve` say. Wrong usage where they cannot be followed."""
    host, port = _address(args) if args.http else (None, None)
    flags = {
        "surface": tuple(args.surface) if args.surface else None,
        "http.host": host,
        "http.port": port,
        "read_only": args.read_only,
        "rate_limits": False if args.no_rate_limits else None,
        "http.workers": args.workers,
    }
    config = load_config(args, tuple(args.locations), flags)
    if not config.workspaces and not (port is not None and _has_added(config)):
        args.usage = True
        raise Invalid("there is nothing to serve", hint="name a folder: notewright serve ~/Notes", what="location")
    return config


def _has_added(config: Config) -> bool:
    """Over HTTP also those are served that the owner added, and those that may be made later."""
    from notewright.app import opening

    return config["workspaces_root"] is not None or bool(opening.as_owned(config).workspaces)


def _address(args: argparse.Namespace) -> tuple[str | None, int]:
    """HOST and PORT of `[HOST:]PORT`; an IPv6 address stands in brackets."""
    found = re.fullmatch(r"(?:(\[[0-9a-fA-F:.]+\]|[^:\[\]]*):)?(\d{1,5})", args.http)
    if found is None or not 0 <= int(found[2]) <= 65535:
        args.usage = True
        raise Invalid(f"--http takes [HOST:]PORT, not {args.http!r}", hint="for example --http 8484", what="http")
    host = (found[1] or "").strip("[]")
    return host or None, int(found[2])
