"""Real Yjs clients, an editor without Yjs and an agent in one note at once, with a server that stays or is killed."""

import contextlib
import itertools
import json
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from tests.clients.yjs import YjsClients
from tests.server.live.test_workers import served

PEOPLE = ["ann", "ben", "cat"]
BEGIN = "# Tea\n\n" + "".join(f"{name}:\n\n" for name in [*PEOPLE, "vim", "agent"])


class Others:
    """An editor that saves a stale buffer, and an agent that appends; both until told to stop."""

    def __init__(self, file: Path, port: int) -> None:
        self.file, self.port = file, port
        self.words: list[str] = []
        self.perhaps: list[str] = []  # of calls that had no answer
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=work) for work in (self._edit, self._append)]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(60)

    def _edit(self) -> None:
        buffer = self.file.read_text()
        for number in itertools.count():
            if self.stop.wait(0.7):
                return
            if number % 4 == 3:  # people look at the file now and then
                buffer = self.file.read_text()
                if "vim:" not in buffer:
                    continue
            end = buffer.index("\n", buffer.index("vim:"))
            buffer = f"{buffer[:end]} vim{number}{buffer[end:]}"
            self.file.write_text(buffer)
            self.words.append(f"vim{number}")

    def _append(self) -> None:
        for number in itertools.count():
            if self.stop.wait(0.4):
                return
            edit = {"path": "Tea.md", "edits": [{"section": "Tea", "append": f"agent{number}"}]}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "edit", "arguments": edit}}
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.port}/mcp/notes", json.dumps(asked).encode(), headers
            )
            self.perhaps.append(f"agent{number}")
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
                if '"isError":false' in answer.read().decode().replace(" ", ""):
                    self.words.append(self.perhaps.pop())


def crowd(place: Path, clients: YjsClients, seconds: float, *, lives: float) -> None:
    (place / "notes").mkdir()
    file = place / "notes" / "Tea.md"
    file.write_text(BEGIN)
    port, others, until = 0, None, 0.0
    while others is None or time.monotonic() < until:
        with served(place, workers=1, port=port) as team:
            if others is None:
                port = team.port
                for name in PEOPLE:
                    url = f"ws://127.0.0.1:{port}/w/notes/live"
                    clients.do("open", name=name, kind="y-websocket", url=url, room="Tea.md")
                    clients.until(name, lambda seen: seen["synced"])
                    clients.do("keep_typing", name=name)
                until = time.monotonic() + seconds
                others = Others(file, port)  # it is open: who saves without looking takes nothing away
            time.sleep(lives)
            if lives < seconds:
                team.process.kill()
            else:
                _finish(place, clients, others, file)
    if lives < seconds:
        with served(place, workers=1, port=port):
            _finish(place, clients, others, file)
    found = Counter(file.read_text().split())
    assert {word: found[word] for word in others.words if found[word] != 1} == {}
    assert [word for word in others.perhaps if found[word] > 1] == []
    assert {name: found[f"{name}:"] for name in [*PEOPLE, "vim", "agent"] if found[f"{name}:"] != 1} == {}
    assert len(others.words) > seconds * 5


def _finish(place: Path, clients: YjsClients, others: Others, file: Path) -> None:
    others.end()
    for name in PEOPLE:
        clients.until(name, lambda seen: seen["synced"], 60)
        others.words += clients.do("stop_typing", name=name)["words"]

    def wrong() -> list[tuple[str, list[str]]]:
        """Who has another text than the file, and the words that each has not."""
        seen = [(name, clients.look(name)["text"]) for name in PEOPLE]
        text = file.read_text()
        return [
            (name, [word for word in others.words if word not in told.split()])
            for name, told in [*seen, ("file", text)]
            if told != text or any(word not in told.split() for word in others.words)
        ]

    end = time.monotonic() + 60
    while told := wrong():
        assert time.monotonic() < end, told
        time.sleep(0.2)


@pytest.mark.slow
def test_everybody_in_one_note_at_once(tmp_path: Path, clients: YjsClients) -> None:
    crowd(tmp_path, clients, 5, lives=5)


@pytest.mark.slow
def test_everybody_in_one_note_while_the_server_is_killed_again_and_again(tmp_path: Path, clients: YjsClients) -> None:
    crowd(tmp_path, clients, 6, lives=2)


@pytest.mark.torture
@pytest.mark.parametrize("lives", [30, 2])
def test_everybody_in_one_note_for_half_a_minute(tmp_path: Path, clients: YjsClients, lives: float) -> None:
    crowd(tmp_path, clients, 30, lives=lives)
