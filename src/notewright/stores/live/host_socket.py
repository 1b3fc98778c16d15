"""Calls that only the process that hosts the live documents can answer, and the Unix socket at which others make them.

A message is its length (four bytes) and its bytes. The first of a caller is JSON: what is asked, of which document, for
whom; the second is what belongs to it. The first of the host is JSON: {} or the problem.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from notewright.errors import Problem, Unavailable
from notewright.notes.path import NotePath

if TYPE_CHECKING:  # loads pycrdt
    from notewright.stores.live.documents import LiveDocuments

CALL_TIMEOUT_S, RETRY_S = 8.0, 0.2  # for the host to answer another process, which asks again
MAX_MESSAGE_BYTES = 64 << 20
MAX_ADDRESS_BYTES = 100  # of a socket; systems take 103 or 107
LENGTH = struct.Struct(">I")
_PROBLEMS = {kind.code: kind for kind in Problem.__subclasses__()}
HostCall = Literal["names", "id_of", "exists", "state", "update", "new", "recall", "rebase"]


def call_host(live: "LiveDocuments", what: HostCall, doc: str, body: bytes = b"", by: Any = None) -> bytes:
    """Call the process that hosts the documents, this one or another, and return its answer. Blocks."""
    end = time.monotonic() + CALL_TIMEOUT_S
    while (left := end - time.monotonic()) > 0:
        if live.try_host():
            return answer_call(live, what, doc, body, by)
        with (
            suppress(OSError, EOFError, Unavailable),  # it has just gone, or does not listen yet
            socket_address(live.socket) as address,
            socket.socket(socket.AF_UNIX) as wire,
        ):
            wire.settimeout(left)
            wire.connect(address)
            wire.sendall(frame_message(encode_call(what, doc, by)) + frame_message(body))
            with wire.makefile("rb") as answers:
                raise_problem(_read_message(answers.read))
                return _read_message(answers.read)
        time.sleep(RETRY_S)
    raise no_answer_error()


def answer_call(live: "LiveDocuments", what: HostCall, doc: str, body: bytes, by: Any) -> bytes:
    """Answer a call. `doc` is the id of a document, or the path of a file (`id_of`, `recall`, `rebase`)."""
    if what == "names":
        paths = {doc_id: live.path_of(doc_id) for doc_id in json.loads(body)}
        return json.dumps({"folder_id": live.folder_id, "paths": paths}).encode()
    if what == "id_of":
        return live.id_of(NotePath(doc)).encode()
    if what == "new":
        return live.create(doc or None).encode()
    if what == "recall":
        return live.recall(NotePath(doc), body.decode().lower())
    if what == "rebase":
        return live.rebase(NotePath(doc), body)
    document = live.open(doc)
    try:
        if what == "state":
            return document.encode_update()
        if what == "update":
            document.apply(body, by=by)
            document.log.flush()
        return b""
    finally:
        live.release(document)


def encode_call(what: str, doc: str, by: Any, **more: object) -> bytes:
    return json.dumps({"ask": what, "doc": doc, "actor": {} if by is None else asdict(by), **more}).encode()


def no_answer_error() -> Unavailable:
    return Unavailable("the process that has the live documents does not answer", hint="try again in a moment")


def frame_message(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


def _read_message(read: Any) -> bytes:
    head = read(LENGTH.size)
    size = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else MAX_MESSAGE_BYTES + 1
    message: bytes = read(size) if size <= MAX_MESSAGE_BYTES else b""
    if len(message) != size:
        raise EOFError
    return message


def encode_problem(problem: Problem) -> bytes:
    """The answer of the host for a problem."""
    record = {"code": problem.code, "message": problem.message, "hint": problem.hint, "details": problem.details}
    return json.dumps(record).encode()


def raise_problem(answer: bytes) -> None:
    """Raise what the host answered, unless it is {}."""
    if record := json.loads(answer):
        raise _PROBLEMS[record["code"]](record["message"], hint=record["hint"], **record["details"])


@contextmanager
def socket_address(place: Path) -> Iterator[str]:
    """The address of a socket, whose name may be longer than an address: then by way of its open folder."""
    if len(os.fsencode(place)) <= MAX_ADDRESS_BYTES:
        yield str(place)
        return
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)
