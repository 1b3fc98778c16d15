"""Frames of the y-websocket protocol: what we write others read, and what others write cannot hurt."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewright.errors import Invalid
from notewright.ledger.base import Actor
from notewright.server.live import frames
from notewright.server.live.frames import ClientState, Message
from notewright.server.live.rooms import MAX_CLIENTS, Awareness, Member

STATES = st.lists(
    st.builds(
        ClientState,
        st.integers(0, frames.MAX_INTEGER),
        st.integers(0, frames.MAX_INTEGER),
        st.none() | st.sampled_from(['{"user":{"name":"Åsa 日本 🍵"}}', "{}", '{"cursor":null}']),
    ),
    max_size=5,
)


@given(st.integers(0, 2), st.binary(max_size=300), st.binary(max_size=300), STATES)
def test_every_frame_we_write_reads_as_it_was_meant(step: int, update: bytes, status: bytes, told: list) -> None:
    frame = frames.encode_sync(step, update) + frames.encode_sync_status(status) + frames.encode_awareness(told)
    first, second, third = frames.decode_messages(frame)
    assert first == Message(frames.SYNC, update, step)
    assert second == Message(frames.SYNC_STATUS, status)
    assert frames.decode_awareness(third.payload) == told


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    for read in (lambda: list(frames.decode_messages(data)), lambda: frames.decode_awareness(data)):
        try:
            read()
        except Invalid:
            pass


@given(st.binary(min_size=1, max_size=60), st.integers(0, 59))
def test_a_frame_that_was_cut_is_refused(update: bytes, cut: int) -> None:
    whole = frames.encode_sync(frames.UPDATE, update)
    with pytest.raises(Invalid):
        list(frames.decode_messages(whole[: cut % len(whole)]))


def test_a_frame_holds_some_messages_and_not_many() -> None:
    one = frames.encode_awareness([])
    assert len(list(frames.decode_messages(one * frames.MAX_MESSAGES))) == frames.MAX_MESSAGES
    with pytest.raises(Invalid):
        list(frames.decode_messages(one * (frames.MAX_MESSAGES + 1)))


@pytest.mark.parametrize(
    "state", [b"NaN", b'{"a":Infinity}', b"1", b"[]", b"{", b"\xff", b"[" * 20000, b'"' + b"a" * 20000 + b'"']
)
def test_a_state_that_other_clients_could_not_read_is_refused(state: bytes) -> None:
    payload = frames.encode_varint(1) + frames.encode_varint(7) + frames.encode_varint(1) + frames.encode_bytes(state)
    with pytest.raises(Invalid):
        frames.decode_awareness(payload)


def test_numbers_are_as_long_as_javascript_can_count_and_no_longer() -> None:
    one, biggest = frames.encode_varint(1), frames.encode_varint(frames.MAX_INTEGER)
    (state,) = frames.decode_awareness(one + biggest + biggest + frames.encode_bytes(b"{}"))
    assert state.clock == 2**53 - 1
    for endless in (b"\x80" * 20, b"\xff" * 8 + b"\x01", frames.encode_varint(2**53)):
        with pytest.raises(Invalid):
            list(frames.decode_messages(endless))


def test_text_that_is_not_ascii_is_as_long_as_its_bytes() -> None:
    assert frames.encode_permission_denied("né") == b"\x02\x00\x03n\xc3\xa9"


def member(person: str) -> Member:
    return Member(cast(Any, None), Actor(person), writes=True)


def test_an_echo_is_no_news_and_brings_nobody_back() -> None:
    ann, bob, states = member("ann"), member("bob"), Awareness()
    hers = ClientState(1, 5, "{}")
    assert states.update([hers], ann) == [hers]
    assert states.update([hers], bob) == []
    assert states.remove_states_of(ann) == [ClientState(1, 5, None)]
    assert states.update([hers], bob) == [] and states.states() == []
    assert states.update([ClientState(1, 6, "{}")], ann)


def test_nobody_moves_or_removes_the_cursor_of_another_person() -> None:
    ann, bob, states = member("ann"), member("bob"), Awareness()
    states.update([ClientState(1, 5, "{}")], ann)
    for forged in (ClientState(1, 6, '{"x":1}'), ClientState(1, 5, None), ClientState(1, 9, None)):
        assert states.update([forged], bob) == []
    assert states.states() == [ClientState(1, 5, "{}")]


def test_a_client_that_connects_again_takes_its_state_along() -> None:
    old, new, states = member("ann"), member("ann"), Awareness()
    states.update([ClientState(1, 5, "{}")], old)
    assert states.update([ClientState(1, 6, "{}")], new)
    assert states.remove_states_of(old) == []
    assert states.remove_states_of(new) == [ClientState(1, 6, None)]


def test_one_connection_cannot_be_a_crowd() -> None:
    with pytest.raises(Invalid):
        Awareness().update([ClientState(number, 1, "{}") for number in range(MAX_CLIENTS + 1)], member("ann"))
