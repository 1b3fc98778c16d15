"""Moving the files of a workspace to another place, folder or bucket: copied, read back and compared by hash.

The old place is only read. What was copied is written down in a journal beside the history of the new place, so that a
move that was killed goes on where it was, and one that is run again later carries over what has changed since. Nothing
that is not of this move is written over in the new place, and nothing is removed there once all has come. Inside one
service the objects are copied by the service, and their ETags are compared.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewright.engine.changes.batch_write import SkippedFile
from notewright.engine.transfer.backup import Report
from notewright.errors import Busy, Conflict, Exists, Forbidden, Invalid, NoSpace, NotFound, Problem, Unavailable
from notewright.locks import lock_file
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, Stored, Swap

JOURNAL = "move.jsonl"
_MARK = "notewright-move"
_FORMAT = 1
_OP = "move-workspace"
MAX_ROUNDS = 4  # how often what changed meanwhile is copied before others have to wait for the last round
MAX_TRIES = 2  # of a file whose copy is not the same
BATCH_FILES, BATCH_BYTES = 64, 32 << 20  # that are in memory at a time
MAX_NAMED = 3  # files that a refusal names
UNVERIFIED = "it is not known to be the same yet: run it again"
GONE = "it is gone from the old place and stays in the new one: delete it there if nobody needs it"
CARRIED = {".trash", ".backups", ".obsidian"}  # behind a dot, and yet used by tools, undo and daily notes


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What is in the new place now. `left_out` stays behind by rule; `failed` could not be moved."""

    files: int  # the same in both places
    copied: int  # of them now
    size: int  # bytes of those
    left_out: tuple[SkippedFile, ...] = ()
    failed: tuple[SkippedFile, ...] = ()


class MoveJournal:
    """What this move has done, one JSON list for each step. A last line that was cut off is as if it was not written:
    the file it tells of is compared again."""

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
        self.planned: dict[str, set[str]] = {}  # hashes and stamps of what is ours in the new place
        self.is_complete = False  # all of it came once: from then on the new place has a life of its own
        head, *lines = _lines(file) or [[]]
        if head[2:] != [source] and ["end", ""] in lines:
            self._file.truncate(0)
            head, lines = [], []
        if head and head != [_MARK, _FORMAT, source]:
            self._file.close()
            hint = f"finish that one, or remove {file}"
            raise Conflict(f"notes are being moved there from {head[-1]}", hint=hint, path=source, current=None)
        for line in lines:
            self._take(*line)
        if head:
            self._file.write("\n")  # after a line that was cut off
        else:
            self.write([[_MARK, _FORMAT, source]])

    def plan(self, wanted: Iterable[tuple[str, str]]) -> None:
        """What is about to be there, by its hash or ETag: who finds it may write over it."""
        self._record(["plan", path, mark] for path, mark in wanted)

    def done(self, files: Iterable[tuple[Entry, Entry]]) -> None:
        """These were compared, here and there."""
        self._record(
            line for old, new in files for line in (["done", old.path, old.stamp, new.stamp], ["same", old.path])
        )

    def complete(self) -> None:
        self._record([["end", ""]])

    def _record(self, lines: Iterable[list[str]]) -> None:
        told = list(lines)
        for line in told:
            self._take(*line)
        self.write(told)

    def write(self, lines: Iterable[list[Any]]) -> None:
        self._file.writelines(json.dumps(line, ensure_ascii=True) + "\n" for line in lines)
        self._file.flush()

    def _take(self, what: str, path: str, *rest: str) -> None:
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


def _lines(file: Path) -> list[list[Any]]:
    """The whole ones."""
    found = []
    with suppress(FileNotFoundError):
        for raw in file.read_text(encoding="utf-8").split("\n"):
            with suppress(ValueError):
                found.append(json.loads(raw))
    return found


def move_files(
    source: Store,
    target: Store,
    journal: MoveJournal,
    *,
    report: Report = lambda done, total: None,
    finish: Callable[[], None] = lambda: None,
) -> MoveResult:
    """Bring every file to the new place. `finish` is called at the end, while nobody can change the old place through
    us. Exists where other files are in the new place; what fails for one file only is in the result."""
    if target.objects is not None and target.objects.refuses_writes:
        raise Forbidden(f"the new place: {target.objects.refuses_writes}", hint="choose another")
    moving = _Move(source, target, journal, report)
    try:
        with target.lock():
            for _ in range(MAX_ROUNDS):
                if not moving.round():
                    break
            with source.lock():
                moving.round()
                moving.fail_unverified()
                result = moving.result()
                if not result.failed:
                    finish()
                    journal.complete()
    except (Unavailable, NoSpace, Busy) as problem:
        problem.hint = f"{problem.hint + '; ' if problem.hint else ''}run it again to go on"
        raise
    return result


def what_would_move(source: Store, target: Store | None) -> MoveResult:
    """The same without doing it, as far as a listing tells. No `target`: the place is to be made."""
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


@dataclass
class _Move:
    source: Store
    target: Store
    journal: MoveJournal
    report: Report
    wanted: dict[NotePath, Entry] = field(default_factory=dict)  # what the last round found in the old place
    left_out: list[SkippedFile] = field(default_factory=list)
    failed: dict[NotePath, tuple[str, str]] = field(default_factory=dict)  # with the stamp it failed for
    tries: Counter[NotePath] = field(default_factory=Counter)  # of a file whose copy was not the same
    written: dict[NotePath, tuple[str, str] | None] = field(default_factory=dict)  # hash, stamp; None: by the service
    new: dict[NotePath, int] = field(default_factory=dict)  # copied by this run, with their sizes
    steps: int = 0  # each file counts twice: copied, and found to be the same

    def round(self) -> bool:
        """Bring the new place to what the old one is now; whether anything was different."""
        self.wanted, self.left_out = _list(self.source)
        there, _ = _list(self.target)
        if not self.journal.is_complete:
            _refuse_strangers(there.keys() - self.wanted.keys() - self.journal.planned.keys())
        gone = self._gone(there)
        self.failed = {path: told for path, told in self.failed.items() if path in self.wanted}
        todo = [entry for entry in self.wanted.values() if not self._is_done(entry, there.get(entry.path))]
        self.steps = 2 * (len(self.wanted) - len(todo))
        for batch in _batches(todo):
            self._copy(batch, there)
            self._report(len(batch))
        self._verify()
        return bool(gone or todo)

    def _gone(self, there: dict[NotePath, Entry]) -> list[NotePath]:
        """Take back the copies of what is gone from the old place, unless somebody has changed them. Once the move was
        complete they are only named: the new place may be served, and the old one taken apart."""
        known = self.journal.copied if self.journal.is_complete else self.journal.planned
        if known and not self.wanted:
            hint = "is it mounted? nothing was removed"
            raise Conflict("the old place is empty now", hint=hint, path=next(iter(known)), current=None)
        gone = [path for path in there if path in known and path not in self.wanted]
        if self.journal.is_complete:
            self.left_out += [SkippedFile(path, "gone", GONE) for path in gone]
            return []
        ours = [now for now in (self.target.read(path, hidden=True) for path in gone) if self._is_ours(now)]
        for now in ours:
            self.target.delete(now.entry.path, seen=now.version, op=_OP, settled=True, hidden=True)
        return [now.entry.path for now in ours]

    def fail_unverified(self) -> None:
        """After the last round: what is not known to be the same has not come."""
        for path, entry in self.wanted.items():
            if path not in self.failed and not self._is_same(entry):
                self._fail(entry, UNVERIFIED)

    def result(self) -> MoveResult:
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
        left = self._copy_inside(batch, there)
        found = self.source.read_many([entry.path for entry in left], hidden=True)
        swaps: list[tuple[Swap, Stored]] = []
        for entry, stored in zip(left, found, strict=True):
            if isinstance(stored, NotFound):
                continue  # the next round knows where it is
            if isinstance(stored, Problem):
                self._fail(entry, _for_one_file(stored))
                continue
            self.wanted[entry.path] = stored.entry
            if (swap := self._swap(stored, entry.path in there)) is not None:
                swaps.append((swap, stored))
        self.journal.plan((swap.path, stored.version) for swap, stored in swaps)
        self._write(swaps)

    def _copy_inside(self, batch: Sequence[Entry], there: dict[NotePath, Entry]) -> list[Entry]:
        """Have the service copy what it can; those that have to be read and written."""
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

    def _swap(self, stored: Stored, is_there: bool) -> Swap | None:
        """What brings a file to the new place; None where it is there, or something else is."""
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
            self.journal.done([(stored.entry, now.entry)])
            return None
        if self._is_ours(now):
            return Swap(path, stored.data, now.version, settled=True)
        self._fail(stored.entry, "another file of that name is in the new place, and stays as it is")
        return None

    def _write(self, swaps: Sequence[tuple[Swap, Stored]]) -> None:
        left = list(swaps)
        while left:
            outcomes = self.target.write_many([swap for swap, _ in left], op=_OP, hidden=True)
            for (_, stored), outcome in zip(left, outcomes, strict=False):  # a folder stops at a problem
                if isinstance(outcome, Problem):
                    self._fail(stored.entry, _for_one_file(outcome))
                elif outcome is not None:
                    stamp = self._with_time(outcome.entry, stored.entry.modified_ns)
                    self.written[outcome.entry.path] = stored.version, stamp
                    self.new[outcome.entry.path] = len(stored.data)
            left = left[len(outcomes) :]

    def _with_time(self, written: Entry, modified_ns: int) -> str:
        """A file keeps the time it was changed, an object cannot; the stamp it has then."""
        if self.target.objects is not None:
            return written.stamp
        with suppress(OSError):
            os.utime(self.target.full_path(written.path), ns=(modified_ns, modified_ns), follow_symlinks=False)
        return self.target.stat(written.path, hidden=True).stamp

    # Comparing

    def _verify(self) -> None:
        """Read back what was copied; of what the service copied the ETags tell. What is not the same is copied again in
        the next round."""
        if not self.written:
            return
        there, _ = _list(self.target)
        inside = [self.wanted[path] for path, wrote in self.written.items() if wrote is None and path in there]
        same = {entry.path: (entry, there[entry.path]) for entry in inside if there[entry.path].stamp == entry.stamp}
        self.journal.done(same.values())
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
            expected = self._version_of_source(entry) if wrote is None else wrote[0]
            if now.version == expected:
                same.append((entry, now.entry))
            elif wrote is not None and now.entry.stamp != wrote[1]:
                self._fail(entry, "it was changed in the new place, and stays so")
            else:
                self.journal.plan([(entry.path, now.version)])  # it is ours, so it may be written over
                self.tries[entry.path] += expected is not None
                if self.tries[entry.path] >= MAX_TRIES:
                    self._fail(entry, "its bytes in the new place are not those of the old one")
        self.journal.done(same)

    def _version_of_source(self, entry: Entry) -> str | None:
        """None where it is no longer what was listed: it changed while the service copied it."""
        with suppress(NotFound):
            stored = self.source.read(entry.path, hidden=True)
            return stored.version if stored.entry.stamp == entry.stamp else None
        return None


def _for_one_file(problem: Problem) -> str:
    """Its words, where only this file is concerned; raises what ends the move."""
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
    """Every file that belongs to the workspace, and what does not come along."""
    files, left_out = dict[NotePath, Entry](), list[SkippedFile]()
    for entry in store.entries():
        if entry.kind == "symlink":
            left_out.append(SkippedFile(entry.path, "symlink", f"it is a symlink to {entry.real or entry.target}"))
        else:
            files[entry.path] = entry
    left_out += [SkippedFile(odd.path, "unreadable", odd.why) for odd in store.unlisted_files()]
    hidden = _hidden_objects(store) if store.objects is not None else _hidden_files(store, "", False)
    for entry in hidden:
        if entry.kind == "folder":
            left_out.append(SkippedFile(entry.path, "dotted", "its name begins with a dot"))
        elif entry.kind != "symlink":
            files[entry.path] = entry
    return files, left_out


def _hidden_files(store: Store, folder: str, inside: bool) -> Iterator[Entry]:
    """The files in the folders that are carried, and the other folders behind a dot."""
    for entry in store.children(folder, hidden=True):
        dotted = entry.path.name.startswith(".")
        if entry.kind != "folder":
            if inside and entry.kind != "symlink":
                yield entry
        elif inside or not dotted or entry.path.name in CARRIED:
            yield from _hidden_files(store, entry.path, inside or dotted)
        else:
            yield entry


def _hidden_objects(store: Store) -> Iterator[Entry]:
    assert store.objects is not None
    for one in store.objects.below():
        dotted = next((piece for piece in one.key.split("/") if piece.startswith(".")), "")
        if dotted in CARRIED:
            with suppress(Problem):  # a tombstone, or a key that is no path
                yield store.stat(NotePath.parse(one.key), hidden=True)
