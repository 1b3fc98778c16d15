"""All the workspaces one client may use."""

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
from contextlib import nullcontext
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
from notewright.stores.subfolder import folder_beneath, segments_of

log = logging.getLogger(__name__)
PREFIX = "nw_"  # of a token
LAST_USE_SECONDS = 300.0  # between two notes of a token's last use
LONGEST_NAME = 100  # characters
MOST_GLOBS = 100
MAX_JSON_INTEGER = 1 << 53  # what every reader of JSON can count to
AGAIN_SECONDS = 5.0  # between two attempts to open what could not be: a bucket may be away for a while
_JOINERS = "\u200c\u200d"  # letters of some scripts and pictures need them
Settings = Mapping[str, Any]
W = TypeVar("W", Workspace, WorkspaceConfig)


def by_id_or_name(among: Iterable[W], which: str) -> W | None:
    """The one workspace that a word means."""
    return next((one for one in among if which in (one.id, one.name)), None)


class Library:
    """The workspaces a client may use, in the order they were named. `source` gives those there are now."""

    def __init__(self, source: Callable[[], Sequence[Workspace]]) -> None:
        self.workspaces = source

    @staticmethod
    def of(workspaces: Sequence[Workspace]) -> "Library":
        return Library(lambda: workspaces)

    def close(self) -> None:
        """Let go of what it holds, if it holds anything."""

    @property
    def default(self) -> Workspace:
        """The first named."""
        if not (there := self.workspaces()):
            raise NotFound("there is no workspace you may use", hint="ask the owner", what="workspace", workspace="")
        return there[0]

    def named(self, which: str) -> Workspace:
        """By id or display name; NotFound also for one the client may not see."""
        there = self.workspaces()
        found = by_id_or_name(there, which)
        if found is not None:
            return found
        names = [workspace.name for workspace in there]
        near = difflib.get_close_matches(which, names, n=3) or names[:3]
        hint = f"there is {', '.join(near)}" if near else "ask the owner"
        raise NotFound(f"there is no workspace {which!r}", hint=hint, what="workspace", workspace=which, nearest=near)


class LateLibrary(Library):
    """The library that `opened` gives, opened in a thread of its own from `begin` on, or when somebody first asks.

    Calls block until it is open; if opening fails, every call does, until it is tried again. `beginnings` are called at
    once with each of its workspaces."""

    def __init__(self, opened: Callable[[], Library], beginnings: Sequence[Callable[[Workspace], None]] = ()) -> None:
        super().__init__(lambda: self.begin().result().workspaces())
        self._opened = opened
        self._beginnings = beginnings
        self._opening: Future[Library] | None = None
        self._failed = 0.0  # when it last did, monotonic
        self._lock = threading.Lock()

    def begin(self) -> Future[Library]:
        with self._lock:
            failed = self._opening is not None and self._opening.done() and self._opening.exception() is not None
            if self._opening is None or (failed and time.monotonic() - self._failed > AGAIN_SECONDS):
                self._opening = Future()
                threading.Thread(target=self._open, args=[self._opening], name="open", daemon=True).start()
            return self._opening

    def _open(self, opening: Future[Library]) -> None:
        try:
            library = self._opened()
        except BaseException as error:
            self._failed = time.monotonic()
            opening.set_exception(error)
            return
        self.workspaces = library.workspaces  # every call asks for them
        opening.set_result(library)
        try:
            for begin in self._beginnings:
                for ws in library.workspaces():
                    begin(ws)
        except Exception:  # a surface that cannot begin now will when it is called
            log.debug("a surface could not begin", exc_info=True)

    def close(self) -> None:
        """Closed if it was ever opened; what is not open by now is left to the end of the process."""
        try:
            if self._opening is not None and self._opening.exception(timeout=1) is None:
                self._opening.result().close()
        except TimeoutError:
            log.warning("the library was not open yet when it was to be closed")


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

    def library(self, library: "Library") -> "Library":
        """The library as this caller may use it: a workspace they may not see is one that is not there. Made for one
        request, it holds what there was when it was first asked."""

        @functools.cache
        def allowed() -> Sequence[Workspace]:
            own = tuple(self.narrow(ws) for ws in library.workspaces() if self.sees(ws.id))
            return tuple(
                ws if ws.user_quota is None else replace(ws, user_quota=replace(ws.user_quota, workspaces=lambda: own))
                for ws in own
            )

        return Library(allowed)

    def narrow(self, ws: Workspace) -> Workspace:
        """The workspace under both sets of rules: its own and this caller's."""
        grant = self.grant
        if not (grant.read_only or grant.hide or grant.write_under != ("**",)):
            return ws
        return replace(ws, access=ws.access.narrowed(Access(grant.read_only, grant.hide, grant.write_under)))


def new_token(registry: Accounts, name: str, grant: Grant, *, now: float, expires: float | None = None) -> str:
    """A new access token. It is told once: only its hash is kept. Invalid for a name or pattern that is none."""
    if not re.fullmatch(r"[\w][\w .@+-]{0,63}", name):
        hint = "use letters, digits, spaces and . @ + - _, at most 64"
        raise Invalid(f"{name!r} is no name for a token", hint=hint, what="name")
    for glob in (*grant.hide, *grant.write_under):
        compile_glob(glob)  # refused now, by whom made it, and not at every request
    if expires is not None and expires <= now:
        raise Invalid("the token would have expired already", hint="name a time to come, as in 90d", what="expires")
    secret = PREFIX + secrets.token_urlsafe(32)
    registry.add_token(Token(name, digest_of(secret), grant, now, expires))
    return secret


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def admit(registry: Accounts, secret: str, now: float) -> Token | None:
    """The token this is, if it is one of ours and still good."""
    return admit_digest(registry, digest_of(secret), now)


def admit_digest(registry: Accounts, digest: str, now: float) -> Token | None:
    found = registry.token(digest)
    if found is None or not hmac.compare_digest(found.digest, digest) or not found.good(now):
        return None
    if found.used is None or now - found.used > LAST_USE_SECONDS:
        registry.used(digest, now)
        return replace(found, used=now)
    return found


# ---- what holds ---------------------------------------------------------------------------------------


def effective_workspaces(
    config: Config, registry: Accounts | None, *, added: bool = True
) -> tuple[WorkspaceConfig, ...]:
    """The workspaces of a configuration with what their owner changed since, and those the owner added.

    The configuration may have changed too: where a name given here is borne by another workspace by now, the one of
    the configuration holds, and what was added and cannot stand beside the others is not served.
    """
    if registry is None:
        return config.workspaces
    records = _records(registry)
    served: list[WorkspaceConfig] = []
    for number, one in enumerate(config.workspaces):
        changed = _changed(one, records.get(one.location), config)
        if _clash(changed, [*served, *config.workspaces[number + 1 :]]):
            _warn(f"the workspace {one.name} cannot be called {changed.name}: that is another one's name")
            changed = replace(changed, name=one.name, id=one.id)
        served.append(changed)
    for record in records.values() if added else ():
        if not record.added or any(record.location == one.location for one in config.workspaces):
            continue
        try:
            changed = _changed(WorkspaceConfig("", "", record.location), record, config)
            if other := _clash(changed, served):
                raise Exists(f"another workspace is called {other.name}")
            _refuse_place(changed, served, config)
            served.append(changed)
        except Problem as problem:
            _warn(f"the workspace in {record.location} is not served: {problem}")
    return tuple(served)


def workspace_record(one: WorkspaceConfig, registry: Accounts) -> dict[str, Any]:
    """As it is told to programs of the owner's: where it is, what is set, and what of that the owner changed."""
    record = _records(registry).get(one.location, WorkspaceRecord(one.location))
    told = {"id": one.id, "name": one.name, "location": one.location, "added": record.added}
    told |= {key: getattr(one, key) for key in CHANGEABLE_SETTINGS}
    return told | {"changed": sorted(set(record.settings) - {"id"})}


def _records(registry: Accounts) -> dict[str, WorkspaceRecord]:
    return {record.location: record for record in registry.records()}


@functools.lru_cache(maxsize=256)
def _warn(words: str) -> None:
    """Once: this is looked at again and again."""
    log.warning("%s", words)


def _changed(asked: WorkspaceConfig, record: WorkspaceRecord | None, config: Config) -> WorkspaceConfig:
    if record is None:
        return asked
    changed = apply_settings(asked, record.settings)
    return replace(changed, read_only=changed.read_only or config["read_only"])


def find_workspace(config: Config, registry: Accounts, which: str, *, by_location: bool = False) -> WorkspaceConfig:
    """The workspace of that id or name; on the owner's own command line also that in a folder, served or not."""
    served = effective_workspaces(config, registry)
    if one := by_id_or_name(served, which):
        return one
    if by_location and (os.sep in which or os.path.isdir(which)):
        return _in_folder(config, registry, served, resolve_location(which, Path.cwd()))
    hint = suggest(which, [one.name for one in served])
    if by_location:
        hint += "; one that only a server's command line names is named here by its folder"
    raise NotFound(f"there is no workspace {which!r}", hint=hint, what="workspace", workspace=which)


def _in_folder(config: Config, registry: Accounts, served: Sequence[WorkspaceConfig], location: str) -> WorkspaceConfig:
    """A server may have been told of it on its command line, which we cannot know."""
    there = next((one for one in served if one.location == location), None)
    return there or _changed(_unchanged(config, location), _records(registry).get(location), config)


def _unchanged(config: Config, location: str) -> WorkspaceConfig:
    """What the configuration says of a folder, or what a server says that was told of nothing but the folder."""
    name = location.rpartition("/")[2] or "notes"
    told = (one for one in config.workspaces if one.location == location)
    return next(told, WorkspaceConfig(name, workspace_id(name), location))


# ---- changing it --------------------------------------------------------------------------------------


def add_folder(
    config: Config, registry: Accounts, name: str, location: str, settings: Settings | None = None
) -> WorkspaceConfig:
    """Serve a folder that is there, or a bucket, from now on."""
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
    """Serve a folder or prefix beneath `workspaces_root`, which is made if it is not there: all that comes over a
    network may name. Without a location it is called like the workspace's id."""
    root = _root(config)
    if location is None:
        location = workspace_id(_good_name(name), _ids(config, registry))
    if not (is_bucket(root) and location.startswith(root + "/")):
        refuse_not_yet(location)
    segments = segments_of(location, root)
    with nullcontext() if is_bucket(root) else folder_beneath(root, segments):
        return _add(config, registry, name, "/".join((root, *segments)), settings or {})


def _root(config: Config) -> str:
    root = config["workspaces_root"]
    if root is None:
        hint = "use notewright workspace add on the machine itself, or set workspaces_root to a folder for them"
        raise Invalid("this server makes no workspaces", hint=hint, what="workspaces_root")
    if is_bucket(root):
        return str(root)
    place = os.path.realpath(Path(root).expanduser())
    if not os.path.isdir(place):
        hint = "make it, or set workspaces_root to a folder that is there"
        raise Invalid("the folder of workspaces_root is not there", hint=hint, what="workspaces_root")
    return place


def _add(
    config: Config,
    registry: Accounts,
    name: str,
    location: str,
    settings: Settings,
    settable: tuple[str, ...] = CHANGEABLE_SETTINGS,
) -> WorkspaceConfig:
    """Record a workspace that is not served yet. What was set for its folder before still holds."""
    with registry.together():
        served = effective_workspaces(config, registry)
        kept = dict(_records(registry).get(location, WorkspaceRecord(location)).settings)
        kept["name"] = _good_name(name)
        kept.setdefault("id", workspace_id(kept["name"], _ids(config, registry)))
        kept = _merged(kept, settings, settable)
        asked = apply_settings(WorkspaceConfig("", "", location), kept)
        _refuse_place(asked, served, config)
        _refuse_clash(asked, served)
        registry.put_record(WorkspaceRecord(location, kept, added=True))
    return find_workspace(config, registry, kept["id"])


def _ids(config: Config, registry: Accounts) -> list[str]:
    """Every id that is, or may be, in use."""
    recorded = [str(record.settings["id"]) for record in registry.records() if "id" in record.settings]
    return [*(one.id for one in effective_workspaces(config, registry)), *recorded]


def change(
    config: Config, registry: Accounts, which: str, changes: Settings, *, by_location: bool = False
) -> WorkspaceConfig:
    """Another name, or other settings: None is what the configuration says. The id, and so every address, stays."""
    with registry.together():
        one = find_workspace(config, registry, which, by_location=by_location)
        record = _records(registry).get(one.location, WorkspaceRecord(one.location))
        known = record.added or one.location in {told.location for told in config.workspaces}
        settings = dict(record.settings)
        if changes.get("name") is not None:
            settings["name"] = _good_name(changes["name"])
            if known:  # only a server knows the id of what its command line names
                settings["id"] = one.id
        elif "name" in changes:
            if record.added:
                raise Invalid("a workspace that was added needs a name", hint="give it another one", what="name")
            settings = {key: value for key, value in settings.items() if key not in ("name", "id")}
        settings = _merged(settings, changes)
        changed = replace(record, settings=settings)
        if "name" in changes:
            others = [other for other in effective_workspaces(config, registry) if other.location != one.location]
            _refuse_clash(_changed(_unchanged(config, one.location), changed, config), others)
        if settings or record.added:
            registry.put_record(changed)
        else:
            registry.drop_record(one.location)
    return _in_folder(config, registry, effective_workspaces(config, registry), one.location)


def relocate(config: Config, registry: Accounts, one: WorkspaceConfig, location: str, settings: Settings) -> bool:
    """What the owner set for a workspace holds in the place it was moved to. One that was added is served from there
    from now on, under its id: whether it was one."""
    with registry.together():
        record = _records(registry).get(one.location)
        if record is None:
            return False
        kept = {key: value for key, value in record.settings.items() if key not in BUCKET_SETTINGS}
        given = {key: value for key, value in settings.items() if value is not None}
        added = record.added and one.location not in {told.location for told in config.workspaces}
        registry.put_record(replace(record, location=location, settings=kept | given, added=added))
        if added:
            registry.drop_record(one.location)
    return added


def drop(config: Config, registry: Accounts, which: str, *, by_location: bool = False) -> WorkspaceConfig:
    """Serve it no longer. Its notes stay where they are, and so does their history."""
    with registry.together():
        one = find_workspace(config, registry, which, by_location=by_location)
        record = _records(registry).get(one.location)
        if record is None or not record.added or any(one.location == named.location for named in config.workspaces):
            hint = "take it out there, or start the server without it"
            raise Invalid(f"{one.name!r} is served because the configuration names it", hint=hint, what="workspace")
        registry.drop_record(one.location)
    return one


# ---- what is refused ----------------------------------------------------------------------------------


def _merged(kept: dict[str, Any], changes: Settings, settable: tuple[str, ...] = CHANGEABLE_SETTINGS) -> dict[str, Any]:
    """Settings with some changed; None takes one back."""
    merged = dict(kept)
    for key, raw in changes.items():
        if key == "name":
            continue
        if key not in settable:
            raise Invalid(f"{key} cannot be set", hint=suggest(key, settable), what=key)
        if raw is None:
            merged.pop(key, None)
        else:
            merged[key] = _good_value(key, raw)
    apply_settings(WorkspaceConfig(str(kept.get("name", "")), "", ""), merged)
    return merged


def _good_value(key: str, raw: Any) -> Any:
    setting = next(setting for setting in WORKSPACE_SETTINGS if setting.name == key)
    value = setting.read(raw, key)
    if setting.kind == "number" and not (0 if setting.default is None else 1) <= value <= MAX_JSON_INTEGER:
        raise Invalid(f"{key} cannot be {value}", hint=setting.help, what=key)
    if setting.kind != "list":
        return value
    if len(value) > MOST_GLOBS:
        raise Invalid(f"{key} has {len(value)} globs", hint=f"{MOST_GLOBS} at most", what=key)
    if key == "write_under" and not value:
        raise Invalid("write_under names no place", hint="set read_only to take no writes at all", what=key)
    for glob in value:
        compile_glob(glob)
    return list(value)


def _good_name(raw: str) -> str:
    """A name as it is shown: what cannot be seen, or turns around what stands beside it, is not in it."""
    name = unicodedata.normalize("NFC", raw).strip()
    odd = [letter for letter in name if not letter.isprintable() and letter not in _JOINERS]
    if not name or len(name) > LONGEST_NAME or odd or name[0] == "." or any(mark in name for mark in "/\\="):
        hint = f"use 1 to {LONGEST_NAME} letters, digits and blanks, without / \\ = and without a dot in front"
        raise Invalid(f"{raw[:LONGEST_NAME]!r} is no name for a workspace", hint=hint, what="name")
    return name


def name_key(name: str) -> str:
    """What two names share that count as the same: case, width, composition and what cannot be seen are left out."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKC", name) if letter not in _JOINERS)
    return unicodedata.normalize("NFKC", plain.casefold())


def _clash(one: WorkspaceConfig, others: Iterable[WorkspaceConfig]) -> WorkspaceConfig | None:
    """Another workspace that could be meant by the same word."""
    for other in others:
        if other.id in (one.id, one.name) or one.id == other.name or name_key(other.name) == name_key(one.name):
            return other
    return None


def _refuse_clash(one: WorkspaceConfig, others: Iterable[WorkspaceConfig]) -> None:
    if other := _clash(one, others):
        said = f"there is a workspace {other.name!r} ({other.id}) already"
        raise Exists(said, hint="choose another name", what="workspace")


def _refuse_place(one: WorkspaceConfig, served: Sequence[WorkspaceConfig], config: Config) -> None:
    """Its notes are in no other workspace, and nothing of ours is among them."""
    for other in served:
        if other.location == one.location or _same_folder(other.location, one.location):
            raise Exists(f"that folder is served already, as {other.name!r}", hint="name another one", what="location")
    refuse_overlap((place.location, place.name) for place in (*served, one))
    for ours in (config.state, config.cache):
        refuse_inside(ours, one.location, chosen=config["state"] is not None)


def _same_folder(one: str, other: str) -> bool:
    """Two ways to one folder, as on a disk that does not tell capitals from small letters."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
