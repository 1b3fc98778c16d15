"""Daily notes: Moment.js formats in English, Obsidian's settings for them, and templates."""

import json
import re
from calendar import isleap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor

from notewright.notes.path import with_md

MAX_SETTINGS_CHARS = 65_536
MAX_FORMAT_CHARS = 200
_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split()  # noqa: SIM905

_LONG = {
    "LTS": "h:mm:ss A",
    "LT": "h:mm A",
    "LLLL": "dddd, MMMM D, YYYY h:mm A",
    "LLL": "MMMM D, YYYY h:mm A",
    "LL": "MMMM D, YYYY",
    "L": "MM/DD/YYYY",
    "llll": "ddd, MMM D, YYYY h:mm A",
    "lll": "MMM D, YYYY h:mm A",
    "ll": "MMM D, YYYY",
    "l": "M/D/YYYY",
}
_LONG_TOKEN = re.compile(r"\[[^\[]*\]|\\?(?:LTS|LT|LL?L?L?|l{1,4})")
_TOKEN = re.compile(
    r"\[(?P<text>[^\[]*)\]|\\(?P<escaped>.)|(?P<token>[Hh]mm(?:ss)?|Mo|MM?M?M?|Do|DDDo|DD?D?D?|ddd?d?|do?|w[ow]?|W[oW]?"
    r"|Qo?|N{1,5}|YYYYYY|YYYYY|YYYY|YY|y{2,4}|yo?|Y|gg(?:ggg?)?|GG(?:GGG?)?|e|E|a|A|hh?|HH?|kk?|mm?|ss?|S{1,9}|x|X|zz?|ZZ?)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_FIELD = re.compile(r"\{\{\s*(?P<name>date|time|title)\s*(?::(?P<format>[^{}]{1,200}?))?\s*\}\}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DailySettings:
    """Where daily notes are and what they are called."""

    folder: str = ""
    format: str = "YYYY-MM-DD"
    template: str = ""


def parse_daily_settings(text: str) -> DailySettings | None:
    """The settings in `.obsidian/daily-notes.json`, or None where it cannot be read."""
    if len(text) > MAX_SETTINGS_CHARS:
        return None
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(settings, dict):
        return None
    given = (settings.get(key) for key in ("folder", "format", "template"))
    folder, form, template = (value if isinstance(value, str) else "" for value in given)
    return DailySettings(folder.strip().strip("/"), form.strip()[:MAX_FORMAT_CHARS] or "YYYY-MM-DD", template)


def daily_path(settings: DailySettings, moment: datetime) -> str:
    """The path of the daily note of a moment. Slashes in the format make folders."""
    name = format_moment(settings.format, moment)
    segments = [segment for segment in f"{settings.folder}/{name}".split("/") if segment]
    return with_md("/".join(segments))


def fill_template(text: str, *, title: str, moment: datetime) -> str:
    """A template with `{{title}}`, `{{date}}` and `{{time}}` filled in; the last two may give a format."""

    def fill_field(found: re.Match[str]) -> str:
        name = found["name"].lower()
        if name == "title":
            return title if found["format"] is None else found[0]
        return format_moment(found["format"] or {"date": "YYYY-MM-DD", "time": "HH:mm"}[name], moment)

    return _FIELD.sub(fill_field, text)


def format_moment(form: str, moment: datetime) -> str:
    """`moment` in a Moment.js format, as the English locale writes it."""
    form = _LONG_TOKEN.sub(lambda found: _LONG.get(found[0], found[0]), form)

    def format_piece(found: re.Match[str]) -> str:
        if found["token"] is None:
            return found["text"] or found["escaped"] or found["other"] or ""
        return _format_token(found["token"], moment)

    return _TOKEN.sub(format_piece, form)


# ---- tokens -------------------------------------------------------------------------------------------


def _year_day(moment: datetime) -> int:
    return moment.timetuple().tm_yday


def _weekday(moment: datetime) -> int:
    """Sunday is 0."""
    return moment.isoweekday() % 7


def _week(moment: datetime) -> tuple[int, int]:
    """Year and number of the week, which begins on Sunday; the first week is the one with January 1st, so that a week
    is in the year of its Saturday."""
    saturday = _year_day(moment) + 6 - _weekday(moment)
    if saturday > 365 + isleap(moment.year):
        return moment.year + 1, 1
    return moment.year, (saturday + 6) // 7


def _zone(moment: datetime, colon: str) -> str:
    offset = moment.utcoffset()
    minutes = round(offset.total_seconds() / 60) if offset else 0
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{colon}{abs(minutes) % 60:02d}"


def _instant(moment: datetime) -> float:
    """Seconds since 1970; a moment without a zone is in UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_FORMATS: dict[str, Callable[[datetime], str]] = {
    "MMM": lambda m: _MONTHS[m.month - 1][:3],
    "MMMM": lambda m: _MONTHS[m.month - 1],
    "DDDD": lambda m: f"{_year_day(m):03d}",
    "dd": lambda m: _DAYS[_weekday(m)][:2],
    "ddd": lambda m: _DAYS[_weekday(m)][:3],
    "dddd": lambda m: _DAYS[_weekday(m)],
    "Y": lambda m: f"{m.year:04d}",
    "YYYYYY": lambda m: f"+{m.year:06d}",
    "NNNN": lambda m: "Anno Domini",
    "a": lambda m: "am" if m.hour < 12 else "pm",
    "A": lambda m: "AM" if m.hour < 12 else "PM",
    "x": lambda m: str(floor(_instant(m) * 1000)),
    "X": lambda m: str(floor(_instant(m))),
    "z": lambda m: m.tzname() or "",
    "zz": lambda m: m.tzname() or "",
    "Z": lambda m: _zone(m, ":"),
    "ZZ": lambda m: _zone(m, ""),
}


def _format_token(token: str, moment: datetime) -> str:
    if token in _FORMATS:
        return _FORMATS[token](moment)
    sign, length = token[0], len(token)
    if sign == "N":
        return "AD"
    if sign == "S":
        return f"{moment.microsecond:06d}000"[:length]
    if sign in "YgG":  # with as many digits as letters; two letters are its last two digits
        year = {"Y": moment.year, "g": _week(moment)[0], "G": moment.isocalendar().year}[sign]
        return f"{year % 100:02d}" if length == 2 else f"{year:0{length}d}"
    week, iso = _week(moment), moment.isocalendar()
    # written as a plain number, with `o` behind it as an ordinal, doubled with at least two digits
    numbers = {
        **{"M": moment.month, "D": moment.day, "d": _weekday(moment), "DDD": _year_day(moment)},
        **{"w": week[1], "W": iso.week, "e": _weekday(moment), "E": moment.isoweekday(), "Q": (moment.month + 2) // 3},
        **{"y": moment.year, "H": moment.hour, "h": moment.hour % 12 or 12, "k": moment.hour or 24},
        **{"m": moment.minute, "s": moment.second},
    }
    if token in numbers:
        return str(numbers[token])
    if token[-1] == "o":
        number = numbers[token[:-1]]
        ending = "th" if number % 100 // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        return f"{number}{ending}"
    if token[1:] in ("mm", "mmss"):
        return f"{numbers[sign]}{moment.minute:02d}" + (f"{moment.second:02d}" if length > 3 else "")
    return f"{numbers[sign]:0{length}d}"
