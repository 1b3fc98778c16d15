"""What a bucket lists under a prefix: all of it, one folder, or whether anything is there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import obstore

from notewright.errors import Unavailable
from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import Entry, ListedObject
from notewright.stores.s3._plain_list import list_all
from notewright.stores.s3.requests import OddKey, Requests
from notewright.stores.s3.settings import BucketSettings, split_location

PAGE_KEYS = 1_000  # that a LIST answers with
REACH_SECONDS, REACH_PATIENCE_SECONDS = 5.0, 8.0  # of the first request, and with its repetitions
Told = TypeVar("Told")


class BucketListing:
    """Under `base`, which is empty or ends with a slash; keys are told whole."""

    def __init__(self, requests: Requests, base: str) -> None:
        self._bucket, self._base, self._clients, self._send = requests.bucket, base, requests.clients, requests.send

    def level(self, folder: str) -> tuple[set[str], Sequence[Any]]:
        """The folders and the objects directly in a folder, these as obstore describes them."""
        start = f"{self._base}{folder}/" if folder else self._base

        def ask() -> Any:
            return obstore.list_with_delimiter(self._clients.read, start.rstrip("/") or None)

        try:
            found = self._send(ask, path=folder)
            folders = {key[len(self._base) :].rstrip("/") for key in found["common_prefixes"]}
            return folders, found["objects"]
        except OddKey:
            below = [one for one in self.told_under(start, list) if path_problem(one["path"][len(start) :]) is None]
        names = [one["path"][len(start) :].split("/") for one in below]
        folders = {f"{start}{name[0]}"[len(self._base) :] for name in names if len(name) > 1}
        return folders, [one for one, name in zip(below, names, strict=True) if len(name) == 1]

    def holds(self, folder: str) -> bool:
        """Anything is there whose key begins with this folder."""
        prefix = f"{self._base}{folder}".rstrip("/") or None
        try:
            return bool(self._send(lambda: next(iter(obstore.list(self._clients.read, prefix, chunk_size=1)), ())))
        except OddKey:
            return True

    def under(self, prefix: str) -> list[ListedObject]:
        """Every object under a prefix that ends with a slash."""
        return self.told_under(prefix, _listed)

    def told_under(self, prefix: str, told: Callable[[Iterable[Any]], list[Told]]) -> list[Told]:
        """What `told` makes of each page of a listing, so that nothing else of 100,000 objects is ever held."""

        def pages() -> list[Told]:
            found = obstore.list(self._clients.read, prefix.rstrip("/") or None, chunk_size=PAGE_KEYS)
            return [one for page in found for one in told(page)]

        try:
            listed: list[Told] = self._send(pages)
        except OddKey as odd:
            if self._clients.keys is None:
                what = f"a key in the bucket {self._bucket} is no path: {odd}"
                hint = "rename or remove that object, or set AWS_ACCESS_KEY_ID: with a role it cannot be passed over"
                raise Unavailable(what, hint=hint) from odd
            keys = self._clients.keys()
            listed = told(self._send(lambda: list_all(self._clients.place, keys, prefix)))
        return listed


def refuse_unreachable(location: str, settings: BucketSettings) -> None:
    """A Problem that says what to set where the bucket is not there or may not be listed: one request, before anybody
    is welcomed."""
    bucket, prefix = split_location(location)
    impatient = replace(settings, timeout_seconds=REACH_SECONDS, retry_seconds=REACH_PATIENCE_SECONDS)
    BucketListing(Requests(bucket, impatient, lambda: False), "").holds(prefix)


def _listed(metas: Iterable[Any]) -> list[ListedObject]:
    return [ListedObject(meta["path"], meta["e_tag"] or "", meta["size"], _modified_ns(meta)) for meta in metas]


def _modified_ns(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1000) * 1_000_000


def meta_entry(path: NotePath, meta: Any) -> Entry:
    return object_entry(path, meta["e_tag"] or "", meta["size"], _modified_ns(meta))


def object_entry(path: NotePath, etag: str, size: int, modified_ns: int) -> Entry:
    return Entry(path, "file", etag, size, modified_ns, None, None, modified_ns)


def folder_entry(path: NotePath) -> Entry:
    return Entry(path, "folder", "", 0, 0)
