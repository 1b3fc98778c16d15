"""Renames through the whole engine, killed at any system call, or with the index deleted at any: the next process finds
links whole and an index that equals one built from nothing."""

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import read_files
from tests.engine.changes.killing import really_opened
from tests.engine.changes.test_kill import (
    SEED,
    Slayer,
    assert_all_is_there,
    assert_recorded,
    lay_out,
    run_together,
    shared_lines,
    vault,
)
from tests.engine.proving import differences

from notewright.app.opening import close_workspace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are traced as Linux does it")


@pytest.fixture
def slayer(tmp_path: Path) -> Iterator[Slayer]:
    slayer = Slayer(tmp_path)
    yield slayer
    slayer.close()


def assert_index_is_right(slayer: Slayer, why: str) -> None:
    ws = really_opened(slayer.folder, slayer.state, watch=False)
    try:
        ws.follower.wait(20)
        assert differences(ws) == {}, why
    finally:
        close_workspace(ws)


def kill_moves(slayer: Slayer, kills: int, linking: int, *, lose: bool = False, check_every: int = 4) -> Counter[str]:
    """Move there and back, each time killed somewhere, the index deleted somewhere if `lose` says so."""
    rng, names = random.Random(SEED), ["Old", "new/New"]
    lay_out(slayer.folder, vault(linking, "Old"))
    slayer.do("real start")
    calls = slayer.do("real move", count=True, old="Old.md", new="new/New")["calls"]
    slayer.do("real move", old="new/New.md", new="Old")
    ends: Counter[str] = Counter()
    for number in range(kills):
        at = rng.randrange(calls // 20, calls)
        lost = rng.randrange(calls // 20, calls) if lose else 0
        why = f"NOTEWRIGHT_SEED={SEED}, move {number} killed at call {at}, index lost at {lost}"
        slayer.do("real move", kill=at, lose=lost, old=f"{names[0]}.md", new=names[1])
        slayer.do("real start", kill=rng.randrange(1, calls) if rng.random() < 0.3 else 0)
        slayer.do("real start")
        after = {path: text.replace("[[New]]", "[[new/New]]") for path, text in slayer.swept().items()}
        moved = after == vault(linking, names[1])
        assert moved or after == vault(linking, names[0]), why
        assert_recorded(next(slayer.state.glob("*/ledger.db")).parent, f"moved {names[0]}.md to {names[1]}.md", moved)
        if number % check_every == 0:
            assert_index_is_right(slayer, why)
        ends["forward" if moved else "back"] += 1
        names = names[::-1] if moved else names
    assert_index_is_right(slayer, f"NOTEWRIGHT_SEED={SEED}")
    return ends


def lose_indexes(slayer: Slayer, times: int, linking: int) -> None:
    """Nobody dies, but the index is deleted in the middle: the move happens as if it had not been."""
    rng, names = random.Random(SEED), ["Old", "new/New"]
    lay_out(slayer.folder, vault(linking, "Old"))
    slayer.do("real start")
    calls = slayer.do("real move", count=True, old="Old.md", new="new/New")["calls"]
    names = names[::-1]
    for number in range(times):
        lost = rng.randrange(1, calls)
        slayer.do("real move", count=True, lose=lost, old=f"{names[0]}.md", new=names[1])
        after = {path: text.replace("[[New]]", "[[new/New]]") for path, text in slayer.swept().items()}
        assert after == vault(linking, names[1]), f"NOTEWRIGHT_SEED={SEED}, move {number}, index lost at call {lost}"
        names = names[::-1]
    assert_index_is_right(slayer, f"NOTEWRIGHT_SEED={SEED}")


@pytest.mark.slow
def test_a_move_killed_anywhere_is_wholly_there_or_not_at_all_and_the_index_knows(slayer: Slayer) -> None:
    assert kill_moves(slayer, kills=8, linking=6).total() == 8


@pytest.mark.slow
def test_a_move_is_whole_though_the_index_is_deleted_in_the_middle(slayer: Slayer) -> None:
    lose_indexes(slayer, times=8, linking=6)


@pytest.mark.slow
def test_a_move_killed_while_its_index_is_deleted_is_whole_or_not_at_all(slayer: Slayer) -> None:
    assert kill_moves(slayer, kills=4, linking=6, lose=True).total() == 4


@pytest.mark.torture
def test_a_move_with_fifty_links_killed_three_hundred_times(slayer: Slayer) -> None:
    ends = kill_moves(slayer, kills=300, linking=50, check_every=20)
    assert len(ends) == 2, ends


@pytest.mark.torture
def test_a_hundred_moves_killed_while_the_index_is_deleted(slayer: Slayer) -> None:
    kill_moves(slayer, kills=100, linking=20, lose=True, check_every=10)


@pytest.mark.torture
def test_a_hundred_moves_with_the_index_deleted_in_the_middle(slayer: Slayer) -> None:
    lose_indexes(slayer, times=80, linking=50)


def move_together(place: Path, seconds: float, *, lose: bool = False) -> None:
    """Four processes append links and rename through the engine, one is killed every second."""
    folder, state = place / "notes", place / "state"
    lost = (lambda: shutil.rmtree(state / "cache", ignore_errors=True)) if lose else (lambda: None)
    run_together(place, seconds, "real-worker", lost)
    ws = really_opened(folder, state)
    try:
        assert ws.ledger.find_unfinished() == []
        ws.follower.wait(20)
        assert differences(ws) == {}
    finally:
        close_workspace(ws)
    texts = {path: data.decode() for path, data in read_files(folder).items()}
    assert_all_is_there(texts, [line.split()[0] for line in shared_lines(texts)], state, 5)
    assert not [name for name in os.listdir(folder) if name.startswith(".")], "litter"


@pytest.mark.slow
def test_four_processes_that_move_and_link_with_one_killed_every_second_lose_nothing(tmp_path: Path) -> None:
    move_together(tmp_path, 3)


@pytest.mark.torture
def test_four_processes_that_move_and_link_for_ten_seconds(tmp_path: Path) -> None:
    move_together(tmp_path, 10)


@pytest.mark.torture
def test_four_processes_that_move_and_link_while_their_index_is_deleted_every_second(tmp_path: Path) -> None:
    move_together(tmp_path, 10, lose=True)
