"""The index in SQLite: one folder for each workspace, shared by every process that serves it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from notewright.index.base import (
    EVERYTHING,
    Body,
    Build,
    Filing,
    IndexedFile,
    IndexEdition,
    Needles,
    Progress,
    Query,
    SearchEvidence,
    Visibility,
)
from notewright.index.sqlite import evidence, queries
from notewright.index.sqlite.connections import IndexConnections
from notewright.index.sqlite.schema import VERSION, Connection
from notewright.index.sqlite.vocabulary import Vocabulary
from notewright.notes.path import NotePath

if TYPE_CHECKING:  # a question loads no module that fills an index
    from notewright.index.sqlite.rows import Row

T = TypeVar("T")
P = ParamSpec("P")
READ_AT_ONCE = 2_000  # notes
BATCH_BYTES = 4_000_000


def _question(
    answer: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate["SqliteIndex", P], T]:
    """Make a method that answers with a function of a connection."""

    def ask(self: "SqliteIndex", /, *args: P.args, **kwargs: P.kwargs) -> T:
        held = self.thread_snapshot.con
        if held is None:
            return self.ask(lambda con: answer(con, *args, **kwargs))
        try:
            return answer(held, *args, **kwargs)  # inside of a snapshot, as most questions are: called directly
        except BaseException as error:
            return self._connections.ask_after_failure(error, lambda con: answer(con, *args, **kwargs))

    return ask


class SqliteIndex:
    """Implements `Index`."""

    form = f"sqlite-{VERSION}"

    def __init__(self, folder: Path) -> None:
        self._connections = IndexConnections(folder)
        self.ask, self._write = self._connections.ask, self._connections.write
        self.snapshot, self.generation = self._connections.snapshot, self._connections.generation
        self.thread_snapshot = self._connections.thread_snapshot
        self._vocabulary = ("", Vocabulary())

    def close(self) -> None:
        self._connections.close()

    def progress(self) -> Progress:
        built = self._connections.generations.build_progress()
        if built is not None:
            return Progress(built[0], built[1] or None, True)
        notes = self.total("notes")
        return Progress(notes, notes if self.generation().whole else None, False)

    # ---- filing ---------------------------------------------------------------------------------------

    def file(self, filings: Iterable[Filing], *, drop: Iterable[str] = ()) -> None:
        from notewright.index.sqlite.rows import to_row

        rows, dropped = [to_row(filing) for filing in filings], list(drop)
        if rows or dropped:
            self._write(lambda con: _file(con, rows, dropped))

    def file_over(self, known: IndexedFile | None, filing: Filing) -> None:
        from notewright.index.sqlite.rows import to_row

        row = to_row(filing)

        def put(con: Connection) -> None:
            if queries.find_file(con, filing.path) == known:
                _file(con, [row], [])

        self._write(put)

    def prepare(self, filing: Filing) -> Filing:
        from notewright.index.sqlite.rows import cut_words, prepare_row, to_row

        row = prepare_row(to_row(filing))
        return filing._replace(ready=row._replace(words_met=self.ask(lambda con: cut_words(con, row))))

    def record_changes(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        if self.ask(lambda con: con.value("select value from meta where key='building'")) is not None:
            self._write(lambda con: _touch(con, listed))

    def mark_whole(self, name: str) -> None:
        """Only if it still has that name: another index may have replaced it meanwhile."""
        this = "exists (select 1 from meta where key='name' and value=?)"
        self._write(lambda con: con.rows(f"update meta set value=0 where key='incomplete' and {this}", (name,)))

    def rebuild(self, total: int) -> AbstractContextManager[Build]:
        from notewright.index.sqlite.build import building

        return building(self._connections.generations, self._write, total)

    def edition(self) -> IndexEdition:
        from notewright.index.sqlite import _copy

        return self.ask(_copy.edition)

    def export_copy(self) -> AbstractContextManager[tuple[Path, IndexEdition]]:
        from notewright.index.sqlite import _copy

        return _copy.export_copy(self._connections.generations)

    def install_copy(self, total: int) -> AbstractContextManager[Path]:
        from notewright.index.sqlite import _copy

        return _copy.install_copy(self._connections.generations, total)

    # ---- questions ------------------------------------------------------------------------------------

    find_file = _question(queries.find_file)
    select = _question(queries.select)
    with_problem = _question(queries.with_problem)
    stamps = _question(queries.stamps)
    total = _question(queries.total)
    folders = _question(queries.folders)
    by_name = _question(queries.by_name)
    by_names = _question(queries.by_names)
    by_other_name = _question(queries.by_other_name)
    other_keys = _question(queries.other_keys)
    shared_aliases = _question(queries.shared_aliases)
    links_from = _question(queries.links_from)
    links_toward = _question(queries.links_toward)
    lines_of = _question(queries.lines_of)
    tags = _question(queries.tags)
    tags_of = _question(queries.tags_of)
    property_of = _question(queries.property_of)
    text = _question(queries.text)
    notes = _question(queries.notes)
    neighbours = _question(evidence.neighbours)
    degrees = _question(evidence.degrees)

    def names_like(self, key: str, limit: int = 200, visible: Visibility = EVERYTHING) -> list[NotePath]:
        return self.ask(lambda con: queries.names_like(con, self._words(con), key, limit, visible))

    def evidence(self, query: Query, depth: int, narrow: bool = True) -> SearchEvidence:
        return self.ask(lambda con: evidence.gather_evidence(con, self._words(con), query, depth, narrow))

    def bodies(self, needles: Needles, folder: str = "", visible: Visibility = EVERYTHING) -> Iterator[list[Body]]:
        from notewright.index.sqlite.grep_candidates import find_candidates, read_bodies

        notes = self.ask(lambda con: find_candidates(con, self._words(con), needles, folder, visible))
        for start in range(0, len(notes), READ_AT_ONCE):
            batch, size = list[Body](), 0
            for body in self.ask(partial(read_bodies, notes=notes[start : start + READ_AT_ONCE])):
                batch.append(body)
                size += len(body.data)
                if size >= BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch

    def _words(self, con: Connection) -> Vocabulary:
        """The vocabulary of the index this connection reads, which a newer one may have replaced by now."""
        known = self._vocabulary
        if known[0] != con.name:
            known = self._vocabulary = (con.name, Vocabulary())
        return known[1]


def _file(con: Connection, rows: Sequence["Row"], dropped: Sequence[str]) -> None:
    from notewright.index.sqlite.rows import upsert

    upsert(con, rows, dropped)
    paths = [*(str(row.file[0]) for row in rows), *dropped]
    if len(paths) > 1:  # the serial counts files; the transaction counts one
        con.rows("update meta set value=value+? where key='serial'", (len(paths) - 1,))
    _touch(con, paths)


def _touch(con: Connection, paths: Sequence[str]) -> None:
    """Record changed paths for the build that is running, if any."""
    if con.value("select value from meta where key='building'") is not None:
        con.db.executemany("insert or ignore into touched values(?)", [(path,) for path in paths])
