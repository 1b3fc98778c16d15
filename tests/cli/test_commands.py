"""The commands on a copy of the example notes: what they print, what they change, how they say no."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine
from tests.conftest import ROOT, read_files, write_files

from notewright.cli.main import main

NOTES = {
    "Tea.md": "# Tea\n\nGreen tea wants water of 80 degrees, see [[Water]].\n",
    "Water.md": "# Water\n\n## Temperature\n\nBoil it, then wait.\n",
    "Drinks/Coffee.md": "Unlike [[Tea|tea]], see [[Nowhere]].\n",
    "list.txt": "tea, milk\n",
}


class Vault(CommandLine):
    """A folder of notes and the command line on it."""

    def __init__(self, root: Path, state: Path, capture: pytest.CaptureFixture[str]) -> None:
        super().__init__(capture, "--workspace", str(root), "--state", str(state))
        self.root, self.state = root, state

    def texts(self) -> dict[str, bytes]:
        return read_files(self.root)


@pytest.fixture
def vault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Vault:
    write_files(tmp_path / "notes", NOTES)
    return Vault(tmp_path / "notes", tmp_path / "state", capsys)


def test_search_prints_the_best_sections_and_how_many_there_are(vault: Vault) -> None:
    out, err = vault.run("search", "green", "tea")
    assert out.startswith("1. Tea.md › Tea (L1, ")
    assert "with all the words" in err
    found = vault.json("search", "temperature")
    assert [(hit["path"], hit["heading"], hit["line"]) for hit in found["hits"]] == [("Water.md", "Temperature", 3)]


def test_search_in_a_folder_and_with_words_that_begin_with_a_dash(vault: Vault) -> None:
    found = vault.json("search", "tea -green", "--folder", "Drinks")
    assert [hit["path"] for hit in found["hits"]] == ["Drinks/Coffee.md"]
    out, err = vault.run("search", "tea", "--folder", "Nowhere", code=1)
    assert (out, err.count("\n")) == ("", 1)
    assert "there is no folder Nowhere" in err


def test_finding_nothing_is_no_error(vault: Vault) -> None:
    out, err = vault.run("search", "xylophone")
    assert out == "" and err.startswith("Nothing found")
    assert vault.json("grep", "xylophone")["matches"] == []


def test_grep_prints_path_line_and_text(vault: Vault) -> None:
    out, err = vault.run("grep", "^#+ T")
    assert out == "Tea.md:1: # Tea\nWater.md:3: ## Temperature\n"
    assert err == "2 lines in 2 notes\n"
    assert vault.run("grep", "boil", "-C", "1")[0] == "Water.md-4- \nWater.md:5: Boil it, then wait.\n"


def test_the_options_of_grep(vault: Vault) -> None:
    assert vault.run("grep", "TEA", "-s")[0] == ""
    assert vault.run("grep", "[[Tea|", "-F")[0] == "Drinks/Coffee.md:1: Unlike [[Tea|tea]], see [[Nowhere]].\n"
    assert vault.run("grep", "temp", "-w")[0] == ""
    assert vault.run("grep", "milk", "--all-files")[0] == "list.txt:1: tea, milk\n"
    found = vault.json("grep", "tea", "--glob", "T*.md", "--limit", "1")
    assert (found["lines"], found["cut"], len(found["matches"])) == (2, True, 1)
    assert found["matches"][0]["spans"] == [[2, 5]]


def test_a_number_beyond_what_any_vault_holds_means_all(vault: Vault) -> None:
    huge = "9" * 30
    assert vault.run("grep", "boil", "-C", huge)[0].endswith("Water.md:5: Boil it, then wait.\n")
    assert vault.run("grep", "tea", "--limit", huge) == vault.run("grep", "tea")
    assert vault.run("search", "tea", "--limit", huge) == vault.run("search", "tea")
    assert vault.run("log", "--limit", huge) == vault.run("log")


def test_a_bad_pattern_is_one_line_that_says_where(vault: Vault) -> None:
    out, err = vault.run("grep", "tea(", code=1)
    assert out == "" and err.count("\n") == 1
    assert "this ( is never closed, at character 4" in err
    assert vault.json("grep", "tea(", code=1)["error"]["code"] == "invalid"


def test_links_both_ways_by_path_name_or_alias(vault: Vault) -> None:
    out, err = vault.run("links", "tea")
    assert out == ("Drinks/Coffee.md:1: Unlike [[Tea|tea]], see [[Nowhere]].\nTea.md:3: Water → Water.md\n")
    assert err == "Tea.md: 1 in, 1 out\n"
    report = vault.json("links", "Drinks/Coffee", "--direction", "out")
    assert [(link["target"], link["path"], link["status"]) for link in report["outgoing"]] == [
        ("Tea", "Tea.md", "ok"),
        ("Nowhere", None, "broken"),
    ]


def test_a_name_nobody_bears_is_refused_with_the_nearest(vault: Vault) -> None:
    err = vault.run("links", "Watr", code=1)[1]
    assert "there is no Watr" in err and "Water.md" in err


def test_links_are_followed_no_further_than_they_lead(vault: Vault) -> None:
    began = time.process_time()
    vault.run("links", "Tea", "--depth", "200000000")
    assert time.process_time() - began < 5  # one step after another, it would take much longer


def test_rename_rewrites_links_and_can_be_taken_back(vault: Vault) -> None:
    before = vault.texts()
    assert vault.json("rename", "Tea", "Drinks/Green tea", "--dry-run")["change"] is None
    assert vault.texts() == before
    moved = vault.json("rename", "Tea", "Drinks/Green tea")
    assert (moved["new"], moved["links"]) == ("Drinks/Green tea.md", 1)
    assert "[[Green tea|tea]]" in (vault.root / "Drinks/Coffee.md").read_text()
    err = vault.run("undo", moved["change"][:5])[1]
    assert "2 files as before" in err or "3 files as before" in err
    assert vault.texts() == before


def test_a_bare_new_name_stays_in_its_folder_and_a_slash_begins_at_the_top(vault: Vault) -> None:
    out, _ = vault.run("rename", "Coffee", "Mocha")
    assert out.splitlines()[0] == "Drinks/Coffee.md is now Drinks/Mocha.md"
    assert vault.json("rename", "Drinks/Mocha", "/Mocha")["new"] == "Mocha.md"
    assert vault.json("rename", "Mocha", "Drinks/")["new"] == "Drinks/Mocha.md"
    assert vault.json("rename", "Mocha", "./Mocha")["new"] == "Mocha.md"
    assert vault.json("rename", "Mocha", "Drinks/Deep/Mocha")["new"] == "Drinks/Deep/Mocha.md"
    assert vault.json("rename", "Drinks/Deep", "Deeper")["new"] == "Drinks/Deeper"
    assert vault.json("rename", "Mocha", "/")["new"] == "Mocha.md"
    assert vault.json("rename", "Mocha", f"{vault.root}/Espresso")["new"] == "Espresso.md"


def test_a_tag_is_renamed_in_all_notes_and_can_be_taken_back(vault: Vault) -> None:
    (vault.root / "A.md").write_text("---\ntags: [drink, drink/hot]\n---\n#Drink #drinks\n")
    (vault.root / "B.md").write_text("#drink/cold\n")
    before = vault.texts()
    planned = vault.json("rename", "--tag", "drink", "beverage", "--dry-run")
    assert planned["change"] is None and vault.texts() == before
    done = vault.json("rename", "--tag", "drink", "beverage")
    assert {**done, "change": None, "dry_run": True} == planned
    assert (done["old"], done["new"], done["tags"]) == ("#drink", "#beverage", 4)
    assert done["files"] == [{"path": "A.md", "tags": 3}, {"path": "B.md", "tags": 1}]
    assert vault.texts()["A.md"] == b"---\ntags: [beverage, beverage/hot]\n---\n#beverage #drinks\n"
    assert vault.texts()["B.md"] == b"#beverage/cold\n"
    vault.run("undo", done["change"])
    assert vault.texts() == before
    out, err = vault.run("rename", "--tag", "#drink", "#x")
    assert out == "#drink is now #x\nA.md: 3 tags\nB.md: 1 tag\n"
    assert err.startswith("4 tags in 2 notes renamed; take it back: notewright undo ")
    assert "no note has the tag #drnks" in (said := vault.run("rename", "--tag", "drnks", "y", code=1)[1])
    assert "#drinks" in said


def test_a_heading_is_renamed_with_the_links_to_it(vault: Vault) -> None:
    (vault.root / "A.md").write_text("[[Water#Temperature]] [[Water]] [x](Water.md#temperature)\n")
    before = vault.texts()
    assert vault.json("rename", "--heading", "Water", "Temperature", "Heat", "--dry-run")["links"] == 2
    assert vault.texts() == before
    out, err = vault.run("rename", "--heading", "Water", "Temperature", "Heat")
    assert out == "Water.md#Temperature is now Water.md#Heat\nA.md: 2 links\n"
    assert err.startswith("2 links in 1 note followed; take it back: ")
    assert "## Heat\n" in (vault.root / "Water.md").read_text()
    assert (vault.root / "A.md").read_text() == "[[Water#Heat]] [[Water]] [x](Water.md#Heat)\n"
    vault.run("undo", vault.json("log")["changes"][0]["id"])
    assert vault.texts() == before
    assert "Temperature" in vault.run("rename", "--heading", "Water", "Temprature", "Heat", code=1)[1]


def test_a_tag_and_a_heading_are_not_renamed_at_once(vault: Vault) -> None:
    vault.run("rename", "--tag", "--heading", "Water", "a", "b", code=2)


def test_a_folder_may_be_renamed(vault: Vault) -> None:
    vault.run("rename", "Drinks", "Beverages")
    assert (vault.root / "Beverages/Coffee.md").exists()


def test_log_tells_who_did_what_and_shows_one_change_as_a_diff(vault: Vault) -> None:
    assert vault.run("log") == ("", "Nothing was changed through Notewright\n")
    change = vault.json("rename", "Tea", "Chai")["change"]
    (told,) = vault.json("log")["changes"]
    assert (told["id"], told["client"], told["surface"], told["tool"]) == (change, "notewright", "cli", "rename")
    out = vault.run("log", "--change", change)[0]
    assert "-Unlike [[Tea|tea]], see [[Nowhere]]." in out and "moved Chai.md from Tea.md" in out
    assert vault.json("log", "Water")["changes"] == []
    assert vault.json("log", "--since", "1h", "--client", "notewright")["changes"][0]["id"] == change
    assert vault.json("log", "--client", "somebody-else")["changes"] == []


def test_a_terminal_is_shown_control_characters_and_does_not_obey_them(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change could else hide its own lines in a diff."""
    (vault.root / "Tea.md").write_bytes(b"one\n\x1b[1A\x1b[2Kwo\rrd \xc2\x9b2J\ttab\r\n")
    assert vault.run("grep", "wo")[0] == "Tea.md:2: \x1b[1A\x1b[2Kwo\rrd \x9b2J\ttab\n", "a pipe gets it as it is"
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert vault.run("grep", "wo")[0] == "Tea.md:2: \\x1b[1A\\x1b[2Kwo\\x0drd \\x9b2J\ttab\n"
    document = vault.run("grep", "wo", "--json")[0]
    assert "\x9b" not in document and "\x9b2J" in json.loads(document)["matches"][0]["text"]
    (vault.root / "Drinks/Coffee.md").write_text("Unlike \x1b[1A[[Tea|tea]].\n")
    change = vault.json("rename", "Tea", "Chai")["change"]
    diff = vault.run("log", "--change", change)[0]
    assert "\\x1b[1A" in diff and "\x1b" not in diff


def test_undo_says_which_files_keep_later_changes(vault: Vault) -> None:
    moved = vault.json("rename", "Tea", "Green tea")
    place = vault.root / "Green tea.md"
    place.write_text(place.read_text() + "\nlater\n")
    assert vault.json("undo", moved["change"], "--dry-run")["kept"] == ["Tea.md"]
    out, err = vault.run("undo", moved["change"])[:2]
    assert (
        "  Tea.md (later changes in it were kept)\n" in out and ", 1 file but for later changes; take it back:" in err
    )


def test_undo_takes_back_everything_since_a_time(vault: Vault) -> None:
    before = vault.texts()
    vault.run("rename", "Tea", "Chai")
    vault.run("rename", "Chai", "Drinks/")
    assert len(vault.json("undo", "--since", "1h", "--dry-run")["undone"]) == 2
    vault.run("undo", "--since", "1h", "--client", "notewright")
    assert vault.texts() == before


def test_undo_of_nothing_is_refused(vault: Vault) -> None:
    assert "there is no change abcdef" in vault.run("undo", "abcdef", code=1)[1]
    assert "not a time" in vault.run("undo", "--since", "yesterday", code=1)[1]


def test_a_search_refuses_a_wrong_time_before_it_looks_for_the_folder(vault: Vault) -> None:
    assert "not a time" in vault.run("search", "x", "--since", "yesterday", "--folder", "Nowhere", code=1)[1]


def test_check_reports_findings_by_its_exit_code(vault: Vault) -> None:
    out, err = vault.run("check", code=1)
    assert (out, err) == ("Drinks/Coffee.md:1: [[Nowhere]] leads nowhere\n", "1 finding\n")
    (vault.root / "Drinks/Coffee.md").write_text("Nothing.\n")
    assert vault.json("check") == {"total": 0, "findings": []}


def test_index_counts_and_builds_anew(vault: Vault) -> None:
    assert vault.run("index")[0].startswith("3 notes and 1 other file: the index is up to date")
    (vault.root / "New.md").write_text("new")
    built = vault.json("index", "--rebuild")
    assert (built["notes"], built["files"], built["rebuilt"]) == (4, 1, True)


def test_commands_change_no_byte_of_the_notes_and_keep_their_own_elsewhere(vault: Vault) -> None:
    before = vault.texts()
    for command in (["search", "tea"], ["grep", "tea"], ["links", "Tea"], ["log"], ["index", "--rebuild"]):
        vault.run(*command)
    vault.run("check", code=1)
    assert vault.texts() == before
    assert {place.name for place in vault.state.iterdir()} == {"state", "cache"}


def test_a_configured_workspace_is_found_by_its_name(vault: Vault, tmp_path: Path) -> None:
    file = tmp_path / "notewright.toml"
    file.write_text('[workspaces.Kitchen]\nlocation = "notes"\nhide = ["Drinks/**"]\n')
    words = ["grep", "tea", "--config", str(file), "--state", str(vault.state), "--json", "--workspace"]
    for name in ("Kitchen", "kitchen", str(vault.root)):
        assert main([*words, name]) == 0
        assert json.loads(vault.capture.readouterr().out)["notes"] == 1
    assert main([*words, "Kitchn"]) == 2


def test_what_is_wrong_with_the_place_is_wrong_usage(vault: Vault, tmp_path: Path) -> None:
    assert main(["search", "tea", "--workspace", str(tmp_path / "nowhere")]) == 2
    assert "is not there" in vault.capture.readouterr().err
    assert main(["search", "tea", "--config", str(tmp_path / "none.toml")]) == 2
    assert main(["search", "tea", "--workspace", str(vault.root), "--state", str(vault.root / "x")]) == 2


@pytest.mark.parametrize(
    "words", [[], ["serch"], ["undo"], ["undo", "x", "--since", "1h"], ["grep"], ["log", "--limit", "x"]]
)
def test_wrong_usage_is_told_from_refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == 2
    assert "usage: notewright" in capsys.readouterr().err


# ---- as programs --------------------------------------------------------------------------------------


def notewright(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "notewright"
    return subprocess.run([program, *words], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.fixture
def bakery(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "notes", tmp_path / "notes")
    return tmp_path / "notes"


@pytest.mark.slow
def test_without_a_workspace_the_current_folder_is_meant(bakery: Path, tmp_path: Path) -> None:
    done = notewright("search", "why", "a", "deck", "oven", "--state", str(tmp_path / "state"), "--json", cwd=bakery)
    assert done.returncode == 0
    assert "Decisions/Why a deck oven.md" in [hit["path"] for hit in json.loads(done.stdout)["hits"]]


@pytest.mark.slow
def test_commands_at_the_same_time_do_not_mind_each_other(bakery: Path, tmp_path: Path) -> None:
    program = [str(Path(sys.executable).parent / "notewright")]
    state = ["--state", str(tmp_path / "state")]
    asked = [["search", "oven"], ["grep", "oven"], ["index", "--rebuild"], ["links", "Start here"], ["check"]]
    running = [
        subprocess.Popen([*program, *words, *state], cwd=bakery, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for words in asked
    ]
    for process in running:
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 1), err
        assert b"Traceback" not in err


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(bakery: Path, tmp_path: Path) -> None:
    command = f"'{Path(sys.executable).parent}/notewright' grep . --limit 100000 --state '{tmp_path}/state' | head -1"
    done = subprocess.run(command, shell=True, cwd=bakery, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["search", "\udcff"],
        ["search", "tag:\udcff"],
        ["search", "x", "--tag", "\udcff"],
        ["grep", "\udcff"],
        ["links", "\udcff"],
        ["rename", "Tea", "\udcff"],
        ["log", "--client", "\udcff"],
        ["undo", "\udcff"],
        ["undo", "--client", "\udcff", "--since", "1d"],
        ["token", "revoke", "\udcff"],
        ["token", "add", "x", "--workspace", "\udcff"],
    ],
)
def test_an_argument_that_is_no_text_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2 and "is not text in UTF-8" in capsys.readouterr().err


def test_folders_may_have_names_that_are_no_text(vault: Vault, tmp_path: Path) -> None:
    odd = tmp_path / "od\udcffd"
    shutil.copytree(vault.root, odd)
    assert main(["search", "green", "--workspace", str(odd), "--state", str(vault.state)]) == 0
    (odd / "New.md").write_text("Come in.\n")
    vault.run("import", str(odd), "--overwrite")
    assert "from od\ufffdd" in vault.run("log")[0]


@pytest.mark.slow
def test_a_refusal_reaches_a_pipe_whole(vault: Vault) -> None:
    """As the program itself: it ends without Python's own flushing."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    program = [str(Path(sys.executable).with_name("notewright")), "links", "Nope", "--json"]
    place = ["--workspace", str(vault.root), "--state", str(vault.state)]
    told = subprocess.run([*program, *place], env=environment, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1
    assert "Nope" in json.dumps(json.loads(told.stdout)), told
