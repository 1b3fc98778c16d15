"""Builds a new index: rows are made where the notes are read, and written by a second process (`_filler.py`)."""

import fcntl
import marshal
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from notewright.errors import Unavailable
from notewright.index.base import Filing
from notewright.index.sqlite._filler import BulkWriter
from notewright.index.sqlite.generations import BuildProgressFile, Generations, Identity, translate_index_errors
from notewright.index.sqlite.rows import Row, to_row, upsert
from notewright.index.sqlite.schema import Connection, open_index

SMALL = 500  # files that are not worth a second process
BATCH = 64  # rows sent at a time
PIPE_BYTES = 1 << 20  # of rows that wait for the second process; what any user may ask for
BATCH_BYTES = 1 << 20  # of notes whose rows are kept in memory until they are sent
Write = Callable[[Callable[[Connection], object]], None]


@contextmanager
def building(generations: Generations, write: Write, total: int) -> Iterator["SqliteBuild"]:
    """Run one build beside the current index, which stays in use; without `swap` its files are removed at the end."""
    with generations.building(total) as tally:
        write(lambda con: _keep_journal(con, True))
        build = SqliteBuild(generations, tally, total)
        try:
            yield build
        finally:
            build.stop()
            if not build.swapped:
                write(lambda con: _keep_journal(con, None))


class SqliteBuild:
    """Implements `Build`."""

    @translate_index_errors
    def __init__(self, generations: Generations, tally: BuildProgressFile, total: int) -> None:
        self._generations, self._tally = generations, tally
        self._replaced: Identity | None = generations.find_current()
        self._place = generations.make_place()
        file = self._place / "index.db"
        self._filler = BulkWriter(file) if total < SMALL else ChildProcessWriter(file)
        self.swapped = False

    def stop(self) -> None:
        self._filler.stop()
        if not self.swapped:
            shutil.rmtree(self._place, ignore_errors=True)

    @translate_index_errors
    def file(self, filings: Iterable[Filing]) -> None:
        rows: list[Row] = []
        size = 0
        for filing in filings:
            rows.append(to_row(filing))
            size += filing.size if filing.note else 0
            if len(rows) == BATCH or size > BATCH_BYTES:
                self._add(rows)
                rows, size = [], 0
        if rows:
            self._add(rows)

    def _add(self, rows: list[Row]) -> None:
        self._filler.add(rows)
        self._tally.add(len(rows))

    @translate_index_errors
    def finish(self) -> None:
        self._filler.finish()

    @translate_index_errors
    def swap(self, again: Callable[[Iterable[str]], Iterable[Filing]]) -> None:
        """Index the changed files again and make this index the current one, holding the lock so that nobody writes."""
        with self._generations.locked(exclusive=True):
            changed: set[str] | None = None
            if self._replaced is not None and self._generations.find_current() == self._replaced:
                old = open_index(self._generations.index_file)
                try:
                    changed = {path for (path,) in old.rows("select path from touched")}
                finally:
                    old.close()
            made = open_index(self._place / "index.db", writing=True)
            try:
                if changed:
                    with made.db:
                        rows = [to_row(filing) for filing in again(sorted(changed))]
                        upsert(made, rows, drop=changed - {str(row.file[0]) for row in rows})
                # If the old index was replaced, its list of changed files is lost: compare everything with the store.
                made.rows("update meta set value=? where key='incomplete'", (int(changed is None),))
            finally:
                made.close()
            self._generations.point(self._place)
            self.swapped = True


def _keep_journal(con: Connection, kept: bool | None) -> None:
    con.rows("delete from touched")
    con.rows("update meta set value=? where key='building'", (kept,))


class ChildProcessWriter:
    """Fills the index in a second process, which ends when its input ends without the empty batch: it dies with us."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-P", "-m", "notewright.index.sqlite._filler", str(file)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._child.stdin is not None and self._child.stdout is not None
        self._input, self._output = self._child.stdin, self._child.stdout
        with suppress(AttributeError, OSError):  # so that notes are read while the process loads what it needs
            fcntl.fcntl(self._input, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def add(self, rows: list[Row]) -> None:
        self._send(marshal.dumps([tuple(row) for row in rows]))

    def _send(self, batch: bytes) -> None:
        try:
            self._input.write(len(batch).to_bytes(8, "big") + batch)
            self._input.flush()
        except BrokenPipeError:
            raise self._failure(self._output.read()) from None

    def finish(self) -> None:
        self._send(b"")
        self._input.close()
        answer = self._output.read()
        if answer != b"done":
            raise self._failure(answer)
        self._child.wait()

    @staticmethod
    def _failure(output: bytes) -> Unavailable:
        reason = output.decode(errors="replace") or "the process that writes it ended"
        return Unavailable(f"the index cannot be used: {reason}", hint="look at the cache directory")

    def stop(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._output.close()
        with suppress(BrokenPipeError):  # what is still buffered is not needed
            self._input.close()
