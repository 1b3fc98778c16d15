"""Objects of a bucket, written, copied and removed without conditions (`stores/objects.py`)."""

import mimetypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.error import HTTPError

import obstore

from notewright.errors import NotFound
from notewright.stores.objects import Answer, Item, ListedObject, Objects
from notewright.stores.s3._plain_list import copy_object
from notewright.stores.s3.requests import Missing, OddKey, Requests
from notewright.stores.s3.settings import LARGE_BYTES, LARGE_SECONDS, Clients


class _Each(Protocol):
    def __call__(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]: ...


class S3Objects:
    """`under` lists every object under a whole prefix; `each` runs several requests."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        clients: Clients,
        requests: Requests,
        under: Callable[[str], Sequence[ListedObject]],
        each: _Each,
        refuses_writes: str | None,
    ) -> None:
        self.bucket, self.prefix, self.service = bucket, prefix, clients.where
        self._clients, self._requests, self._under = clients, requests, under
        self._base = f"{prefix}/" if prefix else ""
        self.each, self.refuses_writes = each, refuses_writes

    @property
    def location(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def below(self, folder: str = "") -> list[ListedObject]:
        found = self._under(f"{self._base}{folder}/" if folder else self._base)
        return [one._replace(key=one.key[len(self._base) :]) for one in found]

    def folders(self) -> list[str]:
        def ask() -> Any:
            return obstore.list_with_delimiter(self._clients.read, self.prefix or None)["common_prefixes"]

        try:
            found = self._requests.send(ask)
        except OddKey:
            found = [each.key.partition("/")[0] for each in self.below() if "/" in each.key]
            return sorted(set(found))
        return sorted(key[len(self._base) :].rstrip("/") for key in found)

    def exists(self, key: str) -> bool:
        try:
            self._requests.send(lambda: obstore.head(self._clients.read, self._base + key), path=key)
        except Missing:
            return False
        return True

    def get(self, key: str) -> bytes:
        def ask() -> bytes:
            got = obstore.get(self._clients.read, self._base + key)
            data = bytes(got.bytes())
            if len(data) != got.meta["size"]:
                raise ConnectionError("the body was cut off")
            return data

        try:
            return self._requests.send(ask, path=key)
        except (Missing, ValueError):
            raise NotFound(f"there is no {key}", what="file", path=key) from None

    def put(self, key: str, data: bytes) -> str:
        large = len(data) > LARGE_BYTES
        client, timeout = (self._clients.write_large, LARGE_SECONDS) if large else (self._clients.write, None)
        kind = "text/markdown; charset=utf-8" if key.endswith(".md") else mimetypes.guess_type(key)[0]
        told: Any = {"Content-Type": kind} if kind else {}

        def send() -> Any:
            return obstore.put(client, self._base + key, data, attributes=told, use_multipart=False)

        return str(self._requests.send(send, path=key, writes=True, timeout=timeout)["e_tag"] or "")

    def copy(self, source: Objects, key: str, to: str) -> bool:
        if source.service != self.service:
            return False
        old = f"{source.prefix}/{key}" if source.prefix else key
        try:
            if source.bucket == self.bucket:
                self._requests.send(
                    lambda: obstore.copy(self._clients.write_large, old, self._base + to),
                    path=to,
                    writes=True,
                    timeout=LARGE_SECONDS,
                )
                return True
            return self._copy_between(source.bucket, old, to)
        except Missing:
            return False

    def _copy_between(self, bucket: str, old: str, to: str) -> bool:
        """From another bucket, which obstore cannot. A service that refuses is read from and written to instead."""
        if self._clients.keys is None:
            return False
        place, keys = self._clients.place, self._clients.keys()

        def send() -> bool:
            try:
                return copy_object(place, keys, f"{bucket}/{old}", self._base + to)
            except HTTPError as error:
                if error.code < 500 and error.code != 429:
                    return False
                raise

        return self._requests.send(send, path=to, writes=True)

    def remove(self, key: str) -> None:
        try:
            self._requests.send(lambda: obstore.delete(self._clients.write, self._base + key), path=key, writes=True)
        except Missing:
            pass
