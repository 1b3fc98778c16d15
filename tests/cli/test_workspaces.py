"""`notewright workspace`."""

import json
from pathlib import Path
from typing import Any

import pytest

from notewright.app.opening import with_owner_changes
from notewright.cli.main import main
from notewright.cli.parser import parse
from notewright.cli.serve import serving_config
from notewright.errors import Invalid


class Owner:
    """Somebody at the command line, with folders of notes and a state."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys, self.state = place, capsys, str(place / "kept")
        for name in ("Notes", "Work", "Other"):
            (place / name).mkdir()

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main([*words, "--state", self.state])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def __call__(self, *words: str) -> tuple[int, str, str]:
        return self.run("workspace", *words)

    def told(self, *words: str) -> Any:
        code, out, err = self("--state", self.state, *words, "--json")
        assert code == 0, err
        return json.loads(out)

    def folder(self, name: str) -> str:
        return str(self.place / name)


@pytest.fixture
def owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Owner:
    return Owner(tmp_path, capsys)


def test_a_folder_is_added_and_listed(owner: Owner) -> None:
    code, out, err = owner("add", owner.folder("Notes"), "read_only=true")
    assert (code, "Notes is " in out, "/w/notes/" in err) == (0, True, True)
    assert owner.told("list")["workspaces"] == [
        {
            "id": "notes", "name": "Notes", "location": owner.folder("Notes"), "added": True, "timezone": "UTC",
            "read_only": True, "hide": [], "write_under": ["**"], "max_file_size": 10_485_760, "quota_files": None,
            "quota_bytes": None, "changed": ["name", "read_only"],
        }
    ]  # fmt: skip


def test_a_name_may_be_given_and_gets_an_id_of_plain_letters(owner: Owner) -> None:
    one = owner.told("add", f"Küche & Co={owner.folder('Notes')}")
    assert (one["name"], one["id"]) == ("Küche & Co", "kuche-co")
    assert owner.told("add", f"mcp={owner.folder('Work')}")["id"] == "mcp-notes"


def test_renaming_keeps_the_id(owner: Owner) -> None:
    owner("add", owner.folder("Notes"))
    code, out, err = owner("rename", "Notes", "Home")
    assert (code, "Home now" in out, "stays /w/notes/" in err) == (0, True, True)
    assert owner.told("add", f"Notes={owner.folder('Work')}")["id"] == "notes-2"
    assert [(one["id"], one["name"]) for one in owner.told("list")["workspaces"]] == [
        ("notes", "Home"),
        ("notes-2", "Notes"),
    ]


def test_settings_are_changed_and_taken_back(owner: Owner) -> None:
    owner("add", owner.folder("Notes"))
    told = owner.told("set", "notes", "hide=Private/**, Drafts/*.md", "quota-files=7", "timezone=Asia/Tokyo")
    assert (told["hide"], told["quota_files"], told["timezone"]) == (["Private/**", "Drafts/*.md"], 7, "Asia/Tokyo")
    told = owner.told("set", "notes", "hide=", "timezone=")
    assert (told["hide"], told["quota_files"], told["timezone"]) == ([], 7, "UTC")
    assert told["changed"] == ["name", "quota_files"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("read_only=perhaps", "must be true or false"),
        ("timezone=Mars/Base", "no timezone"),
        ("timezone=../../etc/passwd", "no timezone"),
        ("hide={a", "is not a glob"),
        ("hide=" + ",".join(["a"] * 101), "101 globs"),
        ("max_file_size=0", "cannot be 0"),
        ("quota_files=-1", "must be a whole number"),
        ("quota_bytes=99999999999999999999", "cannot be"),
        ("location=/etc", "location cannot be set"),
        ("bootstrap=para", "bootstrap cannot be set"),
        ("id=other", "id cannot be set"),
        ("readonly=true", "did you mean read_only?"),
        ("name=Other", "workspace rename"),
        ("hide", "sets nothing"),
    ],
)
def test_a_wrong_setting_is_refused_and_changes_nothing(owner: Owner, setting: str, said: str) -> None:
    owner("add", owner.folder("Notes"))
    before = owner.told("list")
    code, out, err = owner("set", "Notes", "timezone=Asia/Tokyo", setting)
    assert (code, out) == (1, "")
    assert said in err
    assert owner.told("list") == before


@pytest.mark.parametrize(
    "name",
    ["", " ", ".hidden", "a/b", "a\\b", "x" * 101, "a\nb", "a\0b", "a\u202eb", "a\u200bb", "\udc80", "a=b"],
)
def test_what_is_no_name_is_refused(owner: Owner, name: str) -> None:
    owner("add", owner.folder("Notes"))
    code, _, err = owner("rename", "Notes", name)
    assert (code, "is no name for a workspace" in err) == (1, True)


@pytest.mark.parametrize("name", ["Notes", "notes", "NOTES", "Ｎｏｔｅｓ", "no\u200dtes", "notes-id"])
def test_two_workspaces_never_answer_to_one_name(owner: Owner, name: str) -> None:
    owner("add", f"Notes={owner.folder('Notes')}")
    owner("add", f"Notes id={owner.folder('Other')}")
    code, _, err = owner("add", f"{name}={owner.folder('Work')}")
    assert (code, "already" in err) == (1, True)
    owner("add", f"Free={owner.folder('Work')}")
    assert owner("rename", "Free", name)[0] == 1


def test_folders_that_overlap_are_refused(owner: Owner) -> None:
    (owner.place / "Notes" / "Inner").mkdir()
    (owner.place / "link").symlink_to(owner.place / "Notes")
    owner("add", owner.folder("Notes"))
    for wrong in ("Notes/Inner", "", "Notes", "link"):
        code, _, err = owner("add", f"New={owner.place / wrong}")
        assert (code, "overlap" in err or "served already" in err) == (1, True), wrong
    assert len(owner.told("list")["workspaces"]) == 1


@pytest.mark.parametrize("location", ["nowhere", "file.txt"])
def test_what_is_no_folder_is_refused(owner: Owner, location: str) -> None:
    (owner.place / "file.txt").write_text("no folder")
    code, _, err = owner("add", owner.folder(location))
    assert code == 1
    assert "folder" in err


def test_the_folder_of_our_own_state_is_no_workspace(owner: Owner) -> None:
    owner.run("workspace", "list")
    assert owner("add", f"Mine={owner.state}")[0] == 1


def test_one_that_was_added_can_be_removed_and_its_notes_stay(owner: Owner) -> None:
    (owner.place / "Notes" / "Tea.md").write_text("hot")
    owner("add", owner.folder("Notes"))
    code, out, _ = owner("remove", "notes")
    assert (code, "its notes stay" in out) == (0, True)
    assert owner.told("list")["workspaces"] == []
    assert (owner.place / "Notes" / "Tea.md").read_text() == "hot"
    assert owner("remove", "notes")[0] == 1


def test_one_that_the_configuration_names_is_changed_but_not_removed(owner: Owner) -> None:
    file = owner.place / "notewright.toml"
    file.write_text(f'[workspaces.Main]\nlocation = "{owner.folder("Notes")}"\ntimezone = "Asia/Tokyo"\n')
    config = ("--config", str(file))
    told = owner.told("set", "Main", "timezone=Europe/Rome", *config)
    assert (told["timezone"], told["added"]) == ("Europe/Rome", False)
    assert owner.told("set", "Main", "timezone=", *config)["timezone"] == "Asia/Tokyo"
    code, _, err = owner("remove", "Main", *config)
    assert (code, "the configuration names it" in err) == (1, True)


def test_a_name_that_the_configuration_takes_later_is_its_own(owner: Owner) -> None:
    file = owner.place / "notewright.toml"
    file.write_text(f'[workspaces.Main]\nlocation = "{owner.folder("Notes")}"\n')
    owner("rename", "Main", "Work", "--config", str(file))
    owner("add", f"Extra={owner.folder('Other')}")
    named = {"Main": "Notes", "Work": "Work", "Extra": "Other"}
    tables = (f'[workspaces.{name}]\nlocation = "{owner.folder(place)}"\n' for name, place in named.items())
    file.write_text("".join(tables))
    told = owner.told("list", "--config", str(file))["workspaces"]
    assert [(one["name"], one["location"]) for one in told] == [
        ("Main", owner.folder("Notes")),
        ("Work", owner.folder("Work")),
        ("Extra", owner.folder("Other")),
    ]


def test_what_is_set_for_a_folder_holds_for_commands_on_it(owner: Owner) -> None:
    for name in ("Private/Secret", "Open"):
        place = owner.place / "Notes" / f"{name}.md"
        place.parent.mkdir(exist_ok=True)
        place.write_text("tea")
    code, _, err = owner("set", owner.folder("Notes"), "hide=Private/**", "read_only=true")
    assert (code, "wherever that folder is served" in err) == (0, True)
    here = ("--workspace", owner.folder("Notes"))
    _, out, _ = owner.run("search", "tea", *here, "--json")
    assert [hit["path"] for hit in json.loads(out)["hits"]] == ["Open.md"]
    code, _, err = owner.run("rename", "Open", "Closed", *here)
    assert (code, "read-only" in err) == (1, True)


def test_what_only_a_server_knows_by_name_is_named_by_its_folder_and_keeps_its_id(owner: Owner) -> None:
    code, _, err = owner("rename", "Main", "Home")
    assert (code, "by its folder" in err) == (1, True)
    assert owner("rename", owner.folder("Notes"), "Home")[0] == 0
    served = serving_config(parse(["serve", f"Main={owner.folder('Notes')}", "--state", owner.state]))
    assert [(one.id, one.name) for one in with_owner_changes(served).workspaces] == [("main", "Home")]


def test_commands_know_a_workspace_that_was_added_by_its_name(owner: Owner) -> None:
    (owner.place / "Notes" / "Tea.md").write_text("tea")
    owner("add", f"Drinks={owner.folder('Notes')}")
    _, out, _ = owner.run("search", "tea", "--workspace", "Drinks")
    assert "Tea.md" in out


def test_a_server_may_be_started_with_nothing_but_what_was_added(owner: Owner) -> None:
    words = ["serve", "--http", "0", "--state", owner.state]
    with pytest.raises(Invalid, match="nothing to serve"):
        serving_config(parse(words))
    owner("add", owner.folder("Notes"))
    assert serving_config(parse(words)).workspaces == ()
    with pytest.raises(Invalid, match="nothing to serve"):  # a client that starts its own server names what it wants
        serving_config(parse(["serve", "--state", owner.state]))
