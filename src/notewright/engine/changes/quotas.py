"""Quotas of one workspace, and of all workspaces of one user. A change set is checked under the store's lock, when
everything before it is counted: so concurrent writers, in several processes too, cannot exceed a quota together. Where
users have a quota, one more lock for each of their workspaces does the same for all of these.

The index has the totals, of all committed change sets and of outside changes it found. Names beginning with a dot are
outside the workspace and its quotas: deleting a note frees space, and backup copies take none.
"""

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from notewright.engine.indexing.ready import is_fresh
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Quota, Unavailable
from notewright.ledger.base import Step
from notewright.stores.base import is_file

LOCK_SECONDS = 10.0  # to wait for writers in other workspaces of the same user
PAUSE_SECONDS = 0.01  # at most, between two tries


def measure_usage(ws: Workspace) -> tuple[int, int]:
    """(files, bytes) in all, hidden ones included: from the index, or from a listing while it is not complete."""
    if is_fresh(ws):
        return (ws.index.total("files"), ws.index.total("bytes"))
    sizes = [entry.size for entry in ws.store.entries() if is_file(entry)]
    return len(sizes), sum(sizes)


class _Bound(NamedTuple):
    used: int
    most: int
    unit: str
    what: str  # what the quota is of, in words
    may_tell: bool  # whether the caller may know how much is used: nothing is hidden from them


def is_bounded(ws: Workspace) -> bool:
    """Whether there is a quota."""
    limits = ws.limits
    return limits.quota_files is not None or limits.quota_bytes is not None or ws.user_quota is not None


def lock_user_quota(ws: Workspace) -> AbstractContextManager[object]:
    """Lock out other writers with a quota from all workspaces of this user. Taken under the store's lock; no store's
    lock is waited for while it is held."""
    return nullcontext() if ws.user_quota is None else _lock_workspaces(_counted_workspaces(ws))


@contextmanager
def _lock_workspaces(workspaces: list[Workspace]) -> Iterator[None]:
    with ExitStack() as locks:
        for ws in sorted(workspaces, key=lambda each: each.store.identity):
            until = time.monotonic() + LOCK_SECONDS
            while (lock := ws.locks.try_lock("quota")) is None:
                if time.monotonic() > until:
                    raise Busy("another change is being made", hint="try again in a moment")
                time.sleep(random.uniform(0, PAUSE_SECONDS))
            locks.callback(lock.release)
        yield


def _counted_workspaces(ws: Workspace) -> list[Workspace]:
    """The workspaces that count towards the user's quota; a read-only one belongs to another user."""
    return [] if ws.user_quota is None else [each for each in ws.user_quota.workspaces() if not each.access.read_only]


def _find_bounds(ws: Workspace) -> list[_Bound]:
    """The quotas of this workspace and their use now. A workspace of the user that cannot be reached counts with the
    totals of its index: it does not keep the user from writing elsewhere."""
    limits, quota, found = ws.limits, ws.user_quota, list[_Bound]()
    used = {ws.store.identity: measure_usage(ws)} if is_bounded(ws) else {}
    for most, unit, place in ((limits.quota_files, "files", 0), (limits.quota_bytes, "bytes", 1)):
        if most is not None:
            found.append(_Bound(used[ws.store.identity][place], most, unit, "the workspace", not ws.access.hide))
    if quota is None:
        return found
    own, counted = _counted_workspaces(ws), list[tuple[int, int]]()
    for each in own:
        try:
            counted.append(used.get(each.store.identity) or measure_usage(each))
        except Unavailable:
            counted.append((each.index.total("files"), each.index.total("bytes")))
    may_tell = not any(each.access.hide for each in own)
    for most, unit, place in ((quota.files, "files", 0), (quota.bytes, "bytes", 1)):
        if most is not None:
            found.append(_Bound(sum(usage[place] for usage in counted), most, unit, "all your workspaces", may_tell))
    return found


def find_remaining_quota(ws: Workspace) -> dict[str, int | None]:
    """How many files and bytes the workspace may still grow by; None: no quota."""
    left: dict[str, int | None] = {"files": None, "bytes": None}
    for bound in _find_bounds(ws):
        so_far = left[bound.unit]
        more = bound.most - bound.used
        left[bound.unit] = more if so_far is None else min(so_far, more)
    return left


def refuse_over_quota(ws: Workspace, steps: Iterable[Step], known: Mapping[str, bytes]) -> None:
    """Raise Quota if these steps would exceed a quota. `known` has their bytes, old and new.

    Called under the store's lock. A change set that adds nothing is allowed, however full the workspace is.
    """
    if not is_bounded(ws):
        return
    growth = {"files": 0, "bytes": 0}
    for step in steps:
        if not step.path.is_hidden:
            before, after = (known[version] if version else None for version in (step.before, step.after))
            growth["files"] += (after is not None) - (before is not None)
            growth["bytes"] += len(after or b"") - len(before or b"")
    if max(growth.values()) <= 0:
        return
    for bound in _find_bounds(ws):
        more = growth[bound.unit]
        if more > 0 and bound.used + more > bound.most:
            what, most, unit = bound.what, bound.most, bound.unit
            together = "together " if what == "all your workspaces" else ""
            message = f"{what} {together}would hold {bound.used + more:,} {unit}; the most is {most:,}"
            if not bound.may_tell:
                message = f"{what} {'are' if together else 'is'} full; the most is {most:,} {unit}"
            raise Quota(message, hint="delete something first", limit=most, unit=unit)


def find_quota_share(ws: Workspace) -> float | None:
    """How full the fullest quota of the workspace is, from 0 to 1; None without a quota."""
    return max((bound.used / bound.most for bound in _find_bounds(ws) if bound.most), default=None)
