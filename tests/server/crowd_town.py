"""Where a crowd meets: a folder of notes behind `notewright serve --http`, what its clients do there, and the proofs
that nothing they were told is untrue."""

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.conftest import read_files, write_files
from tests.server.crowd import Ask, Client, Deed, Told
from tests.server.lines import NOTEWRIGHT

from notewright.accounts.base import Grant
from notewright.accounts.sqlite import SqliteAccounts
from notewright.app.open_workspaces import OpenWorkspaces
from notewright.config.load import CommandLine, load
from notewright.engine.changes.history import list_changes, undo
from notewright.engine.library import new_token
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Change, ChangeQuery

SHARED = 6  # notes of each kind that everybody writes to
WRITES = 0.2  # of all calls
MOVES = 0.04  # of those
MARK = re.compile(r"mk\d+q\d+z")
WORDS = (
    "river",
    "stone",
    "lantern",
    "garden",
    "winter",
    "letter",
    "harbour",
    "orchard",
    "window",
    "candle",
    "meadow",
    "thunder",
)


# ---- the folder ---------------------------------------------------------------------------------------


def notes(count: int, clients: int, seed: int) -> dict[str, str]:
    """Notes to read, each with a word that only it has and links to others; and those that are written to."""
    chance = Random(seed)
    files = {f"Notes/n{number:04}.md": _note(number, count, chance) for number in range(count)}
    for number in range(SHARED):
        files[f"Logs/log {number}.md"] = f"# Log {number}\n\n"
        files[f"Counts/count {number}.md"] = f"# Count {number}\n\n<here>\n"
    for number in range(clients):
        files[f"Moving/c{number} at 0.md"] = f"# Moving\n\nmk{number}q0z\n"
        files[f"Desks/desk {number}.md"] = f"# Desk\n\nSee [[c{number} at 0]].\n"
    return files


def _note(number: int, count: int, chance: Random) -> str:
    lines = [f"---\ntags: [topic/{number % 9}]\n---\n# Note {number}\n\nquill{number:04} is written here.\n"]
    for part in range(4):
        lines.append(f"## Part {part}\n")
        lines += [" ".join(chance.choices(WORDS, k=12)) + "." for _ in range(4)]
        lines.append(f"\nSee [[n{(number + part + 1) % count:04}]].\n")
    return "\n".join(lines)


# ---- the server ---------------------------------------------------------------------------------------


@dataclass
class Server:
    """`notewright serve --http` with its workers."""

    process: subprocess.Popen[str]
    port: int
    said: list[str] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)  # kilobytes of all its processes, now and then

    def family(self) -> list[int]:
        """Its process and all that come from it, the eldest first."""
        return _family(self.process.pid)

    def workers(self) -> list[int]:
        return _children(self.process.pid)

    def weigh(self) -> None:
        self.rss.append(sum(map(_resident, self.family())))

    def worker_of(self, port: int) -> int | None:
        """Which worker has the connection that comes from this port."""
        ours, theirs = (f":{number:04X}" for number in (self.port, port))
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        inodes = [row[9] for row in rows if row[1].endswith(ours) and row[2].endswith(theirs)]
        for worker in self.workers():
            held = [os.readlink(file) for file in Path(f"/proc/{worker}/fd").iterdir() if file.is_symlink()]
            if any(f"socket:[{inode}]" in held for inode in inodes):
                return worker
        return None

    def kill_a_worker(self, chance: Random) -> int:
        killed = chance.choice(self.workers())
        os.kill(killed, signal.SIGKILL)
        return killed


@contextlib.contextmanager
def serving(place: Path, *words: str, workers: int = 2) -> Iterator[Server]:
    """The folder `notes` of a place, served until the end of the block; every complaint of the server is kept."""
    asked = [NOTEWRIGHT, "serve", f"Main={place / 'notes'}", "--state", str(place / "state"), "--http", "0"]
    asked += ["--workers", str(workers), *words]
    said: list[str] = []
    with subprocess.Popen(asked, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        reading = threading.Thread(target=said.extend, args=(process.stderr,))
        try:
            told = next((line for line in process.stderr if "/mcp/notes" in line), "")
            found = re.search(r"http://[\d.]+:(\d+)", told)
            assert found, "nothing is served"
            reading.start()
            yield Server(process, int(found[1]), said)
            process.send_signal(signal.SIGTERM)
            assert process.wait(40) == 0, said
        finally:
            process.kill()
            process.wait()
            if reading.is_alive():
                reading.join(10)


def tokens(place: Path, count: int) -> list[str]:
    """As many access tokens: half of the clients have one of their own, the others share one."""
    registry = SqliteAccounts.open(place / "state" / "state")
    try:
        now = time.time()
        everyone = new_token(registry, "everyone", Grant(), now=now)
        own = [new_token(registry, f"one {number}", Grant(), now=now) for number in range(count // 2)]
    finally:
        registry.close()
    return own + [everyone] * (count - len(own))


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _family(pid: int) -> list[int]:
    return [pid, *(one for child in _children(pid) for one in _family(child))]


def _resident(pid: int) -> int:
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) if found else 0


# ---- what they do -------------------------------------------------------------------------------------


class Townsman:
    """What one client does next: mostly look at something, now and then write, and often look at what it wrote."""

    def __init__(self, number: int, count: int, chance: Random) -> None:
        self.number, self.count, self.chance = number, count, chance
        self.written = 0
        self.moved = 0  # the name of its own note, as far as it knows
        self.unsure = False
        self.last: Ask | None = None  # what it wrote a moment ago

    def next(self, client: Client) -> Ask:
        if self.unsure:
            return self._where_am_i()
        if self.last is not None and self.chance.random() < 0.5:
            return self._see_it(self.last)
        self.last = None
        return self._write() if self.chance.random() < WRITES else self._look()

    def heard(self, ask: Ask, told: Told) -> None:
        if ask.tool == "move":
            self.moved += told.how == "yes"
            self.unsure = told.how == "lost"
        elif self.unsure and told.how == "yes":
            self.moved, self.unsure = int(re.findall(rf"c{self.number} at (\d+)", told.text)[-1]), False
        elif ask.marker and told.how == "yes":
            self.last = ask

    def _look(self) -> Ask:
        number = self.chance.randrange(self.count)
        name, quill = f"n{number:04}", f"quill{number:04}"
        before, after = f"n{(number - 1) % self.count:04}", f"n{(number + 1) % self.count:04}"
        return self.chance.choice((
            Ask("notes", "read", {"path": f"Notes/{name}.md"}, quill),
            Ask("notes", "read", {"path": name}, quill),
            Ask("notes", "read", {"path": f"Notes/{name}.md", "section": "Part 2"}, "Part 2"),
            Ask("notes", "search", {"query": quill}, name),
            Ask("notes", "grep", {"pattern": f"{quill} is"}, name),
            Ask("notes", "links", {"path": name}, after),
            Ask("notes", "links", {"path": name, "direction": "in"}, before),
            Ask("notes", "list", {"folder": "Counts"}, "count 0"),
            Ask("cairn", "cairn_read", {"path": f"Notes/{name}"}, quill),
            Ask("cairn", "cairn_search", {"query": quill}, name),
            Ask("obsidian", "read_note", {"name": name}, quill),
            Ask("obsidian", "get_links", {"name": name}, after),
            Ask("second_brain", "read", {"path": f"Notes/{name}.md"}, quill),
            Ask("second_brain", "grep", {"pattern": quill}, name),
            Ask("octarine", "octarine_read_note", {"workspace": "Main", "note_path": f"Notes/{name}.md"}, quill),
        ))  # fmt: skip

    def _write(self) -> Ask:
        if self.chance.random() < MOVES:
            return self._move()
        self.written += 1
        mark = f"mk{self.number}q{self.written}z"
        number, made = self.chance.randrange(SHARED), f"Made/{mark}"
        log, counted = f"Logs/log {number}", f"Counts/count {number}"
        append, here = [{"append": f"{mark}\n"}], [{"replace": "<here>", "with": f"{mark}\n<here>"}]
        return self.chance.choice((
            Ask("notes", "edit", {"path": log, "edits": append}, "Edited", mark, log),
            Ask("notes", "edit", {"path": log, "edits": append}, "Edited", mark, log),
            Ask("notes", "edit", {"path": counted, "edits": here}, "Edited", mark, counted),
            Ask("notes", "write", {"path": made, "content": f"# Made\n\n{mark}, [[n0001]]\n"}, "Created", mark, made),
            Ask("second_brain", "edit", {"path": f"{counted}.md", "old_str": "<here>", "new_str": f"{mark}\n<here>"},
                "Success", mark, counted),
            Ask("second_brain", "write", {"path": f"{made}.md", "content": f"{mark}\n"}, "Success", mark, made),
            Ask("octarine", "octarine_write_note",
                {"workspace": "Main", "note_path": f"{made}.md", "content": f"{mark}\n"}, '"success":true', mark, made),
            Ask("cairn", "cairn_patch", {"path": log, "op": "append", "content": f"{mark}\n"}, "append", mark, log),
            Ask("obsidian", "append_note", {"name": f"log {number}", "text": f"{mark}\n"}, "appended", mark, log),
        ))  # fmt: skip

    def _move(self) -> Ask:
        old, new = (f"Moving/c{self.number} at {number}.md" for number in (self.moved, self.moved + 1))
        return Ask("notes", "move", {"from": old, "to": new}, "Moved", f"mk{self.number}q0z", new.removesuffix(".md"))

    def _where_am_i(self) -> Ask:
        """After a move whose answer was lost: the note has one name or the other, and is never missing."""
        return Ask("notes", "list", {"glob": f"Moving/c{self.number} at *.md"}, f"c{self.number} at ")

    def _see_it(self, wrote: Ask) -> Ask:
        """What was written is there at the next call, whichever worker answers it."""
        self.last = None
        stem = wrote.path.rpartition("/")[2]
        return self.chance.choice((
            Ask("notes", "grep", {"pattern": wrote.marker}, stem),
            Ask("notes", "search", {"query": wrote.marker}, stem),
            Ask("second_brain", "read", {"path": f"{wrote.path}.md"}, wrote.marker),
            Ask("octarine", "octarine_search_notes", {"query": wrote.marker}, stem),
        ))  # fmt: skip


# ---- the proofs ---------------------------------------------------------------------------------------


def texts(place: Path) -> dict[str, str]:
    """Every note that is there."""
    return {path: data.decode() for path, data in read_files(place / "notes").items()}


def complaints(place: Path, before: dict[str, str], deeds: Sequence[Deed]) -> list[str]:
    """What is not as the crowd was told. At the end everything is taken back, and the folder is what it was before."""
    after = texts(place)
    return [
        *lost_or_doubled(after, deeds),
        *wrongly_moved(after, deeds),
        *_checked(place),
        *_history(place, deeds),
        *_taken_back(place, before),
    ]


def lost_or_doubled(after: dict[str, str], deeds: Sequence[Deed]) -> Iterator[str]:
    there = Counter(mark for text in after.values() for mark in MARK.findall(text))
    for deed in deeds:
        count = there[deed.ask.marker]
        fine = {"yes": count == 1, "lost": count <= 1}.get(deed.how, count == 0) or deed.ask.tool == "move"
        if not fine:
            said = {"yes": "acknowledged", "lost": "never answered"}.get(deed.how, "refused")
            yield f"{deed.ask.marker}: {said}, and there {count} times: {deed.client} {deed.ask}"
        if deed.how == "yes" and count and deed.ask.marker not in after.get(f"{deed.ask.path}.md", deed.ask.marker):
            yield f"{deed.ask.marker}: not in {deed.ask.path}, where it was put"
    for mark in there.keys() - {deed.ask.marker for deed in deeds} - {f"mk{number}q0z" for number in range(1000)}:
        yield f"{mark}: nobody wrote it"


def wrongly_moved(after: dict[str, str], deeds: Sequence[Deed]) -> Iterator[str]:
    """Every client's own note has one name, the last one it was given, and its desk links to that."""
    names = {path: re.findall(r"Moving/(c\d+) at (\d+)\.md", path) for path in after}
    owners = Counter(found[0][0] for found in names.values() if found)
    moves = [deed for deed in deeds if deed.ask.tool == "move"]
    yes, lost = (
        Counter(deed.ask.path.split(" at ")[0] for deed in moves if deed.how == how) for how in ("yes", "lost")
    )
    for path, found in names.items():
        if found:
            (owner, number), sure = found[0], yes[f"Moving/{found[0][0]}"]
            if owners[owner] != 1 or not sure <= int(number) <= sure + lost[f"Moving/{owner}"]:
                yield f"{path} was moved {sure} times"
            if f"[[{owner} at {number}]]" not in after[f"Desks/desk {owner[1:]}.md"]:
                yield f"{path}: its link says {after[f'Desks/desk {owner[1:]}.md']!r}"
    moving = sum(path.startswith("Desks/") for path in after)
    if len(owners) != moving:
        yield f"of {moving} notes that were moved {len(owners)} are there"


def _checked(place: Path) -> Iterator[str]:
    asked = [NOTEWRIGHT, "check", "--workspace", str(place / "notes"), "--state", str(place / "state"), "--json"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 1):
        yield f"check ended with {done.returncode}: {done.stderr}"
    else:
        yield from (f"check: {finding}" for finding in json.loads(done.stdout)["findings"])


def _history(place: Path, deeds: Sequence[Deed]) -> Iterator[str]:
    """Every acknowledged write stands there once, by who did it."""
    kept = Counter(_signature(change) for change in _past(place))
    yes, lost = (Counter(_of(deed) for deed in deeds if deed.how == how) for how in ("yes", "lost"))
    for signature in kept.keys() | yes.keys():
        if not yes[signature] <= kept[signature] <= yes[signature] + lost[signature]:
            yield f"history: {signature} acknowledged {yes[signature]} times, kept {kept[signature]} times"


def _of(deed: Deed) -> tuple[str, str, str]:
    return deed.client, f"{deed.ask.surface}.{deed.ask.tool}", deed.ask.path


def _signature(change: Change) -> tuple[str, str, str]:
    put = next(step.path for step in change.steps if step.after is not None)
    return change.actor.client, f"{change.actor.surface}.{change.actor.tool}", put.removesuffix(".md")


def _past(place: Path) -> list[Change]:
    with _opened(place) as ws:
        return list_changes(ws, ChangeQuery(limit=1_000_000))


def _taken_back(place: Path, before: dict[str, str]) -> Iterator[str]:
    """Each change undone, the newest first, leaves the folder as it was."""
    with _opened(place) as ws:
        for change in list_changes(ws, ChangeQuery(limit=1_000_000)):
            undo(ws, change.id)
    after = texts(place)
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield f"after everything was undone: {path} is {after.get(path)!r:.300}, was {before.get(path)!r:.300}"


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[Workspace]:
    asked = CommandLine((f"Main={place / 'notes'}",), None, {"state": str(place / "state")})
    with contextlib.closing(OpenWorkspaces(load(asked))) as library:
        yield library.default


def made(place: Path, count: int, clients: int, seed: int) -> dict[str, str]:
    """The folder, and what it holds."""
    files = notes(count, clients, seed)
    write_files(place / "notes", files)
    return files
