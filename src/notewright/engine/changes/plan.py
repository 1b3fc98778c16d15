"""What a change set is to do: files to put and to drop. And the base of a write: the text its writer was last shown,
which may be older than the current one, so that the write has to be rebased."""

from collections.abc import Mapping
from typing import NamedTuple

from notewright.engine.workspace import Workspace
from notewright.errors import Conflict
from notewright.notes.path import NotePath
from notewright.stores.base import Stored, Version, version_of


class Put(NamedTuple):
    """Write `data` to a file. `old` is the file as it was read for the plan; None: there must not be one.

    `source` names the file it comes from, in a move; without `data` it gets the source's bytes unchanged. `wrote` is
    the version of what its writer wrote, where `data` is that rebased onto a newer text than they were shown.
    """

    path: NotePath
    data: bytes | None
    old: Stored | None
    source: NotePath | None = None
    wrote: Version | None = None


class Drop(NamedTuple):
    """Delete a file."""

    path: NotePath
    old: Stored


class Plan(NamedTuple):
    """The steps of a change set: all of them happen, or none."""

    steps: tuple[Put | Drop, ...]
    summary: str
    emptied: tuple[str, ...] = ()  # folders to remove if they are empty afterwards
    undoes: tuple[str, ...] = ()


class Done(NamedTuple):
    """A committed change set. `id` is None where the files were as planned already."""

    id: str | None
    versions: Mapping[NotePath, Version | None]
    merged: tuple[NotePath, ...] = ()  # saved by another program meanwhile: they hold both texts
    kept: tuple[NotePath, ...] = ()  # another program's bytes were in the way of these and stayed


# ---- writes of older texts ----------------------------------------------------------------------------


def plan_overwrite(ws: Workspace, old: Stored, data: bytes) -> Put:
    """Plan writing `data` over `old` where the writer names no version: rebased from the text they were last shown, if
    the store knows that text."""
    path = old.entry.path
    shown = find_base(ws, old, None)
    if shown is not None:
        return plan_rebase(ws, old, data, shown)
    if (last := _last_shown_version(ws, path)) and last != old.version:
        raise Conflict(f"{path} changed since you read it", hint="read it again", path=path, current=old.version)
    return Put(path, data, old)


def find_base(ws: Workspace, old: Stored, seen: Version | None) -> Stored | None:
    """The older text that a write is a change of: the version the writer names, else the one they were last shown. None
    where that is `old`, or the store does not know it."""
    path = old.entry.path
    base = seen if seen is not None else _last_shown_version(ws, path)
    return ws.store.read_old_version(path, base) if base and not is_same_version(base, old.version) else None


def _last_shown_version(ws: Workspace, path: NotePath) -> Version | None:
    return ws.shown.get(path) if ws.shown is not None else None


def plan_rebase(ws: Workspace, old: Stored, data: bytes, shown: Stored) -> Put:
    """Plan the change from `shown` to `data`, rebased onto the current text `old`, unless that is `data` already."""
    path = old.entry.path
    if data == old.data:
        if ws.shown is not None:
            ws.shown[path] = old.version
        return Put(path, data, old)
    merged = ws.store.rebase(path, data, seen=shown.version, onto=old)
    return Put(path, merged, old, wrote=version_of(data))


def is_same_version(given: Version, current: Version) -> bool:
    """Whether both are one version; agents may give only its first digits."""
    return given == current or (len(given) >= 6 and current.startswith(given.lower()))
