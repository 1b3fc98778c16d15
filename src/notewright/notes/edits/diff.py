"""The difference between two texts, for people: a unified diff without its two head lines."""

import re
from collections.abc import Sequence
from difflib import unified_diff

_HUNK = re.compile(r"@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")


def compare_lines(old: Sequence[str], new: Sequence[str], context: int = 3) -> list[str]:
    """As difflib's, but what is the same at both ends is not compared: that is nearly all of an edited note, and the
    time difflib takes grows with the square of it."""
    least = min(len(old), len(new))
    head = next((place for place in range(least) if old[place] != new[place]), least)
    tail = next((place for place in range(least - head) if old[-1 - place] != new[-1 - place]), least - head)
    start, spared = max(head - context, 0), max(tail - context, 0)
    above, below = old[start:head], old[len(old) - tail :][:context]
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    parts = (" ", above), ("-", gone), ("+", come), (" ", below)
    if (gone or come) and len({line for _, lines in parts for line in lines}) == sum(len(set(p)) for _, p in parts):
        # no line is in two of these: one edit, as most are, in a tenth of the time that difflib takes
        around = len(above) + len(below)
        spans = f"@@ -{_span(start, around + len(gone))} +{_span(start, around + len(come))} @@"
        return [spans, *[sign + line for sign, lines in parts for line in lines]]
    found = unified_diff(old[start : len(old) - spared], new[start : len(new) - spared], lineterm="", n=context)

    def move_hunk(hunk: re.Match[str]) -> str:
        return f"@@ -{int(hunk[1]) + start}{hunk[2]} +{int(hunk[3]) + start}{hunk[4]} @@"

    return [_HUNK.sub(move_hunk, line) if line.startswith("@@") else line for line in found][2:]


def _span(start: int, length: int) -> str:
    return str(start + 1) if length == 1 else f"{start + bool(length)},{length}"
