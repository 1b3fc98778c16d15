"""How much a workspace may hold. A change set is judged under the store's lock, when everything before it is counted:
so writers at the same time, in several processes too, cannot pass the bound together.

The index knows the totals, of every change set that is done and of what was found outside. Names beginning with a dot
are outside the workspace and its quotas: what is deleted makes room, and copies take none.
"""

import stat
from collections.abc import Iterable, Mapping

from notewright.engine.indexing.ready import is_fresh
from notewright.engine.workspace import Workspace
from notewright.errors import Quota
from notewright.ledger.base import Step


def usage(ws: Workspace) -> tuple[int, int]:
    """(files, bytes) in all, hidden ones included. While the index does not know every file, all are listed."""
    if is_fresh(ws):
        return ws.index.usage()
    sizes = [
        entry.size
        for entry in ws.store.entries()
        if entry.kind in ("file", "placeholder") or (entry.kind == "symlink" and stat.S_ISREG(entry.mode or 0))
    ]
    return len(sizes), sum(sizes)


def is_bounded(ws: Workspace) -> bool:
    """Is there a quota?"""
    return ws.limits.quota_files is not None or ws.limits.quota_bytes is not None


def room(ws: Workspace) -> dict[str, int | None]:
    """How much more the workspace may hold; None without end."""
    limits = ws.limits
    if not is_bounded(ws):
        return {"files": None, "bytes": None}
    files, size = usage(ws)
    return {
        "files": None if limits.quota_files is None else limits.quota_files - files,
        "bytes": None if limits.quota_bytes is None else limits.quota_bytes - size,
    }


def refuse_over_quota(ws: Workspace, steps: Iterable[Step], known: Mapping[str, bytes]) -> None:
    """Quota if the workspace would hold more than it may after these steps. `known` are their bytes, old and new.

    Under the store's lock. What does not grow is let through, however full it is.
    """
    limits = ws.limits
    if not is_bounded(ws):
        return
    more_files, more_bytes = _growth(steps, known)
    if more_files <= 0 and more_bytes <= 0:
        return
    files, size = usage(ws)
    for used, more, most, unit in (
        (files, more_files, limits.quota_files, "files"),
        (size, more_bytes, limits.quota_bytes, "bytes"),
    ):
        if most is not None and more > 0 and used + more > most:
            raise _full(ws, used + more, most, unit)


def _growth(steps: Iterable[Step], known: Mapping[str, bytes]) -> tuple[int, int]:
    files = size = 0
    for step in steps:
        if not step.path.is_hidden:
            files += (step.after is not None) - (step.before is not None)
            size += len(known[step.after] if step.after else b"") - len(known[step.before] if step.before else b"")
    return files, size


def _full(ws: Workspace, used: int, most: int, unit: str) -> Quota:
    """Who may not see all of it is not told how much there is."""
    whole = f"the workspace would hold {used:,} {unit}; the most is {most:,}"
    words = f"the workspace is full; the most is {most:,} {unit}" if ws.access.hide else whole
    return Quota(words, hint="delete something first", limit=most, unit=unit)


def quota_share(ws: Workspace) -> float | None:
    """How full the workspace is, from 0 to 1, by whichever quota is nearer; None where there is none."""
    limits = ws.limits
    if not is_bounded(ws):
        return None
    files, size = usage(ws)
    return max(used / most for used, most in ((files, limits.quota_files), (size, limits.quota_bytes)) if most)
