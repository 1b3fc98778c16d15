"""Edits as values: each knows the splices it makes, so that every byte outside them stays as it was.

Content goes in as it was given; line ends that an edit adds are the note's own. `is_repeatable` says whether an edit
may be applied to a newer text than the one its author saw; `may_apply_again` looks at that text as well.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from notewright.errors import Ambiguous, Invalid, NotFound
from notewright.notes.edits.splices import Splice, apply_splices, line_ending, line_spans
from notewright.notes.model import Frontmatter
from notewright.notes.parse.block_scanner import normalize_line_endings
from notewright.notes.parse.frontmatter import parse_frontmatter
from notewright.notes.path import NotePath

_ANY_PATH = NotePath("note.md")
_MAX_LINES_SHOWN = 20


class Edit(Protocol):
    """A change to one text."""

    is_repeatable: ClassVar[bool] = True

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        """What changes where, or the Problem that stands in the way."""


def apply(text: str, edit: Edit, path: NotePath = _ANY_PATH) -> str:
    """The text after one edit. `path` is only for the words of a refusal."""
    return apply_splices(text, edit.splices(text, path))


def apply_all(text: str, edits: Iterable[Edit], path: NotePath = _ANY_PATH) -> str:
    """The text after all edits, each on the result of the one before; line numbers are those of `text` itself."""
    read, lines, made = text, list[tuple[int, int]](), list[Sequence[Splice]]()
    for edit in edits:
        if type(edit) is InsertAtLine:  # `isinstance` of a protocol's class takes 20 µs in a write
            lines = lines or _line_spans(read)
            splices = [edit.insertion(text, lines, made)]
        else:
            splices = edit.splices(text, path)
        text = apply_splices(text, splices)
        made.append(splices)
    return text


def may_apply_again(edit: Edit, newer: str) -> bool:
    """Whether an edit made for an older text means the same on this one."""
    if isinstance(edit, Replace):
        return len(edit.places(newer)) == 1
    return edit.is_repeatable


# ---- text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append(Edit):
    """Text at the end. Without a separator a missing line end is added; with one it always stands between.

    `apart`: the first text below a frontmatter is set apart from it by a blank line.
    """

    text: str
    separator: str | None = None
    apart: bool = False

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        end = line_ending(text)
        between = "" if _at_line_start(text, len(text)) else end
        if self.separator is not None:
            between = self.separator.replace("\n", end)
        elif self.apart and _only_frontmatter(text):
            between += end
        return [Splice(len(text), len(text), between + self.text)]


@dataclass(frozen=True, slots=True)
class Prepend(Edit):
    """Text at the beginning of the body: below the frontmatter and the blank line that sets it apart."""

    text: str
    apart: bool = False  # as in Append

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        front, end = read_frontmatter(text), line_ending(text)
        blank = re.compile(r"[ \t]*\r?\n").match(text, front.end) if front.present else None
        place = blank.end() if blank else front.end
        before = "" if _at_line_start(text, place) else end
        if self.apart and _only_frontmatter(text):
            before += end
        return [Splice(place, place, before + self.text + _closing(text, place, self.text))]


@dataclass(frozen=True, slots=True)
class Replace(Edit):
    """One text by another: the only occurrence, the first, or all. Nothing in `new` is special."""

    old: str
    new: str
    which: Literal["only", "first", "all"] = "only"
    body: bool = False  # leave the frontmatter alone

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        places = self.places(text)
        if not places:
            raise NotFound(f"the text to replace is not in {path}", hint=_READ_AGAIN, what="text", path=path)
        if self.which == "only" and len(places) > 1:
            lines = list(dict.fromkeys(_line_numbers(text, places[:1000])))
            listed = ", ".join(map(str, lines[:_MAX_LINES_SHOWN]))
            raise Ambiguous(
                f"the text to replace is {len(places)} times in {path}, on lines {listed}",
                hint="give more of its surroundings, or replace all",
                what="text",
                count=len(places),
                lines=lines,
                path=path,
            )
        old, new = self._with_line_endings_of(text)
        taken: list[Splice] = []
        for place in places if self.which == "all" else places[:1]:
            if not taken or place >= taken[-1].end:
                taken.append(Splice(place, place + len(old), new))
        return taken

    def places(self, text: str) -> list[int]:
        """Where the old text begins; occurrences that overlap count each."""
        if not self.old:
            raise Invalid("the text to replace is empty", hint="say which text to replace", what="old")
        old, _ = self._with_line_endings_of(text)
        found, place = [], text.find(old, read_frontmatter(text).end if self.body else 0)
        while place >= 0:
            found.append(place)
            place = text.find(old, place + 1)
        return found

    def _with_line_endings_of(self, text: str) -> tuple[str, str]:
        """Both texts with the note's line ends, where the old one is only found so: few callers write CRLF."""
        if "\n" in self.old and "\r" not in self.old and "\r\n" in text and self.old not in text:
            return self.old.replace("\n", "\r\n"), re.sub(r"\r?\n", "\r\n", self.new)
        return self.old, self.new


@dataclass(frozen=True, slots=True)
class InsertAtLine(Edit):
    """Lines of their own before or after a line, counted from 1."""

    line: int
    text: str
    after: bool = False
    is_repeatable: ClassVar[bool] = False

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        return [self.insertion(text, _line_spans(text), ())]

    def insertion(self, text: str, lines: Sequence[tuple[int, int]], made: Iterable[Sequence[Splice]]) -> Splice:
        """`lines` are those of a text that these splices made into this one."""
        if not 1 <= self.line <= len(lines):
            hint = f"lines count from 1 to {len(lines)}"
            raise NotFound(f"there is no line {self.line}", hint=hint, what="line", line=self.line)
        start, end = lines[self.line - 1]
        place = end if self.after else start
        for splices in made:
            if any(splice.start < place < splice.end for splice in splices):
                raise Invalid(f"line {self.line} is gone: an edit before this one replaced it", what="line")
            # what was inserted at the place itself comes before a line's start and after its end
            before = [one for one in splices if one.end <= place and (one.start < place or not self.after)]
            place += sum(len(one.new) - (one.end - one.start) for one in before)
        return splice_lines(text, place, self.text)


@dataclass(frozen=True, slots=True)
class InsertBesideText(Edit):
    """Lines of their own before or after the first line of the body that says `beside`, outer blanks ignored."""

    beside: str
    text: str
    after: bool = False

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        for start, end in line_spans(text, read_frontmatter(text).end):
            if text[start:end].strip() == self.beside.strip():
                return [splice_lines(text, end if self.after else start, self.text)]
        raise NotFound(f"no line of {path} says {self.beside!r}", hint=_READ_AGAIN, what="text", path=path)


@dataclass(frozen=True, slots=True)
class ReplaceBody(Edit):
    """Everything below the frontmatter."""

    text: str
    is_repeatable: ClassVar[bool] = False

    def splices(self, text: str, path: NotePath) -> list[Splice]:
        front = read_frontmatter(text)
        before = "" if _at_line_start(text, front.end) else line_ending(text)
        return [Splice(front.end, len(text), before + self.text)]


# ---- places -------------------------------------------------------------------------------------------

_READ_AGAIN = "read the note and copy the text exactly"


def _line_spans(text: str) -> list[tuple[int, int]]:
    mark = int(text.startswith("\ufeff"))  # of byte order: no line begins before it
    return [(start or mark, end) for start, end in line_spans(text)]


def splice_lines(text: str, start: int, new: str, end: int | None = None) -> Splice:
    """`new` as lines of its own instead of `text[start:end]`; `start` is where a line begins or the text ends."""
    end = start if end is None else end
    before = "" if _at_line_start(text, start) else line_ending(text)
    return Splice(start, end, before + new + _closing(text, end, new))


def read_frontmatter(text: str) -> Frontmatter:
    """The frontmatter alone: most edits need no more of a note."""
    return parse_frontmatter(normalize_line_endings(text), text)


def _only_frontmatter(text: str) -> bool:
    front = read_frontmatter(text)
    return front.present and front.end == len(text)


def line_number(text: str, place: int) -> int:
    """The number of the line at `place`, counted from 1."""
    return normalize_line_endings(text[:place]).count("\n") + 1


def _line_numbers(text: str, places: Sequence[int]) -> Iterator[int]:
    """`line_number` of each of these places, in ascending order, by one walk over the text."""
    number, before = 1, 0
    for place in places:
        halves = text[before - 1 : before + 1] == "\r\n" and place > before > 0  # which were counted with the first
        number += normalize_line_endings(text[before:place]).count("\n") - halves
        before = place
        yield number


def _at_line_start(text: str, place: int) -> bool:
    return place == 0 or text[place - 1] in "\r\n" or (place == 1 and text[0] == "\ufeff")


def _closing(text: str, end: int, new: str) -> str:
    """The line end that `new` lacks; none at the end of a text that had none."""
    if new.endswith(("\n", "\r")) or (end == len(text) and not text.endswith(("\n", "\r"))):
        return ""
    return line_ending(text)
