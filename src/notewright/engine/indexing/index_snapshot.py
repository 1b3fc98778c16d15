"""A snapshot of the index beside the notes, so that a new machine need not read every note.

    snapshot.json       which index, of which notes, and its parts with their hashes
    5e0c…-0000.part     the file of the index, in parts that are compressed each by itself

The parts are written first and the manifest last; parts that no manifest names are removed with the next snapshot. It
is a cache that another machine wrote: where anything is wrong with it, the notes are read instead; else the index is
compared with the store before it answers.
"""

import hashlib
import json
import logging
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from notewright.errors import NotFound, Problem, Unavailable
from notewright.index.base import Index, IndexEdition
from notewright.stores.base import Objects

log = logging.getLogger(__name__)

MANIFEST = "snapshot.json"
PART_BYTES = 8 << 20  # of one part, unpacked: so much is held in memory
MAX_PACKED_BYTES = PART_BYTES + (PART_BYTES >> 8)  # what cannot be compressed grows a little
MAX_PARTS = 1_024  # a larger index is refused
MAX_MANIFEST_BYTES = 256 << 10
MINUTES_BETWEEN = 10  # two looks whether a new snapshot is due
MIN_FILES = 1_000  # fewer are read within a second or two
MIN_CHANGED, MIN_CHANGED_SHARE = 50, 0.02  # files since the last one; fewer are read by the new machine


class IndexSnapshot:
    """The snapshot of one index. `notes` identifies the notes, equally on every machine; `writes` tells whether this
    process may write it."""

    def __init__(self, index: Index, files: Objects, notes: str, *, writes: bool) -> None:
        self._index, self._files, self._notes, self._writes = index, files, notes, writes
        self._known: IndexEdition | None = None  # of the snapshot, once it was read
        self._is_broken = False  # it could not be used
        self._next = 0.0

    def fetch(self) -> bool:
        """Install it in place of an empty index. False where that was not possible: the log says why."""
        try:
            manifest = self._read_manifest()
            if manifest is None:
                return False
            began, edition = time.monotonic(), _edition_of(manifest)
            with self._index.install_copy(int(manifest["files"])) as file:
                self._unpack(manifest, file)
            self._known = edition
        except Exception as error:  # another machine wrote it: it may be wrong in any way
            why = error.message if isinstance(error, Problem) else repr(error)
            log.warning("the snapshot of the index is not used and every note is read: %s", why)
            self._is_broken = True
            return False
        log.info("an index of %d files was fetched in %.1f s", manifest["files"], time.monotonic() - began)
        return True

    def _read_manifest(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._files.get(MANIFEST, max_bytes=MAX_MANIFEST_BYTES))
        except NotFound:
            return None
        for name, ours in (("form", self._index.form), ("notes", self._notes)):
            if found[name] != ours:
                raise ValueError(f"its {name} is {str(found[name])[:100]!r}, not {ours!r}")
        if not 0 < len(found["parts"]) <= MAX_PARTS or not 0 < int(found["bytes"]) <= MAX_PARTS * PART_BYTES:
            raise ValueError("it is too large")
        return found

    def _unpack(self, manifest: Mapping[str, Any], file: Path) -> None:
        left = int(manifest["bytes"])
        with file.open("wb") as out:
            for part in manifest["parts"]:
                data = self._files.get(str(part["name"]), max_bytes=MAX_PACKED_BYTES)
                if hashlib.sha256(data).hexdigest() != part["sha256"]:
                    raise Unavailable(f"{part['name']} is not as it was written")
                left -= out.write(zlib.decompressobj().decompress(data, min(left, PART_BYTES) + 1))
                if left < 0:
                    raise ValueError("it is larger than it says")
        if left:
            raise ValueError("it is not as long as it says")

    # ---- writing it -----------------------------------------------------------------------------------

    def renew_if_due(self, is_stopped: Callable[[], bool] = lambda: False, *, closing: bool = False) -> bool:
        """Write it where it is missing or many files changed since, if this machine may write; whether it was written.
        Looked at every MINUTES_BETWEEN at most."""
        if not self._writes or (not closing and time.monotonic() < self._next):
            return False
        self._next = time.monotonic() + MINUTES_BETWEEN * 60
        try:
            if self._index.total("files") >= MIN_FILES and self._files.may_write() and self._is_worth_it():
                self._write(is_stopped)
                return True
        except Problem as problem:
            log.warning("no snapshot of the index was written: %s", problem)
        except Exception:  # following the notes must not fail for a cache
            log.exception("no snapshot of the index was written")
        return False

    def _is_worth_it(self) -> bool:
        now = self._index.edition()
        if self._known is None and not self._is_broken:
            try:
                manifest = self._read_manifest()
                self._known = None if manifest is None else _edition_of(manifest)
            except (Problem, OSError):
                raise  # it could not be read now
            except Exception:
                self._is_broken = True
        if self._known is None or self._is_broken:
            return True
        if (
            self._known.origin != now.origin
        ):  # that of another machine, or of an index we lost: count the changes from now on
            self._known = now
        changed = abs(now.serial - self._known.serial)
        return changed >= max(MIN_CHANGED, MIN_CHANGED_SHARE * self._index.total("files"))

    def _write(self, is_stopped: Callable[[], bool]) -> None:
        began, name = time.monotonic(), secrets.token_hex(6)
        parts = []
        with self._index.export_copy() as (file, edition):
            for number, data in enumerate(_compressed_parts(file)):
                if is_stopped() or number >= MAX_PARTS:
                    return  # its parts are removed with the next snapshot
                part = f"{name}-{number:04}.part"
                self._files.put(part, data)
                parts.append({"name": part, "sha256": hashlib.sha256(data).hexdigest()})
            size = file.stat().st_size
        manifest = {
            "form": self._index.form, "notes": self._notes, "origin": edition.origin, "serial": edition.serial,
            "files": self._index.total("files"), "bytes": size, "parts": parts,
        }  # fmt: skip
        self._files.put(MANIFEST, json.dumps(manifest).encode())
        self._known, self._is_broken = edition, False
        kept = {MANIFEST, *(part["name"] for part in parts)}
        for other in self._files.below():
            if other.key not in kept:
                self._files.remove(other.key)
        log.info("a snapshot of the index was written in %.1f s", time.monotonic() - began)


def _edition_of(manifest: Mapping[str, Any]) -> IndexEdition:
    return IndexEdition(str(manifest["origin"]), int(manifest["serial"]))


def _compressed_parts(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while data := source.read(PART_BYTES):
            yield zlib.compress(data, 1)  # uncompressed, twice the bytes would cost more than the work it saves
