"""Two processes, somebody else's editor and crashes after every effect, under a seeded scheduler.

A schedule is: who does which job next, and what happens at each effect of it: nothing, an editor saves some note, the
process dies, the store is away for a while (before or after it did what it was asked), or the process is so slow that
the other one does a whole job meanwhile (which waits for no lock: it is refused what is held; the turn of the slow one
may have been taken away, and only the lock of its change says that it lives). Everything but the disk and the ledger
dies with a process; the next to come recovers, and may die of that too.

    NOTEWRIGHT_SEED=4711 pytest tests/engine/changes/test_simulation.py     replays one seed and prints what happened
    NOTEWRIGHT_SEEDS=100000 …                                       runs so many
"""

import os
import random
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from tests import found
from tests.engine.parts import memory_workspace
from tests.memory_store import Disk, MemoryStore

from notewright.engine.changes import commit as changes
from notewright.engine.changes.combined import TextEdit
from notewright.engine.changes.commit import commit, commit_latest, edit, edit_together, recover
from notewright.engine.changes.history import undo
from notewright.engine.changes.plan import Drop, Plan, Put
from notewright.engine.workspace import Workspace
from notewright.errors import Problem, Unavailable
from notewright.ledger.base import Change, ChangeQuery, Ledger, State, Step
from notewright.ledger.sqlite import SqliteLedger
from notewright.notes.path import NotePath

SEEDS = int(os.environ.get("NOTEWRIGHT_SEEDS", "2000"))
ONE = os.environ.get("NOTEWRIGHT_SEED")
SHARDS = 8
BODY = "this is the target"
LINK = re.compile(r"\[\[(T\d+)]]")


class Killed(BaseException):
    """The process is gone."""


class Witness:
    """A ledger whose effects are steps of the simulation too."""

    def __init__(self, ledger: Ledger, step: Callable[[str, str], None]) -> None:
        self._ledger, self._step = ledger, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def record(self, change: Change, blobs: Mapping[str, bytes], *following: Change, **more: Any) -> None:
        self._step("record", change.id)
        self._ledger.record(change, blobs, *following, **more)
        self._step("recorded", change.id)

    def close_change(self, change_id: str, state: State, *, steps: tuple[Step, ...] | None = None) -> None:
        self._step("close", change_id)
        self._ledger.close_change(change_id, state, steps=steps)
        self._step("closed", change_id)


class World:
    """One seed's notes, processes and editor, and what each of them was told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = Disk(keeps_ops=self.rng.random() < 0.3)
        if self.rng.random() < 0.5:  # like a bucket: of a group of writes any may have happened
            self.disk.shuffle = self.rng.shuffle
        self.ledger = SqliteLedger.in_memory()
        self.saves = self.rng.choice((0.0, 0.03, 0.15))  # how often an editor saves at an effect
        self.deaths = self.rng.choice((0.0, 0.02, 0.06))
        self.stale = self.rng.random() < 0.2  # does the editor sometimes save what it read long ago?
        self.fills = self.rng.choice((0.0, 0.0, 0.05))  # how often the disk is full, or is no longer
        self.absences = self.rng.choice((0.0, 0.0, 0.04))  # how often the store goes away
        self.away = 0  # calls for which it still does not answer
        self.litters = False  # it was away when something was to be tidied up
        self.buffers: dict[str, bytes] = {}
        self.count = 0
        self.log: list[str] = []
        self.appends: dict[str, str] = {}  # token: what its process was told
        self.doubled: set[str] = set()  # tokens in two notes that were one and could not be put together again
        self.undone: set[str] = set()  # change ids whose undo was acknowledged
        self.foreign: set[str] = set()
        self.overwritten: set[str] = set()  # tokens that an editor wrote away
        self.excused: set[str] = set()  # notes that an editor overwrote without looking
        self.saved_under: dict[str, set[str]] = {}  # change: its tokens in notes that an editor saved before its end
        self.orphaned: set[str] = set()  # changes whose process died
        self.slowness = self.rng.choice((0.0, 0.02))
        self.together = random.Random(f"together {seed}").random() < 0.4  # edits of one note go out in one write
        self.slow: Workspace | None = None  # the one that waits in the middle of its job
        self.acting: int | None = None
        self.calm = False
        for name in ("A", "B"):
            self.disk.put(f"{name}.md", f"# {name}\n\nfirst\nlast\n".encode())
        self.disk.put("T0.md", f"# Target\n\n{BODY}\nand its end\n".encode())
        for name in ("L1", "L2", "x/L3"):
            self.disk.put(f"{name}.md", f"# {name}\n\nbefore\nsee [[T0]] there\nafter\n".encode())
        self.processes = [self.process(), self.process()]

    # Who acts

    def process(self) -> Workspace:
        store = MemoryStore(self.disk, step=self.step)
        ticks = iter(range(1, 10_000))
        ledger = cast(Ledger, Witness(self.ledger, self.step))
        return memory_workspace(store, ledger, locks=store, clock=lambda: float(next(ticks)))

    def step(self, what: str, path: str) -> None:
        if self.calm:
            return
        if self.rng.random() < self.saves:
            self.somebody_saves()
        if self.rng.random() < self.fills:
            self.disk.capacity = None if self.disk.capacity else self.disk.used() + self.rng.randrange(200)
            self.say(f"  the disk is {'full' if self.disk.capacity else 'large'}")
        if self.acting is not None and self.slow is None and self.rng.random() < self.slowness:
            self.be_slow(self.acting)
        if self.away == 0 and self.rng.random() < self.absences:
            self.away = self.rng.choice((1, 1, 2, 5, 20))
            self.say(f"  the store is away for {self.away}")
        if self.away and what not in ("record", "recorded", "close", "closed", "wait"):
            self.away -= 1
            self.litters |= what == "settle"
            raise Unavailable(f"no answer to {what} {path}")
        if self.rng.random() < self.deaths:
            self.say(f"  dies at {what} {path}")
            slow = cast(MemoryStore, self.slow.store) if self.slow else None
            running = slow.held() if slow else set()
            self.orphaned |= {
                change.id for change in self.ledger.find_unfinished() if f"change-{change.id}" not in running
            }
            raise Killed

    def be_slow(self, which: int) -> None:
        """The other process does something while this one is in the middle."""
        self.say("  is slow, and the other one goes on")
        self.slow, self.disk.patience = self.processes[which], 0.0
        if self.disk.shuffle is not None and self.rng.random() < 0.5:
            self.say("  its turn is taken away, as a lease that ran out")
            cast(MemoryStore, self.slow.store).lose_turn()
        try:
            self.alive(1 - which, self.rng.choice((self.append, self.append, self.create, self.rename, self.take_back)))
        finally:
            self.slow, self.disk.patience, self.acting = None, None, which
        self.say("  and the slow one goes on")

    def say(self, line: str) -> None:
        self.log.append(line)

    def token(self, who: str) -> str:
        self.count += 1
        return f"{who}{self.count}"

    def run(self) -> None:
        for _ in range(self.rng.randrange(2, 9)):
            if self.rng.random() < 0.3:
                self.somebody_saves()
            which = self.rng.randrange(2)
            job = self.rng.choice((self.append, self.append, self.rename, self.rename, self.take_back, self.create))
            job = self.append_several if job == self.append and self.together else job
            self.alive(which, job)
        self.calm, self.disk.capacity = True, None
        recover(self.process())

    def alive(self, which: int, job: Callable[[Workspace], None]) -> None:
        self.acting = which
        try:
            job(self.processes[which])
        except Killed:
            self.reborn(which)
        finally:
            self.acting = None

    def reborn(self, which: int) -> None:
        while True:
            cast(MemoryStore, self.processes[which].store).die()
            self.processes[which] = self.process()
            try:
                return recover(self.processes[which])
            except Killed:
                continue

    # What they do

    def append(self, ws: Workspace) -> None:
        token = self.token("ours")
        path = self.rng.choice(("A.md", "B.md", self.target()))
        self.say(f"append {token} to {path}")
        self.told(token, lambda: edit(ws, NotePath(path), lambda text: f"{text}{token}\n", summary=token))

    def append_several(self, ws: Workspace) -> None:
        """As callers whose edits of one note go out in one write."""
        path = NotePath(self.rng.choice(("A.md", "B.md", self.target())))
        names = [self.token("ours") for _ in range(self.rng.randrange(1, 5))]
        self.say(f"append {' and '.join(names)} to {path}")
        edits = [TextEdit(ws, path, lambda text, token=token: f"{text}{token}\n", token) for token in names]  # type: ignore
        self.appends |= dict.fromkeys(names, "dead")
        edit_together(edits[0], lambda first: edits)
        for token, one in zip(names, edits, strict=True):
            try:
                one.result()
            except Problem as problem:
                self.appends[token] = "unknown" if self.in_doubt(problem) else "refused"
            else:
                self.appends[token] = "acknowledged"

    def create(self, ws: Workspace) -> None:
        token = self.token("ours")
        self.say(f"create {token}")
        path = NotePath(f"{self.rng.choice(('', 'new/', 'x/'))}{token}.md")
        self.told(token, lambda: commit(ws, Plan((Put(path, f"{token}\n".encode(), None),), token)))

    def told(self, token: str, job: Callable[[], object]) -> None:
        """Do it, and remember what the process was told."""
        self.appends[token] = "dead"
        try:
            job()
        except Problem as problem:
            self.appends[token] = "unknown" if self.in_doubt(problem) else "refused"
        else:
            self.appends[token] = "acknowledged"

    def in_doubt(self, problem: Problem) -> bool:
        """Was the process told that its change may have happened all the same? Whoever comes next decides that."""
        change = problem.details.get("change")
        self.orphaned |= {change} if change else set()
        self.say(f"  {problem.code} {change or ''}")
        return change is not None

    def rename(self, ws: Workspace) -> None:
        old, new = NotePath(self.target()), NotePath(f"{self.token('T')}.md")
        self.say(f"rename {old} to {new}")
        try:
            commit_latest(ws, lambda: (self.renaming(old, new), None))
        except Problem as problem:
            self.in_doubt(problem)

    def renaming(self, old: NotePath, new: NotePath) -> Plan:
        store = MemoryStore(self.disk)  # looks, and is no step of the simulation
        steps: list[Put | Drop] = [Put(new, None, None, old), Drop(old, store.read(old))]
        for path in list(self.disk.files):
            seen = store.read(NotePath(path))
            data = seen.data.replace(f"[[{old.stem}]]".encode(), f"[[{new.stem}]]".encode())
            if path != old and data != seen.data:
                steps.append(Put(NotePath(path), data, seen))
        return Plan(tuple(steps), f"moved {old} to {new}")

    def take_back(self, ws: Workspace) -> None:
        past = self.ledger.find_changes(ChangeQuery(limit=5))
        if not past:
            return
        change = self.rng.choice(past)
        self.say(f"undo {change.id} ({change.summary})")
        self.note_doubles()
        try:
            undo(ws, change.id)
        except Problem as problem:
            self.in_doubt(problem)
            return
        self.undone.add(change.id)

    def somebody_saves(self) -> None:
        path = self.rng.choice(sorted(self.disk.files))
        if self.stale and self.rng.random() < 0.2 and path in self.buffers:
            return self.save(path, self.buffers[path].decode(), lambda line: line)
        text = self.disk.files[path].data.decode()
        self.buffers[path] = text.encode()
        token = self.token("foreign")
        self.foreign.add(token)
        changes = [
            lambda line: f"{line}\n{token}",
            lambda line: f"{token}\n{line}",
            lambda line: f"{line} {token}",
            lambda line: token if not re.search(f"(ours|foreign)\\d|{BODY}", line) else f"{line}\n{token}",
        ]
        self.save(path, text, self.rng.choice(changes))

    def save(self, path: str, text: str, change: Callable[[str], str]) -> None:
        lines = text.split("\n")
        place = self.rng.randrange(len(lines))
        lines[place] = change(lines[place])
        new = "\n".join(lines)
        if text.encode() != self.disk.files[path].data:
            now = self.disk.files[path].data.decode()
            self.overwritten |= tokens(now) - tokens(new)
            self.excused.add(path)
        for change in self.ledger.find_unfinished():
            steps = [step for step in change.steps if step.path == path]
            sides = [
                tokens((self.ledger.blob(side or "") or b"").decode())
                for step in steps
                for side in (step.before, step.after)
            ]
            self.saved_under.setdefault(change.id, set()).update(
                *(a ^ b for a, b in zip(sides[::2], sides[1::2], strict=True))
            )
        self.say(f"  somebody saves {path}: line {place} {lines[place]!r}")
        self.disk.put(path, new.encode())

    def note_doubles(self) -> None:
        texts = [file.data.decode() for file in self.disk.files.values()]
        for text in [text for text in texts if BODY in text][1:]:
            self.doubled |= tokens(text)

    def target(self) -> str:
        holders = [path for path, file in self.disk.files.items() if BODY in file.data.decode()]
        return self.rng.choice(sorted(holders))

    # What must hold

    def check(self) -> None:
        files = {path: file.data.decode() for path, file in self.disk.files.items()}
        self.note_doubles()
        assert self.ledger.find_unfinished() == []
        recorded = [op for _, op, _ in self.disk.beside if self.ledger.change(op)]
        assert recorded == [] or self.litters, "litter, and not of one that died before it recorded what it would do"
        past = self.ledger.find_changes(ChangeQuery(limit=1000))
        self.check_tokens("\n".join(files.values()), {change.summary: change for change in past if not change.undoes})
        for change in past:
            assert change.id not in self.undone or change.undone_by or self.redone(change, past), "an undo is forgotten"
        self.check_target(files)
        if self.stale:
            return
        self.check_names(files, past)

    def check_tokens(self, everything: str, done: dict[str, Change]) -> None:
        found = re.findall(r"(?:ours|foreign)\d+", everything)
        unclear = self.unclear()
        for token in self.foreign - self.overwritten:
            assert found.count(token) >= 1, f"{token} is lost"
        for token, told in self.appends.items():
            if token in self.overwritten or (self.stale and told != "acknowledged"):
                continue
            change = done.get(token)
            assert told != "acknowledged" or change, f"{token} was acknowledged and is not in the history"
            assert told != "refused" or not change, f"{token} was refused and is in the history"
            stands = change is not None and change.undone_by is None
            if token in self.doubled:
                continue
            assert found.count(token) <= 1, f"{token} is there twice"
            if not self.stale and token not in unclear:
                assert found.count(token) == stands, f"{token} is there {found.count(token)} times, {told}"

    def unclear(self) -> set[str]:
        """Tokens at places that an editor saved after the process that was changing them died. Did it die before or
        after it wrote? Where both would look the same, either answer is right."""
        return set().union(*(self.saved_under.get(name, set()) for name in self.orphaned))

    def redone(self, change: Change, past: list[Change]) -> bool:
        undoers = [other for other in past if change.id in other.undoes]
        return any(other.undone_by for other in undoers)

    def check_target(self, files: dict[str, str]) -> None:
        holders = [path for path, text in files.items() if BODY in text]
        assert holders, "the target is missing"
        edited = [path for path in holders if "foreign" in files[path] or path in self.excused]
        assert len(holders) == 1 or self.stale or len(edited) >= len(holders) - 1, f"half a rename: {holders}"

    def check_names(self, files: dict[str, str], past: list[Change]) -> None:
        for path, text in files.items():
            for name in LINK.findall(text):
                assert f"{name}.md" in files, f"{path} links to {name}, which is not there"
        holders = [path for path, text in files.items() if BODY in text]
        if len(holders) > 1:
            return
        names = {name for text in files.values() for name in LINK.findall(text)}
        assert names <= {holders[0][:-3]}, f"links to {names}, the note is {holders}"
        name = "T0.md"
        for change in reversed(past):
            name = next((step.path for step in change.steps if step.source == name and not step.before), name)
        assert name == holders[0], "the history tells another story"


def tokens(text: str) -> set[str]:
    return set(re.findall(r"(?:ours|foreign)\d+", text))


def simulate(seed: int, *, aloud: bool = False) -> None:
    world = World(seed)
    try:
        world.run()
        world.check()
    except BaseException as problem:
        story = "\n".join([*world.log, *(f"{path}: {file.data!r}" for path, file in world.disk.files.items())])
        raise AssertionError(f"NOTEWRIGHT_SEED={seed} replays this: {problem}\n{story}") from problem
    finally:
        world.ledger.close()
    if aloud:
        print("\n".join(world.log))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "RETRY_PAUSE_SECONDS", 0.0)


def shard(number: int) -> range:
    return range(number, SEEDS, SHARDS)


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_half_done_whatever_the_schedule() -> None:
    if ONE is not None:
        return simulate(int(ONE), aloud=True)
    for seed in [*found.seeds(), *range(min(SEEDS, 2000))]:
        simulate(seed)


@pytest.mark.torture
@pytest.mark.parametrize("number", range(SHARDS))
def test_nothing_is_lost_in_very_many_schedules(number: int) -> None:
    for seed in shard(number):
        try:
            simulate(seed)
        except AssertionError:
            found.keep_seed(seed)
            raise
