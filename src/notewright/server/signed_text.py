"""What a client brings back just as we gave it: bytes and their signature, in letters for headers and addresses."""

import base64
import hashlib
import hmac


def seal(key: bytes, body: bytes, *, bound_to: bytes = b"", size: int = 32) -> str:
    """`bound_to` is signed and not in it: who reads it has to know it. Of the signature so many bytes are kept."""
    return base64.urlsafe_b64encode(_signature(key, bound_to + body, size) + body).decode().rstrip("=")


def unseal(key: bytes, text: str, *, bound_to: bytes = b"", size: int = 32) -> bytes | None:
    """The body; None if it was not sealed with this key."""
    try:
        given = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    body = given[size:]
    return body if hmac.compare_digest(given[:size], _signature(key, bound_to + body, size)) else None


def _signature(key: bytes, message: bytes, size: int) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)[:size]
