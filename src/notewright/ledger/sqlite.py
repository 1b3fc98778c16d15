"""The ledger of one workspace in one SQLite file."""

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from notewright.errors import Problem
from notewright.ledger.base import Actor, Change, ChangeQuery, State, Step, no_op
from notewright.notes.path import NotePath
from notewright.sqlite_file import open_file, set_up, translate_errors

_CHANGE = "seq, id, at, user, client, surface, tool, summary, state, undone_by, emptied, made"

MAX_REMEMBERED_PATHS = 4096  # whose last versions written here are remembered
MIN_CACHED_STEPS, MAX_CACHED_STEPS, MAX_CACHED_CHANGES = 100, 10_000, 4  # of long changes that are remembered

MIGRATIONS = (
    """
    create table change(
        seq integer primary key,
        id text not null unique,
        at real not null,
        user text not null, client text not null, surface text not null, tool text not null,
        summary text not null,
        state text not null,
        undone_by text,
        emptied text not null, made text not null       -- JSON lists of folders
    );
    create index change_open on change(seq) where state = 'recorded';
    create index change_at on change(at);
    create table step(
        change integer not null references change(seq) on delete cascade,
        place integer not null,
        path text not null,
        before text, after text, source text,
        primary key(change, place)
    ) without rowid;
    create index step_path on step(path, after);
    create table undo(
        change integer not null references change(seq) on delete cascade,
        undone text not null,
        primary key(change, undone)
    ) without rowid;
    create table blob(version text primary key, data blob not null);
    create table born(path text primary key, at real not null) without rowid;
    """,
)


class SqliteLedger:
    """One connection, used by one thread at a time; other processes have their own on the same file."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._log = f"{db.filename}-wal" if db.filename else None
        self._lock = threading.RLock()
        self._own_commits = 0  # SQLite counts only those of other connections
        self._open_changes: dict[str, Change] = {}  # recorded here and not closed yet: need not be read again
        self._last_versions: dict[str, tuple[str | None, ...]] = {}  # by path: of the last two changes recorded here
        self._long_steps: dict[str, tuple[Step, ...]] = {}  # of some changes that are done: these stay as they are
        self._unclosed: dict[str, tuple[State, tuple[Step, ...] | None]] = {}  # to be closed; again if a disk was full
        # SQLite syncs no commit; `_sync` syncs its write-ahead log where one must be durable.
        pragmas = "pragma synchronous = normal; pragma foreign_keys = on; pragma secure_delete = on"
        set_up(db, "the history", pragmas, MIGRATIONS)
        db.wal_autocheckpoint(4000)

    @classmethod
    def open(cls, folder: Path) -> "SqliteLedger":
        """The ledger kept in `folder`, which is made if it is not there."""
        return cls(open_file(folder / "ledger.db", "the history"))

    @classmethod
    def in_memory(cls) -> "SqliteLedger":
        """A ledger that ends with its process."""
        return cls(apsw.Connection(":memory:"))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def take_over(self, other: "SqliteLedger") -> int | None:
        """Become a copy of another ledger, and return the number of its changes. None, and nothing is done, where this
        one has a change that the other lacks."""
        ids = "select id from change"
        with self._lock, other._lock, translate_errors("the history"):
            theirs = {id for (id,) in other._db.execute(ids)}
            if any(id not in theirs for (id,) in self._db.execute(ids)):
                return None
            with self._db.backup("main", other._db, "main") as copying:
                while not copying.done:
                    copying.step(1000)
            self._own_commits += 1
            self._sync()
        return len(theirs)

    # Recording changes

    def record(
        self, change: Change, blobs: Mapping[str, bytes], *following: Change, meanwhile: Callable[[], None] = no_op
    ) -> None:
        with self._lock:
            with self._transaction() as db:
                for one in (change, *following):
                    _insert_change(db, one)
                db.executemany("insert or ignore into blob values(?, ?)", blobs.items())
            try:
                self._sync(meanwhile)
            except BaseException:  # the caller gets an error, so the change must not happen after all
                self._unclosed.update((one.id, ("taken_back", None)) for one in (change, *following))
                with suppress(Problem):
                    self._close_changes()
                raise
        last = self._last_versions
        for one in (change, *following):
            self._open_changes[one.id] = one
            last.update((step.path, (step.after, *last.get(step.path, ())[:1])) for step in one.steps)
        if len(last) > MAX_REMEMBERED_PATHS:
            last.clear()

    def close_change(self, change_id: str, state: State, *, steps: tuple[Step, ...] | None = None) -> None:
        with self._lock:
            self._unclosed[change_id] = state, steps
        self._close_changes()

    def _close_changes(self) -> None:
        """Close the changes that wait for it; retried until it succeeds: a refused change must not happen after all."""
        with self._lock:
            while self._unclosed:
                change_id, (state, steps) = next(iter(self._unclosed.items()))
                self._close_change(change_id, state, steps, self._open_changes.get(change_id))
                del self._unclosed[change_id]
                self._open_changes.pop(change_id, None)

    def _steps(self, seq: int, change_id: str, state: State) -> tuple[Step, ...]:
        """The steps of a change; an undo asks for those of one long change again for each of its notes."""
        steps = self._long_steps.get(change_id)
        if steps is None:
            steps = _read_steps(self._db, seq)
            if state == "done" and MIN_CACHED_STEPS <= len(steps) <= MAX_CACHED_STEPS:
                if len(self._long_steps) >= MAX_CACHED_CHANGES:
                    self._long_steps.clear()
                self._long_steps[change_id] = steps
        return steps

    def _close_change(self, change_id: str, state: State, steps: tuple[Step, ...] | None, known: Change | None) -> None:
        """Close one change. `known`: the change, if this process recorded it."""
        closed = "update change set state = ? where id = ? and state = 'recorded'"
        if known and steps is None and (state != "done" or not (known.undoes or any(map(_is_new, known.steps)))):
            with translate_errors("the history"):
                self._db.execute(closed, (state, change_id))  # a transaction of its own
                self._own_commits += 1
            return
        with self._transaction() as db:
            found: list[Any] = db.execute(f"{closed} returning seq, at", (state, change_id)).fetchall()
            if not found:
                return  # closed already
            ((seq, at),) = found
            if steps is not None:
                db.execute("delete from step where change = ?", (seq,))
                _insert_steps(db, seq, steps)
            if state == "done":
                undone = known.undoes if known else _read_undoes(db, seq)
                _mark_undone(db, undone, change_id)
                made = steps if steps is not None else known.steps if known else _read_steps(db, seq)
                _set_birth_times(db, made, at, restores=bool(undone))

    # Reading the history

    def data_version(self) -> int:
        with self._lock, translate_errors("the history"):
            return self._own_commits + int(self._db.execute("pragma data_version").get)

    def find_unfinished(self) -> list[Change]:
        if self._unclosed:
            self._close_changes()
        return self._changes("where state = 'recorded' order by seq", ())

    def change(self, change_id: str) -> Change | None:
        found = self._changes("where id = ?", (change_id,))
        return found[0] if found else None

    def find_changes(self, query: ChangeQuery) -> list[Change]:
        conditions: dict[str, tuple[Any, ...]] = {"state = 'done'": ()}
        if query.path is not None:
            inside = (query.path, query.path + "/", query.path + "0")  # "0" is the character after "/"
            conditions["seq in (select change from step where path = ? or (path > ? and path < ?))"] = inside
        for column, value in (
            ("at >=", query.since),
            ("at <", query.until),
            ("client =", query.client),
            ("user =", query.user),
        ):
            if value is not None:
                conditions[f"{column} ?"] = (value,)
        values = [value for each in conditions.values() for value in each]
        where = " and ".join(conditions)
        return self._changes(f"where {where} order by seq desc limit ? offset ?", (*values, query.limit, query.offset))

    def _changes(self, which: str, values: tuple[Any, ...]) -> list[Change]:
        with self._lock, translate_errors("the history"):
            rows: list[Any] = self._db.execute(f"select {_CHANGE} from change {which}", values).fetchall()
            return [
                Change(
                    name, at, Actor(user, client, surface, tool), summary, self._steps(seq, name, state), state,
                    _read_undoes(self._db, seq), undone_by, tuple(json.loads(emptied)), tuple(json.loads(made)),
                )
                for seq, name, at, user, client, surface, tool, summary, state, undone_by, emptied, made in rows
            ]  # fmt: skip

    def blob(self, version: str) -> bytes | None:
        found = self._rows("select data from blob where version = ?", (version,))
        return bytes(found[0][0]) if found else None

    def has_written(self, path: str, version: str) -> bool:
        if version in self._last_versions.get(path, ()):
            return True
        return bool(self._rows("select 1 from step where path = ? and after = ? limit 1", (path, version)))

    def find_blob(self, path: str, prefix: str) -> bytes | None:
        versions = _versions_sql("path = :path")
        question = f"select data from blob where version in ({versions}) and substr(version, 1, length(:head)) = :head"
        found = self._rows(f"{question} limit 2", {"path": path, "head": prefix.lower()})
        return bytes(found[0][0]) if len(found) == 1 else None

    def find_departures(self, path: str) -> list[tuple[float, NotePath | None]]:
        rows = self._rows(
            """select c.at, t.path from step s join change c on c.seq = s.change
            left join step t on t.change = s.change and t.source = s.path
            where s.path = ? and s.after is null and c.state = 'done' order by c.seq""",
            (path,),
        )
        return [(float(at), None if to is None else NotePath(to)) for at, to in rows]

    def first_seen(self, paths: Iterable[str]) -> dict[str, float]:
        question = "select path, at from born where path in (select value from json_each(?))"
        return {str(path): float(at) for path, at in self._rows(question, (json.dumps(list(paths)),))}

    def _rows(self, question: str, values: Any) -> list[Any]:
        with self._lock, translate_errors("the history"):
            return self._db.execute(question, values).fetchall()

    # Removing old data

    def purge(self, path: str) -> int:
        with self._transaction() as db:
            names = json.dumps(sorted(_names_of(db, path)))
            theirs = _versions_sql("path in (select value from json_each(:names))")
            needed = _versions_sql("change in (select seq from change where state = 'recorded')")
            db.execute(f"delete from blob where version in ({theirs}) and version not in ({needed})", {"names": names})
            gone = db.changes()
        self._sync()
        self._checkpoint()  # the write-ahead log still held them
        return gone

    def trim(self, *, keep_days: float, keep_bytes: int, now: float) -> None:
        with self._lock, translate_errors("the history"):
            old = self._db.execute("select max(seq) from change where at < ?", (now - keep_days * 86_400,)).get
            cut = max(old or 0, _find_cut(self._db, keep_bytes))
        if not cut:
            return  # as on most days: without a write lock
        with self._transaction() as db:
            db.execute("delete from change where seq <= ? and state <> 'recorded'", (cut,))
            db.execute(f"delete from blob where version not in ({_versions_sql('true')})")
        self._checkpoint()

    def _checkpoint(self) -> None:
        with self._lock, translate_errors("the history"):
            try:
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                pass  # a reader in another process still needs it; the next checkpoint does it

    def _sync(self, meanwhile: Callable[[], None] = no_op) -> None:
        """Sync the write-ahead log: all commits are on disk when it returns, as with `synchronous = full`."""
        from notewright.disk_sync import Sync

        with translate_errors("the history"):
            sync = Sync(os.open(self._log, os.O_RDONLY | os.O_CLOEXEC), whole=False) if self._log else None
            try:
                meanwhile()
            finally:
                if sync is not None:
                    sync.wait()

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """A transaction for this block; durable with the next `_sync`."""
        with self._lock, translate_errors("the history"):
            self._db.execute("begin immediate")
            try:
                yield self._db
                self._db.execute("commit")
                self._own_commits += 1
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise


def _versions_sql(of: str) -> str:
    """SQL for the versions in the steps that match a condition, before and after."""
    sides = (f"select {side} from step where {side} is not null and {of}" for side in ("before", "after"))
    return " union ".join(sides)


def _insert_change(db: apsw.Connection, change: Change) -> None:
    actor = change.actor
    db.execute(
        f"insert into change({_CHANGE}) values(null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (change.id, change.at, actor.user, actor.client, actor.surface, actor.tool, change.summary,
         change.state, change.undone_by, _to_json(change.emptied), _to_json(change.made)),
    )  # fmt: skip
    seq = db.last_insert_rowid()
    _insert_steps(db, seq, change.steps)
    if change.undoes:
        db.executemany("insert into undo values(?, ?)", [(seq, undone) for undone in change.undoes])
    old = [(step.path, step.modified) for step in change.steps if step.modified is not None]
    if old:
        db.executemany("insert or ignore into born values(?, ?)", old)  # true whatever becomes of the change


def _to_json(folders: tuple[str, ...]) -> str:
    return json.dumps(folders) if folders else "[]"


def _insert_steps(db: apsw.Connection, seq: int, steps: tuple[Step, ...]) -> None:
    rows = [(seq, place, step.path, step.before, step.after, step.source) for place, step in enumerate(steps)]
    db.executemany("insert into step values(?, ?, ?, ?, ?, ?)", rows)


def _read_steps(db: apsw.Connection, seq: int) -> tuple[Step, ...]:
    rows = db.execute("select path, before, after, source from step where change = ? order by place", (seq,))
    return tuple(
        Step(NotePath(path), before, after, None if source is None else NotePath(source))
        for path, before, after, source in rows
    )


def _mark_undone(db: apsw.Connection, undoes: tuple[str, ...], change_id: str) -> None:
    """The changes that this one takes back are undone. What an undo among them had undone stands again, unless it is
    among them too, and so on down the chain."""
    marks = deque[tuple[tuple[str, ...], str | None]]([(undoes, change_id)])
    while marks:
        names, by = marks.popleft()
        among = set(names)
        db.executemany("update change set undone_by = ? where id = ?", [(by, name) for name in names])
        for name in names:
            found = db.execute("select seq from change where id = ?", (name,)).fetchone()
            below = () if found is None else _read_undoes(db, found[0])
            if by is None:
                marks.append((below, name))
            else:
                marks.append((tuple(one for one in below if one not in among), None))


def _read_undoes(db: apsw.Connection, seq: int) -> tuple[str, ...]:
    return tuple(str(name) for (name,) in db.execute("select undone from undo where change = ?", (seq,)))


def _is_new(step: Step) -> bool:
    return step.before is None and step.after is not None


def _set_birth_times(db: apsw.Connection, steps: Iterable[Step], at: float, *, restores: bool) -> None:
    """A new note is born now; a moved one keeps its time, and one that undo brings back has kept it."""
    for step in filter(_is_new, steps):
        if step.source is not None:
            db.execute("delete from born where path = ?", (step.path,))
            db.execute("insert into born select ?, at from born where path = ?", (step.path, step.source))
        else:
            verb = "ignore" if restores else "replace"
            db.execute(f"insert or {verb} into born values(?, ?)", (step.path, at))


def _names_of(db: apsw.Connection, path: str) -> set[str]:
    """Every name a note had, found by following its moves both ways."""
    names, new = set[str](), {path}
    while new:
        names |= new
        paths = json.dumps(sorted(new))
        rows = db.execute(
            "select path, source from step where source is not null and"
            " (path in (select value from json_each(?1)) or source in (select value from json_each(?1)))",
            (paths,),
        )
        new = {name for row in rows for name in row} - names
    return names


def _find_cut(db: apsw.Connection, keep_bytes: int) -> int:
    """The newest change to give up so that the bytes of all later ones fit; 0 where everything fits."""
    total = db.execute("select coalesce(sum(length(data)), 0) from blob").get
    if total <= keep_bytes:
        return 0
    kept, seen = 0, set[str]()
    for seq, before, after in db.execute("select change, before, after from step order by change desc"):
        for version in {before, after} - seen - {None}:
            seen.add(version)
            kept += db.execute("select coalesce(max(length(data)), 0) from blob where version = ?", (version,)).get
        if kept > keep_bytes:
            return int(seq)
    return 0
