"""The tools of the obsidian dialect that change something."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from notewright.engine.changes.combined import Edited
from notewright.engine.dialects.obsidian import find_by_name, find_unknown_tags, full_path, is_taken, list_known_tags
from notewright.engine.move import delete_marked, move
from notewright.engine.read import read
from notewright.engine.workspace import Workspace
from notewright.engine.write import change_text, create, edit_note
from notewright.errors import Exists, Invalid, NotFound
from notewright.notes.edits.edit import Append, Edit, InsertBesideText, Replace, ReplaceBody
from notewright.notes.edits.properties import AddTag, RemoveTag, SetProperty
from notewright.notes.edits.sections import AppendToSection, DeleteSection, ReplaceSection
from notewright.notes.edits.splices import apply_splices
from notewright.notes.edits.yaml import yaml_block
from notewright.notes.links.resolve import STEM_OR_PATH
from notewright.notes.parse.headings import HeadingRule
from notewright.notes.parse.parser import parse
from notewright.notes.parse.tags import list_property_tags
from notewright.notes.path import NotePath, path_problem
from notewright.surfaces.base import Args, Call
from notewright.surfaces.obsidian import render as words
from notewright.surfaces.obsidian.render import to_json

EXACT = HeadingRule.EXACT
# Names are read by stem alone. Rewriting minds what Obsidian makes of a link as well, or links that name a folder
# would break, and of twins the wrong one's would change.
LINK_POLICY = STEM_OR_PATH
# What [[…]] can say: no blanks at the ends, none of its own signs. A name with .md would be a file with it twice.
_GOOD_NAME = re.compile(r"(?![\s.])[^/\\\[\]#^|\x00-\x1f\x7f]+(?<!\s)(?<!\.md)")


# ---- whole notes --------------------------------------------------------------------------------------


def create_note(call: Call, args: Args) -> str:
    """Make a new note at the vault's root. Only tags that exist are taken."""
    ws, name = call.workspace, args["name"]
    properties = _parse_properties(args.get("frontmatter", ""))
    tags = list_property_tags(properties)
    _require_known_tags(ws, tags)
    _require_tag_rules(tags, name, properties)
    path = _new_path(ws, "", name)
    create(ws, path, _render_note(path, properties, args.get("content", "")).encode())
    return to_json(name=name, path=full_path(ws, path))


def _parse_properties(given: str) -> dict[str, Any]:
    try:
        properties = json.loads(given) if given else {}
    except (ValueError, RecursionError) as error:
        raise Invalid(f"Invalid frontmatter JSON: {error}", what="frontmatter") from None
    if not isinstance(properties, dict):
        raise Invalid("Invalid frontmatter JSON: expected an object", what="frontmatter")
    return properties


def _render_note(path: NotePath, properties: Mapping[str, Any], content: str) -> str:
    """A whole note; Invalid if the properties could not be read back."""
    try:
        front = yaml_block(properties, "flush")
    except RecursionError:
        raise Invalid("Invalid frontmatter JSON: it is nested too deeply", what="frontmatter") from None
    problem = parse(path, front).frontmatter.problem
    if problem:
        raise Invalid(f"Invalid frontmatter JSON: {problem}", what="frontmatter")
    return front + content


def _new_path(ws: Workspace, folder: str, name: str) -> NotePath:
    """The path of a new note; Invalid if this cannot be a name, Exists if any note has it."""
    place = f"{folder}/{name}.md" if folder else f"{name}.md"
    if not _GOOD_NAME.fullmatch(name) or path_problem(place):
        raise Invalid(f"Invalid note name: {name[: words.MAX_QUOTED_CHARS]}", what="name")
    if is_taken(ws, name):
        raise Exists(f"{name} is there already", path=place)
    return NotePath(place)


def rename_note(call: Call, args: Args) -> str:
    """Rename a note and rewrite every link to it."""
    ws, old, new = call.workspace, args["old_name"], args["new_name"]
    path = find_by_name(ws, old)
    place = _new_path(ws, path.folder, new)
    moved = move(ws, path, place, dry_run=args.get("dry_run", False), policy=LINK_POLICY, portable=False)
    return to_json(old_name=old, new_name=new, files_updated=_sorted_names(path for path, _ in moved.files))


def delete_note(call: Call, args: Args) -> str:
    """Move a note to .trash and mark every [[link]] to it as (deleted)."""
    ws, name = call.workspace, args["name"]
    path = find_by_name(ws, name)
    dry_run = args.get("dry_run", False)
    gone = delete_marked(ws, path, lambda target: f"{target} (deleted)", policy=LINK_POLICY, dry_run=dry_run)
    trash = full_path(ws, gone.trash) if gone.trash else None
    return to_json(name=name, trash_path=trash, files_updated=_sorted_names(gone.files))


def _sorted_names(paths: Iterable[NotePath]) -> list[str]:
    return sorted({path.stem for path in paths})


# ---- text ---------------------------------------------------------------------------------------------


def _edit_note(call: Call, args: Args, *edits: Edit) -> Edited:
    ws = call.workspace
    return edit_note(ws, find_by_name(ws, args["name"]), edits)


def append_note(call: Call, args: Args) -> str:
    """Add text at the end, after a blank line."""
    _edit_note(call, args, Append(args["text"], separator="\n\n"))
    return to_json(name=args["name"], status="appended")


def update_note(call: Call, args: Args) -> str:
    """Replace the whole body; frontmatter stays."""
    _edit_note(call, args, ReplaceBody(args["content"]))
    return to_json(name=args["name"], status="updated")


def replace_text(call: Call, args: Args) -> str:
    """Replace exact text in the body: the first occurrence or all. Says how many."""
    ws, path = call.workspace, find_by_name(call.workspace, args["name"])
    if not args["old_text"]:
        raise NotFound("the text to replace is empty", what="text", path=path)
    change = Replace(args["old_text"], args["new_text"], "all" if args.get("replace_all") else "first", body=True)
    counted: list[int] = []

    def replace_and_count(text: str) -> str:
        made = change.splices(text, path)
        counted[:] = [len(made)]
        return apply_splices(text, made)

    change_text(ws, path, replace_and_count)
    return to_json(name=args["name"], replaced=counted[0])


def insert_text(call: Call, args: Args) -> str:
    """Insert lines before or after the first line that equals a text. Give exactly one of before, after."""
    before, after = args.get("before", ""), args.get("after", "")
    if bool(before) == bool(after):
        raise Invalid("Exactly one of 'before' or 'after' must be provided", what="before")
    _edit_note(call, args, InsertBesideText(before or after, args["text"], after=bool(after)))
    return to_json(name=args["name"], position="after" if after else "before", pattern=before or after)


def append_section(call: Call, args: Args) -> str:
    """Add text at the end of a section."""
    _edit_note(call, args, AppendToSection(args["section"], args["text"], EXACT))
    return to_json(name=args["name"], section=args["section"], status="appended")


def update_section(call: Call, args: Args) -> str:
    """Replace what stands below a heading, sub-headings included."""
    _edit_note(call, args, ReplaceSection(args["section"], args["content"], EXACT))
    return to_json(name=args["name"], section=args["section"], status="updated")


def delete_section(call: Call, args: Args) -> str:
    """Remove a heading with everything below it."""
    _edit_note(call, args, DeleteSection(args["section"], EXACT))
    return to_json(name=args["name"], section=args["section"], status="deleted")


# ---- frontmatter --------------------------------------------------------------------------------------


def set_frontmatter(call: Call, args: Args) -> str:
    """Set one top-level frontmatter key to a text; tags to a list of tags that exist."""
    ws, key, value = call.workspace, args["key"], args["value"]
    path = find_by_name(ws, args["name"])
    if key.lower() == "tags":
        value = _parse_known_tags(ws, value)
    # A new list is written as this dialect writes lists; one that is there keeps its form.
    is_list = isinstance(read(ws, path).note.frontmatter.properties.get(key), list)
    edit_note(ws, path, [SetProperty(key, value, None if is_list else "flush")])
    return to_json(name=args["name"], key=key, value=value)


def _parse_known_tags(ws: Workspace, text: str) -> list[str]:
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise Invalid(words.NOT_A_LIST, what="value")
    _require_known_tags(ws, tags)
    return tags


def add_tag(call: Call, args: Args) -> str:
    """Add one tag that exists in the vault."""
    ws, name, tag = call.workspace, args["name"], args["tag"]
    path = find_by_name(ws, name)
    properties = read(ws, path).note.frontmatter.properties
    tags = list_property_tags(properties)
    if tag not in tags:
        _require_known_tags(ws, [tag])
        _require_tag_rules([tag], name, properties)
        tags = _property_tags(edit_note(ws, path, [AddTag(tag, "flush", ignore_case=False)]))
    return to_json(name=name, tags=tags)


def remove_tag(call: Call, args: Args) -> str:
    """Take one tag out of the frontmatter."""
    tag = args["tag"]
    edited = _edit_note(call, args, RemoveTag(tag, "flush", ignore_case=False))
    return to_json(name=args["name"], tags=_property_tags(edited), removed=edited.change_id is not None)


def _property_tags(edited: Edited) -> list[str]:
    return list_property_tags(parse(edited.path, edited.after).frontmatter.properties)


def _require_known_tags(ws: Workspace, tags: Sequence[str]) -> None:
    unknown = find_unknown_tags(ws, tags) if tags else []
    if unknown:
        raise Invalid(words.refuse_tags(unknown, list_known_tags(ws)), what="tags")


def _require_tag_rules(tags: Sequence[str], name: str, properties: Mapping[str, Any]) -> None:
    for tag in tags:
        if tag in words.TAG_RULES:
            holds, refusal = words.TAG_RULES[tag]
            if not holds(name, properties):
                raise Invalid(refusal, what="tags")
