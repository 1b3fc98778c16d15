"""Text that a client brings back as we gave it: bytes and their signature, in letters for headers and addresses."""

import base64
import hashlib
import hmac


def seal(key: bytes, body: bytes, *, bound_to: bytes = b"", size: int = 32) -> str:
    """The signed body. `bound_to` is signed too and not contained: the reader has to know it. The signature is cut to
    `size` bytes."""
    signature = hmac.digest(key, bound_to + body, hashlib.sha256)[:size]
    return base64.urlsafe_b64encode(signature + body).decode().rstrip("=")


def unseal(key: bytes, text: str, *, bound_to: bytes = b"", size: int = 32) -> bytes | None:
    """The body; None if it was not sealed with this key."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    body = raw[size:]
    return body if hmac.compare_digest(raw[:size], hmac.digest(key, bound_to + body, hashlib.sha256)[:size]) else None
