"""A bucket of backups, laid out as a folder of them is: `DATE/path`, whole by itself, with a manifest.

Objects that did not change are copied inside the service from the day before; one that is there with the right ETag is
not written again. A day counts when its manifest is there, which is written last; until then a marker object says that
the day is ours and unfinished. The next backup of that day goes on with what is there, one of a later day removes it. A
second backup of a day overwrites nothing of the first: changed files are staged under a prefix, the manifest says so,
and only then are they copied to their places.
"""

import errno
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from notewright.engine.changes.batch_write import UnreadableFile
from notewright.engine.transfer.manifest import (
    BUCKET_THREADS,
    DATE,
    NAME,
    BackedUpFile,
    BackupPlace,
    Manifest,
    NewBackup,
    busy,
    dump_manifest,
    parse_manifest,
    run_each,
)
from notewright.errors import Busy, Exists, Forbidden, NotFound, Unavailable
from notewright.notes.path import NotePath
from notewright.stores.base import Entry, ListedObject, Objects, Store, version_of

UNFINISHED = ".notewright-backup.unfinished"
STAGED = ".notewright-beside"
MAX_KEY_BYTES = 1024


class BackupBucket(BackupPlace):
    """A prefix of dated backups, behind a store that is closed with it."""

    threads = BUCKET_THREADS
    objects: Objects

    def __init__(self, store: Store) -> None:
        assert store.objects is not None
        self._store, self.objects = store, store.objects
        super().__init__(self.objects.location)

    @contextmanager
    def lock(self, *, exclusive: bool = False) -> Iterator[None]:
        """Lock it among the processes of this machine; other machines are kept out by the store's lease."""
        if exclusive and self.objects.refuses_writes:
            hint = "choose another place for backups"
            raise Forbidden(f"{self.name}: {self.objects.refuses_writes}", hint=hint)
        # Readers lock a note each: that excludes only a lock on everything.
        note = None if exclusive else NotePath(f"reader-{secrets.token_hex(4)}")
        with ExitStack() as lock:
            try:
                lock.enter_context(self._store.lock(note, timeout=0.1))
            except Busy:
                raise busy(self.name) from None
            yield

    def dates(self) -> list[str]:
        found = [name for name in self.objects.folders() if DATE.fullmatch(name)]
        whole = run_each(lambda date: self.objects.exists(f"{date}/{NAME}"), found, BUCKET_THREADS)
        return [date for date, is_whole in zip(found, whole, strict=True) if is_whole]

    def manifest(self, date: str) -> Manifest:
        return parse_manifest(self.objects.get(f"{date}/{NAME}"), date)

    def read(self, date: str, place: str, kept: BackedUpFile) -> tuple[bytes, int | None]:
        try:
            data = self.objects.get(f"{date}/{_current_place(place, kept)}")
        except NotFound:
            raise UnreadableFile("damaged", f"{place} is not in the backup of {date} any more") from None
        if version_of(data) != kept.sha256:
            raise UnreadableFile("damaged", "its bytes in the backup are not those that were backed up")
        return data, None

    def listed(self, date: str) -> dict[str, ListedObject]:
        """The objects of a day, by place."""
        return {one.key[len(date) + 1 :]: one for one in self.objects.below(date)}

    def begin(self, date: str) -> "NewBucketBackup":
        if self.objects.exists(f"{date}/{NAME}"):
            self.copy_staged(self.manifest(date))
        return NewBucketBackup(self, date)

    def copy_staged(self, manifest: Manifest) -> None:
        """Copy staged files to their places: until then the manifest says where they are."""
        date = manifest.date
        staged = [part.place(path) for part in manifest.parts for path, kept in part.files.items() if kept.beside]

        def copy(place: str) -> None:
            if not self.objects.copy(self.objects, f"{date}/{STAGED}/{place}", f"{date}/{place}"):
                raise Unavailable(f"the backup of {place} is not there", hint="remove that day")

        if staged:
            list(run_each(copy, staged, BUCKET_THREADS))
            self.write(manifest.with_files(lambda place, kept: replace(kept, beside=False)))

    def write(self, manifest: Manifest) -> Manifest:
        """Write the manifest after every object was found with its size and ETag; as it was written."""
        there = self.listed(manifest.date)

        def check(place: str, kept: BackedUpFile) -> BackedUpFile:
            found = there.get(_current_place(place, kept))
            if found is None or found.size != kept.size:
                raise Unavailable(f"the backup of {place} is not there", hint="run it again")
            if found.etag.strip('"') != kept.etag.strip('"'):  # compare its bytes
                try:
                    self.read(manifest.date, place, kept)
                except UnreadableFile as damaged:
                    what = f"the backup of {place} went wrong: {damaged.words}"
                    raise Unavailable(what, hint="run it again") from None
            return replace(kept, etag=found.etag)

        manifest = manifest.with_files(check)
        self.objects.put(f"{manifest.date}/{NAME}", dump_manifest(manifest))
        return manifest

    def remove(self, date: str) -> None:
        self.manifest(date)  # raises where it is none of ours
        self.objects.put(f"{date}/{UNFINISHED}", b"")
        self.objects.remove(f"{date}/{NAME}")
        self._remove_unfinished_day(date)

    def remove_unfinished(self, today: str) -> None:
        """Remove what an interrupted backup of another day, or an interrupted removal, has left."""
        whole = {today, *self.dates()}
        for date in filter(DATE.fullmatch, self.objects.folders()):
            if date not in whole and self.objects.exists(f"{date}/{UNFINISHED}"):
                self._remove_unfinished_day(date)

    def _remove_unfinished_day(self, date: str) -> None:
        """Remove the marker last: until then the rest is known to be ours."""
        mark = f"{date}/{UNFINISHED}"
        left = [one.key for one in self.objects.below(date) if one.key != mark]
        list(run_each(self.objects.remove, left, BUCKET_THREADS))
        self.objects.remove(mark)

    def close(self) -> None:
        self._store.close()


def _current_place(place: str, kept: BackedUpFile) -> str:
    """Where the object of a file is now."""
    return f"{STAGED}/{place}" if kept.beside else place


class NewBucketBackup(NewBackup):
    """A backup that is made in its place. A day without a manifest is marked before its first object changes."""

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
        self._etags: dict[str, str] = {}  # of what the new backup holds, by place
        self._staged: set[str] = set()  # places whose old objects must not be overwritten yet

    def _key(self, place: str) -> str:
        return f"{self.date}/{place}"

    def _new_key(self, place: str) -> str:
        """The key to write a file to: not that of a file in a whole backup."""
        if NAME not in self._there or place not in self._there:
            return self._key(place)
        self._staged.add(place)
        return self._key(f"{STAGED}/{place}")

    def _is_there(self, place: str, etag: str) -> bool:
        found = self._there.get(place)
        return found is not None and found.etag.strip('"') == etag.strip('"') != ""

    def put(self, place: str, data: bytes, *, modified_ns: int, mode: int | None = None) -> None:
        """Write a file, unless an object with the same bytes is there: an ETag that is an MD5 says so."""
        if len(f"{self._objects.prefix}/{self._key(place)}".encode()) > MAX_KEY_BYTES:
            raise OSError(errno.ENAMETOOLONG, "its name is too long for a bucket")
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if not self._is_there(place, etag):
            etag = self._objects.put(self._new_key(place), data)
        self._etags[place] = etag

    def link(self, old: str, place: str, kept: BackedUpFile) -> bool:
        assert self.before is not None
        old = _current_place(old, kept)
        found = self._old.get(old)
        if found is None or found.size != kept.size or found.etag != kept.etag:
            return False
        return self._copy(self._objects, f"{self.before.date}/{old}", place, found.etag)

    def _copy(self, source: Objects, key: str, place: str, etag: str) -> bool:
        if not self._is_there(place, etag) and not self._objects.copy(source, key, self._new_key(place)):
            return False
        self._etags[place] = etag
        return True

    def copy_in_service(self, store: Store, entry: Entry, place: str) -> bool:
        if store.objects is None or store.objects.service != self._objects.service:
            return False
        return self._copy(store.objects, entry.path, place, entry.stamp)

    def drop(self, place: str) -> None:
        self._etags.pop(place, None)
        self._staged.discard(place)

    def finish(self, manifest: Manifest) -> None:
        """Check the objects, write the manifest, and remove objects that are not in it."""
        made = manifest.with_files(
            lambda place, kept: replace(kept, etag=self._etags[place], beside=place in self._staged)
        )
        self.backups.copy_staged(self.backups.write(made))
        own = {*self._etags, NAME}
        extra = [self._key(place) for place in self.backups.listed(self.date) if place not in own]
        list(run_each(self._objects.remove, extra, BUCKET_THREADS))
        self.backups.remove_unfinished(self.date)
