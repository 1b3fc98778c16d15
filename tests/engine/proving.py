"""What the proofs share: waiting with a bound, and comparing an index with one built from nothing."""

import shutil
import tempfile
from pathlib import Path

from tests.index.parts import facts

from notewright.engine.find.search import parse_query, search
from notewright.engine.indexing.filing import read_many_for_index
from notewright.engine.read import list_files
from notewright.engine.workspace import Workspace
from notewright.index.base import Selection
from notewright.index.sqlite.index import SqliteIndex


def paths(ws: Workspace) -> list[str]:
    return [filed.path for filed in list_files(ws, Selection(notes_only=False))[0]]


def found(ws: Workspace, word: str) -> list[str]:
    """Notes that a search for one word finds, by path."""
    return sorted(hit.path for hit in search(ws, parse_query(word)).items)


def differences(ws: Workspace) -> dict[str, str]:
    """Where the index is not what one built from nothing would be, by path; empty where it is."""
    place = Path(tempfile.mkdtemp(prefix="anew"))
    anew = SqliteIndex(place)
    try:
        anew.file(read_many_for_index(ws.store, [entry for entry in ws.store.entries() if entry.kind != "folder"]))
        want, have = facts(anew), facts(ws.index)
    finally:
        anew.close()
        shutil.rmtree(place)
    return {
        path: f"should be {want.get(path)}, is {have.get(path)}"
        for path in sorted({*want, *have})
        if want.get(path) != have.get(path)
    }
