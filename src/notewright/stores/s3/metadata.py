"""The metadata of an object: our operation, and of a note its title, type, tags and time."""

import base64
import mimetypes
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from notewright.notes.parse.parser import parse_head
from notewright.notes.parse.tags import list_property_tags
from notewright.notes.path import NotePath

OP = "notewright-op"  # the change set whose write this is
DELETED = "notewright-deleted"  # a tombstone: the note is gone, the object follows
MAX_PARSED_CHARS = 64_000  # for the title in a heading; the properties stand first anyway
MAX_VALUE_BYTES = 400
MAX_METADATA_BYTES = 2_000  # AWS takes 2,048 for all names and values together
_OURS = {OP, DELETED, "modified", "title", "type", "tags", "Content-Type", "Content-Encoding"}
_WORD_BYTES = 42  # of text in one encoded word, which may have 75 characters
_PRINTABLE = re.compile(r"[ -~]*")


def attributes_of(path: NotePath, data: bytes, *, op: str, now_ns: int) -> dict[str, str]:
    """The attributes of a PUT."""
    modified = datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    attributes = {OP: op, "modified": modified}
    if not path.is_note:
        return attributes | {"Content-Type": mimetypes.guess_type(path.name)[0] or "application/octet-stream"}
    text = data[: MAX_PARSED_CHARS * 4].decode(errors="replace")[:MAX_PARSED_CHARS]
    title, properties = parse_head(path, text)
    kind = properties.get("type")
    is_plain = isinstance(kind, str | int | float) and not isinstance(kind, bool)
    values = {"title": title, "type": str(kind) if is_plain else "", "tags": ",".join(list_property_tags(properties))}
    attributes |= {name: encode(value) for name, value in values.items() if value}
    return attributes | {"Content-Type": "text/markdown; charset=utf-8"}


def foreign_attributes(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of other programs, kept when an object is replaced. How its bytes are encoded is no longer true."""
    return {name: str(value) for name, value in attributes.items() if name not in _OURS}


def add_foreign_attributes(ours: dict[str, str], foreign: Mapping[str, str]) -> dict[str, str]:
    """Our metadata and that of other programs, as far as a service takes it."""
    attributes, size = dict(ours), sum(len(name) + len(value) for name, value in ours.items())
    for name, value in foreign.items():
        size += len(name) + len(value)
        if size <= MAX_METADATA_BYTES:
            attributes.setdefault(name, value)
    return attributes


def encode(value: str) -> str:
    """A value for a header: printable ASCII as it is, all else in RFC 2047 words, cut where it gets too long."""
    value = " ".join(value.split())
    if _PRINTABLE.fullmatch(value) and "=?" not in value:
        return value[:MAX_VALUE_BYTES]
    words, left = list[str](), value.encode(errors="replace")[: MAX_VALUE_BYTES // 2].decode(errors="ignore")
    while left:
        piece = left.encode()[:_WORD_BYTES].decode(errors="ignore")
        words.append(f"=?UTF-8?B?{base64.b64encode(piece.encode()).decode()}?=")
        left = left[len(piece) :]
    return " ".join(words)


def written_ns(attributes: Mapping[str, Any], last_modified: datetime) -> int:
    """When it was written: to the millisecond where our metadata has it, else to the second, as the service does."""
    served_ms = int(last_modified.timestamp() * 1000)
    try:
        ours_ms = int(datetime.fromisoformat(str(attributes["modified"])).timestamp() * 1000)
    except (KeyError, ValueError):
        return served_ms * 1_000_000
    is_ours = OP in attributes and abs(ours_ms - served_ms) < 120_000  # else another program's, or a copied object
    return (ours_ms if is_ours else served_ms) * 1_000_000
