"""The threads that do calls: as few as are enough, and as many as are needed."""

import asyncio
import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from notewright.errors import Busy
from notewright.mcp.thread_pool import STUCK_SECONDS, ThreadPool

KINDS = pytest.mark.parametrize("brief", [False, True], ids=["of its own", "brief"])
Work = Callable[[], object]


def run(workers: ThreadPool, *works: Work, brief: bool = False) -> list[object]:
    """All at once."""
    doing = workers.run_brief if brief else workers.run

    async def together() -> list[object]:
        return await asyncio.gather(*(doing(work) for work in works), return_exceptions=True)

    try:
        return asyncio.run(together())
    finally:
        workers.close()


def spin(seconds: float) -> None:
    """Work hard."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_brief_calls_are_done_by_few_threads() -> None:
    def work() -> str:
        spin(0.0002)
        return threading.current_thread().name

    names = run(ThreadPool(), *[work] * 50, brief=True)
    assert len(names) == 50 and len(set(names)) < 16


@KINDS
def test_calls_that_wait_for_something_all_wait_at_once(brief: bool) -> None:
    together = threading.Barrier(20)
    assert run(ThreadPool(), *[lambda: together.wait(30) >= 0] * 20, brief=brief) == [True] * 20


@KINDS
def test_a_brief_call_is_not_kept_waiting_by_calls_that_hang(brief: bool) -> None:
    hung, workers = threading.Event(), ThreadPool(threads=20)
    doing = workers.run_brief if brief else workers.run

    async def among_hanging() -> float:
        hanging = [asyncio.create_task(doing(hung.wait, 60)) for _ in range(12)]
        await asyncio.sleep(0.2)
        began = time.monotonic()
        assert await workers.run_brief(lambda: "brief") == "brief"
        took = time.monotonic() - began
        hung.set()
        assert await asyncio.gather(*hanging) == [True] * 12
        return took

    assert asyncio.run(among_hanging()) < 5
    workers.close()


@pytest.mark.slow
@KINDS
def test_a_brief_call_comes_between_long_ones_that_work_hard(brief: bool) -> None:
    workers = ThreadPool()
    doing = workers.run_brief if brief else workers.run

    async def among_long() -> bool:
        long = [asyncio.create_task(doing(spin, 0.25)) for _ in range(3)]
        await asyncio.sleep(2 * STUCK_SECONDS)
        await workers.run_brief(lambda: None)
        early = not any(one.done() for one in long)
        await asyncio.gather(*long)
        return early

    assert asyncio.run(among_long())
    workers.close()


@KINDS
def test_there_are_never_more_threads_than_allowed_and_the_rest_wait_their_turn(brief: bool) -> None:
    at_once, most, lock = [0], [0], threading.Lock()

    def counted() -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)
        with lock:
            at_once[0] -= 1

    assert run(ThreadPool(threads=3), *[counted] * 12, brief=brief) == [None] * 12
    assert most[0] <= 3


def test_far_too_many_calls_are_refused() -> None:
    go = threading.Event()
    workers = ThreadPool(threads=1, waiting=2)

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
    workers = ThreadPool(threads=1)

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


@KINDS
def test_what_a_call_raises_its_caller_gets(brief: bool) -> None:
    def wrong() -> None:
        raise ValueError("wrong")

    def endless() -> None:
        raise StopIteration

    found = run(ThreadPool(), wrong, endless, brief=brief)
    assert [type(one) for one in found] == [ValueError, RuntimeError]


def test_calls_of_both_kinds_and_all_lengths_are_all_answered() -> None:
    """Whatever the order in which threads fall asleep and wake up."""
    workers, chance = ThreadPool(threads=6), Random(3)

    def work(number: int, seconds: float) -> int:
        if seconds:
            time.sleep(seconds)
        return number

    async def crowd() -> list[int]:
        async def client(number: int) -> int:
            done = 0
            for _ in range(60):
                doing = chance.choice((workers.run, workers.run_brief))
                done += await doing(work, 1, chance.choice((0, 0, 0, 0.0005, 0.004)))
                await asyncio.sleep(chance.choice((0, 0, 0.001)))
            return done

        return await asyncio.wait_for(asyncio.gather(*map(client, range(12))), 60)

    assert asyncio.run(crowd()) == [60] * 12
    workers.close()


def test_threads_end_when_they_are_no_longer_needed() -> None:
    threads: list[threading.Thread] = []
    together = threading.Barrier(5)

    def here() -> None:
        threads.append(threading.current_thread())
        together.wait(30)

    run(ThreadPool(), *[here] * 5)
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads) and len(set(threads)) == 5
