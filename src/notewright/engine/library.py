"""The workspaces one client may use: access by token, the list of workspaces, and how their owner changes them."""

import difflib
import functools
import hashlib
import hmac
import logging
import os
import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from notewright.accounts.base import Accounts, Grant, Token, WorkspaceRecord
from notewright.config.load import CHANGEABLE_SETTINGS, Config, WorkspaceConfig, apply_settings
from notewright.config.locations import (
    is_bucket,
    refuse_inside,
    refuse_not_yet,
    refuse_overlap,
    resolve_location,
    split_live,
    workspace_id,
)
from notewright.config.settings import BUCKET_SETTINGS, FOLDER_SETTINGS, WORKSPACE_SETTINGS, suggest
from notewright.engine.access import Access
from notewright.engine.workspace import Workspace
from notewright.errors import Exists, Invalid, NotFound, Problem
from notewright.notes.glob import compile_glob
from notewright.stores.subfolder import make_folder, parse_segments

log = logging.getLogger(__name__)
PREFIX = "nw_"  # of a token
LAST_USE_SECONDS = 300.0  # between two records of a token's last use
MAX_NAME_CHARS = 100
MAX_GLOBS = 100
MAX_JSON_INTEGER = 1 << 53  # what every reader of JSON can count to
RETRY_SECONDS = 5.0  # between two attempts to open a library: a bucket may be away for a while
_JOINERS = "\u200c\u200d"  # invisible; some scripts and emoji need them
Settings = Mapping[str, Any]
W = TypeVar("W", Workspace, WorkspaceConfig)


def find_by_id_or_name(among: Iterable[W], which: str) -> W | None:
    """The workspace with this id or display name."""
    return next((one for one in among if which in (one.id, one.name)), None)


class Library:
    """The workspaces a client may use, in the order they were named. `source` returns the current ones."""

    def __init__(self, source: Callable[[], Sequence[Workspace]]) -> None:
        self.workspaces = source

    @staticmethod
    def of(workspaces: Sequence[Workspace]) -> "Library":
        return Library(lambda: workspaces)

    def close(self) -> None:
        """Close what it opened, if anything."""

    @property
    def default(self) -> Workspace:
        """The first workspace."""
        if not (served := self.workspaces()):
            raise NotFound("there is no workspace you may use", hint="ask the owner", what="workspace", workspace="")
        return served[0]

    def find_workspace(self, which: str) -> Workspace:
        """The workspace of this id or display name; NotFound also for one the client may not see."""
        served = self.workspaces()
        found = find_by_id_or_name(served, which)
        if found is not None:
            return found
        names = [workspace.name for workspace in served]
        near = difflib.get_close_matches(which, names, n=3) or names[:3]
        hint = f"there is {', '.join(near)}" if near else "ask the owner"
        raise NotFound(f"there is no workspace {which!r}", hint=hint, what="workspace", workspace=which, nearest=near)


class LazyLibrary(Library):
    """The library that `open_library` returns, opened in a thread of its own by `begin` or by the first call.

    Calls block until it is open; if opening fails, every call does, until it is retried. `on_open` functions are called
    once with each of its workspaces."""

    def __init__(
        self, open_library: Callable[[], Library], on_open: Sequence[Callable[[Workspace], None]] = ()
    ) -> None:
        super().__init__(lambda: self.begin().result().workspaces())
        self._open_library = open_library
        self._on_open = on_open
        self._opening: Future[Library] | None = None
        self._failed_at = 0.0  # monotonic
        self._lock = threading.Lock()

    def begin(self) -> Future[Library]:
        with self._lock:
            failed = self._opening is not None and self._opening.done() and self._opening.exception() is not None
            if self._opening is None or (failed and time.monotonic() - self._failed_at > RETRY_SECONDS):
                self._opening = Future()
                threading.Thread(target=self._open, args=[self._opening], name="open", daemon=True).start()
            return self._opening

    def _open(self, opening: Future[Library]) -> None:
        try:
            library = self._open_library()
        except BaseException as error:
            self._failed_at = time.monotonic()
            opening.set_exception(error)
            return
        self.workspaces = library.workspaces  # a direct reference, as every call uses it
        opening.set_result(library)
        try:
            for call in self._on_open:
                for ws in library.workspaces():
                    call(ws)
        except Exception:  # the surface tries again when it is called
            log.debug("a surface could not prepare its answers", exc_info=True)

    def close(self) -> None:
        """Close it if it is open; one that is still opening is left to the end of the process."""
        try:
            if self._opening is not None and self._opening.exception(timeout=1) is None:
                self._opening.result().close()
        except TimeoutError:
            log.warning("the library was not open yet when it was to be closed")


@dataclass(frozen=True)
class Principal:
    """The caller. `local`: anybody on this machine, while no authentication was ever set up."""

    user: str
    grant: Grant = field(default_factory=Grant)
    kind: Literal["local", "token", "oauth"] = "token"
    admin: bool = True  # False: may use every workspace, and change no workspaces or tokens

    @property
    def owner(self) -> bool:
        """Whether nothing is restricted: such a caller may also change workspaces and tokens."""
        return self.admin and self.grant == Grant()

    def uses(self, surface: str) -> bool:
        return self.grant.surfaces is None or surface in self.grant.surfaces

    def sees(self, workspace_id: str) -> bool:
        return self.grant.workspaces is None or workspace_id in self.grant.workspaces

    def narrow_library(self, library: "Library") -> "Library":
        """The library as this caller may use it: a workspace they may not see does not exist. It is for one request,
        and keeps the workspaces of its first call."""

        @functools.cache
        def allowed() -> Sequence[Workspace]:
            own = tuple(self.narrow(ws) for ws in library.workspaces() if self.sees(ws.id))
            return tuple(
                ws if ws.user_quota is None else replace(ws, user_quota=replace(ws.user_quota, workspaces=lambda: own))
                for ws in own
            )

        return Library(allowed)

    def narrow(self, ws: Workspace) -> Workspace:
        """The workspace restricted by this caller's rules as well as its own."""
        grant = self.grant
        if not (grant.read_only or grant.hide or grant.write_under != ("**",)):
            return ws
        return replace(ws, access=ws.access.narrowed(Access(grant.read_only, grant.hide, grant.write_under)))


def new_token(registry: Accounts, name: str, grant: Grant, *, now: float, expires: float | None = None) -> str:
    """Make a new access token. Only its hash is kept. Invalid for a name or pattern that is not valid."""
    if not re.fullmatch(r"[\w][\w .@+-]{0,63}", name):
        hint = "use letters, digits, spaces and . @ + - _, at most 64"
        raise Invalid(f"{name!r} is no name for a token", hint=hint, what="name")
    for glob in (*grant.hide, *grant.write_under):
        compile_glob(glob)  # refuse an invalid one now, not at every request
    if expires is not None and expires <= now:
        raise Invalid("the token would have expired already", hint="name a time to come, as in 90d", what="expires")
    secret = PREFIX + secrets.token_urlsafe(32)
    registry.add_token(Token(name, digest_of(secret), grant, now, expires))
    return secret


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def find_valid_token(registry: Accounts, digest: str, now: float) -> Token | None:
    """The token with this digest, if it is neither revoked nor expired; its use is recorded."""
    found = registry.token(digest)
    if found is None or not hmac.compare_digest(found.digest, digest) or not found.is_valid(now):
        return None
    if found.used is None or now - found.used > LAST_USE_SECONDS:
        registry.record_use(digest, now)
        return replace(found, used=now)
    return found


# ---- which workspaces there are -----------------------------------------------------------------------


def effective_workspaces(
    config: Config, registry: Accounts | None, *, added: bool = True
) -> tuple[WorkspaceConfig, ...]:
    """The workspaces of a configuration with their owner's changes, and those the owner added.

    The configuration may have changed too: where a name given here is that of another workspace by now, the configured
    name holds, and an added workspace that clashes with the others is not served.
    """
    if registry is None:
        return config.workspaces
    records = _read_records(registry)
    served: list[WorkspaceConfig] = []
    for number, one in enumerate(config.workspaces):
        changed = _apply_record(one, records.get(one.location), config)
        if _find_clash(changed, [*served, *config.workspaces[number + 1 :]]):
            _warn_once(f"the workspace {one.name} cannot be called {changed.name}: that is another one's name")
            changed = replace(changed, name=one.name, id=one.id)
        served.append(changed)
    for record in records.values() if added else ():
        if not record.added or any(record.location == one.location for one in config.workspaces):
            continue
        try:
            changed = _apply_record(WorkspaceConfig("", "", record.location), record, config)
            if other := _find_clash(changed, served):
                raise Exists(f"another workspace is called {other.name}")
            _refuse_place(changed, served, config)
            served.append(changed)
        except Problem as problem:
            _warn_once(f"the workspace in {record.location} is not served: {problem}")
    return tuple(served)


def workspace_record(one: WorkspaceConfig, registry: Accounts) -> dict[str, Any]:
    """A workspace as JSON values for its owner: where it is, what is set, and what of that the owner changed."""
    record = _read_records(registry).get(one.location, WorkspaceRecord(one.location))
    values = {"id": one.id, "name": one.name, "location": one.location, "added": record.added}
    values |= {key: getattr(one, key) for key in CHANGEABLE_SETTINGS}
    return values | {"changed": sorted(set(record.settings) - {"id"})}


def _read_records(registry: Accounts) -> dict[str, WorkspaceRecord]:
    return {record.location: record for record in registry.records()}


@functools.lru_cache(maxsize=256)
def _warn_once(words: str) -> None:
    log.warning("%s", words)


def _apply_record(workspace: WorkspaceConfig, record: WorkspaceRecord | None, config: Config) -> WorkspaceConfig:
    if record is None:
        return workspace
    changed = apply_settings(workspace, record.settings)
    return replace(changed, read_only=changed.read_only or config["read_only"])


def find_workspace(config: Config, registry: Accounts, which: str, *, by_location: bool = False) -> WorkspaceConfig:
    """The workspace of that id or name; on the owner's own command line also the one in a folder, served or not."""
    served = effective_workspaces(config, registry)
    if one := find_by_id_or_name(served, which):
        return one
    if by_location and (os.sep in which or os.path.isdir(which)):
        return _find_workspace_at(config, registry, served, resolve_location(which, Path.cwd()))
    hint = suggest(which, [one.name for one in served])
    if by_location:
        hint += "; one that only a server's command line names is named here by its folder"
    raise NotFound(f"there is no workspace {which!r}", hint=hint, what="workspace", workspace=which)


def _find_workspace_at(
    config: Config, registry: Accounts, served: Sequence[WorkspaceConfig], location: str
) -> WorkspaceConfig:
    """The workspace in a folder. It need not be served: another server's command line may name it."""
    found = next((one for one in served if one.location == location), None)
    return found or _apply_record(_find_configured(config, location), _read_records(registry).get(location), config)


def _find_configured(config: Config, location: str) -> WorkspaceConfig:
    """The configured workspace in a folder, or one with default settings for the folder."""
    name = location.rpartition("/")[2] or "notes"
    configured = (one for one in config.workspaces if one.location == location)
    return next(configured, WorkspaceConfig(name, workspace_id(name), location))


# ---- changing it --------------------------------------------------------------------------------------


def add_folder(
    config: Config, registry: Accounts, name: str, location: str, settings: Settings | None = None
) -> WorkspaceConfig:
    """Serve an existing folder, or a bucket, from now on."""
    place, live = split_live(resolve_location(location, Path.cwd()))
    if is_bucket(place):
        return _add(config, registry, name, place, settings or {}, settable=(*CHANGEABLE_SETTINGS, *BUCKET_SETTINGS))
    if not os.access(place, os.R_OK | os.X_OK):
        raise Invalid(f"{place} cannot be read", hint="name a folder that is yours", what="location")
    settings = {**(settings or {}), **({"live": True} if live else {})}
    return _add(config, registry, name, place, settings, settable=(*CHANGEABLE_SETTINGS, *FOLDER_SETTINGS))


def add_beneath(
    config: Config, registry: Accounts, name: str, location: str | None, settings: Settings | None = None
) -> WorkspaceConfig:
    """Serve a folder or prefix beneath `workspaces_root`, which is made if it is not there. A caller over a network may
    name no other location. Without one it is called like the workspace's id."""
    root = config["workspaces_root"]
    if root is None:
        hint = "use notewright workspace add on the machine itself, or set workspaces_root to a folder for them"
        raise Invalid("this server makes no workspaces", hint=hint, what="workspaces_root")
    if not is_bucket(root):
        root = os.path.realpath(Path(root).expanduser())
        if not os.path.isdir(root):
            hint = "make it, or set workspaces_root to a folder that is there"
            raise Invalid("the folder of workspaces_root is not there", hint=hint, what="workspaces_root")
    if location is None:
        location = workspace_id(_check_name(name), _used_ids(config, registry))
    if not (is_bucket(root) and location.startswith(root + "/")):
        refuse_not_yet(location)
    segments = parse_segments(location, root)
    with nullcontext() if is_bucket(root) else make_folder(root, segments):
        return _add(config, registry, name, "/".join((root, *segments)), settings or {})


def _add(
    config: Config,
    registry: Accounts,
    name: str,
    location: str,
    settings: Settings,
    settable: tuple[str, ...] = CHANGEABLE_SETTINGS,
) -> WorkspaceConfig:
    """Record a workspace that is not served yet. Earlier settings of its folder still apply."""
    with registry.transaction():
        served = effective_workspaces(config, registry)
        kept = dict(_read_records(registry).get(location, WorkspaceRecord(location)).settings)
        kept["name"] = _check_name(name)
        kept.setdefault("id", workspace_id(kept["name"], _used_ids(config, registry)))
        kept = _merge_settings(kept, settings, settable)
        workspace = apply_settings(WorkspaceConfig("", "", location), kept)
        _refuse_place(workspace, served, config)
        _refuse_clash(workspace, served)
        registry.put_record(WorkspaceRecord(location, kept, added=True))
    return find_workspace(config, registry, kept["id"])


def _used_ids(config: Config, registry: Accounts) -> list[str]:
    """Every id that is, or may be, in use."""
    recorded = [str(record.settings["id"]) for record in registry.records() if "id" in record.settings]
    return [*(one.id for one in effective_workspaces(config, registry)), *recorded]


def change(
    config: Config, registry: Accounts, which: str, changes: Settings, *, by_location: bool = False
) -> WorkspaceConfig:
    """Change its name or settings; None takes the configured value again. The id, and so every address, stays."""
    with registry.transaction():
        one = find_workspace(config, registry, which, by_location=by_location)
        record = _read_records(registry).get(one.location, WorkspaceRecord(one.location))
        known = record.added or one.location in {other.location for other in config.workspaces}
        settings = dict(record.settings)
        if changes.get("name") is not None:
            settings["name"] = _check_name(changes["name"])
            if known:  # only a server knows the id of what its command line names
                settings["id"] = one.id
        elif "name" in changes:
            if record.added:
                raise Invalid("a workspace that was added needs a name", hint="give it another one", what="name")
            settings = {key: value for key, value in settings.items() if key not in ("name", "id")}
        settings = _merge_settings(settings, changes)
        changed = replace(record, settings=settings)
        if "name" in changes:
            others = [other for other in effective_workspaces(config, registry) if other.location != one.location]
            _refuse_clash(_apply_record(_find_configured(config, one.location), changed, config), others)
        if settings or record.added:
            registry.put_record(changed)
        else:
            registry.drop_record(one.location)
    return _find_workspace_at(config, registry, effective_workspaces(config, registry), one.location)


def relocate(config: Config, registry: Accounts, one: WorkspaceConfig, location: str, settings: Settings) -> bool:
    """Apply what the owner set for a workspace to the place it was moved to. An added workspace is served from there
    from now on, under its id; whether it was one."""
    with registry.transaction():
        record = _read_records(registry).get(one.location)
        if record is None:
            return False
        kept = {key: value for key, value in record.settings.items() if key not in BUCKET_SETTINGS}
        given = {key: value for key, value in settings.items() if value is not None}
        added = record.added and one.location not in {other.location for other in config.workspaces}
        registry.put_record(replace(record, location=location, settings=kept | given, added=added))
        if added:
            registry.drop_record(one.location)
    return added


def drop(config: Config, registry: Accounts, which: str, *, by_location: bool = False) -> WorkspaceConfig:
    """Stop serving it. Its notes and their history stay where they are."""
    with registry.transaction():
        one = find_workspace(config, registry, which, by_location=by_location)
        record = _read_records(registry).get(one.location)
        if record is None or not record.added or any(one.location == named.location for named in config.workspaces):
            hint = "take it out there, or start the server without it"
            raise Invalid(f"{one.name!r} is served because the configuration names it", hint=hint, what="workspace")
        registry.drop_record(one.location)
    return one


# ---- checks -------------------------------------------------------------------------------------------


def _merge_settings(
    kept: dict[str, Any], changes: Settings, settable: tuple[str, ...] = CHANGEABLE_SETTINGS
) -> dict[str, Any]:
    """The settings with checked changes; None removes one."""
    merged = dict(kept)
    for key, raw in changes.items():
        if key == "name":
            continue
        if key not in settable:
            raise Invalid(f"{key} cannot be set", hint=suggest(key, settable), what=key)
        if raw is None:
            merged.pop(key, None)
            continue
        setting = next(setting for setting in WORKSPACE_SETTINGS if setting.name == key)
        value = setting.read(raw, key)
        if setting.kind == "number" and not (0 if setting.default is None else 1) <= value <= MAX_JSON_INTEGER:
            raise Invalid(f"{key} cannot be {value}", hint=setting.help, what=key)
        if setting.kind == "list":
            if len(value) > MAX_GLOBS:
                raise Invalid(f"{key} has {len(value)} globs", hint=f"{MAX_GLOBS} at most", what=key)
            if key == "write_under" and not value:
                raise Invalid("write_under names no place", hint="set read_only to take no writes at all", what=key)
            for glob in value:
                compile_glob(glob)
            value = list(value)
        merged[key] = value
    apply_settings(WorkspaceConfig(str(kept.get("name", "")), "", ""), merged)  # raises where they do not fit together
    return merged


def _check_name(raw: str) -> str:
    """The name as it is shown. Invalid where it has invisible characters, or ones that change the writing direction."""
    name = unicodedata.normalize("NFC", raw).strip()
    odd = [letter for letter in name if not letter.isprintable() and letter not in _JOINERS]
    if not name or len(name) > MAX_NAME_CHARS or odd or name[0] == "." or any(mark in name for mark in "/\\="):
        hint = f"use 1 to {MAX_NAME_CHARS} letters, digits and blanks, without / \\ = and without a dot in front"
        raise Invalid(f"{raw[:MAX_NAME_CHARS]!r} is no name for a workspace", hint=hint, what="name")
    return name


def name_key(name: str) -> str:
    """A key that equal names share: without case, width, composition and invisible characters."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKC", name) if letter not in _JOINERS)
    return unicodedata.normalize("NFKC", plain.casefold())


def _find_clash(one: WorkspaceConfig, others: Iterable[WorkspaceConfig]) -> WorkspaceConfig | None:
    """Another workspace that the same id or name could mean."""
    for other in others:
        if other.id in (one.id, one.name) or one.id == other.name or name_key(other.name) == name_key(one.name):
            return other
    return None


def _refuse_clash(one: WorkspaceConfig, others: Iterable[WorkspaceConfig]) -> None:
    if other := _find_clash(one, others):
        words = f"there is a workspace {other.name!r} ({other.id}) already"
        raise Exists(words, hint="choose another name", what="workspace")


def _refuse_place(one: WorkspaceConfig, served: Sequence[WorkspaceConfig], config: Config) -> None:
    """Refuse a folder whose notes are in another workspace, or that our own files are in."""
    for other in served:
        is_same = other.location == one.location
        with suppress(OSError):  # the same folder in another spelling, as on a case-insensitive disk
            is_same = is_same or os.path.samefile(other.location, one.location)
        if is_same:
            raise Exists(f"that folder is served already, as {other.name!r}", hint="name another one", what="location")
    refuse_overlap((place.location, place.name) for place in (*served, one))
    for ours in (config.state, config.cache):
        refuse_inside(ours, one.location, chosen=config["state"] is not None)
