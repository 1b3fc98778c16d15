"""What the scopes of an access token allow.

    notes:read        read everything the other scopes leave
    notes:write       change it, too
    notes:admin       change the rules: workspaces, tokens (as long as nothing below narrows it)
    workspace:<id>    only this workspace; several may be named, none is all
    surface:<name>    only this tool surface; several may be named, none is all

An issuer may call them otherwise: `auth.scopes` says which of its names stand for which of ours.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from notewright.accounts.base import Grant
from notewright.config.settings import SURFACES, normalize_surface
from notewright.errors import Invalid

READ, WRITE, ADMIN = "notes:read", "notes:write", "notes:admin"
BASIC = (READ, WRITE)  # what a client is told to ask for; who needs more is told when they need it
_RIGHTS = frozenset({READ, WRITE, ADMIN})
_NAME = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749: a scope-token


class Rights(NamedTuple):
    """What somebody may use, and whether they may change the rules."""

    grant: Grant
    admin: bool


@dataclass(frozen=True, slots=True)
class ScopeNames:
    """The issuer's names of scopes and what they stand for; a name that is not here stands for itself."""

    ours_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def ours(self, given: Iterable[str]) -> frozenset[str]:
        return frozenset(ours for name in given for ours in self.ours_of.get(name, (name,)))

    def theirs(self, *wanted: str) -> tuple[str, ...]:
        """What to ask the issuer for, to get these: of several names the one that gives least."""
        return tuple(dict.fromkeys(self._least(want) for want in wanted))

    def _least(self, want: str) -> str:
        giving = [name for name, ours in self.ours_of.items() if want in ours]
        return min(giving, key=lambda name: (len(self.ours_of[name]), name), default=want)


def scope_names(entries: Sequence[str]) -> ScopeNames:
    """From the lines of `auth.scopes`, each `theirs=ours ours`; Invalid if one is none."""
    named: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        theirs, equals, ours = entry.rpartition("=")  # none of ours has an equals sign, theirs may be an address
        theirs, wanted = theirs.strip(), tuple(ours.split())
        if not equals or not _NAME.fullmatch(theirs) or not wanted:
            raise Invalid(f"auth.scopes: {entry!r} names no scopes", hint='write "theirs=ours"', what="auth.scopes")
        for name in wanted:
            _refuse_unknown(name)
        named[theirs] = (*named.get(theirs, ()), *wanted)
    return ScopeNames(named)


def _refuse_unknown(name: str) -> None:
    kind, _, value = name.partition(":")
    if (
        name in _RIGHTS
        or (kind == "workspace" and value)
        or (kind == "surface" and normalize_surface(value) in SURFACES)
    ):
        return
    known = f"there is {READ}, {WRITE}, {ADMIN}, workspace:<id> and surface:<{'|'.join(SURFACES)}>"
    raise Invalid(f"auth.scopes: {name!r} is no scope of ours", hint=known, what="auth.scopes")


def rights(ours: frozenset[str]) -> Rights | None:
    """What these allow; None if that is nothing at all. A narrowing nobody fits leaves nothing, never everything."""
    if not ours & _RIGHTS:
        return None
    workspaces, surfaces = _values_of(ours, "workspace:"), _values_of(ours, "surface:")
    surfaces = None if surfaces is None else tuple(map(normalize_surface, surfaces))
    narrowed = Grant(workspaces, surfaces, read_only=not ours & {WRITE, ADMIN})
    return Rights(narrowed, admin=ADMIN in ours)


def _values_of(ours: frozenset[str], prefix: str) -> tuple[str, ...] | None:
    return tuple(sorted(name.removeprefix(prefix) for name in ours if name.startswith(prefix))) or None
