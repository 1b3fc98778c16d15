"""What concerns the whole server: the caller, access tokens, backups."""

import time
from contextlib import closing
from typing import Any

from notewright.accounts.base import Grant
from notewright.api.operation import OperationTable
from notewright.api.request import ApiRequest, parse_expiry
from notewright.api.schemas import BACKUP, BACKUPS, LISTED_BACKUP, ME, NEW_TOKEN, TOKEN, array, fill, returns, text
from notewright.config.settings import parse_token_use
from notewright.engine.library import digest_of, new_token
from notewright.engine.transfer.backup import back_up
from notewright.engine.transfer.manifest import BackupPlace, readable_manifests
from notewright.errors import Invalid, NotFound

operations = OperationTable()


@operations.add("GET /api/v1/me", "read", "Who you are and what you may", ME, any_token=True)
def who_am_i(request: ApiRequest) -> dict[str, Any]:
    who = request.visitor.principal
    workspaces = [ws.id for ws in request.library.workspaces()]
    return fill(ME, who, read_only=who.grant.read_only, workspaces=workspaces, surfaces=who.grant.surfaces)


@operations.add("GET /api/v1/tokens", "owner", "Every token there ever was", returns(tokens=array(TOKEN)))
def list_tokens(request: ApiRequest) -> dict[str, Any]:
    now = time.time()
    return {"tokens": [token.record(now) for token in request.site.registry.tokens()]}


@operations.add(
    "POST /api/v1/tokens",
    "owner",
    "Make a token; one that nothing narrows is an owner's",
    TOKEN,
    body=NEW_TOKEN,
    status=201,
)
def add_token(request: ApiRequest) -> dict[str, Any]:
    """The secret is in the answer and nowhere else."""
    now, body, registry, workspace = time.time(), request.body, request.site.registry, request.library.find_workspace
    expires = None if body.get("expires") is None else parse_expiry(body["expires"], now)
    grant = Grant(
        workspaces=tuple(workspace(name).id for name in body["workspaces"]) if "workspaces" in body else None,
        surfaces=tuple(map(parse_token_use, body["surfaces"])) if "surfaces" in body else None,
        read_only=body.get("read_only", False),
        hide=tuple(body.get("hide", ())),
        write_under=tuple(body.get("write_under", ("**",))),
    )
    secret = new_token(registry, body["name"], grant, now=now, expires=expires)
    token = registry.token(digest_of(secret))
    assert token is not None
    request.record_audit("token_added", token=token.name)
    return token.record(now) | {"token": secret}


@operations.add("DELETE /api/v1/tokens/{name}", "owner", "End a token, at once", returns(revoked=text()))
def revoke_token(request: ApiRequest) -> dict[str, Any]:
    name = request.path_params["name"]
    if not request.site.registry.revoke(name, time.time()):
        raise NotFound("there is no such token to revoke", hint="GET /api/v1/tokens shows them", what="token")
    request.record_audit("token_revoked", token=name)
    return {"revoked": name}


@operations.add("POST /admin/backup", "owner", "The same", BACKUP)
@operations.add("POST /api/v1/backup", "owner", "Make today's backup now", BACKUP)
def make_backup(request: ApiRequest) -> dict[str, Any]:
    """Back up everything that is served, hidden from agents or not."""
    days = request.site.config["backup.keep_days"]
    with closing(_open_backups(request)) as place:
        result = back_up(request.site.library.workspaces(), place, keep_days=days)
    request.record_audit("backup", date=result.date, success=result.success, errors=len(result.errors))
    return result.record()


@operations.add("GET /api/v1/backups", "owner", "The backups there are", BACKUPS)
def list_backups(request: ApiRequest) -> dict[str, Any]:
    with closing(_open_backups(request)) as place:
        return {"backups": [fill(LISTED_BACKUP, manifest) for manifest in readable_manifests(place)]}


def _open_backups(request: ApiRequest) -> BackupPlace:
    place = request.site.config["backup.to"]
    if not place:
        hint = "set backup.to in the configuration to a folder or bucket for them"
        raise Invalid("no folder for backups was given", hint=hint, what="backup.to")
    return request.site.open_backups(str(place))
