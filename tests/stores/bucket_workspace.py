"""A workspace over a store that is given, as `app/opening.py` puts one together. Run by itself it is a process to kill:

python -m tests.stores.bucket_workspace rename LOCATION ENDPOINT STATE PUTS    dies before the PUT of that number
python -m tests.stores.bucket_workspace append LOCATION ENDPOINT STATE NAME    says each line that it has appended
"""

import itertools
import os
import signal
import sys
import threading
from pathlib import Path

from notewright.engine.changes.commit import recover
from notewright.engine.indexing.indexer import Indexer
from notewright.engine.move import move
from notewright.engine.workspace import Workspace
from notewright.engine.write import edit_note
from notewright.index.sqlite.index import SqliteIndex
from notewright.ledger.sqlite import SqliteLedger
from notewright.locks import FileLocks
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath
from notewright.stores.base import Store, Stored, version_of
from notewright.stores.s3.settings import BucketSettings
from notewright.stores.s3.store import S3Store

TARGET, RENAMED = NotePath("Target.md"), "f0/Renamed"


def open_on(store: Store, state: Path, *, watch: bool = False) -> Workspace:
    """Recovered, indexed and ready."""
    ledger, index = SqliteLedger.open(state / "ledger"), SqliteIndex(state / "cache")
    follower = Indexer(store, index, FileLocks(state / "cache"), watch=watch)
    ws = Workspace(
        name="Bucket", id="bucket", store=store, index=index, ledger=ledger, follower=follower,
        locks=FileLocks(state / "locks"),
    )  # fmt: skip
    if ledger.find_unfinished():
        recover(ws)
    follower.start()
    follower.wait(30)
    return ws


def close(ws: Workspace) -> None:
    ws.follower.close()
    ws.index.close()
    ws.ledger.close()


def linked_notes(links: int) -> dict[str, bytes]:
    """One note that so many others link to, and some that do not."""
    notes = {
        f"f{i % 5}/n{i}.md": f"# Note {i}\n\nsee [[Target]] and [[Target|again]]\n\nend {i}\n" for i in range(links)
    }
    notes |= {f"other/o{i}.md": f"# Other {i}\n\nno link\n" for i in range(9)}
    notes["Target.md"] = "# Target\n\nI am [[Target]] myself\n"
    return {path: text.encode() for path, text in notes.items()}


def as_renamed(before: dict[str, bytes]) -> dict[str, bytes]:
    after = {
        path: data.replace(b"[[Target]]", b"[[Renamed]]").replace(b"[[Target|", b"[[Renamed|")
        for path, data in before.items()
    }
    after[f"{RENAMED}.md"] = after.pop(TARGET)
    return after


def check(ws: Workspace, expected: dict[str, bytes]) -> None:
    """Objects, index and ledger agree on this."""
    listed = {entry.path: entry.stamp for entry in ws.store.entries()}
    assert set(listed) == set(expected)
    assert dict(ws.index.stamps()) == listed
    stored = ws.store.read_many([NotePath(path) for path in expected])
    for (path, data), found in zip(expected.items(), stored, strict=True):
        assert isinstance(found, Stored) and found.data == data, path
        filed = ws.index.find_file(NotePath(path))
        assert filed is not None and filed.version == version_of(data), path
    assert not ws.ledger.find_unfinished()


def rename_and_die(ws: Workspace, store: S3Store, puts: str) -> None:
    left, mutex = [int(puts)], threading.Lock()

    def may_write() -> bool:
        with mutex:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return True

    store._requests.may_write = may_write
    move(ws, TARGET, RENAMED)
    os._exit(3)


def append_for_ever(ws: Workspace, store: S3Store, name: str) -> None:
    for number in itertools.count():
        edit_note(ws, NotePath(f"n{number % 3}.md"), [Append(f"{name}-{number}.")])
        print(f"{name}-{number}.", flush=True)


def main(work: str, location: str, endpoint: str, state: str, argument: str) -> None:
    store = S3Store(location, BucketSettings(endpoint=endpoint), state=Path(state))
    ws = open_on(store, Path(state))
    {"rename": rename_and_die, "append": append_for_ever}[work](ws, store, argument)


if __name__ == "__main__":
    main(*sys.argv[1:])
