"""Who follows a folder for all, and what the others may believe."""

import multiprocessing
import os
from pathlib import Path

import pytest

from notewright.engine.indexing.leader_lock import LeaderLock
from notewright.locks import FileLocks


def test_one_is_elected_and_the_next_when_it_goes(tmp_path: Path) -> None:
    first, second = LeaderLock(FileLocks(tmp_path)), LeaderLock(FileLocks(tmp_path))
    assert first.try_lead() and first.try_lead() and not second.try_lead()
    first.release()
    assert second.try_lead() and not first.try_lead()


def test_who_was_elected_is_not_believed_before_it_has_caught_up(tmp_path: Path) -> None:
    first, second = LeaderLock(FileLocks(tmp_path)), LeaderLock(FileLocks(tmp_path))
    first.try_lead()
    assert not second.is_other_fresh()
    first.announce_fresh()
    assert second.is_other_fresh()
    first.release()
    assert not second.is_other_fresh()


def _catch_up_and_die(folder: Path) -> None:
    leader = LeaderLock(FileLocks(folder))
    assert leader.try_lead()
    leader.announce_fresh()
    os._exit(0)


@pytest.mark.slow
def test_nothing_a_dead_process_said_is_believed_of_the_next(tmp_path: Path) -> None:
    dead = multiprocessing.get_context("spawn").Process(target=_catch_up_and_die, args=(tmp_path,))
    dead.start()
    dead.join(30)
    assert dead.exitcode == 0
    successor, other = LeaderLock(FileLocks(tmp_path)), LeaderLock(FileLocks(tmp_path))
    assert not other.is_other_fresh()
    assert successor.try_lead() and not other.is_other_fresh()


def test_those_who_try_do_not_take_each_other_for_the_elected(tmp_path: Path) -> None:
    trying = FileLocks(tmp_path).try_lock("fresh", shared=True)
    assert trying is not None
    assert not LeaderLock(FileLocks(tmp_path)).is_other_fresh()
    trying.release()


def test_deleted_files_let_everybody_stand_again(tmp_path: Path) -> None:
    first, second = LeaderLock(FileLocks(tmp_path)), LeaderLock(FileLocks(tmp_path))
    first.try_lead()
    first.announce_fresh()
    for file in tmp_path.iterdir():
        file.unlink()
    assert not first.is_held() and not second.is_other_fresh()
    assert second.try_lead() and not first.try_lead()
