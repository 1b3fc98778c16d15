"""Parts that tests of the engine put together: notes in memory, a ledger in memory, and no index to speak of."""

from collections.abc import Iterable
from typing import Any, cast

from tests.memory_store import MemoryStore

from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.workspace import Workspace
from notewright.index.base import Index
from notewright.ledger.base import Actor, Ledger
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath
from notewright.stores.base import Store

ANN = Actor("ann", "desk", "notes", "write")


class NoIndex:
    """An index that keeps nothing and remembers which paths were filed and dropped."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def file(self, filings: Iterable[Any], *, drop: Iterable[str] = ()) -> None:
        self.told += [*(one.path for one in filings), *drop]

    def prepare(self, filing: Any) -> Any:
        return filing

    def find_file(self, path: str) -> None:
        return None


def memory_workspace(store: Store | None = None, ledger: Ledger | None = None, **values: Any) -> Workspace:
    """A workspace on these parts, in memory where none are given."""
    index, locks = cast(Index, NoIndex()), values.pop("locks", None) or MemoryStore()
    ledger = ledger or SqliteLedger.in_memory()
    return Workspace("Desk", "desk", store or MemoryStore(), index, ledger, locks, actor=ANN, **values)


def write(ws: Workspace, **notes: str) -> None:
    """Notes from outside: `Tea="…"` is `Tea.md`."""
    for name, text in notes.items():
        cast(MemoryStore, ws.store).put(f"{name}.md", text.encode())


def texts(ws: Workspace, *, hidden: bool = False) -> dict[str, str]:
    """Every note by path."""
    files = cast(MemoryStore, ws.store).disk.files
    return {path: file.data.decode() for path, file in files.items() if hidden or not path.startswith(".")}


def version(ws: Workspace, path: str) -> str:
    return ws.store.read(NotePath(path)).version


def put(ws: Workspace, path: str, text: str, source: str | None = None) -> Put:
    """A step to this text from whatever is there."""
    there = ws.store.read(NotePath(path)) if path in texts(ws) else None
    return Put(NotePath(path), text.encode(), there, source and NotePath(source))


def drop(ws: Workspace, path: str) -> Drop:
    return Drop(NotePath(path), ws.store.read(NotePath(path)))


def renaming(ws: Workspace, old: str, new: str) -> Plan:
    """A move as the engine plans it: the note under its new name, every link to it rewritten, the old name gone."""
    links = [(path, text) for path, text in texts(ws).items() if path != old and f"[[{old[:-3]}]]" in text]
    rewritten = [put(ws, path, text.replace(f"[[{old[:-3]}]]", f"[[{new[:-3]}]]")) for path, text in links]
    moved = Put(NotePath(new), None, None, NotePath(old))
    return Plan((drop(ws, old), *rewritten, moved), f"moved {old} to {new}")
