"""Edits of properties and tags: only the lines of a key change, and what was written is read back before it counts."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
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
        return [_set_property(_parse_readable(text, path), self.key, self.value, self.style, self.apart)]


@dataclass(frozen=True, slots=True)
class RemoveProperty(Edit):
    key: str

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = _parse_readable(text, path)
        if self.key not in note.frontmatter.properties:
            return []
        wanted = {name: value for name, value in note.frontmatter.properties.items() if name != self.key}
        remove = _remove_from_json if _is_json(note) else _remove_lines
        return [_choose_splice(note, wanted, remove(note, self.key))]


@dataclass(frozen=True, slots=True)
class AddTag(Edit):
    """A tag in the frontmatter, unless it is there."""

    tag: str
    style: ListStyle | None = None
    ignore_case: bool = True

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = _parse_readable(text, path)
        tags = list_property_tags(note.frontmatter.properties)
        if any(_is_same_tag(self.tag, other, self.ignore_case) for other in tags):
            return []
        key, value = _tag_property(note)
        members = [*(value if isinstance(value, list) else tags), self.tag]
        added = _add_item(note, key, self.tag) if isinstance(value, list) and value else ()
        return [_set_property(note, key, members, self.style, first=added)]


@dataclass(frozen=True, slots=True)
class RemoveTag(Edit):
    """A tag out of the frontmatter, if it is there."""

    tag: str
    style: ListStyle | None = None
    ignore_case: bool = True

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = _parse_readable(text, path)
        tags = list_property_tags(note.frontmatter.properties)
        if not any(_is_same_tag(self.tag, other, self.ignore_case) for other in tags):
            return []
        key, value = _tag_property(note)
        members = value if isinstance(value, list) else tags
        left = [member for member in members if not _is_same_tag(self.tag, str(member), self.ignore_case)]
        removed = _remove_items(note, key, self.tag, self.ignore_case) if left else ()
        style = None if isinstance(value, list) else self.style  # a text becomes a list, a list keeps its style
        return [_set_property(note, key, left, style, first=removed)]


def _set_property(
    note: Note, key: str, value: Any, style: ListStyle | None = None, apart: bool = False, first: Iterable[Splice] = ()
) -> Splice:
    """The splice that gives `key` this value. `first`: splices to try before its lines are written anew, in YAML."""
    value = list(value) if isinstance(value, tuple) else value
    written = (_write_entry(note, key, value, style, apart, quoted) for quoted in (False, True))
    candidates = _set_in_json(note, key, value) if _is_json(note) else chain(first, written)
    return _choose_splice(note, {**note.frontmatter.properties, key: value}, candidates)


def _is_same_tag(one: str, other: str, ignore_case: bool) -> bool:
    one, other = one.strip().removeprefix("#"), other.strip().removeprefix("#")
    return one.casefold() == other.casefold() if ignore_case else one == other


def _tag_property(note: Note) -> tuple[str, Any]:
    found = [key for key in note.frontmatter.properties if isinstance(key, str) and key.lower() == "tags"]
    key = found[0] if found else "tags"
    return key, note.frontmatter.properties.get(key)


# ---- certainty ----------------------------------------------------------------------------------------


def _parse_readable(text: str, path: NotePath) -> Note:
    note = parse_without_body(path, text)
    if note.frontmatter.problem is not None:
        raise Invalid(
            f"the frontmatter of {path} cannot be read: {note.frontmatter.problem}",
            hint="repair it as text first",
            what="frontmatter",
            path=path,
        )
    return note


def _choose_splice(note: Note, wanted: Mapping[str, Any], candidates: Iterable[Splice]) -> Splice:
    """The first splice after which exactly the wanted properties are read. Candidates are made as they are tried."""
    front = note.frontmatter
    for splice in candidates:
        if front.present:
            text = apply_splices(note.text, [splice])
            inner = text[front.inner_start : front.inner_end + len(text) - len(note.text)].replace("\r\n", "\n")
        else:
            inner = splice.new.replace("\r\n", "\n").removeprefix("---\n").rpartition("---\n")[0]
        properties, problem = read_properties(inner)
        if problem is None and _is_same(properties, wanted):
            return splice
    raise Invalid(
        f"this cannot be written into the frontmatter of {note.path} without changing the rest of it",
        hint="edit the frontmatter as text",
        what="frontmatter",
        path=note.path,
    )


def _is_same(one: Any, other: Any) -> bool:
    """Equality that tells true from 1 and 1 from 1.0."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


# ---- YAML ---------------------------------------------------------------------------------------------


def _write_entry(note: Note, key: str, value: Any, style: ListStyle | None, apart: bool, quoted: bool) -> Splice:
    front, end = note.frontmatter, line_ending(note.text)
    region = _find_lines(note, key)
    style = style or (_find_style(note.text[slice(*region)]) if region else None) or "block"
    entry = yaml_entry(key, value, style, quoted=quoted).replace("\n", end) + end
    if region:
        return Splice(*region, entry)
    if front.present:
        return Splice(front.inner_end, front.inner_end, entry)
    gap = end if apart and note.text[front.end :].strip() else ""
    return Splice(front.end, front.end, f"---{end}{entry}---{end}{gap}")


def _find_lines(note: Note, key: str) -> tuple[int, int] | None:
    """The lines of a key: from its own to before the next key, without blank lines and comments that follow."""
    if not note.frontmatter.present:
        return None
    start = end = -1
    for first, last in line_spans(note.text, note.frontmatter.inner_start, note.frontmatter.inner_end):
        found = _KEY.match(note.text, first, last)
        if found and start >= 0:
            break
        name = found["key"] if found else ""
        if name[:1] == "'":
            name = name[1:-1].replace("''", "'")
        elif name[:1] == '"':
            try:
                name = str(json.loads(name))
            except ValueError:
                name = name[1:-1]
        if found and name == key:
            start, end = first, last
        elif start >= 0 and not _BLANK_OR_COMMENT.fullmatch(note.text, first, last):
            end = last
    return (start, end) if start >= 0 else None


def _find_style(region: str) -> ListStyle | None:
    first, _, rest = region.partition("\n")
    if re.search(r":[ \t]+[\[{]", first):
        return "flow"
    item = _ITEM.search(rest)
    return None if item is None else "block" if item["indent"] else "flush"


def _remove_lines(note: Note, key: str) -> Iterator[Splice]:
    region = _find_lines(note, key)
    if region:
        yield Splice(*region, "")


def _add_item(note: Note, key: str, tag: str) -> Iterator[Splice]:
    region = _find_lines(note, key)
    if region is None:
        return
    text, end = note.text[slice(*region)], line_ending(note.text)
    if _find_style(text) == "flow":
        if "]" in text:
            place = region[0] + text.rfind("]")
            yield Splice(place, place, ", " + yaml_item(tag, inside=True))
    elif items := list(_ITEM.finditer(text)):
        yield Splice(region[1], region[1], f"{items[-1]['indent']}- {yaml_item(tag)}{end}")


def _remove_items(note: Note, key: str, tag: str, ignore_case: bool) -> Iterator[Splice]:
    region = _find_lines(note, key)
    if region is None:
        return
    kept = ""
    for first, last in line_spans(note.text, *region):
        item = _ITEM.match(note.text, first, last)
        value = re.sub(r"[ \t]+#.*", "", item["value"]).strip("\"'") if item else None
        if value is None or not _is_same_tag(tag, value, ignore_case):
            kept += note.text[first:last]
    yield Splice(*region, kept)


# ---- JSON ---------------------------------------------------------------------------------------------


def _is_json(note: Note) -> bool:
    return note.text[note.frontmatter.inner_start : note.frontmatter.inner_end].lstrip().startswith("{")


def _json_members(note: Note) -> list[tuple[str, int, int, int]]:
    """Each member of the object: key, where the key begins, where its value begins and ends."""
    text, decode = note.text, json.JSONDecoder().raw_decode
    members, place = [], text.index("{", note.frontmatter.inner_start) + 1
    try:
        while (start := _skip_blanks(text, place)) >= 0 and text[start] != "}":
            key, place = decode(text, start)
            value = _skip_blanks(text, text.index(":", place) + 1)
            _, place = decode(text, value)
            members.append((str(key), start, value, place))
            place = _skip_blanks(text, place)
            place += text[place] == ","
    except (ValueError, IndexError):
        return []
    return members


def _skip_blanks(text: str, place: int) -> int:
    while text[place] in " \t\r\n":
        place += 1
    return place


def _set_in_json(note: Note, key: str, value: Any) -> Iterator[Splice]:
    members = _json_members(note)
    written = json.dumps(value, ensure_ascii=False)
    for name, _, start, end in members:
        if name == key:
            yield Splice(start, end, written)
            return
    place = members[-1][3] if members else note.text.index("{", note.frontmatter.inner_start) + 1
    yield Splice(place, place, f"{', ' if members else ''}{json.dumps(key, ensure_ascii=False)}: {written}")


def _remove_from_json(note: Note, key: str) -> Iterator[Splice]:
    members = _json_members(note)
    for place, (name, start, _, end) in enumerate(members):
        if name == key and place + 1 < len(members):
            yield Splice(start, members[place + 1][1], "")
        elif name == key:
            yield Splice(members[place - 1][3] if place else start, end, "")
