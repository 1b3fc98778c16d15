"""Who asks, who may, and backups: what concerns the whole server."""

import time
from typing import Any

from notewright.accounts.base import Grant, Token
from notewright.api import schemas
from notewright.api.operation import Operation
from notewright.api.request import ApiRequest, maybe_stamp, to_come
from notewright.api.schemas import many, text, told
from notewright.config.settings import SURFACES, surface_name
from notewright.engine.library import digest_of, new_token
from notewright.engine.transfer.backup import back_up
from notewright.engine.transfer.restore import backups
from notewright.errors import Invalid, NotFound

WAYS = (*SURFACES, "api", "page", "metrics")  # what a token can be narrowed to


def who_am_i(asked: ApiRequest) -> dict[str, Any]:
    principal = asked.visitor.principal
    return {
        "user": principal.user,
        "kind": principal.kind,
        "owner": principal.owner,
        "read_only": principal.grant.read_only,
        "workspaces": [ws.id for ws in asked.library.workspaces()],
        "surfaces": principal.grant.surfaces,
    }


# ---- tokens -------------------------------------------------------------------------------------------


def list_tokens(asked: ApiRequest) -> dict[str, Any]:
    now = time.time()
    return {"tokens": [_token(one, now) for one in asked.site.registry.tokens()]}


def add_token(asked: ApiRequest) -> dict[str, Any]:
    """The secret is in the answer and nowhere else."""
    now, body, registry = time.time(), asked.body, asked.site.registry
    expires = None if body.get("expires") is None else to_come(body["expires"], now)
    secret = new_token(registry, body["name"], _grant(asked), now=now, expires=expires)
    made = registry.token(digest_of(secret))
    assert made is not None
    asked.audited("token_added", token=made.name)
    return {**_token(made, now), "token": secret}


def _grant(asked: ApiRequest) -> Grant:
    body = asked.body
    return Grant(
        workspaces=tuple(_workspace(asked, one) for one in body["workspaces"]) if "workspaces" in body else None,
        surfaces=tuple(map(_surface, body["surfaces"])) if "surfaces" in body else None,
        read_only=body.get("read_only", False),
        hide=tuple(body.get("hide", ())),
        write_under=tuple(body.get("write_under", ("**",))),
    )


def _workspace(asked: ApiRequest, named: str) -> str:
    return asked.library.named(named).id


def _surface(name: str) -> str:
    known = surface_name(name)
    if known not in WAYS:
        raise Invalid(f"there is no surface {name!r}", hint=f"there is {', '.join(WAYS)}", what="surfaces")
    return known


def revoke_token(asked: ApiRequest) -> dict[str, Any]:
    name = asked.named["name"]
    if not asked.site.registry.revoke(name, time.time()):
        raise NotFound("there is no such token to revoke", hint="GET /api/v1/tokens shows them", what="token")
    asked.audited("token_revoked", token=name)
    return {"revoked": name}


def _token(one: Token, now: float) -> dict[str, Any]:
    return {
        "name": one.name,
        "good": one.good(now),
        "workspaces": one.grant.workspaces,
        "surfaces": one.grant.surfaces,
        "read_only": one.grant.read_only,
        "hide": one.grant.hide,
        "write_under": one.grant.write_under,
        "created": maybe_stamp(one.created),
        "expires": maybe_stamp(one.expires),
        "revoked": maybe_stamp(one.revoked),
        "last_used": maybe_stamp(one.used),
    }


# ---- backups ------------------------------------------------------------------------------------------


def make_backup(asked: ApiRequest) -> dict[str, Any]:
    """Of everything that is served, whatever is hidden from agents."""
    place, days = _backups(asked), asked.site.config["backup.keep_days"]
    result = back_up(asked.site.library.workspaces(), place, keep_days=days)
    asked.audited("backup", date=result.date, success=result.success, errors=len(result.errors))
    return result.record()


def list_backups(asked: ApiRequest) -> dict[str, Any]:
    return {
        "backups": [
            {
                "date": one.date,
                "made": one.made,
                "files": one.files,
                "size": one.size,
                "workspaces": one.workspaces,
                "errors": one.errors,
            }
            for one in backups(_backups(asked))
        ]
    }


def _backups(asked: ApiRequest) -> str:
    place = asked.site.config["backup.to"]
    if not place:
        hint = "set backup.to in the configuration to a folder for them"
        raise Invalid("no folder for backups was given", hint=hint, what="backup.to")
    return str(place)


OPERATIONS = (
    Operation("GET", "/api/v1/me", "read", "Who you are and what you may", who_am_i, schemas.ME, anybody=True),
    Operation(
        "GET", "/api/v1/tokens", "owner", "Every token there ever was", list_tokens, told(tokens=many(schemas.TOKEN))
    ),
    Operation(
        "POST",
        "/api/v1/tokens",
        "owner",
        "Make a token; one that nothing narrows is an owner's",
        add_token,
        schemas.TOKEN,
        body=schemas.NEW_TOKEN,
        status=201,
    ),
    Operation("DELETE", "/api/v1/tokens/{name}", "owner", "End a token, at once", revoke_token, told(revoked=text())),
    Operation("POST", "/api/v1/backup", "owner", "Make today's backup now", make_backup, schemas.BACKUP),
    Operation("POST", "/admin/backup", "owner", "The same", make_backup, schemas.BACKUP),
    Operation("GET", "/api/v1/backups", "owner", "The backups there are", list_backups, schemas.BACKUPS),
)
