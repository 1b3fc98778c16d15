"""Between a file's bytes and a live document's text, and the smallest change that makes one text of another.

A live text has `\\n` at the end of every line and no byte order mark: editors in a browser count a line break as one
character. What the file had stays in the file: `file_bytes` gives every line that was there the end it had.

pycrdt counts in UTF-8 bytes, and does not say so when an offset falls inside a character: `apply_changes` is the only
place that computes one.
"""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from pycrdt import Text

from notewright.errors import NotText
from notewright.notes.path import NotePath

BOM = b"\xef\xbb\xbf"
_END = re.compile(r"\r\n|\r|\n")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
# A space goes with the word after it, for a lone one matches everywhere; a line's end is by itself, so that a space
# that comes or goes before it leaves it alone: who types there types before it.
_WORDS = re.compile(r"[^\S\n]*(?:\w+|[^\w\s])|[^\S\n]+|\n")
_MAX_DIFFED_PIECES = 2_000  # of one text, and of pairs of equal pieces: what is larger is replaced as a whole
_MAX_EQUAL_PAIRS = 500_000


def live_text(path: NotePath, data: bytes) -> str:
    """The text of a file as its live document has it; NotText if it is not UTF-8."""
    try:
        text = data.removeprefix(BOM).decode()
    except UnicodeDecodeError:
        raise NotText(f"{path} is not UTF-8 text, so it is not live", hint="convert it first", path=path) from None
    return _END.sub("\n", text) if "\r" in text else text


def file_bytes(text: str, like: bytes) -> bytes:
    """A live text as the bytes of a file that was `like` this: its byte order mark, its line ends. Where these differ,
    a line that was there keeps its own, and a new one has the most frequent."""
    mark = BOM if like.startswith(BOM) else b""
    if b"\r" not in like:
        return mark + text.encode()
    old = like.decode(errors="replace").removeprefix("\ufeff")
    old_ends = _END.findall(old)
    usual = Counter(old_ends).most_common(1)[0][0]
    if len(set(old_ends)) == 1:
        return mark + text.replace("\n", usual).encode()
    lines = _LINES.findall(text)
    ends = [usual] * len(lines)
    for tag, first, last, begin, _ in _opcodes(_LINES.findall(_END.sub("\n", old)), lines):
        if tag == "equal":
            ends[begin : begin + last - first] = [*old_ends, usual][first:last]
    ended = (line[:-1] + end if line.endswith("\n") else line for line, end in zip(lines, ends, strict=True))
    return mark + "".join(ended).encode()


class TextChange(NamedTuple):
    """`old[start:end]` becomes `new`; in characters."""

    start: int
    end: int
    new: str


def diff_texts(
    old: str, new: str, at: int = 0, patterns: Sequence[re.Pattern[str]] = (_LINES, _WORDS)
) -> list[TextChange]:
    """The smallest change, line by line and then word by word, first to last. `old` begins at `at`."""
    if old == new:
        return []
    if not patterns or not old or not new:
        return [TextChange(at, at + len(old), new)]
    before, after = patterns[0].findall(old), patterns[0].findall(new)
    found = []
    for tag, first, last, begin, end in _opcodes(before, after):
        left = "".join(before[first:last])
        if tag != "equal":
            found += diff_texts(left, "".join(after[begin:end]), at, patterns[1:])
        at += len(left)
    return found


def _opcodes(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """As difflib's, but quick: what is the same at both ends is set apart, and what would take too long is replaced."""
    least = min(len(a), len(b))
    head = next((place for place in range(least) if a[place] != b[place]), least)
    tail = next((place for place in range(least - head) if a[-1 - place] != b[-1 - place]), least - head)
    left, right = a[head : len(a) - tail], b[head : len(b) - tail]
    inner: list[tuple[str, int, int, int, int]] = [("replace", 0, len(left), 0, len(right))]
    if left and right and max(len(left), len(right)) <= _MAX_DIFFED_PIECES:
        counts = Counter(right)
        if sum(count * counts[piece] for piece, count in Counter(left).items()) <= _MAX_EQUAL_PAIRS:
            inner = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    middle = [(tag, i + head, j + head, k + head, m + head) for tag, i, j, k, m in inner]
    ends = len(a) - tail, len(a), len(b) - tail, len(b)
    return [("equal", 0, head, 0, head), *middle, ("equal", *ends)]


def apply_changes(text: Text, old: str, changes: list[TextChange]) -> None:
    """Make the changes to a document with the text `old`. In the transaction of the caller.

    The new text goes in before the old goes out: what somebody else types after a replaced word stays after it.
    """
    seen = at = 0  # in characters of `old`, and in bytes of the text as it is by now
    for start, end, new in changes:
        at += len(old[seen:start].encode())
        inserted, removed = len(new.encode()), len(old[start:end].encode())
        if inserted:
            text.insert(at, new)
        if removed:
            del text[at + inserted : at + inserted + removed]
        seen, at = end, at + inserted


def distance(one: str, other: str) -> int:
    """How far apart two texts are: the characters of the smallest change between them."""
    return sum(change.end - change.start + len(change.new) for change in diff_texts(one, other))
