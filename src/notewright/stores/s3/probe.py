"""Asks the service whether it honours conditional writes: without them two writers lose each other's text."""

import secrets
from dataclasses import dataclass
from typing import Any

import obstore

from notewright.errors import Forbidden
from notewright.stores.s3.requests import ConditionFailed, Missing, OddKey, Requests

IGNORED = "this service ignores {}, so that writers would lose each other's changes: it can only be read from"
UNKNOWN = "this service refuses If-Match with the ETag it gave: it can only be read from"
NO_RIGHT = "these credentials may not write to the bucket (s3:PutObject and s3:DeleteObject): it can only be read from"


@dataclass(frozen=True, slots=True)
class ServiceAbilities:
    """What was found out about a service."""

    refuses_writes: str | None = None  # why nothing may be written, in words
    unquoted: bool = False  # If-Match wants the ETag without its quotes (Ceph up to 16)
    keeps_folders: bool = False  # a listing shows folders that are empty (SeaweedFS, for a while)


def probe(requests: Requests, base: str) -> ServiceAbilities:
    """Write, write again, replace and remove one object of our own."""
    name = secrets.token_hex(8)
    key = f"{base}.notewright/{name}/probe"

    def is_refused(data: bytes, mode: Any) -> bool:
        try:
            requests.put(key, data, mode=mode)
        except (ConditionFailed, Missing):
            return True
        return False

    try:
        first = requests.put(key, b"1", mode="create")
    except Forbidden:
        return ServiceAbilities(NO_RIGHT)
    except ConditionFailed:  # the answer to a first try was lost: another key
        return probe(requests, base)
    try:
        if not is_refused(b"2", "create"):
            return ServiceAbilities(IGNORED.format("If-None-Match"))
        unquoted = is_refused(b"3", {"e_tag": first})
        if unquoted and is_refused(b"3", {"e_tag": first.strip('"')}):
            return ServiceAbilities(UNKNOWN)
        if not is_refused(b"4", {"e_tag": first.strip('"') if unquoted else first}):
            return ServiceAbilities(IGNORED.format("If-Match"))
    finally:
        requests.remove(key)
    try:
        ours = f"{base}.notewright"
        left = requests.send(lambda: obstore.list_with_delimiter(requests.clients.read, ours))["common_prefixes"]
    except OddKey:
        left = []  # a service that takes such keys has no folders to keep
    return ServiceAbilities(None, unquoted, any(name in folder for folder in left))
