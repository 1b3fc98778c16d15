"""What a bucket lists under a prefix: all of it, one folder, or whether anything is there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import obstore

from notewright.errors import Unavailable
from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import Entry
from notewright.stores.s3._signed_requests import list_all
from notewright.stores.s3.requests import OddKey, Requests
from notewright.stores.s3.settings import BucketSettings, split_location

PAGE_KEYS = 1_000  # that a LIST answers with
REACH_SECONDS, REACH_RETRY_SECONDS = 5.0, 8.0  # of the first request, and with its retries
_Converted = TypeVar("_Converted")


class BucketListing:
    """Under `base`, which is empty or ends with a slash; keys are whole."""

    def __init__(self, requests: Requests, base: str) -> None:
        self._bucket, self._base, self._clients, self._send = requests.bucket, base, requests.clients, requests.send

    def level(self, folder: str) -> tuple[set[str], Sequence[Any]]:
        """The folders and the objects directly in a folder, these as obstore describes them."""
        start = f"{self._base}{folder}/" if folder else self._base
        try:
            found = self._send(
                lambda: obstore.list_with_delimiter(self._clients.read, start.rstrip("/") or None), path=folder
            )
            return {key[len(self._base) :].rstrip("/") for key in found["common_prefixes"]}, found["objects"]
        except OddKey:
            below = [meta for meta in self.collect(start, list) if path_problem(meta["path"][len(start) :]) is None]
        names = [meta["path"][len(start) :].split("/") for meta in below]
        folders = {f"{start}{name[0]}"[len(self._base) :] for name in names if len(name) > 1}
        return folders, [meta for meta, name in zip(below, names, strict=True) if len(name) == 1]

    def holds(self, folder: str) -> bool:
        """Anything is there whose key begins with this folder."""
        prefix = f"{self._base}{folder}".rstrip("/") or None
        try:
            return bool(self._send(lambda: next(iter(obstore.list(self._clients.read, prefix, chunk_size=1)), ())))
        except OddKey:
            return True

    def collect(self, prefix: str, convert: Callable[[Iterable[Any]], list[_Converted]]) -> list[_Converted]:
        """Everything under a prefix that ends with a slash: what `convert` makes of each page of the listing, so that
        obstore's descriptions of 100,000 objects are never held at once."""

        def read_pages() -> list[_Converted]:
            found = obstore.list(self._clients.read, prefix.rstrip("/") or None, chunk_size=PAGE_KEYS)
            return [item for page in found for item in convert(page)]

        try:
            return self._send(read_pages)
        except OddKey as odd:
            if self._clients.keys is None:
                what = f"a key in the bucket {self._bucket} is no path: {odd}"
                hint = "rename or remove that object, or set AWS_ACCESS_KEY_ID: with a role it cannot be passed over"
                raise Unavailable(what, hint=hint) from odd
            keys = self._clients.keys()
            return convert(self._send(lambda: list_all(self._clients.address, keys, prefix)))


def refuse_unreachable(location: str, settings: BucketSettings) -> None:
    """A Problem that says what to set where the bucket is not there or may not be listed: one request, before the
    server starts."""
    bucket, prefix = split_location(location)
    impatient = replace(settings, timeout_seconds=REACH_SECONDS, retry_seconds=REACH_RETRY_SECONDS)
    BucketListing(Requests(bucket, impatient), "").holds(prefix)


def modified_ns(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1000) * 1_000_000


def meta_entry(path: NotePath, meta: Any) -> Entry:
    return object_entry(path, meta["e_tag"] or "", meta["size"], modified_ns(meta))


def object_entry(path: NotePath, etag: str, size: int, modified_ns: int) -> Entry:
    return Entry(path, "file", etag, size, modified_ns, None, None, modified_ns)


def folder_entry(path: NotePath) -> Entry:
    return Entry(path, "folder", "", 0, 0)
