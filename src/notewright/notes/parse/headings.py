"""Sections: what stands below a heading, which heading a caller means, and its anchor."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from enum import Enum

from notewright.notes.edits.splices import line_count
from notewright.notes.links.syntax import strip_links
from notewright.notes.model import Heading, Note, Section

_SPECIAL = re.compile(r"[!\"#$%&()*+,.:;<=>?@^`{|}~/\[\]\\\s]+")
_PREFIX = re.compile(r"(#{1,6})[ \t]+")
_CLOSING = re.compile(r"[ \t]+#+[ \t]*$")
_ARROW = re.compile(r"\s+>\s+")
_IN_SLUGS = frozenset(("Ll", "Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"))  # categories of characters
_RINGED = re.compile(
    "[\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]"
)  # circled, squared


class HeadingRule(Enum):
    """How a heading is matched."""

    OBSIDIAN = "special characters and case ignored, chains allowed"
    EXACT_THEN_FOLDED = "exact text in the whole note first, else case ignored"
    EXACT = "exact text, a leading `## ` asks for that level"


def heading_key(text: str) -> str:
    """What Obsidian compares of a heading: special characters stripped, blanks shrunk, case ignored."""
    stripped = _SPECIAL.sub(" ", text).strip()
    return stripped.lower() if stripped.isascii() else unicodedata.normalize("NFC", stripped).casefold()


def list_sections(note: Note) -> tuple[Section, ...]:
    """One section for each heading, in order; a section holds those of lower headings below it."""
    ends: list[tuple[int, int]] = [(0, 0)] * len(note.headings)
    last = (len(note.text), line_count(note.text) + 1)
    open_: list[int] = []
    for index, heading in enumerate(note.headings):
        while open_ and note.headings[open_[-1]].level >= heading.level:
            ends[open_.pop()] = (heading.start, heading.line)
        open_.append(index)
    for index in open_:
        ends[index] = last
    return tuple(Section(h, h.start, h.end, *ends[i]) for i, h in enumerate(note.headings))


def find_section(note: Note, wanted: str, rule: HeadingRule = HeadingRule.OBSIDIAN) -> Section | None:
    """The first section that `wanted` names, or None.

    By Obsidian's rule `wanted` is a heading's text, a subpath (`#A`, `#A#B`) or a chain (`A > B`): B below A.
    """
    place = _FINDERS[rule](note.headings, wanted)
    return None if place is None else list_sections(note)[place]


def _by_key(headings: tuple[Heading, ...], wanted: str) -> int | None:
    """The heading as written, else as it is shown: a link in a heading may be named by its text."""
    for text in (str, strip_links):
        keys = [heading_key(text(heading.text)) for heading in headings]
        for chain in _chains(wanted):
            for place in _below(headings, keys, chain):
                return place
    return None


def _chains(wanted: str) -> Iterator[list[str]]:
    """The ways to read `wanted`, likeliest first. A `#` or `>` may also be part of the heading itself."""
    whole = [heading_key(wanted)]
    parts = [heading_key(part) for part in wanted.split("#")] if wanted.lstrip().startswith("#") else None
    if parts is not None:
        yield [part for part in parts if part]
    yield whole
    if _ARROW.search(wanted):
        yield [heading_key(part) for part in _ARROW.split(wanted.lstrip("# "))]


def _below(headings: tuple[Heading, ...], keys: list[str], chain: list[str]) -> Iterator[int]:
    """Headings whose key ends the chain and whose ancestors hold the rest of it, in order."""
    if not chain or not all(chain):
        return
    for place, line in enumerate(heading_ancestors(headings)):
        above = (keys[ancestor] for ancestor in line)
        if keys[place] == chain[-1] and all(part in above for part in chain[:-1]):  # each goes on where one stopped
            yield place


def heading_ancestors(headings: tuple[Heading, ...]) -> Iterator[tuple[int, ...]]:
    """Of each heading the places of those it stands below, the highest first."""
    line: list[int] = []
    for place, heading in enumerate(headings):
        while line and headings[line[-1]].level >= heading.level:
            line.pop()
        yield tuple(line)
        line.append(place)


def _exact_then_folded(headings: tuple[Heading, ...], wanted: str) -> int | None:
    bare = _CLOSING.sub("", wanted).strip()
    for text in (bare, bare.lstrip("#").strip()):
        for fold in (str, str.casefold):
            texts = [fold(heading.text) for heading in headings]
            if fold(text) in texts:
                return texts.index(fold(text))
    return None


def _exact(headings: tuple[Heading, ...], wanted: str) -> int | None:
    wanted = wanted.strip()
    prefix = _PREFIX.match(wanted)
    text = wanted[prefix.end() :].strip() if prefix else wanted
    levels = (len(prefix[1]),) if prefix else range(1, 7)
    return next((place for place, one in enumerate(headings) if one.text == text and one.level in levels), None)


_FINDERS = {
    HeadingRule.OBSIDIAN: _by_key,
    HeadingRule.EXACT_THEN_FOLDED: _exact_then_folded,
    HeadingRule.EXACT: _exact,
}


def heading_slugs(headings: Iterable[str]) -> list[str]:
    """The anchor GitHub makes of each heading: lower case, blanks as dashes, repeats numbered."""
    seen, slugs = dict[str, int](), list[str]()
    for heading in headings:
        base = slug = "".join(map(_in_slug, heading.lower()))
        while slug in seen:
            seen[base] += 1
            slug = f"{base}-{seen[base]}"
        seen[slug] = 0
        slugs.append(slug)
    return slugs


def _in_slug(char: str) -> str:
    """A blank as a dash; letters, marks, digits, `_` and `-` as they are."""
    if char == " ":
        return "-"
    return char if char == "-" or unicodedata.category(char) in _IN_SLUGS or _RINGED.match(char) else ""
