"""Objects of our own under `.notewright/`: no notes, without conditions, and nothing is lost with them."""

from collections.abc import Callable
from typing import Any

import obstore

from notewright.errors import Unavailable
from notewright.stores.s3.requests import Missing, OddKey, Requests
from notewright.stores.s3.settings import LARGE_BYTES, LARGE_SECONDS, Clients


class BucketOwnFiles:
    """Implements `OwnFiles` in one folder of the bucket, `base`, which ends with a slash."""

    def __init__(self, clients: Clients, requests: Requests, base: str, may_write: Callable[[], bool]) -> None:
        self._clients, self._requests, self._base = clients, requests, base
        self.may_write = may_write

    def get(self, name: str, *, max_bytes: int) -> bytes | None:
        def get() -> bytes:
            got = obstore.get(self._clients.read, self._base + name)
            if got.meta["size"] > max_bytes:
                raise Unavailable(f"{name} is larger than {max_bytes} bytes")
            data = bytes(got.bytes())
            if len(data) != got.meta["size"]:
                raise ConnectionError("the body was cut off")
            return data

        try:
            return self._requests.send(get, path=name)
        except Missing:
            return None
        except ValueError as error:  # what obstore takes for no path
            raise Unavailable(f"{name!r} is no name") from error

    def put(self, name: str, data: bytes) -> None:
        large = len(data) > LARGE_BYTES
        client, timeout = (self._clients.write_large, LARGE_SECONDS) if large else (self._clients.write, None)
        self._requests.send(
            lambda: obstore.put(client, self._base + name, data, use_multipart=False),
            path=name, writes=True, timeout=timeout,
        )  # fmt: skip

    def remove(self, name: str) -> None:
        try:
            self._requests.send(lambda: obstore.delete(self._clients.write, self._base + name), path=name, writes=True)
        except Missing:
            pass

    def names(self) -> list[str]:
        def pages() -> list[Any]:
            return [meta for page in obstore.list(self._clients.read, self._base.rstrip("/")) for meta in page]

        try:
            return [meta["path"].removeprefix(self._base) for meta in self._requests.send(pages)]
        except OddKey:
            return []
