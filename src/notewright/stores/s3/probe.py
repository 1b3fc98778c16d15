"""Asks the service whether it honours conditional writes: without them two writers lose each other's text."""

import secrets
from typing import Any

import obstore
from obstore.store import S3Store as Client

from notewright.errors import Forbidden
from notewright.stores.s3.requests import ConditionFailed, Missing, Requests

IGNORED = "this service ignores {header}, so writers would lose each other's changes: it can only be read from"


def why_not_writable(client: Client, requests: Requests, base: str) -> tuple[str | None, bool]:
    """Why nothing may be written, or None; and whether ETags are to be sent without their quotes (Ceph up to 16)."""
    key = f"{base}.notewright/probe-{secrets.token_hex(8)}"

    def put(data: bytes, mode: Any) -> str:
        done = requests.send(lambda: obstore.put(client, key, data, mode=mode, use_multipart=False), writes=True)
        return done["e_tag"] or ""

    def is_refused(data: bytes, mode: Any) -> bool:
        try:
            put(data, mode)
        except (ConditionFailed, Missing):
            return True
        return False

    try:
        first = put(b"1", "create")
    except Forbidden:
        return "these credentials may not write to the bucket: they need s3:PutObject and s3:DeleteObject", False
    except ConditionFailed:  # the answer to a first try was lost: another key
        return why_not_writable(client, requests, base)
    try:
        if not is_refused(b"2", "create"):
            return IGNORED.format(header="If-None-Match"), False
        unquoted = is_refused(b"3", {"e_tag": first})
        if unquoted and is_refused(b"3", {"e_tag": first.strip('"')}):
            return "this service refuses If-Match with the ETag it gave: it can only be read from", False
        stale = first.strip('"') if unquoted else first
        if not is_refused(b"4", {"e_tag": stale}):
            return IGNORED.format(header="If-Match"), False
        return None, unquoted
    finally:
        requests.send(lambda: obstore.delete(client, key), writes=True)
