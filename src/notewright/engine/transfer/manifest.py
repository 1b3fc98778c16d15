"""What a backup says of itself: which files of which workspaces it holds, and what their bytes must be."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from notewright.errors import Invalid
from notewright.notes.path import NotePath

NAME = ".notewright-backup.json"  # begins with a dot, so it is never in the place of a note
_MARK = "notewright-backup"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class BackedUpFile:
    """One file as it was when it was backed up."""

    sha256: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class WorkspacePart:
    """One workspace in a backup. Its files lie under `folder`, "" where it is the only one."""

    id: str
    name: str
    location: str
    folder: str
    files: Mapping[NotePath, BackedUpFile] = field(default_factory=dict)
    links: Mapping[NotePath, str] = field(default_factory=dict)  # symlinks: the path each one means

    def place(self, path: str) -> str:
        """Where a file of this workspace lies in the backup."""
        return f"{self.folder}/{path}" if self.folder else path

    def is_same(self, id: str, location: str) -> bool:
        """Whether this is that workspace, be it under another name."""
        return self.id == id or self.location == location != ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole backup. `errors` is what it could not hold."""

    date: str
    made: str  # RFC 3339, UTC
    parts: tuple[WorkspacePart, ...]
    errors: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        return sum(len(part.files) for part in self.parts)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(kept.size for part in self.parts for kept in part.files.values())

    @property
    def workspaces(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)


def dump_manifest(manifest: Manifest) -> bytes:
    """The manifest as it lies in the backup: JSON that a person can read, the mark first."""
    document = {
        _MARK: _FORMAT,
        "date": manifest.date,
        "made": manifest.made,
        "errors": list(manifest.errors),
        "workspaces": {part.id: _dump_part(part) for part in manifest.parts},
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def _dump_part(part: WorkspacePart) -> dict[str, Any]:
    files = {path: asdict(kept) for path, kept in sorted(part.files.items())}
    links = dict(sorted(part.links.items()))
    return {"name": part.name, "location": part.location, "folder": part.folder, "files": files, "links": links}


def parse_manifest(raw: bytes, date: str) -> Manifest:
    """The manifest that was written so. Invalid for anything else, and for paths that would lead out of the backup."""
    try:
        document = json.loads(raw)
        if document[_MARK] != _FORMAT:  # the folder says the date: it may be a copy of another day
            raise ValueError("it is of another version")
        parts = tuple(_parse_part(id, table) for id, table in document["workspaces"].items())
        return Manifest(date, str(document["made"]), parts, tuple(map(str, document["errors"])))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Invalid) as error:
        hint = "choose another date, or copy the files by hand"
        raise Invalid(f"the list of the backup {date} cannot be read: {error}", hint=hint, what="backup") from None


def _parse_part(id: str, table: Mapping[str, Any]) -> WorkspacePart:
    folder = table["folder"]
    if folder not in ("", id) or "/" in id:
        raise ValueError(f"{folder!r} is not the folder of a workspace")
    files = {_parse_path(path): _parse_file(entry) for path, entry in table["files"].items()}
    links = {_parse_path(path): str(_parse_path(real)) for path, real in table["links"].items()}
    return WorkspacePart(str(_parse_path(id)), str(table["name"]), str(table["location"]), folder, files, links)


def _parse_path(raw: str) -> NotePath:
    path = NotePath.parse(raw)
    if path.is_hidden:
        raise ValueError(f"{raw!r} begins with a dot")
    return path


def _parse_file(entry: Mapping[str, Any]) -> BackedUpFile:
    sha256, size, modified_ns = entry["sha256"], entry["size"], entry["modified_ns"]
    if not re.fullmatch(r"[0-9a-f]{64}", sha256) or type(size) is not int or type(modified_ns) is not int:
        raise ValueError("what it says of a file makes no sense")
    return BackedUpFile(sha256, size, modified_ns)
