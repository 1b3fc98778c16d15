"""`notewright token`: access tokens for HTTP. A running server knows them at once."""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC

from notewright.accounts.base import Accounts, Grant, Token
from notewright.app import opening
from notewright.cli import printing
from notewright.cli.arguments import load_config, parse_moment, refuse_as_usage
from notewright.config.load import Config
from notewright.config.locations import workspace_id
from notewright.config.settings import parse_token_use
from notewright.engine.library import digest_of, effective_workspaces, new_token
from notewright.errors import NotFound
from notewright.notes.times import format_utc


def token(args: argparse.Namespace) -> None:
    config = load_config(args)
    with closing(opening.open_registry(config)) as registry:
        {"add": _add, "list": _list, "revoke": _revoke}[args.what](args, config, registry)


def _add(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    now = time.time()
    with refuse_as_usage(args):
        grant = Grant(
            workspaces=tuple(dict.fromkeys(_workspace_ids(args.workspace, config, registry))) or None,
            surfaces=tuple(dict.fromkeys(parse_token_use(name) for word in args.surface for name in word.split(",")))
            or None,
            read_only=args.read_only,
            hide=tuple(args.hide),
            write_under=tuple(args.write_under) or ("**",),
        )
        expires = None if args.expires is None else parse_moment(args.expires, UTC, now, "expires")
    secret = new_token(registry, args.name, grant, now=now, expires=expires)
    opening.record_admin_action(config, "token_added", token=args.name)
    kept = next(one for one in registry.tokens() if one.digest == digest_of(secret))
    summary = f"{args.name}: {_describe_rights(kept)}\nThis is shown once: only its hash is kept. Clients send it as\n"
    printing.print_answer(args, kept.record(now) | {"token": secret}, [secret], summary + "  Authorization: Bearer …")


def _list(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    now, tokens = time.time(), registry.tokens()
    lines = []
    for one in tokens:
        state = "revoked" if one.revoked is not None else "good"
        if one.revoked is None and one.expires is not None:
            state = f"{'until' if now < one.expires else 'expired'} {format_utc(one.expires)[:10]}"
        lines.append(f"{one.name:20}  {state:22}  {_describe_rights(one)}")
    summary = "" if tokens else "There is none. notewright token add NAME makes one."
    printing.print_answer(args, {"tokens": [one.record(now) for one in tokens]}, lines, summary)


def _revoke(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    if not registry.revoke(args.name, time.time()):
        names = ", ".join(one.name for one in registry.tokens() if one.is_valid(time.time()))
        hint = f"there is {names}" if names else "there is none"
        raise NotFound(f"there is no token {args.name!r} to revoke", hint=hint, what="token")
    opening.record_admin_action(config, "token_revoked", token=args.name)
    printing.print_answer(
        args, {"revoked": args.name}, [f"{args.name} is revoked. Running servers refuse it from now on."]
    )


def _describe_rights(one: Token) -> str:
    """What a token allows, in one line."""
    return "everything, changing workspaces and tokens too" if one.grant == Grant() else one.grant.words


def _workspace_ids(words: Sequence[str], config: Config, registry: Accounts) -> Iterator[str]:
    """The ids of workspaces, by id or name. One that is not configured here is taken as it would be named; a comma
    stands between several, except in a name there is."""
    ids = {name: one.id for one in effective_workspaces(config, registry) for name in (one.name, one.id)}
    for word in words:
        for name in [word] if word in ids else word.split(","):
            yield ids.get(name.strip()) or workspace_id(name)
