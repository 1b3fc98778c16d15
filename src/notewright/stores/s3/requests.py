"""Requests to one bucket: retried within a deadline while that may help; what the service refuses becomes a Problem.

obstore's own retries are off: before a PUT is sent again, `may_write` has to be asked whether this machine still may.
"""

import logging
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from notewright.errors import Busy, Forbidden, NoSpace, Unavailable
from notewright.stores.base import not_found_error
from notewright.stores.s3.settings import LARGE_BYTES, LARGE_SECONDS, BucketSettings, make_clients

log = logging.getLogger(__name__)

MAX_PARALLEL_REQUESTS = 32  # of one plural call
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 2.0
IGNORED = "this service ignores {}, so that writers would lose each other's changes: it can only be read from"
UNKNOWN = "this service refuses If-Match with the ETag it gave: it can only be read from"
NO_RIGHT = "these credentials may not write to the bucket (s3:PutObject and s3:DeleteObject): it can only be read from"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_ROLE = re.compile(r"/latest/(api/token|meta-data)|//169\.254\.170\.2")  # where machines and containers ask for keys
_TRANSIENT = {"408", "425", "429", "500", "502", "503", "504", "509"}
_NOT_DONE = {"429", "503"}  # of those the ones that say that nothing was done
_TRANSIENT_CODES = {"RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted"}
_FULL = {"QuotaExceeded", "EntityTooLarge", "InsufficientStorage", "XMinioStorageFull", "ServiceQuotaExceededException"}
_BAD_NAME = {"KeyTooLongError", "InvalidURI", "InvalidObjectName", "XMinioInvalidObjectName"}
_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
_HINTS = {
    "NoSuchBucket": "make the bucket, or name another",
    "InvalidAccessKeyId": "look at AWS_ACCESS_KEY_ID or the profile",
    "SignatureDoesNotMatch": "look at AWS_SECRET_ACCESS_KEY or the profile",
    "ExpiredToken": "get new credentials: the session token has expired",
    "InvalidToken": "get new credentials: the session token is not valid",
    "RequestTimeTooSkewed": "set this machine's clock: it differs from the service's by more than 15 minutes",
} | dict.fromkeys(_REGION, "set the region that the bucket is in")

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class Missing(Exception):
    """The service has no such object."""


class ConditionFailed(Exception):
    """The condition of a conditional PUT did not hold; or it did, and the answer to an earlier try was lost."""


class OddKey(Exception):
    """A listing contains a key that is no path."""


class FoundObject(NamedTuple):
    data: bytes
    etag: str
    attributes: Mapping[str, Any]
    meta: Mapping[str, Any]  # its `size` and `last_modified`


@dataclass(frozen=True, slots=True)
class ServiceAbilities:
    """What `probe` found out about a service."""

    refuses_writes: str | None = None  # why nothing may be written, in words
    wants_unquoted_etags: bool = False  # in If-Match (Ceph up to 16)
    keeps_folders: bool = False  # a listing shows folders that are empty (SeaweedFS, for a while)


class Requests:
    """Sends requests. Keys are whole; `path` names the object in problems. `may_write` is called before each request
    that changes something, and `why_not` gives the reason if it is False: a lease replaces both."""

    def __init__(self, bucket: str, settings: BucketSettings) -> None:
        self.bucket, self.clients = bucket, make_clients(bucket, settings)
        self._timeout, self._retry_seconds = settings.timeout_seconds, settings.retry_seconds
        self._pool = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, thread_name_prefix="bucket")
        self.abilities = ServiceAbilities()
        self.may_write: Callable[[], bool] = lambda: True
        self.why_not: Callable[[], str] = lambda: "another machine writes to these notes now"
        self.answered = 0.0  # when the service last answered anything, monotonic
        self.closed = False

    def get(self, key: str, *, path: str = "", max_bytes: int | None = None, head: bool = False) -> FoundObject:
        """The object; with `head`, all but its bytes. Missing; Unavailable if it is larger."""

        def get() -> FoundObject:
            got = obstore.get(self.clients.read, key, options={"head": head})
            size = got.meta["size"]
            if max_bytes is not None and size > max_bytes:
                raise Unavailable(f"{path} is larger than {max_bytes} bytes")
            data = b"" if head else bytes(got.bytes())
            if not head and len(data) != size:
                raise ConnectionError("the body was cut off")
            return FoundObject(data, got.meta["e_tag"] or "", got.attributes, got.meta)

        return self.send(get, path=path)

    def put(self, key: str, data: bytes, *, path: str = "", writes: bool = True, **options: Any) -> str:
        """Write an object and return its ETag. `options` are obstore's: without a `mode`, any object is replaced."""
        large = len(data) > LARGE_BYTES
        client, timeout = (self.clients.write_large, LARGE_SECONDS) if large else (self.clients.write, None)

        def put() -> Any:
            return obstore.put(client, key, data, use_multipart=False, **options)

        return self.send(put, path=path, writes=writes, timeout=timeout)["e_tag"] or ""

    def if_match(self, etag: str) -> Any:
        """The `mode` of a PUT over an object with this ETag and no other."""
        return {"e_tag": etag.strip('"') if self.abilities.wants_unquoted_etags else etag}

    def remove(self, key: str, *, path: str = "") -> None:
        """Remove an object; one that is gone already is no error."""
        with suppress(Missing):
            self.send(lambda: obstore.delete(self.clients.write, key), path=path, writes=True)

    def send(
        self, call: Callable[[], _Answer], *, path: str = "", writes: bool = False, timeout: float | None = None
    ) -> _Answer:
        """What `call` returns. Missing, OddKey, ConditionFailed or a Problem; Unavailable with `unknown` where a write
        was sent and nobody knows what became of it."""
        deadline = time.monotonic() + max(self._retry_seconds, timeout or 0)
        pause, unknown = FIRST_PAUSE_SECONDS, False
        while True:
            if writes and not self.may_write():
                raise Busy(self.why_not(), hint="try again later", path=path)
            try:
                answer = call()
                self.answered = time.monotonic()
                return answer
            except ValueError as error:  # what obstore takes for no path
                raise not_found_error(path) from error
            except (BaseError, OSError) as error:
                if (problem := self._translate(error, path, writes)) is not None:
                    raise problem from error
                unknown = unknown or (writes and _status(error) not in _NOT_DONE)
                delay = random.uniform(pause / 2, pause)
                if time.monotonic() + delay + (timeout or self._timeout) > deadline:
                    what, details = f"the bucket {self.bucket} does not answer: {_first_line(error)}", {}
                    hint = "try again in a moment"
                    if unknown:
                        hint, details = "the write may have happened: read it before you try again", {"unknown": True}
                    raise Unavailable(what, hint=hint, path=path, **details) from error
                log.info("a request for %s is repeated: %s", path or self.bucket, _first_line(error))
            time.sleep(delay)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    def _translate(self, error: Exception, path: str, writes: bool) -> Exception | None:
        """The exception that an error of obstore means; None where the next try may succeed."""
        text, status = str(error), _status(error)
        found = _CODE.search(text)
        code = found[1] if found else ""
        if code in _TRANSIENT_CODES or status in _TRANSIENT:
            return None
        if status:
            self.answered = time.monotonic()
        if _ROLE.search(text):
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            return Unavailable(f"there are no credentials for the bucket {self.bucket}", hint=hint)
        if code in _HINTS or status == "301":
            what = f"the service refuses the bucket {self.bucket}: {code or 'it is in another region'}"
            return Unavailable(what, hint=_HINTS.get(code, _HINTS["PermanentRedirect"]), reason=code)
        if isinstance(error, FileNotFoundError):
            return Missing()
        if isinstance(error, InvalidPathError):
            return OddKey(_first_line(error))
        if isinstance(error, AlreadyExistsError | PreconditionError):
            return ConditionFailed()
        place = path or f"the bucket {self.bucket}"
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
            doing, right = ("written", "s3:PutObject and s3:DeleteObject") if writes else ("read", "s3:GetObject")
            what = f"these credentials do not let {place} be {doing}"
            return Forbidden(what, hint=f"they need {right if path else 's3:ListBucket'}", path=path)
        if status == "507" or (status and code in _FULL):
            return NoSpace(f"there is no space to write {path}", hint="nothing was changed; free some space", path=path)
        if status and (code in _BAD_NAME or (status == "400" and writes)):
            what = f"the service does not take {path}: {code or status}"
            return Forbidden(what, hint="choose another name", path=path)
        if status:
            what = f"the service refuses {place}: {status} {code}".rstrip()
            return Unavailable(what, hint="look at endpoint, region and path style", path=path)
        if "HTTP error" in text or "body" in text or isinstance(error, OSError):
            return None
        hint = "its metadata may not be ASCII: write it again with values in RFC 2047"
        return Forbidden(f"{path or self.bucket} cannot be read: {_first_line(error)}", hint=hint, path=path)

    def each(self, call: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
        """`call` on all items, several in parallel."""
        if len(items) < 2:
            return [call(item) for item in items]
        self.refuse_closed()
        return list(self._pool.map(call, items))

    def refuse_closed(self) -> None:
        if self.closed:
            raise Unavailable("the notes are closed")

    def close(self) -> None:
        self.closed = True
        self._pool.shutdown(wait=True)


def probe(requests: Requests, base: str) -> ServiceAbilities:
    """Find out whether the service honours conditional writes, without which two writers lose each other's text: write,
    write again, replace and remove one object of our own."""
    name = secrets.token_hex(8)
    key = f"{base}.notewright/{name}/probe"

    def is_refused(data: bytes, mode: Any) -> bool:
        try:
            requests.put(key, data, mode=mode)
        except (ConditionFailed, Missing):
            return True
        return False

    try:
        first = requests.put(key, b"1", mode="create")
    except Forbidden:
        return ServiceAbilities(NO_RIGHT)
    except ConditionFailed:  # the answer to a first try was lost: another key
        return probe(requests, base)
    try:
        if not is_refused(b"2", "create"):
            return ServiceAbilities(IGNORED.format("If-None-Match"))
        unquoted = is_refused(b"3", {"e_tag": first})
        if unquoted and is_refused(b"3", {"e_tag": first.strip('"')}):
            return ServiceAbilities(UNKNOWN)
        if not is_refused(b"4", {"e_tag": first.strip('"') if unquoted else first}):
            return ServiceAbilities(IGNORED.format("If-Match"))
    finally:
        requests.remove(key)
    try:
        ours = f"{base}.notewright"
        left = requests.send(lambda: obstore.list_with_delimiter(requests.clients.read, ours))["common_prefixes"]
    except OddKey:
        left = []  # a service that takes such keys has no folders to keep
    return ServiceAbilities(None, unquoted, any(name in folder for folder in left))


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found[1] if found else ""


def _first_line(error: Exception) -> str:
    """The message of an error without the address, the body of the answer and obstore's own structures."""
    line = str(error).partition("\n")[0].partition(": <?xml")[0]
    return line.rpartition(" - ")[2][:200]
