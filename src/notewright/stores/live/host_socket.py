"""What the process that has the live documents answers, itself or the others, and the Unix socket at which they ask.

A message is its length (four bytes) and its bytes. The first from whoever asks is JSON: what is asked, of which
document, for whom; the second is what belongs to it. The first from the host is JSON: {} or the problem.
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

ANSWER_S, ASK_AGAIN_S = 8.0, 0.2  # for the process that has the documents to answer another, which asks again
MAX_MESSAGE = 64 << 20
MAX_SOCKET_PATH = 100  # bytes; systems take 103 or 107
LENGTH = struct.Struct(">I")
_KINDS = {kind.code: kind for kind in Problem.__subclasses__()}
Ask = Literal["names", "id_of", "exists", "state", "update", "new", "recall", "rebase"]


def ask(live: "LiveDocuments", what: Ask, doc: str, body: bytes = b"", by: Any = None) -> bytes:
    """What `answer` says in the process that has the documents, be it this one or another. Blocks."""
    end = time.monotonic() + ANSWER_S
    while (left := end - time.monotonic()) > 0:
        if live.host():
            return answer(live, what, doc, body, by)
        with suppress(OSError, EOFError, Unavailable):  # it has just gone, or does not listen yet
            return _ask_host(live.socket, question(what, doc, by), body, left)
        time.sleep(ASK_AGAIN_S)
    raise no_answer()


def answer(live: "LiveDocuments", what: Ask, doc: str, body: bytes, by: Any) -> bytes:
    """`doc` is the id of a document, or the path of a file (`id_of`, `recall`, `rebase`); `by`: who changes it."""
    if what == "names":
        paths = {doc_id: live.path_of(doc_id) for doc_id in json.loads(body)}
        return json.dumps({"folder_id": live.folder_id, "paths": paths}).encode()
    if what == "id_of":
        return live.id_of(NotePath(doc)).encode()
    if what == "new":
        return live.new(doc or None).encode()
    if what == "recall":
        return live.recall(NotePath(doc), body.decode().lower())
    if what == "rebase":
        return live.rebase(NotePath(doc), body)
    document = live.open(doc)
    try:
        if what == "state":
            return document.update_since()
        if what == "update":
            document.apply(body, by=by)
            document.sync()
        return b""
    finally:
        live.release(document)


def question(what: str, doc: str, by: Any, **more: object) -> bytes:
    return json.dumps({"ask": what, "doc": doc, "actor": {} if by is None else asdict(by), **more}).encode()


def no_answer() -> Unavailable:
    return Unavailable("the process that has the live documents does not answer", hint="try again in a moment")


def _ask_host(place: Path, asked: bytes, body: bytes, seconds: float) -> bytes:
    """The answer of the host, or the Problem it tells. OSError or EOFError where nobody answers."""
    with reachable(place) as name, socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(seconds)
        wire.connect(name)
        wire.sendall(packed(asked) + packed(body))
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
