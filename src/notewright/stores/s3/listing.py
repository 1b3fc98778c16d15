"""What a bucket lists under a prefix: all of it, one folder, or whether anything is there."""

from collections.abc import Callable, Sequence
from typing import Any

import obstore

from notewright.errors import Unavailable
from notewright.notes.path import NotePath, path_problem
from notewright.stores.base import Entry
from notewright.stores.s3.plain_list import list_all
from notewright.stores.s3.requests import OddKey
from notewright.stores.s3.settings import Clients

PAGE_KEYS = 1_000  # that a LIST answers with


class BucketListing:
    """Under `base`, which is empty or ends with a slash. `send` sends a request."""

    def __init__(self, bucket: str, base: str, clients: Clients, send: Callable[..., Any]) -> None:
        self._bucket, self._base, self._clients, self._send = bucket, base, clients, send

    def everything(self) -> Sequence[Any]:
        """What a listing says of every object."""
        return self._under(self._base)

    def level(self, folder: str) -> tuple[set[str], Sequence[Any]]:
        """The folders and the objects directly in a folder."""
        start = f"{self._base}{folder}/" if folder else self._base

        def ask() -> Any:
            return obstore.list_with_delimiter(self._clients.read, start.rstrip("/") or None)

        try:
            found = self._send(ask, path=folder)
            return {key[len(self._base) :].rstrip("/") for key in found["common_prefixes"]}, found["objects"]
        except OddKey:
            metas = [meta for meta in self._under(start) if path_problem(meta["path"][len(start) :]) is None]
        names = [meta["path"][len(start) :].split("/") for meta in metas]
        folders = {f"{start}{name[0]}"[len(self._base) :] for name in names if len(name) > 1}
        return folders, [meta for meta, name in zip(metas, names, strict=True) if len(name) == 1]

    def holds(self, folder: str) -> bool:
        """Anything is there whose key begins with this folder."""
        prefix = f"{self._base}{folder}".rstrip("/") or None
        try:
            return bool(self._send(lambda: next(iter(obstore.list(self._clients.read, prefix, chunk_size=1)), ())))
        except OddKey:
            return True

    def _under(self, prefix: str) -> Sequence[Any]:
        """Every object under a prefix that ends with a slash."""

        def pages() -> list[Any]:
            found = obstore.list(self._clients.read, prefix.rstrip("/") or None, chunk_size=PAGE_KEYS)
            return [meta for page in found for meta in page]

        try:
            metas: Sequence[Any] = self._send(pages)
        except OddKey as odd:
            if self._clients.keys is None:
                what = f"a key in the bucket {self._bucket} is no path: {odd}"
                hint = "rename or remove that object, or set AWS_ACCESS_KEY_ID: with a role it cannot be passed over"
                raise Unavailable(what, hint=hint) from odd
            keys = self._clients.keys()
            metas = self._send(lambda: list_all(self._clients.place, keys, prefix))
        return metas


def object_entry(path: NotePath, etag: str, size: int, modified_ns: int) -> Entry:
    return Entry(path, "file", etag, size, modified_ns, None, None, modified_ns)


def listed_entry(path: NotePath, meta: Any) -> Entry:
    modified_ns = int(meta["last_modified"].timestamp() * 1000) * 1_000_000
    return object_entry(path, meta["e_tag"] or "", meta["size"], modified_ns)


def folder_entry(path: NotePath) -> Entry:
    return Entry(path, "folder", "", 0, 0)
