"""`notewright token`: access tokens for HTTP. A running server knows them at once."""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC
from typing import Any

from notewright.accounts.base import Accounts, Grant, Token
from notewright.app import opening
from notewright.cli import printing
from notewright.cli.arguments import configured, moment, usage
from notewright.config.load import Config
from notewright.config.locations import workspace_id
from notewright.config.settings import SURFACES, surface_name
from notewright.engine.library import digest_of, effective_workspaces, new_token
from notewright.errors import Invalid, NotFound

OTHER_WAYS = ("api", "page", "metrics")  # beside the tool surfaces, what a token can be for


def token(args: argparse.Namespace) -> None:
    config = configured(args)
    with closing(opening.open_registry(config)) as registry:
        {"add": _add, "list": _list, "revoke": _revoke}[args.what](args, config, registry)


def _add(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    now = time.time()
    with usage(args):
        grant = Grant(
            workspaces=tuple(dict.fromkeys(_workspaces(args.workspace, config, registry))) or None,
            surfaces=tuple(dict.fromkeys(_surface(name) for word in args.surface for name in word.split(","))) or None,
            read_only=args.read_only,
            hide=tuple(args.hide),
            write_under=tuple(args.write_under) or ("**",),
        )
        expires = None if args.expires is None else moment(args.expires, UTC, now, "expires")
    secret = new_token(registry, args.name, grant, now=now, expires=expires)
    opening.tell_audit(config, "token_added", token=args.name)
    kept = next(one for one in registry.tokens() if one.digest == digest_of(secret))
    told = f"{args.name}: {rights(kept)}\nThis is shown once: only its hash is kept. Clients send it as\n"
    printing.show(args, _document(kept, now) | {"token": secret}, [secret], told + "  Authorization: Bearer …")


def _list(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    now, tokens = time.time(), registry.tokens()
    lines = [f"{one.name:20}  {state(one, now):22}  {rights(one)}" for one in tokens]
    summary = "" if tokens else "There is none. notewright token add NAME makes one."
    printing.show(args, {"tokens": [_document(one, now) for one in tokens]}, lines, summary)


def _revoke(args: argparse.Namespace, config: Config, registry: Accounts) -> None:
    if not registry.revoke(args.name, time.time()):
        names = ", ".join(one.name for one in registry.tokens() if one.good(time.time()))
        hint = f"there is {names}" if names else "there is none"
        raise NotFound(f"there is no token {args.name!r} to revoke", hint=hint, what="token")
    opening.tell_audit(config, "token_revoked", token=args.name)
    printing.show(args, {"revoked": args.name}, [f"{args.name} is revoked. Running servers refuse it from now on."])


def rights(one: Token) -> str:
    """What a token may, in one line."""
    grant = one.grant
    if grant == Grant():
        return "everything, changing workspaces and tokens too"
    said = ["reads" if grant.read_only else "reads and writes"]
    said += [f"in {', '.join(grant.workspaces)}"] if grant.workspaces is not None else []
    said += [f"through {', '.join(grant.surfaces)}"] if grant.surfaces is not None else []
    said += [f"without {', '.join(grant.hide)}"] if grant.hide else []
    said += [f"writing under {', '.join(grant.write_under)}"] if grant.write_under != ("**",) else []
    return ", ".join(said)


def state(one: Token, now: float) -> str:
    if one.revoked is not None:
        return "revoked"
    if one.expires is None:
        return "good"
    return f"{'until' if now < one.expires else 'expired'} {printing.when(one.expires)[:10]}"


def _document(one: Token, now: float) -> dict[str, Any]:
    times = {"created": one.created, "expires": one.expires, "revoked": one.revoked, "last_used": one.used}
    return {
        "name": one.name,
        "good": one.good(now),
        **asdict(one.grant),
        **{key: None if value is None else printing.when(value) for key, value in times.items()},
    }


def _workspaces(words: Sequence[str], config: Config, registry: Accounts) -> Iterator[str]:
    """The ids of workspaces, by id or name. One that is not configured here is taken as it would be named; a comma
    stands between several, except in a name there is."""
    ids = {name: one.id for one in effective_workspaces(config, registry) for name in (one.name, one.id)}
    for word in words:
        for name in [word] if word in ids else word.split(","):
            yield ids.get(name.strip()) or workspace_id(name)


def _surface(name: str) -> str:
    known, there = surface_name(name.strip()), (*SURFACES, *OTHER_WAYS)
    if known not in there:
        raise Invalid(f"there is no surface {name!r}", hint=f"there is {', '.join(there)}", what="surface")
    return known
