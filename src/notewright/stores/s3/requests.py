"""Requests to one bucket: repeated while that may help, within a deadline; what the service says no by is a Problem.

obstore's own repetitions are off: before a PUT is sent again somebody has to ask whether we may still write.
"""

import logging
import random
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
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

from notewright.errors import Busy, Forbidden, NoSpace, Problem, Unavailable
from notewright.stores.base import not_found_error
from notewright.stores.s3.settings import LARGE_BYTES, LARGE_SECONDS, BucketSettings, connect

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 2.0
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_ROLE = re.compile(r"/latest/(api/token|meta-data)|//169\.254\.170\.2")  # where machines and containers ask for keys
_PASSING = {"408", "425", "429", "500", "502", "503", "504", "509"}
_NOT_DONE = {"429", "503"}  # of those the ones that say that nothing was done
_PASSING_CODES = {"RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted"}
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

_Answer = TypeVar("_Answer")


class Missing(Exception):
    """There is no such object."""


class ConditionFailed(Exception):
    """The condition of a conditional PUT did not hold; or it did, and the answer to an earlier try was lost."""


class OddKey(Exception):
    """A listing met a key that is no path."""


class FoundObject(NamedTuple):
    data: bytes
    etag: str
    attributes: Mapping[str, Any]
    meta: Mapping[str, Any]  # its `size` and `last_modified`


class Requests:
    """Sends requests; keys are whole, `path` is what a problem calls it. `may_write` is asked before each one that
    changes something."""

    def __init__(self, bucket: str, settings: BucketSettings, may_write: Callable[[], bool]) -> None:
        self.bucket, self.clients = bucket, connect(bucket, settings)
        self._timeout, self._patience, self._may_write = settings.timeout_seconds, settings.retry_seconds, may_write
        self.unquoted = False  # the service compares ETags without their quotes
        self.why_not: Callable[[], str] = lambda: "another machine writes to these notes now"
        self.answered = 0.0  # when the service last said anything, monotonic

    def get(self, key: str, *, path: str = "", max_bytes: int | None = None, head: bool = False) -> FoundObject:
        """The object, or of its `head` all but the bytes. Missing; Unavailable where it is larger."""

        def ask() -> FoundObject:
            got = obstore.get(self.clients.read, key, options={"head": head})
            size = got.meta["size"]
            if max_bytes is not None and size > max_bytes:
                raise Unavailable(f"{path} is larger than {max_bytes} bytes")
            data = b"" if head else bytes(got.bytes())
            if not head and len(data) != size:
                raise ConnectionError("the body was cut off")
            return FoundObject(data, got.meta["e_tag"] or "", got.attributes, got.meta)

        return self.send(ask, path=path)

    def put(self, key: str, data: bytes, *, path: str = "", writes: bool = True, **options: Any) -> str:
        """The new ETag. `options` are obstore's: without a `mode` it is written over whatever is there."""
        large = len(data) > LARGE_BYTES
        client, timeout = (self.clients.write_large, LARGE_SECONDS) if large else (self.clients.write, None)

        def put() -> Any:
            return obstore.put(client, key, data, use_multipart=False, **options)

        return self.send(put, path=path, writes=writes, timeout=timeout)["e_tag"] or ""

    def over(self, etag: str) -> Any:
        """The `mode` of a PUT over an object with this ETag and no other."""
        return {"e_tag": etag.strip('"') if self.unquoted else etag}

    def remove(self, key: str, *, path: str = "") -> None:
        """Gone already is success."""
        with suppress(Missing):
            self.send(lambda: obstore.delete(self.clients.write, key), path=path, writes=True)

    def send(
        self, call: Callable[[], _Answer], *, path: str = "", writes: bool = False, timeout: float | None = None
    ) -> _Answer:
        """What `call` returns. Missing, OddKey, ConditionFailed or a Problem; Unavailable with `unknown` where a write
        was sent and nobody knows what became of it."""
        until = time.monotonic() + max(self._patience, timeout or 0)
        pause, unknown = FIRST_PAUSE_SECONDS, False
        while True:
            if writes and not self._may_write():
                raise Busy(self.why_not(), hint="try again later", path=path)
            try:
                answer = call()
                self.answered = time.monotonic()
                return answer
            except ValueError as error:  # what obstore takes for no path
                raise not_found_error(path) from error
            except (BaseError, OSError) as error:
                self._refuse_unless_passing(error, path, writes)
                unknown = unknown or (writes and _status(error) not in _NOT_DONE)
                delay = random.uniform(pause / 2, pause)
                if time.monotonic() + delay + (timeout or self._timeout) > until:
                    raise self._away(error, path, unknown) from error
                log.info("a request for %s is repeated: %s", path or self.bucket, _first_line(error))
            time.sleep(delay)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _refuse_unless_passing(self, error: Exception, path: str, writes: bool) -> None:
        """Nothing where it may be otherwise in a moment; else raises what it means."""
        text = str(error)
        coded = _CODE.search(text)
        status, code = _status(error), coded[1] if coded else ""
        if code in _PASSING_CODES or status in _PASSING:
            return
        if status:
            self.answered = time.monotonic()
        if _ROLE.search(text):
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            raise Unavailable(f"there are no credentials for the bucket {self.bucket}", hint=hint) from error
        if code in _HINTS or status == "301":
            what = f"the service refuses the bucket {self.bucket}: {code or 'it is in another region'}"
            raise Unavailable(what, hint=_HINTS.get(code, _HINTS["PermanentRedirect"]), reason=code) from error
        if isinstance(error, FileNotFoundError):
            raise Missing from error
        if isinstance(error, InvalidPathError):
            raise OddKey(_first_line(error)) from error
        if isinstance(error, AlreadyExistsError | PreconditionError):
            raise ConditionFailed from error
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
            raise self._forbidden(path, writes) from error
        if status:
            raise self._rejected(status, code, path, writes) from error
        if "HTTP error" in text or "body" in text or isinstance(error, OSError):
            return
        hint = "its metadata may not be ASCII: write it again with values in RFC 2047"
        raise Forbidden(f"{path or self.bucket} cannot be read: {_first_line(error)}", hint=hint, path=path) from error

    def _forbidden(self, path: str, writes: bool) -> Problem:
        doing, right = ("written", "s3:PutObject and s3:DeleteObject") if writes else ("read", "s3:GetObject")
        right = right if path else "s3:ListBucket"
        what = f"these credentials do not let {path or f'the bucket {self.bucket}'} be {doing}"
        return Forbidden(what, hint=f"they need {right}", path=path)

    def _rejected(self, status: str, code: str, path: str, writes: bool) -> Problem:
        if status == "507" or code in _FULL:
            return NoSpace(f"there is no space to write {path}", hint="nothing was changed; free some space", path=path)
        if code in _BAD_NAME or (status == "400" and writes):
            return Forbidden(
                f"the service does not take {path}: {code or status}", hint="choose another name", path=path
            )
        what = f"the service refuses {path or f'the bucket {self.bucket}'}: {status} {code}".rstrip()
        return Unavailable(what, hint="look at endpoint, region and path style", path=path)

    def _away(self, error: Exception, path: str, unknown: bool) -> Problem:
        what = f"the bucket {self.bucket} does not answer: {_first_line(error)}"
        if unknown:
            hint = "the write may have happened: read it before you try again"
            return Unavailable(what, hint=hint, path=path, unknown=True)
        return Unavailable(what, hint="try again in a moment", path=path)


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found[1] if found else ""


def _first_line(error: Exception) -> str:
    """What went wrong without the address, the answer's body and obstore's own structures."""
    line = str(error).partition("\n")[0].partition(": <?xml")[0]
    return line.rpartition(" - ")[2][:200]
