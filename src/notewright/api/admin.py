"""Who asks, who may, and backups: what concerns the whole server."""

import time
from contextlib import closing
from typing import Any

from notewright.accounts.base import Grant
from notewright.api.operation import OperationTable
from notewright.api.request import ApiRequest, expiry_time
from notewright.api.schemas import BACKUP, BACKUPS, LISTED_BACKUP, ME, NEW_TOKEN, TOKEN, fill, many, text, told
from notewright.config.settings import parse_token_use
from notewright.engine.library import digest_of, new_token
from notewright.engine.transfer.backup import back_up
from notewright.engine.transfer.manifest import BackupPlace, readable_manifests
from notewright.errors import Invalid, NotFound

operations = OperationTable()


@operations.add("GET /api/v1/me", "read", "Who you are and what you may", ME, anybody=True)
def who_am_i(asked: ApiRequest) -> dict[str, Any]:
    who = asked.visitor.principal
    workspaces = [ws.id for ws in asked.library.workspaces()]
    return fill(ME, who, read_only=who.grant.read_only, workspaces=workspaces, surfaces=who.grant.surfaces)


# ---- tokens -------------------------------------------------------------------------------------------


@operations.add("GET /api/v1/tokens", "owner", "Every token there ever was", told(tokens=many(TOKEN)))
def list_tokens(asked: ApiRequest) -> dict[str, Any]:
    now = time.time()
    return {"tokens": [one.record(now) for one in asked.site.registry.tokens()]}


@operations.add(
    "POST /api/v1/tokens",
    "owner",
    "Make a token; one that nothing narrows is an owner's",
    TOKEN,
    body=NEW_TOKEN,
    status=201,
)
def add_token(asked: ApiRequest) -> dict[str, Any]:
    """The secret is in the answer and nowhere else."""
    now, body, registry = time.time(), asked.body, asked.site.registry
    expires = None if body.get("expires") is None else expiry_time(body["expires"], now)
    secret = new_token(registry, body["name"], _grant(asked), now=now, expires=expires)
    made = registry.token(digest_of(secret))
    assert made is not None
    asked.audited("token_added", token=made.name)
    return made.record(now) | {"token": secret}


def _grant(asked: ApiRequest) -> Grant:
    body, workspace = asked.body, asked.library.named
    return Grant(
        workspaces=tuple(workspace(one).id for one in body["workspaces"]) if "workspaces" in body else None,
        surfaces=tuple(map(parse_token_use, body["surfaces"])) if "surfaces" in body else None,
        read_only=body.get("read_only", False),
        hide=tuple(body.get("hide", ())),
        write_under=tuple(body.get("write_under", ("**",))),
    )


@operations.add("DELETE /api/v1/tokens/{name}", "owner", "End a token, at once", told(revoked=text()))
def revoke_token(asked: ApiRequest) -> dict[str, Any]:
    name = asked.named["name"]
    if not asked.site.registry.revoke(name, time.time()):
        raise NotFound("there is no such token to revoke", hint="GET /api/v1/tokens shows them", what="token")
    asked.audited("token_revoked", token=name)
    return {"revoked": name}


# ---- backups ------------------------------------------------------------------------------------------


@operations.add("POST /admin/backup", "owner", "The same", BACKUP)
@operations.add("POST /api/v1/backup", "owner", "Make today's backup now", BACKUP)
def make_backup(asked: ApiRequest) -> dict[str, Any]:
    """Of everything that is served, whatever is hidden from agents."""
    days = asked.site.config["backup.keep_days"]
    with closing(_backup_place(asked)) as place:
        result = back_up(asked.site.library.workspaces(), place, keep_days=days)
    asked.audited("backup", date=result.date, success=result.success, errors=len(result.errors))
    return result.record()


@operations.add("GET /api/v1/backups", "owner", "The backups there are", BACKUPS)
def list_backups(asked: ApiRequest) -> dict[str, Any]:
    with closing(_backup_place(asked)) as place:
        return {"backups": [fill(LISTED_BACKUP, one) for one in readable_manifests(place)]}


def _backup_place(asked: ApiRequest) -> BackupPlace:
    place = asked.site.config["backup.to"]
    if not place:
        hint = "set backup.to in the configuration to a folder or bucket for them"
        raise Invalid("no folder for backups was given", hint=hint, what="backup.to")
    return asked.site.open_backups(str(place))
