"""Tools on a bucket whose service fails: a call that failed stays failed or names its change; nothing is doubled."""

import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.bucket import Break, Bucket
from tests.stores.bucket_workspace import RENAMED, as_renamed, check, close, linked_notes, open_on

from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor
from notewright.stores.base import version_of
from notewright.surfaces.base import Call, Session
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.perform import perform

pytestmark = pytest.mark.slow

FAULTS = ["429", "503", "drop_before", "drop_after", "truncate", "hang"]
NAMED = re.compile(r"change \w{8}")  # in a refusal: this change may have happened all the same
OpenWorkspace = Callable[..., Workspace]


@pytest.fixture
def open_workspace(bucket: Bucket, tmp_path: Path) -> Iterator[OpenWorkspace]:
    """Opens a workspace on these notes whose requests are repeated for a moment only."""
    opened: list[Workspace] = []

    def make(notes: dict[str, bytes], **settings: bool) -> Workspace:
        for path, data in notes.items():
            bucket.put(path, data)
        store = bucket.open(timeout_seconds=1.0, retry_seconds=1.2)
        opened.append(open_on(store, tmp_path / "state", **settings))
        return opened[-1]

    yield make
    bucket.proxy.breaks = None
    for ws in opened:
        close(ws)


class Told(NamedTuple):
    """What a tool answered."""

    done: bool
    text: str

    @property
    def may_have_happened(self) -> bool:
        return self.done or NAMED.search(self.text) is not None

    def counts(self, times: int) -> bool:
        """So many times may the change be there after this answer."""
        return times == 1 if self.done else times <= self.may_have_happened


def told(ws: Workspace, tool: str, **args: object) -> Told:
    answer = perform(SURFACE, Call(Library.of([ws]), Actor("ann", "desk", "notes", tool), Session()), tool, args)
    return Told(not answer.is_error, answer.text)


def write_on(ws: Workspace) -> None:
    """A write that is done in the end: it finishes or takes back what was left before it."""
    until = time.monotonic() + 30
    while not told(ws, "edit", path="other/o8.md", edits=[{"append": "and on"}]).done:
        assert time.monotonic() < until
    assert ws.ledger.find_unfinished() == []


def failing(fault: str, share: float) -> Break:
    """Some requests fail, chosen by chance, and then often the next ones too: repetitions do not always help."""
    chance, left = random.Random(fault), 0

    def breaks(kind: str, key: str, number: int) -> str | None:
        nonlocal left
        if left == 0 and chance.random() < share:
            left = chance.choice((1, 2, 8))
        left = max(left - 1, 0)
        return fault if left else None

    return breaks


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_failed_stays_failed_or_names_its_change(
    open_workspace: OpenWorkspace, bucket: Bucket, fault: str
) -> None:
    notes = linked_notes(6)
    ws = open_workspace(notes)
    bucket.proxy.breaks = failing(fault, 0.12)
    appended, created, moved = dict[str, Told](), dict[str, Told](), list[Told]()
    for number in range(8):
        line = f"line {number}."
        appended[line] = told(ws, "edit", path=f"other/o{number % 2}.md", edits=[{"append": line}])
        created[f"New {number}.md"] = told(ws, "write", path=f"New {number}.md", content=f"new {number}\n")
        if number in (2, 5):
            moved.append(told(ws, "move", **{"from": "Target.md", "to": f"{RENAMED}.md"}))
    bucket.proxy.breaks = None
    write_on(ws)
    there = {entry.path: bucket.get(entry.path) for entry in ws.store.entries()}
    text = there["other/o0.md"] + there["other/o1.md"]
    for line, answer in appended.items():
        assert answer.counts(text.count(line.encode())), (line, answer)
    for path, answer in created.items():
        assert answer.counts(int(path in there)), (path, answer)
    is_moved = f"{RENAMED}.md" in there
    assert is_moved if any(one.done for one in moved) else not is_moved or any(o.may_have_happened for o in moved)
    touched = {path: there[path] for path in ("other/o0.md", "other/o1.md", "other/o8.md")}
    touched |= {path: f"new {path[4]}\n".encode() for path in created if path in there}
    check(ws, (as_renamed(notes) if is_moved else notes) | touched)
    assert not all(one.done for one in (*appended.values(), *created.values(), *moved))


def gone_from(first: int, *, answered: bool) -> Break:
    """Nobody answers from this request on; the first of them is done all the same unless it was not `answered`."""
    seen = 0

    def breaks(kind: str, key: str, number: int) -> str | None:
        nonlocal seen
        seen += 1
        return None if seen < first else "drop_before" if answered or seen > first else "drop_after"

    return breaks


@pytest.mark.parametrize("answered", [True, False], ids=["before a request", "after a request"])
def test_a_bucket_that_goes_away_in_the_middle_of_a_call(
    open_workspace: OpenWorkspace, bucket: Bucket, answered: bool
) -> None:
    """At every request of an edit, a new note and a rename. The next call finishes or takes back what was left."""
    notes = linked_notes(3)
    ws = open_workspace(notes)
    named = 0
    for first in (1, 2, 3, 4, 6, 8):
        line, new = f"line {first}.", f"New {first}.md"
        calls: list[tuple[str, dict[str, object]]] = [
            ("edit", {"path": "other/o0.md", "edits": [{"append": line}]}),
            ("write", {"path": new, "content": "new\n"}),
            ("move", {"from": "Target.md", "to": f"{RENAMED}.md"}),
        ]
        answers: list[Told] = []
        for tool, args in calls:
            bucket.proxy.breaks = gone_from(first, answered=answered)
            answers.append(told(ws, tool, **args))
            bucket.proxy.breaks = None
            write_on(ws)
        edited, written, moved = answers
        named += sum(answer.may_have_happened and not answer.done for answer in answers)
        there = {entry.path: bucket.get(entry.path) for entry in ws.store.entries()}
        assert edited.counts(there["other/o0.md"].count(line.encode())), edited
        assert written.counts(int(new in there)), written
        assert moved.counts(int(f"{RENAMED}.md" in there)), moved
        touched = {path: data for path, data in there.items() if path.startswith(("other/o", "New "))}
        check(ws, (as_renamed(notes) if f"{RENAMED}.md" in there else notes) | touched)
        if f"{RENAMED}.md" in there:
            assert told(ws, "move", **{"from": f"{RENAMED}.md", "to": "Target.md"}).done
    assert named > 0


@pytest.mark.parametrize("seconds", [1.5, pytest.param(10.0, marks=pytest.mark.torture)])
def test_after_a_bucket_was_away_the_index_says_what_is_there(
    open_workspace: OpenWorkspace, bucket: Bucket, seconds: float
) -> None:
    ws = open_workspace({"a.md": b"begin\n", "b.md": b"begin\n", "c.md": b"begin\n"}, watch=True)
    acknowledged, number = list[str](), 0
    until = time.monotonic() + seconds
    bucket.proxy.breaks = lambda kind, key, number: "drop_before" if time.monotonic() < until else None
    bucket.put("b.md", b"by somebody else, meanwhile\n")
    while time.monotonic() < until + 1:
        number += 1
        if told(ws, "edit", path="a.md", edits=[{"append": f"line {number}."}]).done:
            acknowledged.append(f"line {number}.")
    text = bucket.get("a.md").decode()
    assert acknowledged and [text.count(line) for line in acknowledged] == [1] * len(acknowledged)
    lines = re.findall(r"line \d+\.", text)
    assert len(lines) == len(set(lines))
    late = time.monotonic() + 30
    while (filed := ws.index.find_file("b.md")) is None or filed.version != version_of(bucket.get("b.md")):
        assert time.monotonic() < late
        time.sleep(0.05)
    check(ws, {path: bucket.get(path) for path in ("a.md", "b.md", "c.md")})
