"""Sections: what stands below a heading, which heading a caller means, and its anchor."""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from unicodedata import category, normalize

from notewright.notes.edits.splices import line_count
from notewright.notes.links.syntax import strip_links
from notewright.notes.model import Heading, Note, Section

_SPECIAL = re.compile(r"[!\"#$%&()*+,.:;<=>?@^`{|}~/\[\]\\\s]+")
_PREFIX = re.compile(r"(#{1,6})[ \t]+")
_CLOSING = re.compile(r"[ \t]+#+[ \t]*$")
_PLAIN = re.compile(r"#+[^\S\r\n]+\S")
_ARROW = re.compile(r"(?<!\s)\s+>\s+")
_IN_SLUGS = frozenset(("Ll", "Lu", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"))  # categories of characters
_RINGED = re.compile(
    "[\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]"
)  # circled, squared


class HeadingRule(Enum):
    """How a heading is matched."""

    OBSIDIAN = "special characters and case ignored, chains allowed"
    EXACT_THEN_FOLDED = "exact text in the whole note first, else case ignored; plain headings"
    EXACT = "exact text, a leading `## ` asks for that level; plain headings"


def heading_key(text: str) -> str:
    """What Obsidian compares of a heading: special characters stripped, blanks shrunk, case ignored."""
    stripped = _SPECIAL.sub(" ", text).strip()
    return stripped.lower() if stripped.isascii() else normalize("NFC", stripped).casefold()


def list_plain_headings(note: Note) -> tuple[Heading, ...]:
    """Headings as the dialects know them: lines that begin with `#`, none that are underlined or in a quote or list."""
    return tuple(heading for heading in note.headings if _PLAIN.match(note.text, heading.start))


def list_sections(note: Note, headings: tuple[Heading, ...] | None = None) -> tuple[Section, ...]:
    """One section for each heading, in order; a section holds those of lower headings below it."""
    headings = note.headings if headings is None else headings
    ends: list[tuple[int, int]] = [(0, 0)] * len(headings)
    last = (len(note.text), line_count(note.text) + 1)
    open_: list[int] = []
    for index, heading in enumerate(headings):
        while open_ and headings[open_[-1]].level >= heading.level:
            ends[open_.pop()] = (heading.start, heading.line)
        open_.append(index)
    for index in open_:
        ends[index] = last
    return tuple(Section(h, h.start, h.end, *ends[i]) for i, h in enumerate(headings))


def find_section(note: Note, wanted: str, rule: HeadingRule = HeadingRule.OBSIDIAN) -> Section | None:
    """The first section that `wanted` names, or None.

    By Obsidian's rule `wanted` is a heading's text, a subpath (`#A`, `#A#B`) or a chain (`A > B`): B below A.
    """
    headings = note.headings if rule is HeadingRule.OBSIDIAN else list_plain_headings(note)
    if rule is HeadingRule.OBSIDIAN:
        place = _find_by_key(headings, wanted)
    elif rule is HeadingRule.EXACT_THEN_FOLDED:
        place = _find_exact_then_folded(headings, wanted)
    else:
        prefix = _PREFIX.match(wanted.strip())
        text = wanted.strip()[prefix.end() if prefix else 0 :].strip()
        levels = (len(prefix[1]),) if prefix else range(1, 7)
        places = (n for n, heading in enumerate(headings) if heading.text == text and heading.level in levels)
        place = next(places, None)
    return None if place is None else list_sections(note, headings)[place]


def _find_by_key(headings: tuple[Heading, ...], wanted: str) -> int | None:
    """The heading as written, else as it is shown: a link in a heading may be named by its text."""
    chains = _read_chains(wanted)
    for text in (str, strip_links):
        keys = [heading_key(text(heading.text)) for heading in headings]
        for chain in chains:
            for place in _find_below(headings, keys, chain):
                return place
    return None


def _read_chains(wanted: str) -> list[list[str]]:
    """The ways to read `wanted`, likeliest first: a `#` or `>` may also be part of the heading itself."""
    chains = [[heading_key(wanted)]]
    if wanted.lstrip().startswith("#"):
        chains.insert(0, [part for part in map(heading_key, wanted.split("#")) if part])
    if _ARROW.search(wanted):
        chains.append([heading_key(part) for part in _ARROW.split(wanted.lstrip("# "))])
    return chains


def subpath_keys(wanted: str) -> set[str]:
    """The keys of all headings that `wanted` may name."""
    return {key for chain in _read_chains(wanted) for key in chain}


def _find_below(headings: tuple[Heading, ...], keys: list[str], chain: list[str]) -> Iterator[int]:
    """The headings whose key ends the chain and whose ancestors have the rest of it, in order."""
    if not chain or not all(chain):
        return
    for place, ancestors in enumerate(heading_ancestors(headings)):
        above = (keys[ancestor] for ancestor in ancestors)
        if keys[place] == chain[-1] and all(part in above for part in chain[:-1]):  # `in` goes on where it stopped
            yield place


def heading_ancestors(headings: tuple[Heading, ...]) -> Iterator[tuple[int, ...]]:
    """Of each heading the places of those it stands below, the highest first."""
    above: list[int] = []
    for place, heading in enumerate(headings):
        while above and headings[above[-1]].level >= heading.level:
            above.pop()
        yield tuple(above)
        above.append(place)


def _find_exact_then_folded(headings: tuple[Heading, ...], wanted: str) -> int | None:
    bare = _CLOSING.sub("", wanted).strip()
    for text in (bare, bare.lstrip("#").strip()):
        for fold in (str, str.casefold):
            texts = [fold(heading.text) for heading in headings]
            if fold(text) in texts:
                return texts.index(fold(text))
    return None


def heading_slugs(headings: Iterable[str]) -> list[str]:
    """The anchor GitHub makes of each heading: lower case, blanks as dashes, repeats numbered."""
    seen, slugs = dict[str, int](), list[str]()
    for heading in headings:
        kept = (char for char in heading.lower() if char in " -" or category(char) in _IN_SLUGS or _RINGED.match(char))
        base = slug = "".join(kept).replace(" ", "-")
        while slug in seen:
            seen[base] += 1
            slug = f"{base}-{seen[base]}"
        seen[slug] = 0
        slugs.append(slug)
    return slugs
