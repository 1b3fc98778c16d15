"""Frames of the y-websocket protocol, from bytes to values and back. Pure.

A frame is one or more messages in lib0's encoding: a kind, then what belongs to it. Numbers are little-endian groups of
seven bits; bytes and text come after their length in bytes. (`Encoder` of pycrdt writes the length of a text in
characters, so that what is not ASCII arrives broken.) Kinds that are not known, or that only a server sends, end a
frame: nobody can say where they stop. So do the relay's own, events (4 to 6) and subdocuments (7, 8): neither
y-websocket nor y-sweet sends them, and we have no subdocuments.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from notewright.errors import Invalid

SYNC, AWARENESS, AUTH, QUERY_AWARENESS, SYNC_STATUS = 0, 1, 2, 3, 102
STEP1, STEP2, UPDATE = 0, 1, 2  # of SYNC: what I have; what you lack; what is new
EMPTY_UPDATE = b"\x00\x00"
MAX_INTEGER = (1 << 53) - 1  # that JavaScript can hold
MAX_MESSAGES = 64  # of one frame: some are handled without a pause, and everybody else waits
MAX_STATE_BYTES = 4 << 10  # of one client's awareness
MAX_STATES = 1000  # in one awareness message
STATES_PER_FRAME = 100  # that we send at once: clients send back what they were sent
_DENIED = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `step` is that of SYNC; `payload` is empty where a kind has none that concerns us."""

    kind: int
    payload: bytes = b""
    step: int = 0


@dataclass(frozen=True, slots=True)
class ClientState:
    """The awareness state of one client: JSON, or None when it has gone. A larger clock is newer."""

    client: int
    clock: int
    state: str | None


class _FrameReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def read_varint(self) -> int:
        value = shift = 0
        while self._at < len(self._data):
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if value > MAX_INTEGER or shift > 49:
                break
            if byte < 0x80:
                return value
            shift += 7
        raise Invalid("a number in a frame has no end or is too large", what="frame")

    def read_bytes(self) -> bytes:
        size = self.read_varint()
        if size > len(self._data) - self._at:
            raise Invalid("a frame ends in the middle", what="frame")
        self._at += size
        return self._data[self._at - size : self._at]


def decode_messages(frame: bytes) -> Iterator[Message]:
    """The messages of one frame of a client; Invalid where it makes no sense."""
    if not frame:
        raise Invalid("an empty frame", what="frame")
    reader, count = _FrameReader(frame), 0
    while not reader.is_at_end:
        count += 1
        if count > MAX_MESSAGES:
            raise Invalid("too many messages in one frame", what="frame")
        kind = reader.read_varint()
        if kind == SYNC:
            step = reader.read_varint()
            if step not in (STEP1, STEP2, UPDATE):
                raise Invalid(f"there is no step {step} of the sync protocol", what="frame")
            yield Message(kind, reader.read_bytes(), step)
        elif kind in (AWARENESS, SYNC_STATUS):
            yield Message(kind, reader.read_bytes())
        else:
            yield Message(kind)
            return


def decode_awareness(payload: bytes) -> list[ClientState]:
    """The states in an awareness message; Invalid for what other clients could not read."""
    reader = _FrameReader(payload)
    states = []
    count = reader.read_varint()
    if count > MAX_STATES:
        raise Invalid(f"an awareness message of {count} clients", what="frame")
    for _ in range(count):
        client, clock, raw = reader.read_varint(), reader.read_varint(), reader.read_bytes()
        if len(raw) > MAX_STATE_BYTES:
            raise Invalid("an awareness state is too large", what="frame")
        try:
            text = raw.decode()
            value: Any = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise Invalid("an awareness state is no JSON", what="frame") from None
        if value is not None and not isinstance(value, dict):
            raise Invalid("an awareness state is no object", what="frame")
        states.append(ClientState(client, clock, None if value is None else text))
    if not reader.is_at_end:
        raise Invalid("an awareness message goes on after its end", what="frame")
    return states


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # NaN is JSON to Python alone


def encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_bytes(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def encode_sync(step: int, payload: bytes) -> bytes:
    return bytes((SYNC, step)) + encode_bytes(payload)


def encode_awareness(states: Iterable[ClientState]) -> bytes:
    parts = [
        encode_varint(one.client) + encode_varint(one.clock) + encode_bytes((one.state or "null").encode())
        for one in states
    ]
    return bytes((AWARENESS,)) + encode_bytes(encode_varint(len(parts)) + b"".join(parts))


def encode_awareness_frames(states: Sequence[ClientState]) -> list[bytes]:
    """All of them, in frames of a size that we would take back."""
    return [encode_awareness(states[at : at + STATES_PER_FRAME]) for at in range(0, len(states), STATES_PER_FRAME)]


def encode_sync_status(payload: bytes) -> bytes:
    """The payload comes back when everything that was sent before it is on the disk."""
    return bytes((SYNC_STATUS,)) + encode_bytes(payload)


def encode_permission_denied(reason: str) -> bytes:
    return bytes((AUTH, _DENIED)) + encode_bytes(reason.encode())
