"""All surfaces at once on one workspace, over one HTTP server: nothing is lost, and each sees what the others did."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import write_files
from tests.over_http import Http, client_of, on_the_web

from notewright.config.load import CommandLine, load
from notewright.config.settings import SURFACES

pytestmark = pytest.mark.slow

ROUNDS = 12
Clients = dict[str, Http]

WRITE: dict[str, Callable[[Http, str, str], object]] = {  # make a note at the top, by its bare name
    "notes": lambda ask, name, text: ask("write", path=name, content=text),
    "cairn": lambda ask, name, text: ask("cairn_write", path=name, content=text),
    "obsidian": lambda ask, name, text: ask("create_note", name=name, content=text),
    "second_brain": lambda ask, name, text: ask("write", path=f"{name}.md", content=text),
    "octarine": lambda ask, name, text: ask(
        "octarine_write_note", workspace="Main", note_path=f"{name}.md", content=text
    ),
}
READ: dict[str, Callable[[Http, str], str]] = {
    "notes": lambda ask, name: ask("read", path=name),
    "cairn": lambda ask, name: ask("cairn_read", path=name),
    "lens": lambda ask, name: ask("read", file_path=f"Main/{name}.md"),
    "obsidian": lambda ask, name: ask("read_note", name=name),
    "second_brain": lambda ask, name: ask("read", path=f"{name}.md"),
    "octarine": lambda ask, name: ask("octarine_read_note", workspace="Main", note_path=f"{name}.md"),
}
FIND: dict[str, Callable[[Http, str], str]] = {  # names of the notes that hold a word
    "notes": lambda ask, word: ask("grep", pattern=word),
    "cairn": lambda ask, word: ask("cairn_search", query=word),
    "lens": lambda ask, word: ask("glob", pattern=f"**/*{word}*"),
    "obsidian": lambda ask, word: ask("search_notes", query=word, mode="content"),
    "second_brain": lambda ask, word: ask("grep", pattern=word),
    "octarine": lambda ask, word: ask("octarine_search_notes", query=word),
}
APPEND: dict[str, Callable[[Http, str, str], object]] = {
    "notes": lambda ask, name, line: ask("edit", path=name, edits=[{"append": line + "\n"}]),
    "cairn": lambda ask, name, line: ask("cairn_patch", path=name, op="append", content=line + "\n"),
    "obsidian": lambda ask, name, line: ask("append_note", name=name, text=line + "\n"),
}
LINKS: dict[str, Callable[[Http, str], str]] = {  # where the links of a note lead
    "notes": lambda ask, name: ask("links", path=name, direction="out"),
    "cairn": lambda ask, name: ask("cairn_links", path=name, direction="out"),
    "lens": lambda ask, name: ask("get_links", file_path=f"Main/{name}.md"),
}
LINKED = {
    "notes": r"links 1 out\n→ Topic( \d+)?\.md ",
    "cairn": r'"outgoing":\[\{"path":"Topic(?: \d+)?","title":"Topic"\}\]',
    "lens": r"Forward links [^\n]*\n- Main/Topic( \d+)?\.md",
}


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    """One client of every surface, all at one server."""
    write_files(tmp_path / "Main", {"Log.md": "", "Topic.md": "# Topic\n", "Counter.md": "<here>\n"})
    write_files(tmp_path / "Main", {f"About {number}.md": f"See [[Topic]], {number}.\n" for number in range(6)})
    asked = CommandLine((f"Main={tmp_path / 'Main'}",), None, {"state": str(tmp_path / "state"), "rate_limits": False})
    with ExitStack() as stack:
        address = stack.enter_context(on_the_web(load(asked)))
        yield {name: stack.enter_context(client_of(address, name)) for name in SURFACES}


def at_once(jobs: list[Callable[[], None]]) -> None:
    """Every job in a thread of its own; the first failure is ours."""
    failures: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


def test_what_one_surface_writes_the_next_call_of_every_other_reads_and_finds(clients: Clients) -> None:
    for writer, write in WRITE.items():
        word = f"token{writer.replace('_', '')}"
        write(clients[writer], f"From {word}", f"It says {word}.\n")
        for reader in SURFACES:
            assert f"It says {word}." in READ[reader](clients[reader], f"From {word}"), (writer, reader)
            assert f"From {word}" in FIND[reader](clients[reader], word), (writer, reader)


def test_agents_of_all_surfaces_write_at_once_and_nothing_is_lost(clients: Clients, tmp_path: Path) -> None:
    def appends(surface: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(ROUNDS):
                APPEND[surface](clients[surface], "Log", f"{surface} {number}")
                APPEND[surface](clients[surface], f"About {number % 6}", f"{surface} {number}")

        return run

    def makes(surface: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(ROUNDS):
                WRITE[surface](clients[surface], f"{surface} {number}", f"by {surface}, {number}\n")

        return run

    def counts() -> None:
        for number in range(ROUNDS):
            clients["second_brain"]("edit", path="Counter.md", old_str="<here>", new_str=f"{number}\n<here>")

    at_once([*map(appends, APPEND), makes("second_brain"), makes("octarine"), counts])
    log = (tmp_path / "Main" / "Log.md").read_text().split("\n")
    expected = {f"{surface} {number}" for surface in APPEND for number in range(ROUNDS)}
    assert sorted(line for line in log if line) == sorted(expected)
    abouts = "".join((tmp_path / "Main" / f"About {number}.md").read_text() for number in range(6)).split("\n")
    assert expected <= set(abouts)
    for surface in ("second_brain", "octarine"):
        for number in range(ROUNDS):
            text = f"by {surface}, {number}\n"
            assert (tmp_path / "Main" / f"{surface} {number}.md").read_text() == text
    assert (tmp_path / "Main" / "Counter.md").read_text() == "".join(f"{n}\n" for n in range(ROUNDS)) + "<here>\n"
    changes = re.findall(r"^\w{8}  ", clients["notes"]("history", limit=200), re.MULTILINE)
    assert len(changes) == len(APPEND) * ROUNDS * 2 + 3 * ROUNDS


def test_links_stay_right_while_a_note_is_renamed_and_others_write(clients: Clients, tmp_path: Path) -> None:
    def renames() -> None:
        for number in range(ROUNDS):
            old, new = f"Topic {number}" if number else "Topic", f"Topic {number + 1}"
            clients["notes"]("move", **{"from": old, "to": new})

    def writes(surface: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(ROUNDS):
                APPEND[surface](clients[surface], f"About {number % 6}", f"{surface} was here {number}")

        return run

    def looks(surface: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(ROUNDS):
                found = LINKS[surface](clients[surface], f"About {number % 6}")
                assert re.search(LINKED[surface], found), found

        return run

    at_once([renames, writes("cairn"), writes("obsidian"), *map(looks, LINKS)])
    for number in range(6):
        text = (tmp_path / "Main" / f"About {number}.md").read_text()
        assert text.startswith(f"See [[Topic {ROUNDS}]], {number}.\n")
        assert all(f"{surface} was here {number}" in text for surface in ("cairn", "obsidian"))
    assert clients["notes"]("links", path="/").split(", ")[0].endswith("0 broken links")


def test_twenty_clients_of_one_surface_are_served_at_once(clients: Clients, tmp_path: Path) -> None:
    address = str(clients["notes"].client.base_url)

    def one(number: int) -> Callable[[], None]:
        def run() -> None:
            with client_of(address, "notes") as ask:
                for round_ in range(3):
                    ask("edit", path="Log", edits=[{"append": f"{number} {round_}\n"}])
                    assert f"{number} {round_}" in ask("grep", pattern=f"^{number} {round_}$")

        return run

    at_once([one(number) for number in range(20)])
    assert len((tmp_path / "Main" / "Log.md").read_text().split("\n")) == 61


def test_octarine_and_second_brain_overwrite_and_the_history_has_what_they_replaced(clients: Clients) -> None:
    WRITE["notes"](clients["notes"], "Shared", "first\n")
    WRITE["octarine"](clients["octarine"], "Shared", "second\n")
    WRITE["second_brain"](clients["second_brain"], "Shared", "third\n")
    lines = clients["notes"]("history", path="Shared").split("\n")[1:]
    assert [line.split()[3].split(".")[0] for line in lines] == ["second_brain", "octarine", "notes"]
    clients["notes"]("undo", change=lines[0].split()[0])
    told = json.loads(READ["octarine"](clients["octarine"], "Shared"))
    assert told["data"]["content"] == "second\n"
