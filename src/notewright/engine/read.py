"""Reading: finding a note by name, its text, a folder's content. Reads go to the store, so that they show what an
editor saved a moment ago."""

import difflib
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple, Protocol

from notewright.engine.indexing import before_index, ready
from notewright.engine.workspace import Workspace
from notewright.errors import Ambiguous, Invalid, NotFound, Problem
from notewright.index.base import IndexedFile, PathGlob, Selection
from notewright.ledger.base import ChangeQuery
from notewright.notes.glob import glob_literals, glob_name_start
from notewright.notes.links.resolve import link_key
from notewright.notes.model import Note
from notewright.notes.parse.parser import is_costly, parse, parse_without_body
from notewright.notes.path import NotePath, path_key, path_problem, with_md
from notewright.notes.times import parse_time
from notewright.stores.base import Entry, Stored, stat_or_none

MAX_CACHED_CHARS = 50_000  # of a text that is kept with its parse
MAX_SYMLINKS = 40  # on the way of one path
MAX_CHANGES_SEARCHED = 500  # for a former name
SORTS = ("path", "name", "modified", "size")
MAX_CANDIDATES = 10  # that an error names
MAX_SINGLE_READS = 20  # files read one by one where the index does not know them yet


class Reading(NamedTuple):
    """A note as it is now. Text that is not UTF-8 is shown with U+FFFD and `exact` is False: it is never edited."""

    path: NotePath
    text: str
    version: str
    size: int
    modified: float  # seconds since 1970
    exact: bool
    entry: Entry

    @property
    def note(self) -> Note:
        """The parsed text, cached for recent ones. Of a text that holds too much to index it is the words alone, as in
        the index."""
        if len(self.text) <= MAX_CACHED_CHARS:
            return _parsed(self.path, self.text)
        return parse_without_body(self.path, self.text) if is_costly(self.text) else parse(self.path, self.text)


@lru_cache(maxsize=64)
def _parsed(path: NotePath, text: str) -> Note:
    return parse(path, text)


class FolderListing(NamedTuple):
    """What is in a folder, as its reader may see it."""

    folders: tuple[tuple[str, int], ...]  # path, number of notes in it and below
    files: tuple[tuple[IndexedFile, float], ...]  # with the time shown: created where sorted by it, else modified
    total: int  # files in all, before the limit


def read(ws: Workspace, path: NotePath) -> Reading:
    """The text at exactly this path."""
    return _reading(path, fetch(ws, path))


def read_if_there(ws: Workspace, path: NotePath) -> Reading | None:
    """The same, but None where nothing is. Checking first would take as long as reading."""
    require_visible(ws, path)
    try:
        stored = ws.store.read(path)
    except NotFound:
        return None
    return _reading(path, remember_shown(ws, stored))


def read_exact_path(ws: Workspace, raw: str) -> Reading | None:
    """The note at a path that is complete as written; None for one that `locate` has to find."""
    if not ws.store.has_folders or not raw.endswith(".md") or raw != raw.strip() or path_problem(raw):
        return None
    return read_if_there(ws, NotePath(raw)) if ws.access.sees(raw) else None


def _reading(path: NotePath, stored: Stored) -> Reading:
    text, exact = decode(stored.data)
    return Reading(path, text, stored.version, len(stored.data), stored.entry.modified_ns / 1e9, exact, stored.entry)


def fetch(ws: Workspace, path: NotePath) -> Stored:
    """The bytes of any file at exactly this path."""
    require_visible(ws, path)
    try:
        stored = ws.store.read(path)
    except NotFound:
        raise missing_note_error(ws, path) from None
    return remember_shown(ws, stored)


def remember_shown(ws: Workspace, stored: Stored) -> Stored:
    """Remember that the caller sees this version: their next write is a change of it, where texts are merged."""
    if ws.shown is not None:
        ws.shown[stored.entry.path] = stored.version
    return stored


def stat_file(ws: Workspace, path: NotePath) -> Entry:
    """What is known of a file without reading it."""
    require_visible(ws, path)
    try:
        return ws.store.stat(path)
    except NotFound:
        raise missing_note_error(ws, path) from None


def decode(data: bytes) -> tuple[str, bool]:
    """The text, and whether the bytes are UTF-8."""
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return data.decode(errors="replace"), False


def exists(ws: Workspace, path: NotePath) -> bool:
    """Whether a file is there, hidden or not; a broken symlink does not count."""
    found = stat_or_none(ws.store, path)
    return found is not None and found.kind != "folder" and (found.kind != "symlink" or found.mode is not None)


def probably_exists(ws: Workspace, path: NotePath) -> bool:
    """`exists`, without a request over the network where the index knows the file: for a caller that reads it next."""
    return indexed_file(ws, path) is not None or exists(ws, path)


def indexed_file(ws: Workspace, path: NotePath) -> IndexedFile | None:
    """The file in the index, only where asking the store would be a request over the network; else None."""
    return ws.index.find_file(path) if not ws.store.has_folders and ready.is_fresh(ws) else None


def locate(ws: Workspace, raw: str) -> NotePath:
    """The file meant by a path (`.md` optional), else by a name, else by an alias, case ignored."""
    path = NotePath.parse(raw.strip().strip("/"))
    typed = (path,) if path == raw == with_md(path) else (*_untrimmed_spellings(raw), path, NotePath(with_md(path)))
    spellings = [spelling for spelling in dict.fromkeys(typed) if ws.access.sees(spelling)]
    found: Sequence[NotePath] = ()
    if not ws.store.has_folders and ready.is_fresh(ws):
        for spelling in spellings:
            if ws.index.find_file(spelling):
                return spelling
        found = _find_by_name(ws, path)
    if not found:
        for spelling in spellings:
            if exists(ws, spelling):
                return spelling
        found = _find_by_name(ws, path)
    if len(found) == 1:
        return found[0]
    if found:
        names = sorted(found)
        more = f" and {len(names) - MAX_CANDIDATES} more" if len(names) > MAX_CANDIDATES else ""
        raise Ambiguous(
            f"{raw!r} could be any of {len(names)} notes: {', '.join(names[:MAX_CANDIDATES])}{more}",
            hint="give one of these paths",
            what="note",
            candidates=names,
            path=path,
        )
    raise missing_note_error(ws, path)


def _untrimmed_spellings(raw: str) -> list[NotePath]:
    """The path with its outer blanks, if it has any: names of existing notes may have them."""
    typed = raw.strip("/")
    return [] if typed == typed.strip() or path_problem(typed) else [NotePath(typed), NotePath(with_md(typed))]


def _find_by_name(ws: Workspace, path: NotePath) -> Sequence[NotePath]:
    """Files with this path but for case, else with this name or path ending, else with this alias."""
    if not ready.is_fresh(ws):
        listed = [p for p in before_index.find_by_name(ws, link_key(path)) if ws.access.sees(p) and exists(ws, p)]
        if found := _select_by_ending(path, listed):
            return found
        ready.wait(ws)
    with ws.index.snapshot():
        found = _select_by_ending(path, [p for p in ws.index.by_name(link_key(path)) if ws.access.sees(p)])
        return found or [p for p in dict.fromkeys(ws.index.by_other_name("alias", path_key(path))) if ws.access.sees(p)]


def _select_by_ending(path: NotePath, candidates: Sequence[NotePath]) -> list[NotePath]:
    """The paths that equal `path` but for case, else those that end in it."""
    keys = {path_key(path), path_key(with_md(path))}
    exact = [p for p in candidates if path_key(p) in keys]
    return exact or [p for p in candidates if any(path_key(p).endswith("/" + key) for key in keys)]


def missing_note_error(ws: Workspace, path: str) -> NotFound:
    """The error for a note that is not there, naming the nearest three."""
    if _is_folder(ws, path):
        hint = f'list(folder="{path}") shows what is in it'
        return NotFound(f"{path} is a folder, not a note", hint=hint, what="note", path=path, nearest=[], folder=path)
    nearest = find_nearest_paths(ws, path)
    hint = f"nearest: {', '.join(nearest)}" if nearest else "list shows what is there"
    return NotFound(f"there is no {path}", hint=hint, what="note", path=path, nearest=nearest)


def _is_folder(ws: Workspace, path: str) -> bool:
    try:
        return ws.access.sees(path) and ws.store.stat(NotePath(path)).kind == "folder"
    except Problem:
        return False


def find_nearest_paths(ws: Workspace, path: str, count: int = 3) -> list[NotePath]:
    """Paths of the notes with the most similar names. Never fails, as it is only for hints."""
    key = link_key(path)[:100]
    try:
        near = _find_similar_names(ws, [key])
        if len(near) < count:  # short names share no run of letters as soon as one is wrong
            near = list(dict.fromkeys([*near, *_find_similar_names(ws, sorted(set(key))[:12])]))
    except Problem:
        return []
    return sorted(near, key=lambda one: (-name_similarity(path, one), one))[:count]


def name_similarity(wanted: str, path: NotePath) -> float:
    """How similar a note's name is to what the caller wrote, from 0 to 1."""
    return difflib.SequenceMatcher(None, link_key(wanted)[:100], path_key(path.stem)).ratio()


def _find_similar_names(ws: Workspace, keys: Sequence[str]) -> list[NotePath]:
    return [path for key in keys for path in ws.index.names_like(key, limit=200, visible=ws.access.visibility)]


def find_folder(ws: Workspace, raw: str) -> str:
    """A folder a caller named, `""` for the root; NotFound if nothing is below it."""
    wanted = raw.strip().strip("/")
    if wanted in ("", "."):
        return ""
    path = NotePath.parse(wanted)
    for spelling in (*_untrimmed_spellings(raw)[:1], path):
        if _is_folder(ws, spelling):
            return spelling
    near = _find_nearest_folders(ws, path)
    hint = f"nearest folders: {', '.join(near)}" if near else "list shows the folders there are"
    raise NotFound(f"there is no folder {path}", hint=hint, what="folder", path=path, nearest=near)


def _find_nearest_folders(ws: Workspace, path: NotePath, count: int = 3) -> list[str]:
    """Folders most similar by their whole path or last name, case ignored."""
    wanted = path_key(path)[-200:]

    def measure_similarity(folder: str) -> float:
        names = (path_key(folder), path_key(NotePath(folder).name))
        return max(difflib.SequenceMatcher(None, wanted, name).ratio() for name in names)

    try:
        ready.wait(ws)
    except Problem:
        return []
    found = [name for name, _ in ws.index.folders(visible=ws.access.visibility)][:2000]
    return sorted(found, key=lambda folder: (-measure_similarity(folder), folder))[:count]


def list_files(ws: Workspace, selection: Selection) -> tuple[list[IndexedFile], int]:
    """The files selected that the caller may see, sorted and paged, and their total number."""
    _check_sort(selection.sort)
    if not ready.is_fresh(ws) and before_index.can_select(selection):
        return before_index.select(ws, selection)
    return ready.snapshot(ws, lambda: ws.index.select(selection))


def list_folder(
    ws: Workspace, folder: str, *, glob: str | None = None, sort: str = "name", limit: int | None = None
) -> FolderListing:
    """One level of a folder with its notes; with a glob every file below that matches, relative to the folder."""
    visible = ws.access.visibility._replace(globs=(PathGlob(glob, below=folder),) if glob else ())
    chosen = Selection(
        folder=folder,
        recursive=bool(glob),
        notes_only=not glob,
        sort="path" if sort in ("name", "created") else sort,
        limit=None if sort == "created" else limit,
        holding=glob_literals(glob) if glob else (),
        name_start=glob_name_start(glob) if glob else "",
        visible=visible,
    )
    _check_sort(chosen.sort)

    def answer(files: list[IndexedFile], total: int, folders: Sequence[tuple[str, int]]) -> FolderListing:
        dated = [(filed, filed.modified_ns / 1e9) for filed in files]
        if sort == "created":  # the index does not know what the ledger knows
            times = find_creation_times(ws, files)
            dated = sorted(((filed, times[filed.path]) for filed in files), key=lambda pair: -pair[1])[:limit]
        return FolderListing(tuple(folders), tuple(dated), total)

    def from_index() -> FolderListing:
        files, total = ws.index.select(chosen)
        return answer(files, total, () if glob else ws.index.folders(folder, ws.access.visibility, deep=False))

    if ready.is_fresh(ws):
        return ready.snapshot(ws, from_index)
    return answer(*list_files(ws, chosen), ()) if glob else answer(*before_index.select_level(ws, chosen))


def _check_sort(sort: str) -> None:
    if sort not in SORTS:
        raise Invalid(f"cannot sort by {sort!r}", hint="sort by name, modified, created or size", what="sort")


class HasModified(Protocol):
    """Anything that tells a path and when it was modified: of a listing, the index or a search."""

    @property
    def path(self) -> NotePath: ...

    @property
    def modified_ns(self) -> int: ...


def find_creation_times(ws: Workspace, files: Sequence[HasModified]) -> dict[str, float]:
    """The creation time of each file: its property `created`, else when it was first made through us, else modified."""
    paths = [filed.path for filed in files]
    stated, first = dict(ws.index.property_of("created", paths)), ws.ledger.first_seen(paths)
    for path in paths if len(paths) <= MAX_SINGLE_READS else ():
        if path not in stated and path.is_note and not ws.index.find_file(path):
            with suppress(Problem):  # the index does not know the note yet
                stated[path] = read(ws, path).note.frontmatter.properties.get("created")
    times: dict[str, float] = {}
    for filed in files:
        path = filed.path
        value = stated.get(path)
        moment = parse_time(value, ws.timezone) if isinstance(value, str) else None
        times[path] = moment or first.get(path) or filed.modified_ns / 1e9
    return times


def find_former_path(ws: Workspace, raw: str) -> NotePath | None:
    """The file or folder these words meant lately, though nothing is there now: the last change of it tells."""
    wanted = raw.strip().strip("/")
    keys = {path_key(wanted), path_key(with_md(wanted))}
    for change in ws.ledger.find_changes(ChangeQuery(limit=MAX_CHANGES_SEARCHED)):
        for step in change.steps:
            key = path_key(step.path)
            if ws.access.sees(step.path) and any(key == one or key.endswith("/" + one) for one in keys):
                return step.path
    return None


def read_version_text(ws: Workspace, path: NotePath, version: str) -> str | None:
    """The text a version had, if the history still holds it."""
    data = ws.ledger.find_blob(path, version)
    return None if data is None else data.decode(errors="replace")


# ---- symbolic links: what hides a folder hides it under every name -----------------------------------


def require_visible(ws: Workspace, path: NotePath) -> None:
    """NotFound unless the caller may see this path and what it leads to."""
    ws.access.may_see(path)
    if ws.access.hide and ws.store.has_folders and not ws.access.sees(resolve_symlinks(ws, path)):
        raise NotFound(f"there is no {path}", what="note", path=path)


def resolve_symlinks(ws: Workspace, path: NotePath) -> NotePath:
    """Where a path leads once every symbolic link on the way is followed; links that lead out lead nowhere."""
    for _ in range(MAX_SYMLINKS):
        followed = _follow_first_symlink(ws, path)
        if followed == path:
            break
        path = followed
    return path


def _follow_first_symlink(ws: Workspace, path: NotePath) -> NotePath:
    """The path with its first symbolic link replaced by its target."""
    pieces = path.split("/")
    for count in range(1, len(pieces) + 1):
        prefix = NotePath("/".join(pieces[:count]))
        entry = stat_or_none(ws.store, prefix, hidden=prefix.is_hidden)
        if entry is None:
            return path
        if entry.kind == "symlink" and entry.real is not None:
            return NotePath("/".join(piece for piece in (entry.real, *pieces[count:]) if piece))
    return path
