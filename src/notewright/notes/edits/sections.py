"""Edits below a heading. A section runs to the next heading of the same or a higher level."""

from dataclasses import dataclass
from difflib import get_close_matches

from notewright.errors import NotFound
from notewright.notes.edits.edit import Edit, splice_lines
from notewright.notes.edits.splices import Splice, line_ending, line_spans
from notewright.notes.model import Note, Section
from notewright.notes.parse.headings import HeadingRule, find_section
from notewright.notes.parse.parser import parse
from notewright.notes.path import NotePath


def require_section(note: Note, wanted: str, rule: HeadingRule = HeadingRule.OBSIDIAN) -> Section:
    """The section a caller names, or NotFound with the nearest headings."""
    found = find_section(note, wanted, rule)
    if found is None:
        texts = list(dict.fromkeys(heading.text for heading in note.headings))
        nearest = list(dict.fromkeys([*get_close_matches(wanted, texts, 3, 0.4), *texts]))[:3]
        hint = "headings here: " + ", ".join(nearest) if nearest else "it has no headings"
        raise NotFound(
            f"no section {wanted!r} in {note.path}", hint=hint, what="section", path=note.path, nearest=nearest
        )
    return found


@dataclass(frozen=True, slots=True)
class ReplaceSection(Edit):
    """What stands below the heading line, sub-headings included; the blank lines before the next heading stay."""

    section: str
    text: str
    rule: HeadingRule = HeadingRule.OBSIDIAN

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        section = require_section(parse(path, text), self.section, self.rule)
        end = section.end if self.text.endswith(("\n\n", "\n\r\n")) else _find_text_end(text, section)
        return [splice_lines(text, section.body, self.text, end) if self.text else Splice(section.body, end, "")]


@dataclass(frozen=True, slots=True)
class AppendToSection(Edit):
    """Lines after the last text of the section, before the blank lines that precede the next heading.

    `create` is the level of a heading to make at the end of the note where there is none.
    """

    section: str
    text: str
    rule: HeadingRule = HeadingRule.OBSIDIAN
    create: int = 0

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        note = parse(path, text)
        if self.create and find_section(note, self.section, self.rule) is None:
            end, body = line_ending(text), text.removeprefix("\ufeff")
            gap = "" if not body or body.endswith(end * 2) else end if body.endswith("\n") else end * 2
            heading = "#" * self.create + " " + self.section.lstrip("# ").strip() + end
            closing = "" if self.text.endswith("\n") else end
            return [Splice(len(text), len(text), gap + heading + self.text + closing)]
        section = require_section(note, self.section, self.rule)
        return [splice_lines(text, _find_text_end(text, section), self.text)] if self.text else []


@dataclass(frozen=True, slots=True)
class PrependToSection(Edit):
    """Lines directly below the heading."""

    section: str
    text: str
    rule: HeadingRule = HeadingRule.OBSIDIAN

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        section = require_section(parse(path, text), self.section, self.rule)
        return [splice_lines(text, section.body, self.text)] if self.text else []


@dataclass(frozen=True, slots=True)
class DeleteSection(Edit):
    """The heading and everything below it."""

    section: str
    rule: HeadingRule = HeadingRule.OBSIDIAN

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        section = require_section(parse(path, text), self.section, self.rule)
        return [Splice(section.start, section.end, "")]


def _find_text_end(text: str, section: Section) -> int:
    """After the last line of a section that is not blank; the heading itself is the first."""
    last = section.body
    for start, end in line_spans(text, section.body, section.end):
        if text[start:end].strip():
            last = end
    return last
