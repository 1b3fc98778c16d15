"""The lease that lets one machine write to a bucket's notes: an object under the prefix names the holder, which renews
it while it runs.

No two clocks are compared. The holder counts from before it sent its last renewal; every other machine from when it
last saw the object change, and takes over when that is as long ago as the lease lasts. A holder that cannot renew it
stops writing early enough that a PUT it sent has ended by then. Processes of one machine share its lease.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from notewright.errors import Problem
from notewright.stores.s3.requests import ConditionFailed, FoundObject, Missing, Requests

log = logging.getLogger(__name__)

LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0
CLOSE_SECONDS = 5.0  # that `close` waits for a renewal under way
TRIES = 4  # other processes of this machine renew it too
MAX_LEASE_BYTES = 4_096  # that are parsed: another program may have written it


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """A machine: `id` is kept in its state folder, `host` is for people."""

    id: str
    host: str


class Lease:
    """This process's share in the machine's lease. `write_seconds` is the longest that one write may be under way."""

    def __init__(
        self,
        requests: Requests,
        key: str,
        owner: LeaseOwner,
        *,
        write_seconds: float,
        is_last: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests, self._key, self._owner, self._write_seconds = requests, key, owner, write_seconds
        self._is_last, self._clock = is_last, clock
        self._mutex, self._starting = threading.Lock(), threading.Lock()
        self._until: float | None = None  # as long as it is ours
        self._etag: str | None = None  # of our last renewal
        self._other: str | None = None  # the host that holds it
        self._other_since: tuple[str, float] | None = None  # ETag of another's lease, and when we first saw it
        self._problem = ""
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def may_write(self) -> bool:
        """A write that begins now ends before another machine may take over. The first call acquires the lease."""
        if self._thread is None:
            self.start()
        until = self._until
        return until is not None and self._clock() + self._write_seconds < until

    def why_not(self) -> str:
        if self._other is not None:
            return f"{self._other} writes to these notes: this machine reads them until that one ends"
        return f"the lease on these notes could not be renewed{self._problem}"

    def start(self) -> None:
        """Try to acquire it now, and renew it in the background from then on."""
        with self._starting:  # calls meanwhile block until the first attempt has ended
            if self._thread is None and not self._stop.is_set():
                self.renew()
                self._thread = threading.Thread(target=self._keep_renewing, name="bucket-lease", daemon=True)
                self._thread.start()

    def _keep_renewing(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            self.renew()

    def close(self) -> None:
        """Release it, unless another process of this machine still writes."""
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        with self._mutex:
            held, last, self._until = self._until is not None, self._is_last(), None
            if held and last and not self._problem:  # a service that did not answer is not waited for again
                try:
                    found = self._get()  # another process of this machine may have renewed it last
                    if found is not None and _parse(found.data).get("owner") == self._owner.id:
                        self._put(None, found.etag)
                except Problem as problem:
                    log.info("the lease could not be released: %s", problem)

    def renew(self) -> None:
        """One attempt to acquire or renew it."""
        with self._mutex:
            previous = self._other
            try:
                self._renew()
                self._problem = ""
            except Exception as error:  # whatever it is, renewal goes on: without a lease nobody may write
                self._problem = f": {error.message if isinstance(error, Problem) else repr(error)}"
                log.warning("%s", self.why_not())
            if self._other is not None and previous is None:
                log.warning("%s", self.why_not())
            elif self._other is None and previous is not None:
                log.info("%s no longer writes to these notes: this machine may", previous)

    def _renew(self) -> None:
        for _ in range(TRIES):
            seen = self._etag
            if seen is None:
                found = self._get()
                if found is not None:
                    if not self._may_take(found):
                        return
                    seen = found.etag
            sent = self._clock()
            self._etag = None
            self._etag = self._put(self._owner, seen)
            if self._etag is not None:
                self._until, self._other, self._other_since = sent + LEASE_SECONDS, None, None
                return

    def _get(self) -> FoundObject | None:
        try:
            return self._requests.get(self._key)
        except Missing:
            return None

    def _put(self, owner: LeaseOwner | None, seen: str | None) -> str | None:
        """The new ETag, or None where another one than `seen` (None: any at all) is there."""
        holder = {} if owner is None else {"owner": owner.id, "host": owner.host}
        data = json.dumps(holder | {"renewal": secrets.token_hex(8)}).encode()  # so that each renewal changes the ETag
        mode = "create" if seen is None else self._requests.if_match(seen)
        try:
            return self._requests.put(self._key, data, mode=mode, writes=False)  # may_write depends on this very PUT
        except (ConditionFailed, Missing):
            return None

    def _may_take(self, found: FoundObject) -> bool:
        """It is free, ours, or another machine's that did not renew it for as long as it lasts."""
        fields = _parse(found.data)
        if fields.get("owner") in (None, self._owner.id):
            return True
        self._until = None
        self._other = str(fields.get("host") or "another machine")[:100]
        now = self._clock()
        if self._other_since is None or self._other_since[0] != found.etag:
            self._other_since = found.etag, now
        return now - self._other_since[1] >= LEASE_SECONDS


def _parse(data: bytes) -> dict[str, Any]:
    """Parse a lease; anything else counts as that of an unknown machine, taken over if it does not change."""
    try:
        fields = json.loads(data[:MAX_LEASE_BYTES])
        return fields if isinstance(fields, dict) else {"owner": "unknown"}
    except ValueError:
        return {"owner": "unknown"}
