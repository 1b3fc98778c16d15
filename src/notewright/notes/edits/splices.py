"""Splices: the only way a text is changed, so that everything outside them stays as it was."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True, order=True)
class Splice:
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


def apply_splices(text: str, splices: Iterable[Splice]) -> str:
    """`text` with every splice in its place. They must not overlap."""
    pieces, place = [], 0
    for splice in sorted(splices):
        if splice.start < place:
            raise ValueError("splices overlap")
        pieces += [text[place : splice.start], splice.new]
        place = splice.end
    return "".join([*pieces, text[place:]])


def line_ending(text: str) -> str:
    """The line ending this text uses: that of its first line."""
    found = re.search(r"\r\n|\r|\n", text)
    return found[0] if found and found[0] != "\r" else "\n"


def line_count(text: str, end: int | None = None) -> int:
    """How many lines there are, or are before `end`; one that is begun counts. A BOM alone begins none."""
    text = text[:end].removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def line_spans(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """The span of each line, its ending included."""
    return [found.span() for found in _LINE.finditer(text, start, len(text) if end is None else end)]
