"""What only Octarine's tools need: listings of folders as on disk, writes that keep a copy, and ranked text search."""

import calendar
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple

from notewright.engine.changes.commit import commit_latest, text_of
from notewright.engine.changes.plan import Plan, Put, plan_overwrite
from notewright.engine.find.grep import PATTERN_SECONDS, Find, FoundIn, find_places, find_text
from notewright.engine.indexing.ready import is_fresh
from notewright.engine.read import find_creation_times, indexed_file, remember_shown, require_visible, resolve_symlinks
from notewright.engine.workspace import Workspace
from notewright.engine.write import TRASH, admit
from notewright.errors import Conflict, Exists, Forbidden, Invalid, NotFound, TooLarge
from notewright.index.base import Selection
from notewright.ledger.base import ChangeQuery
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Stored, stat_or_none, version_of

BACKUPS = ".backups"
MAX_NAME_BYTES = 255  # of one segment, on every file system that matters
_CUT_BYTES = MAX_NAME_BYTES - 4  # a longer name may have lost the end of its stem: it could be of several notes
_TIME = "%Y-%m-%dT%H-%M-%S"
_COPY = re.compile(r"(?P<stem>.+)\.(?P<at>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-\d+)?(?P<ending>\.[^.]+)?", re.DOTALL)
_MAX_CHANGES = 20  # of one file in the trash, among which the last put it there
Sees = Callable[[NotePath], bool]


class ReplacedFile(NamedTuple):
    """A file that was written, and the copy of what it held before."""

    created: bool
    size: int
    version: str
    backup: NotePath | None


def is_folder(entry: Entry) -> bool:
    """Whether it is a folder, or a symlink to one."""
    return entry.kind == "folder" or (entry.mode is not None and stat.S_ISDIR(entry.mode))


def walk(ws: Workspace, folder: str, *, recursive: bool, hidden: bool = False) -> Iterator[Entry]:
    """The entries of a folder that the caller may see; with `hidden` also names that begin with a dot.

    A symlink to a folder is followed, each such folder once and never into a folder above it. NotFound without such a
    folder, with `outside` where a symlink leads out; a folder below that cannot be read is skipped.
    """
    sees: Sees = partial(sees_dotted, ws) if hidden else ws.access.sees
    left, followed = [(folder, _resolve_folder(ws, NotePath(folder), hidden, sees))], set[str]()
    while left:
        parent, real = left.pop()
        try:
            children = ws.store.children(parent, hidden=hidden)
        except (NotFound, Forbidden):
            if parent == folder:
                raise
            continue
        for entry in children:
            target = NotePath(entry.real or (f"{real}/{entry.path.name}" if real else entry.path.name))
            if not (sees(entry.path) and (target == entry.path or sees(target))):
                continue
            yield entry if ws.store.has_folders or entry.kind != "folder" else _add_folder_time(ws, entry, hidden)
            inner = _target_folder(entry, real, followed) if recursive and is_folder(entry) else None
            if inner is not None:
                left.append((entry.path, inner))


def _add_folder_time(ws: Workspace, folder: Entry, hidden: bool) -> Entry:
    """A folder of a bucket, dated by the newest file in it that the caller may see."""
    times: list[int] = []
    if not folder.path.is_hidden and is_fresh(ws):
        wanted = Selection(folder.path, notes_only=False, sort="modified", limit=1, visible=ws.access.visibility)
        times = [filed.modified_ns for filed in ws.index.select(wanted)[0]]
    if not times:  # the index has no hidden files
        inside = walk(ws, folder.path, recursive=True, hidden=hidden)
        times = [entry.modified_ns for entry in inside if not is_folder(entry)]
    return folder._replace(modified_ns=max(times, default=0))


def _resolve_folder(ws: Workspace, folder: NotePath, hidden: bool, sees: Sees) -> str:
    """The folder, or the target of a symlink to one; Invalid for a file."""
    if not folder:
        return ""
    if not sees(folder):
        raise NotFound(f"there is no folder {folder}", what="folder", path=folder)
    found = stat_or_none(ws.store, folder, hidden=hidden)
    if found is None:
        return folder  # listing it says why
    if not is_folder(found):
        raise Invalid(f"{folder} is not a folder", what="folder", path=folder)
    real = found.real or resolve_symlinks(ws, folder)
    if not sees(NotePath(real)):
        raise NotFound(f"there is no folder {folder}", what="folder", path=folder)
    return real


def _target_folder(entry: Entry, real: str, followed: set[str]) -> str | None:
    """The folder that an entry of the folder `real` leads to; None for a symlink to a parent or one followed before."""
    if entry.kind == "folder":
        return f"{real}/{entry.path.name}" if real else entry.path.name
    if not entry.real or entry.real in followed or f"{real}/".startswith(f"{entry.real}/"):
        return None
    followed.add(entry.real)
    return entry.real


def find_size(ws: Workspace, path: NotePath) -> int:
    """The size of a file in bytes, without reading it."""
    require_visible(ws, path)
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
        if ws.access.hide and not sees_dotted(ws, resolve_symlinks(ws, path)):
            raise NotFound(f"there is no {path}", what="note", path=path)
    else:
        require_visible(ws, path)
    try:
        size = (indexed_file(ws, path) or ws.store.stat(path, hidden=bool(dotted))).size
    except NotFound:
        size = 0  # `read` raises it with the reason
    if size > ws.limits.note_bytes:
        raise TooLarge(f"{path} has {size:,} bytes", size=size, limit=ws.limits.note_bytes, path=path)
    return remember_shown(ws, ws.store.read(path, hidden=bool(dotted)))


def replace_with_copy(
    ws: Workspace, path: NotePath, data: bytes, *, overwrite: bool, make_folders: bool
) -> ReplacedFile:
    """Write a file and, in the same change set, a copy of its old bytes. NotText if these are no text."""
    admit(ws, path, len(data))

    def make_plan() -> tuple[Plan, ReplacedFile]:
        old = _read_replaceable(ws, path)
        if old is None and not make_folders and path.folder:
            folder = stat_or_none(ws.store, NotePath(path.folder))
            if folder is None or folder.kind not in ("folder", "symlink"):  # a symlink is refused by the store
                raise NotFound(f"the folder {path.folder} is not there", what="folder", path=path.folder)
        if old is not None and not overwrite:
            raise Exists(f"{path} is there already", hint="allow overwriting", path=path)
        backup = None
        if old is not None:  # the first free name for this second
            names = map(partial(make_copy_name, path, ws.clock()), count())
            backup = next(name for name in names if stat_or_none(ws.store, name, hidden=True) is None)
        steps = [Put(path, data, None) if old is None else plan_overwrite(ws, old, data)]
        written = steps[0].data or b""
        if backup is not None and old is not None:
            steps.insert(0, Put(backup, old.data, None))
        outcome = ReplacedFile(old is None, len(written), version_of(written), backup)
        return Plan(tuple(steps), f"{'created' if old is None else 'overwrote'} {path}"), outcome

    done, outcome = commit_latest(ws, make_plan)
    current = done.versions[path]
    if path in done.merged:
        now = ws.store.read(path)
        return outcome._replace(size=len(now.data), version=now.version)
    if current != outcome.version:  # another program wrote after the copy was made
        raise Conflict(f"{path} changed since it was read", hint="read it again", path=path, current=current)
    return outcome


def _read_replaceable(ws: Workspace, path: NotePath) -> Stored | None:
    """The file to replace, None if there is none; raises where it may not be replaced."""
    try:
        old = ws.store.read(path)
    except NotFound as missing:
        if missing.details.get("outside"):
            raise
        if (found := stat_or_none(ws.store, path)) is not None and found.kind == "folder":
            raise Exists(f"{path} is a folder", hint="choose another name", what="folder", path=path) from None
        return None
    text_of(path, old.data)
    return old


FoundOrder = Literal["relevance", "modified", "created", "path"]


class RankedNote(NamedTuple):
    """A note found by a text search, with a score from 0 to 100."""

    ws: Workspace
    found: FoundIn
    score: float
    created: float = 0.0  # seconds since 1970

    @property
    def text(self) -> str:
        """The text that was searched, from the index, without a byte order mark."""
        return (self.ws.index.text(self.found.path) or "").removeprefix("\ufeff")


class RankedPage(NamedTuple):
    """One page of the notes found, and totals. `late`: the deadline passed before every note was searched."""

    notes: tuple[RankedNote, ...]
    total: int
    matches: int
    late: bool
    find: Find  # with the deadline for the rest of the call


def rank_texts(
    workspaces: Sequence[Workspace], find: Find, order: FoundOrder = "relevance", *, offset: int = 0, limit: int = 100
) -> RankedPage:
    """Find and rank notes that hold a text, in all these workspaces together. Invalid for an invalid pattern."""
    find.check()
    find = replace(find, until=time.monotonic() + min(PATTERN_SECONDS, max(ws.limits.seconds for ws in workspaces)))
    answers = [(ws, find_text(ws, find)) for ws in workspaces]
    ranked = [RankedNote(ws, found, _score(ws, find, found)) for ws, answer in answers for found in answer.notes]
    if order == "created":
        ranked = _add_creation_times(ranked)
    keys: dict[FoundOrder, Callable[[RankedNote], Any]] = {
        "relevance": lambda note: (-note.score, -note.found.modified_ns, note.found.path),
        "modified": lambda note: (-note.found.modified_ns, note.found.path),
        "created": lambda note: (-note.created, note.found.path),
        "path": lambda note: note.found.path,
    }
    ranked.sort(key=keys[order])
    page = ranked[offset : offset + limit]
    return RankedPage(
        tuple(page if order == "created" else _add_creation_times(page)),
        len(ranked),
        sum(note.found.matches for note in ranked),
        any(answer.late for _, answer in answers),
        find,
    )


def _add_creation_times(ranked: Sequence[RankedNote]) -> list[RankedNote]:
    """The notes with their creation times, read with one call per workspace."""
    workspaces = {id(note.ws): note.ws for note in ranked}.values()
    times = {id(ws): find_creation_times(ws, [note.found for note in ranked if note.ws is ws]) for ws in workspaces}
    return [note._replace(created=times[id(note.ws)][note.found.path]) for note in ranked]


def _score(ws: Workspace, find: Find, found: FoundIn) -> float:
    """A score from the number of matches, the place of the first, and the name; rounded as it is shown and compared."""
    if not found.matches:
        return 0.0
    often, early = 1 - 1 / (1 + found.matches), 1 - found.first / max(found.length, 1)
    name = found.path.name
    in_name = (find.regex or find.query.lower() in name.lower()) and any(True for _ in find_places(ws, find, name))
    return round(100 * (0.55 * often + 0.30 * early + 0.15 * in_name), 1)


# ---- copies in `.backups` folders and in `.trash` ---------------------------------------------------------
#
# A copy is hidden from whom its note is hidden, also after the note was moved or deleted. A copy whose note is unknown
# is hidden from every caller from whom anything is hidden.


def make_copy_name(path: NotePath, at: float, number: int = 0) -> NotePath:
    """`{folder}/.backups/{stem}.{time}.md`; `-1`, `-2` before the extension for further copies of one second. A long
    stem is cut to what a file system takes."""
    folder = f"{path.folder}/{BACKUPS}" if path.folder else BACKUPS
    stem, dot, extension = path.name.rpartition(".")
    stem, ending = (stem, dot + extension) if stem else (path.name, "")
    after = f".{time.strftime(_TIME, time.gmtime(at))}{f'-{number}' if number else ''}{ending}"
    room = MAX_NAME_BYTES - len(after.encode())
    return NotePath(f"{folder}/{stem.encode()[:room].decode(errors='ignore')}{after}")


def parse_copy_name(path: NotePath) -> tuple[NotePath, float] | None:
    """The note and time of a copy in `.backups`, from its name; None where they cannot be told."""
    found = _COPY.fullmatch(path.name)
    beside, _, last = path.folder.rpartition("/")
    if found is None or last != BACKUPS or len(path.name.encode()) > _CUT_BYTES:
        return None
    try:
        at = calendar.timegm(time.strptime(found["at"], _TIME))
    except ValueError:
        return None
    name = found["stem"] + (found["ending"] or "")
    return NotePath(f"{beside}/{name}" if beside else name), float(at)


def sees_dotted(ws: Workspace, path: NotePath) -> bool:
    """Whether a caller may see a file or folder whose path may have dot names."""
    if not ws.access.hide:
        return True
    segments = path.split("/")
    plain = "/".join(segment for segment in segments if not segment.startswith("."))
    if plain and not ws.access.sees(plain):
        return False  # hidden globs apply to the path without its dot names
    if not {BACKUPS, TRASH}.intersection(segments):
        return True
    try:
        if path.name == BACKUPS or path == TRASH:  # an empty folder would reveal that something hidden is in it
            return any(sees_dotted(ws, entry.path) for entry in ws.store.children(path, hidden=True))
        found = parse_copy_name(path)
        return _sees_trashed(ws, path) if path.folder == TRASH else found is not None and _sees_since(ws, *found)
    except (NotFound, Forbidden):
        return False


def _sees_since(ws: Workspace, path: NotePath, at: float) -> bool:
    """Whether the caller may see a note that had this path at a time, under every name the history gives it since."""
    left, known = [(path, at)], {path}
    while left:
        name, since = left.pop()
        gone = [(when, to) for when, to in ws.ledger.find_departures(name) if when >= since]
        if not ws.access.sees(name) or not (gone or ws.store.stat(name).kind != "folder"):
            return False
        fresh = [(to, when) for when, to in gone if to is not None and not to.is_hidden and to not in known]
        known.update(to for to, _ in fresh)
        left += fresh
    return True


def _sees_trashed(ws: Workspace, path: NotePath) -> bool:
    """Whether the caller may see the note that we moved to this path in the trash, if that is what is there now."""
    if ws.store.stat(path, hidden=True).size > ws.limits.note_bytes:
        return False
    version = ws.store.read(path, hidden=True).version
    for change in ws.ledger.find_changes(ChangeQuery(path=path, limit=_MAX_CHANGES)):
        for step in change.steps:
            if step.path == path and step.after is not None:
                mine = step.after == version and step.source is not None
                return mine and ws.access.sees(step.source or path)
    return False
