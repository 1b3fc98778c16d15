"""A bucket that holds backups, laid out as a folder of them is: `DATE/path`, whole by itself, with a manifest of ours.

What did not change is copied inside the service from the day before; what is there with the right ETag is not written
again. A day counts when its manifest is there, which comes last; until then a mark says that it is ours and unfinished.
The next backup of that day goes on with what is there, one of a later day removes it. A second backup of a day writes
over nothing of the first: what changed goes beside, its manifest says where that is, and only then is it copied to its
place.
"""

import errno
import hashlib
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from notewright.engine.changes.batch_write import UnreadableFile
from notewright.engine.transfer.manifest import (
    AT_ONCE,
    NAME,
    BackedUpFile,
    BackupPlace,
    Destination,
    Manifest,
    NewBackup,
    dump_manifest,
    parse_manifest,
)
from notewright.errors import Busy, Exists, Forbidden, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, Store, version_of
from notewright.stores.objects import ListedObject, Objects

UNFINISHED = ".notewright-backup.unfinished"
BESIDE = ".notewright-beside"
MAX_KEY_BYTES = 1024
_OURS = ".notewright/"
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def bucket_overlap(place: Store, store: Store) -> str | None:
    """`inside` where a prefix lies among these notes, `around` where they lie in it."""
    one, other = place.objects, store.objects
    if one is None or other is None or (one.service, one.bucket) != (other.service, other.bucket):
        return None
    ours, theirs = (f"{objects.prefix}/" if objects.prefix else "" for objects in (one, other))
    return "inside" if ours.startswith(theirs) else "around" if theirs.startswith(ours) else None


class _Prefix:
    """A prefix to write to, behind a store that is closed with it."""

    at_once = AT_ONCE
    instead = "choose another place"  # where nothing can be written to it

    def __init__(self, store: Store) -> None:
        assert store.objects is not None
        self._store, self.objects = store, store.objects

    @property
    def name(self) -> str:
        return self.objects.location

    def overlap(self, store: Store) -> str | None:
        return bucket_overlap(self._store, store)

    def make(self) -> None:
        if self.objects.refuses_writes:
            raise Forbidden(f"{self.name}: {self.objects.refuses_writes}", hint=self.instead)

    def close(self) -> None:
        self._store.close()


class BackupBucket(_Prefix, BackupPlace):
    """A prefix of dated backups."""

    instead = "choose another place for backups"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._mutex = threading.Lock()
        self._listed: dict[str, dict[str, ListedObject]] = {}  # what was found in a day, by place

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Among the processes of this machine; other machines are kept out by the store's lease."""
        with self._held(self._store.lock(timeout=0.1)):
            self._listed.clear()
            yield

    def still(self) -> AbstractContextManager[None]:
        """A lock on a note excludes only one on everything."""
        return self._held(self._store.lock(NotePath(f"reader-{secrets.token_hex(4)}"), timeout=0.1))

    @contextmanager
    def _held(self, lock: AbstractContextManager[None]) -> Iterator[None]:
        try:
            lock.__enter__()
        except Busy:
            hint = "try again when it is done"
            raise Busy(f"somebody is using the backups in {self.name} just now", hint=hint) from None
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def dates(self) -> list[str]:
        found = self._days()
        whole = self.objects.each(lambda date: self.objects.exists(f"{date}/{NAME}"), found)
        return [date for date, is_whole in zip(found, whole, strict=True) if is_whole]

    def _days(self) -> list[str]:
        return [name for name in self.objects.folders() if _DATE.fullmatch(name)]

    def manifest(self, date: str) -> Manifest:
        return parse_manifest(self.objects.get(f"{date}/{NAME}"), date)

    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int | None]:
        try:
            data = self.objects.get(f"{date}/{_where(place, kept)}")
        except NotFound:
            raise UnreadableFile("damaged", f"{place} is not in the backup of {date} any more") from None
        if version_of(data) != kept.sha256:
            raise UnreadableFile("damaged", "its bytes in the backup are not those that were backed up")
        return data, None

    def listed(self, date: str) -> dict[str, ListedObject]:
        """What is in a day, asked for once."""
        with self._mutex:
            if date not in self._listed:
                self._listed[date] = self.list_now(date) if date else {}
            return self._listed[date]

    def list_now(self, date: str) -> dict[str, ListedObject]:
        return {one.key[len(date) + 1 :]: one for one in self.objects.below(date)}

    def begin(self, date: str) -> "NewBucketDay":
        if NAME in self.listed(date):
            self.settle(self.manifest(date))
            with self._mutex:
                self._listed.pop(date, None)
        return NewBucketDay(self, date)

    def settle(self, manifest: Manifest) -> None:
        """Copy to its place what lies beside: until then the manifest says where it is."""
        date = manifest.date
        places = {part.place(path): kept for part in manifest.parts for path, kept in part.files.items() if kept.beside}
        if not places:
            return

        def copy(place: str) -> None:
            if not self.objects.copy(self.objects, f"{date}/{BESIDE}/{place}", f"{date}/{place}"):
                raise Unavailable(f"the backup of {place} is not there", hint="remove that day")

        self.objects.each(copy, list(places))
        moved = [
            replace(part, files={path: replace(kept, beside=False) for path, kept in part.files.items()})
            for part in manifest.parts
        ]
        self.write(replace(manifest, parts=tuple(moved)), {place: kept.etag for place, kept in places.items()})

    def write(self, manifest: Manifest, etags: Mapping[str, str]) -> Manifest:
        """Write the manifest when every object was found, with the ETag it must have where that is known."""
        there = self.list_now(manifest.date)
        parts = []
        for part in manifest.parts:
            files = {}
            for path, kept in part.files.items():
                found = there.get(_where(part.place(path), kept))
                if found is None or found.size != kept.size:
                    raise Unavailable(f"the backup of {path} is not there", hint="run it again")
                expected = etags.get(part.place(path), kept.etag)
                if found.etag.strip('"') != expected.strip('"'):  # not what was asked for: its bytes tell
                    try:
                        self.read(manifest.date, part.place(path), kept)
                    except UnreadableFile as damaged:
                        what = f"the backup of {path} went wrong: {damaged.words}"
                        raise Unavailable(what, hint="run it again") from None
                files[path] = replace(kept, etag=found.etag)
            parts.append(replace(part, files=files))
        manifest = replace(manifest, parts=tuple(parts))
        self.objects.put(f"{manifest.date}/{NAME}", dump_manifest(manifest))
        return manifest

    def remove(self, date: str) -> None:
        self.manifest(date)
        self.objects.put(f"{date}/{UNFINISHED}", b"")
        self.objects.remove(f"{date}/{NAME}")
        self._remove_rest(date)

    def remove_unfinished(self, today: str) -> None:
        """What a backup of another day, or a removal, has left."""
        whole = {today, *self.dates()}
        for date in self._days():
            if date not in whole and self.objects.exists(f"{date}/{UNFINISHED}"):
                self._remove_rest(date)

    def _remove_rest(self, date: str) -> None:
        """The mark goes last: what is left is known for ours until then."""
        keys = [one.key for one in self.objects.below(date)]
        mark = f"{date}/{UNFINISHED}"
        self.objects.each(self.objects.remove, [key for key in keys if key != mark])
        self.objects.remove(mark)
        self._listed.pop(date, None)


def _where(place: str, kept: BackedUpFile) -> str:
    return f"{BESIDE}/{place}" if kept.beside else place


class NewBucketDay(NewBackup):
    """A day being made in its place. One that has no manifest is marked before the first object of it changes."""

    def __init__(self, backups: BackupBucket, date: str) -> None:
        self._backups, self._objects, self._date = backups, backups.objects, date
        self._there = dict(backups.listed(date))
        if self._there and not self._there.keys() & {NAME, UNFINISHED}:
            hint = "remove it, or choose another place for backups"
            raise Exists(f"{backups.name}/{date} is in the way and is no backup of ours", hint=hint, path=date)
        self._etags: dict[str, str] = {}  # what is to be there
        self._beside: set[str] = set()  # what must not be written over yet
        self._begun = False
        self._mutex = threading.Lock()

    def _begin(self) -> None:
        with self._mutex:
            if not self._begun:
                if NAME not in self._there:
                    self._objects.put(self._key(UNFINISHED), b"")
                self._begun = True

    def _key(self, place: str) -> str:
        return f"{self._date}/{place}"

    def _new_key(self, place: str) -> str:
        """Where a file is written: not over one of a backup that is whole."""
        self._begin()
        if NAME not in self._there or place not in self._there:
            return self._key(place)
        self._beside.add(place)
        return self._key(f"{BESIDE}/{place}")

    def _is_there(self, place: str, etag: str) -> bool:
        found = self._there.get(place)
        return found is not None and found.etag.strip('"') == etag.strip('"') != ""

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        """A new file, unless its very bytes are there: an ETag that is an MD5 says so."""
        if len(f"{self._objects.prefix}/{self._key(place)}".encode()) > MAX_KEY_BYTES:
            raise OSError(errno.ENAMETOOLONG, "its name is too long for a bucket")
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not self._is_there(place, etag):
            etag = self._objects.put(self._new_key(place), data)
        self._etags[place] = etag

    def link(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        old = _where(old, kept)
        found = self._backups.listed(date).get(old)
        if found is None or found.size != kept.size or found.etag != kept.etag:
            return False
        return self._copy(self._objects, f"{date}/{old}", place, found.etag)

    def _copy(self, source: Objects, key: str, place: str, etag: str) -> bool:
        if not self._is_there(place, etag) and not self._objects.copy(source, key, self._new_key(place)):
            return False
        self._etags[place] = etag
        return True

    def carry(self, date: str, old: str, place: str, kept: BackedUpFile) -> bool:
        if self.link(date, old, place, kept):
            return True
        try:
            data, _ = self._backups.read(date, old, kept)
        except UnreadableFile:
            return False
        self.put(place, data, modified_ns=kept.modified_ns)
        return True

    def copies_from(self, store: Store) -> bool:
        return store.objects is not None and store.objects.service == self._objects.service

    def copy_from(self, store: Store, entry: Entry, place: str) -> bool:
        return store.objects is not None and self._copy(store.objects, entry.path, place, entry.stamp)

    def drop(self, place: str) -> None:
        self._etags.pop(place, None)
        self._beside.discard(place)

    def finish(self, manifest: Manifest) -> None:
        """Look at what is there, say that it is whole, and remove what is no part of it: perhaps of the one before."""
        parts = tuple(
            replace(part, files={path: self._placed(part.place(path), kept) for path, kept in part.files.items()})
            for part in manifest.parts
        )
        self._backups.settle(self._backups.write(replace(manifest, parts=parts), self._etags))
        own = {*self._etags, NAME, UNFINISHED}
        extra = [place for place in self._backups.list_now(self._date) if place not in own]
        self._objects.each(lambda place: self._objects.remove(self._key(place)), extra)
        if self._begun or UNFINISHED in self._there:
            self._objects.remove(self._key(UNFINISHED))
        self._backups.remove_unfinished(self._date)

    def _placed(self, place: str, kept: BackedUpFile) -> BackedUpFile:
        return replace(kept, etag=self._etags[place], beside=place in self._beside)


class NewBucket(_Prefix, Destination):
    """An empty prefix: objects with all that the store says of notes. A PUT that was answered is durable."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._op = f"copy-{secrets.token_hex(8)}"

    def make(self) -> None:
        super().make()
        if there := next((one.key for one in self.objects.below() if not one.key.startswith(_OURS)), None):
            raise Exists(f"{self.name} is not empty: {there}", hint="name an empty prefix", path=there)

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        path = NotePath(place)
        if len(self._store.full_path(path).encode()) > MAX_KEY_BYTES:
            raise UnreadableFile("bad_name", "its name is too long for a bucket")
        try:
            self._store.write(path, data, seen=None, op=self._op)
        except Exists as problem:
            raise UnreadableFile("exists", problem.message) from None
