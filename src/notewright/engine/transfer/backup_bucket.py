"""A bucket that holds backups, laid out as a folder of them is: `DATE/path`, whole by itself, with a manifest of ours.

What did not change is copied inside the service from the day before; what is there with the right ETag is not written
again. A day counts when its manifest is there, which comes last; until then a mark says that it is ours and unfinished.
The next backup of that day goes on with what is there, one of a later day removes it. A second backup of a day writes
over nothing of the first: what changed goes beside, its manifest says where that is, and only then is it copied to its
place.
"""

import errno
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from notewright.engine.changes.batch_write import UnreadableFile
from notewright.engine.transfer.manifest import (
    AT_ONCE,
    DATE,
    NAME,
    BackedUpFile,
    BackupPlace,
    Manifest,
    NewBackup,
    dump_manifest,
    parse_manifest,
)
from notewright.errors import Busy, Exists, Forbidden, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, ListedObject, Objects, Store, version_of

UNFINISHED = ".notewright-backup.unfinished"
BESIDE = ".notewright-beside"
MAX_KEY_BYTES = 1024


class BackupBucket(BackupPlace):
    """A prefix of dated backups, behind a store that is closed with it."""

    at_once = AT_ONCE
    objects: Objects

    def __init__(self, store: Store) -> None:
        assert store.objects is not None
        self._store, self.objects = store, store.objects
        super().__init__(self.objects.location)

    @contextmanager
    def locked(self, *, alone: bool = False) -> Iterator[None]:
        """Among the processes of this machine; other machines are kept out by the store's lease. A lock on a note
        excludes only one on everything."""
        if alone and self.objects.refuses_writes:
            hint = "choose another place for backups"
            raise Forbidden(f"{self.name}: {self.objects.refuses_writes}", hint=hint)
        note = None if alone else NotePath(f"reader-{secrets.token_hex(4)}")
        with ExitStack() as lock:
            try:
                lock.enter_context(self._store.lock(note, timeout=0.1))
            except Busy:
                raise self.busy() from None
            yield

    def dates(self) -> list[str]:
        found = self._days()
        whole = self.objects.each(lambda date: self.objects.exists(f"{date}/{NAME}"), found)
        return [date for date, is_whole in zip(found, whole, strict=True) if is_whole]

    def _days(self) -> list[str]:
        return [name for name in self.objects.folders() if DATE.fullmatch(name)]

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
        """What is in a day, by place."""
        return {one.key[len(date) + 1 :]: one for one in self.objects.below(date)}

    def begin(self, date: str) -> "NewBucketDay":
        if self.objects.exists(f"{date}/{NAME}"):
            self.settle(self.manifest(date))
        return NewBucketDay(self, date)

    def settle(self, manifest: Manifest) -> None:
        """Copy to its place what lies beside: until then the manifest says where it is."""
        date = manifest.date
        beside = [part.place(path) for part in manifest.parts for path, kept in part.files.items() if kept.beside]

        def copy(place: str) -> None:
            if not self.objects.copy(self.objects, f"{date}/{BESIDE}/{place}", f"{date}/{place}"):
                raise Unavailable(f"the backup of {place} is not there", hint="remove that day")

        if beside:
            self.objects.each(copy, beside)
            self.write(manifest.with_files(lambda place, kept: replace(kept, beside=False)))

    def write(self, manifest: Manifest) -> Manifest:
        """Write the manifest when every object was found, with the ETag it must have."""
        there = self.listed(manifest.date)

        def look_at(place: str, kept: BackedUpFile) -> BackedUpFile:
            found = there.get(_where(place, kept))
            if found is None or found.size != kept.size:
                raise Unavailable(f"the backup of {place} is not there", hint="run it again")
            if found.etag.strip('"') != kept.etag.strip('"'):  # not what was asked for: its bytes tell
                try:
                    self.read(manifest.date, place, kept)
                except UnreadableFile as damaged:
                    what = f"the backup of {place} went wrong: {damaged.words}"
                    raise Unavailable(what, hint="run it again") from None
            return replace(kept, etag=found.etag)

        manifest = manifest.with_files(look_at)
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
        mark = f"{date}/{UNFINISHED}"
        self.objects.each(self.objects.remove, [one.key for one in self.objects.below(date) if one.key != mark])
        self.objects.remove(mark)

    def close(self) -> None:
        self._store.close()


def _where(place: str, kept: BackedUpFile) -> str:
    return f"{BESIDE}/{place}" if kept.beside else place


class NewBucketDay(NewBackup):
    """A day being made in its place. One that has no manifest is marked before the first object of it changes."""

    backups: BackupBucket

    def __init__(self, backups: BackupBucket, date: str) -> None:
        super().__init__(backups, date)
        self._objects, self._there = backups.objects, backups.listed(date)
        if self._there and not self._there.keys() & {NAME, UNFINISHED}:
            hint = "remove it, or choose another place for backups"
            raise Exists(f"{backups.name}/{date} is in the way and is no backup of ours", hint=hint, path=date)
        if NAME not in self._there:
            self._objects.put(self._key(UNFINISHED), b"")
        old = self.before.date if self.before else date
        self._old = self._there if old == date else backups.listed(old)
        self._etags: dict[str, str] = {}  # what is to be there
        self._beside: set[str] = set()  # what must not be written over yet

    def _key(self, place: str) -> str:
        return f"{self.date}/{place}"

    def _new_key(self, place: str) -> str:
        """Where a file is written: not over one of a backup that is whole."""
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

    def link(self, old: str, place: str, kept: BackedUpFile) -> bool:
        assert self.before is not None
        old = _where(old, kept)
        found = self._old.get(old)
        if found is None or found.size != kept.size or found.etag != kept.etag:
            return False
        return self._copy(self._objects, f"{self.before.date}/{old}", place, found.etag)

    def _copy(self, source: Objects, key: str, place: str, etag: str) -> bool:
        if not self._is_there(place, etag) and not self._objects.copy(source, key, self._new_key(place)):
            return False
        self._etags[place] = etag
        return True

    def copy_from(self, store: Store, entry: Entry, place: str) -> bool:
        if store.objects is None or store.objects.service != self._objects.service:
            return False
        return self._copy(store.objects, entry.path, place, entry.stamp)

    def drop(self, place: str) -> None:
        self._etags.pop(place, None)
        self._beside.discard(place)

    def finish(self, manifest: Manifest) -> None:
        """Look at what is there, say that it is whole, and remove what is no part of it: perhaps of the one before."""
        made = manifest.with_files(
            lambda place, kept: replace(kept, etag=self._etags[place], beside=place in self._beside)
        )
        self.backups.settle(self.backups.write(made))
        own = {*self._etags, NAME}
        extra = [self._key(place) for place in self.backups.listed(self.date) if place not in own]
        self._objects.each(self._objects.remove, extra)
        self.backups.remove_unfinished(self.date)
