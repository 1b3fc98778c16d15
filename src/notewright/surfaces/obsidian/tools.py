"""The obsidian dialect: a vault of notes known by their bare names, in twenty-two small tools."""

import time
from contextlib import suppress

from notewright.engine.dialects.obsidian import (
    cache_while_open,
    find_all_by_name,
    find_unresolved_links,
    find_with_tags,
    full_path,
    list_all_notes,
    list_known_tags,
    list_tag_descriptions,
    read_by_name,
    sort_by_name,
)
from notewright.engine.find.grep import find_notes_containing
from notewright.engine.find.links import WRITTEN_AS_NAMES, incoming
from notewright.engine.read import Reading
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import Indexing, Invalid
from notewright.notes.edits.sections import require_section
from notewright.notes.links.resolve import STEM
from notewright.notes.model import Link
from notewright.notes.parse.headings import HeadingRule, list_plain_headings
from notewright.notes.path import NotePath
from notewright.surfaces.base import Answer, Args, Call, Surface
from notewright.surfaces.obsidian import change
from notewright.surfaces.obsidian import render as words
from notewright.surfaces.obsidian.render import takes
from notewright.surfaces.perform import coerce_leniently
from notewright.surfaces.schema import tool

MODES = ("name", "name_partial", "content", "tag")
LOGICS = ("and", "or")
DIRECTIONS = ("in", "out", "both")
FIRST_CALLS_SECONDS = 2.0  # that the first calls wait for an index that is not there yet
CONTEXT = "obsidian context"
BUILD_SECONDS = 600.0  # that the index of a very large vault may take


# ---- the block that opens a session -------------------------------------------------------------------


def build_context(ws: Workspace, seconds: float) -> str:
    """Build the block for the client (its notes and the known tags), once for as long as the workspace is open."""

    def make() -> str:
        patient = with_timeout(ws, seconds)
        return words.format_context(list_tag_descriptions(patient, words.OWN_TAG), list_known_tags(patient))

    return cache_while_open(ws, make)


def begin(ws: Workspace) -> None:
    """Build the block at the start, so that it shows the vault before any call, however late the first one comes."""
    build_context(ws, BUILD_SECONDS)


def prepare(call: Call, tool: str) -> None:
    """Build the block before the first call changes anything. While a large vault is being indexed it is left to a
    later answer, so that reading need not wait. The first calls of a session, which may arrive at once, share one
    deadline for the index."""
    session = call.session
    if not session.has_done(CONTEXT):
        ws = call.workspace  # which may have to be opened first: the deadline begins after that
        now = time.monotonic()
        with session.lock:
            deadline: float = session.values.setdefault("obsidian until", now + FIRST_CALLS_SECONDS)
        with suppress(Indexing):
            build_context(ws, max(deadline - now, 0))


def add_context(call: Call, answer: Answer) -> Answer:
    """Append the block to the first answer of a session."""
    if call.session.has_done(CONTEXT):
        return answer
    try:
        text = build_context(call.workspace, 0)
    except Indexing:
        return answer
    if not call.session.mark_once(CONTEXT):
        return answer
    first, *rest = answer.blocks
    return Answer((f"{first}\n\n---\n{text}\n---", *rest), answer.is_error, answer.meta)


# ---- reading ------------------------------------------------------------------------------------------


def _read_note(call: Call, args: Args) -> Reading:
    return read_by_name(call.workspace, args["name"])


def read_note(call: Call, args: Args) -> str:
    """The whole text of a note, frontmatter included."""
    return _read_note(call, args).text


def read_section(call: Call, args: Args) -> str:
    """The text below one heading of a note."""
    note = _read_note(call, args).note
    section = require_section(note, args["section"], HeadingRule.EXACT)
    return note.text[section.body : section.end].strip()


def get_headings(call: Call, args: Args) -> str:
    """All headings of a note with their levels."""
    headings = list_plain_headings(_read_note(call, args).note)
    return words.dumps([{"level": heading.level, "text": heading.text} for heading in headings])


def list_notes(call: Call, args: Args) -> str:
    """Names of all notes, page by page."""
    limit, offset = max(args.get("limit", 100), 0), max(args.get("offset", 0), 0)
    names = [path.stem for path in list_all_notes(call.workspace)]
    return words.to_json(names=names[offset : offset + limit], total=len(names), limit=limit, offset=offset)


# ---- finding ------------------------------------------------------------------------------------------


def search_notes(call: Call, args: Args) -> Answer:
    """Find notes by name (exact), name_partial, content of the body, or tag: comma-separated, children count."""
    ws, query = call.workspace, args["query"]
    mode = _check_choice(MODES, args.get("mode", "name_partial"), "search mode")
    if mode == "tag":
        logic = _check_choice(LOGICS, args.get("tag_logic", "or"), "tag_logic")
        found = find_with_tags(ws, [tag.strip() for tag in query.split(",") if tag.strip()], every=logic == "and")
    elif mode == "content":
        found = sort_by_name(find_notes_containing(ws, query))
    elif mode == "name":
        found = find_all_by_name(ws, query)
    else:
        wanted = query.casefold()
        found = [path for path in list_all_notes(ws) if wanted in path.stem.casefold()]
    return words.join_rows([{"name": path.stem, "path": full_path(ws, path)} for path in found], "query")


def _check_choice(valid: tuple[str, ...], given: str, what: str) -> str:
    if given not in valid:
        raise Invalid(f"Invalid {what}: {given}. Valid: {', '.join(valid)}", what=what)
    return given


# ---- links --------------------------------------------------------------------------------------------


def get_links(call: Call, args: Args) -> str:
    """Names a note links to, and names of notes that link to it."""
    direction = _check_choice(DIRECTIONS, args.get("direction", "both"), "direction")
    reading = _read_note(call, args)
    out = _list_outgoing(reading.note.links) if direction != "in" else []
    back = _list_incoming(call.workspace, reading.path) if direction != "out" else []
    return words.to_json(name=args["name"], outgoing=out, incoming=back)


def get_note_metadata(call: Call, args: Args) -> str:
    """Frontmatter and links of a note, without its text."""
    reading = _read_note(call, args)
    note = reading.note
    return words.to_json(
        name=args["name"],
        frontmatter=note.frontmatter.properties,
        outgoing=_list_outgoing(note.links),
        incoming=_list_incoming(call.workspace, reading.path),
    )


def _list_outgoing(links: tuple[Link, ...]) -> list[str]:
    """The link targets as written, also of notes that do not exist."""
    return list(dict.fromkeys([link.target for link in links if link.kind in WRITTEN_AS_NAMES and link.target]))


def _list_incoming(ws: Workspace, path: NotePath) -> list[str]:
    links = incoming(ws, path, STEM, own=True, lines=False)
    return sorted({link.source.stem for link in links if link.kind in WRITTEN_AS_NAMES})


def find_broken_links(call: Call, args: Args) -> Answer:
    """Every [[link]] to a note that is not there."""
    unmet = sorted(find_unresolved_links(call.workspace), key=lambda link: link[0].stem)
    rows = [{"source": path.stem, "target": target} for path, target in unmet]
    return words.join_rows(rows, "list: repair some of these, then ask again")


def get_help(call: Call, args: Args) -> str:
    """What tools there are, with their parameters."""
    rows = [(tool.name, words.format_signature(tool.schema), tool.description) for tool in TOOLS]
    return words.dumps([{"name": name, "params": params, "description": about} for name, params, about in rows])


# ---- the surface --------------------------------------------------------------------------------------

LOOKS, ADDS, AGAIN = {"readOnlyHint": True}, {"destructiveHint": False}, {"idempotentHint": True}
NAME, SECTION = takes("name"), takes("name", "section")
TOOLS = (
    tool("read_note", read_note, NAME, LOOKS, by_index=False),
    tool("create_note", change.create_note, takes("name", content="", frontmatter=""), ADDS),
    tool("append_note", change.append_note, takes("name", "text"), ADDS),
    tool("update_note", change.update_note, takes("name", "content"), AGAIN),
    tool("delete_note", change.delete_note, takes("name", dry_run=False)),
    tool("rename_note", change.rename_note, takes("old_name", "new_name", dry_run=False)),
    tool("search_notes", search_notes, takes("query", mode="name_partial", tag_logic="or"), LOOKS),
    tool("get_links", get_links, takes("name", direction="both"), LOOKS),
    tool("get_note_metadata", get_note_metadata, NAME, LOOKS),
    tool("set_frontmatter", change.set_frontmatter, takes("name", "key", "value"), AGAIN),
    tool("add_tag", change.add_tag, takes("name", "tag"), ADDS | AGAIN),
    tool("remove_tag", change.remove_tag, takes("name", "tag"), AGAIN),
    tool("list_notes", list_notes, takes(limit=100, offset=0), LOOKS),
    tool("replace_text", change.replace_text, takes("name", "old_text", "new_text", replace_all=False)),
    tool("insert_text", change.insert_text, takes("name", "text", before="", after=""), ADDS),
    tool("read_section", read_section, SECTION, LOOKS, by_index=False),
    tool("append_section", change.append_section, takes("name", "section", "text"), ADDS),
    tool("get_headings", get_headings, NAME, LOOKS, by_index=False),
    tool("update_section", change.update_section, takes("name", "section", "content"), AGAIN),
    tool("delete_section", change.delete_section, SECTION),
    tool("find_broken_links", find_broken_links, takes(), LOOKS),
    tool("get_help", get_help, takes(), LOOKS, by_index=False),
)
SURFACE = Surface(
    "obsidian",
    words.INSTRUCTIONS,
    TOOLS,
    words.ObsidianStyle(),
    coerce=coerce_leniently,
    finish=add_context,
    guard=prepare,
    begin=begin,
)
