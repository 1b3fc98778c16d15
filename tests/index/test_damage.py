"""The index can be deleted or damaged at any moment and comes back; many share it."""

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from tests.index.parts import file, filing, paths, sqlite_index

from notewright.index.sqlite.index import SqliteIndex

VAULT: dict[str, str | None] = {f"{number}.md": f"Leaves number{number}.\n\n[[1]]" for number in range(60)}


def database(folder: Path) -> Path:
    (found,) = folder.glob("current-*/index.db")
    return found


def delete_all(folder: Path) -> None:
    shutil.rmtree(folder)


def delete_pointer(folder: Path) -> None:
    next(folder.glob("current-*")).unlink()


def delete_database(folder: Path) -> None:
    database(folder).unlink()


def fill_with_noise(folder: Path) -> None:
    file = database(folder)
    replacement = file.with_suffix(".new")
    replacement.write_bytes(random.Random(1).randbytes(20_000))
    replacement.rename(file)


def spoil_pages(folder: Path) -> None:
    """In place, under those who have it open."""
    with apsw.Connection(str(database(folder))) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    with open(database(folder), "r+b") as file:
        file.seek(4096)
        file.write(random.Random(2).randbytes(os.fstat(file.fileno()).st_size - 4096))


def another_form(folder: Path) -> None:
    with apsw.Connection(str(database(folder))) as db:
        db.execute("pragma user_version=99")


def drop_a_table(folder: Path) -> None:
    with apsw.Connection(str(database(folder))) as db:
        db.execute("drop table links")


DAMAGE = (delete_all, delete_pointer, delete_database, fill_with_noise, spoil_pages, drop_a_table)


@pytest.mark.parametrize("damage", [*DAMAGE, another_form])
def test_a_damaged_index_opens_empty_and_wanting(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    sqlite_index(tmp_path / "index", VAULT).close()
    damage(tmp_path / "index")
    index = SqliteIndex(tmp_path / "index")
    index.links_toward(["1"])  # some damage shows only when it is met
    paths(index, "leaves")
    assert (index.total("notes"), index.total("files")) == (0, 0) and not index.generation().whole
    file(index, VAULT)
    assert len(paths(index, "leaves")) == 10
    index.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_index_damaged_under_us_goes_on_empty_and_takes_writes(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    index = sqlite_index(tmp_path / "index", VAULT)
    assert paths(index, "number7")
    damage(tmp_path / "index")
    for _ in range(3):
        paths(index, "number7")
        index.links_toward(["1"])
        file(index, {"new.md": "fresh"})
    assert not index.generation().whole and index.find_file("7.md") is None
    file(index, VAULT)
    assert paths(index, "number7")[0] == "7.md" and len(index.links_toward(["1"])) == 60
    index.close()


def test_it_wants_no_more_once_it_equals_the_store_it_was_compared_with(tmp_path: Path) -> None:
    index = SqliteIndex(tmp_path / "index")
    compared = index.generation()
    assert not compared.whole and index.progress().total is None
    index.mark_whole(compared.name)
    assert index.generation() == (compared.name, True) and index.progress().total == 0
    shutil.rmtree(tmp_path / "index")
    index.mark_whole(compared.name)  # the one that was compared is gone
    assert not index.generation().whole and index.generation().name != compared.name
    index.close()


@pytest.mark.slow
def test_a_change_by_another_process_is_seen_by_the_next_question(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", VAULT)
    code = (
        "from pathlib import Path; from tests.index.parts import sqlite_index; "
        f"sqlite_index(Path({str(tmp_path / 'index')!r}), {{'there.md': 'zeppelin'}}).close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=30)
    assert paths(index, "zeppelin") == ["there.md"]
    index.close()


def test_many_threads_read_and_write_at_once(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", VAULT)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(15):
                file(index, {f"own{number}.md": f"mine{number} turn{turn}"})
                assert paths(index, f"mine{number} turn{turn}")[0] == f"own{number}.md"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and (index.total("notes"), index.total("files")) == (68, 68)
    index.close()


def test_old_generations_are_swept_away(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", VAULT)
    for _ in range(3):
        with index.rebuild(1) as new:
            new.file([filing("a.md", "a")])
            new.finish()
            new.swap(lambda touched: [])
    assert len(list((tmp_path / "index").glob("g-*"))) == 1
    index.close()
