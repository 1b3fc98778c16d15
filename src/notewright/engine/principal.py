"""Somebody who came in over the network, and what they may use of a library."""

import difflib
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from notewright.engine.access import Access
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound
from notewright.ledger import Grant, Registry, Token
from notewright.notes import glob_matcher

PREFIX = "nw_"
_REMEMBERED = 300.0  # seconds between two notes of a token's last use


class Workspaces(Protocol):
    """Anything that has workspaces."""

    def workspaces(self) -> Sequence[Workspace]: ...


@dataclass(frozen=True)
class Principal:
    """Who asks. `local` is everybody on this machine, where no authentication was ever set up."""

    user: str
    grant: Grant = field(default_factory=Grant)
    kind: Literal["local", "token", "oauth"] = "token"
    admin: bool = True  # False: may use everything there is, and change none of the rules

    @property
    def owner(self) -> bool:
        """Whether nothing is narrowed: such a one may also change workspaces and tokens."""
        return self.admin and self.grant == Grant()

    def uses(self, surface: str) -> bool:
        return self.grant.surfaces is None or surface in self.grant.surfaces

    def sees(self, workspace_id: str) -> bool:
        return self.grant.workspaces is None or workspace_id in self.grant.workspaces

    def library(self, library: Workspaces) -> "Narrowed":
        return Narrowed(library, self)

    def narrow(self, ws: Workspace) -> Workspace:
        """The workspace under both sets of rules: its own and this caller's."""
        grant = self.grant
        if not (grant.read_only or grant.hide or grant.write_under != ("**",)):
            return ws
        return replace(ws, access=ws.access.narrowed(Access(grant.read_only, grant.hide, grant.write_under)))


class Narrowed:
    """A library as one caller may use it. A workspace they may not see is one that is not there."""

    def __init__(self, library: Workspaces, principal: Principal) -> None:
        self._library = library
        self._principal = principal
        self._allowed: Sequence[Workspace] | None = None

    def workspaces(self) -> Sequence[Workspace]:
        """Those there were when it was first asked: made for one request, it is one thing throughout."""
        if self._allowed is None:
            who = self._principal
            self._allowed = tuple(who.narrow(ws) for ws in self._library.workspaces() if who.sees(ws.id))
        return self._allowed

    @property
    def default(self) -> Workspace:
        allowed = self.workspaces()
        if not allowed:
            raise NotFound("there is no workspace you may use", hint="ask the owner", what="workspace", workspace="")
        return allowed[0]

    def named(self, id_or_name: str) -> Workspace:
        allowed = self.workspaces()
        for workspace in allowed:
            if id_or_name in (workspace.id, workspace.name):
                return workspace
        names = [workspace.name for workspace in allowed]
        near = difflib.get_close_matches(id_or_name, names, n=3) or names[:3]
        raise NotFound(
            f"there is no workspace {id_or_name!r}",
            hint=f"there is {', '.join(near)}" if near else "ask the owner",
            what="workspace",
            workspace=id_or_name,
            nearest=near,
        )


def mint(registry: Registry, name: str, grant: Grant, *, now: float, expires: float | None = None) -> str:
    """A new access token. It is told once: only its hash is kept. Invalid for a name or pattern that is none."""
    if not re.fullmatch(r"[\w][\w .@+-]{0,63}", name):
        hint = "use letters, digits, spaces and . @ + - _, at most 64"
        raise Invalid(f"{name!r} is no name for a token", hint=hint, what="name")
    for glob in (*grant.hide, *grant.write_under):
        glob_matcher(glob)  # refused now, by whom made it, and not at every request
    if expires is not None and expires <= now:
        raise Invalid("the token would have expired already", hint="name a time to come, as in 90d", what="expires")
    secret = PREFIX + secrets.token_urlsafe(32)
    registry.add_token(Token(name, digest_of(secret), grant, now, expires))
    return secret


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def admit(registry: Registry, secret: str, now: float) -> Token | None:
    """The token this is, if it is one of ours and still good."""
    return admit_digest(registry, digest_of(secret), now)


def admit_digest(registry: Registry, digest: str, now: float) -> Token | None:
    found = registry.token(digest)
    if found is None or not hmac.compare_digest(found.digest, digest) or not found.good(now):
        return None
    if found.used is None or now - found.used > _REMEMBERED:
        registry.used(digest, now)
        return replace(found, used=now)
    return found
