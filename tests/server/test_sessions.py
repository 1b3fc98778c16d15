"""Session ids over HTTP."""

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
    assert found.once("context")
    again = sessions.find("lens", token)
    assert again is found and not again.once("context")


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
    assert sessions.ours("lens", token)


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
    assert sessions.of_client("obsidian", "Claude") is sessions.of_client("obsidian", "Claude")
    assert sessions.of_client("obsidian", "Claude") is not sessions.of_client("obsidian", "Cursor")
    before = sessions.of_client("obsidian", "Claude")
    clock.now += 31 * 60
    assert sessions.of_client("obsidian", "Claude") is not before
