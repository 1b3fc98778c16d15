"""Processes killed at any system call, on a real folder: the next one leaves everything old or everything new."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import read_files

from notewright.ledger.base import ChangeQuery
from notewright.ledger.sqlite import SqliteLedger
from notewright.stores.folder.store import FolderStore

ROOT = Path(__file__).resolve().parents[3]
SEED = int(os.environ.get("NOTEWRIGHT_SEED", "1"))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are traced as Linux does it")


class Slayer:
    """Does jobs in children and kills them."""

    def __init__(self, place: Path) -> None:
        self.folder, self.state, self.acks = place / "notes", place / "state", place / "acks"
        self.folder.mkdir()
        self.acks.touch()
        command = [sys.executable, "-m", "tests.engine.changes.killing"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._running = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)

    def do(self, what: str, *, kill: int = 0, count: bool = False, **more: Any) -> dict[str, Any]:
        where = {"folder": str(self.folder), "state": str(self.state), "acks": str(self.acks)}
        assert self._running.stdin and self._running.stdout
        self._running.stdin.write(
            json.dumps({"do": what, "kill": kill, "traced": kill > 0 or count, **where, **more}) + "\n"
        )
        self._running.stdin.flush()
        answer: dict[str, Any] = json.loads(self._running.stdout.readline())
        if "error" in answer:
            pytest.skip(answer["error"])
        assert answer["code"] in ((-signal.SIGKILL, 0) if kill else (0,)), f"{what} failed: {answer}"
        return answer

    def close(self) -> None:
        assert self._running.stdin and self._running.stdout
        self._running.stdin.close()
        self._running.wait(10)
        self._running.stdout.close()

    def notes(self) -> dict[str, str]:
        return {path: data.decode() for path, data in read_files(self.folder).items()}

    def swept(self) -> dict[str, str]:
        """What is there after a listing has found what dead processes laid beside, and it was looked at."""
        store = FolderStore(self.folder)
        list(store.entries())
        store.close()
        return self.notes()


@pytest.fixture
def slayer(tmp_path: Path) -> Iterator[Slayer]:
    slayer = Slayer(tmp_path)
    yield slayer
    slayer.close()


def lay_out(folder: Path, notes: dict[str, str]) -> None:
    """Notes that nobody has touched for an hour."""
    for path, text in notes.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (time.time() - 3600,) * 2)


def vault(linking: int, name: str) -> dict[str, str]:
    links = {f"f{number % 3}/L{number}.md": f"# {number}\n\nsee [[{name}]]\n" for number in range(linking)}
    return {f"{name}.md": "the note\n", **links}


def kill_renames(slayer: Slayer, kills: int, linking: int) -> Counter[str]:
    """Rename there and back, each time killed somewhere, recovered by processes that may be killed too."""
    rng = random.Random(SEED)
    names = ["Old", "new/New"]
    lay_out(slayer.folder, vault(linking, "Old"))
    calls = slayer.do("rename", count=True, old="Old.md", new="new/New.md")["calls"]
    slayer.do("rename", old="new/New.md", new="Old.md")
    ends: Counter[str] = Counter()
    for number in range(kills):
        at = rng.randrange(calls // 20, calls)
        slayer.do("rename", kill=at, old=f"{names[0]}.md", new=f"{names[1]}.md")
        half = slayer.notes() not in (vault(linking, names[0]), vault(linking, names[1]))
        while rng.random() < 0.6:
            slayer.do("recover", kill=rng.randrange(1, calls))
        slayer.do("recover")
        after = slayer.swept()
        moved = after == vault(linking, names[1])
        assert moved or after == vault(linking, names[0]), f"NOTEWRIGHT_SEED={SEED}, kill {number} at call {at}"
        assert_recorded(slayer.state, f"moved {names[0]}.md to {names[1]}.md", moved)
        ends[f"{'forward' if moved else 'back'}{', half done before' if half else ''}"] += 1
        names = names[::-1] if moved else names
    return ends


def assert_recorded(state: Path, summary: str, happened: bool) -> None:
    ledger = SqliteLedger.open(state)
    assert ledger.find_unfinished() == []
    last = ledger.find_changes(ChangeQuery(limit=1))
    assert bool(last and last[0].summary == summary) == happened, "the history tells another story"
    ledger.close()


def kill_appends(slayer: Slayer, kills: int) -> None:
    rng = random.Random(SEED)
    lay_out(slayer.folder, {"A.md": ""})
    calls = slayer.do("append", count=True, path="A.md", line="first")["calls"]
    for number in range(kills):
        slayer.do("append", kill=rng.randrange(1, calls), path="A.md", line=f"line {number}")
    slayer.do("recover")
    files = slayer.swept()
    assert list(files) == ["A.md"], "litter"
    lines = files["A.md"].splitlines()
    acknowledged = slayer.acks.read_text().splitlines()
    assert set(acknowledged) - {"recover"} <= set(lines)
    assert max(Counter(lines).values()) == 1


@pytest.mark.slow
def test_a_rename_killed_anywhere_is_wholly_there_or_not_at_all(slayer: Slayer) -> None:
    ends = kill_renames(slayer, kills=16, linking=6)
    assert ends.total() == 16


@pytest.mark.slow
def test_an_append_killed_anywhere_is_there_once_if_it_was_acknowledged(slayer: Slayer) -> None:
    kill_appends(slayer, 15)


@pytest.mark.torture
def test_a_rename_of_a_note_with_five_hundred_links_killed_three_hundred_times(slayer: Slayer) -> None:
    ends = kill_renames(slayer, kills=300, linking=500)
    print(ends)
    assert any("half done" in end for end in ends)


@pytest.mark.torture
def test_a_hundred_appends_killed_anywhere(slayer: Slayer) -> None:
    kill_appends(slayer, 100)


def run_together(
    place: Path, seconds: float, work: str = "worker", meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Four processes at work on one folder until the time is over, one killed every second."""
    folder, state = place / "notes", place / "state"
    state.mkdir()
    shared = {f"Shared {number}.md": "" for number in range(3)}
    lay_out(folder, {**shared, "Target.md": "the note\n", "L1.md": "[[Target]]\n", "x/L2.md": "a\n[[Target]]\n"})
    until, count = time.monotonic() + seconds, 0
    workers: list[subprocess.Popen[bytes]] = []
    while time.monotonic() < until or any(worker.poll() is None for worker in workers):
        workers = [worker for worker in workers if worker.poll() is None]
        while len(workers) < 4 and time.monotonic() < until:
            count += 1
            left = str(max(until - time.monotonic(), 0.0))
            command = [sys.executable, "-m", "tests.engine.changes.killing", work, folder, state, f"w{count}", left]
            workers.append(subprocess.Popen(command, cwd=ROOT))
        time.sleep(min(1.0, max(until - time.monotonic(), 0.05)))
        meanwhile()
        if time.monotonic() < until:
            workers[0].kill()
            workers[0].wait(10)
    assert all(worker.returncode == 0 for worker in workers)


def assert_all_is_there(texts: dict[str, str], lines: list[str], state: Path, least: int) -> None:
    """Every acknowledged line is there once, and links are whole."""
    acknowledged = [line for acks in state.glob("*.acks") for line in acks.read_text().splitlines()]
    assert len(acknowledged) > least
    assert set(acknowledged) <= set(lines), "an acknowledged line is lost"
    assert max(Counter(lines).values()) == 1, "a line is there twice"
    (target,) = [path for path in texts if path.startswith("Target")]
    assert len(texts) == 6, sorted(texts)
    assert {name for text in texts.values() for name in re.findall(r"\[\[(.*?)]]", text)} == {target[:-3]}


def shared_lines(texts: dict[str, str]) -> list[str]:
    return [line for path, text in texts.items() if path.startswith("Shared") for line in text.splitlines()]


def kill_workers(place: Path, seconds: float) -> None:
    run_together(place, seconds)
    slayer = object.__new__(Slayer)
    slayer.folder, slayer.state = place / "notes", place / "state"
    arguments = ["worker", str(slayer.folder), str(slayer.state), "last", "0"]
    subprocess.run([sys.executable, "-m", "tests.engine.changes.killing", *arguments], cwd=ROOT, check=True)
    texts = slayer.swept()
    assert_all_is_there(texts, shared_lines(texts), slayer.state, 20)


@pytest.mark.slow
def test_four_processes_on_one_folder_with_one_killed_every_second_lose_nothing(tmp_path: Path) -> None:
    kill_workers(tmp_path, 3)


@pytest.mark.torture
def test_four_processes_on_one_folder_for_ten_seconds(tmp_path: Path) -> None:
    kill_workers(tmp_path, 10)
