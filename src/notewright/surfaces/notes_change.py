"""The tools of `notes` that change something. Each answer ends with the line that takes it back."""

import json
from collections.abc import Callable, Sequence

from notewright import engine
from notewright.engine import Workspace
from notewright.errors import Conflict, Invalid, NotFound
from notewright.notes import (
    AddTag,
    Append,
    AppendToSection,
    DeleteSection,
    Edit,
    InsertAtLine,
    NotePath,
    Prepend,
    PrependToSection,
    RemoveProperty,
    RemoveTag,
    Replace,
    ReplaceSection,
    SetProperty,
    with_md,
)
from notewright.surfaces import notes_schema as schema
from notewright.surfaces import notes_words as words
from notewright.surfaces.base import Args, Call, Tool
from notewright.surfaces.places import Places, since_time


def write(call: Call, args: Args) -> str:
    places = Places(call)
    ws, rest = places.split(args["path"])
    path = NotePath.parse(with_md(rest)) if rest else NotePath.parse(rest)
    data = args["content"].encode()
    if "version" in args:
        path = engine.spelled(ws, path)
        try:
            done = engine.overwrite(ws, path, data, seen=args["version"])
        except Conflict as conflict:
            raise _what_changed(places, ws, path, args["version"], conflict) from None
    else:
        done = engine.create(ws, engine.new_path(ws, path), data)
    shown = places.show(ws, done.path)
    verb = "Created" if done.created else "Overwrote" if done.change_id else "Already so:"
    return f"{verb} {shown} · version {words.version(done.version)}\n{words.undo_line(done.change_id)}"


def _what_changed(places: Places, ws: Workspace, path: NotePath, seen: str, conflict: Conflict) -> Conflict:
    """A refusal with what is different now, if we still have what the caller saw."""
    shown, current = places.show(ws, path), conflict.details.get("current")
    if current is None:
        return Conflict(f"{shown} is not there", hint="leave out version to create it")
    old = engine.kept_text(ws, path, seen)
    if old is None:
        return Conflict(f"{shown} changed since version {seen}", hint="read it again, then repeat the change")
    new = engine.read(ws, path).text
    changed = "\n".join(words.diff(old, new))
    return Conflict(
        f"{shown} changed since version {seen}; it is now {words.version(current)}:\n{changed}",
        hint="read it again, then repeat the change",
    )


def edit(call: Call, args: Args) -> str:
    places = Places(call)
    place = places.locate(args["path"])
    edits = [edit_of(one, number) for number, one in enumerate(args["edits"], 1)]
    try:
        done = engine.edit_note(place.ws, place.path, edits, seen=args.get("version"))
    except Conflict as conflict:
        if "version" not in args:
            raise
        raise _what_changed(places, place.ws, place.path, args["version"], conflict) from None
    shown = places.show(place.ws, place.path)
    return _edited(shown, done)


def _edited(shown: str, done: engine.Edited) -> str:
    if done.change_id is None:
        return f"{shown} is so already · version {words.version(done.version)}\nNothing changed."
    lines = [f"Edited {shown} · version {words.version(done.version)}", *words.diff(done.before, done.after)]
    return "\n".join([*lines, words.undo_line(done.change_id)])


_FORMS: dict[frozenset[str], Callable[[Args], Edit]] = {
    frozenset({"append"}): lambda e: Append(e["append"]),
    frozenset({"prepend"}): lambda e: Prepend(e["prepend"]),
    frozenset({"replace", "with"}): lambda e: Replace(e["replace"], e["with"], "all" if e.get("all") else "only"),
    frozenset({"section", "with"}): lambda e: ReplaceSection(e["section"], e["with"]),
    frozenset({"section", "append"}): lambda e: AppendToSection(e["section"], e["append"]),
    frozenset({"section", "prepend"}): lambda e: PrependToSection(e["section"], e["prepend"]),
    frozenset({"section", "delete"}): lambda e: DeleteSection(e["section"]),
    frozenset({"before", "insert"}): lambda e: InsertAtLine(e["before"], e["insert"]),
    frozenset({"after", "insert"}): lambda e: InsertAtLine(e["after"], e["insert"], after=True),
}


def edit_of(given: Args, number: int) -> Edit:
    """One edit as the agent wrote it, as a value."""
    if given.get("delete") is False or ("all" in given and "replace" not in given):
        given = {key: value for key, value in given.items() if key not in ("delete", "all")}
    form = _FORMS.get(frozenset(given) - {"all"})
    if form is None:
        raise Invalid(
            f"edit {number} has {', '.join(given) or 'nothing'}",
            hint="use one of {replace, with}, {append}, {prepend}, {section, with|append|prepend}, "
            "{section, delete: true}, {before|after, insert}",
            what="edits",
        )
    return form(given)


def properties(call: Call, args: Args) -> str:
    places = Places(call)
    place = places.locate(args["path"])
    shown = places.show(place.ws, place.path)
    edits: list[Edit] = [SetProperty(key, value) for key, value in args.get("set", {}).items()]
    edits += [RemoveProperty(key) for key in args.get("remove", ())]
    edits += [AddTag(tag.removeprefix("#")) for tag in args.get("add_tags", ())]
    edits += [RemoveTag(tag.removeprefix("#")) for tag in args.get("remove_tags", ())]
    if edits:
        return _edited(shown, engine.edit_note(place.ws, place.path, edits, summary=f"properties of {place.path}"))
    reading = engine.read(place.ws, place.path)
    front = reading.note.frontmatter
    if front.problem:
        raise Invalid(f"the frontmatter of {shown} cannot be read: {front.problem}", hint="mend it with edit")
    count = len(front.properties)
    said = "1 property" if count == 1 else f"{count} properties"
    lines = [f"{shown} · version {words.version(reading.version)} · {said}"]
    return words.bounded([*lines, *(f"{key}: {_value(value)}" for key, value in front.properties.items())], "read it")


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def move(call: Call, args: Args) -> str:
    places = Places(call)
    ws, old = _movable(places, args["from"])
    target_ws, new = _target(places, ws, args["to"])
    if target_ws.id != ws.id:
        raise Invalid("notes cannot move between workspaces", hint="write it there and delete it here", what="to")
    dry_run = args.get("dry_run", False)
    report = engine.move(ws, old, new, dry_run=dry_run)
    shown = places.show(ws, report.old), places.show(ws, report.new)
    files = [(places.show(ws, path), count) for path, count in report.files]
    lines = [*words.moved(report, shown, files, dry_run)]
    return "\n".join(lines if dry_run else [*lines, words.undo_line(report.change_id)])


def _movable(places: Places, raw: str) -> tuple[Workspace, NotePath]:
    """A folder if one is named so, else a note or attachment."""
    try:
        ws, rest = places.split(raw)
        return ws, NotePath(engine.folder_path(ws, rest)) if rest else NotePath.parse(rest)
    except NotFound:
        place = places.locate(raw)
        return place.ws, place.path


def _target(places: Places, ws: Workspace, raw: str) -> tuple[Workspace, str]:
    into = raw.rstrip().endswith("/")
    try:
        target_ws, rest = places.split(raw)
    except NotFound:
        target_ws, rest = ws, raw.strip().strip("/")
    return target_ws, rest + "/" if into and rest else rest or "/"


def delete(call: Call, args: Args) -> str:
    places = Places(call)
    place = places.locate(args["path"])
    dry_run = args.get("dry_run", False)
    done = engine.delete(place.ws, place.path, dry_run=dry_run)
    shown = places.show(place.ws, place.path)
    verb = "Would delete" if dry_run else "Deleted"
    lines = [f"{verb} {shown} (to {done.trash}); {_linked(places, place.ws, done.linked_from)}"]
    return "\n".join(lines if dry_run else [*lines, words.undo_line(done.change_id)])


def _linked(places: Places, ws: Workspace, sources: Sequence[NotePath]) -> str:
    if not sources:
        return "no note links to it."
    shown = ", ".join(places.show(ws, path) for path in sources[:20])
    more = f" and {len(sources) - 20} more" if len(sources) > 20 else ""
    return f"{words.amount(len(sources), 'note')} {'links' if len(sources) == 1 else 'link'} to it: {shown}{more}."


def daily(call: Call, args: Args) -> str:
    places = Places(call)
    ws = call.named(args["workspace"]) if "workspace" in args else call.workspace
    asked = args.get("date", "today")
    day = engine.today(ws) if asked == "today" else engine.parse_date(asked)
    path = engine.daily_note(ws, day)
    if "append" not in args:
        return _daily_read(places, ws, path, args.get("section"))
    done = engine.append_daily(ws, path, args["append"], args.get("section"))
    return _edited(places.show(ws, path), done)


def _daily_read(places: Places, ws: Workspace, path: NotePath, section: str | None) -> str:
    shown = places.show(ws, path)
    if not engine.exists(ws, path):
        raise NotFound(f"there is no note for that day ({shown})", hint="append makes it", what="note", path=path)
    reading = engine.read(ws, path)
    start, end = engine.section_span(reading.note, section) if section else (0, len(reading.text))
    head = words.header(shown, reading, reading.text.count("\n") + 1)
    return words.bounded([head, *reading.text[start:end].splitlines()], "read it by section or lines")


def undo(call: Call, args: Args) -> str:
    if ("change" in args) == ("since" in args):
        raise Invalid("give either change or since", hint="history shows the ids", what="change")
    places, dry_run = Places(call), args.get("dry_run", False)
    done: list[tuple[Workspace, engine.Undone]] = []
    problem: NotFound | None = None
    for ws in call.workspaces:
        try:
            done.append((ws, _undone(call, ws, args, dry_run)))
        except NotFound as missing:
            problem = missing
    if not done:
        raise problem or NotFound("there is nothing to take back", what="change")
    lines = []
    for ws, one in done:
        paths = list(dict.fromkeys(step.path for step in one.plan.steps if ws.access.sees(step.path)))
        verb = "Would take back" if dry_run else "Took back"
        lines.append(f"{verb} {words.amount(len(one.changes), 'change')} in {words.amount(len(paths), 'file')}:")
        lines += [places.show(ws, path) for path in paths[:100]]
        lines += [words.undo_line(one.done.id)] if one.done else []
    return words.bounded(lines, "history shows each change")


def _undone(call: Call, ws: Workspace, args: Args, dry_run: bool) -> engine.Undone:
    if "change" in args:
        return engine.undo(ws, args["change"], dry_run=dry_run)
    since = since_time(args["since"], ws.timezone)
    return engine.undo_since(ws, since, client=call.actor.client, user=call.actor.user, dry_run=dry_run)


DESTRUCTIVE = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False}
SAFE = {**DESTRUCTIVE, "destructiveHint": False}
IDEMPOTENT = {**SAFE, "idempotentHint": True}
TOOLS = (
    Tool("write", schema.DESCRIPTIONS["write"], schema.WRITE, write, DESTRUCTIVE),
    Tool("edit", schema.DESCRIPTIONS["edit"], schema.EDIT, edit, DESTRUCTIVE),
    Tool(
        "properties", schema.DESCRIPTIONS["properties"], schema.PROPERTIES, properties, {**SAFE, "idempotentHint": True}
    ),
    Tool("move", schema.DESCRIPTIONS["move"], schema.MOVE, move, SAFE),
    Tool("delete", schema.DESCRIPTIONS["delete"], schema.DELETE, delete, DESTRUCTIVE),
    Tool("daily", schema.DESCRIPTIONS["daily"], schema.DAILY, daily, SAFE),
    Tool("undo", schema.DESCRIPTIONS["undo"], schema.UNDO, undo, DESTRUCTIVE),
)
