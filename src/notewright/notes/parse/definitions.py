"""Link reference definitions (`[label]: target "title"`): which lines of a paragraph they take, where they lead."""

import re
from typing import NamedTuple

MAX_LABEL_CHARS = 999  # as CommonMark has it
_LABEL = rf"\[(?!\^)(?=[^\]]*[^\s\]])(?P<label>(?:\\.|[^\\\[\]]){{1,{MAX_LABEL_CHARS}}})\]"
_DEFINITION = re.compile(
    _LABEL + r":[ \t]*\n?[ \t]*"
    r"(?:<(?P<angled>(?:\\.|[^<>\\\n])*)>"
    r"|(?P<bare>(?!<)(?:\\\S|[^\s()\\]|\\(?!\S)|\((?:\\\S|[^\s()\\]|\([^\s()]*\))*\))+))"
    r"(?:(?:[ \t]+|[ \t]*\n[ \t]*)(?:\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\))[ \t]*(?:\n|\Z)"
    r"|[ \t]*(?:\n|\Z))",
    re.DOTALL,
)


class Definition(NamedTuple):
    """Where the destination of a definition stands, inside `<…>` without the angles."""

    start: int
    end: int


Definitions = dict[str, Definition]  # by `label_key`; of several with one label the first


def label_key(label: str) -> str:
    """What a definition and its uses have in common: case and the width of blanks are ignored."""
    return " ".join(label.split()).casefold()


def skip_definitions(text: str, start: int, end: int, contents: dict[int, int], found: Definitions) -> int:
    """Add the link reference definitions a paragraph begins with to `found`; returns where its text begins behind them,
    `end` if nothing is left."""
    lines = _lines(text, start, end, contents)
    whole = "\n".join(line for _, line in lines)
    at = used = begin = 0  # in `whole`: where we are, in which line, and where that line begins
    while at < len(whole):
        match = _DEFINITION.match(whole, at)
        if match is None:
            break
        first, last = match.span("bare" if match["angled"] is None else "angled")
        while begin + len(lines[used][1]) < first:
            begin += len(lines[used][1]) + 1
            used += 1
        place = lines[used][0] + first - begin
        found.setdefault(label_key(match["label"]), Definition(place, place + last - first))
        at = match.end()
        while used < len(lines) and begin < at:
            begin += len(lines[used][1]) + 1
            used += 1
    return end if used == len(lines) else lines[used][0]


def join_paragraph(text: str, start: int, end: int, contents: dict[int, int]) -> str:
    """The lines of a paragraph as one line."""
    return " ".join(line for _, line in _lines(text, start, end, contents))


def _lines(text: str, start: int, end: int, contents: dict[int, int]) -> list[tuple[int, str]]:
    """The lines of the paragraph between `start` and `end`, each with where it begins, without what belongs to the
    quotes and items around it: `contents` says where the text of a line begins, if not at its start."""
    found = []
    while start < end:
        stop = min(text.find("\n", start), end)
        line = text[start:stop].lstrip(" \t")
        found.append((stop - len(line), line.rstrip(" \t")))
        start = contents.get(stop + 1, stop + 1)
    return found
