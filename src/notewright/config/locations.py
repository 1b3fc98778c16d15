"""Where workspaces are and what they are called: locations, names, ids, and that none lies in another."""

import os
import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from notewright.errors import Invalid, NotFound
from notewright.notes.path import path_problem

LIVE = "live:"
RESERVED = frozenset((
    "mcp", "w", "live", "d", "doc", "f", "ready", "api", "static", "authorize", "token", "register", "revoke",
    ".well-known", "sign-in", "account", "admin", "healthz", "health", "readyz", "metrics", "default", "callback",
    "auth", "_system",
))  # fmt: skip


def split_location(raw: str, here: Path) -> tuple[str, str]:
    """Name and absolute location of `[NAME=]LOCATION`. A folder that is there wins over a name with `=`."""
    name, equals, location = raw.partition("=")
    if not equals or "/" in name or not name.strip() or (here / raw).is_dir():
        name, location = "", raw
    name = name.strip()
    if not name:
        place = split_live(location)[0]
        place = place if is_bucket(place) else os.path.abspath(here / Path(place).expanduser())
        name = place.rstrip("/").rpartition("/")[2] or "notes"
    return name, resolve_location(location, here)


def resolve_location(location: str, beside: Path) -> str:
    """A location that means the same in every folder. NotFound without such a folder; a bucket is not asked."""
    if is_bucket(location):
        return parse_bucket_location(location)
    folder, live = split_live(location)
    if live:
        if is_bucket(folder):
            raise Invalid(
                f"{location[:200]!r}: live documents are files in a folder", hint="live:FOLDER", what="location"
            )
        return LIVE + resolve_location(folder, beside)
    place = os.path.realpath(beside / Path(location).expanduser())
    if not location or not os.path.isdir(place):
        reason = "is not a folder" if location and os.path.exists(place) else "is not there"
        raise NotFound(f"{location!r} {reason}", hint="name the folder that holds the notes", what="folder")
    return place


def is_bucket(location: str) -> bool:
    return location[:5].lower() == "s3://"


def split_live(location: str) -> tuple[str, bool]:
    """The folder of `live:FOLDER`, and whether it is so written."""
    is_live = location[: len(LIVE)].lower() == LIVE
    return (location[len(LIVE) :] if is_live else location), is_live


def parse_bucket_location(raw: str) -> str:
    """`s3://bucket/prefix`, always spelled the same; Invalid where that names no place for notes."""
    bucket, _, prefix = raw[5:].rstrip("/").partition("/")
    problem = path_problem(prefix) if prefix else None
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", bucket) or problem:
        reason = f"{prefix!r} cannot be a prefix: {problem}" if problem else f"{bucket!r} is no bucket's name"
        raise Invalid(f"{raw[:200]!r}: {reason}", hint="write it as s3://bucket/prefix", what="location")
    return f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"


def refuse_not_yet(location: str) -> None:
    """Invalid for what a later version will take where a folder is wanted."""
    if is_bucket(location) or split_live(location)[1]:
        what = "buckets (s3://…)" if is_bucket(location) else "live documents (live:…)"
        hint = "name a folder on this machine" + ("" if is_bucket(location) else ", without live:")
        raise Invalid(f"{location[:200]!r}: {what} are not in this version", hint=hint, what="location")


def parse_folder_or_bucket(raw: str) -> str:
    """A place that need not exist yet: a bucket as `parse_bucket_location` spells it, or an absolute folder."""
    if is_bucket(raw):
        return parse_bucket_location(raw)
    refuse_not_yet(raw)
    return os.path.realpath(Path(raw).expanduser())


def workspace_id(name: str, taken: Iterable[str] = ()) -> str:
    """The id of a workspace in URLs, made from its name: 3 to 40 letters, digits and dashes, none reserved or taken."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-_")[:33].rstrip("-_")
    if not slug:
        import hashlib

        slug = "notes-" + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:6]
    if slug in RESERVED or len(slug) < 3:
        slug += "-notes"
    used, number, wanted = set(taken), 2, slug
    while slug in used:
        slug, number = f"{wanted}-{number}", number + 1
    return slug


def refuse_overlap(places: Iterable[tuple[str, str]]) -> None:
    """A note belongs to one workspace: Invalid for (location, name) pairs of which one lies in another."""
    for (outer, first), (inner, second) in pairwise(sorted((f"{place.rstrip('/')}/", name) for place, name in places)):
        if inner.startswith(outer):
            what = f"the workspaces {first!r} and {second!r} overlap"
            raise Invalid(what, hint="name folders that lie side by side", what="location")


def refuse_inside(place: str, folder: str, *, chosen: bool) -> None:
    """Nothing of ours is among the notes. Dot folders are not among them, unless somebody chose one of them."""
    if is_bucket(folder):
        return
    inside = os.path.relpath(os.path.realpath(place), folder)
    if inside.split("/")[0] != ".." and (chosen or not any(part.startswith(".") for part in inside.split("/"))):
        raise Invalid(
            f"{place} is inside the workspace {folder}", hint="name another folder with --state", what="state"
        )
