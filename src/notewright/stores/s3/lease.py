"""One machine writes to a bucket's notes: an object under the prefix says which, and it is renewed while that one runs.

No two clocks are compared. The holder counts from before it sent its last renewal; everybody else from when it last saw
the object change, and takes over when that is as long ago as the lease lasts. A holder that cannot renew it stops early
enough that a PUT it sent has ended by then. Processes of one machine share its lease.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from notewright.errors import Problem
from notewright.stores.s3.requests import ConditionFailed, Missing, Requests

log = logging.getLogger(__name__)

LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0
CLOSE_SECONDS = 5.0  # that a renewal under way is waited for at the end
TRIES = 4  # other processes of this machine renew it too
MOST_BYTES = 4_096  # of a lease that somebody else may have written


class FoundLease(NamedTuple):
    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """A machine: `id` is kept in its state folder, `host` is for people."""

    id: str
    host: str


class Lease:
    """This process's part in the machine's lease. `write_seconds` is the longest that one write may be under way."""

    def __init__(
        self,
        where: "BucketLeaseObject",
        owner: LeaseOwner,
        *,
        write_seconds: float,
        is_last: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._object, self._owner, self._write_seconds = where, owner, write_seconds
        self._is_last, self._clock = is_last, clock
        self._mutex, self._starting = threading.Lock(), threading.Lock()
        self._until: float | None = None  # as long as it is ours
        self._etag: str | None = None  # of our last renewal
        self._other: str | None = None  # the host that holds it
        self._changed: tuple[str, float] | None = None  # of another's lease: its ETag, and since when we have seen it
        self._problem = ""
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def may_write(self) -> bool:
        """A write that begins now ends before anybody else may take over. The first question asks for the lease."""
        if self._thread is None:
            self.start()
        until = self._until
        return until is not None and self._clock() + self._write_seconds < until

    def why_not(self) -> str:
        if self._other is not None:
            return f"{self._other} writes to these notes: this machine reads them until that one ends"
        return f"the lease on these notes could not be renewed{self._problem}"

    def start(self) -> None:
        """Ask for it now, and keep it in the background from then on."""
        with self._starting:  # whoever asks meanwhile waits for the answer
            if self._thread is None and not self._stop.is_set():
                self.renew()
                self._thread = threading.Thread(target=self._keep, name="bucket-lease", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Let it go, unless another process of this machine still writes."""
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        with self._mutex:
            held, last, self._until = self._until is not None, self._is_last(), None
            if held and last and not self._problem:  # where nobody answers, nobody is waited for
                try:
                    found = self._object.get()  # another process of this machine may have renewed it last
                    if found is not None and _parsed(found.data).get("owner") == self._owner.id:
                        self._object.put(self._content(None), seen=found.etag)
                except Problem as problem:
                    log.info("the lease was not let go: %s", problem)

    def renew(self) -> None:
        """One attempt to get or keep it."""
        with self._mutex:
            had = self._other
            try:
                self._renew()
                self._problem = ""
            except Exception as error:  # whatever it is, the next renewal is tried: without one nobody may write
                self._problem = f": {error.message if isinstance(error, Problem) else repr(error)}"
                log.warning("%s", self.why_not())
            if self._other is not None and had is None:
                log.warning("%s", self.why_not())
            elif self._other is None and had is not None:
                log.info("%s no longer writes to these notes: this machine may", had)

    def _renew(self) -> None:
        for _ in range(TRIES):
            seen = self._etag
            if seen is None:
                found = self._object.get()
                if not self._is_free(found):
                    return
                seen = None if found is None else found.etag
            sent = self._clock()
            self._etag = None
            self._etag = self._object.put(self._content(self._owner), seen=seen)
            if self._etag is not None:
                self._until, self._other, self._changed = sent + LEASE_SECONDS, None, None
                return

    def _is_free(self, found: FoundLease | None) -> bool:
        told = {} if found is None else _parsed(found.data)
        if found is None or told.get("owner") in (None, self._owner.id):
            return True
        self._until = None
        self._other = str(told.get("host") or "another machine")[:100]
        now = self._clock()
        if self._changed is None or self._changed[0] != found.etag:
            self._changed = found.etag, now
        return now - self._changed[1] >= LEASE_SECONDS

    def _content(self, owner: LeaseOwner | None) -> bytes:
        """Never twice the same, so that its ETag shows that somebody is alive."""
        held = {} if owner is None else {"owner": owner.id, "host": owner.host}
        return json.dumps(held | {"renewal": secrets.token_hex(8)}).encode()

    def _keep(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            self.renew()


def _parsed(data: bytes) -> dict[str, Any]:
    """What is no lease of ours is taken for one of somebody unknown: nobody writes there unless it stays as it is."""
    try:
        told = json.loads(data[:MOST_BYTES])
        return told if isinstance(told, dict) else {"owner": "unknown"}
    except ValueError:
        return {"owner": "unknown"}


class BucketLeaseObject:
    """The lease as an object of the bucket: one key with compare-and-swap. Both raise a Problem where the service does
    not answer."""

    def __init__(self, key: str, requests: Requests) -> None:
        self._key, self._requests = key, requests

    def get(self) -> FoundLease | None:
        try:
            found = self._requests.get(self._key)
        except Missing:
            return None
        return FoundLease(found.data, found.etag)

    def put(self, data: bytes, *, seen: str | None) -> str | None:
        """The new ETag, or None where another one than `seen` (None: any at all) is there."""
        mode = "create" if seen is None else self._requests.over(seen)
        try:
            return self._requests.put(self._key, data, mode=mode, writes=False)  # who may write is not known before
        except (ConditionFailed, Missing):
            return None
