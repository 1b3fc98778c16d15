"""Objects of a bucket, written, copied and removed without conditions (`stores.base.Objects`)."""

import mimetypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from urllib.error import HTTPError

import obstore

from notewright.stores.base import ListedObject, Objects, not_found_error
from notewright.stores.s3._signed_requests import copy_object
from notewright.stores.s3.listing import BucketListing, modified_ns
from notewright.stores.s3.requests import Missing, Requests
from notewright.stores.s3.settings import LARGE_SECONDS

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class S3Objects:
    def __init__(self, prefix: str, requests: Requests) -> None:
        self.bucket, self.prefix, self.service = requests.bucket, prefix, requests.clients.service
        self._clients, self._requests = requests.clients, requests
        self._base = f"{prefix}/" if prefix else ""
        self._listing = BucketListing(requests, self._base)

    @property
    def refuses_writes(self) -> str | None:
        return self._requests.abilities.refuses_writes

    @property
    def location(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def may_write(self) -> bool:
        return not self.refuses_writes and self._requests.may_write()

    def at(self, folder: str) -> "S3Objects":
        return S3Objects(self._base + folder, self._requests)

    def below(self, folder: str = "") -> list[ListedObject]:
        base = len(self._base)

        def convert(page: Iterable[Any]) -> list[ListedObject]:
            return [ListedObject(m["path"][base:], m["e_tag"] or "", m["size"], modified_ns(m)) for m in page]

        return self._listing.collect(f"{self._base}{folder}/" if folder else self._base, convert)

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
        attributes = {"Content-Type": kind} if kind else {}
        return self._requests.put(self._base + key, data, path=key, attributes=attributes)

    def copy(self, source: Objects, key: str, to: str) -> bool:
        old, new = f"{source.prefix}/{key}" if source.prefix else key, self._base + to
        if source.service != self.service:
            return False
        try:
            if source.bucket == self.bucket:
                client, seconds = self._clients.write_large, LARGE_SECONDS
                self._requests.send(lambda: obstore.copy(client, old, new), path=to, writes=True, timeout=seconds)
                return True
            if self._clients.keys is None:
                return False
            address, keys = self._clients.address, self._clients.keys()

            def copy_between_buckets() -> bool:  # obstore cannot
                try:
                    return copy_object(address, keys, f"{source.bucket}/{old}", new)
                except HTTPError as error:
                    if error.code < 500 and error.code != 429:
                        return False  # a service that refuses is read from and written to instead
                    raise

            return self._requests.send(copy_between_buckets, path=to, writes=True)
        except Missing:
            return False

    def remove(self, key: str) -> None:
        self._requests.remove(self._base + key, path=key)

    def each(self, call: Callable[[_Item], _Answer], items: Sequence[_Item]) -> list[_Answer]:
        return self._requests.each(call, items)
