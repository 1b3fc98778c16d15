"""How often a question is asked of the tables of the index: what is small is answered by a few statements."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import MakeWorkspace

from notewright.engine.access import Access
from notewright.engine.find.links import incoming, links
from notewright.engine.library import Library
from notewright.engine.read import list_folder
from notewright.engine.workspace import Workspace
from notewright.engine.write import create
from notewright.index.base import Filing
from notewright.index.sqlite import queries
from notewright.index.sqlite.index import SqliteIndex
from notewright.index.sqlite.schema import Connection
from notewright.notes.path import NotePath
from notewright.stores.folder.store import FolderStore
from notewright.surfaces.base import Args, Call, Surface
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.obsidian.tools import SURFACE as OBSIDIAN
from notewright.surfaces.perform import perform

TEA = NotePath("Tea.md")
Statements = Callable[[Callable[[], object]], list[str]]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """What this thread asks of the tables while it does something."""
    here, asked, rows = threading.get_ident(), list[str](), Connection.rows

    def noted(self: Connection, sql: str, bindings: Iterable[object] = ()) -> Any:
        if threading.get_ident() == here:
            asked.append(" ".join(sql.split()))
        return rows(self, sql, bindings)

    monkeypatch.setattr(Connection, "rows", noted)

    def during(done: Callable[[], object]) -> list[str]:
        asked.clear()
        done()
        return list(asked)

    return during


@pytest.fixture
def ws(workspace: MakeWorkspace) -> Workspace:
    linking = {f"People/{number}.md": f"# {number}\n\nWe had [[Tea]] and [[Cake]].\n" for number in range(30)}
    made = workspace({"Tea.md": "# Tea\n\nWith [[Cake]] or [[0]].\n", "Cake.md": "# Cake\n", **linking})
    made.follower.wait(20)
    return made


def test_links_are_three_questions_however_many_there_are(ws: Workspace, statements: Statements) -> None:
    """Rows, texts and names; the fourth is whether notes are missing that are not indexed yet."""
    assert len(statements(lambda: links(ws, TEA, "in"))) == 3
    assert len(statements(lambda: links(ws, NotePath("Cake.md"), "out"))) == 1
    call = Call(Library.of([ws]))
    assert len(statements(lambda: perform(SURFACE, call, "links", {"path": "Tea.md", "direction": "in"}))) <= 4


def test_what_bears_a_name_is_looked_up_again_only_when_something_was_filed(
    ws: Workspace, statements: Statements
) -> None:
    def looks_up() -> bool:
        return any("join names" in sql or "from names" in sql for sql in statements(lambda: links(ws, TEA, "out")))

    assert not all(looks_up() for _ in range(20))  # whoever follows the folder may file something as well
    create(ws, NotePath("People/Cake.md"), b"# Another\n")
    assert looks_up() and not all(looks_up() for _ in range(20))


def test_a_name_that_was_looked_up_means_what_another_process_filed_since(tmp_path: Path) -> None:
    ours, theirs = SqliteIndex(tmp_path), SqliteIndex(tmp_path)

    def place(path: str) -> Filing:
        return Filing(NotePath(path), "1-1", "", 0, 0, None)

    def by_name() -> list[list[NotePath]]:
        return [list(ours.by_name(key)) for _ in range(3) for key in ("tea", "rice")][2:]  # the first begins the moment

    theirs.file([place("Tea.md")])
    with ours.snapshot():
        assert by_name() == [["Tea.md"], []] * 2
        theirs.file([place("Food/Rice.md")], drop=["Tea.md"])
        assert by_name() == [["Tea.md"], []] * 2
    with ours.snapshot():
        assert by_name() == [[], ["Food/Rice.md"]] * 2
    ours.close()
    theirs.close()


def test_who_only_asks_which_notes_link_reads_none_of_them(ws: Workspace, statements: Statements) -> None:
    asked = statements(lambda: incoming(ws, TEA, lines=False))
    assert len(asked) == 2 and not any("texts" in sql for sql in asked)
    assert {link.source for link in incoming(ws, TEA, lines=False)} == {link.source for link in incoming(ws, TEA)}


def test_a_statement_is_not_planned_again_for_another_note(ws: Workspace) -> None:
    again = list[int]()

    def look(con: Connection) -> None:
        count = lambda done: again.append(done["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"])  # noqa: E731
        con.db.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        for name in ("Tea", "Cake", "People/0"):
            queries.links_from(con, [f"{name}.md"])
            queries.links_toward(con, [name.lower(), f"{name.lower()}.md"])
            queries.with_problem(con, name)
        con.db.trace_v2(0, None)

    assert isinstance(ws.index, SqliteIndex)
    ws.index.ask(look)
    assert len(again) == 9 and not any(again)


@pytest.mark.parametrize(("surface", "tool", "given"), [(SURFACE, "read", {"path": "People/7.md"}),
                                                        (OBSIDIAN, "read_note", {"name": "7"})])  # fmt: skip
def test_a_note_is_read_without_being_looked_for_first(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch, surface: Surface, tool: str, given: Args
) -> None:
    monkeypatch.setattr(FolderStore, "stat", lambda *_, **__: pytest.fail("it is looked for"))
    assert "We had [[Tea]]" in perform(surface, Call(Library.of([ws])), tool, given).text


def test_the_notes_of_all_folders_are_counted_again_only_when_something_was_filed(
    ws: Workspace, statements: Statements
) -> None:
    def counting() -> bool:
        return any("group by folder" in sql for sql in statements(lambda: list_folder(ws, "")))

    assert not all(counting() for _ in range(20))  # whoever follows the folder may file something as well
    create(ws, NotePath("People/New/One.md"), b"# One\n")
    assert counting() and not all(counting() for _ in range(20))
    assert list_folder(ws, "").folders == (("People", 31),)
    assert list_folder(ws, "People").folders == (("People/New", 1),)


def test_the_counts_of_folders_are_those_of_what_each_reader_may_see(ws: Workspace) -> None:
    half = replace(ws, access=Access(hide=("People/1*",)))
    for reader, count in ((ws, 30), (half, 19), (ws, 30), (half, 19)):
        assert list_folder(reader, "").folders == (("People", count),)


def test_a_call_looks_once_which_workspaces_there_are(ws: Workspace) -> None:
    """To look is to ask the registry whether the owner changed anything."""
    looked: list[bool] = []

    def there() -> list[Workspace]:
        looked.append(True)
        return [ws]

    answer = perform(SURFACE, Call(Library(there)), "links", {"path": "Tea.md"})
    assert answer.text.count("\n") == 32 and len(looked) == 1
