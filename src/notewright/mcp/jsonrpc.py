"""JSON-RPC messages: parsing them and judging their form, before their meaning matters."""

import json
from typing import Any

import pydantic_core

from notewright.surfaces.perform import MAX_ARGUMENT_DEPTH, find_json_flaw

ENVELOPE = "io.modelcontextprotocol/protocolVersion"  # in `_meta` of every request of the 2026 era
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
MAX_NAME_CHARS = 200

Message = dict[str, Any]


def parse_json(text: bytes) -> Any:
    """The value; ValueError or RecursionError for what is no JSON."""
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        return json.loads(text)  # takes lone surrogates, which the stricter and quicker one does not


def is_plain(text: bytes) -> bool:
    """There is nothing for `find_flaw`: few brackets mean no deep nesting; a surrogate is written with an escape, in
    UTF-8 with a byte ED, or in UTF-16 or UTF-32, where brackets come with zero bytes."""
    may_hold_surrogate = b"\\u" in text or b"\xed" in text or b"\0" in text
    return not may_hold_surrogate and text.count(b"[") + text.count(b"{") < MAX_ARGUMENT_DEPTH


def is_message(given: Any) -> bool:
    match given:
        case {"jsonrpc": "2.0", "method": str()}:
            params = given.get("params")
            return (params is None or isinstance(params, dict)) and ("id" not in given or is_id(given["id"]))
        case {"jsonrpc": "2.0", "id": request, "result": {}} | {"jsonrpc": "2.0", "id": request, "error": {}}:
            return request is None or is_id(request)
    return False


def is_id(given: Any) -> bool:
    return type(given) is int or (isinstance(given, str) and find_json_flaw(given) is None)


def find_flaw(message: Any) -> str | None:
    """Why nobody can take this message, in words; None for one that can be understood or refused by what it says.

    The arguments of a tool are left to its surface, which has words of its own for what is wrong with them.
    """
    match message:
        case {"method": "tools/call", "params": {"arguments": dict(), **rest}}:
            message = {**message, "params": rest}
    flaw = find_json_flaw(message)
    if flaw == "surrogate":
        return "The request holds a lone surrogate, which is not text"
    return None if flaw is None else "The request is nested too deeply"


def request_id(given: Any) -> int | str | None:
    """Its id, if it has one that can be answered."""
    found = given.get("id") if isinstance(given, dict) else None
    return found if is_id(found) else None


def has_envelope(message: Message) -> bool:
    meta = (message.get("params") or {}).get("_meta")
    return isinstance(meta, dict) and ENVELOPE in meta


def client_name(message: Message) -> str:
    """What the client calls itself: in `initialize`, or in the envelope of the 2026 era."""
    match message.get("params"):
        case {"clientInfo": {"name": str(name)}}:
            return short_name(name)
        case {"_meta": {**meta}}:
            info = meta.get(CLIENT_INFO)
            return short_name(info["name"]) if isinstance(info, dict) and isinstance(info.get("name"), str) else ""
    return ""


def short_name(name: str) -> str:
    """A client's name as it is kept: it stands in every line of the history, and may be anything."""
    return name[:MAX_NAME_CHARS]
