"""How much a workspace may hold, and how much all workspaces of one user. A change set is judged under the store's
lock, when everything before it is counted: so writers at the same time, in several processes too, cannot pass the bound
together. Where users have a bound, one more lock for each of their workspaces does the same for all of these.

The index knows the totals, of every change set that is done and of what was found outside. Names beginning with a dot
are outside the workspace and its quotas: what is deleted makes room, and copies take none.
"""

import random
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from notewright.engine.indexing.ready import is_fresh
from notewright.engine.workspace import Workspace
from notewright.errors import Busy, Quota, Unavailable
from notewright.ledger.base import Step

LOCK_SECONDS = 10.0  # that others of the same user's workspaces are waited for
PAUSE_SECONDS = 0.01  # at most, between two tries


def usage(ws: Workspace) -> tuple[int, int]:
    """(files, bytes) in all, hidden ones included. While the index does not know every file, all are listed."""
    if is_fresh(ws):
        return (ws.index.total("files"), ws.index.total("bytes"))
    sizes = [
        entry.size
        for entry in ws.store.entries()
        if entry.kind in ("file", "placeholder") or (entry.kind == "symlink" and stat.S_ISREG(entry.mode or 0))
    ]
    return len(sizes), sum(sizes)


class _Bound(NamedTuple):
    used: int
    most: int
    unit: str
    what: str  # that is bounded, in words
    may_tell: bool  # the caller may know how much is used: nothing of it is hidden


def is_bounded(ws: Workspace) -> bool:
    """Is there a quota?"""
    limits = ws.limits
    return limits.quota_files is not None or limits.quota_bytes is not None or ws.user_quota is not None


def lock_user_quota(ws: Workspace) -> AbstractContextManager[object]:
    """Keep others who have a bound from adding to the workspaces of this user. Taken under the store's lock; no store's
    lock is waited for inside."""
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
    """The workspaces that count for the user's quota: one that can only be read is somebody else's."""
    return [] if ws.user_quota is None else [one for one in ws.user_quota.workspaces() if not one.access.read_only]


def _bounds(ws: Workspace) -> list[_Bound]:
    """Everything that bounds this workspace now. One of the user's that cannot be reached counts as its index says: it
    keeps nobody from writing elsewhere."""
    limits, quota, found = ws.limits, ws.user_quota, list[_Bound]()
    used = {ws.store.identity: usage(ws)} if is_bounded(ws) else {}
    for most, unit, place in ((limits.quota_files, "files", 0), (limits.quota_bytes, "bytes", 1)):
        if most is not None:
            found.append(_Bound(used[ws.store.identity][place], most, unit, "the workspace", not ws.access.hide))
    if quota is None:
        return found
    own, counted = _counted_workspaces(ws), list[tuple[int, int]]()
    for one in own:
        try:
            counted.append(used.get(one.store.identity) or usage(one))
        except Unavailable:
            counted.append((one.index.total("files"), one.index.total("bytes")))
    may_tell = not any(one.access.hide for one in own)
    for most, unit, place in ((quota.files, "files", 0), (quota.bytes, "bytes", 1)):
        if most is not None:
            found.append(_Bound(sum(each[place] for each in counted), most, unit, "all your workspaces", may_tell))
    return found


def room(ws: Workspace) -> dict[str, int | None]:
    """How much more the workspace may hold; None without end."""
    left: dict[str, int | None] = {"files": None, "bytes": None}
    for bound in _bounds(ws):
        so_far = left[bound.unit]
        more = bound.most - bound.used
        left[bound.unit] = more if so_far is None else min(so_far, more)
    return left


def refuse_over_quota(ws: Workspace, steps: Iterable[Step], known: Mapping[str, bytes]) -> None:
    """Quota if there would be more than there may be after these steps. `known` are their bytes, old and new.

    Under the store's lock. What does not grow is let through, however full it is.
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
    for bound in _bounds(ws):
        more = growth[bound.unit]
        if more > 0 and bound.used + more > bound.most:
            what, most, unit = bound.what, bound.most, bound.unit
            together = "together " if what == "all your workspaces" else ""
            message = f"{what} {together}would hold {bound.used + more:,} {unit}; the most is {most:,}"
            if not bound.may_tell:
                message = f"{what} {'are' if together else 'is'} full; the most is {most:,} {unit}"
            raise Quota(message, hint="delete something first", limit=most, unit=unit)


def find_quota_share(ws: Workspace) -> float | None:
    """How full it is, from 0 to 1, by whichever quota is nearest; None where there is none."""
    return max((bound.used / bound.most for bound in _bounds(ws) if bound.most), default=None)
