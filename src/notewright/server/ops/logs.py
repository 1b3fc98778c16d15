"""What is written to standard error: lines for people or for machines, each with the request it belongs to.

Whatever is said, and by whichever library: nothing that looks like a secret leaves here.
"""

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from typing import Any, Literal

from notewright.errors import Invalid
from notewright.server.request_context import NOW

Form = Literal["text", "json"]
FORMS: tuple[Form, ...] = ("text", "json")
_MARKS = ("nw_", "nwd_", "eyj", "bearer")  # one of them is in every secret: most lines are not looked at any closer
_SECRET = re.compile(
    r"(?<![a-z0-9])nwd?_[\w-]{6,}"  # a token of ours, of a person or for documents
    r"|(?<![a-z0-9])eyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)?"  # a JSON web token
    r"|\b(bearer\s+)[^\s\"',;]+",
    re.IGNORECASE | re.ASCII,
)
_JSON = json.JSONEncoder(default=str)


def to_stderr(level: int, form: str = "text") -> None:
    """Everything of that level and above goes to standard error. Called again, the new form holds."""
    if form not in FORMS:
        raise Invalid(f"there is no log format {form!r}", hint=f"there is {' and '.join(FORMS)}", what="log_format")
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler.formatter, TextLines)]:
        root.removeHandler(old)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root.addHandler(handler)
    root.setLevel(level)
    threading.excepthook = _thread_failed


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    """A thread that dies says so like everybody else."""
    name = args.thread.name if args.thread is not None else "a thread"
    error = args.exc_value or args.exc_type()
    logging.getLogger(__name__).error("%s failed", name, exc_info=(args.exc_type, error, args.exc_traceback))


def scrubbed(text: str) -> str:
    """The text without what looks like an access token."""
    small = text.lower()
    return _SECRET.sub(r"\1[secret]", text) if any(mark in small for mark in _MARKS) else text


def rfc3339(seconds: float) -> str:
    """`2026-03-01T12:00:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """`WARNING notewright.mcp.sdk_server [1f0c…]: what happened`, and a traceback below it.

    Secrets are looked for in the finished line: arguments and tracebacks hold them too.
    """

    def format(self, record: logging.LogRecord) -> str:
        visit = NOW.get()
        trouble = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""
        return scrubbed(self.line(record, visit.id if visit is not None else "", trouble))

    def line(self, record: logging.LogRecord, request: str, trouble: str) -> str:
        mark = f" [{request}]" if request else ""
        said = f"{record.levelname} {record.name}{mark}: {_one_line(record.getMessage())}"
        return f"{said}\n{trouble}" if trouble else said


class JsonLines(TextLines):
    """One JSON object a line. `extra={"facts": {...}}` puts members of its own into it."""

    def line(self, record: logging.LogRecord, request: str, trouble: str) -> str:
        members: dict[str, Any] = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        members |= {"request": request} if request else {}
        members |= getattr(record, "facts", {})
        members |= {"exception": trouble} if trouble else {}
        return _JSON.encode(members)


def _one_line(text: str) -> str:
    """Nobody writes a second line into the log by putting a line end into a name."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
