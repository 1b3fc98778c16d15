"""Exports the current index as one file, and installs such a file as the current index on another machine.

An installed copy was written by another machine: its tables must be exactly ours, and it counts as incomplete until
every stamp in it was compared with the store.
"""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from notewright.index.base import IndexEdition
from notewright.index.sqlite.generations import Generations, translate_index_errors
from notewright.index.sqlite.schema import Connection, create_index, open_index

_SCHEMA = "select type, name, tbl_name, sql from sqlite_schema order by type, name"


def edition(con: Connection) -> IndexEdition:
    known = dict(con.rows("select key, value from meta where key in ('name', 'origin', 'serial')"))
    return IndexEdition(str(known.get("origin") or known.get("name")), int(known.get("serial") or 0))


@contextmanager
def export_copy(generations: Generations) -> Iterator[tuple[Path, IndexEdition]]:
    """A compact copy of the current index from one snapshot; writers are not blocked meanwhile."""
    folder = generations.folder / "copy"
    shutil.rmtree(folder, ignore_errors=True)  # of a process that died
    file = folder / "index.db"
    try:
        yield file, _copy(generations, folder, file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@translate_index_errors
def _copy(generations: Generations, folder: Path, file: Path) -> IndexEdition:
    folder.mkdir(mode=0o700)  # it holds the texts of the notes
    generations.ensure_current()
    con = open_index(generations.index_file, writing=True)
    try:
        con.rows("vacuum into ?", (str(file),))
    finally:
        con.close()
    copy = open_index(file, writing=True)
    try:
        copy.db.execute("delete from touched; update meta set value=null where key='building'")
        return edition(copy)
    finally:
        copy.close()


@contextmanager
def install_copy(generations: Generations, total: int) -> Iterator[Path]:
    """A path to write such a copy to; on exit it becomes the current index, marked incomplete. Removed on an exception.
    Unavailable if it is not an index of this form."""
    with generations.building(total):
        place = generations.make_place()
        try:
            yield place / "index.db"
            _install(generations, place)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise


@translate_index_errors
def _install(generations: Generations, place: Path) -> None:
    empty = create_index(place / "empty.db")
    ours = empty.rows(_SCHEMA).fetchall()
    empty.close()
    for left in place.glob("empty.db*"):
        left.unlink()
    made = open_index(place / "index.db", writing=True)
    try:
        if made.rows(_SCHEMA).fetchall() != ours:
            raise apsw.NotADBError("its tables are not those of this version")
        made.db.execute("pragma journal_mode=wal; pragma synchronous=normal")
        made.db.execute("begin immediate")
        made.rows("insert or ignore into meta select 'origin', value from meta where key='name'")
        made.rows("update meta set value=? where key='name'", (secrets.token_hex(8),))
        made.rows("update meta set value=1 where key='incomplete'")
        made.db.execute("commit")
    finally:
        made.close()
    with generations.locked(exclusive=True):
        generations.point(place)
