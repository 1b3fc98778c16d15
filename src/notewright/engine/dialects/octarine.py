"""Files as they lie in their folders: listings with what a file system knows, and copies kept beside."""

import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple

from notewright.engine.changes.commit import commit_latest, text_of
from notewright.engine.changes.plan import Plan, Put, replace_shown
from notewright.engine.dialects.copies import BACKUPS, copy_name, sees_dotted
from notewright.engine.find.grep import PATTERN_SECONDS, Find, FoundIn, find_text, places
from notewright.engine.indexing.ready import is_fresh
from notewright.engine.read import created, indexed_file, note_shown, real_path, sees_through_symlinks
from notewright.engine.workspace import Workspace
from notewright.engine.write import admit
from notewright.errors import Conflict, Exists, Forbidden, Invalid, NotFound, TooLarge
from notewright.index.base import Selection
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Stored, version_of

Sees = Callable[[NotePath], bool]


class Replaced(NamedTuple):
    """A file that was written, and the copy of what it held before."""

    created: bool
    size: int
    version: str
    backup: NotePath | None


def is_folder(entry: Entry) -> bool:
    """A folder, or a symlink to one."""
    return entry.kind == "folder" or (entry.mode is not None and stat.S_ISDIR(entry.mode))


def walk(ws: Workspace, folder: str, *, recursive: bool, hidden: bool = False) -> Iterator[Entry]:
    """What is in a folder as its caller may see it; with `hidden` also what begins with a dot.

    A symlink to a folder is entered, each such folder once and never one that we are in. NotFound without such a
    folder, with `outside` where a symlink leads out; a folder below that cannot be read is left closed.
    """
    sees: Sees = partial(sees_dotted, ws) if hidden else ws.access.sees
    left, entered = [(folder, _real(ws, NotePath(folder), hidden, sees))], set[str]()
    while left:
        here, real = left.pop()
        try:
            children = ws.store.children(here, hidden=hidden)
        except (NotFound, Forbidden):
            if here == folder:
                raise
            continue
        for entry in children:
            there = NotePath(entry.real or (f"{real}/{entry.path.name}" if real else entry.path.name))
            if not (sees(entry.path) and (there == entry.path or sees(there))):
                continue
            yield entry if ws.store.has_folders or entry.kind != "folder" else _dated(ws, entry, hidden)
            inner = _way_in(entry, real, entered) if recursive and is_folder(entry) else None
            if inner is not None:
                left.append((entry.path, inner))


def _dated(ws: Workspace, folder: Entry, hidden: bool) -> Entry:
    """A folder of a store that keeps none is as old as the newest file in it that its caller may see."""
    times: list[int] = []
    if not folder.path.is_hidden and is_fresh(ws):
        wanted = Selection(folder.path, notes_only=False, sort="modified", limit=1, visible=ws.access.visibility)
        times = [filed.modified_ns for filed in ws.index.select(wanted)[0]]
    if not times:  # the index knows nothing behind a dot
        inside = walk(ws, folder.path, recursive=True, hidden=hidden)
        times = [entry.modified_ns for entry in inside if not is_folder(entry)]
    return folder._replace(modified_ns=max(times, default=0))


def _real(ws: Workspace, folder: NotePath, hidden: bool, sees: Sees) -> str:
    """The folder itself, should a symlink be asked for; Invalid for a file."""
    if not folder:
        return ""
    if not sees(folder):
        raise NotFound(f"there is no folder {folder}", what="folder", path=folder)
    try:
        found = ws.store.stat(folder, hidden=hidden)
    except NotFound:
        return folder  # listing it says why
    if not is_folder(found):
        raise Invalid(f"{folder} is not a folder", what="folder", path=folder)
    real = found.real or real_path(ws, folder)
    if not sees(NotePath(real)):
        raise NotFound(f"there is no folder {folder}", what="folder", path=folder)
    return real


def _way_in(entry: Entry, real: str, entered: set[str]) -> str | None:
    """The folder that an entry of the folder `real` leads into, None where we are or were there."""
    if entry.kind == "folder":
        return f"{real}/{entry.path.name}" if real else entry.path.name
    if not entry.real or entry.real in entered or f"{real}/".startswith(f"{entry.real}/"):
        return None
    entered.add(entry.real)
    return entry.real


def size_of(ws: Workspace, path: NotePath) -> int:
    """Bytes of a file, without reading it."""
    sees_through_symlinks(ws, path)
    if (known := indexed_file(ws, path)) is not None:
        return known.size
    found = ws.store.stat(path)
    if is_folder(found):
        raise NotFound(f"{path} is a folder", what="note", path=path)
    return found.size


def fetch_copy(ws: Workspace, path: NotePath) -> Stored:
    """The bytes of a file, or of a copy kept in a `.backups` folder. TooLarge beyond what a note may have."""
    dotted = [segment for segment in path.split("/") if segment.startswith(".")]
    if dotted:
        if set(dotted) != {BACKUPS} or path.name.startswith(".") or not sees_dotted(ws, path):
            raise NotFound(f"there is no {path}", what="note", path=path)
        if ws.access.hide and not sees_dotted(ws, real_path(ws, path)):
            raise NotFound(f"there is no {path}", what="note", path=path)
    else:
        sees_through_symlinks(ws, path)
    try:
        size = (indexed_file(ws, path) or ws.store.stat(path, hidden=bool(dotted))).size
    except NotFound:
        size = 0  # `read` knows why
    if size > ws.limits.note_bytes:
        raise TooLarge(f"{path} has {size:,} bytes", size=size, limit=ws.limits.note_bytes, path=path)
    return note_shown(ws, ws.store.read(path, hidden=bool(dotted)))


def replace_with_copy(ws: Workspace, path: NotePath, data: bytes, *, overwrite: bool, make_folders: bool) -> Replaced:
    """Write a file; what it held before is kept beside it in the same change set. NotText if that is no text."""
    admit(ws, path, len(data))
    outcome: list[Replaced] = []

    def make() -> Plan:
        old = _old(ws, path)
        inside = old is None and not make_folders and path.folder
        if inside and _kind(ws, NotePath(path.folder)) not in ("folder", "symlink"):  # the store refuses the latter
            raise NotFound(f"the folder {path.folder} is not there", what="folder", path=path.folder)
        if old is not None and not overwrite:
            raise Exists(f"{path} is there already", hint="allow overwriting", path=path)
        backup = None if old is None else backup_place(ws, path, ws.clock())
        steps = [Put(path, data, None) if old is None else replace_shown(ws, old, data)]
        outcome[:] = [Replaced(old is None, len(steps[0].data or b""), version_of(steps[0].data or b""), backup)]
        if backup is not None and old is not None:
            steps.insert(0, Put(backup, old.data, None))
        return Plan(tuple(steps), f"{'created' if old is None else 'overwrote'} {path}")

    done = commit_latest(ws, make)
    current = done.versions[path]
    if path in done.merged:
        now = ws.store.read(path)
        return outcome[0]._replace(size=len(now.data), version=now.version)
    if current != outcome[0].version:  # the copy was made, and then somebody else's text was there
        raise Conflict(f"{path} changed since it was read", hint="read it again", path=path, current=current)
    return outcome[0]


def _old(ws: Workspace, path: NotePath) -> Stored | None:
    """The file that is there now, if it may be replaced: a text, and no symlink out of the workspace."""
    try:
        old = ws.store.read(path)
    except NotFound as missing:
        if missing.details.get("outside"):
            raise
        if _kind(ws, path) == "folder":
            raise Exists(f"{path} is a folder", hint="choose another name", what="folder", path=path) from None
        return None
    text_of(path, old.data)
    return old


def _kind(ws: Workspace, path: NotePath, hidden: bool = False) -> str | None:
    try:
        return ws.store.stat(path, hidden=hidden).kind
    except NotFound:
        return None


def backup_place(ws: Workspace, path: NotePath, at: float) -> NotePath:
    """Where the copy goes: the first name for this second that is free."""
    numbered = (copy_name(path, at, number) for number in count())
    return next(place for place in numbered if _kind(ws, place, hidden=True) is None)


FoundOrder = Literal["relevance", "modified", "created", "path"]


class RankedNote(NamedTuple):
    """A note that holds what was asked for, and how well, from 0 to 100."""

    ws: Workspace
    found: FoundIn
    score: float
    created: float = 0.0  # seconds since 1970

    @property
    def text(self) -> str:
        """As it was when it was found: the index's text, without a byte order mark."""
        return (self.ws.index.text(self.found.path) or "").removeprefix("\ufeff")


class RankedPage(NamedTuple):
    """One page of what was found, and all of it in numbers. `late`: time ran out before all was looked at."""

    notes: tuple[RankedNote, ...]
    total: int
    matches: int
    late: bool
    asked: Find  # with the deadline that what is left to do shares


def rank_texts(
    workspaces: Sequence[Workspace], asked: Find, order: FoundOrder = "relevance", *, offset: int = 0, limit: int = 100
) -> RankedPage:
    """Notes that hold a text, of all these workspaces together. Invalid for a pattern that is none."""
    asked.check()
    asked = replace(asked, until=time.monotonic() + min(PATTERN_SECONDS, max(ws.limits.seconds for ws in workspaces)))
    answers = [(ws, find_text(ws, asked)) for ws in workspaces]
    ranked = [RankedNote(ws, found, _score(ws, asked, found)) for ws, answer in answers for found in answer.notes]
    ranked.sort(key=_key(order, ranked))
    page = ranked[offset : offset + limit]
    times = _created(page)
    return RankedPage(
        tuple(one._replace(created=times[id(one.ws), one.found.path]) for one in page),
        len(ranked),
        sum(one.found.matches for one in ranked),
        any(answer.late for _, answer in answers),
        asked,
    )


def _score(ws: Workspace, asked: Find, found: FoundIn) -> float:
    """More matches, an earlier first one, and the name count; one decimal, as it is shown and compared."""
    if not found.matches:
        return 0.0
    often, early = 1 - 1 / (1 + found.matches), 1 - found.first / max(found.length, 1)
    name = found.path.name
    in_name = (asked.regex or asked.query.lower() in name.lower()) and next(places(ws, asked, name), None) is not None
    return round(100 * (0.55 * often + 0.30 * early + 0.15 * in_name), 1)


def _key(order: FoundOrder, ranked: Sequence[RankedNote]) -> Callable[[RankedNote], Any]:
    if order == "relevance":
        return lambda one: (-one.score, -one.found.modified_ns, one.found.path)
    if order == "modified":
        return lambda one: (-one.found.modified_ns, one.found.path)
    if order == "path":
        return lambda one: one.found.path
    times = _created(ranked)
    return lambda one: (-times[id(one.ws), one.found.path], one.found.path)


def _created(ranked: Sequence[RankedNote]) -> dict[tuple[int, str], float]:
    """When each was made, asked once of each workspace."""
    found: defaultdict[int, list[FoundIn]] = defaultdict(list)
    for one in ranked:
        found[id(one.ws)].append(one.found)
    workspaces = {id(one.ws): one.ws for one in ranked}
    return {(key, path): at for key, ours in found.items() for path, at in created(workspaces[key], ours).items()}
