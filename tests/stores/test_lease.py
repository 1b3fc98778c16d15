"""Who may write to a bucket, with clocks and answers of our own."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from notewright.errors import Unavailable
from notewright.stores.s3 import lease as lease_module
from notewright.stores.s3.lease import LEASE_SECONDS, Lease, LeaseOwner
from notewright.stores.s3.requests import ConditionFailed, FoundObject, Missing

WRITE_SECONDS = 60.0
A, B = LeaseOwner("a", "desk"), LeaseOwner("b", "laptop")


@dataclass
class Key:
    """The requests to one key with compare-and-swap, which may be away, or lose its answers."""

    found: FoundObject | None = None
    puts: int = 0
    away: bool = False
    loses_answers: bool = False

    def get(self, key: str) -> FoundObject:
        self.reach()
        if self.found is None:
            raise Missing
        return self.found

    def if_match(self, etag: str) -> str:
        return etag

    def put(self, key: str, data: bytes, *, mode: str, writes: bool) -> str:
        self.reach()
        if mode != (self.found.etag if self.found else "create"):
            raise ConditionFailed
        self.puts += 1
        self.found = FoundObject(data, f"e{self.puts}", {}, {})
        if self.loses_answers:
            raise Unavailable("no answer")
        return self.found.etag

    def reach(self) -> None:
        if self.away:
            raise Unavailable("away")


@dataclass
class World:
    """Two machines; each has a clock of its own, that show different times."""

    key: Key = field(default_factory=Key)
    now: float = 0.0

    def machine(self, owner: LeaseOwner, skew: float = 0.0, **options: object) -> Lease:
        made = Lease(self.key, "lease", owner, write_seconds=WRITE_SECONDS, clock=lambda: self.now + skew, **options)  # type: ignore[arg-type]
        made.start()
        made._stop.set()  # the test renews by itself
        return made


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_machine_writes_and_the_second_is_told_who_does(world: World) -> None:
    first, second = world.machine(A), world.machine(B, skew=10_000)
    assert first.may_write() and not second.may_write()
    assert second.why_not() == "desk writes to these notes: this machine reads them until that one ends"


def test_a_machine_that_renews_keeps_it_and_each_renewal_is_one_request(world: World) -> None:
    first, second = world.machine(A), world.machine(B)
    for _ in range(20):
        world.now += 20
        first.renew()
        second.renew()
        assert first.may_write() and not second.may_write()
    assert world.key.puts == 21


def test_a_machine_that_cannot_renew_stops_before_another_may_take_over(world: World) -> None:
    first, second = world.machine(A), world.machine(B, skew=-500)
    stopped = taken = None
    while taken is None:
        world.now += 1
        world.key.away = True
        first.renew()
        world.key.away = False
        second.renew()
        stopped = stopped or (None if first.may_write() else world.now)
        taken = world.now if second.may_write() else None
    assert stopped is not None and stopped + WRITE_SECONDS <= taken <= LEASE_SECONDS + 2
    assert "could not be renewed: away" in first.why_not()
    first.renew()
    assert not first.may_write() and "laptop writes" in first.why_not()


def test_a_renewal_without_an_answer_does_not_count_and_the_next_one_finds_it(world: World) -> None:
    first = world.machine(A)
    world.now, world.key.loses_answers = 50.0, True
    first.renew()
    assert first.may_write()
    world.now = 70.0
    assert not first.may_write(), "as long as the last renewal that was answered"
    world.key.loses_answers = False
    first.renew()
    assert first.may_write()


def test_processes_of_one_machine_share_it_and_the_last_one_lets_it_go(world: World) -> None:
    one, other = world.machine(A, is_last=lambda: False), world.machine(A)
    second = world.machine(B)
    for lease in (one, other, one):
        lease.renew()
        assert one.may_write() and other.may_write()
    one.close()
    second.renew()
    assert not one.may_write() and other.may_write() and not second.may_write()
    other.close()
    second.renew()
    assert second.may_write()


def test_a_machine_that_starts_again_has_its_lease_at_once(world: World) -> None:
    world.machine(A)
    assert world.machine(A).may_write()


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"owner": "x"}'])
def test_an_object_that_is_no_lease_is_waited_out(world: World, data: bytes) -> None:
    world.key.found = FoundObject(data, "e0", {}, {})
    first = world.machine(A)
    assert not first.may_write() and "another machine writes" in first.why_not()
    world.now = LEASE_SECONDS
    first.renew()
    assert first.may_write()


def test_all_who_ask_at_first_wait_for_one_answer(world: World) -> None:
    asked = threading.Event()

    class Slow(Key):
        def get(self, key: str) -> FoundObject:
            asked.wait(0.05)
            return super().get(key)

    world.key = Slow()
    lease = Lease(world.key, "lease", A, write_seconds=WRITE_SECONDS, clock=lambda: world.now)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: lease.may_write(), range(8)))
    assert world.key.puts == 1
    lease.close()


def test_an_error_that_nobody_expected_does_not_end_the_renewing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = threading.Event()

    class Breaking(Key):
        def put(self, key: str, data: bytes, *, mode: str, writes: bool) -> str:
            if self.puts == 1 and not caplog.records:
                raise ValueError("not expected")
            if self.puts == 2:
                renewed.set()
            return super().put(key, data, mode=mode, writes=writes)

    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.01)
    world.key = Breaking()
    lease = Lease(world.key, "lease", A, write_seconds=WRITE_SECONDS, clock=lambda: world.now)
    assert lease.may_write() and renewed.wait(30), "the thread goes on"
    assert "could not be renewed: ValueError('not expected')" in caplog.text
    lease.close()


def test_nobody_asks_for_it_before_something_is_to_be_written(world: World) -> None:
    lease = Lease(world.key, "lease", A, write_seconds=WRITE_SECONDS, clock=lambda: world.now)
    assert world.key.puts == 0
    assert lease.may_write() and world.key.puts == 1
    lease.close()
    assert not lease.may_write() and world.key.puts == 2
