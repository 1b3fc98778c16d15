"""The log on standard error: lines of text or JSON, each with the id of its request.

Whichever library logs: nothing that looks like a secret is written.
"""

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from typing import Any

from notewright.errors import Invalid
from notewright.server.request_context import CURRENT_REQUEST

LOG_FORMATS = ("text", "json")
_SECRET_MARKS = ("nw_", "nwd_", "eyj", "bearer")  # every secret has one, so most lines skip the regex
_SECRET = re.compile(
    r"(?<![a-z0-9])nwd?_[\w-]{6,}"  # a token of ours, of a person or for documents
    r"|(?<![a-z0-9])eyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)?"  # a JSON web token
    r"|\b(bearer\s+)[^\s\"',;]+",
    re.IGNORECASE | re.ASCII,
)
_JSON = json.JSONEncoder(default=str)


def configure(level: int, form: str = "text") -> None:
    """Log everything of that level and above to standard error. A second call replaces the first."""
    if form not in LOG_FORMATS:
        hint = f"there is {' and '.join(LOG_FORMATS)}"
        raise Invalid(f"there is no log format {form!r}", hint=hint, what="log_format")
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler.formatter, TextLines)]:
        root.removeHandler(old)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root.addHandler(handler)
    root.setLevel(level)
    threading.excepthook = _log_thread_failure


def _log_thread_failure(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread is not None else "a thread"
    error = args.exc_value or args.exc_type()
    logging.getLogger(__name__).error("%s failed", name, exc_info=(args.exc_type, error, args.exc_traceback))


def scrub_secrets(text: str) -> str:
    """The text without what looks like an access token."""
    lower = text.lower()
    return _SECRET.sub(r"\1[secret]", text) if any(mark in lower for mark in _SECRET_MARKS) else text


def rfc3339(seconds: float) -> str:
    """`2026-03-01T12:00:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """`WARNING notewright.mcp.sdk_server [1f0c…]: what happened`, and a traceback below it.

    Secrets are looked for in the finished line: arguments and tracebacks hold them too.
    """

    def format(self, record: logging.LogRecord) -> str:
        context = CURRENT_REQUEST.get()
        traceback = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""
        return scrub_secrets(self.format_line(record, context.id if context is not None else "", traceback))

    def format_line(self, record: logging.LogRecord, request: str, traceback: str) -> str:
        text = record.getMessage()
        if not text.isprintable():  # a line end in a name must not begin a line of the log
            text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
        line = f"{record.levelname} {record.name}{f' [{request}]' if request else ''}: {text}"
        return f"{line}\n{traceback}" if traceback else line


class JsonLines(TextLines):
    """One JSON object a line. `extra={"facts": {...}}` adds members to it."""

    def format_line(self, record: logging.LogRecord, request: str, traceback: str) -> str:
        members: dict[str, Any] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        members |= {"request": request} if request else {}
        members |= getattr(record, "facts", {})
        members |= {"exception": traceback} if traceback else {}
        return _JSON.encode(members)
