"""Fills a new index with rows, in a process of its own where there are many.

    python -m notewright.index.sqlite._filler FILE      reads batches of rows on standard input, writes the index FILE

A batch is its length in eight bytes and a marshalled list of rows; a length of zero is the end. What this imports is
what the second process has to load before it can begin.
"""

import gc
import marshal
import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import apsw

from notewright.index.sqlite.rows import ROWS_PER_BATCH, Row, add_all_words, insert, insert_files, prepare_row
from notewright.index.sqlite.schema import create_index, finish_index

AHEAD = 24  # batches that may be queued: more than one transaction, a few megabytes
COMMIT = 1_024  # files in one transaction
CACHE_KIB = 32_000
HASH_BYTES = 16_000_000  # of words that FTS5 holds in memory before it flushes


class BulkWriter:
    """Fills an index in this process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._made = create_index(file, ready=False)
        self._made.db.execute(f"pragma cache_size=-{CACHE_KIB}; pragma locking_mode=exclusive")
        for table in ("words", "sentences"):  # one merge at the end instead of many on the way
            self._made.db.execute(f"insert into {table}({table}, rank) values('automerge', 0)")
            self._made.db.execute(f"insert into {table}({table}, rank) values('hashsize', {HASH_BYTES})")
        self._next = (1, 1)
        self._uncommitted = 0
        self._made.db.execute("begin")

    def add(self, rows: list[Row]) -> None:
        for start in range(0, len(rows), ROWS_PER_BATCH):
            file, link = self._next
            batch = list(enumerate(map(prepare_row, rows[start : start + ROWS_PER_BATCH]), file))
            insert_files(self._made, batch)
            self._next = file + len(batch), insert(self._made, batch, link)
        self._uncommitted += len(rows)
        if self._uncommitted >= COMMIT:
            self._made.db.execute("commit; begin")
            self._uncommitted = 0

    def finish(self) -> None:
        made = self._made
        made.db.execute("commit")
        with made.db:
            for table in ("words", "sentences"):
                made.db.execute(f"insert into {table}({table}) values('optimize')")
                made.db.execute(f"insert into {table}({table}, rank) values('automerge', 4)")
                made.db.execute(f"insert into {table}({table}, rank) values('hashsize', 1048576)")
            add_all_words(made)
        finish_index(made)
        self.stop()
        with open(self._file, "rb") as file:
            os.fsync(file.fileno())  # it was filled without sync: a power cut must not leave half of it

    def stop(self) -> None:
        self._made.close()


def main(file: Path) -> None:
    """The second process. Its output is `done`, or why it failed."""
    gc.disable()  # rows hold no cycles
    try:
        filler = BulkWriter(file)
        for batch in _read_ahead(sys.stdin.buffer):
            filler.add([Row(*row) for row in marshal.loads(batch)])
        filler.finish()
    except (OSError, apsw.Error) as error:
        os.write(1, str(error).encode(errors="replace"))
        os._exit(1)  # the thread that reads ahead waits for input and would make the interpreter abort
    os.write(1, b"done")
    os._exit(0)  # the other process waits for our end, and the interpreter would first free what we hold: 8 ms


def _read_ahead(source: IO[bytes]) -> Iterator[bytes]:
    """Every batch until the empty one. A thread reads ahead while one is written, so that reading never waits."""
    batches: queue.Queue[bytes] = queue.Queue(AHEAD)

    def read() -> None:
        size = 1
        while size:
            size = int.from_bytes(source.read(8), "big")
            batches.put(source.read(size))

    threading.Thread(target=read, daemon=True).start()
    return iter(batches.get, b"")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
