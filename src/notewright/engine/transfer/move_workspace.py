"""Move the files of a workspace to another folder or bucket: copied, read back and compared by hash.

The old place is only read. A journal beside the history of the new place records what was copied, so that a move that
was killed is resumed, and one that is run again later carries over what has changed since. In the new place nothing is
overwritten that is not of this move, and nothing is removed once the move was complete. Inside one service the objects
are copied by the service, and their ETags are compared.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from notewright.engine.changes.batch_write import SkippedFile
from notewright.engine.transfer.backup import Report
from notewright.engine.transfer.manifest import BUCKET_THREADS, run_each
from notewright.errors import Busy, Conflict, Exists, Forbidden, Invalid, NoSpace, NotFound, Problem, Unavailable
from notewright.locks import lock_file
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Objects, Store, Stored

JOURNAL = "move.jsonl"
_MARK = "notewright-move"
_FORMAT = 1
_OP = "move-workspace"
MAX_ROUNDS = 4  # of copying what changed meanwhile, before the old place is locked for the last round
MAX_TRIES = 2  # to write a file whose copy differs
BATCH_FILES, BATCH_BYTES = 64, 32 << 20  # held in memory at a time
MAX_NAMED = 3  # files named in an error
UNVERIFIED = "it is not known to be the same yet: run it again"
CHANGED = "it was changed in the new place, and stays so"
OTHER_FILE = "another file of that name is in the new place, and stays as it is"
GONE = "it is gone from the old place and stays in the new one: delete it there if nobody needs it"
MOVED_DOT_FOLDERS = {".trash", ".backups", ".obsidian"}  # used by tools, undo and daily notes


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What is in the new place now. `left_out` is not moved, by rule; `failed` could not be moved."""

    files: int  # the same in both places
    copied: int  # of them, by this run
    size: int  # in bytes, of those copied
    left_out: tuple[SkippedFile, ...] = ()
    failed: tuple[SkippedFile, ...] = ()


class MoveJournal:
    """What this move has done: a file with one JSON list for each step. A last line that was cut off is ignored: its
    file is compared again."""

    def __init__(self, file: Path, source: str) -> None:
        """Conflict where a move from elsewhere was begun there and not finished, Busy while another process moves."""
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = lock_file(file, timeout=0, flags=os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except BlockingIOError:
            raise Busy("this move is under way already", hint="wait for it") from None
        self._file = os.fdopen(handle, "a", encoding="utf-8")
        self._mutex = threading.Lock()
        self.copied: dict[NotePath, tuple[str, str]] = {}  # the same in both places: its stamps here and there
        self.planned: dict[str, set[str]] = {}  # by path: hashes and stamps of what this move wrote in the new place
        self.is_complete = False  # everything was copied once: from then on the new place may be used
        found: list[list[Any]] = []
        for raw in file.read_text(encoding="utf-8").split("\n"):
            with suppress(ValueError):
                found.append(json.loads(raw))
        head, *lines = found or [[]]
        if head[2:] != [source] and ["end", ""] in lines:  # that move was finished
            self._file.truncate(0)
            head, lines = [], []
        if head and head != [_MARK, _FORMAT, source]:
            self._file.close()
            hint = f"finish that one, or remove {file}"
            raise Conflict(f"notes are being moved there from {head[-1]}", hint=hint, path=source, current=None)
        for line in lines:
            self._apply(*line)
        if head:
            self._file.write("\n")  # after a line that was cut off
        else:
            self.write([_MARK, _FORMAT, source])

    def plan(self, path: NotePath, mark: str) -> None:
        """Record what is about to be written, by its hash or ETag: such a file may be overwritten."""
        self._record(["plan", path, mark])

    def confirm(self, old: Entry, new: Entry) -> None:
        """Record a file that was compared and is the same in both places."""
        self._record(["done", old.path, old.stamp, new.stamp])

    def complete(self) -> None:
        self._record(["end", ""])

    def _record(self, line: list[str]) -> None:
        with self._mutex:
            self._apply(*line)
            self.write(line)

    def write(self, line: list[Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=True) + "\n")
        self._file.flush()

    def _apply(self, what: str, path: str, *rest: str) -> None:
        if what == "plan":
            self.planned.setdefault(path, set()).add(rest[0])
        elif what == "done":
            self.copied[NotePath(path)] = rest[0], rest[1]
            self.planned.setdefault(path, set()).add(rest[1])
        elif what == "end":
            self.is_complete = True

    def close(self) -> None:
        self._file.close()


def move_files(
    source: Store,
    target: Store,
    journal: MoveJournal,
    *,
    report: Report = lambda done, total: None,
    finish: Callable[[], None] = lambda: None,
) -> MoveResult:
    """Copy every file to the new place. `finish` is called at the end, while the old place is locked for our processes.
    Exists where other files are in the new place; the result names the files that failed."""
    if target.objects is not None and target.objects.refuses_writes:
        raise Forbidden(f"the new place: {target.objects.refuses_writes}", hint="choose another")
    move = _Move(source, target, journal, report)
    try:
        with target.lock():
            for _ in range(MAX_ROUNDS):
                if not move.copy_changes():
                    break
            with source.lock():
                move.copy_changes()
                result = move.result()
                if not result.failed:
                    finish()
                    journal.complete()
    except (Unavailable, NoSpace, Busy) as problem:
        problem.hint = f"{problem.hint + '; ' if problem.hint else ''}run it again to go on"
        raise
    return result


def preview_move(source: Store, target: Store | None) -> MoveResult:
    """What a move would copy, as far as a listing tells. No `target`: the place is to be made."""
    wanted, left_out = _list(source)
    there = _list(target)[0] if target is not None else {}
    _refuse_strangers(there.keys() - wanted.keys())
    todo = [entry for entry in wanted.values() if entry.path not in there]
    return MoveResult(len(wanted), len(todo), sum(entry.size for entry in todo), tuple(left_out))


def _refuse_strangers(paths: Iterable[str]) -> None:
    strange = sorted(paths)
    if strange:
        named = ", ".join(strange[:MAX_NAMED]) + (" …" if len(strange) > MAX_NAMED else "")
        raise Exists(f"the new place holds other files: {named}", hint="name an empty one", path=strange[0])


class _Move:
    """One run of a move, and what became of its files so far."""

    def __init__(self, source: Store, target: Store, journal: MoveJournal, report: Report) -> None:
        self.source, self.target, self.journal, self.report = source, target, journal, report
        self.wanted: dict[NotePath, Entry] = {}  # what the last round found in the old place
        self.left_out: list[SkippedFile] = []
        self.failed: dict[NotePath, tuple[str, str]] = {}  # the stamp it failed for, and why
        self.new: dict[NotePath, int] = {}  # copied by this run, with their sizes
        ours, theirs = target.objects, source.objects
        self._in_service = ours is not None and theirs is not None and ours.service == theirs.service

    def copy_changes(self) -> bool:
        """Make the new place equal to the old one as it is now; whether anything differed."""
        self.wanted, self.left_out = _list(self.source)
        there, _ = _list(self.target)
        if not self.journal.is_complete:
            _refuse_strangers(there.keys() - self.wanted.keys() - self.journal.planned.keys())
        gone = self._remove_gone(there)
        self.failed = {path: failure for path, failure in self.failed.items() if path in self.wanted}
        todo = [entry for entry in self.wanted.values() if not self._is_done(entry, there.get(entry.path))]
        done = len(self.wanted) - len(todo)
        for batch in _batches(todo):
            for _ in self._copy(batch, there):
                done += 1
                self.report(done, len(self.wanted))
        return bool(gone or todo)

    def _remove_gone(self, there: dict[NotePath, Entry]) -> bool:
        """Remove the copies of files that are gone from the old place, unless somebody has changed them; whether there
        were any. Once the move was complete they are only named: the new place may be used, and the old one emptied."""
        known = self.journal.copied if self.journal.is_complete else self.journal.planned
        if known and not self.wanted:
            hint = "is it mounted? nothing was removed"
            raise Conflict("the old place is empty now", hint=hint, path=next(iter(known)), current=None)
        gone = [path for path in there if path in known and path not in self.wanted]
        if self.journal.is_complete:
            self.left_out += [SkippedFile(path, "gone", GONE) for path in gone]
            return False
        ours = [now for now in (self.target.read(path, hidden=True) for path in gone) if self._is_ours(now)]
        for now in ours:
            self.target.delete(now.entry.path, seen=now.version, op=_OP, settled=True, hidden=True)
        return bool(ours)

    def result(self) -> MoveResult:
        """After the last round: a file that is not known to be the same has failed."""
        for path, entry in self.wanted.items():
            if path not in self.failed and not self._is_same(entry):
                self._fail(entry, UNVERIFIED)
        failed = tuple(SkippedFile(path, "failed", why) for path, (_, why) in sorted(self.failed.items()))
        same = sum(map(self._is_same, self.wanted.values()))
        return MoveResult(same, len(self.new), sum(self.new.values()), tuple(self.left_out), failed)

    def _is_same(self, entry: Entry) -> bool:
        return self.journal.copied.get(entry.path, ("", ""))[0] == entry.stamp

    def _is_done(self, entry: Entry, there: Entry | None) -> bool:
        if self.failed.get(entry.path, ("",))[0] == entry.stamp:
            return True
        is_left = there is not None and self.journal.copied.get(entry.path, ("", ""))[1] == there.stamp
        return self._is_same(entry) and (self.journal.is_complete or is_left)

    def _is_ours(self, now: Stored) -> bool:
        return not self.journal.planned.get(now.entry.path, set()).isdisjoint((now.version, now.entry.stamp))

    def _fail(self, entry: Entry, why: str) -> None:
        self.failed[entry.path] = entry.stamp, why
        self.new.pop(entry.path, None)

    def _copy(self, batch: Sequence[Entry], there: Mapping[NotePath, Entry]) -> Iterator[None]:
        """Copy these files; yields after each. A folder is written to by the thread that holds its lock."""
        threads = 1 if self.target.objects is None else BUCKET_THREADS
        copied = run_each(lambda entry: self._copy_in_service(entry, there.get(entry.path)), batch, threads)
        left = [entry for entry, is_copied in zip(batch, copied, strict=True) if not is_copied]
        yield from repeat(None, len(batch) - len(left))
        found = self.source.read_many([entry.path for entry in left], hidden=True)
        are_there = [self._in_service or entry.path in there for entry in left]
        for _ in run_each(lambda one: self._copy_file(*one), zip(left, found, are_there, strict=True), threads):
            yield

    def _copy_in_service(self, entry: Entry, now: Entry | None) -> bool:
        """Let the service copy a file. False where it has to be read: by its ETag it is not known to be the same."""
        path = entry.path
        if not self._in_service or self.target.objects is None or self.source.objects is None:
            return False
        if now is None and self.journal.is_complete and path in self.journal.copied:
            return False
        if now is not None and now.stamp not in self.journal.planned.get(path, ()):
            return False
        self.journal.plan(path, entry.stamp)
        if not self.target.objects.copy(self.source.objects, path, path):
            return False
        try:
            made = self.target.stat(path, hidden=True)
        except NotFound:
            return False
        self.new[path] = entry.size
        self.journal.plan(path, made.stamp)
        if made.stamp == entry.stamp:
            self.journal.confirm(entry, made)
        return made.stamp == entry.stamp

    def _copy_file(self, entry: Entry, stored: Stored | Problem, is_there: bool) -> None:
        if isinstance(stored, NotFound):
            return  # moved meanwhile: the next round has it
        try:
            if isinstance(stored, Problem):
                raise stored
            self.wanted[entry.path] = entry = stored.entry
            self.journal.confirm(entry, self._place(stored, is_there))
        except (Forbidden, Exists, Conflict, Invalid, NotFound) as problem:  # with this file only
            self._fail(entry, problem.message)

    def _place(self, stored: Stored, is_there: bool) -> Entry:
        """Write a file to the new place, unless it is there already, and read it back; again if it differs."""
        path, now, tries = stored.entry.path, None, 0
        if is_there:
            with suppress(NotFound):
                now = self.target.read(path, hidden=True)
        if now is None and self.journal.is_complete and path in self.journal.copied:
            raise _refusal(path, "it was deleted in the new place, and changed in the old one")
        while now is None or now.version != stored.version:
            if now is not None and not self._is_ours(now):
                raise _refusal(path, CHANGED if path in self.new else OTHER_FILE)
            if tries == MAX_TRIES:
                raise _refusal(path, "its bytes in the new place are not those of the old one")
            now, tries = self._write(stored, now), tries + 1
        return now.entry

    def _write(self, stored: Stored, now: Stored | None) -> Stored:
        """Write a file over what is in the new place now; what is there then."""
        path = stored.entry.path
        self.journal.plan(path, stored.version)
        seen = None if now is None else now.version
        made = self.target.write(path, stored.data, seen=seen, op=_OP, settled=True, hidden=True).entry
        if self.target.objects is None:  # a file keeps its time of change, an object cannot
            with suppress(OSError):
                os.utime(self.target.full_path(path), ns=(stored.entry.modified_ns,) * 2, follow_symlinks=False)
            made = self.target.stat(path, hidden=True)
        self.new[path] = len(stored.data)
        self.journal.plan(path, made.stamp)  # it is ours, whatever the disk made of the bytes
        return self.target.read(path, hidden=True)


def _refusal(path: NotePath, why: str) -> Conflict:
    return Conflict(why, path=path, current=None)


def _batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    batch, total = list[Entry](), 0
    for entry in entries:
        if batch and (len(batch) >= BATCH_FILES or total + entry.size > BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(entry)
        total += entry.size
    if batch:
        yield batch


def _list(store: Store) -> tuple[dict[NotePath, Entry], list[SkippedFile]]:
    """Every file that belongs to the workspace, and what is not moved."""
    files, left_out = dict[NotePath, Entry](), list[SkippedFile]()
    for entry in store.entries():
        if entry.kind == "symlink":
            left_out.append(SkippedFile(entry.path, "symlink", f"it is a symlink to {entry.real or entry.target}"))
        else:
            files[entry.path] = entry
    left_out += [SkippedFile(odd.path, "unreadable", odd.why) for odd in store.unlisted_files()]
    for entry in _hidden_files(store, "", False) if store.objects is None else _hidden_objects(store, store.objects):
        if entry.kind == "folder":
            left_out.append(SkippedFile(entry.path, "dotted", "its name begins with a dot"))
        elif entry.kind != "symlink":
            files[entry.path] = entry
    return files, left_out


def _hidden_files(store: Store, folder: str, inside: bool) -> Iterator[Entry]:
    """The files in the dot folders that are moved, and the other dot folders themselves."""
    for entry in store.children(folder, hidden=True):
        dotted = entry.path.name.startswith(".")
        if entry.kind != "folder":
            if inside and entry.kind != "symlink":
                yield entry
        elif inside or not dotted or entry.path.name in MOVED_DOT_FOLDERS:
            yield from _hidden_files(store, entry.path, inside or dotted)
        else:
            yield entry


def _hidden_objects(store: Store, objects: Objects) -> Iterator[Entry]:
    """The objects in the dot folders that are moved."""
    for one in objects.below():
        dotted = next((piece for piece in one.key.split("/") if piece.startswith(".")), "")
        if dotted in MOVED_DOT_FOLDERS:
            with suppress(Problem):  # a tombstone, or a key that is no path
                yield store.stat(NotePath.parse(one.key), hidden=True)
