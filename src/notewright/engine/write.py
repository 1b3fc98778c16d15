"""Changing notes: making, overwriting, editing, deleting. Each is one change set that can be undone."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from notewright.engine.changes.combined import Edited
from notewright.engine.changes.commit import commit, commit_latest, edit, text_of
from notewright.engine.changes.plan import Drop, Plan, Put, is_same_version, plan_overwrite, plan_rebase
from notewright.engine.find.links import incoming
from notewright.engine.indexing.ready import is_fresh
from notewright.engine.read import exists, missing_note_error
from notewright.engine.workspace import Workspace
from notewright.errors import Conflict, Exists, Forbidden, Invalid, NotFound, Problem, TooLarge
from notewright.index.base import Selection
from notewright.notes.edits.edit import Edit, apply, apply_all, may_apply_again
from notewright.notes.links.resolve import link_key
from notewright.notes.path import NotePath, name_problem, path_key
from notewright.stores.base import Version, read_or_none, stat_or_none, version_of

TRASH = ".trash"
TRIES = 8
FoundFolders = dict[str, tuple[str, bool]]  # by path: as it is spelled, and whether it exists


class Written(NamedTuple):
    """What became of one file."""

    path: NotePath
    version: Version
    created: bool
    change_id: str | None  # None: it was so already


class Deleted(NamedTuple):
    trash: NotePath | None
    linked_from: tuple[NotePath, ...]
    files: tuple[NotePath, ...]  # other notes that were changed
    change_id: str | None


def new_path(ws: Workspace, raw: str) -> NotePath:
    """The path of a new note or file, its new names valid on every system: NFC, portable, no other file with the name
    in another spelling. Invalid, Forbidden or Exists otherwise."""
    path, names = spell_new_path(ws, raw)
    problem = name_problem(path, names)
    if problem:
        raise Invalid(f"{raw!r} cannot be a name: {problem}", hint="choose another name", what="path")
    ws.access.may_write(path)
    refuse_twin(ws, path)
    return path


def spell_new_path(ws: Workspace, raw: str) -> tuple[NotePath, str]:
    """The path as a new file is to have it, and the part of it that is new: folders that are there keep their names,
    whatever those are; new names are in NFC."""
    path = NotePath.parse(unicodedata.normalize("NFC", raw))
    if not ws.access.sees(path) or (path == raw and name_problem(path) is None):
        return path, path
    there, found = NotePath.parse(raw), FoundFolders()
    while there and _existing_folder(ws, there, frozenset(), found) != (there, True):
        there = NotePath(there.folder)
    if not there:
        return path, path
    names = unicodedata.normalize("NFC", raw[len(there) + 1 :])
    return NotePath(f"{there}/{names}".rstrip("/")), names


def refuse_twin(
    ws: Workspace, path: NotePath, but_for: frozenset[str] = frozenset(), found: FoundFolders | None = None
) -> None:
    """Raise Exists if a file or folder along the way has this name in another spelling. A caller with many paths gives
    the same `found` for all of them, so that each folder is looked for once."""
    there = existing_spelling(ws, path, but_for, found)
    if there == path:
        return
    if not ws.access.sees(there):
        raise Forbidden(f"writing to {path} is not allowed", hint="choose another name", path=path, by="rule")
    pairs = zip(path.split("/"), there.split("/"), strict=True)
    depth = max(at for at, (given, found) in enumerate(pairs, 1) if given != found)
    twin = NotePath("/".join(there.split("/")[:depth]))
    raise Exists(f"{twin} is there already, the same name in another spelling", hint=f"use {there}", path=twin)


def existing_spelling(
    ws: Workspace, path: NotePath, but_for: frozenset[str] = frozenset(), found: FoundFolders | None = None
) -> NotePath:
    """The path with every name as the existing files and folders spell it."""
    folder, is_there = _existing_folder(ws, path.folder, but_for, {} if found is None else found)
    place = NotePath(f"{folder}/{path.name}" if folder else path.name)
    if not is_there:
        return place
    # From the index where it is fresh, for a folder may hold ten thousand other files.
    names = ws.index.by_name(link_key(place.name)) if is_fresh(ws) else _siblings(ws, place)
    twins = _find_twins(names, place, but_for)
    return min(twins) if twins and place not in twins and stat_or_none(ws.store, place) is None else place


def _existing_folder(ws: Workspace, folder: str, but_for: frozenset[str], found: FoundFolders) -> tuple[str, bool]:
    """A folder as it is spelled, and whether it exists. If it does, so do those it is in: one question is enough. Else
    the outermost that does not is looked for among what lies beside it, and so on inwards."""
    # Where only files make a folder exist, the index knows all of them.
    by_index = not ws.store.has_folders and is_fresh(ws)
    unknown, outer = list[NotePath](), NotePath(folder)
    while outer not in found:
        if not outer or _has_folder(ws, outer, by_index):
            found[outer] = outer, True
        else:
            unknown.append(outer)
            outer = NotePath(outer.folder)
    for inner in reversed(unknown):
        outside, is_there = found[inner.folder]
        place = NotePath(f"{outside}/{inner.name}" if outside else inner)
        twins = _find_twins(_names_beside(ws, place, by_index), place, but_for) if is_there else []
        found[inner] = (place if place in twins or not twins else min(twins)), bool(twins)
    return found[folder]


def _has_folder(ws: Workspace, folder: NotePath, by_index: bool) -> bool:
    if by_index:
        return bool(ws.index.select(Selection(folder=folder, notes_only=False, limit=1))[0])
    return stat_or_none(ws.store, folder) is not None


def _names_beside(ws: Workspace, place: NotePath, by_index: bool) -> list[NotePath]:
    """What may be the same name in another spelling, in the same folder."""
    if not by_index:
        return _siblings(ws, place)
    folders = [NotePath(name) for name, _ in ws.index.folders(below=place.folder)]
    return [name for name in folders if name.folder == place.folder] + [*ws.index.by_name(link_key(place.name))]


def _find_twins(names: Iterable[NotePath], place: NotePath, but_for: frozenset[str]) -> list[NotePath]:
    return [name for name in names if path_key(name) == path_key(place) and name not in but_for]


def _siblings(ws: Workspace, place: NotePath) -> list[NotePath]:
    try:
        return [entry.path for entry in ws.store.children(place.folder, bare=True)]
    except NotFound:
        return []


def admit(ws: Workspace, path: NotePath, size: int) -> None:
    """Refuse a caller who may not put so many bytes there."""
    ws.access.may_write(path)
    ws.follower.refuse_if_lost()
    if size > ws.limits.note_bytes:
        raise TooLarge(
            f"{path} would be {size:,} bytes; the most is {ws.limits.note_bytes:,}",
            hint="split it into several notes",
            size=size,
            limit=ws.limits.note_bytes,
            path=path,
        )


def create(ws: Workspace, path: NotePath, data: bytes, *, summary: str = "") -> Written:
    """Make a file where none is; Exists otherwise."""
    admit(ws, path, len(data))
    # A file that the index does not know is not looked for: the write itself finds it.
    if (not is_fresh(ws) or ws.index.find_file(path) is not None) and exists(ws, path):
        raise _exists_error(path)
    try:
        done = commit(ws, Plan((Put(path, data, None),), summary or f"created {path}"))
    except Exists:
        if exists(ws, path):
            raise _exists_error(path) from None
        raise  # a folder is in the way, and it says so
    return Written(path, version_of(data), True, done.id)


def _exists_error(path: NotePath) -> Exists:
    hint = "edit it, overwrite it with the version you read, or choose another name"
    return Exists(f"{path} is there already", hint=hint, path=path)


def overwrite(ws: Workspace, path: NotePath, data: bytes, *, seen: Version, summary: str = "") -> Written:
    """Replace exactly the version that was seen (a prefix of at least 12 digits will do), or Conflict."""
    admit(ws, path, len(data))
    old = read_or_none(ws.store, path)
    if old is None:
        hint = "leave out the version to create it again"
        raise Conflict(f"{path} is not there any more", hint=hint, path=path, current=None)
    if not is_same_version(seen, old.version):
        shown = ws.store.read_old_version(path, seen)
        if shown is None:
            hint, now = "read it again", old.version
            raise Conflict(f"{path} changed since version {seen}", hint=hint, path=path, current=now, now=old.data)
        return _replace(ws, plan_rebase(ws, old, data, shown), summary)
    return _replace(ws, Put(path, data, old), summary)


def put(ws: Workspace, path: NotePath, data: bytes, *, summary: str = "") -> Written:
    """Make or replace, as a change of the text its writer was last shown where the store remembers that, and Conflict
    where it does not; one who was shown nothing replaces what is there, which is then in the history."""
    admit(ws, path, len(data))
    for attempt in range(TRIES):
        try:
            if (old := read_or_none(ws.store, path)) is None:
                return create(ws, path, data, summary=summary)
            return _replace(ws, plan_overwrite(ws, old, data), summary)
        except (Conflict, Exists, NotFound):
            if attempt == TRIES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _replace(ws: Workspace, step: Put, summary: str) -> Written:
    path, data, old = step.path, step.data or b"", step.old
    assert old is not None
    if data == old.data:
        return Written(path, old.version, False, None)
    done = commit(ws, Plan((step,), summary or f"overwrote {path}"))
    return Written(path, done.versions.get(path) or version_of(data), False, done.id)


def edit_note(
    ws: Workspace, path: NotePath, edits: Sequence[Edit], *, seen: Version | None = None, summary: str = ""
) -> Edited:
    """All of these edits in order, or none. Applied again to a newer text where that is safe, else Conflict."""
    return change_text(
        ws,
        path,
        lambda text: apply_all(text, edits, path),
        seen=seen,
        again=lambda newer: _may_apply_all_again(newer, edits, path),
        summary=summary or f"edited {path}",
    )


def _may_apply_all_again(newer: str, edits: Sequence[Edit], path: NotePath) -> bool:
    """Whether each edit means the same on a newer text, as the ones before it leave it."""
    try:
        for edit_ in edits:
            if not may_apply_again(edit_, newer):
                return False
            newer = apply(newer, edit_, path)
    except Problem:
        return False
    return True


def change_text(
    ws: Workspace,
    path: NotePath,
    change: Callable[[str], str],
    *,
    seen: Version | None = None,
    again: bool | Callable[[str], bool] = True,
    summary: str = "",
) -> Edited:
    """Read a note, change its text by a pure function and write it: every edit of one note goes through here."""
    admit(ws, path, 0)

    def checked(text: str) -> str:
        new = change(text)
        size = len(new.encode("utf-8", "surrogatepass"))
        if size > ws.limits.note_bytes:
            admit(ws, path, size)
        return new

    try:
        return edit(ws, path, checked, summary=summary or f"edited {path}", seen=seen, again=again)
    except NotFound as problem:
        raise missing_note_error(ws, path) if problem.details.get("what") == "file" else problem from None


def delete(ws: Workspace, path: NotePath, *, trash: bool = True, dry_run: bool = False) -> Deleted:
    """Remove one file, into the trash or (`trash` False) for good; names the notes that link to it."""
    admit(ws, path, 0)
    ws.access.may_see(path)
    linked = tuple(dict.fromkeys(link.source for link in incoming(ws, path, lines=False)))
    if not exists(ws, path):
        raise missing_note_error(ws, path)

    def make() -> tuple[Plan, NotePath | None]:
        place = trash_place(ws, path) if trash else None
        gone = Drop(path, ws.store.read(path))
        steps = (gone,) if place is None else (Put(place, None, None, source=path), gone)
        return Plan(steps, f"deleted {path}"), place

    done, place = commit_latest(ws, make, dry_run=dry_run)
    return Deleted(place, linked, (), done.id)


def trash_place(ws: Workspace, path: NotePath) -> NotePath:
    """Where a deleted file goes: `.trash/Name.md`; an older file of that name stays (`Name 1.md`)."""
    name = path.name
    stem, dot, extension = name.rpartition(".")
    stem, ending = (stem, dot + extension) if stem else (name, "")
    try:
        taken = {path_key(entry.path.name) for entry in ws.store.children(TRASH, hidden=True)}
    except NotFound:
        taken = set()
    number, candidate = 0, name
    while path_key(candidate) in taken:
        number += 1
        candidate = f"{stem} {number}{ending}"
    return NotePath(f"{TRASH}/{candidate}")


def change_path(ws: Workspace, path: NotePath, new: NotePath, change: Callable[[str], str] | None = None) -> Written:
    """Move one file, its text changed on the way if asked, and leave every link as it is: both or neither."""
    admit(ws, path, 0)
    admit(ws, new, 0)
    ws.access.may_see(path)

    def make() -> tuple[Plan, Version]:
        if not exists(ws, path):
            raise missing_note_error(ws, path)
        if path == new or exists(ws, new):
            raise Exists(f"{new} is there already", hint="choose another name", path=new)
        old = ws.store.read(path)
        data = old.data if change is None else change(text_of(path, old.data)).encode()
        admit(ws, new, len(data))
        moved = Put(new, None if data == old.data else data, None, source=path)
        return Plan((moved, Drop(path, old)), f"moved {path} to {new}"), version_of(data)

    done, version = commit_latest(ws, make)
    return Written(new, version, False, done.id)


README = NotePath("README.md")
PARA = {
    README: (
        "# Second brain\n\n"
        "Everything here has one of four places, by how soon it will be acted on:\n\n"
        "- [projects](projects/README.md): efforts with an outcome and an end\n"
        "- [areas](areas/README.md): responsibilities that last\n"
        "- [resources](resources/README.md): topics worth coming back to\n"
        "- [archives](archives/README.md): what is done or at rest\n\n"
        "Put a note where it will be needed next, and move it when that changes.\n"
    ),
    NotePath("projects/README.md"): (
        "# Projects\n\nOne folder for each effort that has an outcome and an end. "
        "When it is reached, the folder moves to archives.\n"
    ),
    NotePath("areas/README.md"): (
        "# Areas\n\nResponsibilities to keep up, without an end: health, home, finances, a team.\n"
    ),
    NotePath("resources/README.md"): "# Resources\n\nTopics and references that may be useful some day.\n",
    NotePath("archives/README.md"): "# Archives\n\nFinished projects and whatever else is at rest.\n",
}


def bootstrap(ws: Workspace) -> bool:
    """Write the PARA folders into a workspace that is empty and always was: what people removed does not come back.
    True if it was done."""
    if ws.access.read_only or ws.ledger.first_seen([README]):
        return False
    if any(True for _ in ws.store.entries()):
        return False
    steps = tuple(Put(path, text.encode(), None) for path, text in PARA.items())
    with suppress(Conflict, Exists):  # another process was quicker
        commit(ws, Plan(steps, "laid out PARA folders"))
        return True
    return False
