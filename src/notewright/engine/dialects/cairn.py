"""What only Cairn's tools need: listing notes with type and tags, and writing notes with times, tags and aliases."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from notewright.engine.changes.commit import commit_latest
from notewright.engine.changes.plan import Plan, Put, plan_overwrite
from notewright.engine.indexing.ready import from_snapshot, wait
from notewright.engine.read import decode, exists, find_creation_times, list_files, missing_note_error
from notewright.engine.workspace import Workspace
from notewright.engine.write import TRIES, admit, change_text, create, new_path
from notewright.errors import Exists, Invalid, NotFound, TooLarge
from notewright.index.base import Selection
from notewright.notes.edits.edit import Edit, Replace, apply, apply_all, read_frontmatter
from notewright.notes.edits.properties import AddTag, RemoveProperty, SetProperty
from notewright.notes.edits.yaml import ListStyle
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath, path_key
from notewright.stores.base import read_or_none


class NoteSummary(NamedTuple):
    """A note in a list, as the index knows it."""

    path: NotePath
    title: str
    type: Any  # its property of that name
    tags: tuple[str, ...]
    modified: float  # seconds since 1970


@from_snapshot
def list_note_summaries(
    ws: Workspace, chosen: Selection, prefix: str = "", *, deep: bool = True
) -> tuple[list[NoteSummary], int]:
    """The notes selected that the caller may see, and their total number.

    `prefix` is a path without `.md`: the note of that name and those below it, or only one step below if not `deep`.
    """
    selection = chosen._replace(folder=prefix, recursive=deep, folder_note=bool(prefix), visible=ws.access.visibility)
    if chosen.sort != "created":
        found, total = list_files(ws, selection)
    else:  # when a note was first made through us is known to the ledger, not to the index
        found, total = list_files(ws, selection._replace(sort="name", limit=None, offset=0))
        times = find_creation_times(ws, found)
        found.sort(key=lambda filed: -times[filed.path])
        found = found[selection.offset :][: selection.limit]
    paths = [filed.path for filed in found]
    tags, types = ws.index.tags_of(paths), ws.index.property_of("type", paths)
    return [
        NoteSummary(filed.path, filed.title, types.get(filed.path), tuple(tags[filed.path]), filed.modified_ns / 1e9)
        for filed in found
    ], total


def indexed_text(ws: Workspace, path: NotePath) -> str:
    """The text of a note in the index, for a snippet; "" where there is none."""
    ws.access.may_see(path)
    return ws.index.text(path) or ""


CREATED, MODIFIED, INJECTED = "created", "modified", "backlinks"
MAX_BYTES = 1_048_576
_BLANK_LINE = re.compile(r"[ \t]*\r?\n")


class StampedWrite(NamedTuple):
    """A note that was written. `added`: bytes by which its body grew, after a replacement those of the whole note."""

    path: NotePath
    text: str
    created: bool
    added: int
    change_id: str | None  # None: nothing changed


def write_stamped(
    ws: Workspace, path: NotePath, content: str, *, tags: Sequence[str] = (), aliases: Sequence[str] = ()
) -> StampedWrite:
    """Make or replace a note: the content with these tags and aliases added. The last writer wins.

    Exists with the details `alias` and `path` where another note has an alias that is new to this one.
    """
    admit(ws, path, 0)
    wait(ws)
    if not exists(ws, path):
        path = new_path(ws, path)
    text = add_tags_and_aliases(path, content, tags, aliases)

    def make() -> tuple[Plan, StampedWrite]:
        old = read_or_none(ws.store, path)
        before = decode(old.data)[0] if old else None
        _refuse_large(path, text, before)
        _refuse_taken_aliases(ws, path, before, text)
        whole = set_times(path, text, before, _format_now(ws))
        whole = whole if whole == content else _separate_body(whole)
        data = whole.encode()
        admit(ws, path, len(data))
        step = Put(path, data, None) if old is None else plan_overwrite(ws, old, data)
        written = StampedWrite(path, whole, old is None, _body_size(text) - _body_size(before or ""), None)
        return Plan((step,), f"{'overwrote' if old else 'created'} {path}"), written

    done, written = commit_latest(ws, make)
    return written._replace(change_id=done.id)


def patch_stamped(ws: Workspace, path: NotePath, edit: Edit) -> StampedWrite:
    """Edit an existing note. Aliases as in `write_stamped`."""
    wait(ws)
    added: list[int] = []

    def change(text: str) -> str:
        new = apply(text, edit, path)
        _refuse_large(path, new, text)
        _refuse_taken_aliases(ws, path, text, new)
        whole = isinstance(edit, Replace)
        added[:] = [len(new.encode()) - len(text.encode()) if whole else _body_size(new) - _body_size(text)]
        return text if new == text else set_times(path, new, text, _format_now(ws))

    edited = change_text(ws, path, change)
    return StampedWrite(path, edited.after, False, added[0], edited.change_id)


def patch_or_create(ws: Workspace, path: NotePath, initial: str, edit: Edit | None) -> StampedWrite:
    """Edit a note, or create it from `initial` and the edit where it is missing: one change set at most."""
    if edit is None:  # a refusal to create it would reveal that a hidden note is not there
        ws.access.may_see(path)
    for _ in range(TRIES):
        try:
            if exists(ws, path):
                if edit is not None:
                    return patch_stamped(ws, path, edit)
                return StampedWrite(path, decode(ws.store.read(path).data)[0], False, 0, None)
            text = apply(initial, edit, path) if edit else initial
            _refuse_large(path, text, None)
            whole = set_times(path, text, None, _format_now(ws))
            return StampedWrite(path, whole, True, _body_size(text), create(ws, path, whole.encode()).change_id)
        except Exists as problem:
            if problem.details.get("path") != path:
                raise
        except NotFound as problem:
            if problem.details.get("what") != "note":
                raise
    raise missing_note_error(ws, path)


# ---- texts --------------------------------------------------------------------------------------------


def add_tags_and_aliases(path: NotePath, content: str, tags: Sequence[str], aliases: Sequence[str]) -> str:
    """The content with more tags and aliases after those it has, and without the backlinks that only answers carry."""
    note = parse(path, content)
    if note.frontmatter.problem and not (tags or aliases):
        return content
    text = content
    if INJECTED in note.frontmatter.properties:  # present where an answer was written back as the note
        with suppress(Invalid):  # in a form that we do not change
            text = apply(content, RemoveProperty(INJECTED), path)

    edits: list[Edit] = []
    wanted = list(dict.fromkeys(tag for tag in (given.strip().lstrip("#") for given in tags) if tag))
    if any(key.lower() == "tags" for key in note.frontmatter.properties):
        edits += [AddTag(tag, "flow") for tag in wanted]
    elif wanted:
        once = list({tag.casefold(): tag for tag in reversed(wanted)}.values())[::-1]
        edits.append(SetProperty("tags", once, "flow", apart=True))
    text = apply_all(text, edits, path)

    note = parse(path, text)
    key = next((key for key in note.frontmatter.properties if key.lower() == "aliases"), "aliases")
    value = note.frontmatter.properties.get(key)
    known = {path_key(alias) for alias in note.aliases}
    more = {path_key(alias): alias for given in reversed(aliases) if (alias := given.strip())}
    new = [alias for alias_key, alias in reversed(more.items()) if alias_key not in known]
    if not new:
        return text
    members = [*(value if isinstance(value, list) else note.aliases), *new]
    style: ListStyle | None = None if isinstance(value, list) and value else "flow"
    return apply(text, SetProperty(key, members, style, apart=True), path)


def set_times(path: NotePath, text: str, before: str | None, now: str) -> str:
    """The text with its times set: both for a new note, else those it has or had. `created` keeps its value."""
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
        return text  # a time is no reason to refuse a note


def body_of(text: str) -> str:
    """The text below the frontmatter and its blank line; all of it where the frontmatter cannot be read."""
    front = read_frontmatter(text)
    if not front.present or front.problem:
        return text[front.start :]
    blank = _BLANK_LINE.match(text, front.end)
    return text[blank.end() if blank else front.end :]


def _separate_body(text: str) -> str:
    """Put a blank line between the frontmatter and the body."""
    front = read_frontmatter(text)
    if not front.present or front.problem or not text[front.end :].strip() or _BLANK_LINE.match(text, front.end):
        return text
    return text[: front.end] + ("\r\n" if text[: front.end].endswith("\r\n") else "\n") + text[front.end :]


def _body_size(text: str) -> int:
    return len(body_of(text).encode())


def _format_now(ws: Workspace) -> str:
    return datetime.fromtimestamp(ws.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- refusals -----------------------------------------------------------------------------------------


def _refuse_large(path: NotePath, text: str, before: str | None) -> None:
    """Refuse a note above MAX_BYTES, but not one that was larger already and does not grow."""
    size = len(text.encode())
    if size > max(MAX_BYTES, len(before.encode()) if before else 0):
        raise TooLarge(
            f"{path} would be {size:,} bytes; the most is {MAX_BYTES:,}", hint="split it into several notes",
            size=size, limit=MAX_BYTES, path=path,
        )  # fmt: skip


def _refuse_taken_aliases(ws: Workspace, path: NotePath, before: str | None, after: str) -> None:
    """Refuse new aliases that another note has; `check` reports conflicts of older ones."""
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
