"""Points and spans of time as people and notes write them, in seconds."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d))?")
_FURTHEST = 9e9  # seconds either way that every clock and index can count
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def load_timezone(name: str) -> tzinfo:
    """The timezone, or KeyError, ValueError or OSError. The tables of the others are not looked for without need."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def parse_time(raw: str, zone: tzinfo, *, strict: bool = False) -> float | None:
    """An ISO 8601 date or time, since 1970; None for anything else. A time without an offset is in `zone`.

    `strict`: only a plain date or whole RFC 3339, as tools and the API promise, and no further than anybody can count.
    """
    raw = raw.strip()
    if strict and not _RFC_3339.fullmatch(raw):
        return None
    try:
        moment = datetime.fromisoformat(raw.upper())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):  # also year 1 in a zone east of Greenwich
        return None
    return min(max(seconds, -_FURTHEST), _FURTHEST) if strict else seconds


def parse_duration(raw: str) -> float | None:
    """`30m`, `12h`, `90d`, `2w`."""
    span = re.fullmatch(r"(\d{1,5})([mhdw])", raw, re.ASCII)
    return timedelta(**{_UNITS[span[2]]: int(span[1])}).total_seconds() if span else None


def format_utc(seconds: float) -> str:
    """RFC 3339, UTC, whole seconds."""
    return to_datetime(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_datetime(seconds: float, zone: tzinfo) -> datetime:
    """Files may bear times that no calendar has; they get the last one it has."""
    try:
        return datetime.fromtimestamp(seconds, zone)
    except (ValueError, OverflowError, OSError):
        return datetime(9999, 12, 31, tzinfo=zone) if seconds > 0 else datetime(1, 1, 1, tzinfo=zone)
