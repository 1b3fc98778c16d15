"""The threads that do calls: as few as are enough, and as many as are needed."""

import asyncio
import threading
import time

import pytest

from notewright.errors import Busy
from notewright.server.workers import LONG, Workers


def run(workers: Workers, *works: object) -> list[object]:
    """All at once."""

    async def together() -> list[object]:
        return await asyncio.gather(*(workers.run(work) for work in works), return_exceptions=True)  # type: ignore[arg-type]

    try:
        return asyncio.run(together())
    finally:
        workers.close()


def spin(seconds: float) -> None:
    """Work hard."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_short_calls_are_done_by_few_threads() -> None:
    names = run(Workers(), *[lambda: threading.current_thread().name] * 50)
    assert len(names) == 50 and len(set(names)) <= 3


def test_calls_that_wait_for_something_all_wait_at_once() -> None:
    together = threading.Barrier(20)
    assert run(Workers(), *[lambda: together.wait(30) >= 0] * 20) == [True] * 20


def test_a_short_call_is_not_kept_waiting_by_calls_that_hang() -> None:
    hung, workers = threading.Event(), Workers(threads=20)

    async def among_hanging() -> float:
        hanging = [asyncio.create_task(workers.run(hung.wait, 60)) for _ in range(12)]
        await asyncio.sleep(0.2)
        began = time.monotonic()
        assert await workers.run(lambda: "short") == "short"
        took = time.monotonic() - began
        hung.set()
        assert await asyncio.gather(*hanging) == [True] * 12
        return took

    assert asyncio.run(among_hanging()) < 5
    workers.close()


def test_a_short_call_comes_between_long_ones_that_work_hard() -> None:
    workers = Workers()

    async def among_long() -> bool:
        long = [asyncio.create_task(workers.run(spin, 0.25)) for _ in range(3)]
        await asyncio.sleep(2 * LONG)
        await workers.run(lambda: None)
        early = not any(one.done() for one in long)
        await asyncio.gather(*long)
        return early

    assert asyncio.run(among_long())
    workers.close()


def test_there_are_never_more_threads_than_allowed_and_the_rest_wait_their_turn() -> None:
    at_once, most, lock = [0], [0], threading.Lock()

    def counted() -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)
        with lock:
            at_once[0] -= 1

    assert run(Workers(threads=3), *[counted] * 12) == [None] * 12
    assert most[0] <= 3


def test_far_too_many_calls_are_refused() -> None:
    go = threading.Event()
    workers = Workers(threads=1, waiting=2)

    async def crowded() -> list[object]:
        taken = [asyncio.create_task(workers.run(go.wait, 60)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await workers.run(lambda: None)
        go.set()
        return await asyncio.gather(*taken)

    assert asyncio.run(crowded()) == [True] * 3
    workers.close()


def test_a_call_whose_caller_left_before_it_began_is_not_made() -> None:
    go, made = threading.Event(), list[str]()
    workers = Workers(threads=1)

    async def leaves() -> None:
        first = asyncio.create_task(workers.run(go.wait, 60))
        second = asyncio.create_task(workers.run(made.append, "second"))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.sleep(0)
        go.set()
        await first
        await workers.run(made.append, "third")

    asyncio.run(leaves())
    workers.close()
    assert made == ["third"]


def test_what_a_call_raises_its_caller_gets() -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    def endless() -> None:
        raise StopIteration

    found = run(Workers(), wrong, endless)
    assert [type(one) for one in found] == [ValueError, RuntimeError]


def test_threads_end_when_they_are_no_longer_needed() -> None:
    threads: list[threading.Thread] = []
    together = threading.Barrier(5)

    def here() -> None:
        threads.append(threading.current_thread())
        together.wait(30)

    run(Workers(), *[here] * 5)
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads) and len(set(threads)) == 5
