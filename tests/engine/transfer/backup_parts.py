"""Folders compared byte by byte, days to back up on, and a process that can be killed while it backs up.

`python -m tests.engine.transfer.backup_parts FOLDER TO DATE COUNT` backs up, and after that many files says so and
stops for good. Without DATE and COUNT it backs up again and again, each time killed a step later, and says how often.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.engine.parts import memory_workspace

from notewright.engine.transfer import backup, restore
from notewright.engine.transfer.backup import BackupResult
from notewright.engine.transfer.backup_folder import BackupFolder
from notewright.engine.transfer.manifest import BackupPlace, Manifest, readable_manifests
from notewright.engine.transfer.restore import RestoreResult
from notewright.engine.workspace import Workspace
from notewright.stores.folder.store import FolderStore

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


def folder_workspace(folder: Path, **values: object) -> Workspace:
    """A workspace on a real folder, its history in memory."""
    return memory_workspace(FolderStore(folder), **values)


def kept_in(place: Path | str | BackupPlace) -> BackupPlace:
    """A folder of backups by its name."""
    return place if isinstance(place, BackupPlace) else BackupFolder(place)


def back_up(workspaces: Sequence[Workspace], to: Path | str | BackupPlace, **how: Any) -> BackupResult:
    return backup.back_up(workspaces, kept_in(to), **how)


def backups(place: Path | str | BackupPlace) -> list[Manifest]:
    return list(readable_manifests(kept_in(place)))


def restore_backup(ws: Workspace, place: Path | str | BackupPlace, **how: Any) -> RestoreResult:
    return restore.restore(ws, kept_in(place), **how)


def restore_to(into: Path, place: Path | str | BackupPlace, **how: Any) -> RestoreResult:
    """Plain files in a folder."""

    def make() -> FolderStore:
        into.mkdir(parents=True, exist_ok=True)
        return FolderStore(into)

    return restore.restore_to(str(into), make, kept_in(place), **how)


def deaths(folder: Path, to: Path) -> int:
    """Kill a backup of a day that has one already at its first step, at its second, and so on to its end: each time the
    day is as it was or as it should be, and the day before is as it was. How often that was."""
    ws = folder_workspace(folder)
    back_up([ws], to, now=day(0))
    back_up([ws], to, now=day(1))
    yesterday, now = files(to / "2026-05-04"), files(folder)
    for count in range(1, 1000):
        (folder / "Changed.md").write_text(f"change {count}\n")
        (folder / f"New {count}.md").write_text("new\n")
        new = files(folder)
        child = os.fork()
        if child == 0:
            die_at_step(count)
            back_up([ws], to, now=day(1))
            os._exit(0)
        ended = os.waitpid(child, 0)[1]
        assert files(to / "2026-05-04") == yesterday, f"step {count} hurt the day before"
        with BackupFolder(to).lock(exclusive=True):
            now, before = files(to / "2026-05-05"), now
        assert now in (before, new), f"step {count} left neither the old nor the new"
        assert restore_to(folder.parent / f"out {count}", to, date="2026-05-05").skipped == ()
        (folder / f"New {count}.md").unlink()
        if ended == 0:
            assert now == new
            return count - 1
    raise AssertionError("it has no end")


def die_at_step(count: int) -> None:
    """Be killed before the n-th thing that touches a file."""
    left = count

    def step(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event == "open" or event.startswith(("os.", "shutil.", "fcntl.")):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)


def main() -> None:
    if len(sys.argv) == 3:
        print(deaths(Path(sys.argv[1]), Path(sys.argv[2])))
        return
    folder, to, date, count = sys.argv[1:]

    def stop(done: int, total: int | None) -> None:
        if done == int(count):
            print("stopped", flush=True)
            time.sleep(600)

    ws = folder_workspace(Path(folder))
    back_up([ws], to, now=datetime.fromisoformat(date).replace(tzinfo=UTC), report=stop)
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
