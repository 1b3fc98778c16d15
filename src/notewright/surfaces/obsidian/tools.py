"""The obsidian dialect: a vault of notes known by their bare names, in twenty-two small tools."""

import re
import time
from contextlib import suppress

from notewright.engine.dialects.obsidian import (
    WRITTEN_AS_NAMES,
    all_named,
    all_with_name,
    by_name,
    described,
    full_path,
    is_tracked,
    tags_of_properties,
    unresolved_links,
    with_tags,
)
from notewright.engine.dialects.obsidian import note_by_name as note_named
from notewright.engine.find.grep import holding
from notewright.engine.find.links import incoming
from notewright.engine.read import Reading, read
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import Indexing, Invalid
from notewright.notes.edits.sections import section_of
from notewright.notes.links.resolve import STEM
from notewright.notes.model import Link
from notewright.notes.parse.headings import HeadingRule
from notewright.notes.path import NotePath
from notewright.surfaces.base import Answer, Args, Call, Session, Surface, Tool
from notewright.surfaces.obsidian import change
from notewright.surfaces.obsidian.render import (
    INSTRUCTIONS,
    OWN_TAG,
    ObsidianStyle,
    block,
    dumps,
    rows_said,
    said,
    signature,
    takes,
)
from notewright.surfaces.perform import lenient

MODES = ("name", "name_partial", "content", "tag")
LOGICS = ("and", "or")
DIRECTIONS = ("in", "out", "both")
PATIENCE_S = 2.0  # with an index that is not there yet when the first calls come
BUILD_S = 600.0  # that the index of a very large vault may take
_HEADING = re.compile(r"#+[^\S\r\n]+\S")


# ---- the block that opens a session -------------------------------------------------------------------


def context(ws: Workspace, patience: float) -> str:
    """Notes for the client and the tags there are: made once for a workspace and not again while it is open."""

    def made() -> str:
        patient = with_timeout(ws, patience)
        return block(described(patient, OWN_TAG), tags_of_properties(patient))

    return is_tracked(ws, "obsidian context", made)


def begin(ws: Workspace) -> None:
    """The block tells of the vault as it was at the start, however late the first call comes."""
    context(ws, BUILD_S)


def prepare(call: Call, tool: str) -> None:
    """Make the block before the first call changes anything. A large vault may not be indexed yet: then it comes with
    a later answer, so that reading need not wait."""
    with suppress(Indexing):
        context(call.workspace, _patience(call.session))


def _patience(session: Session) -> float:
    """How much longer the first calls of a session, which may come all at once, wait for the index."""
    now = time.monotonic()
    with session.lock:
        until: float = session.values.setdefault("obsidian until", now + PATIENCE_S)
    return max(until - now, 0)


def with_context(call: Call, answer: Answer) -> Answer:
    """The first answer of a session carries the block."""
    try:
        told = context(call.workspace, 0)
    except Indexing:
        return answer
    if not call.session.once("obsidian context"):
        return answer
    first, *rest = answer.blocks
    return Answer((f"{first}\n\n---\n{told}\n---", *rest), answer.is_error, answer.meta)


# ---- reading ------------------------------------------------------------------------------------------


def _read(call: Call, args: Args) -> Reading:
    return read(call.workspace, note_named(call.workspace, args["name"]))


def read_note(call: Call, args: Args) -> str:
    return _read(call, args).text


def read_section(call: Call, args: Args) -> str:
    note = _read(call, args).note
    section = section_of(note, args["section"], HeadingRule.EXACT)
    return note.text[section.body : section.end].strip()


def get_headings(call: Call, args: Args) -> str:
    note = _read(call, args).note
    own = (heading for heading in note.headings if _HEADING.match(note.text, heading.start))
    return dumps([{"level": heading.level, "text": heading.text} for heading in own])


def list_notes(call: Call, args: Args) -> str:
    limit, offset = max(args.get("limit", 100), 0), max(args.get("offset", 0), 0)
    names = [path.stem for path in all_named(call.workspace)]
    return said(names=names[offset : offset + limit], total=len(names), limit=limit, offset=offset)


# ---- finding ------------------------------------------------------------------------------------------


def search_notes(call: Call, args: Args) -> Answer:
    ws, mode = call.workspace, _one_of(MODES, args.get("mode", "name_partial"), "search mode")
    rows = [{"name": path.stem, "path": full_path(ws, path)} for path in _found(ws, mode, args)]
    return rows_said(rows, "Narrow the query.")


def _found(ws: Workspace, mode: str, args: Args) -> list[NotePath]:
    query = args["query"]
    if mode == "tag":
        logic = _one_of(LOGICS, args.get("tag_logic", "or"), "tag_logic")
        tags = [tag.strip() for tag in query.split(",") if tag.strip()]
        return with_tags(ws, tags, every=logic == "and")
    if mode == "content":
        return by_name(holding(ws, query))
    if mode == "name":
        return all_with_name(ws, query)
    wanted = query.casefold()
    return [path for path in all_named(ws) if wanted in path.stem.casefold()]


def _one_of(valid: tuple[str, ...], given: str, what: str) -> str:
    if given not in valid:
        raise Invalid(f"Invalid {what}: {given}. Valid: {', '.join(valid)}", what=what)
    return given


# ---- links --------------------------------------------------------------------------------------------


def get_links(call: Call, args: Args) -> str:
    direction = _one_of(DIRECTIONS, args.get("direction", "both"), "direction")
    reading = _read(call, args)
    out = _outgoing(reading.note.links) if direction != "in" else []
    back = _incoming(call.workspace, reading.path) if direction != "out" else []
    return said(name=args["name"], outgoing=out, incoming=back)


def get_note_metadata(call: Call, args: Args) -> str:
    reading = _read(call, args)
    note = reading.note
    return said(
        name=args["name"],
        frontmatter=note.frontmatter.properties,
        outgoing=_outgoing(note.links),
        incoming=_incoming(call.workspace, reading.path),
    )


def _outgoing(links: tuple[Link, ...]) -> list[str]:
    """Names as written, those of notes that are not there too."""
    named = (link.target for link in links if link.kind in WRITTEN_AS_NAMES and link.target)
    return list(dict.fromkeys(named))


def _incoming(ws: Workspace, path: NotePath) -> list[str]:
    links = incoming(ws, path, STEM, own=True)
    return sorted({link.source.stem for link in links if link.kind in WRITTEN_AS_NAMES})


def find_broken_links(call: Call, args: Args) -> Answer:
    unmet = sorted(unresolved_links(call.workspace), key=lambda link: link[0].stem)
    rows = [{"source": path.stem, "target": target} for path, target in unmet]
    return rows_said(rows, "Narrow the list: repair some of these, then ask again.")


def get_help(call: Call, args: Args) -> str:
    told = [(tool.name, signature(tool.schema), tool.description) for tool in TOOLS]
    return dumps([{"name": name, "params": params, "description": about} for name, params, about in told])


# ---- the surface --------------------------------------------------------------------------------------

LOOKS, ADDS, AGAIN = {"readOnlyHint": True}, {"destructiveHint": False}, {"idempotentHint": True}
NAME, SECTION = takes("name"), takes("name", "section")
FOUND = takes("query", mode="name_partial", tag_logic="or")
TOOLS = (
    Tool("read_note", "The whole text of a note, frontmatter included.", NAME, read_note, LOOKS, by_index=False),
    Tool(
        "create_note",
        "Make a new note at the vault's root. Only tags that exist are taken.",
        takes("name", content="", frontmatter=""),
        change.create_note,
        ADDS,
    ),
    Tool("append_note", "Add text at the end, after a blank line.", takes("name", "text"), change.append_note, ADDS),
    Tool(
        "update_note",
        "Replace the whole body; frontmatter stays.",
        takes("name", "content"),
        change.update_note,
        AGAIN,
    ),
    Tool(
        "delete_note",
        "Move a note to .trash and mark every [[link]] to it as (deleted).",
        takes("name", dry_run=False),
        change.delete_note,
    ),
    Tool(
        "rename_note",
        "Rename a note and rewrite every link to it.",
        takes("old_name", "new_name", dry_run=False),
        change.rename_note,
    ),
    Tool(
        "search_notes",
        "Find notes by name (exact), name_partial, content of the body, or tag: comma-separated, children count.",
        FOUND,
        search_notes,
        LOOKS,
    ),
    Tool(
        "get_links",
        "Names a note links to, and names of notes that link to it.",
        takes("name", direction="both"),
        get_links,
        LOOKS,
    ),
    Tool("get_note_metadata", "Frontmatter and links of a note, without its text.", NAME, get_note_metadata, LOOKS),
    Tool(
        "set_frontmatter",
        "Set one top-level frontmatter key to a text; tags to a list of tags that exist.",
        takes("name", "key", "value"),
        change.set_frontmatter,
        AGAIN,
    ),
    Tool("add_tag", "Add one tag that exists in the vault.", takes("name", "tag"), change.add_tag, ADDS | AGAIN),
    Tool("remove_tag", "Take one tag out of the frontmatter.", takes("name", "tag"), change.remove_tag, AGAIN),
    Tool("list_notes", "Names of all notes, page by page.", takes(limit=100, offset=0), list_notes, LOOKS),
    Tool(
        "replace_text",
        "Replace exact text in the body: the first occurrence or all. Says how many.",
        takes("name", "old_text", "new_text", replace_all=False),
        change.replace_text,
    ),
    Tool(
        "insert_text",
        "Insert lines before or after the first line that equals a text. Give exactly one of before, after.",
        takes("name", "text", before="", after=""),
        change.insert_text,
        ADDS,
    ),
    Tool("read_section", "The text below one heading of a note.", SECTION, read_section, LOOKS, by_index=False),
    Tool(
        "append_section",
        "Add text at the end of a section.",
        takes("name", "section", "text"),
        change.append_section,
        ADDS,
    ),
    Tool("get_headings", "All headings of a note with their levels.", NAME, get_headings, LOOKS, by_index=False),
    Tool(
        "update_section",
        "Replace what stands below a heading, sub-headings included.",
        takes("name", "section", "content"),
        change.update_section,
        AGAIN,
    ),
    Tool("delete_section", "Remove a heading with everything below it.", SECTION, change.delete_section),
    Tool("find_broken_links", "Every [[link]] to a note that is not there.", takes(), find_broken_links, LOOKS),
    Tool("get_help", "What tools there are, with their parameters.", takes(), get_help, LOOKS, by_index=False),
)
SURFACE = Surface(
    "obsidian", INSTRUCTIONS, TOOLS, ObsidianStyle(), coerce=lenient, finish=with_context, guard=prepare, begin=begin
)
