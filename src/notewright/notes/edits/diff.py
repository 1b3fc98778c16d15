"""The difference between two texts, for people: a unified diff without its two head lines."""

import re
from collections.abc import Callable, Sequence
from difflib import unified_diff

Lines = Sequence[str]
_HUNK = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def compare_lines(old: Sequence[str], new: Sequence[str], context: int = 3) -> list[str]:
    """As difflib's, but what is the same at both ends is not compared: that is nearly all of an edited note, and the
    time difflib takes grows with the square of it."""
    least = min(len(old), len(new))
    head = next((place for place in range(least) if old[place] != new[place]), least)
    tail = next((place for place in range(least - head) if old[-1 - place] != new[-1 - place]), least - head)
    start, spared = max(head - context, 0), max(tail - context, 0)
    parts = old[start:head], old[head : len(old) - tail], new[head : len(new) - tail], old[len(old) - tail :][:context]
    if any(parts[1:3]) and len(set().union(*parts)) == sum(len(set(part)) for part in parts):
        return _one_hunk(start, *parts)
    found = unified_diff(old[start : len(old) - spared], new[start : len(new) - spared], lineterm="", n=context)
    return [_HUNK.sub(_moved(start), line) if line.startswith("@@") else line for line in found][2:]


def _one_hunk(start: int, above: Lines, gone: Lines, come: Lines, below: Lines) -> list[str]:
    """What difflib says where no line is in two of these: one edit, as most are, in a tenth of the time."""
    around = len(above) + len(below)
    spans = f"@@ -{_span(start, around + len(gone))} +{_span(start, around + len(come))} @@"
    marked = ((" ", above), ("-", gone), ("+", come), (" ", below))
    return [spans, *[mark + line for mark, lines in marked for line in lines]]


def _span(start: int, length: int) -> str:
    return str(start + 1) if length == 1 else f"{start + bool(length)},{length}"


def _moved(lines: int) -> Callable[[re.Match[str]], str]:
    return lambda hunk: f"@@ -{int(hunk[1]) + lines}{hunk[2]} +{int(hunk[3]) + lines}{hunk[4]} @@"
