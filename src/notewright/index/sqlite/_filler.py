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

from notewright.index.sqlite.rows import PREPARED, Row, insert, insert_files, learn_all, prepare_row
from notewright.index.sqlite.schema import finish, new_index

AHEAD = 24  # batches that may wait to be written: more than one transaction, a few megabytes
COMMIT = 1_024  # files in one transaction
CACHE_KIB = 32_000
HASH_BYTES = 16_000_000  # words FTS5 gathers before it writes them down


class BulkWriter:
    """Fills an index in this process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._made = new_index(file, ready=False)
        self._made.db.execute(f"pragma cache_size=-{CACHE_KIB}; pragma locking_mode=exclusive")
        for table in ("words", "said"):  # one merge at the end instead of many on the way
            self._made.db.execute(f"insert into {table}({table}, rank) values('automerge', 0)")
            self._made.db.execute(f"insert into {table}({table}, rank) values('hashsize', {HASH_BYTES})")
        self._next = (1, 1)
        self._uncommitted = 0
        self._made.db.execute("begin")

    def add(self, rows: list[Row]) -> None:
        for start in range(0, len(rows), PREPARED):
            file, link = self._next
            batch = list(enumerate(map(prepare_row, rows[start : start + PREPARED]), file))
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
            for table in ("words", "said"):
                made.db.execute(f"insert into {table}({table}) values('optimize')")
                made.db.execute(f"insert into {table}({table}, rank) values('automerge', 4)")
                made.db.execute(f"insert into {table}({table}, rank) values('hashsize', 1048576)")
            learn_all(made)
        finish(made)
        self.stop()
        with open(self._file, "rb") as file:
            os.fsync(file.fileno())  # it was filled without care: a power cut must not find it half there

    def stop(self) -> None:
        self._made.close()


def main(file: Path) -> None:
    """The second process."""
    gc.disable()  # rows hold no cycles
    filler = BulkWriter(file)
    for batch in _read_ahead(sys.stdin.buffer):
        filler.add([Row(*row) for row in marshal.loads(batch)])
    filler.finish()
    sys.stdout.write("done")


def _read_ahead(source: IO[bytes]) -> Iterator[bytes]:
    """Every batch until the last word. A thread reads on while one is written down: nobody waits for the other."""
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
