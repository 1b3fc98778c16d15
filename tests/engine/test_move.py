"""Moving through the engine: every link follows, in one change set, on a real folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import read_files

from notewright.engine.changes.history import list_changes, undo
from notewright.engine.check import check
from notewright.engine.find.links import incoming
from notewright.engine.move import PlanReader, move, rename_heading, rename_tag
from notewright.errors import Exists, Forbidden, Invalid, NotFound, ReadOnly
from notewright.ledger.base import ChangeQuery
from notewright.notes.path import NotePath

TEA = NotePath("Tea.md")


def texts(root: Path) -> dict[str, str]:
    return {path: data.decode() for path, data in read_files(root).items()}


def test_every_form_of_link_follows(workspace, tmp_path: Path) -> None:
    ws = workspace(
        {
            "Tea.md": "[peer](./Peer.md)\n",
            "Peer.md": '---\nsee: "[[Tea]]"\n---\n[[Tea|drink]] ![[Tea#Water]] [x](Tea.md#a) `[[Tea]]` [[tea]]\n',
            "sub/Board.canvas": '{"nodes":[{"type":"file","file":"Tea.md"}]}',
            "Other.md": "[[Teapot]]\n",
        }
    )
    moved = move(ws, TEA, "drinks/Green tea")
    root = tmp_path / "Main"
    assert not (root / "Tea.md").exists()
    assert (root / "drinks/Green tea.md").read_text() == "[peer](../Peer.md)\n"
    assert (root / "Peer.md").read_text() == (
        '---\nsee: "[[Green tea]]"\n---\n'
        "[[Green tea|drink]] ![[Green tea#Water]] [x](Green%20tea.md#a) `[[Tea]]` [[Green tea]]\n"
    )
    assert (root / "sub/Board.canvas").read_text() == '{"nodes":[{"type":"file","file":"drinks/Green tea.md"}]}'
    assert (root / "Other.md").read_text() == "[[Teapot]]\n"
    assert dict(moved.files)["Peer.md"] == 5
    assert [link.path for link in incoming(ws, moved.new)].count("Peer.md") == 5


def test_links_to_a_note_whose_name_ends_in_md_twice_follow(workspace, tmp_path: Path) -> None:
    ws = workspace({"a/Tea.md.md": "", "A.md": "[[Tea.md]] [x](a/Tea.md) [[tea.MD.md]]"})
    assert [link.path for link in incoming(ws, NotePath("a/Tea.md.md"))] == ["A.md"] * 3
    move(ws, NotePath("a/Tea.md.md"), "b/Coffee.md")
    assert texts(tmp_path / "Main")["A.md"] == "[[Coffee.md]] [x](b/Coffee.md) [[Coffee.md]]"


def test_a_dry_run_tells_the_same_and_changes_nothing(workspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "x", "A.md": "[[Tea]]"})
    before = texts(tmp_path / "Main")
    planned = move(ws, TEA, "Coffee", dry_run=True)
    assert texts(tmp_path / "Main") == before
    done = move(ws, TEA, "Coffee")
    assert (planned.files, planned.count, planned.new) == (done.files, done.count, done.new)
    assert planned.change_id is None and done.change_id


def test_there_and_back_is_as_before(workspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "[[A]]\r\n", "A.md": "[[Tea]] and [[Tea#x|y]]", "b/Tea 2.md": "[[../Tea]]"})
    before = texts(tmp_path / "Main")
    move(ws, TEA, "c/Coffee")
    move(ws, NotePath("c/Coffee.md"), "Tea")
    assert texts(tmp_path / "Main") == before


def test_an_undo_puts_every_byte_back(workspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "[[A]]", "A.md": "[[Tea]]", "d/B.md": "![[Tea]]"})
    before = texts(tmp_path / "Main")
    moved = move(ws, TEA, "d/e/Coffee")
    assert moved.change_id
    undo(ws, moved.change_id)
    assert texts(tmp_path / "Main") == before
    assert not (tmp_path / "Main/d/e").exists()


def test_a_folder_moves_with_all_that_is_in_it(workspace, tmp_path: Path) -> None:
    ws = workspace(
        {
            "old/A.md": "[[B]] ![](pic.png)",
            "old/deep/B.md": "[[old/A]]",
            "old/pic.png": b"\x89",
            "C.md": "[[old/deep/B]]",
        }
    )
    moved = move(ws, NotePath("old"), "new/place")
    assert list(read_files(tmp_path / "Main")) == ["C.md", "new/place/A.md", "new/place/deep/B.md", "new/place/pic.png"]
    assert (tmp_path / "Main/C.md").read_text() == "[[new/place/deep/B]]"
    assert moved.new == "new/place"
    assert check(ws) == []


@pytest.mark.parametrize("notes", [("n.md",), ("n.md", "sub/m.md")])
def test_a_folder_that_moved_is_gone_from_its_old_place(workspace, tmp_path: Path, notes: tuple[str, ...]) -> None:
    ws = workspace({f"Old/{note}": "x" for note in notes})
    moved = move(ws, NotePath("Old"), "New")
    assert sorted(path.name for path in (tmp_path / "Main").iterdir()) == ["New"]
    undo(ws, moved.change_id or "")
    assert sorted(path.name for path in (tmp_path / "Main").iterdir()) == ["Old"]


def test_the_folder_of_a_note_that_moved_stays(workspace, tmp_path: Path) -> None:
    move(workspace({"Old/n.md": "x"}), NotePath("Old/n.md"), "New/n.md")
    assert (tmp_path / "Main" / "Old").is_dir()


def test_moving_into_a_folder_keeps_the_name(workspace) -> None:
    ws = workspace({"Tea.md": "", "pic.png": b"1"})
    assert move(ws, TEA, "drinks/").new == "drinks/Tea.md"
    assert move(ws, NotePath("pic.png"), "art/oven").new == "art/oven.png"
    assert move(ws, NotePath("drinks/Tea.md"), "/").new == "Tea.md"


def test_links_that_would_change_their_meaning_are_pinned(workspace, tmp_path: Path) -> None:
    ws = workspace({"a/Old.md": "", "c/New.md": "", "x.md": "[[Old]] [[New]]\n"})
    move(ws, NotePath("a/Old.md"), "a/New")
    assert (tmp_path / "Main/x.md").read_text() == "[[a/New]] [[c/New]]\n"


@pytest.mark.parametrize(
    ("new", "kind"),
    [("B", Exists), ("b", Exists), ("Tea", Invalid), ("a:b", Invalid), ("../x", Invalid), (".hidden/x", Invalid)],
)
def test_a_refused_move_changes_nothing(workspace, tmp_path: Path, new: str, kind: type[Exception]) -> None:
    ws = workspace({"Tea.md": "", "B.md": "[[Tea]]"})
    before = texts(tmp_path / "Main")
    with pytest.raises(kind):
        move(ws, TEA, new)
    assert texts(tmp_path / "Main") == before


def test_a_note_that_is_not_there_cannot_move(workspace) -> None:
    with pytest.raises(NotFound):
        move(workspace({"A.md": ""}), NotePath("B.md"), "C")


def test_access_holds_for_moves_but_links_in_hidden_notes_follow_unnamed(workspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "", "Private/Diary.md": "[[Tea]]\n", "In/A.md": ""}, hide=("Private/**",))
    moved = move(ws, TEA, "Coffee")
    assert (tmp_path / "Main/Private/Diary.md").read_text() == "[[Coffee]]\n"
    assert (moved.files, moved.count) == ((), 0)
    with pytest.raises(Forbidden):
        move(ws, NotePath("Coffee.md"), "Private/Coffee")
    with pytest.raises(NotFound):
        move(ws, NotePath("Private/Diary.md"), "Diary")


def test_a_read_only_workspace_refuses_moves(workspace) -> None:
    with pytest.raises(ReadOnly):
        move(workspace({"Tea.md": ""}, read_only=True), TEA, "Coffee")


def test_write_under_binds_both_ends(workspace) -> None:
    ws = workspace({"Tea.md": "", "In/A.md": ""}, write_under=("In/**",))
    with pytest.raises(Forbidden):
        move(ws, TEA, "In/Tea")
    assert move(ws, NotePath("In/A.md"), "In/B").new == "In/B.md"


def test_a_note_that_is_not_utf8_moves_and_is_never_rewritten(workspace, tmp_path: Path) -> None:
    raw = b"caf\xe9 [[Tea]]\n"
    ws = workspace({"Tea.md": "", "Latin.md": raw})
    move(ws, TEA, "Coffee")
    assert (tmp_path / "Main/Latin.md").read_bytes() == raw
    move(ws, NotePath("Latin.md"), "Old/Latin")
    assert (tmp_path / "Main/Old/Latin.md").read_bytes() == raw


def test_a_tag_nobody_has_is_refused_and_changes_nothing(workspace, tmp_path: Path) -> None:
    ws = workspace({"A.md": "#tea #tea/green #coffee"})
    before = texts(tmp_path / "Main")
    for dry_run in (True, False):
        with pytest.raises(NotFound, match="no note has the tag #tee") as refused:
            rename_tag(ws, "#tee", "x", dry_run=dry_run)
        assert refused.value.details["nearest"][0] == "tea"
    assert texts(tmp_path / "Main") == before
    assert list_changes(ws, ChangeQuery(limit=10)) == []
    with pytest.raises(NotFound, match="no note has the tag #x"):
        rename_tag(workspace({"A.md": "none"}, name="Bare"), "x", "y")


def test_a_note_that_vanishes_before_its_heading_is_renamed_is_missing_and_no_other_is_changed(
    workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = workspace({"A.md": "# Old\n", "B.md": "# Old\n[[A#Old]]"})
    ws.follower.wait_for_all(10)
    there = PlanReader.read
    monkeypatch.setattr(PlanReader, "read", lambda self, paths: there(self, [path for path in paths if path != "A.md"]))
    with pytest.raises(NotFound):
        rename_heading(ws, NotePath("A.md"), "Old", "New")
    assert texts(tmp_path / "Main") == {"A.md": "# Old\n", "B.md": "# Old\n[[A#Old]]"}


def test_headings_and_tags_are_renamed_with_their_links(workspace, tmp_path: Path) -> None:
    ws = workspace({"A.md": "# Old\ntext ^b1\n\n#t/x\n", "B.md": "[[A#Old]] [[A#^b1]] #t\n"})
    rename_heading(ws, NotePath("A.md"), "Old", "New")
    rename_tag(ws, "t", "u")
    assert (tmp_path / "Main/A.md").read_text() == "# New\ntext ^b1\n\n#u/x\n"
    assert (tmp_path / "Main/B.md").read_text() == "[[A#New]] [[A#^b1]] #u\n"


@pytest.mark.slow
@pytest.mark.parametrize("vault", ["quartz-docs", "iron-vault-docs", "tasks-docs", "knowledge-garden-zh"])
def test_renames_of_real_vaults_are_right_byte_for_byte(workspace, shared: Path, tmp_path: Path, vault: str) -> None:
    before = read_files(shared / "vaults" / vault / "vault")
    ws, root = workspace(before), tmp_path / "Main"
    lines = (shared / "truth" / vault / "renames.jsonl").read_text().splitlines()
    for case in map(json.loads, lines[:12]):
        moved = move(ws, NotePath(case["from"]), case["to"])
        changed = {path: data for path, data in read_files(root).items() if before.get(path) != data}
        check_rename(case, changed)
        assert moved.change_id
        undo(ws, moved.change_id)
        assert read_files(root) == before


def check_rename(case: dict[str, Any], changed: dict[str, bytes]) -> None:
    wanted = {path: told["sha256"] for path, told in case["changed"].items()}
    got = {path: hashlib.sha256(data).hexdigest() for path, data in changed.items()}
    assert {path: got[path] for path in wanted} == wanted
    assert set(got) - set(wanted) <= {case["to"]}
