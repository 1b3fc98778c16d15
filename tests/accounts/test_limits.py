"""What rate limits and sessions promise, in memory and in files that several processes share."""

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from notewright.accounts import limits_files
from notewright.accounts.limits import MAX_STORED_DIGESTS, RateLimits, Window
from notewright.accounts.limits_files import FileRateLimits
from notewright.errors import Limited

MINUTE = [Window(3, 60, "minute")]
BRAIN = [Window(3, 60, "minute"), Window(5, 3600, "hour")]


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Make = Callable[..., RateLimits]


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Make:
    def made(most: int = 10_000) -> RateLimits:
        if request.param == "memory":
            return RateLimits(clock, most)
        return FileRateLimits(tmp_path / "state" / "counts", clock, most)

    return made


@pytest.fixture
def limits(make: Make) -> RateLimits:
    return make()


def refusal(limits: RateLimits, caller: str, windows: list[Window]) -> Limited:
    with pytest.raises(Limited) as refused:
        limits.count(caller, windows)
    return refused.value


# ---- notes of a session -------------------------------------------------------------------------------


def test_the_last_digests_of_a_session_are_remembered_by_name(limits: RateLimits) -> None:
    digests = {number: f"{number:064x}" for number in range(1, 3 * MAX_STORED_DIGESTS)}
    for number, digest in digests.items():
        limits.store_digest("one", "often", digest)
        limits.store_digest("one", f"note {number}", digest)
    newest = max(digests)
    assert limits.stored_digest("one", "often") == limits.stored_digest("one", f"note {newest}") == digests[newest]
    assert limits.stored_digest("one", f"note {newest - MAX_STORED_DIGESTS // 2}") is not None
    assert limits.stored_digest("one", "note 1") is None, "so many, and no more"
    limits.store_digest("one", "often", "")
    assert (limits.stored_digest("one", "often"), limits.stored_digest("two", "often")) == ("", None)


# ---- calls --------------------------------------------------------------------------------------------


def test_as_many_calls_as_a_window_holds_pass_and_the_next_is_told_when(limits: RateLimits, clock: Clock) -> None:
    for _ in range(3):
        limits.count("ann", MINUTE)
        clock.now += 10
    told = refusal(limits, "ann", MINUTE)
    assert told.details == {"retry_after": 30, "limit": 3, "window": 60, "name": "minute"}
    clock.now += 29
    assert refusal(limits, "ann", MINUTE).details["retry_after"] == 1
    clock.now += 1
    limits.count("ann", MINUTE)


def test_a_refused_call_does_not_count(limits: RateLimits, clock: Clock) -> None:
    for _ in range(3):
        limits.count("ann", MINUTE)
    for _ in range(10):
        clock.now += 1
        refusal(limits, "ann", MINUTE)
    clock.now += 50
    for _ in range(3):
        limits.count("ann", MINUTE)
    refusal(limits, "ann", MINUTE)


def test_who_only_looks_is_told_the_same_and_does_not_count(limits: RateLimits, clock: Clock) -> None:
    for _ in range(2):
        limits.count("ann", MINUTE)
    for _ in range(10):
        limits.count("ann", MINUTE, peek=True)
    limits.count("ann", MINUTE)
    with pytest.raises(Limited):
        limits.count("ann", MINUTE, peek=True)
    clock.now += 60
    limits.count("ann", MINUTE, peek=True)


def test_windows_slide_and_do_not_jump(limits: RateLimits, clock: Clock) -> None:
    """At no moment were there more than three calls in the sixty seconds before it."""
    passed: list[float] = []
    for _ in range(600):
        clock.now += 1
        try:
            limits.count("ann", MINUTE)
            passed.append(clock.now)
        except Limited:
            pass
    assert len(passed) == 30
    assert all(later - before >= 60 for before, later in zip(passed, passed[3:], strict=False))


def test_every_window_must_have_room(limits: RateLimits, clock: Clock) -> None:
    for _ in range(3):
        limits.count("ann", BRAIN)
    assert refusal(limits, "ann", BRAIN).details["name"] == "minute"
    clock.now += 60
    for _ in range(2):
        limits.count("ann", BRAIN)
    told = refusal(limits, "ann", BRAIN).details
    assert told["name"] == "hour" and told["retry_after"] == 3540
    clock.now += 3540
    limits.count("ann", BRAIN)


def test_callers_are_counted_apart(limits: RateLimits) -> None:
    for caller in ("ann", "ben", "", "é\udcff", "x" * 100_000):
        for _ in range(3):
            limits.count(caller, MINUTE)
        refusal(limits, caller, MINUTE)


def test_threads_get_exactly_as_many_as_there_are(limits: RateLimits) -> None:
    passed: list[int] = []

    def hammer() -> None:
        for number in range(20):
            try:
                limits.count("ann", [Window(50, 3600, "hour")])
                passed.append(number)
            except Limited:
                pass

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 50


# ---- sessions -----------------------------------------------------------------------------------------


def test_a_session_lives_while_it_is_used(limits: RateLimits, clock: Clock) -> None:
    for _ in range(5):
        assert limits.touch("s", idle=1800)
        clock.now += 1700
    clock.now += 200
    assert not limits.touch("s", idle=1800)
    assert not limits.touch("s", idle=1800)


def test_one_that_nobody_used_lives_by_its_age(limits: RateLimits) -> None:
    assert limits.touch("young", idle=1800, age=1700)
    assert not limits.touch("old", idle=1800, age=1801)


def test_an_ended_session_stays_ended(limits: RateLimits, clock: Clock) -> None:
    assert limits.touch("s", idle=1800)
    limits.end_session("s")
    assert not limits.touch("s", idle=1800)
    clock.now += 60
    assert not limits.touch("s", idle=1800)
    limits.end_session("never used")
    assert not limits.touch("never used", idle=1800)


def test_a_thing_is_said_once_in_a_session(limits: RateLimits) -> None:
    assert not limits.is_marked("s", "context")
    assert limits.mark_once("s", "context")
    assert not limits.mark_once("s", "context") and limits.is_marked("s", "context")
    assert limits.mark_once("s", "other") and limits.mark_once("t", "context")


def test_a_forgotten_session_begins_anew(limits: RateLimits) -> None:
    assert limits.touch("s", idle=1800) and limits.mark_once("s", "context")
    limits.end_session("s")
    limits.forget_session("s")
    assert limits.touch("s", idle=1800) and limits.mark_once("s", "context")


def test_no_more_callers_and_sessions_are_remembered_than_fit(make: Make, clock: Clock) -> None:
    limits = make(most=20)
    for _ in range(3):
        limits.count("first", MINUTE)
    assert limits.mark_once("first", "context")
    for number in range(limits_files.SWEEP_CALLS + 20):
        clock.now += 0.01
        limits.touch(f"session {number}", idle=1800)
        limits.count(f"caller {number}", MINUTE)
    limits.count("first", MINUTE)
    assert limits.mark_once("first", "context")


# ---- one file -----------------------------------------------------------------------------------------


def test_two_processes_see_each_other_s_calls_and_sessions(tmp_path: Path, clock: Clock) -> None:
    here, there = (FileRateLimits(tmp_path / "limits", clock) for _ in range(2))
    here.count("ann", MINUTE)
    there.count("ann", MINUTE)
    here.count("ann", MINUTE)
    refusal(there, "ann", MINUTE)
    assert here.touch("s", idle=1800) and here.mark_once("s", "context")
    assert not there.mark_once("s", "context") and there.is_marked("s", "context")
    clock.now += 1700
    assert there.touch("s", idle=1800)
    clock.now += 1700
    assert here.touch("s", idle=1800)
    there.end_session("s")
    assert not here.touch("s", idle=1800)


def hammer(file: Path, go: str, calls: int, answers: "multiprocessing.SimpleQueue[int]") -> None:
    limits = FileRateLimits(file)
    while not Path(go).exists():
        time.sleep(0.001)
    passed = 0
    for _ in range(calls):
        try:
            limits.count("ann", [Window(100, 60, "minute"), Window(150, 3600, "hour")])
            passed += 1
        except Limited:
            pass
    answers.put(passed)


@pytest.mark.slow
def test_processes_that_hammer_one_counter_get_exactly_as_many_as_there_are(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers, go = context.SimpleQueue(), tmp_path / "go"
    given = (tmp_path / "limits", str(go), 100, answers)
    crowd = [context.Process(target=hammer, args=given) for _ in range(4)]
    for process in crowd:
        process.start()
    go.touch()
    for process in crowd:
        process.join(60)
        assert process.exitcode == 0
    assert sum(answers.get() for _ in crowd) == 100


def count_for_ever(file: Path, answers: "multiprocessing.SimpleQueue[int]") -> None:
    limits = FileRateLimits(file)
    answers.put(os.getpid())
    while True:
        limits.count("ann", [Window(10_000_000, 3600, "hour")])
        limits.mark_once(str(time.monotonic_ns()), "context")


@pytest.mark.slow
def test_a_process_killed_in_the_middle_leaves_the_others_a_whole_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    limits = FileRateLimits(tmp_path / "limits")
    for _ in range(4):
        process = context.Process(target=count_for_ever, args=(tmp_path / "limits", answers))
        process.start()
        answers.get()
        time.sleep(0.2)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(20)
        begun = time.monotonic()
        limits.count("ben", [Window(100, 3600, "hour")])
        assert time.monotonic() - begun < 2
    assert stored_calls(tmp_path / "limits") > 4
    with pytest.raises(Limited):
        for _ in range(100):
            limits.count("ben", [Window(100, 3600, "hour")])


def test_what_is_kept_stays_small_and_old_calls_go(tmp_path: Path, clock: Clock) -> None:
    limits = FileRateLimits(tmp_path / "limits", clock)
    for _ in range(100):
        clock.now += 61
        for _ in range(3):
            limits.count("ann", [Window(30, 60, "minute")])
    assert stored_calls(limits.folder) <= 10
    for _ in range(200):
        clock.now += 0.001
        try:
            limits.count("ben", [Window(7, 0.05, "moment")])
        except Limited:
            pass
    assert stored_calls(limits.folder) <= 20


def stored_calls(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "calls").iterdir()) // 8


def test_beyond_so_many_the_longest_unused_callers_and_sessions_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    limits = FileRateLimits(tmp_path / "limits", clock, most=100)
    for number in range(limits_files.SWEEP_CALLS * 3):
        clock.now += 1
        limits.count(f"caller {number}", MINUTE)
        limits.touch(f"session {number}", idle=60)
    assert len(list((limits.folder / "calls").iterdir())) <= 50 + limits_files.SWEEP_CALLS
    assert len(list((limits.folder / "sessions").iterdir())) <= 100 + limits_files.SWEEP_CALLS


def test_names_are_not_written_down(tmp_path: Path) -> None:
    limits = FileRateLimits(tmp_path / "limits")
    limits.count("ann@example.org", MINUTE)
    limits.touch("secret-session-id", idle=60)
    written = [str(file).encode() + (file.read_bytes() if file.is_file() else b"") for file in tmp_path.rglob("*")]
    assert len(written) > 3
    assert not any(b"ann@example" in one or b"secret-session" in one for one in written)


def test_a_clock_that_is_set_back_locks_nobody_out(tmp_path: Path, clock: Clock) -> None:
    limits = FileRateLimits(tmp_path / "limits", clock)
    for _ in range(3):
        limits.count("ann", MINUTE)
    clock.now -= 86_400
    limits.count("ann", MINUTE)


def spoil(folder: Path) -> None:
    for file in (folder / "calls").iterdir():
        file.write_bytes(b"no times at all, and no whole number of them")


def cut(folder: Path) -> None:
    for file in (folder / "calls").iterdir():
        os.truncate(file, 13)


@pytest.mark.parametrize("damage", [spoil, cut, lambda folder: shutil.rmtree(folder / "calls")])
def test_counts_that_are_damaged_or_gone_shut_nobody_out_and_stop_nobody(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    here, there = (FileRateLimits(tmp_path / "limits") for _ in range(2))
    many = [Window(1000, 3600, "hour")]
    for _ in range(60):
        here.count("ann", many)
        there.count("ben", many)
    damage(tmp_path / "limits")
    for limits in (here, there):
        limits.count("ann", many)
        limits.count("ben", many)
    FileRateLimits(tmp_path / "limits")
    for limits in (here, there, here):
        limits.count("dan", MINUTE)
    refusal(there, "dan", MINUTE)


def test_where_nothing_can_be_written_each_counts_for_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = FileRateLimits(tmp_path / "limits")
    shutil.rmtree(limits.folder)
    limits.folder.touch()
    for _ in range(3):
        limits.count("ann", MINUTE)
    refusal(limits, "ann", MINUTE)
    assert limits.touch("s", idle=60) and limits.mark_once("s", "context") and not limits.mark_once("s", "context")
    assert caplog.text.count("counted by each worker for itself") == 1
