"""The forms of what the API takes and gives, as JSON Schema: requests are held to them, and OpenAPI is made of them."""

from collections.abc import Mapping
from typing import Any

from notewright.surfaces.schema import field, flag

Schema = Mapping[str, Any]
WHOLE = 1 << 53  # what every reader of JSON can count to


def text(about: str = "", *, most: int = 1000, least: int = 0) -> Schema:
    return field("string", about, maxLength=most, **({"minLength": least} if least else {}))


def number(about: str = "", *, least: int = 0, most: int = WHOLE) -> Schema:
    return field("integer", about, minimum=least, maximum=most)


def choice(*words: str) -> Schema:
    return {"enum": list(words)}


def many(items: Schema, about: str = "", *, most: int | None = None, least: int = 0) -> Schema:
    bounds = ({"maxItems": most} if most else {}) | ({"minItems": least} if least else {})
    return field("array", about, items=items, **bounds)


def maybe(shape: Schema) -> Schema:
    """The same, or null."""
    if "enum" in shape:
        return {**shape, "enum": [*shape["enum"], None]}
    kind = shape.get("type")
    return {**shape, "type": [kind, "null"]} if isinstance(kind, str) else {"anyOf": [shape, {"type": "null"}]}


def given(required: str = "", /, **properties: Schema) -> Schema:
    """An object that we take: nothing else may be in it."""
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return shape | ({"required": required.split()} if required else {})


def told(optional: str = "", /, **properties: Schema) -> Schema:
    """An object that we give: everything is in it but what is optional."""
    missing = optional.split()
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in missing],
        "additionalProperties": False,
    }


def fill(shape: Schema, value: object, **made: Any) -> dict[str, Any]:
    """An answer of this form: what is not given by name is the value's attribute of that name."""
    names = (name for name in shape["properties"] if name in made or name in shape["required"])
    return {name: made[name] if name in made else getattr(value, name) for name in names}


NOTHING = given()
TIME = text("RFC 3339, in UTC", most=40)
SINCE = text("YYYY-MM-DD in the workspace's timezone, or RFC 3339", most=40, least=1)
CURSOR = text("Where the page before ended", most=80)
NEXT = maybe(text("For the next page; null on the last"))
PATH = text("Of a note, as in Folder/Note.md", most=4096)
DRY_RUN = flag("Only say what would happen")

PROBLEM = told(
    error=told(
        code=text("One word: not_found, invalid, conflict, forbidden, …"),
        message=text("What is wrong"),
        hint=text("What to do"),
    )
)

SETTINGS: Mapping[str, Schema] = {
    "timezone": text("What a day is, as in Europe/Lisbon", most=100, least=1),
    "read_only": flag("Take no writes"),
    "hide": many(text(most=1000, least=1), "Globs of what is absent from every answer", most=100),
    "write_under": many(text(most=1000, least=1), "Globs of where alone writing is allowed", most=100, least=1),
    "max_file_size": number("Bytes one note may have", least=1),
    "quota_files": number("Files the workspace may have"),
    "quota_bytes": number("Bytes the workspace may have"),
}
NAME = text("What people call it", most=200, least=1)
CHANGES = {name: maybe(shape) for name, shape in SETTINGS.items()}

WORKSPACE = told(
    "location hide write_under max_file_size quota_files quota_bytes added changed available notes",
    id=text("As it stands in addresses; never changes"),
    name=text("What people call it"),
    timezone=text(),
    read_only=flag("For whom asks"),
    notes=maybe(number("That whom asks may see; null while that is not known")),
    location=text("For owners, as everything below"),
    added=flag("Served because an owner added it, not because the configuration names it"),
    changed=many(text(), "What an owner changed"),
    available=flag("False where its folder cannot be opened now"),
    **{name: maybe(SETTINGS[name]) for name in SETTINGS if name not in ("timezone", "read_only")},
)

LINK = told(
    source=PATH,
    line=number(),
    path=maybe(text("Where it leads, or the note it stands in")),
    target=text("As written", most=100_000),
    kind=text(),
    status=choice("ok", "broken", "ambiguous"),
    text=text("The line it stands in", most=100_000),
)
BACKLINK = told(path=PATH, line=number(), text=text(most=100_000))
HEADING = told(text=text(most=100_000), level=number(), line=number())
NOTE = told(
    path=PATH,
    version=text("Another one after every change"),
    text=text(most=WHOLE),
    exact=flag("False where the file is not UTF-8 and is shown with U+FFFD"),
    size=number("Bytes"),
    created=TIME,
    modified=TIME,
    properties={"type": "object", "description": "Of the frontmatter"},
    headings=many(HEADING),
    tags=many(text()),
    backlinks=maybe(many(BACKLINK, "The first of them; null while the index is being built")),
    backlinks_cut=flag("There are more: /links shows them"),
)
LISTED_NOTE = told(path=PATH, title=text(most=100_000), version=text(), size=number(), modified=TIME)
HIT = told(
    path=PATH,
    title=text(most=100_000),
    heading=maybe(text(most=100_000)),
    line=number(),
    snippet=text(most=100_000),
    modified=TIME,
)
FINDING = told(kind=text(), path=text(most=100_000), line=maybe(number()), message=text(most=100_000))
CHANGE = told(
    id=text(),
    at=TIME,
    user=text(most=100_000),
    client=text(most=100_000),
    surface=text(),
    tool=text(),
    summary=text(most=100_000),
    files=many(PATH),
    undoes=many(text()),
    undone_by=maybe(text()),
)
DIFFERENCE = told(
    path=PATH,
    kind=choice("created", "changed", "deleted", "moved"),
    source=maybe(PATH),
    lines=many(text(most=WHOLE), "Of a unified diff"),
    cut=flag("There were more lines"),
    why=text("Why there are no lines"),
)
UNDONE = told(
    "diff",
    undone=many(text(), "Ids of changes"),
    dry_run=flag(),
    files=many(PATH),
    kept=many(PATH, "Files in which later changes stay"),
    change=maybe(text("Takes the undo back")),
    diff=many(DIFFERENCE, "What would happen, in a dry run"),
)
TOKEN = told(
    "token",
    name=text(),
    good=flag(),
    workspaces=maybe(many(text(), "Ids; null is all")),
    surfaces=maybe(many(text(), "Null is all")),
    read_only=flag(),
    hide=many(text()),
    write_under=many(text()),
    created=TIME,
    expires=maybe(TIME),
    revoked=maybe(TIME),
    last_used=maybe(TIME),
    token=text("The secret: shown here once and never again"),
)
NEW_TOKEN = given(
    "name",
    name=text("Whom it is for; shown in the history", most=64, least=1),
    workspaces=many(text(most=200, least=1), "Ids or names; without it, all", most=100, least=1),
    surfaces=many(text(most=50, least=1), "Without it, all", most=20, least=1),
    read_only=flag(),
    hide=many(text(most=1000, least=1), most=100),
    write_under=many(text(most=1000, least=1), "Without it, everywhere", most=100, least=1),
    expires=maybe(text("RFC 3339, a date, or a span to come: 90d, 12h", most=40, least=1)),
)
ME = told(
    user=text(most=100_000),
    kind=choice("local", "token", "oauth"),
    owner=flag("May change workspaces and tokens"),
    read_only=flag(),
    workspaces=many(text(), "Ids of those you may use"),
    surfaces=maybe(many(text(), "Null is all")),
)
REBUILD = told(
    status=choice("idle", "running", "done", "failed"),
    notes_indexed=maybe(number("Null for others than owners where notes are hidden")),
    total=maybe(number("While it runs")),
    errors=many(told(path=text(most=100_000), message=text(most=100_000)), "Notes that are served only in part"),
    message=text("Why it failed"),
    began=maybe(TIME),
    ended=maybe(TIME),
)
BACKUP = told(
    success=flag(),
    filesBackedUp=number(),
    filesSkipped=number("Not changed since the backup before"),
    totalBytes=number("Copied"),
    errors=many(text(most=100_000)),
    date=text(),
    removed=many(text(), "Days that were removed"),
)
LISTED_BACKUP = told(
    date=text(),
    made=TIME,
    files=number(),
    size=number("Bytes"),
    workspaces=many(text()),
    errors=many(text(most=100_000)),
)
BACKUPS = told(backups=many(LISTED_BACKUP))
IMPORTED = told(
    created=many(PATH),
    replaced=many(PATH),
    unchanged=many(PATH),
    skipped=many(told(path=text(most=100_000), reason=text(), words=text(most=100_000))),
    changes=many(text(), "What takes it back"),
    dry_run=flag(),
)
