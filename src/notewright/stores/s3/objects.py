"""Objects of a bucket, written, copied and removed without conditions (`stores.base.Objects`)."""

import mimetypes
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar
from urllib.error import HTTPError

import obstore

from notewright.stores.base import ListedObject, Objects, not_found_error
from notewright.stores.s3._plain_list import copy_object
from notewright.stores.s3.listing import BucketListing
from notewright.stores.s3.requests import Missing, Requests
from notewright.stores.s3.settings import LARGE_SECONDS

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Each(Protocol):
    def __call__(self, call: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]: ...


class S3Objects:
    """`each` runs several requests; `may_write` says whether this machine is the one that may."""

    def __init__(
        self, prefix: str, requests: Requests, each: _Each, refuses_writes: str | None, may_write: Callable[[], bool]
    ) -> None:
        self.bucket, self.prefix, self.service = requests.bucket, prefix, requests.clients.where
        self._clients, self._requests = requests.clients, requests
        self._base = f"{prefix}/" if prefix else ""
        self._listing = BucketListing(requests, self._base)
        self.each, self.refuses_writes, self._may_write = each, refuses_writes, may_write

    @property
    def location(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def may_write(self) -> bool:
        return not self.refuses_writes and self._may_write()

    def at(self, folder: str) -> "S3Objects":
        return S3Objects(self._base + folder, self._requests, self.each, self.refuses_writes, self._may_write)

    def below(self, folder: str = "") -> list[ListedObject]:
        found = self._listing.under(f"{self._base}{folder}/" if folder else self._base)
        return [one._replace(key=one.key[len(self._base) :]) for one in found]

    def folders(self) -> list[str]:
        return sorted(self._listing.level("")[0])

    def exists(self, key: str) -> bool:
        try:
            self._requests.get(self._base + key, path=key, head=True)
        except Missing:
            return False
        return True

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        try:
            return self._requests.get(self._base + key, path=key, max_bytes=max_bytes).data
        except Missing:
            raise not_found_error(key) from None

    def put(self, key: str, data: bytes) -> str:
        kind = "text/markdown; charset=utf-8" if key.endswith(".md") else mimetypes.guess_type(key)[0]
        told = {"Content-Type": kind} if kind else {}
        return self._requests.put(self._base + key, data, path=key, attributes=told)

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
        self._requests.remove(self._base + key, path=key)
