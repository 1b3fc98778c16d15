"""Cairn's arguments: the published shapes, described in our words."""

from typing import Any


def _shape(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    head: dict[str, Any] = {"type": "object"}
    return head | ({"required": list(required)} if required else {}) | {"properties": properties}


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


def _flag(about: str) -> dict[str, Any]:
    return {"type": "boolean", "description": about}


def _number(about: str) -> dict[str, Any]:
    return {"type": "integer", "description": about}


def _texts(about: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": about}


def _one_of(about: str, *words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words), "description": about}


PATH = _text("Note path without .md, such as entities/person/jamie")
SECTION = _text("Heading text without #, such as Meetings; the first such heading at any level")
LIMIT = _number("Most results on a page. Default 20")
CURSOR = _text("cursor of the answer before, for the next page")

READ = _shape(
    ("path",),
    path=PATH,
    section=SECTION,
    metadata_only=_flag("Leave the body out and show the line of each backlink. Default false"),
)
WRITE = _shape(
    ("path", "content"),
    path=PATH,
    content=_text("The whole note in Markdown, YAML frontmatter allowed"),
    tags=_texts("Tags, added to those in the frontmatter"),
    aliases=_texts("Other names that links may use for this note"),
)
PATCH = _shape(
    ("path", "op", "content"),
    path=PATH,
    op=_one_of("What to do", "append", "prepend", "replace", "append_section", "prepend_section"),
    content=_text("What to put in"),
    section=SECTION,
    find=_text("For replace: text that is in the note exactly once"),
)
DELETE = _shape(("path",), path=PATH)
SEARCH = _shape(
    query=_text("Words that all must begin words of the note"),
    tags=_texts("Tags that it all must have"),
    path_prefix=_text("Only at or below this path, such as entities/person"),
    backlinks_to=_text("Only notes that link to this path"),
    modified_since=_text("ISO date or time: only notes changed after it"),
    limit=LIMIT,
    cursor=CURSOR,
)
LINKS = _shape(
    ("path",),
    path=PATH,
    depth=_number("How many links away. Default 1"),
    direction=_one_of("Default both", "in", "out", "both"),
)
DAILY = _shape(
    ("op",),
    date=_text("YYYY-MM-DD. Default today in the workspace's timezone"),
    op=_one_of(
        "read shows the whole note; the others add content to it", "read", "append", "append_section", "prepend_section"
    ),
    content=_text("What to add"),
    section=SECTION,
)
LIST = _shape(
    path_prefix=_text("Where to look. Default everywhere"),
    recursive=_flag("Also what is in sub-folders. Default false"),
    sort=_one_of("Default modified, latest first", "modified", "created", "alpha"),
    limit=LIMIT,
    cursor=CURSOR,
)
