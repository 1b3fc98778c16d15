"""Notes as lists of them show them: at or below a path, with tags and a property, as the index knows them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from notewright.engine.changes.commit import commit_latest, read_or_none
from notewright.engine.changes.plan import Plan, Put, replace_shown
from notewright.engine.indexing.ready import from_snapshot, wait
from notewright.engine.read import created, decode, exists, listing, missing
from notewright.engine.workspace import Workspace
from notewright.engine.write import TRIES, admit, change_text, create, new_path
from notewright.errors import Exists, Invalid, NotFound, TooLarge
from notewright.index.base import Filed, Selection
from notewright.notes.edits.edit import Edit, Replace, apply, apply_all, read_frontmatter
from notewright.notes.edits.properties import AddTag, RemoveProperty, SetProperty
from notewright.notes.edits.yaml import ListStyle
from notewright.notes.model import Note
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, path_key


class NoteSummary(NamedTuple):
    """What is told of a note without reading it."""

    path: NotePath
    title: str
    type: Any  # its property of that name
    tags: tuple[str, ...]
    modified: float  # seconds since 1970


@from_snapshot
def note_summaries(
    ws: Workspace, chosen: Selection, prefix: str = "", *, deep: bool = True
) -> tuple[list[NoteSummary], int]:
    """The notes chosen, as this reader may see them, and how many there are in all.

    `prefix` is a path without `.md`: the note of that name and those below it, not `deep` only one step below.
    """
    asked = chosen._replace(folder=prefix, recursive=deep, folder_note=bool(prefix), visible=ws.access.visibility)
    found, total = _by_birth(ws, asked) if chosen.sort == "created" else listing(ws, asked)
    paths = [filed.path for filed in found]
    tags, types = ws.index.tags_of(paths), ws.index.property_of("type", paths)
    return [
        NoteSummary(filed.path, filed.title, types.get(filed.path), tuple(tags[filed.path]), filed.modified_ns / 1e9)
        for filed in found
    ], total


def _by_birth(ws: Workspace, asked: Selection) -> tuple[list[Filed], int]:
    """The index does not know what the ledger knows: when a note was first made through us."""
    found, total = listing(ws, asked._replace(sort="name", limit=None, offset=0))
    times = created(ws, found)
    found.sort(key=lambda filed: -times[filed.path])
    end = None if asked.limit is None else asked.offset + asked.limit
    return found[asked.offset : end], total


def indexed_text(ws: Workspace, path: NotePath) -> str:
    """The text of a note as it was indexed, for showing a piece of it; nothing where it could not be."""
    ws.access.may_see(path)
    return ws.index.text(path) or ""


CREATED, MODIFIED, INJECTED = "created", "modified", "backlinks"
MOST_BYTES = 1_048_576
_BLANK_LINE = re.compile(r"[ \t]*\r?\n")


class StampedWrite(NamedTuple):
    """A note that was written. `added` is how many bytes of its body (of all of it, after a replacement) are more."""

    path: NotePath
    text: str
    created: bool
    added: int
    change_id: str | None  # None: it was so already


def write_stamped(
    ws: Workspace, path: NotePath, content: str, *, tags: Sequence[str] = (), aliases: Sequence[str] = ()
) -> StampedWrite:
    """Make or replace a note: the content as given, with these tags and aliases as well. The last writer wins.

    Exists with the details `alias` and `path` where another note has an alias that this one did not have before.
    """
    admit(ws, path, 0)
    wait(ws)
    if not exists(ws, path):
        path = new_path(ws, path)
    text = joined(path, content, tags, aliases)
    made: list[StampedWrite] = []

    def make() -> Plan:
        old = read_or_none(ws.store, path)
        before = decode(old.data)[0] if old else None
        _refuse_large(path, text, before)
        _refuse_taken(ws, path, before, text)
        whole = stamped(path, text, before, _now(ws))
        whole = whole if whole == content else _set_apart(whole)
        data = whole.encode()
        admit(ws, path, len(data))
        made[:] = [StampedWrite(path, whole, old is None, _size(text) - _size(before or ""), None)]
        return Plan(
            (Put(path, data, None) if old is None else replace_shown(ws, old, data),),
            f"{'overwrote' if old else 'created'} {path}",
        )

    done = commit_latest(ws, make)
    return made[0]._replace(change_id=done.id)


def patch_stamped(ws: Workspace, path: NotePath, edit: Edit) -> StampedWrite:
    """Edit a note that is there. Aliases as in `write_stamped`."""
    wait(ws)
    added: list[int] = []

    def change(text: str) -> str:
        new = apply(text, edit, path)
        _refuse_large(path, new, text)
        _refuse_taken(ws, path, text, new)
        more = len(new.encode()) - len(text.encode()) if isinstance(edit, Replace) else _size(new) - _size(text)
        added[:] = [more]
        return text if new == text else stamped(path, new, text, _now(ws))

    edited = change_text(ws, path, change)
    return StampedWrite(path, edited.after, False, added[0], edited.change_id)


def patch_or_create(ws: Workspace, path: NotePath, begun: str, edit: Edit | None) -> StampedWrite:
    """Edit a note, or make it of `begun` and the edit together where it is missing: one change set or none."""
    for _ in range(TRIES):
        try:
            if exists(ws, path):
                if edit is not None:
                    return patch_stamped(ws, path, edit)
                ws.access.may_see(path)
                return StampedWrite(path, decode(ws.store.read(path).data)[0], False, 0, None)
            text = apply(begun, edit, path) if edit else begun
            _refuse_large(path, text, None)
            whole = stamped(path, text, None, _now(ws))
            return StampedWrite(path, whole, True, _size(text), create(ws, path, whole.encode()).change_id)
        except Exists as problem:
            if problem.details.get("path") != path:
                raise
        except NotFound as problem:
            if problem.details.get("what") != "note":
                raise
    raise missing(ws, path)


# ---- texts --------------------------------------------------------------------------------------------


def joined(path: NotePath, content: str, tags: Sequence[str], aliases: Sequence[str]) -> str:
    """The content with more tags and aliases, those it has first, and without what only answers carry."""
    note = parse(path, content)
    if note.frontmatter.problem and not (tags or aliases):
        return content
    text = _without_injected(path, content, note)
    text = apply_all(text, _tag_edits(parse(path, text), tags), path)
    return apply_all(text, _alias_edits(parse(path, text), aliases), path)


def _without_injected(path: NotePath, content: str, note: Note) -> str:
    """A note that was read here and is written back brings its backlinks along."""
    if INJECTED not in note.frontmatter.properties:
        return content
    try:
        return apply(content, RemoveProperty(INJECTED), path)
    except Invalid:
        return content  # written in a way that is not ours to change


def _tag_edits(note: Note, tags: Sequence[str]) -> list[Edit]:
    wanted = list(dict.fromkeys(tag for tag in (given.strip().lstrip("#") for given in tags) if tag))
    if any(key.lower() == "tags" for key in note.frontmatter.properties):
        return [AddTag(tag, "flow") for tag in wanted]
    once = list({tag.casefold(): tag for tag in reversed(wanted)}.values())[::-1]
    return [SetProperty("tags", once, "flow", apart=True)] if once else []


def _alias_edits(note: Note, aliases: Sequence[str]) -> list[Edit]:
    key = next((key for key in note.frontmatter.properties if key.lower() == "aliases"), "aliases")
    value = note.frontmatter.properties.get(key)
    known = {path_key(alias) for alias in note.aliases}
    more = {path_key(alias): alias for given in reversed(aliases) if (alias := given.strip())}
    new = [alias for alias_key, alias in reversed(more.items()) if alias_key not in known]
    members = [*(value if isinstance(value, list) else note.aliases), *new]
    style: ListStyle | None = None if isinstance(value, list) and value else "flow"
    return [SetProperty(key, members, style, apart=True)] if new else []


def stamped(path: NotePath, text: str, before: str | None, now: str) -> str:
    """The text with its times: both if it is new, else those that it has or had. `created` stays what it was."""
    front = parse(path, text).frontmatter
    if front.problem:
        return text
    old = parse(path, before).frontmatter.properties if before is not None else {}
    edits: list[Edit] = []
    known = (old.get(CREATED), front.properties.get(CREATED), now if before is None else None)
    first = next((value for value in known if value is not None), None)
    if first is not None and first != front.properties.get(CREATED):
        edits.append(SetProperty(CREATED, first, apart=True))
    if before is None or MODIFIED in old or MODIFIED in front.properties:
        edits.append(SetProperty(MODIFIED, now, apart=True))
    try:
        return apply_all(text, edits, path)
    except Invalid:
        return text  # a stamp is no reason to refuse a note


def body_of(text: str) -> str:
    """What stands below the frontmatter and the blank line that sets it apart; all of it if that cannot be read."""
    front = read_frontmatter(text)
    if not front.present or front.problem:
        return text[front.start :]
    blank = _BLANK_LINE.match(text, front.end)
    return text[blank.end() if blank else front.end :]


def _set_apart(text: str) -> str:
    """A blank line between the frontmatter and the body, where we had a hand in the frontmatter."""
    front = read_frontmatter(text)
    if not front.present or front.problem or not text[front.end :].strip() or _BLANK_LINE.match(text, front.end):
        return text
    return text[: front.end] + ("\r\n" if text[: front.end].endswith("\r\n") else "\n") + text[front.end :]


def _size(text: str) -> int:
    return len(body_of(text).encode())


def _now(ws: Workspace) -> str:
    return datetime.fromtimestamp(ws.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- refusals -----------------------------------------------------------------------------------------


def _refuse_large(path: NotePath, text: str, before: str | None) -> None:
    """A note that was larger already may get smaller."""
    size = len(text.encode())
    if size > max(MOST_BYTES, len(before.encode()) if before else 0):
        raise TooLarge(
            f"{path} would be {size:,} bytes; the most is {MOST_BYTES:,}", hint="split it into several notes",
            size=size, limit=MOST_BYTES, path=path,
        )  # fmt: skip


def _refuse_taken(ws: Workspace, path: NotePath, before: str | None, after: str) -> None:
    """Only what is new is looked at: twins that were there before are for `check` to report."""
    had = {path_key(alias) for alias in parse(path, before).aliases} if before else set()
    for alias in parse(path, after).aliases:
        key = path_key(alias)
        owners = () if key in had else ws.index.by_other_name("alias", key)
        for owner in owners:
            if owner != path and ws.access.sees(owner):
                raise Exists(
                    f"alias {alias!r} is already claimed by {owner}", hint="choose another alias",
                    alias=alias, path=owner,
                )  # fmt: skip
