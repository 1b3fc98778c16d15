"""A whole new index is built beside the one that answers, and takes its place at once and whole."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.index.parts import facts, file, filing, paths, sqlite_index

from notewright.errors import Busy
from notewright.index.base import Filing
from notewright.index.sqlite import build
from notewright.index.sqlite.index import SqliteIndex

OLD = {"Tea.md": "old leaves", "Gone.md": "old dust"}


def refuse(paths: object) -> list[Filing]:
    raise AssertionError("nothing was touched")


@pytest.mark.slow
@pytest.mark.parametrize("total", [2, build.SMALL])  # in this process, and in a second one
def test_the_old_index_answers_until_the_new_one_takes_its_place(tmp_path: Path, total: int) -> None:
    index = sqlite_index(tmp_path / "index", OLD)
    with index.rebuild(total) as new:
        new.file([filing("Tea.md", "new leaves [[Pot]]"), filing("Pot.md", "clay")])
        new.finish()
        assert set(paths(index, "dust leaves")) == {"Gone.md", "Tea.md"}
        new.swap(lambda touched: [])
    assert (index.total("notes"), index.total("files")) == (2, 2) and paths(index, "dust") == []
    assert set(paths(index, "leaves")) == {"Tea.md", "Pot.md"}
    assert [link.target for link in index.links_toward(["pot"])] == ["Pot"]
    assert index.generation().whole


@pytest.mark.slow
def test_a_built_index_holds_what_one_filed_piece_by_piece_holds(tmp_path: Path) -> None:
    texts: dict[str, str | None] = {
        f"n/{number}.md": f"---\ntags: [t{number % 3}]\n---\n# N{number}\n\nSee [[{number + 1}]]. Naïve 学习 running.\n"
        for number in range(build.SMALL + 20)
    } | {"pic.png": None}
    filed, built = sqlite_index(tmp_path / "filed", texts), SqliteIndex(tmp_path / "built")
    with built.rebuild(len(texts)) as new:
        new.file(filing(path, text) for path, text in texts.items())
        new.finish()
        new.swap(refuse)
    assert facts(built) == facts(filed)
    sizes = [3 if text is None else len(text.encode()) for text in texts.values()]
    assert (
        (built.total("files"), built.total("bytes"))
        == (filed.total("files"), filed.total("bytes"))
        == (len(sizes), sum(sizes))
    )
    for question in ("run n7", "学习", "naive"):
        assert paths(built, question) == paths(filed, question)
    for index in (filed, built):
        stems = index.ask(lambda con: dict(con.rows("select word, stem from vocabulary")))
        assert (stems["running"], stems["see"], stems["学习"]) == ("run", None, None)  # its own is not written twice


def test_what_is_filed_together_is_one_segment_of_the_full_text(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index")

    def segments() -> int:
        counts = (f"(select count(distinct segid) from {table}_idx)" for table in ("words", "sentences"))
        return index.ask(lambda con: con.number(f"select max({', '.join(counts)})"))

    names = [f"{number}.md" for number in range(100)]
    file(index, {name: f"See [[{name}]] before." for name in names})
    assert segments() == 1
    index.file([filing(name, f"See [[{name}]] after.") for name in names[:90]], drop=names[95:])
    assert segments() <= 2, "old segments may be merged, many new ones are not made"
    assert (len(paths(index, "before", limit=200)), len(paths(index, "after", limit=200))) == (5, 90)
    index.file([filing(names[0], None)])
    assert len(paths(index, "after", limit=200)) == 89


@pytest.mark.slow
def test_leaving_without_a_swap_leaves_no_trace(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", OLD)
    with pytest.raises(RuntimeError), index.rebuild(build.SMALL) as new:
        new.file([filing("New.md", "half")])
        raise RuntimeError
    assert (index.total("notes"), index.total("files")) == (2, 2) and not index.progress().building
    assert len(list((tmp_path / "index").glob("g-*"))) == 1


def test_what_a_dead_builder_left_is_removed_by_the_next(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", OLD)
    (tmp_path / "index" / "g-dead").mkdir()
    (tmp_path / "index" / "g-dead" / "index.db").write_bytes(b"half")
    with index.rebuild(2):
        assert not (tmp_path / "index" / "g-dead").exists()
    assert (index.total("notes"), index.total("files")) == (2, 2)


def test_what_changes_during_a_build_is_read_again_before_the_swap(tmp_path: Path) -> None:
    index, other = sqlite_index(tmp_path / "index", OLD), SqliteIndex(tmp_path / "index")
    asked: list[str] = []

    def again(touched: object) -> list[Filing]:
        asked.extend(touched)  # type: ignore[call-overload]
        return [filing("Tea.md", "newest leaves")]

    with index.rebuild(2) as new:
        new.file([filing("Tea.md", "new leaves"), filing("Gone.md", "dust")])
        other.file([filing("Tea.md", "newest leaves")], drop=["Gone.md"])
        other.record_changes(["Elsewhere.md"])
        new.finish()
        new.swap(again)
    assert asked == ["Elsewhere.md", "Gone.md", "Tea.md"]
    assert index.text("Tea.md") == other.text("Tea.md") == "newest leaves" and index.find_file("Gone.md") is None
    assert paths(other, "newest") == ["Tea.md"]


def test_only_one_builds_and_everyone_sees_how_far(tmp_path: Path) -> None:
    index, other = sqlite_index(tmp_path / "index", OLD), SqliteIndex(tmp_path / "index")
    with index.rebuild(7) as new:
        progress = other.progress()
        assert (progress.building, progress.total) == (True, 7)
        with pytest.raises(Busy), other.rebuild(7):
            pass
        new.finish()
        new.swap(lambda touched: [])
    assert not other.progress().building
    with other.rebuild(7):
        pass


def test_writers_during_a_swap_lose_nothing(tmp_path: Path) -> None:
    index, other = sqlite_index(tmp_path / "index", OLD), SqliteIndex(tmp_path / "index")
    texts: dict[str, str] = {}
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            texts[f"{number}.md"] = f"word{number}"
            file(other, {f"{number}.md": f"word{number}"})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            with index.rebuild(10) as new:
                new.file(filing(path, text) for path, text in dict(texts).items())
                new.finish()
                new.swap(lambda touched: [filing(path, texts[path]) for path in touched])
    finally:
        stop.set()
        writer.join(10)
    assert {path for path, _ in index.stamps()} == set(texts)


def test_an_index_lost_during_a_build_makes_the_new_one_wanting(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", OLD)
    with index.rebuild(1) as new:
        new.file([filing("Tea.md", "leaves")])
        new.finish()
        index._connections.generations.discard(index._connections.generations.ensure_current())
        new.swap(refuse)
    assert (index.total("notes"), index.total("files")) == (1, 1) and not index.generation().whole


@pytest.mark.slow
def test_a_second_process_that_dies_is_an_error_and_no_new_index(tmp_path: Path) -> None:
    index = sqlite_index(tmp_path / "index", OLD)
    with pytest.raises(Exception, match="process that writes"), index.rebuild(build.SMALL) as new:
        new._filler._child.kill()  # type: ignore[attr-defined]
        new.file([filing("New.md", "x" * 100_000)])
        new.finish()
    assert (index.total("notes"), index.total("files")) == (2, 2)


@pytest.mark.slow
def test_the_second_process_ends_with_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "notewright.index.sqlite._filler", str(tmp_path / "index.db")]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = child.communicate((5).to_bytes(8, "big") + b"ab", timeout=20)  # the first died in mid-sentence
    assert child.returncode != 0 and out != b"done"
