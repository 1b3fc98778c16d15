"""Everybody in one live note at once: people type, editors save stale buffers, agents edit, rename and undo."""

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.stores.test_live import Typist
from tests.waiting import until

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.changes.history import undo
from notewright.engine.move import move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import edit_note
from notewright.errors import Problem
from notewright.ledger.base import Actor
from notewright.notes.edits.edit import Append
from notewright.notes.path import NotePath

A = NotePath("a.md")
BEGIN = "# A\n\nann:\n\nben:\n\ncat:\n\nvim:\n\nemacs:\n\nagent:\n"


class Crowd:
    """Threads that each do something to one note until told to stop, and the words that each of them wrote."""

    def __init__(self, ws: Workspace, root: Path, path: NotePath) -> None:
        self.ws, self.root, self.path = ws, root, path
        self.stop = threading.Event()
        self.words: list[str] = []
        self.problems: list[BaseException] = []
        self.saving = threading.Lock()  # editors do not save in the same instant
        assert ws.live is not None
        self.document = ws.live.open(ws.live.id_of(path))

    def file(self) -> Path:
        return self.root / (self.document.path or self.path)

    def has_seen(self, word: str) -> bool:
        with self.document.lock:  # pycrdt refuses to read beside another thread's transaction
            return f" {word}" in self.document.text()

    def run(self, seconds: float, *works: Callable[[], None]) -> None:
        threads = [threading.Thread(target=self._guarded, args=[work]) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert self.problems == []

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            self.problems.append(problem)

    def typist(self, name: str) -> Callable[[], None]:
        def at_end(text: str) -> int:
            return len(text[: text.index("\n", text.index(f"{name}:"))].encode())

        def work() -> None:
            typist = Typist(self.document)
            count = 0
            while not self.stop.is_set():
                word = f"{name}{count}"
                for letter in f" {word}":
                    typist.type(letter, at_end)
                    time.sleep(0.025)
                self.words.append(word)
                count += 1

        return work

    def editor(self, name: str, *, over: bool) -> Callable[[], None]:
        chance = random.Random(name)

        def work() -> None:
            buffer, count = self.file().read_text(), 0
            while not self.stop.is_set():
                time.sleep(chance.uniform(0.4, 0.9))
                with self.saving, contextlib.suppress(FileNotFoundError):
                    if chance.random() < 0.3:
                        buffer = self.file().read_text() or buffer
                    if f"{name}:\n" not in buffer and f"{name}: " not in buffer:
                        continue
                    word = f"{name}{count}"
                    at = buffer.index("\n", buffer.index(f"{name}:"))
                    buffer = f"{buffer[:at]} {word}{buffer[at:]}"
                    file = self.file()
                    if over:
                        beside = file.with_name(".beside.tmp")
                        beside.write_text(buffer)
                        os.replace(beside, file)
                    else:
                        file.write_text(buffer)
                    self.words.append(word)
                    count += 1
                    until(partial(self.has_seen, word))  # the next may save

        return work

    def agent(self) -> None:
        count = 0
        while not self.stop.is_set():
            time.sleep(0.3)
            here = self.document.path or self.path
            with contextlib.suppress(Problem):  # renamed meanwhile
                shown = read(self.ws, here)
                edit_note(self.ws, here, [Append(f"\nagent{count}")], seen=shown.version)
                self.words.append(f"agent{count}")
                count += 1

    def mover(self) -> None:
        count = 0
        while not self.stop.is_set():
            time.sleep(1.1)
            with self.saving, contextlib.suppress(Problem):
                moved = move(self.ws, self.document.path or self.path, f"sub{count}/moved{count}.md")
                if count % 2 and moved.change_id is not None:
                    time.sleep(0.4)
                    undo(self.ws, moved.change_id)
                time.sleep(0.4)
            count += 1


def crowd(root: Path, tmp_path: Path, seconds: float) -> None:
    root.mkdir()
    (root / A).write_text(BEGIN)
    (root / "linking.md").write_text("See [[a]].\n")
    one = WorkspaceConfig("Notes", "notes", str(root), live=True)
    config = Config((one,), str(tmp_path / "state"), str(tmp_path / "cache"))
    ws = open_workspace(one, config, live=True).by(Actor("bot", "agent", "notes", "test"))
    try:
        people = Crowd(ws, root, A)
        typists = [people.typist(name) for name in ("ann", "ben", "cat")]
        editors = [people.editor("vim", over=False), people.editor("emacs", over=True)]
        people.run(seconds, *typists, *editors, people.agent, people.mover)
        until(lambda: people.document.is_saved(), 20)
        last = Typist(people.document)
        until(lambda: people.file().read_text() == str(last.text), 20)
        found = Counter(people.file().read_text().split())
        names = [word for word in BEGIN.split() if word.endswith(":")]
        assert {word: found[word] for word in [*people.words, *names] if found[word] != 1} == {}
        assert len(people.words) > seconds * 5
        assert len(list(root.rglob("*.md"))) == 2
        here = people.document.path
        assert here is not None and f"[[{here.stem}]]" in (root / "linking.md").read_text()
    finally:
        close_workspace(ws)


@pytest.mark.slow
def test_nothing_that_anybody_wrote_is_lost_or_doubled(tmp_path: Path) -> None:
    crowd(tmp_path / "notes", tmp_path, 6)


@pytest.mark.torture
def test_nothing_that_anybody_wrote_in_half_a_minute_is_lost_or_doubled(tmp_path: Path) -> None:
    crowd(tmp_path / "notes", tmp_path, 30)
