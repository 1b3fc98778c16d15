"""The forms of requests and answers, as JSON Schema: requests are validated by them, and OpenAPI shows them."""

from collections.abc import Mapping
from typing import Any

from notewright.surfaces.schema import field, flag

Schema = Mapping[str, Any]
MAX_INTEGER = 1 << 53  # that every reader of JSON keeps exact


def text(about: str = "", *, most: int = 1000, least: int = 0) -> Schema:
    return field("string", about, maxLength=most, **({"minLength": least} if least else {}))


def number(about: str = "", *, least: int = 0, most: int = MAX_INTEGER) -> Schema:
    return field("integer", about, minimum=least, maximum=most)


def choice(*words: str) -> Schema:
    return {"enum": list(words)}


def array(items: Schema, about: str = "", *, most: int | None = None, least: int = 0) -> Schema:
    bounds = ({"maxItems": most} if most else {}) | ({"minItems": least} if least else {})
    return field("array", about, items=items, **bounds)


def nullable(shape: Schema) -> Schema:
    """The same, or null."""
    if "enum" in shape:
        return {**shape, "enum": [*shape["enum"], None]}
    kind = shape.get("type")
    return {**shape, "type": [kind, "null"]} if isinstance(kind, str) else {"anyOf": [shape, {"type": "null"}]}


def takes(required: str = "", /, **properties: Schema) -> Schema:
    """The form of an object in a request: nothing else may be in it."""
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return shape | ({"required": required.split()} if required else {})


def returns(optional: str = "", /, **properties: Schema) -> Schema:
    """The form of an object in an answer: all properties are required but the optional ones."""
    missing = optional.split()
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in missing],
        "additionalProperties": False,
    }


def fill(shape: Schema, value: object, **properties: Any) -> dict[str, Any]:
    """An answer of this form: a property that is not passed is the value's attribute of that name."""
    names = (name for name in shape["properties"] if name in properties or name in shape["required"])
    return {name: properties[name] if name in properties else getattr(value, name) for name in names}


NOTHING = takes()
TIME = text("RFC 3339, in UTC", most=40)
SINCE = text("YYYY-MM-DD in the workspace's timezone, or RFC 3339", most=40, least=1)
CURSOR = field("string", "Where the page before ended", maxLength=80, pattern="^[0-9a-f-]*$")
NEXT = nullable(text("For the next page; null on the last"))
PATH = text("Of a note, as in Folder/Note.md", most=4096)
DRY_RUN = flag("Only say what would happen")

PROBLEM = returns(
    error=returns(
        code=text("One word: not_found, invalid, conflict, forbidden, …"),
        message=text("What is wrong"),
        hint=text("What to do"),
    )
)

SETTINGS: Mapping[str, Schema] = {
    "timezone": text("What a day is, as in Europe/Lisbon", most=100, least=1),
    "read_only": flag("Take no writes"),
    "hide": array(text(most=1000, least=1), "Globs of what is absent from every answer", most=100),
    "write_under": array(text(most=1000, least=1), "Globs of where alone writing is allowed", most=100, least=1),
    "max_file_size": number("Bytes one note may have", least=1),
    "quota_files": number("Files the workspace may have"),
    "quota_bytes": number("Bytes the workspace may have"),
}
NAME = text("What people call it", most=200, least=1)
CHANGES = {name: nullable(shape) for name, shape in SETTINGS.items()}

WORKSPACE = returns(
    "location hide write_under max_file_size quota_files quota_bytes added changed available notes",
    id=text("As it stands in addresses; never changes"),
    name=text("What people call it"),
    timezone=text(),
    read_only=flag("For whom asks"),
    notes=nullable(number("That whom asks may see; null while that is not known")),
    location=text("For owners, as everything below"),
    added=flag("Served because an owner added it, not because the configuration names it"),
    changed=array(text(), "What an owner changed"),
    available=flag("False where its folder cannot be opened now"),
    **{name: nullable(SETTINGS[name]) for name in SETTINGS if name not in ("timezone", "read_only")},
)

LINK = returns(
    source=PATH,
    line=number(),
    path=nullable(text("Where it leads, or the note it stands in")),
    target=text("As written", most=100_000),
    kind=text(),
    status=choice("ok", "broken", "ambiguous"),
    text=text("The line it stands in", most=100_000),
)
BACKLINK = returns(path=PATH, line=number(), text=text(most=100_000))
HEADING = returns(text=text(most=100_000), level=number(), line=number())
NOTE = returns(
    path=PATH,
    version=text("Another one after every change"),
    text=text(most=MAX_INTEGER),
    exact=flag("False where the file is not UTF-8 and is shown with U+FFFD"),
    size=number("Bytes"),
    created=TIME,
    modified=TIME,
    properties={"type": "object", "description": "Of the frontmatter"},
    headings=array(HEADING),
    tags=array(text()),
    backlinks=nullable(array(BACKLINK, "The first of them; null while the index is being built")),
    backlinks_cut=flag("There are more: /links shows them"),
)
LISTED_NOTE = returns(path=PATH, title=text(most=100_000), version=text(), size=number(), modified=TIME)
HIT = returns(
    path=PATH,
    title=text(most=100_000),
    heading=nullable(text(most=100_000)),
    line=number(),
    snippet=text(most=100_000),
    modified=TIME,
)
FINDING = returns(kind=text(), path=text(most=100_000), line=nullable(number()), message=text(most=100_000))
CHANGE = returns(
    id=text(),
    at=TIME,
    user=text(most=100_000),
    client=text(most=100_000),
    surface=text(),
    tool=text(),
    summary=text(most=100_000),
    files=array(PATH),
    undoes=array(text()),
    undone_by=nullable(text()),
)
DIFFERENCE = returns(
    path=PATH,
    kind=choice("created", "changed", "deleted", "moved"),
    source=nullable(PATH),
    lines=array(text(most=MAX_INTEGER), "Of a unified diff"),
    cut=flag("There were more lines"),
    why=text("Why there are no lines"),
)
UNDONE = returns(
    "diff",
    undone=array(text(), "Ids of changes"),
    dry_run=flag(),
    files=array(PATH),
    kept=array(PATH, "Files in which later changes stay"),
    change=nullable(text("Takes the undo back")),
    diff=array(DIFFERENCE, "What would happen, in a dry run"),
)
TOKEN = returns(
    "token",
    name=text(),
    good=flag(),
    workspaces=nullable(array(text(), "Ids; null is all")),
    surfaces=nullable(array(text(), "Null is all")),
    read_only=flag(),
    hide=array(text()),
    write_under=array(text()),
    created=TIME,
    expires=nullable(TIME),
    revoked=nullable(TIME),
    last_used=nullable(TIME),
    token=text("The secret: shown here once and never again"),
)
NEW_TOKEN = takes(
    "name",
    name=text("Whom it is for; shown in the history", most=64, least=1),
    workspaces=array(text(most=200, least=1), "Ids or names; without it, all", most=100, least=1),
    surfaces=array(text(most=50, least=1), "Without it, all", most=20, least=1),
    read_only=flag(),
    hide=array(text(most=1000, least=1), most=100),
    write_under=array(text(most=1000, least=1), "Without it, everywhere", most=100, least=1),
    expires=nullable(text("RFC 3339, a date, or a span to come: 90d, 12h", most=40, least=1)),
)
ME = returns(
    user=text(most=100_000),
    kind=choice("local", "token", "oauth"),
    owner=flag("May change workspaces and tokens"),
    read_only=flag(),
    workspaces=array(text(), "Ids of those you may use"),
    surfaces=nullable(array(text(), "Null is all")),
)
REBUILD = returns(
    status=choice("idle", "running", "done", "failed"),
    notes_indexed=nullable(number("Null for others than owners where notes are hidden")),
    total=nullable(number("While it runs")),
    errors=array(returns(path=text(most=100_000), message=text(most=100_000)), "Notes that are served only in part"),
    message=text("Why it failed"),
    began=nullable(TIME),
    ended=nullable(TIME),
)
BACKUP = returns(
    success=flag(),
    filesBackedUp=number(),
    filesSkipped=number("Not changed since the backup before"),
    totalBytes=number("Copied"),
    errors=array(text(most=100_000)),
    date=text(),
    removed=array(text(), "Days that were removed"),
)
LISTED_BACKUP = returns(
    date=text(),
    made=TIME,
    files=number(),
    size=number("Bytes"),
    workspaces=array(text()),
    errors=array(text(most=100_000)),
)
BACKUPS = returns(backups=array(LISTED_BACKUP))
IMPORTED = returns(
    created=array(PATH),
    replaced=array(PATH),
    unchanged=array(PATH),
    skipped=array(returns(path=text(most=100_000), reason=text(), words=text(most=100_000))),
    changes=array(text(), "What takes it back"),
    dry_run=flag(),
)
