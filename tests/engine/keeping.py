"""Folders compared byte by byte, days to back up on, and a process that can be killed while it backs up.

`python -m tests.engine.keeping FOLDER TO DATE COUNT` backs up and stops for good after that many files, having said so.
"""

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.engine.parts import desk

from notewright import engine
from notewright.engine import Workspace
from notewright.stores.folder import FolderStore

FIRST = datetime(2026, 5, 4, 2, 0, tzinfo=UTC)


def day(number: int) -> datetime:
    """The morning of a day; day 0 is 2026-05-04."""
    return FIRST + timedelta(days=number)


def files(folder: Path) -> dict[str, bytes]:
    """Every file that is not behind a dot, with its bytes."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    named = {path.relative_to(folder).as_posix(): path for path in found}
    return {name: path.read_bytes() for name, path in named.items() if not name.startswith(".") and "/." not in name}


def times(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in files(folder)}


def folder_desk(folder: Path, **values: object) -> Workspace:
    """A workspace on a real folder, its history in memory."""
    return desk(FolderStore(folder), **values)


def main() -> None:
    folder, to, date, count = sys.argv[1:]

    def stop(done: int, total: int | None) -> None:
        if done == int(count):
            print("stopped", flush=True)
            time.sleep(600)

    ws = folder_desk(Path(folder))
    engine.back_up([ws], to, now=datetime.fromisoformat(date).replace(tzinfo=UTC), report=stop)
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
