"""Copies of notes, kept beside them in `.backups` and, when they are deleted, in `.trash`: whose they are.

A copy is hidden where its note is, also after the note was moved or deleted. One for which no note can be found is
hidden from everybody from whom something is hidden.
"""

import calendar
import re
import time
from dataclasses import dataclass, field

from notewright.engine.workspace import Workspace
from notewright.errors import Forbidden, NotFound
from notewright.ledger.base import Past
from notewright.notes.path import NotePath

BACKUPS, TRASH = ".backups", ".trash"
NAME_BYTES = 255  # of one segment, on every file system that matters
_CUT_BYTES = NAME_BYTES - 4  # a longer name may have lost the end of its stem, and then it could be of several notes
_TIME = "%Y-%m-%dT%H-%M-%S"
_COPY = re.compile(r"(?P<stem>.+)\.(?P<at>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-\d+)?(?P<ending>\.[^.]+)?", re.DOTALL)
_CHANGES = 20  # of one file in the trash, of which the last put it there


def copy_name(path: NotePath, at: float, number: int = 0) -> NotePath:
    """`{folder}/.backups/{stem}.{time}.md`; `-1`, `-2` before the extension for the next ones of one second. A long
    stem is cut to what a file system takes."""
    folder = f"{path.folder}/{BACKUPS}" if path.folder else BACKUPS
    stem, dot, extension = path.name.rpartition(".")
    stem, ending = (stem, dot + extension) if stem else (path.name, "")
    after = f".{time.strftime(_TIME, time.gmtime(at))}{f'-{number}' if number else ''}{ending}"
    room = NAME_BYTES - len(after.encode())
    return NotePath(f"{folder}/{stem.encode()[:room].decode(errors='ignore')}{after}")


def copied_from(path: NotePath) -> tuple[NotePath, float] | None:
    """The note a copy in `.backups` is of by its name, and since when; None where that cannot be told."""
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


@dataclass(slots=True)
class Dotted:
    """Which files and folders a caller may know of where names may begin with a dot. Made for one answer."""

    ws: Workspace
    _went: dict[str, list[tuple[float, NotePath | None]]] = field(default_factory=dict)

    def sees(self, path: NotePath) -> bool:
        if not self.ws.access.hide:
            return True
        segments = path.split("/")
        plain = "/".join(segment for segment in segments if not segment.startswith("."))
        if plain and not self.ws.access.sees(plain):
            return False  # hiding holds for the visible part of a path, wherever dots stand in it
        if not {BACKUPS, TRASH}.intersection(segments):
            return True
        if path.name == BACKUPS or path == TRASH:
            return self._holds_something(path)
        return self._trashed(path) if path.folder == TRASH else self._copied(path)

    def _holds_something(self, folder: NotePath) -> bool:
        """A folder that holds nothing to be seen would tell that there is something."""
        try:
            return any(self.sees(entry.path) for entry in self.ws.store.children(folder, hidden=True))
        except (NotFound, Forbidden):
            return False

    def _copied(self, path: NotePath) -> bool:
        found = copied_from(path)
        return found is not None and self._is_seen_since(*found)

    def _is_seen_since(self, path: NotePath, at: float) -> bool:
        """Whether the caller may see a note of that time wherever it was since, as far as the history knows."""
        left, known = [(path, at)], {path}
        while left:
            here, since = left.pop()
            gone = [(when, to) for when, to in self._departures(here) if when >= since]
            if not self.ws.access.sees(here) or not (gone or self._is_there(here)):
                return False
            fresh = [(to, when) for when, to in gone if to is not None and not to.is_hidden and to not in known]
            known.update(to for to, _ in fresh)
            left += fresh
        return True

    def _departures(self, path: NotePath) -> list[tuple[float, NotePath | None]]:
        if path not in self._went:
            self._went[path] = self.ws.ledger.departures(path)
        return self._went[path]

    def _is_there(self, path: NotePath) -> bool:
        try:
            return self.ws.store.stat(path).kind != "folder"
        except (NotFound, Forbidden):
            return False

    def _trashed(self, path: NotePath) -> bool:
        """Whether the caller might see the note we put there, if that is what lies there now."""
        try:
            if self.ws.store.stat(path, hidden=True).size > self.ws.limits.note_bytes:
                return False
            version = self.ws.store.read(path, hidden=True).version
        except (NotFound, Forbidden):
            return False
        for change in self.ws.ledger.past(Past(path=path, limit=_CHANGES)):
            for step in change.steps:
                if step.path == path and step.after is not None:
                    mine = step.after == version and step.source is not None
                    return mine and self.ws.access.sees(step.source or path)
        return False
