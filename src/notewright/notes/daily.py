"""Daily notes: Moment.js formats in English, Obsidian's settings for them, and templates."""

import json
import re
from calendar import isleap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from math import floor

from notewright.notes.path import with_md

_MOST_SETTINGS = 65_536
_MOST_FORMAT = 200
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
    """What `.obsidian/daily-notes.json` says, or None where it says nothing that can be read."""
    if len(text) > _MOST_SETTINGS:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    folder, form, template = (_string(said.get(key)) for key in ("folder", "format", "template"))
    return DailySettings(folder.strip().strip("/"), form.strip()[:_MOST_FORMAT] or "YYYY-MM-DD", template)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def daily_path(settings: DailySettings, moment: datetime) -> str:
    """The path of the daily note of a moment. Slashes in the format make folders."""
    name = format_moment(settings.format, moment)
    segments = [segment for segment in f"{settings.folder}/{name}".split("/") if segment]
    return with_md("/".join(segments))


def parse_time(raw: str, zone: tzinfo) -> float | None:
    """A date or time in ISO 8601 as seconds since 1970, in this zone where it names none; None for anything else."""
    try:
        moment = datetime.fromisoformat(raw)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def fill_template(text: str, *, title: str, moment: datetime) -> str:
    """A template with `{{title}}`, `{{date}}` and `{{time}}` filled in; the last two may give a format."""

    def filled(found: re.Match[str]) -> str:
        name = found["name"].lower()
        if name == "title":
            return title if found["format"] is None else found[0]
        return format_moment(found["format"] or {"date": "YYYY-MM-DD", "time": "HH:mm"}[name], moment)

    return _FIELD.sub(filled, text)


def format_moment(form: str, moment: datetime) -> str:
    """`moment` in a Moment.js format, as the English locale writes it."""
    form = _LONG_TOKEN.sub(lambda found: _LONG.get(found[0], found[0]), form)
    return _TOKEN.sub(lambda found: _piece(found, moment), form)


def _piece(found: re.Match[str], moment: datetime) -> str:
    if found["token"] is None:
        return found["text"] or found["escaped"] or found["other"] or ""
    token = found["token"]
    if token[0] == "S":
        return f"{moment.microsecond:06d}000"[: len(token)]
    return _WRITTEN[token](moment)


# ---- tokens -------------------------------------------------------------------------------------------


def _ordinal(number: int) -> str:
    if number % 100 // 10 == 1:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _year_day(moment: datetime) -> int:
    return moment.timetuple().tm_yday


def _weekday(moment: datetime) -> int:
    """Sunday is 0."""
    return moment.isoweekday() % 7


def _week(moment: datetime) -> tuple[int, int]:
    """Year and number of the week, which begins on Sunday; the first week is the one with January 1st."""
    week = floor((_year_day(moment) - _week_offset(moment.year) - 1) / 7) + 1
    if week > _weeks(moment.year):
        return moment.year + 1, week - _weeks(moment.year)
    return moment.year, week


def _week_offset(year: int) -> int:
    """Days from January 1st back to the beginning of its week, as a negative number."""
    following = year + 399 if year < 400 else year - 1  # weekdays repeat every 400 years; year 0 has no datetime
    return -((datetime(following, 12, 31).isoweekday() + 1) % 7)


def _weeks(year: int) -> int:
    return (365 + isleap(year) - _week_offset(year) + _week_offset(year + 1)) // 7


def _zone(moment: datetime, colon: str) -> str:
    offset = moment.utcoffset()
    minutes = round(offset.total_seconds() / 60) if offset else 0
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{colon}{abs(minutes) % 60:02d}"


def _instant(moment: datetime) -> float:
    """Seconds since 1970; a moment without a zone is in UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _twelve(moment: datetime) -> int:
    return moment.hour % 12 or 12


_WRITTEN: dict[str, Callable[[datetime], str]] = {
    "M": lambda m: str(m.month),
    "Mo": lambda m: _ordinal(m.month),
    "MM": lambda m: f"{m.month:02d}",
    "MMM": lambda m: _MONTHS[m.month - 1][:3],
    "MMMM": lambda m: _MONTHS[m.month - 1],
    "D": lambda m: str(m.day),
    "Do": lambda m: _ordinal(m.day),
    "DD": lambda m: f"{m.day:02d}",
    "DDD": lambda m: str(_year_day(m)),
    "DDDo": lambda m: _ordinal(_year_day(m)),
    "DDDD": lambda m: f"{_year_day(m):03d}",
    "d": lambda m: str(_weekday(m)),
    "do": lambda m: _ordinal(_weekday(m)),
    "dd": lambda m: _DAYS[_weekday(m)][:2],
    "ddd": lambda m: _DAYS[_weekday(m)][:3],
    "dddd": lambda m: _DAYS[_weekday(m)],
    "e": lambda m: str(_weekday(m)),
    "E": lambda m: str(m.isoweekday()),
    "w": lambda m: str(_week(m)[1]),
    "wo": lambda m: _ordinal(_week(m)[1]),
    "ww": lambda m: f"{_week(m)[1]:02d}",
    "W": lambda m: str(m.isocalendar().week),
    "Wo": lambda m: _ordinal(m.isocalendar().week),
    "WW": lambda m: f"{m.isocalendar().week:02d}",
    "Q": lambda m: str((m.month + 2) // 3),
    "Qo": lambda m: _ordinal((m.month + 2) // 3),
    "Y": lambda m: f"{m.year:04d}",
    "YY": lambda m: f"{m.year % 100:02d}",
    "YYYY": lambda m: f"{m.year:04d}",
    "YYYYY": lambda m: f"{m.year:05d}",
    "YYYYYY": lambda m: f"+{m.year:06d}",
    "y": lambda m: str(m.year),
    "yo": lambda m: _ordinal(m.year),
    "yy": lambda m: f"{m.year:02d}",
    "yyy": lambda m: f"{m.year:03d}",
    "yyyy": lambda m: f"{m.year:04d}",
    "N": lambda m: "AD",
    "NN": lambda m: "AD",
    "NNN": lambda m: "AD",
    "NNNN": lambda m: "Anno Domini",
    "NNNNN": lambda m: "AD",
    "gg": lambda m: f"{_week(m)[0] % 100:02d}",
    "gggg": lambda m: f"{_week(m)[0]:04d}",
    "ggggg": lambda m: f"{_week(m)[0]:05d}",
    "GG": lambda m: f"{m.isocalendar().year % 100:02d}",
    "GGGG": lambda m: f"{m.isocalendar().year:04d}",
    "GGGGG": lambda m: f"{m.isocalendar().year:05d}",
    "a": lambda m: "am" if m.hour < 12 else "pm",
    "A": lambda m: "AM" if m.hour < 12 else "PM",
    "H": lambda m: str(m.hour),
    "HH": lambda m: f"{m.hour:02d}",
    "h": lambda m: str(_twelve(m)),
    "hh": lambda m: f"{_twelve(m):02d}",
    "k": lambda m: str(m.hour or 24),
    "kk": lambda m: f"{m.hour or 24:02d}",
    "m": lambda m: str(m.minute),
    "mm": lambda m: f"{m.minute:02d}",
    "s": lambda m: str(m.second),
    "ss": lambda m: f"{m.second:02d}",
    "hmm": lambda m: f"{_twelve(m)}{m.minute:02d}",
    "hmmss": lambda m: f"{_twelve(m)}{m.minute:02d}{m.second:02d}",
    "Hmm": lambda m: f"{m.hour}{m.minute:02d}",
    "Hmmss": lambda m: f"{m.hour}{m.minute:02d}{m.second:02d}",
    "x": lambda m: str(floor(_instant(m) * 1000)),
    "X": lambda m: str(floor(_instant(m))),
    "z": lambda m: m.tzname() or "",
    "zz": lambda m: m.tzname() or "",
    "Z": lambda m: _zone(m, ":"),
    "ZZ": lambda m: _zone(m, ""),
}
