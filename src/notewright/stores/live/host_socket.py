"""The Unix socket at which the process that has the live documents answers the others: its place, its messages, and a
question that blocks.

A message is its length (four bytes) and its bytes. The first from whoever asks is JSON: what is asked, of which
document, for whom; the second is what belongs to it. The first from the host is JSON: {} or the problem.
"""

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from notewright.errors import Problem

SOCKET = "live.sock"  # in the state directory of the workspace
MAX_MESSAGE = 64 << 20
MAX_SOCKET_PATH = 100  # bytes; systems take 103 or 107
LENGTH = struct.Struct(">I")
_KINDS = {kind.code: kind for kind in Problem.__subclasses__()}


def ask_host(place: Path, asked: dict[str, Any], body: bytes, *, seconds: float) -> bytes:
    """The answer of the host, or the Problem it tells. OSError or EOFError where nobody answers."""
    with reachable(place) as name, socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(seconds)
        wire.connect(name)
        wire.sendall(packed(json.dumps(asked).encode()) + packed(body))
        with wire.makefile("rb") as answers:
            raise_problem(_next(answers.read))
            return _next(answers.read)


def _next(read: Any) -> bytes:
    head = read(LENGTH.size)
    size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else MAX_MESSAGE + 1
    message: bytes = read(size) if size <= MAX_MESSAGE else b""
    if len(message) != size:
        raise EOFError
    return message


def packed(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def told_problem(problem: Problem) -> bytes:
    """A problem as the host tells it."""
    record = {"code": problem.code, "message": problem.message, "hint": problem.hint, "details": problem.details}
    return json.dumps(record).encode()


def raise_problem(told: bytes) -> None:
    if record := json.loads(told):
        raise _KINDS[record["code"]](record["message"], hint=record["hint"], **record["details"])


@contextmanager
def reachable(place: Path) -> Iterator[str]:
    """The address of a socket, whose name may be longer than an address: then by way of its open folder."""
    if len(os.fsencode(place)) <= MAX_SOCKET_PATH:
        yield str(place)
        return
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)
