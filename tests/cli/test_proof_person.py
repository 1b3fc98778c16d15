"""The command line as a person meets it: examples, one document, exit codes, odd names, other processes at work."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine
from tests.conftest import write_files
from tests.engine.mounting import read_only
from tests.server.lines import NOTEWRIGHT, Lines

from notewright.cli.main import main
from notewright.cli.parser import all_parsers

NOTES = {
    "Café crème.md": "# Café\n\nlink [[Zoë note]] and [[日本/茶]]\n",
    "My notes/ünï/Zoë note.md": "zoë #tag\n",
    "日本/茶.md": "茶 is tea\n",
    **{f"n{number}.md": f"number {number}\n" for number in range(12)},
}


class Person(CommandLine):
    """Somebody in a folder."""

    def __init__(self, place: Path, capture: pytest.CaptureFixture[str]) -> None:
        super().__init__(capture, "--state", str(place / "state"))
        self.root, self.state = place / "my notes", place / "state"
        write_files(self.root, NOTES)


@pytest.fixture
def person(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Person:
    person = Person(tmp_path, capsys)
    monkeypatch.chdir(person.root)
    return person


@pytest.mark.parametrize("command", sorted(all_parsers()))
def test_every_command_teaches_by_example(command: str) -> None:
    assert f"\n  notewright {command} " in all_parsers()[command].format_help()


COMMANDS = [
    ["search", "tea"], ["grep", "tea"], ["links", "茶"], ["rename", "茶", "Tee"], ["check"], ["log"],
    ["log", "茶", "--forget"], ["undo", "--since", "1h"], ["index"], ["index", "--rebuild"], ["rename", "no", "where"],
    ["links", "no"], ["undo", "nochange"], ["log", "--change", "none"], ["grep", "("], ["search", "x", "--since", "y"],
]  # fmt: skip


def test_every_answer_in_json_is_one_document_and_the_exit_code_says_if_it_was_refused(person: Person) -> None:
    for words in COMMANDS:
        code = main([*words, "--state", str(person.state), "--json"])
        document = json.loads(person.capture.readouterr().out)
        assert code == (1 if "error" in document or document.get("findings") else 0), words


@pytest.mark.parametrize("path", ["日本/茶", "日本/茶.md", "./日本/茶.md", "茶", "{root}/日本/茶.md", "/日本/茶"])
def test_a_note_is_named_as_a_shell_completes_it(person: Person, path: str) -> None:
    assert person.json("links", path.format(root=person.root))["path"] == "日本/茶.md"


def test_names_with_spaces_and_any_letters_are_renamed_and_taken_back(person: Person) -> None:
    moved = person.json("rename", "My notes", "Our notes")
    assert (moved["new"], moved["links"]) == ("Our notes", 0)
    assert person.json("rename", "zoë note", "./日本/")["new"] == "日本/Zoë note.md"
    assert person.json("search", "zoë", "--folder", "./日本")["hits"][0]["path"] == "日本/Zoë note.md"
    assert len(person.json("undo", "--since", "1h")["undone"]) == 2
    for path, text in NOTES.items():
        assert (person.root / path).read_text() == text


def test_in_a_folder_of_a_workspace_one_is_told_so(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lies in" not in person.run("search", "zoë")[1]
    monkeypatch.chdir(person.root / "My notes")
    out, err = person.run("search", "zoë")
    assert out.startswith("1. ünï/Zoë note.md")
    assert f"is inside the workspace {person.root}" in err
    assert "lies in" not in person.run("search", "zoë", "--workspace", ".")[1]


def test_a_forgotten_note_cannot_be_brought_back_and_its_bytes_are_gone(person: Person) -> None:
    change = person.json("rename", "茶", "/Tee")["change"]
    undone = person.json("undo", change)["change"]
    assert person.json("log", "Café crème", "--forget") == {"path": "Café crème.md", "forgotten": 2}
    assert "no longer kept" in person.run("undo", undone, code=1)[1]
    kept = [file.read_bytes() for file in person.state.glob("state/*/ledger.db*")]
    assert kept and not any(b"[[Tee]]" in data for data in kept)


@pytest.mark.parametrize(
    "words",
    [["log", "--forget"], ["search", "x", "--limit", "0"], ["links", "x", "--depth", "0"], ["log", "--limit", "0"]],
)
def test_what_makes_no_sense_is_wrong_usage(person: Person, words: list[str]) -> None:
    person.run(*words, code=2)


def test_a_location_that_is_not_there_or_is_a_file_or_lies_in_another_is_wrong_usage(person: Person) -> None:
    assert "is not there" in person.run("search", "x", "--workspace", "nowhere", code=2)[1]
    assert "is not a folder" in person.run("search", "x", "--workspace", "n1.md", code=2)[1]
    assert "overlap" in person.run("serve", f"A={person.root}", f"B={person.root}/日本", code=2)[1]
    assert "is inside the workspace" in person.run("search", "x", "--workspace", str(person.state.parent), code=2)[1]


def test_notes_that_are_all_gone_are_told_at_once_and_believed_when_the_index_is_built_anew(person: Person) -> None:
    person.run("index")
    for place in person.root.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    began = time.monotonic()
    assert "gone from where they were" in person.run("search", "tea", code=1)[1]
    assert time.monotonic() - began < 5
    assert person.json("index", "--rebuild")["notes"] == 0
    assert person.json("search", "tea")["hits"] == []


@pytest.mark.slow
def test_a_read_only_disk_is_read_and_a_rename_on_it_refused(person: Person) -> None:
    with read_only(person.root):
        os.chdir(person.root)
        assert person.json("links", "茶")["incoming"]
        assert "file system does not let" in person.run("rename", "茶", "Tee", code=1)[1]
        assert person.json("log")["changes"] == []


# ---- while servers run --------------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_and_a_server_see_each_others_work_at_once(person: Person) -> None:
    server = Lines([NOTEWRIGHT, "serve", str(person.root), "--state", str(person.state)]).greet()
    try:
        assert "茶 is tea" in server.text("read", path="日本/茶")
        change = person.json("rename", "茶", "/Tee")["change"]
        assert "[[Tee]]" in server.text("read", path="Café crème")
        assert "日本" not in server.text("links", path="Tee").splitlines()[0]
        server.text("write", path="New.md", content="a zebra [[Tee]]\n")
        assert person.json("search", "zebra")["hits"][0]["path"] == "New.md"
        assert {link["source"] for link in person.json("links", "Tee")["incoming"]} == {"New.md", "Café crème.md"}
        told = person.json("log")["changes"]
        assert [one["client"] for one in told] == ["tester", "notewright"]
        person.run("undo", "--client", "tester")
        assert not (person.root / "New.md").exists()
        person.run("undo", change)
        assert "茶 is tea" in server.text("read", path="日本/茶")
        assert person.json("index", "--rebuild")["notes"] == 15
        assert "zoë" in server.text("search", query="zoë")
    finally:
        server.leave()
    assert server.process.returncode == 0
