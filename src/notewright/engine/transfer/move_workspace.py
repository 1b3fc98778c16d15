"""Move the files of a workspace to another folder or bucket: copied, read back and compared by hash.

The old place is only read. A journal beside the history of the new place records what was copied, so that a move that
was killed is resumed, and one that is run again later carries over what has changed since. In the new place nothing is
overwritten that is not of this move, and nothing is removed once the move was complete. Inside one service the objects
are copied by the service, and their ETags are compared.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewright.engine.changes.batch_write import SkippedFile
from notewright.engine.transfer.backup import Report
from notewright.errors import Busy, Conflict, Exists, Forbidden, Invalid, NoSpace, NotFound, Problem, Unavailable
from notewright.locks import lock_file
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Objects, Store, Stored, Swap

JOURNAL = "move.jsonl"
_MARK = "notewright-move"
_FORMAT = 1
_OP = "move-workspace"
MAX_ROUNDS = 4  # of copying what changed meanwhile, before the old place is locked for the last round
MAX_TRIES = 2  # to copy a file whose copy differs
BATCH_FILES, BATCH_BYTES = 64, 32 << 20  # held in memory at a time
MAX_NAMED = 3  # files named in an error
UNVERIFIED = "it is not known to be the same yet: run it again"
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
        self.copied: dict[NotePath, tuple[str, str]] = {}  # the same in both places: its stamps here and there
        self._last: dict[NotePath, tuple[str, str]] = {}
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
            self.write([[_MARK, _FORMAT, source]])

    def plan(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Record what is about to be written, by its hash or ETag: such a file may be overwritten."""
        self._record(["plan", path, mark] for path, mark in wanted)

    def confirm(self, files: Iterable[tuple[Entry, Entry]]) -> None:
        """Record files that were compared and are the same in both places."""
        self._record(
            line for old, new in files for line in (["done", old.path, old.stamp, new.stamp], ["same", old.path])
        )

    def complete(self) -> None:
        self._record([["end", ""]])

    def _record(self, lines: Iterable[list[str]]) -> None:
        recorded = list(lines)
        for line in recorded:
            self._apply(*line)
        self.write(recorded)

    def write(self, lines: Iterable[list[Any]]) -> None:
        self._file.writelines(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)
        self._file.flush()

    def _apply(self, what: str, path: str, *rest: str) -> None:
        key = NotePath(path)
        if what == "plan":
            self.planned.setdefault(path, set()).add(rest[0])
        elif what == "done":
            self._last[key] = rest[0], rest[1]
            self.planned.setdefault(path, set()).update(rest[1:])
        elif what == "same" and key in self._last:
            self.copied[key] = self._last[key]
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
        self.tries = Counter[NotePath]()  # of files whose copies differ
        self.written: dict[NotePath, tuple[str, str] | None] = {}  # hash, stamp; None: by the service
        self.new: dict[NotePath, int] = {}  # copied by this run, with their sizes
        self.steps = 0  # for the report each file counts twice: copied, and compared

    def copy_changes(self) -> bool:
        """Make the new place equal to the old one as it is now; whether anything differed."""
        self.wanted, self.left_out = _list(self.source)
        there, _ = _list(self.target)
        if not self.journal.is_complete:
            _refuse_strangers(there.keys() - self.wanted.keys() - self.journal.planned.keys())
        gone = self._remove_gone(there)
        self.failed = {path: failure for path, failure in self.failed.items() if path in self.wanted}
        todo = [entry for entry in self.wanted.values() if not self._is_done(entry, there.get(entry.path))]
        self.steps = 2 * (len(self.wanted) - len(todo))
        for batch in _batches(todo):
            self._copy(batch, there)
            self._report(len(batch))
        self._verify()
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

    def _report(self, more: int) -> None:
        self.steps += more
        self.report(self.steps, 2 * len(self.wanted))

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

    # Copying

    def _copy(self, batch: Sequence[Entry], there: dict[NotePath, Entry]) -> None:
        left = self._copy_in_service(batch, there)
        found = self.source.read_many([entry.path for entry in left], hidden=True)
        swaps: list[tuple[Swap, Stored]] = []
        for entry, stored in zip(left, found, strict=True):
            if isinstance(stored, NotFound):
                continue  # moved meanwhile: the next round has it
            if isinstance(stored, Problem):
                self._fail(entry, _file_problem(stored))
                continue
            self.wanted[entry.path] = stored.entry
            if (swap := self._plan_swap(stored, entry.path in there)) is not None:
                swaps.append((swap, stored))
        self.journal.plan((swap.path, stored.version) for swap, stored in swaps)
        while swaps:
            outcomes = self.target.write_many([swap for swap, _ in swaps], op=_OP, hidden=True)
            for (_, stored), outcome in zip(swaps, outcomes, strict=False):  # a folder stops at a problem
                if isinstance(outcome, Problem):
                    self._fail(stored.entry, _file_problem(outcome))
                elif outcome is not None:
                    path, stamp = outcome.entry.path, outcome.entry.stamp
                    if self.target.objects is None:  # a file keeps its time of change, an object cannot
                        times = (stored.entry.modified_ns,) * 2
                        with suppress(OSError):
                            os.utime(self.target.full_path(path), ns=times, follow_symlinks=False)
                        stamp = self.target.stat(path, hidden=True).stamp
                    self.written[path] = stored.version, stamp
                    self.new[path] = len(stored.data)
            swaps = swaps[len(outcomes) :]

    def _copy_in_service(self, batch: Sequence[Entry], there: dict[NotePath, Entry]) -> list[Entry]:
        """Let the service copy what it can; the files that have to be read and written."""
        ours, theirs = self.target.objects, self.source.objects
        if ours is None or theirs is None or ours.service != theirs.service:
            return list(batch)
        known = self.journal.copied if self.journal.is_complete else {}
        free = [
            entry
            for entry in batch
            if ((now := there.get(entry.path)) is None and entry.path not in known)
            or (now is not None and now.stamp in self.journal.planned.get(entry.path, ()))
        ]
        self.journal.plan((entry.path, entry.stamp) for entry in free)
        copied = ours.each(lambda entry: ours.copy(theirs, entry.path, entry.path), free)
        done = {entry.path: entry.size for entry, is_there in zip(free, copied, strict=True) if is_there}
        self.new |= done
        self.written |= dict.fromkeys(done)
        return [entry for entry in batch if entry.path not in done]

    def _plan_swap(self, stored: Stored, is_there: bool) -> Swap | None:
        """The write that copies a file to the new place; None where it is there already, or something else is."""
        path = stored.entry.path
        now = None
        if is_there:
            with suppress(NotFound):
                now = self.target.read(path, hidden=True)
        elif self.journal.is_complete and path in self.journal.copied:
            self._fail(stored.entry, "it was deleted in the new place, and changed in the old one")
            return None
        if now is None:
            return Swap(path, stored.data, None)
        if now.version == stored.version:
            self.journal.confirm([(stored.entry, now.entry)])
            return None
        if self._is_ours(now):
            return Swap(path, stored.data, now.version, settled=True)
        self._fail(stored.entry, "another file of that name is in the new place, and stays as it is")
        return None

    # Comparing

    def _verify(self) -> None:
        """Compare what was copied: read it back, or compare the ETags of what the service copied. A file that differs
        is copied again in the next round."""
        if not self.written:
            return
        there, _ = _list(self.target)
        inside = [self.wanted[path] for path, wrote in self.written.items() if wrote is None and path in there]
        same = {entry.path: (entry, there[entry.path]) for entry in inside if there[entry.path].stamp == entry.stamp}
        self.journal.confirm(same.values())
        self._report(len(same))
        for batch in _batches([self.wanted[path] for path in self.written if path not in same]):
            self._compare(batch)
            self._report(len(batch))
        self.written.clear()

    def _compare(self, batch: Sequence[Entry]) -> None:
        same = []
        for entry, now in zip(batch, self.target.read_many([one.path for one in batch], hidden=True), strict=True):
            if isinstance(now, NotFound):
                self._fail(entry, "it is not in the new place under this name")
                continue
            if isinstance(now, Problem):
                raise now
            wrote = self.written[entry.path]
            expected = wrote[0] if wrote is not None else None
            if wrote is None:  # copied by the service; where the old file changed meanwhile, nothing is expected
                with suppress(NotFound):
                    stored = self.source.read(entry.path, hidden=True)
                    expected = stored.version if stored.entry.stamp == entry.stamp else None
            if now.version == expected:
                same.append((entry, now.entry))
            elif wrote is not None and now.entry.stamp != wrote[1]:
                self._fail(entry, "it was changed in the new place, and stays so")
            else:
                self.journal.plan([(entry.path, now.version)])  # it is ours, so it may be overwritten
                self.tries[entry.path] += expected is not None
                if self.tries[entry.path] >= MAX_TRIES:
                    self._fail(entry, "its bytes in the new place are not those of the old one")
        self.journal.confirm(same)


def _file_problem(problem: Problem) -> str:
    """The message of a problem with this file only; any other ends the move."""
    if isinstance(problem, Forbidden | Exists | Conflict | Invalid | NotFound):
        return problem.message
    raise problem


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
