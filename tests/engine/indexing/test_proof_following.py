"""The index follows whatever is done to the folder from outside, and says so while it cannot."""

import os
import shutil
import statistics
import time
from pathlib import Path

import pytest
from tests.conftest import MakeWorkspace, write_files
from tests.engine.proving import differences, found, paths
from tests.waiting import until

from notewright.engine.find.search import parse_query, search
from notewright.engine.read import fetch, read
from notewright.engine.write import create
from notewright.errors import Problem, Unavailable
from notewright.notes.path import NotePath


@pytest.mark.slow
def test_a_checkout_of_five_thousand_files_is_all_seen(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "green\n"})
    assert paths(ws) == ["Tea.md"]
    write_files(tmp_path / "Main", {f"d{n % 50}/Note {n}.md": f"word{n} leaves\n" for n in range(5000)})
    until(lambda: (ws.index.total("notes"), ws.index.total("files")) == (5001, 5001), 60)
    assert found(ws, "word4999") == ["d49/Note 4999.md"]


def test_an_outside_edit_is_found_within_a_quarter_of_a_second(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "green\n"})
    assert found(ws, "green") == ["Tea.md"]
    took = []
    for number in range(7):
        (tmp_path / "Main" / "Tea.md").write_text(f"oolong{number}\n")
        took.append(until(lambda word=f"oolong{number}": found(ws, word) == ["Tea.md"]))
    assert statistics.median(took) < 0.25, took


def test_a_folder_renamed_from_outside_takes_its_notes_along(workspace: MakeWorkspace, tmp_path: Path) -> None:
    notes = {f"Old/deep/{n}.md": f"apple {n}\n" for n in range(4)}
    ws = workspace({**notes, "Tea.md": "green\n"})
    assert len(found(ws, "apple")) == 4
    (tmp_path / "Main" / "Old").rename(tmp_path / "Main" / "New")
    until(lambda: paths(ws) == [*(f"New/deep/{n}.md" for n in range(4)), "Tea.md"])
    assert found(ws, "apple") == [f"New/deep/{n}.md" for n in range(4)]
    assert differences(ws) == {}


def test_a_folder_moved_out_and_in_again_is_forgotten_and_found(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Sub/A.md": "apple\n", "Tea.md": "green\n"})
    assert found(ws, "apple") == ["Sub/A.md"]
    (tmp_path / "Main" / "Sub").rename(tmp_path / "elsewhere")
    until(lambda: paths(ws) == ["Tea.md"])
    (tmp_path / "elsewhere").rename(tmp_path / "Main" / "Sub")
    until(lambda: paths(ws) == ["Sub/A.md", "Tea.md"])


def test_a_folder_removed_from_outside_is_forgotten(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Sub/a/A.md": "apple\n", "Tea.md": "green\n"})
    assert found(ws, "apple") == ["Sub/a/A.md"]
    shutil.rmtree(tmp_path / "Main" / "Sub")
    until(lambda: paths(ws) == ["Tea.md"])


def test_a_note_replaced_by_rename_and_by_truncating_is_read_again(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "green\n"})
    note = tmp_path / "Main" / "Tea.md"
    assert found(ws, "green") == ["Tea.md"]
    beside = tmp_path / "Main" / ".tea.swp"
    beside.write_text("black\n")
    beside.rename(note)
    until(lambda: found(ws, "black") == ["Tea.md"])
    with note.open("w") as file:
        file.flush()
        time.sleep(0.06)  # an editor between emptying and writing
        file.write("white\n")
    until(lambda: found(ws, "white") == ["Tea.md"])
    assert found(ws, "black") == []


def test_a_note_that_becomes_a_folder_and_a_note_again_is_followed(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({"Tea.md": "green\n", "Other.md": "x\n"})
    place = tmp_path / "Main" / "Tea.md"
    assert found(ws, "green") == ["Tea.md"]
    place.unlink()
    place.mkdir()
    (place / "Inner.md").write_text("inside\n")
    until(lambda: paths(ws) == ["Other.md", "Tea.md/Inner.md"])
    shutil.rmtree(place)
    place.write_text("again\n")
    until(lambda: paths(ws) == ["Other.md", "Tea.md"])
    assert found(ws, "again") == ["Tea.md"]
    assert differences(ws) == {}


def test_symlinks_made_while_it_is_followed_are_filed_as_a_listing_would(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({"Sub/A.md": "apple\n", "Tea.md": "green\n"})
    assert found(ws, "apple") == ["Sub/A.md"]
    (tmp_path / "Main" / "Way in.md").symlink_to("Sub")
    (tmp_path / "Main" / "Other.md").symlink_to("Tea.md")
    (tmp_path / "Main" / "Out.md").symlink_to("/etc/passwd")
    until(lambda: "Other.md" in paths(ws))
    (tmp_path / "Main" / "Last.md").write_text("last\n")
    until(lambda: "Last.md" in paths(ws))
    assert differences(ws) == {}


def test_a_root_that_vanishes_makes_the_index_stale_and_comes_back_by_itself(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({f"{n}.md": f"apple {n}\n" for n in range(12)})
    assert search(ws, parse_query("apple")).total == 12
    root, away = tmp_path / "Main", tmp_path / "away"
    root.rename(away)
    until(lambda: ws.follower.progress().stale is not None)
    with pytest.raises(Unavailable):
        read(ws, NotePath("3.md"))
    with pytest.raises(Unavailable):
        create(ws, NotePath("New.md"), b"new\n")
    assert search(ws, parse_query("apple")).total == 12, "stale, never empty"
    (away / "3.md").write_text("pear 3\n")
    away.rename(root)
    until(lambda: ws.follower.progress().stale is None)
    assert fetch(ws, NotePath("3.md")).data == b"pear 3\n"
    until(lambda: found(ws, "pear") == ["3.md"])
    assert create(ws, NotePath("New.md"), b"new\n").created


def test_another_folder_under_the_roots_name_is_not_taken_for_it(workspace: MakeWorkspace, tmp_path: Path) -> None:
    ws = workspace({f"{n}.md": f"apple {n}\n" for n in range(12)})
    assert search(ws, parse_query("apple")).total == 12
    (tmp_path / "Main").rename(tmp_path / "away")
    (tmp_path / "Main").mkdir()
    until(lambda: ws.follower.progress().stale is not None)
    with pytest.raises(Problem):
        create(ws, NotePath("New.md"), b"new\n")
    assert os.listdir(tmp_path / "Main") == []


def test_a_follower_with_nothing_to_do_does_not_look_at_everything_again_and_again(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    ws = workspace({f"{n}.md": f"apple {n}\n" for n in range(12)})
    assert search(ws, parse_query("apple")).total == 12
    assert ws.index.generation().whole
