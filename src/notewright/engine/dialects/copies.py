"""Copies of notes in `.backups` folders and in `.trash`: their names, and who may see them.

A copy is hidden where its note is, also after the note was moved or deleted. A copy whose note is unknown is hidden
from every caller from whom anything is hidden.
"""

import calendar
import re
import time

from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound
from notewright.ledger.base import ChangeQuery
from notewright.notes.path import NotePath

BACKUPS, TRASH = ".backups", ".trash"
MAX_NAME_BYTES = 255  # of one segment, on every file system that matters
_CUT_BYTES = MAX_NAME_BYTES - 4  # a longer name may have lost the end of its stem: it could be of several notes
_TIME = "%Y-%m-%dT%H-%M-%S"
_COPY = re.compile(r"(?P<stem>.+)\.(?P<at>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-\d+)?(?P<ending>\.[^.]+)?", re.DOTALL)
_MAX_CHANGES = 20  # of one file in the trash, among which the last put it there


def copy_name(path: NotePath, at: float, number: int = 0) -> NotePath:
    """`{folder}/.backups/{stem}.{time}.md`; `-1`, `-2` before the extension for the next ones of one second. A long
    stem is cut to what a file system takes."""
    folder = f"{path.folder}/{BACKUPS}" if path.folder else BACKUPS
    stem, dot, extension = path.name.rpartition(".")
    stem, ending = (stem, dot + extension) if stem else (path.name, "")
    after = f".{time.strftime(_TIME, time.gmtime(at))}{f'-{number}' if number else ''}{ending}"
    room = MAX_NAME_BYTES - len(after.encode())
    return NotePath(f"{folder}/{stem.encode()[:room].decode(errors='ignore')}{after}")


def copied_from(path: NotePath) -> tuple[NotePath, float] | None:
    """The note that a copy in `.backups` is of, by its name, and its time; None where that cannot be told."""
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
        return False  # hiding holds for the visible part of a path, wherever dots stand in it
    if not {BACKUPS, TRASH}.intersection(segments):
        return True
    try:
        if path.name == BACKUPS or path == TRASH:  # an empty one would tell that something hidden is there
            return any(sees_dotted(ws, entry.path) for entry in ws.store.children(path, hidden=True))
        found = copied_from(path)
        return _sees_trashed(ws, path) if path.folder == TRASH else found is not None and _sees_since(ws, *found)
    except (NotFound, Forbidden):
        return False


def _sees_since(ws: Workspace, path: NotePath, at: float) -> bool:
    """Whether the caller may see a note of that time, wherever the history says it was moved since."""
    left, known = [(path, at)], {path}
    while left:
        here, since = left.pop()
        gone = [(when, to) for when, to in ws.ledger.find_departures(here) if when >= since]
        if not ws.access.sees(here) or not (gone or ws.store.stat(here).kind != "folder"):
            return False
        fresh = [(to, when) for when, to in gone if to is not None and not to.is_hidden and to not in known]
        known.update(to for to, _ in fresh)
        left += fresh
    return True


def _sees_trashed(ws: Workspace, path: NotePath) -> bool:
    """Whether the caller may see the note we put into the trash, if that is what is there now."""
    if ws.store.stat(path, hidden=True).size > ws.limits.note_bytes:
        return False
    version = ws.store.read(path, hidden=True).version
    for change in ws.ledger.find_changes(ChangeQuery(path=path, limit=_MAX_CHANGES)):
        for step in change.steps:
            if step.path == path and step.after is not None:
                mine = step.after == version and step.source is not None
                return mine and ws.access.sees(step.source or path)
    return False
