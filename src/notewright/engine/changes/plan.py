"""What a change set is to do: files to put and to drop. And what a write is a change of: the text its writer was shown,
which may be older than the one that is there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from notewright.engine.workspace import Workspace
from notewright.errors import Conflict
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version, version_of


@dataclass(frozen=True, slots=True)
class Put:
    """A file is to hold `data`. `old` is the file as it was read for the plan, None where nothing may be.

    `source` names the file it comes from, in a move; without `data` it gets the source's bytes unchanged. `wrote` is
    the version of what its writer wrote, where `data` is that carried over to a newer text than they were shown.
    """

    path: NotePath
    data: bytes | None
    old: Stored | None
    source: NotePath | None = None
    wrote: Version | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A file is to go."""

    path: NotePath
    old: Stored


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen, all of it or none."""

    steps: tuple[Put | Drop, ...]
    summary: str
    emptied: tuple[str, ...] = ()  # folders to remove if they are empty afterwards
    undoes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """A change set that happened. `id` is None where everything was as planned already."""

    id: str | None
    versions: Mapping[NotePath, Version | None] = field(default_factory=dict)
    merged: tuple[NotePath, ...] = ()  # somebody else saved these meanwhile: both texts are in them
    kept: tuple[NotePath, ...] = ()  # somebody else's bytes were in the way of these and stayed


# ---- writes of older texts ----------------------------------------------------------------------------


def plan_overwrite(ws: Workspace, old: Stored, data: bytes) -> Put:
    """Put `data`, whose writer names no version, where `old` is: as a change of the text they were last shown, where
    the store knows that text."""
    path = old.entry.path
    shown = recall(ws, old, None)
    if shown is not None:
        return plan_rebase(ws, old, data, shown)
    if (last := _last_shown(ws, path)) and last != old.version:
        raise Conflict(f"{path} changed since you read it", hint="read it again", path=path, current=old.version)
    return Put(path, data, old)


def recall(ws: Workspace, old: Stored, seen: Version | None) -> Stored | None:
    """The older text that somebody writes a change of: of the version they name, else the one they were last shown;
    None where that is `old`, or the store does not know it."""
    path = old.entry.path
    base = seen if seen is not None else _last_shown(ws, path)
    return ws.store.read_old_version(path, base) if base and not is_same(base, old.version) else None


def _last_shown(ws: Workspace, path: NotePath) -> Version | None:
    return ws.shown.get(path) if ws.shown is not None else None


def plan_rebase(ws: Workspace, old: Stored, data: bytes, shown: Stored) -> Put:
    """The change that made `data` of what was shown, made to what is there now, unless that is there already."""
    path = old.entry.path
    if data == old.data:
        if ws.shown is not None:
            ws.shown[path] = old.version
        return Put(path, data, old)
    both = ws.store.rebase(path, data, seen=shown.version, onto=old)
    return Put(path, both, old, wrote=version_of(data))


def is_same(given: Version, current: Version) -> bool:
    """Agents name a version by its first digits."""
    return given == current or (len(given) >= 6 and current.startswith(given.lower()))
