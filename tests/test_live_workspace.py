"""A live folder as a workspace: people who type, editors that save, agents and other processes, in one text."""

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pycrdt import Map
from tests.stores.test_live import Typist
from tests.waiting import until

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.changes import live as engine_live
from notewright.engine.changes.history import list_changes, undo, undo_since
from notewright.engine.dialects.octarine import fetch_copy
from notewright.engine.find.search import parse_query, search
from notewright.engine.library import Library
from notewright.engine.move import move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, delete, edit_note, put
from notewright.errors import Conflict, Indexing, Problem
from notewright.ledger.base import Actor, ChangeQuery
from notewright.notes.edits.edit import Append, Replace
from notewright.notes.path import NotePath
from notewright.stores.live import documents as documents_module
from notewright.stores.live import paths
from notewright.stores.live.document import Document
from notewright.surfaces.base import Call, Session
from notewright.surfaces.lens.tools import SURFACE as LENS
from notewright.surfaces.perform import perform

A, B, LINKING = NotePath("a.md"), NotePath("b.md"), NotePath("linking.md")
ANN = Actor("ann", "browser", "live", "type")
Open = Callable[..., Workspace]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "notes"
    place.mkdir()
    (place / A).write_text("# A\n\nfirst\n")
    (place / LINKING).write_text("See [[a]] and [[b]].\n")
    return place


@pytest.fixture
def opened(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setattr(documents_module, "PAUSE_S", 0.2)
    monkeypatch.setattr(paths, "GONE_S", 0.5)
    monkeypatch.setattr(engine_live, "LINKS_S", 0.2)
    monkeypatch.setattr(engine_live, "ALL_LINKS_S", 0.2)
    made: list[Workspace] = []

    def make(*, live: bool = True) -> Workspace:
        one = WorkspaceConfig("Notes", "notes", str(root), live=True)
        config = Config((one,), str(tmp_path / "state"), str(tmp_path / "cache"))
        made.append(open_workspace(one, config, live=live))
        return made[-1]

    yield make
    for ws in made:
        close_workspace(ws)


class Person(Typist):
    by = ANN


def open_note(ws: Workspace, path: NotePath = A) -> Document:
    assert ws.live is not None
    return ws.live.open(ws.live.id_of(path))


def summaries(ws: Workspace, path: NotePath = A) -> list[str]:
    return [change.summary for change in list_changes(ws, ChangeQuery(path=path))]


def test_typing_is_one_change_for_each_pause_by_whoever_typed_and_can_be_undone(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "PAUSE_S", 1.0)
    ws = opened()
    ann = Person(open_note(ws))
    for letter in "typed\n":
        ann.type(letter)
    until(lambda: (root / A).read_text().endswith("typed\n"))
    until(lambda: summaries(ws) == ["typed in a.md"])
    (change,) = list_changes(ws, ChangeQuery(path=A))
    assert (change.actor.user, change.actor.surface) == ("ann", "live")
    ann.type("later\n")
    undo(ws, change.id)
    assert str(ann.text) == "# A\n\nfirst\nlater\n", "what was typed since stays"
    until(lambda: (root / A).read_text() == str(ann.text))


def test_what_is_typed_is_found_by_search(opened: Open) -> None:
    ws = opened()
    ann = Person(open_note(ws))
    ann.type("zebrafinch\n")
    until(lambda: [hit.path for hit in search(ws, parse_query("zebrafinch")).items] == [A], 5)


def test_an_agent_edits_what_is_being_typed_and_both_stay(opened: Open, root: Path) -> None:
    ws = opened()
    ann = Person(open_note(ws))
    shown = read(ws, A)
    ann.type("typed\n")
    edit_note(ws, A, [Replace("first", "second")], seen=shown.version)
    edit_note(ws, A, [Append("appended")])
    assert str(ann.text) == (root / A).read_text() == "# A\n\nsecond\ntyped\nappended"
    assert "typed in a.md" in summaries(ws), "typing is a change of its own, before the agent's"


def test_an_agent_that_names_no_version_changes_what_it_was_last_shown(opened: Open, root: Path) -> None:
    ws = opened()
    ann = Person(open_note(ws))
    call = Call(Library(lambda: [ws]), Actor("bot", "agent", "second_brain", ""), Session("agent"))
    agent = call.workspace
    read(agent, A)
    ann.type("typed\n")
    put(agent, A, b"# A\n\nwhole new text\n")
    assert str(ann.text) == (root / A).read_text() == "# A\n\nwhole new text\ntyped\n"
    put(agent, A, b"# A\n\nand again\n")
    assert str(ann.text) == (root / A).read_text() == "# A\n\nand again\ntyped\n", "it never saw what was typed"
    put(agent, A, str(ann.text).encode())
    assert str(ann.text) == (root / A).read_text() == "# A\n\nand again\ntyped\n", "which it was told elsewhere"


def test_what_was_typed_stays_when_its_typist_has_gone_before_the_agent_writes(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "IDLE_S", 0.0)
    ws = opened()
    assert ws.live is not None
    agent = Call(Library(lambda: [ws]), Actor("bot", "agent", "octarine", ""), Session("agent")).workspace
    shown = fetch_copy(agent, A)
    ann = Person(open_note(ws))
    ann.type("typed\n")
    until(lambda: (root / A).read_text().endswith("typed\n"))
    ws.live.release(ann.document)
    until(lambda: ws.live is not None and not ws.live.list_open())
    put(agent, A, b"whole\n" + shown.data)
    assert (root / A).read_text() == "whole\n# A\n\nfirst\ntyped\n"


def test_an_editor_that_saves_an_old_text_of_ours_unchanged_changes_nothing(opened: Open, root: Path) -> None:
    ws = opened()
    document = open_note(ws)
    ann = Person(document)
    ann.type("alpha\n")
    until(lambda: "alpha" in (root / A).read_text() and document.is_saved())
    buffer = (root / A).read_text()
    ann.type("beta\n")
    until(lambda: "beta" in (root / A).read_text() and document.is_saved())
    (root / A).write_text(buffer)
    until(lambda: (root / A).read_text() == "# A\n\nfirst\nalpha\nbeta\n")
    assert str(ann.text) == (root / A).read_text()


def test_another_process_needs_no_yjs(opened: Open, root: Path) -> None:
    ws, other = opened(), opened(live=False)
    ann = Person(open_note(ws))
    edited = edit_note(other, A, [Replace("first", "second")])
    until(lambda: "second" in str(ann.text))
    ann.type("typed\n")
    assert edited.change_id is not None
    undo(other, edited.change_id)
    until(lambda: str(ann.text) == (root / A).read_text() == "# A\n\nfirst\ntyped\n")


def test_a_rename_keeps_the_document_and_the_links_follow(opened: Open, root: Path) -> None:
    ws = opened()
    document = open_note(ws)
    ann, ben = Person(document), Person(open_note(ws, LINKING))
    ben.type("typed too\n")
    moved = move(ws, A, "sub/new.md")
    ann.type("after\n")
    assert str(ben.text) == "See [[new]] and [[b]].\ntyped too\n" == (root / LINKING).read_text()
    until(lambda: (root / "sub/new.md").read_text() == "# A\n\nfirst\nafter\n")
    assert ws.live is not None and ws.live.path_of(document.id) == "sub/new.md" and not ann.ended
    assert moved.change_id is not None
    undo(ws, moved.change_id)
    assert ws.live.path_of(document.id) == A and not ann.ended
    until(lambda: (root / A).read_text() == "# A\n\nfirst\nafter\n")


def test_a_file_that_somebody_else_renames_keeps_its_document(opened: Open, root: Path) -> None:
    ws, other = opened(), opened(live=False)
    document = open_note(ws)
    ann = Person(document)
    (root / A).rename(root / B)
    assert ws.live is not None
    until(lambda: ws.live.path_of(document.id) == B)  # type: ignore[union-attr]
    ann.type("typed\n")
    until(lambda: (root / B).read_text().endswith("typed\n"))
    until(lambda: not other.ledger.find_unfinished())
    move(other, B, "c.md")
    until(lambda: ws.live.path_of(document.id) == "c.md")  # type: ignore[union-attr]
    assert not ann.ended and not (root / B).exists()


def test_a_deleted_note_goes_to_the_trash_and_comes_back_with_its_id(opened: Open, root: Path) -> None:
    ws = opened()
    document = open_note(ws)
    ann = Person(document)
    gone = delete(ws, A)
    assert "deleted" in ann.ended and not (root / A).exists()
    assert gone.change_id is not None
    undo(ws, gone.change_id)
    assert ws.live is not None and ws.live.id_of(A) == document.id
    assert str(Person(open_note(ws)).text) == "# A\n\nfirst\n"


def test_a_note_that_is_brought_back_with_an_older_text_has_that_text(opened: Open, root: Path) -> None:
    ws = opened()
    Person(open_note(ws))
    began = time.time()
    edit_note(ws, A, [Replace("first", "second")])
    delete(ws, A)
    undo_since(ws, began)
    ann = Person(open_note(ws))
    assert str(ann.text) == ws.store.read(A).data.decode() == (root / A).read_text() == "# A\n\nfirst\n"


def test_a_text_taken_back_while_nobody_has_it_open_stays_taken_back(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "IDLE_S", 0.0)
    ws = opened()
    assert ws.live is not None
    ann = Person(open_note(ws))
    began = time.time()
    edit_note(ws, A, [Replace("first", "second")])
    ws.live.release(ann.document)
    until(lambda: ws.live is not None and not ws.live.list_open())
    edit_note(ws, A, [Replace("second", "third")])
    undo_since(ws, began)
    assert (root / A).read_text() == "# A\n\nfirst\n"
    ann = Person(open_note(ws))
    assert str(ann.text) == ws.store.read(A).data.decode() == "# A\n\nfirst\n"


def test_a_change_that_another_process_made_is_taken_in_once(opened: Open, root: Path) -> None:
    ws, other = opened(), opened(live=False)
    ann = Person(open_note(ws))
    edit_note(other, A, [Replace("first", "first second")])
    until(lambda: str(ann.text) == "# A\n\nfirst second\n")
    buffer = (root / A).read_text()
    (root / A).write_text(buffer + "third\n")
    until(lambda: "third" in str(ann.text))
    (root / A).write_text(buffer)
    until(lambda: (root / A).read_text() != buffer)
    assert str(ann.text) == (root / A).read_text() == buffer + "third\n", "an old buffer, not the change once more"


# The folder document


class FolderClient(Typist):
    """A Yjs client that has the folder document."""

    def __init__(self, ws: Workspace) -> None:
        assert ws.live is not None
        super().__init__(ws.live.open(ws.live.folder_id))

    @property
    def files(self) -> "Map[Any]":
        return self.doc.get("filemeta_v0", type=Map)

    @property
    def docs(self) -> "Map[Any]":
        return self.doc.get("docs", type=Map)

    @property
    def config(self) -> "Map[Any]":
        return self.doc.get("folder_config", type=Map)

    @property
    def backlinks(self) -> "Map[Any]":
        return self.doc.get("backlinks_v0", type=Map)

    def change(self, work: Callable[[], object]) -> None:
        before = self.doc.get_state()
        self.changing = True
        with self.own.transaction():
            work()
        self.changing = False
        self.document.apply(self.own.get_update(before), by=ANN, source=self)

    def ids(self) -> dict[str, str]:
        return {key: value["id"] for key, value in self.files.to_py().items() if value["type"] == "markdown"}  # type: ignore[union-attr]


def test_the_folder_document_says_what_the_folder_has(opened: Open, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub/deep.md").write_text("deep\n")
    (root / "sub/picture.png").write_bytes(b"\x89PNG")
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.files) == 5)
    assert client.ids().keys() == {"/a.md", "/linking.md", "/sub/deep.md"} == set(client.docs.keys())
    assert client.ids() == client.docs.to_py()
    picture = client.files["/sub/picture.png"]
    assert client.files["/sub"]["type"] == "folder" and picture["type"] == "image"
    assert picture["hash"] == hashlib.sha256(b"\x89PNG").hexdigest() and "hash" not in client.files["/a.md"]
    assert client.config["name"] == "Notes"
    assert ws.live is not None
    relay = ws.live.folder_id[:36]
    assert ws.live.id_of(A) == f"{relay}-{client.ids()['/a.md']}"
    ids = client.ids()
    until(lambda: client.backlinks.to_py() == {ids["/a.md"]: [ids["/linking.md"]]})
    create(ws, B, b"[[a]]\n")
    until(lambda: "/b.md" in client.ids())
    ids = client.ids()
    both = sorted([ids["/linking.md"], ids["/b.md"]])
    until(lambda: client.backlinks.to_py() == {ids["/a.md"]: both, ids["/b.md"]: [ids["/linking.md"]]})
    edit_note(ws, B, [Replace("[[a]]", "nothing")])
    until(lambda: client.backlinks.to_py()[ids["/a.md"]] == [ids["/linking.md"]])  # type: ignore[index]
    (root / "sub/deep.md").unlink()
    (root / "sub/picture.png").write_bytes(b"another")
    until(lambda: client.files["/sub/picture.png"]["hash"] == hashlib.sha256(b"another").hexdigest())
    assert client.files["/sub/picture.png"]["id"] == picture["id"]
    until(lambda: "/sub/deep.md" not in client.files and "/sub/deep.md" not in client.docs)


def test_a_client_creates_renames_and_deletes_through_the_folder_document(opened: Open, root: Path) -> None:
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    own, part = client.ids()["/a.md"], "7c1a3a9e-0000-4000-8000-000000000001"
    assert ws.live is not None
    text = Person(ws.live.open(ws.live.create(f"{ws.live.folder_id[:36]}-{part}")))
    text.type("made by a client\n")

    def add() -> None:
        client.files["/new.md"] = {"id": part, "type": "markdown", "version": 0}
        client.docs["/new.md"] = part

    client.change(add)
    until(lambda: (root / "new.md").exists() and (root / "new.md").read_text() == "made by a client\n")
    text.type("and more\n")
    until(lambda: (root / "new.md").read_text() == "made by a client\nand more\n")

    def rename() -> None:
        client.files["/sub/other.md"] = Map({"id": own, "type": "markdown", "version": 0.0})
        client.docs["/sub/other.md"] = own
        del client.files["/a.md"]
        del client.docs["/a.md"]

    client.change(rename)
    until(lambda: (root / "sub/other.md").exists() and not (root / A).exists())
    until(lambda: (root / LINKING).read_text() == "See [[other]] and [[b]].\n")

    def drop() -> None:
        del client.files["/new.md"]
        del client.docs["/new.md"]

    client.change(drop)
    until(lambda: not (root / "new.md").exists())
    until(
        lambda: (
            [change.actor.tool for change in list_changes(ws, ChangeQuery(limit=4))]
            == ["delete", "move", "type", "create"]
        )
    )
    assert {change.actor.user for change in list_changes(ws, ChangeQuery(limit=4))} == {"ann"}
    undo(ws, list_changes(ws, ChangeQuery(limit=1))[0].id)
    until(lambda: client.ids().get("/new.md") == part)


def test_lens_knows_documents_that_appear_move_and_go(opened: Open, root: Path) -> None:
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    call = Call(Library(lambda: [ws]), Actor("bot", "agent", "lens", ""), Session("agent"))

    def lens(tool: str, **args: str) -> str:
        return perform(LENS, call, tool, args).text

    def put(old: str | None, new: str | None, doc: str) -> None:
        for entries, value in ((client.files, {"id": doc, "type": "markdown", "version": 0}), (client.docs, doc)):
            if new is not None:
                entries[new] = value
            if old is not None:
                del entries[old]

    assert ws.live is not None
    part = "7c1a3a9e-0000-4000-8000-000000000002"
    typist = Person(ws.live.open(ws.live.create(f"{ws.live.folder_id[:36]}-{part}")))
    typist.type("# B\n\nSee [[a]].\n")
    assert lens("read", file_path="Notes/b.md") == "Error: Document not found: Notes/b.md"
    client.change(lambda: put(None, "/b.md", part))
    until(lambda: (root / B).exists())
    assert lens("read", file_path="Notes/b.md") == "     1\t# B\n     2\t\n     3\tSee [[a]]."
    until(lambda: lens("glob", pattern="**/*.md") == "Notes/a.md\nNotes/b.md\nNotes/linking.md")
    links = "Backlinks (documents linking to this):\n- {}\n\nForward links (documents this links to):\n- {}"
    assert lens("get_links", file_path="Notes/b.md") == links.format("Notes/linking.md", "Notes/a.md")
    typist.type("Typed.\n")
    assert lens("read", file_path="Notes/b") == "     1\t# B\n     2\t\n     3\tSee [[a]].\n     4\tTyped."
    client.change(lambda: put("/b.md", "/sub/moved.md", part))
    until(lambda: (root / "sub/moved.md").exists() and not (root / B).exists())
    assert lens("read", file_path="Notes/b.md") == "Error: Document not found: Notes/b.md"
    until(lambda: lens("glob", pattern="sub/*", path="Notes") == "Notes/sub/moved.md")
    assert lens("get_links", file_path="Notes/sub/moved.md") == links.format("Notes/linking.md", "Notes/a.md")
    client.change(lambda: put("/sub/moved.md", None, part))
    until(lambda: not (root / "sub/moved.md").exists())
    until(lambda: lens("glob", pattern="**/*.md") == "Notes/a.md\nNotes/linking.md")
    assert lens("get_links", file_path="Notes/linking.md") == links.format("(none)", "Notes/a.md")


@pytest.mark.parametrize("key", ["/", "//x.md", "x.md", "/../x.md", "/.hidden/x.md", ""])
def test_a_key_that_is_no_path_is_ignored_and_put_right(opened: Open, root: Path, key: str) -> None:
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    before = sorted(str(path) for path in root.rglob("*"))
    client.change(lambda: client.files.update({key: {"id": "x" * 36, "type": "markdown", "version": 0}}))
    until(lambda: key not in client.files)
    assert sorted(str(path) for path in root.rglob("*")) == before
    assert client.ids().keys() == {"/a.md", "/linking.md"}


def test_what_happened_while_nobody_had_the_folder_document_open_is_not_undone(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "IDLE_S", 0.0)
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    own = client.ids()["/a.md"]
    assert ws.live is not None
    ws.live.release(client.document)
    until(lambda: bool(client.ended))
    move(ws, A, "renamed.md")
    delete(ws, LINKING)
    again = FolderClient(ws)
    assert again.ids() == {"/renamed.md": own}, "it is shown as it is, from the first moment"
    time.sleep(0.5)
    assert [path.name for path in root.glob("*.md")] == ["renamed.md"]


def test_what_a_client_did_in_the_moment_before_its_host_died_is_carried_out(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    own = client.ids()["/a.md"]
    assert ws.live is not None
    ws.live.sync_folder = lambda folder: None  # it dies before it comes to it

    def rename() -> None:
        client.files["/later.md"] = {"id": own, "type": "markdown", "version": 0}
        client.docs["/later.md"] = own
        del client.files["/a.md"], client.docs["/a.md"]

    client.change(rename)
    close_workspace(ws)
    assert (root / A).exists()
    again = opened()
    until(lambda: (root / "later.md").exists() and not (root / A).exists())
    assert "[[later]]" in (root / LINKING).read_text()
    assert sorted(FolderClient(again).ids()) == ["/later.md", "/linking.md"]


def test_a_deletion_that_waits_for_the_index_is_carried_out_also_when_its_client_has_gone(
    opened: Open, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "IDLE_S", 0.0)
    monkeypatch.setattr(engine_live, "DELETED_S", 0.2)
    asked: list[NotePath] = []
    is_ready = False

    def delete_when_ready(ws: Workspace, path: NotePath) -> object:
        asked.append(path)
        if not is_ready:
            raise Indexing("the notes are being indexed", done=0, total=2)
        return delete(ws, path)

    monkeypatch.setattr(engine_live, "delete", delete_when_ready)
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    client.change(lambda: (client.files.pop("/a.md"), client.docs.pop("/a.md")))
    assert ws.live is not None
    ws.live.release(client.document)
    until(lambda: len(asked) > 2)
    assert not client.ended and (root / A).exists(), "opened some day later, it would delete what is there by then"
    is_ready = True
    until(lambda: bool(client.ended))
    assert not (root / A).exists()


def test_a_rename_in_two_steps_is_one_and_a_broken_entry_deletes_nothing(opened: Open, root: Path) -> None:
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    own, entry = client.ids()["/a.md"], dict(client.files["/a.md"])
    client.change(lambda: client.files.update({"/linking.md": {"id": None, "type": "canvas"}}))
    client.change(lambda: (client.files.pop("/a.md"), client.docs.pop("/a.md")))
    time.sleep(0.5)
    client.change(lambda: (client.files.update({"/later.md": entry}), client.docs.update({"/later.md": own})))
    until(lambda: (root / "later.md").exists() and not (root / A).exists())
    assert (root / "later.md").read_text() == "# A\n\nfirst\n"
    until(lambda: client.ids().keys() == {"/later.md", "/linking.md"})
    until(lambda: (root / LINKING).read_text() == "See [[later]] and [[b]].\n")


def test_what_is_refused_is_put_back(opened: Open, root: Path) -> None:
    ws = opened()
    client = FolderClient(ws)
    until(lambda: len(client.ids()) == 2)
    own = client.ids()["/a.md"]

    def onto_another() -> None:
        client.files["/linking.md"] = {"id": own, "type": "markdown", "version": 0}
        del client.files["/a.md"]

    client.change(onto_another)
    until(lambda: client.ids().get("/a.md") == own and len(client.ids()) == 2)
    assert (root / A).read_text() == "# A\n\nfirst\n"
    time.sleep(0.1)
    with pytest.raises(Problem):
        read(replace(ws), NotePath("nowhere.md"))


def session(ws: Workspace, name: str) -> Workspace:
    return Call(Library.of([ws]), Actor(name, "agent", "second_brain", ""), Session(name)).workspace


def test_a_text_that_a_merge_once_made_can_be_written_again_and_undone_to(opened: Open, root: Path) -> None:
    ws = opened()
    agent, ann = session(ws, "agent"), Person(open_note(ws))
    read(agent, A)
    ann.type("typed\n")
    put(agent, A, b"# A\n\nfirst\nadded\n")
    merged = str(ann.text)
    assert "typed" in merged and "added" in merged
    edit_note(agent, A, [Append("wrong")])
    undo(ws, list_changes(ws, ChangeQuery(path=A))[0].id)
    assert str(ann.text) == (root / A).read_text() == merged


def test_an_agent_that_only_appended_does_not_write_over_what_it_never_saw(opened: Open) -> None:
    ws = opened()
    agent, ann = session(ws, "agent"), Person(open_note(ws))
    read(agent, A)
    ann.type("typed\n")
    edit_note(agent, A, [Append("appended")])
    put(agent, A, b"# A\n\nfirst\nappended\nmore\n")
    assert sorted(str(ann.text).split()) == ["#", "A", "appended", "first", "more", "typed"]


def test_a_text_that_is_there_already_counts_as_seen(opened: Open) -> None:
    ws = opened()
    agent, ann = session(ws, "agent"), Person(open_note(ws))
    read(agent, A)
    ann.type("typed\n")
    put(agent, A, b"# A\n\nfirst\ntyped\n")
    put(agent, A, b"# A\n\nfirst\ntyped\nmore\n")
    assert str(ann.text) == "# A\n\nfirst\ntyped\nmore\n"


def test_the_second_edits_of_a_dozen_agents_at_once_are_there_too(opened: Open) -> None:
    ws = opened()
    agents, ann = [session(ws, f"agent {number}") for number in range(12)], Person(open_note(ws))
    for agent in agents:
        read(agent, A)
    ann.type("typed\n")
    wrote = [b"# A\n\nfirst\n"] * len(agents)
    for turn in ("one", "two"):
        wrote = [text + f"{turn} {number}\n".encode() for number, text in enumerate(wrote)]
        with ThreadPoolExecutor(len(agents)) as pool:
            list(pool.map(lambda agent, text: put(agent, A, text), agents, wrote))
    expected = ["# A", "", "first", "typed", *(f"{turn} {number}" for turn in ("one", "two") for number in range(12))]
    assert sorted(str(ann.text).splitlines()) == sorted(expected)


def test_who_was_shown_a_text_that_is_forgotten_is_asked_to_read_again(opened: Open) -> None:
    ws = opened()
    agent, ann = session(ws, "agent"), Person(open_note(ws))
    read(agent, A)
    ann.type("typed\n")
    assert agent.shown is not None
    agent.shown[A] = "f" * 64
    with pytest.raises(Conflict, match="changed since you read it"):
        put(agent, A, b"# A\n\nfirst\nagain\n")
    assert "typed" in str(ann.text)
