"""Edits of properties and tags: only the lines of a key change, and what was written is read back before it counts."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from notewright.errors import Invalid
from notewright.notes.edits.edit import Edit
from notewright.notes.edits.splices import Splice, apply_splices, line_ending, line_spans
from notewright.notes.edits.yaml import ListStyle, yaml_entry, yaml_item
from notewright.notes.model import Note
from notewright.notes.parse.frontmatter import read_properties
from notewright.notes.parse.parser import parse_without_body
from notewright.notes.parse.tags import list_property_tags
from notewright.notes.path import NotePath

_KEY = re.compile(
    r"""(?P<key>"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'|[^\s#\-?\[\]{},&*!|>'"%@`:][^\n]*?|[-?:]\S[^\n]*?)"""
    r"""[ \t]*:(?=[ \t\r\n]|$)"""
)
_ITEM = re.compile(r"(?P<indent>[ \t]*)-[ \t]+(?P<value>[^\r\n]*?)[ \t]*(?=[\r\n]|$)")
_BLANK_OR_COMMENT = re.compile(r"[ \t]*(#[^\r\n]*)?\r?\n?")


@dataclass(frozen=True, slots=True)
class SetProperty(Edit):
    """One property; None is an empty value. A list keeps its style unless one is asked for."""

    key: str
    value: Any
    style: ListStyle | None = None
    apart: bool = False  # a block made for it is followed by a blank line

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        return [_set(_readable(text, path), self.key, self.value, self.style, self.apart)]


@dataclass(frozen=True, slots=True)
class RemoveProperty(Edit):
    key: str

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = _readable(text, path)
        if self.key not in note.frontmatter.properties:
            return []
        wanted = {name: value for name, value in note.frontmatter.properties.items() if name != self.key}
        take = _json_remove if _is_json(note) else _region_removed
        return [_checked(note, wanted, [lambda: take(note, self.key)])]


@dataclass(frozen=True, slots=True)
class AddTag(Edit):
    """A tag in the frontmatter, unless it is there."""

    tag: str
    style: ListStyle | None = None
    ignore_case: bool = True

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = _readable(text, path)
        tags = list_property_tags(note.frontmatter.properties)
        if any(_same_tag(self.tag, other, self.ignore_case) for other in tags):
            return []
        key, value = _tag_property(note)
        members = [*(value if isinstance(value, list) else tags), self.tag]
        added = [lambda: _item_added(note, key, self.tag)] if isinstance(value, list) and value else []
        return [_set(note, key, members, self.style, before=added)]


@dataclass(frozen=True, slots=True)
class RemoveTag(Edit):
    """A tag out of the frontmatter, if it is there."""

    tag: str
    ignore_case: bool = True

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = _readable(text, path)
        tags = list_property_tags(note.frontmatter.properties)
        if not any(_same_tag(self.tag, other, self.ignore_case) for other in tags):
            return []
        key, value = _tag_property(note)
        members = value if isinstance(value, list) else tags
        left = [member for member in members if not _same_tag(self.tag, str(member), self.ignore_case)]
        removed = [lambda: _items_removed(note, key, self.tag, self.ignore_case)] if left else []
        return [_set(note, key, left, before=removed)]


_Way = Callable[[], Splice | None]


def _set(
    note: Note, key: str, value: Any, style: ListStyle | None = None, apart: bool = False, before: Sequence[_Way] = ()
) -> Splice:
    """The splice that gives `key` this value. `before`: other ways to come to it, in YAML, which are tried first."""
    value = list(value) if isinstance(value, tuple) else value
    ways: list[_Way] = [lambda: _json_set(note, key, value)]
    if not _is_json(note):
        plain, quoted = (partial(_written, note, key, value, style, apart, quoted) for quoted in (False, True))
        ways = [*before, plain, quoted]
    return _checked(note, {**note.frontmatter.properties, key: value}, ways)


def _same_tag(one: str, other: str, ignore_case: bool) -> bool:
    one, other = one.strip().removeprefix("#"), other.strip().removeprefix("#")
    return one.casefold() == other.casefold() if ignore_case else one == other


def _tag_property(note: Note) -> tuple[str, Any]:
    found = [key for key in note.frontmatter.properties if isinstance(key, str) and key.lower() == "tags"]
    key = found[0] if found else "tags"
    return key, note.frontmatter.properties.get(key)


# ---- certainty ----------------------------------------------------------------------------------------


def _readable(text: str, path: NotePath) -> Note:
    note = parse_without_body(path, text)
    if note.frontmatter.problem is not None:
        raise Invalid(
            f"the frontmatter of {path} cannot be read: {note.frontmatter.problem}",
            hint="repair it as text first",
            what="frontmatter",
            path=path,
        )
    return note


def _checked(note: Note, wanted: Mapping[str, Any], ways: Iterable[_Way]) -> Splice:
    """The first way after which exactly the wanted properties are read."""
    for way in ways:
        splice = way()
        if splice is not None and _same(_read(note, splice), wanted):
            return splice
    raise Invalid(
        f"this cannot be written into the frontmatter of {note.path} without changing the rest of it",
        hint="edit the frontmatter as text",
        what="frontmatter",
        path=note.path,
    )


def _read(note: Note, splice: Splice) -> Mapping[str, Any] | None:
    text = apply_splices(note.text, [splice])
    front = note.frontmatter
    if not front.present:
        inner = splice.new.replace("\r\n", "\n").removeprefix("---\n").rpartition("---\n")[0]
    else:
        inner = text[front.inner_start : front.inner_end + len(text) - len(note.text)].replace("\r\n", "\n")
    properties, problem = read_properties(inner)
    return properties if problem is None else None


def _same(one: Any, other: Any) -> bool:
    """Equality that tells true from 1 and 1 from 1.0."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


# ---- YAML ---------------------------------------------------------------------------------------------


def _written(note: Note, key: str, value: Any, style: ListStyle | None, apart: bool, quoted: bool) -> Splice:
    front, end = note.frontmatter, line_ending(note.text)
    region = _region(note, key)
    style = style or (_style(note.text[slice(*region)]) if region else None) or "block"
    entry = yaml_entry(key, value, style, quoted=quoted).replace("\n", end) + end
    if region:
        return Splice(*region, entry)
    if front.present:
        return Splice(front.inner_end, front.inner_end, entry)
    gap = end if apart and note.text[front.end :].strip() else ""
    return Splice(front.end, front.end, f"---{end}{entry}---{end}{gap}")


def _region(note: Note, key: str) -> tuple[int, int] | None:
    """The lines of a key: from its own to before the next key, without blank lines and comments that follow."""
    if not note.frontmatter.present:
        return None
    start = end = -1
    for first, last in line_spans(note.text, note.frontmatter.inner_start, note.frontmatter.inner_end):
        found = _KEY.match(note.text, first, last)
        if found and start >= 0:
            break
        if found and _key_text(found["key"]) == key:
            start, end = first, last
        elif start >= 0 and not _BLANK_OR_COMMENT.fullmatch(note.text, first, last):
            end = last
    return (start, end) if start >= 0 else None


def _key_text(written: str) -> str:
    if written[0] == "'":
        return written[1:-1].replace("''", "'")
    if written[0] == '"':
        try:
            return str(json.loads(written))
        except ValueError:
            return written[1:-1]
    return written


def _style(region: str) -> ListStyle | None:
    first, _, rest = region.partition("\n")
    if re.search(r":[ \t]+[\[{]", first):
        return "flow"
    item = _ITEM.search(rest)
    return None if item is None else "block" if item["indent"] else "flush"


def _region_removed(note: Note, key: str) -> Splice | None:
    region = _region(note, key)
    return Splice(*region, "") if region else None


def _item_added(note: Note, key: str, tag: str) -> Splice | None:
    region = _region(note, key)
    if region is None:
        return None
    text, end = note.text[slice(*region)], line_ending(note.text)
    if _style(text) == "flow":
        place = region[0] + text.rfind("]")
        return Splice(place, place, ", " + yaml_item(tag, inside=True)) if "]" in text else None
    items = list(_ITEM.finditer(text))
    return Splice(region[1], region[1], f"{items[-1]['indent']}- {yaml_item(tag)}{end}") if items else None


def _items_removed(note: Note, key: str, tag: str, ignore_case: bool) -> Splice | None:
    region = _region(note, key)
    if region is None:
        return None
    kept = ""
    for first, last in line_spans(note.text, *region):
        item = _ITEM.match(note.text, first, last)
        value = re.sub(r"[ \t]+#.*", "", item["value"]).strip("\"'") if item else None
        if value is None or not _same_tag(tag, value, ignore_case):
            kept += note.text[first:last]
    return Splice(*region, kept)


# ---- JSON ---------------------------------------------------------------------------------------------


def _is_json(note: Note) -> bool:
    return note.text[note.frontmatter.inner_start : note.frontmatter.inner_end].lstrip().startswith("{")


def _json_members(note: Note) -> list[tuple[str, int, int, int]]:
    """Each member of the object: key, where the key begins, where its value begins and ends."""
    text, decode = note.text, json.JSONDecoder().raw_decode
    members, place = [], text.index("{", note.frontmatter.inner_start) + 1
    try:
        while (start := _after_blanks(text, place)) >= 0 and text[start] != "}":
            key, place = decode(text, start)
            value = _after_blanks(text, text.index(":", place) + 1)
            _, place = decode(text, value)
            members.append((str(key), start, value, place))
            place = _after_blanks(text, place)
            place += text[place] == ","
    except (ValueError, IndexError):
        return []
    return members


def _after_blanks(text: str, place: int) -> int:
    while text[place] in " \t\r\n":
        place += 1
    return place


def _json_set(note: Note, key: str, value: Any) -> Splice | None:
    members = _json_members(note)
    written = json.dumps(value, ensure_ascii=False)
    for name, _, start, end in members:
        if name == key:
            return Splice(start, end, written)
    place = members[-1][3] if members else note.text.index("{", note.frontmatter.inner_start) + 1
    return Splice(place, place, f"{', ' if members else ''}{json.dumps(key, ensure_ascii=False)}: {written}")


def _json_remove(note: Note, key: str) -> Splice | None:
    members = _json_members(note)
    for place, (name, start, _, end) in enumerate(members):
        if name == key and place + 1 < len(members):
            return Splice(start, members[place + 1][1], "")
        if name == key:
            return Splice(members[place - 1][3] if place else start, end, "")
    return None
