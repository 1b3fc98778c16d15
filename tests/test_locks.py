"""Locks between processes and threads: given in the order of asking, and never for longer than their owner lives."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from notewright import locks
from notewright.locks import EXCLUSIVE, SHARED, ThreadQueue, lock_file, lock_in_turn, locked_file

LONG = 30.0


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[list[int]]:
    """The same directory opened several times: locks on each are as those of different processes."""
    opened = [os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY) for _ in range(5)]
    yield opened
    for handle in opened:
        os.close(handle)


def soon() -> float:
    return time.monotonic() + 0.05


def later() -> float:
    return time.monotonic() + LONG


def eventually(met: bool | None, ask: object) -> None:
    until = later()
    while time.monotonic() < until:
        if ask() is met:  # type: ignore[operator]
            return
        time.sleep(0.001)
    raise AssertionError("it did not come to that")


def test_a_lock_excludes_and_a_shared_one_only_exclusive_ones(handles: list[int]) -> None:
    lock_in_turn(handles[0], SHARED, soon())
    lock_in_turn(handles[1], SHARED, soon())
    with pytest.raises(BlockingIOError):
        lock_in_turn(handles[2], EXCLUSIVE, soon())


def test_a_free_lock_is_left_to_who_has_waited_for_it(handles: list[int]) -> None:
    locks._take_ticket(handles[0], time.monotonic_ns())
    with pytest.raises(BlockingIOError):
        lock_in_turn(handles[1], EXCLUSIVE, soon())
    lock_in_turn(handles[0], EXCLUSIVE, soon())


def test_who_gave_up_waiting_is_waited_for_by_nobody(handles: list[int]) -> None:
    lock_in_turn(handles[0], EXCLUSIVE, soon())
    with pytest.raises(BlockingIOError):
        lock_in_turn(handles[1], EXCLUSIVE, soon())
    os.close(handles[0])
    lock_in_turn(handles[2], EXCLUSIVE, soon())
    handles[0] = os.dup(handles[2])


def test_who_was_stopped_while_waiting_is_passed_over(handles: list[int]) -> None:
    locks._take_ticket(handles[0], time.monotonic_ns() - 3_000_000_000)
    lock_in_turn(handles[1], EXCLUSIVE, soon())


def test_without_such_tickets_there_are_locks_all_the_same(handles: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_SET", None)
    monkeypatch.setattr(locks, "_GET", None)
    lock_in_turn(handles[0], EXCLUSIVE, soon())
    with pytest.raises(BlockingIOError):
        lock_in_turn(handles[1], EXCLUSIVE, soon())


def test_those_who_wait_get_the_lock_in_the_order_they_asked(handles: list[int]) -> None:
    lock_in_turn(handles[0], EXCLUSIVE, soon())
    order: list[int] = []

    def wait(who: int) -> None:
        lock_in_turn(handles[who], EXCLUSIVE, later())
        order.append(who)
        os.close(handles[who])

    threads = []
    for who in (3, 1, 4, 2):
        asked = time.monotonic_ns()
        threads.append(threading.Thread(target=wait, args=(who,)))
        threads[-1].start()
        eventually(True, lambda: locks._has_earlier_ticket(handles[0], time.monotonic_ns()))
        eventually(True, lambda asked=asked: waits_since(handles[0], asked))
    os.close(handles[0])
    for thread in threads:
        thread.join(LONG)
    assert order == [3, 1, 4, 2]
    handles[:] = []


def waits_since(handle: int, moment: int) -> bool:
    """Somebody took a ticket after that moment."""
    asked = locks._RANGE.pack(locks.fcntl.F_WRLCK, 0, moment, 0, 0)
    return bool(locks._RANGE.unpack(locks.fcntl.fcntl(handle, locks._GET, asked))[0] != locks.fcntl.F_UNLCK)


def test_threads_get_their_lock_in_the_order_they_asked() -> None:
    queue, order = ThreadQueue(), list[int]()
    first = queue.acquire(0)

    def wait(who: int) -> None:
        mine = queue.acquire(LONG)
        order.append(who)
        queue.release(mine)

    threads = []
    for who in range(6):
        threads.append(threading.Thread(target=wait, args=(who,)))
        threads[-1].start()
        eventually(True, lambda who=who: len(queue._queue) == who + 2)
    queue.release(first)
    for thread in threads:
        thread.join(LONG)
    assert order == list(range(6))
    assert queue.acquire(0)


def test_a_thread_that_gave_up_waiting_is_passed_over() -> None:
    queue = ThreadQueue()
    first = queue.acquire(0)
    with pytest.raises(BlockingIOError):
        queue.acquire(0.01)
    queue.release(first)
    assert queue.acquire(0)


def test_threads_at_different_names_do_not_wait_for_each_other_and_one_at_all_names_waits_for_all() -> None:
    queue = ThreadQueue()
    taken = [queue.acquire(0, "a"), queue.acquire(0, "b")]
    for name in ("a", None):
        with pytest.raises(BlockingIOError):
            queue.acquire(0, name)
    for turn in taken:
        queue.release(turn)
    assert queue.acquire(0)
    with pytest.raises(BlockingIOError):
        queue.acquire(0, "a")


def test_a_locked_file_is_made_kept_from_others_and_free_again_when_it_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with locked_file(file):
        for timeout in (0, 0.02):
            with pytest.raises(BlockingIOError):
                lock_file(file, SHARED, timeout)
    with locked_file(file, SHARED), locked_file(file, SHARED, 0):
        pass


def test_a_file_that_is_deleted_while_it_is_waited_for_is_not_the_one_that_is_locked(tmp_path: Path) -> None:
    file, got = tmp_path / "lock", list[int]()
    with locked_file(file):
        waiting = threading.Thread(target=lambda: got.append(lock_file(file, timeout=LONG)))
        waiting.start()
        time.sleep(0.02)
        file.unlink()
    waiting.join(LONG)
    assert os.path.samestat(os.fstat(got[0]), file.stat())
    os.close(got[0])
