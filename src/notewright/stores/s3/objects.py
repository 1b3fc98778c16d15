"""A prefix of a bucket as plain objects: listed, and written, copied and removed without conditions."""

import mimetypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.error import HTTPError

import obstore

from notewright.errors import Unavailable
from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import Entry, ListedObject, Objects, not_found_error
from notewright.stores.s3._signed_requests import copy_object, list_all
from notewright.stores.s3.requests import Missing, OddKey, Requests
from notewright.stores.s3.settings import LARGE_SECONDS, BucketSettings, split_location

PAGE_KEYS = 1_000  # that a LIST answers with
REACH_SECONDS, REACH_RETRY_SECONDS = 5.0, 8.0  # of the first request, and with its retries
_Answer = TypeVar("_Answer")


class S3Objects:
    """Implements `Objects`, and the listings of the store."""

    def __init__(self, prefix: str, requests: Requests) -> None:
        self.bucket, self.prefix, self.service = requests.bucket, prefix, requests.clients.service
        self._clients, self._requests = requests.clients, requests
        self.base = f"{prefix}/" if prefix else ""

    @property
    def refuses_writes(self) -> str | None:
        return self._requests.abilities.refuses_writes

    @property
    def location(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def may_write(self) -> bool:
        return not self.refuses_writes and self._requests.may_write()

    def at(self, folder: str) -> "S3Objects":
        return S3Objects(self.base + folder, self._requests)

    def level(self, folder: str) -> tuple[set[str], Sequence[Any]]:
        """The folders and the objects directly in a folder, these as obstore describes them."""
        start = f"{self.base}{folder}/" if folder else self.base
        try:
            found = self._requests.send(
                lambda: obstore.list_with_delimiter(self._clients.read, start.rstrip("/") or None), path=folder
            )
            return {key[len(self.base) :].rstrip("/") for key in found["common_prefixes"]}, found["objects"]
        except OddKey:
            below = [meta for meta in self.collect(start, list) if path_problem(meta["path"][len(start) :]) is None]
        names = [meta["path"][len(start) :].split("/") for meta in below]
        folders = {f"{start}{name[0]}"[len(self.base) :] for name in names if len(name) > 1}
        return folders, [meta for meta, name in zip(below, names, strict=True) if len(name) == 1]

    def holds(self, folder: str) -> bool:
        """Whether any key begins with this folder."""
        prefix, client = f"{self.base}{folder}".rstrip("/") or None, self._clients.read
        try:
            return bool(self._requests.send(lambda: next(iter(obstore.list(client, prefix, chunk_size=1)), ())))
        except OddKey:
            return True

    def collect(self, prefix: str, convert: Callable[[Iterable[Any]], list[_Answer]]) -> list[_Answer]:
        """Everything under a prefix that ends with a slash: what `convert` makes of each page of the listing, so that
        obstore's descriptions of 100,000 objects are never held at once."""

        def read_pages() -> list[_Answer]:
            found = obstore.list(self._clients.read, prefix.rstrip("/") or None, chunk_size=PAGE_KEYS)
            return [item for page in found for item in convert(page)]

        try:
            return self._requests.send(read_pages)
        except OddKey as odd:
            if self._clients.keys is None:
                what = f"a key in the bucket {self.bucket} is no path: {odd}"
                hint = "rename or remove that object, or set AWS_ACCESS_KEY_ID: with a role it cannot be passed over"
                raise Unavailable(what, hint=hint) from odd
            keys = self._clients.keys()
            return convert(self._requests.send(lambda: list_all(self._clients.address, keys, prefix)))

    def below(self, folder: str = "") -> list[ListedObject]:
        base = len(self.base)

        def convert(page: Iterable[Any]) -> list[ListedObject]:
            return [ListedObject(m["path"][base:], m["e_tag"] or "", m["size"], modified_ns(m)) for m in page]

        return self.collect(f"{self.base}{folder}/" if folder else self.base, convert)

    def folders(self) -> list[str]:
        return sorted(self.level("")[0])

    def exists(self, key: str) -> bool:
        try:
            self._requests.get(self.base + key, path=key, head=True)
        except Missing:
            return False
        return True

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        try:
            return self._requests.get(self.base + key, path=key, max_bytes=max_bytes).data
        except Missing:
            raise not_found_error(key) from None

    def put(self, key: str, data: bytes) -> str:
        kind = "text/markdown; charset=utf-8" if key.endswith(".md") else mimetypes.guess_type(key)[0]
        attributes = {"Content-Type": kind} if kind else {}
        return self._requests.put(self.base + key, data, path=key, attributes=attributes)

    def copy(self, source: Objects, key: str, to: str) -> bool:
        old, new = f"{source.prefix}/{key}" if source.prefix else key, self.base + to
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
        self._requests.remove(self.base + key, path=key)


def refuse_unreachable_bucket(location: str, settings: BucketSettings) -> None:
    """A Problem that says what to set where the bucket is not there or may not be listed: one request, before the
    server starts."""
    bucket, prefix = split_location(location)
    impatient = replace(settings, timeout_seconds=REACH_SECONDS, retry_seconds=REACH_RETRY_SECONDS)
    S3Objects("", Requests(bucket, impatient)).holds(prefix)


def modified_ns(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1000) * 1_000_000


def meta_entry(path: NotePath, meta: Any) -> Entry:
    return object_entry(path, meta["e_tag"] or "", meta["size"], modified_ns(meta))


def object_entry(path: NotePath, etag: str, size: int, modified_ns: int) -> Entry:
    return Entry(path, "file", etag, size, modified_ns, None, None, modified_ns)


def folder_entry(path: NotePath) -> Entry:
    return Entry(path, "folder", "", 0, 0)
