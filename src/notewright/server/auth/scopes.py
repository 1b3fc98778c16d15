"""What the scopes of an access token allow.

    notes:read        read everything the other scopes leave
    notes:write       change it, too
    notes:admin       change the rules: workspaces, tokens (as long as nothing below narrows it)
    workspace:<id>    only this workspace; several may be named, none is all
    surface:<name>    only this tool surface; several may be named, none is all

An issuer may have other names for them: `auth.scopes` says which of its names stand for which of ours.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from notewright.accounts.base import Grant
from notewright.config.settings import SURFACES, normalize_surface
from notewright.errors import Invalid

READ, WRITE, ADMIN = "notes:read", "notes:write", "notes:admin"
BASIC_SCOPES = (READ, WRITE)  # that a client is to ask for; one that needs more is told so when it does
_RIGHTS = frozenset({READ, WRITE, ADMIN})
_SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749


@dataclass(frozen=True, slots=True)
class ScopeNames:
    """The issuer's names of scopes and what they stand for; a name that is not here stands for itself."""

    ours_by_theirs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_ours(self, theirs: Iterable[str]) -> frozenset[str]:
        return frozenset(ours for name in theirs for ours in self.ours_by_theirs.get(name, (name,)))

    def to_theirs(self, *wanted: str) -> tuple[str, ...]:
        """What to ask the issuer for, to get these: of several names the one that gives least."""
        chosen = []
        for want in wanted:
            granting = [name for name, ours in self.ours_by_theirs.items() if want in ours]
            chosen.append(min(granting, key=lambda name: (len(self.ours_by_theirs[name]), name), default=want))
        return tuple(dict.fromkeys(chosen))


def scope_names(entries: Sequence[str]) -> ScopeNames:
    """From the lines of `auth.scopes`, each `theirs=ours ours`; Invalid if one is malformed."""
    ours_by_theirs: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        theirs, equals, ours = entry.rpartition("=")  # ours have no equals sign; theirs may be an address
        theirs, names = theirs.strip(), tuple(ours.split())
        if not equals or not _SCOPE_TOKEN.fullmatch(theirs) or not names:
            raise Invalid(f"auth.scopes: {entry!r} names no scopes", hint='write "theirs=ours"', what="auth.scopes")
        for name in names:
            kind, _, value = name.partition(":")
            is_surface = kind == "surface" and normalize_surface(value) in SURFACES
            if not (name in _RIGHTS or (kind == "workspace" and value) or is_surface):
                hint = f"there is {READ}, {WRITE}, {ADMIN}, workspace:<id> and surface:<{'|'.join(SURFACES)}>"
                raise Invalid(f"auth.scopes: {name!r} is no scope of ours", hint=hint, what="auth.scopes")
        ours_by_theirs[theirs] = (*ours_by_theirs.get(theirs, ()), *names)
    return ScopeNames(ours_by_theirs)


def granted(ours: frozenset[str]) -> Grant | None:
    """What these scopes allow; None for nothing. A narrowing that fits nothing allows nothing, not everything."""
    if not ours & _RIGHTS:
        return None
    workspaces, surfaces = _values(ours, "workspace:"), _values(ours, "surface:")
    surfaces = None if surfaces is None else tuple(map(normalize_surface, surfaces))
    return Grant(workspaces, surfaces, read_only=not ours & {WRITE, ADMIN})


def _values(ours: frozenset[str], prefix: str) -> tuple[str, ...] | None:
    return tuple(sorted(name.removeprefix(prefix) for name in ours if name.startswith(prefix))) or None
