"""Session ids over HTTP."""

from pathlib import Path

from notewright.accounts.limits_files import FileRateLimits
from notewright.server.sessions import Sessions


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_found_again_with_what_it_remembers() -> None:
    sessions = Sessions()
    token = sessions.open("lens", "Cläude")
    found = sessions.find("lens", token)
    assert found is not None and found.client == "Cläude" and not found.initialized
    assert found.mark_once("context")
    again = sessions.find("lens", token)
    assert again is found and not again.mark_once("context")


def test_an_id_is_good_for_its_own_surface_only_and_not_when_changed() -> None:
    sessions = Sessions()
    token = sessions.open("lens", "a")
    assert sessions.find("obsidian", token) is None
    for place in (0, len(token) // 2, len(token) - 2):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert sessions.find("lens", changed) is None
    for nonsense in ("", "é", "x" * 10_000, "===="):
        assert sessions.find("lens", nonsense) is None


def test_another_worker_with_the_same_key_knows_the_id_and_the_client() -> None:
    key = b"k" * 32
    token = Sessions(key).open("lens", "Claude")
    found = Sessions(key).find("lens", token)
    assert found is not None and found.client == "Claude" and found.initialized
    assert Sessions().find("lens", token) is None


def test_a_session_dies_of_half_an_hour_of_silence_and_not_of_age() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    token = sessions.open("lens", "a")
    for _ in range(4):
        clock.now += 29 * 60
        assert sessions.find("lens", token) is not None
    clock.now += 31 * 60
    assert sessions.find("lens", token) is None
    assert sessions.find("lens", token) is None
    assert sessions.is_ours("lens", token)


def test_an_ended_session_stays_ended() -> None:
    sessions = Sessions()
    token = sessions.open("lens", "a")
    assert sessions.end("lens", token)
    assert sessions.find("lens", token) is None
    assert not sessions.end("lens", token)


def test_no_more_is_remembered_than_fits() -> None:
    sessions = Sessions(most=10)
    first = sessions.open("lens", "a")
    remembered = sessions.find("lens", first)
    for number in range(20):
        sessions.open("lens", str(number))
    assert sessions.find("lens", first) is not remembered


def test_a_client_without_a_session_is_remembered_by_its_name() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    assert sessions.find_by_client("obsidian", "Claude") is sessions.find_by_client("obsidian", "Claude")
    assert sessions.find_by_client("obsidian", "Claude") is not sessions.find_by_client("obsidian", "Cursor")
    before = sessions.find_by_client("obsidian", "Claude")
    clock.now += 31 * 60
    assert sessions.find_by_client("obsidian", "Claude") is not before


# ---- several workers ----------------------------------------------------------------------------------


def two_workers(folder: Path, clock: Clock) -> tuple[Sessions, Sessions]:
    """With one key and one memory."""
    one, two = (
        Sessions(b"k" * 32, rate_limits=FileRateLimits(folder / "counts", clock), clock=clock) for _ in range(2)
    )
    return one, two


def test_who_said_hello_to_one_worker_is_known_to_the_other_and_must_still_shake_hands(tmp_path: Path) -> None:
    one, two = two_workers(tmp_path, Clock())
    token = one.open("second_brain ann", "Claude")
    found = two.find("second_brain ann", token)
    assert found is not None and found.client == "Claude" and not found.initialized
    found.initialized = True
    again = one.find("second_brain ann", token)
    assert again is not None and again.initialized


def test_what_was_said_once_by_one_worker_is_not_said_again_by_the_other(tmp_path: Path) -> None:
    one, two = two_workers(tmp_path, Clock())
    token = one.open("obsidian ann", "Claude")
    here, there = one.find("obsidian ann", token), two.find("obsidian ann", token)
    assert here is not None and there is not None
    assert there.mark_once("context") and not here.mark_once("context") and here.mark_once("other")
    assert one.find_by_client("obsidian ann", "Cursor").mark_once("context")
    assert not two.find_by_client("obsidian ann", "Cursor").mark_once("context")


def test_a_session_ended_by_one_worker_is_ended_for_the_other(tmp_path: Path) -> None:
    one, two = two_workers(tmp_path, Clock())
    token = one.open("lens ann", "a")
    assert two.find("lens ann", token) is not None
    assert two.end("lens ann", token)
    assert one.find("lens ann", token) is None and not one.end("lens ann", token)


def test_a_session_that_one_worker_serves_stays_alive_for_the_other(tmp_path: Path) -> None:
    clock = Clock()
    one, two = two_workers(tmp_path, clock)
    token = one.open("lens ann", "a")
    for _ in range(4):
        clock.now += 29 * 60
        assert one.find("lens ann", token) is not None
    assert two.find("lens ann", token) is not None
    clock.now += 31 * 60
    assert two.find("lens ann", token) is None and one.find("lens ann", token) is None


def test_a_client_that_was_away_is_told_again_by_both(tmp_path: Path) -> None:
    clock = Clock()
    one, two = two_workers(tmp_path, clock)
    assert one.find_by_client("obsidian ann", "Claude").mark_once("context")
    clock.now += 31 * 60
    assert two.find_by_client("obsidian ann", "Claude").mark_once("context")
    assert not one.find_by_client("obsidian ann", "Claude").mark_once("context")
