"""Renames while other threads and somebody's editor write to the same notes: no line is lost, and no link of theirs is
ever sent to another note."""

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.conftest import MakeWorkspace
from tests.engine.parts import NoIndex, memory_workspace, put, write
from tests.engine.proving import differences
from tests.waiting import until

from notewright.engine.changes.commit import commit
from notewright.engine.changes.plan import Plan
from notewright.engine.find.links import incoming, resolver
from notewright.engine.move import move
from notewright.engine.write import change_text
from notewright.errors import Busy, Conflict, Exists, Indexing, NotFound
from notewright.ledger.base import Ledger, State, Step
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath

LINK = re.compile(r"\[\[(.*?)(?:\|.*?)?]]")


@contextmanager
def meanwhile(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """These go on in threads; what one of them raises fails the test."""
    stop, failures = threading.Event(), list[BaseException]()

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(stop)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert failures == []


@pytest.mark.slow
def test_a_note_renamed_again_and_again_while_threads_append_to_those_that_link_to_it(
    workspace: MakeWorkspace, tmp_path: Path
) -> None:
    """Another note of the new name lies beside those that link: no link may ever be sent there."""
    linking = [NotePath(f"sub/L{number}.md") for number in range(6)]
    notes = {"Target.md": "the note\n", "sub/Goal.md": "another of that name\n"}
    ws = workspace({**notes, **{path: "see [[Target]]\n" for path in linking}})
    said: list[str] = []

    def append(who: int) -> Callable[[threading.Event], None]:
        def work(stop: threading.Event) -> None:
            rng, count = random.Random(who), 0
            while not stop.is_set():
                count += 1
                line = f"t{who}-{count}"
                change_text(ws, rng.choice(linking), lambda text, line=line: f"{text}{line}\n")
                said.append(line)

        return work

    names = ["Target", "Goal"]
    with meanwhile(*map(append, range(3))):
        for _ in range(12):
            move(ws, NotePath(f"{names[0]}.md"), names[1])
            names.reverse()
    texts = [(tmp_path / "Main" / path).read_text() for path in linking]
    assert sorted(line for text in texts for line in text.splitlines() if line.startswith("t")) == sorted(said)
    assert [text.splitlines()[0] for text in texts] == [f"see [[{names[0]}]]"] * 6
    assert len(incoming(ws, NotePath(f"{names[0]}.md"))) == 6
    assert incoming(ws, NotePath("sub/Goal.md")) == ()
    assert differences(ws) == {}


@pytest.mark.slow
@pytest.mark.parametrize("saving", ["by truncating", "by renaming"])
def test_an_editor_that_adds_links_while_the_note_is_renamed_keeps_its_lines_and_no_link_goes_astray(
    workspace: MakeWorkspace, tmp_path: Path, saving: str
) -> None:
    """A link to the old name that is written while the note moves is left as it was written: it leads nowhere."""
    root = tmp_path / "Main"
    linking = [root / f"sub/L{number}.md" for number in range(4)]
    ws = workspace({"Target.md": "the note\n", **{f"sub/L{number}.md": "see [[Target]]\n" for number in range(4)}})
    saved: list[str] = []

    def edit(stop: threading.Event) -> None:
        rng, count = random.Random(saving), 0
        while not stop.wait(0.02):
            count += 1
            note = rng.choice(linking)
            text = note.read_text()
            text += f"e{count} [[{LINK.findall(text)[0]}]]\n"
            if saving == "by truncating":
                note.write_text(text)
            else:
                beside = note.with_suffix(".tmp")
                beside.write_text(text)
                beside.rename(note)
            saved.append(f"e{count}")

    names, moved = ["Target", "Goal"], 0
    with meanwhile(edit):
        until_then = time.monotonic() + 1.5
        while time.monotonic() < until_then:
            try:
                move(ws, NotePath(f"{names[0]}.md"), names[1])
            except (Busy, Conflict, Exists, Indexing, NotFound):
                names = names if (root / f"{names[0]}.md").exists() else names[::-1]
                continue
            names, moved = names[::-1], moved + 1
    assert moved > 0 and len(saved) > 10
    until(lambda: differences(ws) == {}, 10)
    assert (root / f"{names[0]}.md").read_text() == "the note\n"
    lines = [line.split()[0] for note in linking for line in note.read_text().splitlines() if line.startswith("e")]
    assert sorted(lines) == sorted(saved), "each line the editor saved is there once"
    for note in linking:
        for link in LINK.findall(note.read_text()):
            leads = resolver(ws)(link, NotePath(f"sub/{note.name}")).path
            assert leads in (f"{names[0]}.md", None), f"[[{link}]] in {note.name} leads to {leads}"


class Watched:
    """A ledger that looks, when a change is closed, at what the index was told by then."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.index: NoIndex | None = None
        self.told: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    def close_change(self, change_id: str, state: State, *, steps: tuple[Step, ...] | None = None) -> None:
        self.told = list(self.index.told) if self.index else []
        self._ledger.close_change(change_id, state, steps=steps)


def test_a_change_is_closed_only_when_the_index_has_it() -> None:
    ledger = Watched(SqliteLedger.in_memory())
    ws = memory_workspace(ledger=cast(Ledger, ledger))
    ledger.index = cast(NoIndex, ws.index)
    write(ws, A="a\n", B="b\n")
    commit(ws, Plan((put(ws, "A.md", "a2\n"), put(ws, "B.md", "b2\n")), "changed"))
    assert sorted(ledger.told) == ["A.md", "B.md"]
