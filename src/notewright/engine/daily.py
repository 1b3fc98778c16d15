"""Daily notes: which note is today's, as the workspace's own settings say."""

from datetime import date, datetime

from notewright.engine.changes.combined import Edited
from notewright.engine.read import exists
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, edit_note, existing_spelling
from notewright.errors import Exists, Invalid, NotFound, Problem
from notewright.notes.daily import DailySettings, daily_path, fill_template, parse_daily_settings
from notewright.notes.edits.edit import Append, Edit, apply
from notewright.notes.edits.sections import AppendToSection
from notewright.notes.path import NotePath, with_md

SETTINGS = NotePath(".obsidian/daily-notes.json")
DEFAULT = DailySettings(folder="daily", format="YYYY-MM-DD", template="")


def today(ws: Workspace) -> date:
    """The date in the workspace's timezone."""
    return now(ws).date()


def now(ws: Workspace) -> datetime:
    return datetime.fromtimestamp(ws.clock(), ws.timezone)


def parse_date(raw: str) -> date:
    """A real `YYYY-MM-DD`, or Invalid."""
    try:
        parsed = date.fromisoformat(raw)
    except ValueError:
        parsed = None
    if parsed is None or parsed.isoformat() != raw:
        raise Invalid(f"{raw!r} is not a date", hint="write it as YYYY-MM-DD", what="date")
    return parsed


def read_settings(ws: Workspace) -> DailySettings:
    """Obsidian's own daily-note settings where the vault has them, else `daily/YYYY-MM-DD.md`."""
    try:
        return parse_daily_settings(ws.store.read(SETTINGS, hidden=True).data.decode(errors="replace")) or DEFAULT
    except Problem:
        return DEFAULT


def find_daily_path(ws: Workspace, day: date) -> NotePath:
    """The path of a day's note, with existing folders in their own spelling."""
    path = NotePath.parse(daily_path(read_settings(ws), datetime(day.year, day.month, day.day)))
    return path if path.is_hidden else existing_spelling(ws, path)


def fill_daily_template(ws: Workspace, path: NotePath, day: date) -> str:
    """The template filled in for a day and the current time, for a new daily note; "" without a template."""
    template = read_settings(ws).template.strip().strip("/")
    if not template:
        return ""
    try:
        place = NotePath.parse(with_md(template))
        if not ws.access.sees(place):
            return ""
        text = ws.store.read(place).data.decode(errors="replace")
    except (NotFound, Invalid):
        return ""
    return fill_template(text, title=path.stem, moment=datetime.combine(day, now(ws).timetz()))


def append_daily(ws: Workspace, day: date, text: str, section: str | None = None) -> Edited:
    """Append to a day's note, under a heading if given; note (from the template) and heading are made if missing."""
    path = find_daily_path(ws, day)
    edit: Edit = AppendToSection(section, text, create=2) if section else Append(text)
    if exists(ws, path):
        return edit_note(ws, path, [edit], summary=f"appended to {path}")
    initial = fill_daily_template(ws, path, day)
    whole = apply(initial, edit, path)
    try:
        made = create(ws, path, whole.encode(), summary=f"created {path}")
    except Exists:
        return edit_note(ws, path, [edit], summary=f"appended to {path}")
    return Edited(path, "", whole, made.version, made.change_id)
