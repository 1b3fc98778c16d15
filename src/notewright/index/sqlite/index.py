"""The index in SQLite: one folder for each workspace, shared by every process that serves it."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

import apsw

from notewright.index.base import (
    Body,
    Build,
    Facts,
    Filed,
    Filing,
    Generation,
    Hits,
    LinkRow,
    Needles,
    Progress,
    Query,
    Selection,
    Visible,
    everything,
)
from notewright.index.sqlite import queries
from notewright.index.sqlite.build import SqliteBuild
from notewright.index.sqlite.evidence import noting_counts, noting_places
from notewright.index.sqlite.generations import DAMAGE, TROUBLE, Generations, Identity, in_words
from notewright.index.sqlite.grep_candidates import narrowed_bodies
from notewright.index.sqlite.rows import Row, put, row_of
from notewright.index.sqlite.schema import Connection, open_index
from notewright.index.sqlite.search import search
from notewright.index.sqlite.vocabulary import Vocabulary
from notewright.notes.model import Heading
from notewright.notes.path import NotePath

T = TypeVar("T")
IDLE = 16  # connections kept open between questions
LINKS_AT_ONCE = 2_000  # notes whose links are read in one go


class _Held(threading.local):
    """The connection that a thread asks everything of, from one moment."""

    con: Connection | None = None
    identity: Identity = (0, 0)  # of the index it reads


class SqliteIndex:
    """Implements `Index`. Whatever happens to its files, it answers: from a new, empty index if need be."""

    def __init__(self, folder: Path) -> None:
        self._places = Generations(folder)
        self._idle: list[tuple[Identity, Connection]] = []
        self._vocabulary = ("", Vocabulary())
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._writer: tuple[Identity, Connection] | None = None
        self._whole: tuple[tuple[str, Identity], Generation] | None = None
        self._held = _Held()

    @classmethod
    def open(cls, folder: Path) -> "SqliteIndex":
        index = cls(folder)
        try:
            index._places.current()
        except TROUBLE as error:
            raise in_words(error) from error
        return index

    def close(self) -> None:
        with self._writing, self._lock:
            for _, con in self._idle:
                con.close()
            self._idle.clear()
            if self._writer:
                self._writer[1].close()
                self._writer = None

    # ---- connections ----------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Answered by the index that stands now; one that turns out damaged is begun anew and asked again."""
        try:
            return self._asked(question)
        except TROUBLE as error:
            raise in_words(error) from error

    def _asked(self, question: Callable[[Connection], T]) -> T:
        for _ in range(3):
            identity = self._held.identity if self._held.con is not None else self._places.current()
            try:
                return self._answer(identity, question)
            except (*DAMAGE, apsw.SQLError, UnicodeDecodeError, JSONDecodeError) as error:
                if not _is_damage(error):
                    raise
                self._places.discard(identity)
        return self._answer(self._places.current(), question)

    @contextmanager
    def steady(self) -> Iterator[None]:
        if self._held.con is not None:
            yield  # inside another
            return
        identity, con = self._begun()
        self._held.con, self._held.identity = con, identity
        try:
            yield
        finally:
            if self._held.con is con:
                self._held.con = None
                con.db.execute("rollback")
                self._give_back(identity, con)

    def _begun(self) -> tuple[Identity, Connection]:
        """A connection whose transaction has begun; the moment it shows is that of the first question."""

        def begin() -> tuple[Identity, Connection]:
            identity = self._places.current()
            try:
                con = self._borrow(identity)
                con.db.execute("begin")
            except DAMAGE:
                self._places.discard(identity)
                raise
            return identity, con

        try:
            for _ in range(3):
                with suppress(*DAMAGE):
                    return begin()
            return begin()
        except TROUBLE as error:
            raise in_words(error) from error

    def _answer(self, identity: Identity, question: Callable[[Connection], T]) -> T:
        con, self._held.con = self._held.con, None
        if con is not None:
            try:
                answer = question(con)
            except BaseException:  # nothing more is asked of it; `generation` tells whether the index was lost
                con.close(force=True)
                raise
            self._held.con = con
            return answer
        con = self._borrow(identity)
        try:
            answer = question(con)
        except BaseException:
            con.close(force=True)
            raise
        self._give_back(identity, con)
        return answer

    def _borrow(self, identity: Identity) -> Connection:
        with self._lock:
            while self._idle:
                known, con = self._idle.pop()
                if known == identity:
                    return con
                con.close()
        con = open_index(self._places.door)
        con.db.register_fts5_function("places", noting_places(con))
        con.db.register_fts5_function("counts", noting_counts(con))
        con.db.create_scalar_function("folded", _folded, 1, deterministic=True)
        return con

    def _give_back(self, identity: Identity, con: Connection) -> None:
        with self._lock:
            if len(self._idle) < IDLE:
                self._idle.append((identity, con))
                return
        con.close()

    def _words(self, con: Connection) -> Vocabulary:
        """What is remembered of the words of the index this connection is to: the current one may be another by now."""
        with self._lock:
            if self._vocabulary[0] != con.name:
                self._vocabulary = (con.name, Vocabulary())
            return self._vocabulary[1]

    # ---- filing ---------------------------------------------------------------------------------------

    def file(self, filings: Iterable[Filing], *, drop: Iterable[str] = ()) -> None:
        rows, dropped = [row_of(filing) for filing in filings], list(drop)
        if rows or dropped:
            self._write(lambda con: _file(con, rows, dropped))

    def touched(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        if self._ask(lambda con: con.value("select value from meta where key='building'")) is not None:
            self._write(lambda con: _touch(con, listed))

    def generation(self) -> Generation:
        """One that is whole stays so, and is known by its place: most calls ask for this, before and after."""
        place = self._places.place()
        known = self._whole
        if known is not None and known[0] == place:
            return known[1]
        held, self._held.con = self._held.con, None  # the one that answers now, not the one of that moment
        try:
            answer = self._ask(_generation)
        finally:
            self._held.con = held
        if answer.whole and place is not None:
            self._whole = (place, answer)
        return answer

    def settled(self, name: str) -> None:
        """Only the index of that name: another may have taken its place meanwhile."""
        this = "exists (select 1 from meta where key='name' and value=?)"
        self._write(lambda con: con.rows(f"update meta set value=0 where key='wanting' and {this}", (name,)))

    def _write(self, change: Callable[[Connection], object]) -> None:
        """One transaction, behind the gate: the index cannot be changed for another meanwhile."""
        try:
            self._written(change)
        except TROUBLE as error:
            raise in_words(error) from error

    def _written(self, change: Callable[[Connection], object]) -> None:
        for attempt in range(3):
            self._places.current()
            with self._writing, self._places.gate():
                identity = self._places.standing()
                if identity is None:
                    continue
                try:
                    con = self._write_connection(identity)
                    with _transaction(con):
                        change(con)
                        con.rows("update meta set value=value+1 where key='serial'")
                    return
                except (*DAMAGE, apsw.SQLError) as error:
                    self._writer = None
                    if attempt == 2 or not _is_damage(error):
                        raise
            self._places.discard(identity)

    def _write_connection(self, identity: Identity) -> Connection:
        if self._writer is None or self._writer[0] != identity:
            if self._writer is not None:
                self._writer[1].close()
            self._writer = (identity, open_index(self._places.door, writing=True))
        return self._writer[1]

    def rebuilding(self, total: int) -> AbstractContextManager[Build]:
        return SqliteBuild(self._places, self._write, total)

    # ---- questions ------------------------------------------------------------------------------------

    def stamps(self) -> Iterator[tuple[str, str]]:
        def read(con: Connection) -> list[tuple[str, str]]:
            return list(con.rows("select path, stamp from files order by path"))

        yield from self._ask(read)

    def filed(self, path: str) -> Filed | None:
        return self._ask(lambda con: queries.filed(con, path))

    def select(self, selection: Selection) -> tuple[list[Filed], int]:
        return self._ask(lambda con: queries.select(con, selection))

    def bearing(self, key: str) -> Sequence[NotePath]:
        return self._ask(lambda con: queries.by_name(con, key))

    def bearing_each(self, keys: Iterable[str]) -> dict[str, list[NotePath]]:
        wanted = list(keys)
        return self._ask(lambda con: queries.by_names(con, wanted))

    def aliased(self, key: str) -> Sequence[NotePath]:
        return self._ask(lambda con: queries.aliased(con, key))

    def titled(self, key: str) -> Sequence[NotePath]:
        return self._ask(lambda con: queries.titled(con, key))

    def slugged(self, slug: str) -> Sequence[NotePath]:
        return self._ask(lambda con: queries.slugged(con, slug))

    def names_like(self, key: str, *, limit: int = 200, visible: Visible = everything) -> list[NotePath]:
        return self._ask(lambda con: queries.names_like(con, key, limit=limit, visible=visible))

    def other_names(self, path: str) -> list[str]:
        return self._ask(lambda con: queries.other_names(con, path))

    def folders(self, *, below: str = "", visible: Visible = everything) -> list[tuple[str, int]]:
        return self._ask(lambda con: queries.folders(con, below, visible=visible))

    def links_from(self, path: str) -> list[LinkRow]:
        return self._ask(lambda con: queries.links_from(con, path))

    def all_links(self) -> Iterator[LinkRow]:
        paths = self._ask(
            lambda con: [path for (path,) in con.rows("select path from files where note=1 order by path")]
        )
        before = ""
        for start in range(0, len(paths), LINKS_AT_ONCE):
            yield from self._ask(lambda con, after=before: queries.all_links(con, after, LINKS_AT_ONCE))  # type: ignore[misc]
            before = paths[min(start + LINKS_AT_ONCE, len(paths)) - 1]

    def links_toward(self, keys: Iterable[str]) -> list[LinkRow]:
        wanted = list(keys)
        return self._ask(lambda con: queries.links_toward(con, wanted))

    def headings(self, path: str) -> list[Heading]:
        return self._ask(lambda con: queries.headings(con, path))

    def tags(self, *, visible: Visible = everything) -> dict[str, int]:
        return self._ask(lambda con: queries.tags(con, visible=visible))

    def tagged(self, key: str) -> list[NotePath]:
        return self._ask(lambda con: queries.tagged(con, key))

    def tags_of(self, paths: Iterable[str]) -> dict[str, list[str]]:
        wanted = list(paths)
        return self._ask(lambda con: queries.tags_of(con, wanted))

    def properties(self, path: str) -> Mapping[str, Any]:
        return self._ask(lambda con: queries.properties(con, path))

    def property_of(self, key: str, paths: Iterable[str]) -> dict[str, Any]:
        wanted = list(paths)
        return self._ask(lambda con: queries.property_of(con, key, wanted))

    def search(self, query: Query) -> Hits:
        return self._ask(lambda con: _in_one_view(con, lambda: search(con, self._words(con), query)))

    def bodies(self, needles: Needles, *, folder: str = "", visible: Visible = everything) -> Iterator[list[Body]]:
        return narrowed_bodies(self._ask, self._words, needles, folder, visible)

    def text(self, path: str) -> str | None:
        return self._ask(lambda con: queries.text(con, path))

    def count(self) -> tuple[int, int]:
        return self._ask(lambda con: (con.number("select count(*) from files where note=1"),
                                      con.number("select count(*) from files where note=0")))  # fmt: skip

    def usage(self) -> tuple[int, int]:
        """Kept by triggers: counting would read every file's row at each write."""
        totals = dict(
            self._ask(lambda con: list(con.rows("select key, value from meta where key in ('files', 'bytes')")))
        )
        return totals["files"], totals["bytes"]

    def ending(self, *suffixes: str) -> list[NotePath]:
        return self._ask(lambda con: queries.ending(con, suffixes))

    def with_problem(self, problem: str) -> list[NotePath]:
        return self._ask(lambda con: queries.with_problem(con, problem))

    def alias_twins(self) -> list[tuple[str, list[NotePath]]]:
        return self._ask(queries.alias_twins)

    def progress(self) -> Progress:
        built = self._places.built()
        wanting = bool(self._ask(lambda con: con.number("select value from meta where key='wanting'")))
        if built is not None:
            return Progress(built[0], built[1] or None, True, wanting=wanting)
        notes, _ = self.count()
        return Progress(notes, None if wanting else notes, False, wanting=wanting)

    def facts(self) -> Facts:
        """Everything stored, for comparing."""
        return self._ask(
            lambda con: Facts({path: tuple(rows.items()) for path, rows in queries.everything_stored(con)})
        )


def _generation(con: Connection) -> Generation:
    known = dict(con.rows("select key, value from meta where key in ('name', 'wanting')"))
    return Generation(str(known.get("name")), known.get("wanting") == 0)


def _is_damage(error: Exception) -> bool:
    """The index does not hold what we put into it: a table that somebody removed, bytes that are no longer text."""
    return not isinstance(error, apsw.SQLError) or "no such" in str(error) or "malformed" in str(error)


def _folded(*path: object) -> str:
    return str(path[0]).casefold()


@contextmanager
def _transaction(con: Connection) -> Iterator[None]:
    """All of it or none. Begun by a statement: `with con.db` would wait for another writer without letting any other
    thread of ours run, that writer perhaps among them."""
    con.db.execute("begin immediate")
    try:
        yield
        con.db.execute("commit")
    except BaseException:
        if con.db.in_transaction:
            con.db.execute("rollback")
        raise


def _in_one_view(con: Connection, answer: Callable[[], T]) -> T:
    """All statements of one answer see the same moment."""
    with con.snapshot():
        return answer()


def _file(con: Connection, rows: Sequence[Row], dropped: Sequence[str]) -> None:
    put(con, rows, dropped)
    _touch(con, [*(str(row.file[0]) for row in rows), *dropped])


def _touch(con: Connection, paths: Sequence[str]) -> None:
    """While a build is under way, what changes is written down for it."""
    if con.value("select value from meta where key='building'") is not None:
        con.db.executemany("insert or ignore into touched values(?)", [(path,) for path in paths])
