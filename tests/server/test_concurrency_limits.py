"""Whose turn it is among many calls."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from notewright.accounts.limits import RateLimits
from notewright.config.load import Config
from notewright.errors import Limited
from notewright.server.concurrency_limits import ConcurrencyLimits
from notewright.surfaces.base import rate_limited_error


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


class Calls:
    """Calls that run until they are let go; what ran when."""

    def __init__(self, turns: ConcurrencyLimits) -> None:
        self.turns = turns
        self.let = asyncio.Event()
        self.running = 0
        self.most = 0
        self.begun: list[int] = []

    async def call(self, caller: str, number: int = 0) -> None:
        async with self.turns.slot(caller):
            self.begun.append(number)
            self.running += 1
            self.most = max(self.most, self.running)
            await self.let.wait()
            await asyncio.sleep(0)
            self.running -= 1


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_so_many_run_at_once_and_the_rest_in_order_after_them() -> None:
    async def test() -> None:
        calls = Calls(ConcurrencyLimits(at_once=3))
        tasks = [asyncio.create_task(calls.call("ann", number)) for number in range(10)]
        await settled()
        assert calls.running == 3
        calls.let.set()
        await asyncio.gather(*tasks)
        assert calls.most == 3 and calls.begun == list(range(10))

    run(test())


def test_one_caller_does_not_wait_for_another() -> None:
    async def test() -> None:
        calls = Calls(ConcurrencyLimits(at_once=2))
        tasks = [asyncio.create_task(calls.call(caller)) for caller in ["ann"] * 5 + ["ben"] * 2]
        await settled()
        assert calls.running == 4
        calls.let.set()
        await asyncio.gather(*tasks)

    run(test())


def test_beyond_a_long_line_calls_are_refused_and_do_not_count() -> None:
    async def test() -> None:
        rate_limits = RateLimits()
        calls = Calls(ConcurrencyLimits(rate_limits, per_minute=8, at_once=2, waiting=4))
        tasks = [asyncio.create_task(calls.call("ann")) for _ in range(6)]
        await settled()
        for _ in range(5):
            with pytest.raises(Limited, match="2 calls of yours run and 4 wait"):
                await calls.call("ann")
        calls.let.set()
        await asyncio.gather(*tasks)
        await calls.call("ann")
        await calls.call("ann")
        with pytest.raises(Limited, match="8 calls per minute"):
            await calls.call("ann")

    run(test())


def test_who_gives_up_in_line_holds_up_nobody() -> None:
    async def test() -> None:
        calls = Calls(ConcurrencyLimits(at_once=1))
        first, second, third = (asyncio.create_task(calls.call("ann", number)) for number in range(3))
        await settled()
        second.cancel()
        await settled()
        calls.let.set()
        await asyncio.gather(first, third)
        assert calls.begun == [0, 2]

    run(test())


def test_who_gives_up_when_it_is_just_their_turn_hands_it_on() -> None:
    async def test() -> None:
        turns = ConcurrencyLimits(at_once=1)
        calls = Calls(turns)
        calls.let.set()
        entered = turns.slot("ann")
        await entered.__aenter__()
        second, third = (asyncio.create_task(calls.call("ann", number)) for number in (1, 2))
        await settled()
        await entered.__aexit__(None, None, None)  # it is the second's turn now
        second.cancel()
        await third
        assert calls.begun == [2] and not turns._queues

    run(test())


def test_a_call_that_fails_gives_its_place_back() -> None:
    async def test() -> None:
        turns = ConcurrencyLimits(at_once=1)
        for _ in range(3):
            with pytest.raises(ValueError):
                async with turns.slot("ann"):
                    raise ValueError
        async with turns.slot("ann"):
            pass

    run(test())


def test_nothing_is_kept_of_those_who_have_gone() -> None:
    async def test() -> None:
        turns = ConcurrencyLimits(at_once=2)
        for number in range(100):
            async with turns.slot(f"caller {number}"):
                pass
        assert not turns._queues

    run(test())


def test_a_surface_that_counts_for_itself_is_not_counted_twice() -> None:
    async def test() -> None:
        turns = ConcurrencyLimits(RateLimits(), per_minute=2, at_once=4)
        for _ in range(5):
            async with turns.slot("ann", counted=False):
                pass
        for _ in range(2):
            async with turns.slot("ann"):
                pass
        with pytest.raises(Limited):
            async with turns.slot("ann"):
                pass

    run(test())


def test_zero_is_no_limit() -> None:
    async def test() -> None:
        calls = Calls(ConcurrencyLimits(RateLimits()))
        tasks = [asyncio.create_task(calls.call("ann")) for _ in range(500)]
        await settled()
        assert calls.running == 500
        calls.let.set()
        await asyncio.gather(*tasks)

    run(test())


@pytest.mark.parametrize(
    ("at_once", "workers", "share"), [(50, 2, 25), (51, 2, 26), (32, 2, 20), (32, 1, 32), (5, 2, 5)]
)
def test_workers_share_what_may_run_at_once_but_for_the_twenty_of_every_client(
    at_once: int, workers: int, share: int
) -> None:
    async def test() -> None:
        said = {"http.calls_at_once": at_once, "http.workers": workers, "rate_limits": False}
        config = Config((), "", "")
        calls = Calls(ConcurrencyLimits.from_config(replace(config, values={**config.values, **said}), RateLimits()))
        tasks = [asyncio.create_task(calls.call("ann")) for _ in range(60)]
        await settled()
        assert calls.running == share
        calls.let.set()
        await asyncio.gather(*tasks)

    run(test())


def test_a_refusal_says_when_to_come_back() -> None:
    problem = Limited("6000 calls per minute are used up", retry_after=7, limit=6000, window=60, name="minute")
    error = rate_limited_error(problem, str(problem))
    assert error.status == 429 and error.headers == {"Retry-After": "7"} and error.code == -32004
    assert error.data == {"retryAfter": 7, "limit": 6000, "window": "minute"}
