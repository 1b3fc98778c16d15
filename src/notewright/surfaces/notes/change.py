"""The tools of `notes` that change something. Each answer ends with the line that takes it back."""

from collections.abc import Callable, Sequence

from notewright.engine.changes.combined import Edited
from notewright.engine.changes.history import UndoResult, undo_since
from notewright.engine.changes.history import undo as undo_change
from notewright.engine.changes.plan import Drop
from notewright.engine.daily import append_daily, find_daily_path, parse_date, today
from notewright.engine.move import RenameReport, find_nearest_tags, find_tagged, rename_heading, rename_tag
from notewright.engine.move import move as move_note
from notewright.engine.read import exists, find_folder, read
from notewright.engine.workspace import Workspace
from notewright.engine.write import create, edit_note, existing_spelling, new_path, overwrite
from notewright.engine.write import delete as delete_note
from notewright.errors import Ambiguous, Conflict, Invalid, NotFound
from notewright.notes.edits.edit import Append, Edit, InsertAtLine, Prepend, Replace
from notewright.notes.edits.properties import AddTag, RemoveProperty, RemoveTag, SetProperty
from notewright.notes.edits.sections import AppendToSection, DeleteSection, PrependToSection, ReplaceSection
from notewright.notes.path import NotePath, with_md, without_md
from notewright.surfaces.arguments import MAX_PATH_CHARS, NamedPath, Places, parse_since
from notewright.surfaces.base import Args, Call
from notewright.surfaces.notes import render as words
from notewright.surfaces.notes import schema
from notewright.surfaces.notes.read import ask_each, find_shown_text, remember, show
from notewright.surfaces.schema import tool


def write(call: Call, args: Args) -> str:
    """Make a new note, or overwrite one whose version you read. Prefer edit for changes."""
    places = Places(call)
    ws, rest = places.split(args["path"])
    if not rest or args["path"].rstrip().endswith("/"):
        raise Invalid("path names a folder, not a note", hint="give the note a name, like Folder/Note", what="path")
    place = NamedPath(ws, NotePath.parse(with_md(rest.strip("/"))))
    with places.prefixing_problems(ws):
        _refuse_outer_blanks(place)
        if "version" in args:
            place = NamedPath(ws, existing_spelling(ws, place.path))
            try:
                done = overwrite(ws, place.path, args["content"].encode(), seen=args["version"])
            except Conflict as conflict:
                raise _explain_conflict(call, place, args["version"], conflict) from None
        else:
            done = create(ws, new_path(ws, place.path), args["content"].encode())
    shown_path = places.show(ws, done.path)
    remember(call, NamedPath(ws, done.path), done.version, args["content"])
    if done.change_id is None:
        return f"{shown_path} already says that · version {words.cut_version(done.version)}\nNothing changed."
    verb = "Created" if done.created else "Overwrote"
    return f"{verb} {shown_path} · version {words.cut_version(done.version)}\n{words.format_undo(done.change_id)}"


def _refuse_outer_blanks(place: NamedPath) -> None:
    """Refuse a new name with a blank at either end: links could not name it, and trimmed it could be another note's."""
    name = without_md(place.path)
    if name != name.strip() and not (place.ws.access.sees(place.path) and exists(place.ws, place.path)):
        message = f"{name!r} cannot be a name: it begins or ends with a blank"
        raise Invalid(message, hint="leave the blanks out", what="path", path=place.path)


def _explain_conflict(call: Call, place: NamedPath, seen: str, conflict: Conflict) -> Conflict:
    """The Conflict to raise: with a diff, if the text that the caller saw is still known."""
    path, current = place.path, conflict.details.get("current")
    if current is None:
        return Conflict(f"{path} is not there", hint="leave out version to create it", path=path)
    seen = words.shorten(seen, 70)
    message = f"{path} changed since version {seen}: it is now {words.cut_version(current)}"
    old, new = find_shown_text(call, place, seen), read(place.ws, path).text
    remember(call, place, current, new)
    hint = "read it again, then repeat the change"
    if old is None:
        return Conflict(message, hint=hint, path=path)
    return Conflict(message, hint=f"{hint}. What changed", path=path, lines=tuple(words.format_diff(old, new)))


def edit(call: Call, args: Args) -> str:
    """Change parts of a note, all or none, in order. Each edit is one of {replace, with, all?}, {append},
    {prepend}, {section, with|append|prepend}, {section, delete: true}, {before|after: line, insert}. Answers a
    diff."""
    places = Places(call)
    place = places.locate(args["path"])
    edits = [parse_edit(one, number) for number, one in enumerate(args["edits"], 1)]
    with places.prefixing_problems(place.ws):
        try:
            done = edit_note(place.ws, place.path, edits, seen=args.get("version"))
        except Conflict as conflict:
            if "version" not in args:
                raise
            raise _explain_conflict(call, place, args["version"], conflict) from None
    return _report_edit(call, place, done)


def _report_edit(call: Call, place: NamedPath, done: Edited, verb: str = "Edited") -> str:
    path = Places(call).show(place.ws, place.path)
    remember(call, place, done.version, done.after)
    version = words.cut_version(done.version)
    if done.change_id is None:
        return f"{path} already says that · version {version}\nNothing changed."
    lines = [f"{verb} {path} · version {version}", *words.format_diff(done.before, done.after)]
    return words.fit_lines(lines, "history shows it", [words.format_undo(done.change_id)])


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


def parse_edit(given: Args, number: int) -> Edit:
    """One edit as the agent wrote it, as a value."""
    if given.get("delete") is False or ("all" in given and "replace" not in given):
        given = {key: value for key, value in given.items() if key not in ("delete", "all")}
    form = _FORMS.get(frozenset(given) - {"all"})
    if form is None:
        raise Invalid(f"edit {number} has {', '.join(given) or 'nothing'}", hint=schema.EDIT_FORMS, what="edits")
    if given.get("section", "").startswith("^"):
        hint = "replace its text, or insert before or after its line"
        raise Invalid(f"edit {number} names a block, and only sections can be edited whole", hint=hint, what="edits")
    return form(given)


def properties(call: Call, args: Args) -> str:
    """Show or change frontmatter properties and tags; other lines stay as they are."""
    places = Places(call)
    place = places.locate(args["path"])
    path = places.show(place.ws, place.path)
    if not place.path.is_note:
        raise Invalid(f"{path} is not a note, so it has no properties", hint="name a note", what="path")
    edits: list[Edit] = [SetProperty(key, value) for key, value in args.get("set", {}).items()]
    edits += [RemoveProperty(key) for key in args.get("remove", ())]
    edits += [AddTag(tag.removeprefix("#")) for tag in args.get("add_tags", ())]
    edits += [RemoveTag(tag.removeprefix("#")) for tag in args.get("remove_tags", ())]
    with places.prefixing_problems(place.ws):
        if edits:
            done = edit_note(place.ws, place.path, edits, summary=f"properties of {place.path}")
            return _report_edit(call, place, done)
        reading = read(place.ws, place.path)
    remember(call, place, reading.version, reading.text)
    front = reading.note.frontmatter
    if front.problem:
        raise Invalid(f"the frontmatter of {path} cannot be read: {front.problem}", hint="fix it with edit")
    count = words.pluralize(len(front.properties), "property", "properties")
    lines = [
        f"{words.to_one_line(key, 200)}: {words.shorten(words.format_value(value), 2000)}"
        for key, value in front.properties.items()
    ]
    head = f"{path} · version {words.cut_version(reading.version)} · {count}"
    return words.fit_lines([head, *lines], "read the note")


def move(call: Call, args: Args) -> str:
    """Rename or move a note, attachment or folder, or rename a tag or heading in all notes; every link to it is
    rewritten in the same step."""
    places = Places(call)
    raw: str = args["from"]
    if max(len(raw), len(args["to"])) > MAX_PATH_CHARS:
        message = f"from and to may have {MAX_PATH_CHARS} characters at most"
        raise Invalid(message, hint="give shorter ones", what="from")
    if _is_tag(places, raw):
        return _rename_tag(places, args)
    try:
        ws, old = _locate_movable(places, raw)
    except (NotFound, Invalid):
        if "#" not in raw:
            raise
        return _rename_heading(places, args)
    target_ws, new = places.split(args["to"])
    if target_ws.id != ws.id:
        raise Invalid("notes cannot move between workspaces", hint="write it there and delete it here", what="to")
    new = new.strip().strip("/") + "/" * (not new or args["to"].rstrip().endswith("/"))
    dry_run = args.get("dry_run", False)
    with places.prefixing_problems(ws):
        report = move_note(ws, old, new, dry_run=dry_run)
    first = words.describe_move(report, (places.show(ws, report.old), places.show(ws, report.new)), dry_run)
    return _report_move(places, ws, first, report, "link", dry_run)


def _report_move(places: Places, ws: Workspace, first: str, report: RenameReport, thing: str, dry_run: bool) -> str:
    """The outcome, each file with how much changed in it, and the undo line."""
    counts = sorted((path, count) for path, count in report.files if count)
    lines = [first, *(f"{places.show(ws, path)}: {words.pluralize(count, thing)}" for path, count in counts)]
    last = [] if dry_run else [words.format_undo(report.change_id)]
    return words.fit_lines(lines, "history shows the whole change", last)


def _is_tag(places: Places, raw: str) -> bool:
    """Whether this is `#tag` or `Workspace/#tag`; a file whose name begins with `#` is named with its `.md`."""
    named = raw.strip()
    if places.several and not named.startswith("#"):
        try:
            named = places.split(named)[1]
        except NotFound:
            return False
    return named.startswith("#") and named[-3:].lower() != ".md"


def _rename_tag(places: Places, args: Args) -> str:
    ws, old = _locate_tag(places, args["from"].strip())
    new, dry_run = "#" + args["to"].strip().rpartition("/#")[2].lstrip("#"), args.get("dry_run", False)
    with places.prefixing_problems(ws):
        report = rename_tag(ws, old, new, dry_run=dry_run)
    first = words.describe_rename(report, f"{old} to {new}", "tag", dry_run)
    return _report_move(places, ws, first, report, "tag", dry_run)


def _locate_tag(places: Places, raw: str) -> tuple[Workspace, str]:
    """The workspace of a tag, the one named or else the one that has it, and the tag."""
    if not places.several or not raw.startswith("#"):
        return places.split(raw)
    having = [ws for ws in places.call.workspaces if find_tagged(ws, raw[1:])]
    if len(having) == 1:
        return having[0], raw
    if having:
        names = [f"{ws.name}/{raw}" for ws in having]
        message = f"{raw} is a tag in {len(having)} workspaces: {', '.join(names)}"
        raise Ambiguous(message, hint="give one of these", what="tag", candidates=names)
    near = [f"{ws.name}/#{tag}" for ws in places.call.workspaces for tag in find_nearest_tags(ws, raw[1:], 1)]
    hint = f"nearest: {', '.join(near[:3])}" if near else "there are no tags"
    raise NotFound(f"no note has the tag {raw}", hint=hint, what="tag", nearest=near[:3])


def _rename_heading(places: Places, args: Args) -> str:
    note, _, old = args["from"].partition("#")
    place, dry_run = places.locate(note), args.get("dry_run", False)
    new = args["to"].strip()
    if new.startswith(f"{note}#") and not new[len(note) + 1 :][:1].isspace():  # else a heading such as “C# basics”
        new = new[len(note) :]
    new = new.lstrip("#").strip()
    with places.prefixing_problems(place.ws):
        report = rename_heading(place.ws, place.path, old.strip(), new, dry_run=dry_run)
    what = f"the heading “{old.strip()}” of {places.show(place.ws, place.path)} to “{new}”"
    return _report_move(places, place.ws, words.describe_rename(report, what, "link", dry_run), report, "link", dry_run)


def _locate_movable(places: Places, raw: str) -> tuple[Workspace, NotePath]:
    """The note or attachment of this name, else the folder; `Projects/` is always the folder."""
    if raw.rstrip().endswith("/"):
        [(ws, folder)] = places.folders(raw) if raw.strip().strip("/") else [(places.call.workspace, "")]
        return ws, NotePath.parse(folder)
    try:
        place = places.locate(raw)
    except NotFound as missing:
        if "folder" not in missing.details:
            raise
        ws, rest = places.split(raw)
        return ws, NotePath(find_folder(ws, rest))
    return place.ws, place.path


def delete(call: Call, args: Args) -> str:
    """Move a note or attachment to the trash and say which notes link to it."""
    places = Places(call)
    try:
        place = places.locate(args["path"])
    except NotFound as missing:
        if "folder" not in missing.details:
            raise
        message = f"{args['path']} is a folder; notes and attachments are deleted"
        hint = "delete its notes one by one, or move it into an archive folder"
        raise Invalid(message, hint=hint, what="path") from None
    dry_run = args.get("dry_run", False)
    with places.prefixing_problems(place.ws):
        done = delete_note(place.ws, place.path, dry_run=dry_run)
    path, trash = places.show(place.ws, place.path), places.show(place.ws, done.trash or "")
    linked = [places.show(place.ws, source) for source in done.linked_from]
    verb = "Would delete" if dry_run else "Deleted"
    links = f"{words.pluralize(len(linked), 'note')} {'links' if len(linked) == 1 else 'link'} to it:"
    lines = [f"{verb} {path} (to {trash}); {links if linked else 'no note links to it.'}", *linked]
    return words.fit_lines(lines, "links shows them", [] if dry_run else [words.format_undo(done.change_id)])


def daily(call: Call, args: Args) -> str:
    """Read a day's note or append to it, under a heading if given; made from the user's template if missing."""
    places = Places(call)
    ws = call.find_workspace(args["workspace"]) if "workspace" in args else call.workspace
    date = args.get("date", "today")
    day = today(ws) if date == "today" else parse_date(words.shorten(date, 100))
    place = NamedPath(ws, find_daily_path(ws, day))
    is_there = ws.access.sees(place.path) and exists(ws, place.path)
    with places.prefixing_problems(ws):
        if "append" in args:
            done = append_daily(ws, day, args["append"], args.get("section"))
            return _report_edit(call, place, done, "Edited" if is_there else "Created")
        if not is_there:
            what = f"there is no note for {day.isoformat()} ({place.path})"
            raise NotFound(what, hint="append makes it", what="note", path=place.path)
        return show(call, place, read(ws, place.path), {"section": args["section"]} if "section" in args else {})


def undo(call: Call, args: Args) -> str:
    """Take back one change, or all of yours since a time, as one change; says what stands in the way."""
    if ("change" in args) == ("since" in args):
        raise Invalid("give either change or since", hint="history shows the ids", what="change")
    places, dry_run = Places(call), args.get("dry_run", False)

    def take_back(workspaces: Sequence[Workspace], dry_run: bool) -> list[tuple[Workspace, UndoResult]]:
        """Undo in every workspace where there is something to take back."""

        def take_back_in(ws: Workspace) -> UndoResult:
            with places.prefixing_problems(ws):
                if "change" in args:
                    return undo_change(ws, args["change"], dry_run=dry_run)
                since = parse_since(args["since"], ws.timezone)
                return undo_since(ws, since, client=call.actor.client, user=call.actor.user, dry_run=dry_run)

        return list(ask_each(workspaces, take_back_in))

    done = take_back(call.workspaces, dry_run=True)  # all are tried dry before the first is touched
    if not dry_run:
        done = take_back([ws for ws, _ in done], dry_run=False)
    lines, last = [], []
    for ws, one in done:
        steps = [step for step in one.plan.steps if ws.access.sees(step.path)]
        verb = "Would take back" if dry_run else "Took back"
        count = len(one.changes)
        what = f"“{one.changes[0].summary}”" if count == 1 else words.pluralize(count, "change")
        lines.append(f"{verb} {words.shorten(what, 500)} in {words.pluralize(len(steps), 'file')}:")
        kept = {each.path: each for each in one.kept}
        for step in steps:
            later = kept.get(step.path)
            outcome = "is deleted again"
            if not isinstance(step, Drop):
                outcome = "is back" if step.old is None else "is as before"
                if later is not None:
                    outcome += f", but for later changes, which were kept{':' if later.lines else ''}"
            lines.append(f"{places.show(ws, step.path)} {outcome}")
            lines += words.format_diff_lines(later) if later is not None else []
        last += [words.format_undo(one.done.id)] if one.done else []
    return words.fit_lines(lines, "history shows each change", last)


DESTRUCTIVE = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False}
SAFE = {**DESTRUCTIVE, "destructiveHint": False}
TOOLS = (
    tool("write", write, schema.WRITE, DESTRUCTIVE),
    tool("edit", edit, schema.EDIT, DESTRUCTIVE),
    tool("properties", properties, schema.PROPERTIES, {**SAFE, "idempotentHint": True}),
    tool("move", move, schema.MOVE, SAFE),
    tool("delete", delete, schema.DELETE, DESTRUCTIVE),
    tool("daily", daily, schema.DAILY, SAFE),
    tool("undo", undo, schema.UNDO, DESTRUCTIVE),
)
