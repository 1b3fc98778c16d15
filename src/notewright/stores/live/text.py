"""Between a file's bytes and a live document's text, and the smallest change that makes one text of another.

A live text has `\\n` at the end of every line and no byte order mark: editors in a browser count a line break as one
character. What the file had stays in the file: `file_bytes` gives every line that was there the end it had.

pycrdt counts in UTF-8 bytes, and does not say so when an offset falls inside a character: `put_changes` is the only
place that computes one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
_MOST_PIECES = 2_000  # compared at a time, and so many pairs of equal ones: what is larger is replaced as a whole
_MOST_PAIRS = 500_000


def live_text(path: NotePath, data: bytes) -> str:
    """The text of a file as it is edited live; NotText for what is not UTF-8."""
    try:
        text = data.removeprefix(BOM).decode()
    except UnicodeDecodeError:
        raise NotText(f"{path} is not UTF-8 text, so it is not live", hint="convert it first", path=path) from None
    return _END.sub("\n", text) if "\r" in text else text


def file_bytes(text: str, like: bytes) -> bytes:
    """A live text as the bytes of a file that was `like` this: its byte order mark, its line ends."""
    mark = BOM if like.startswith(BOM) else b""
    if b"\r" not in like:
        return mark + text.encode()
    old = like.decode(errors="replace").removeprefix("\ufeff")
    ends = _END.findall(old)
    usual = Counter(ends).most_common(1)[0][0]
    if len(set(ends)) == 1:
        return mark + text.replace("\n", usual).encode()
    return mark + "".join(_with_ends(old, ends, text, usual)).encode()


def _with_ends(old: str, ends: list[str], text: str, usual: str) -> Iterator[str]:
    """Each line of `text`: with its own end where `old` has that line, else with the usual one."""
    lines = _LINES.findall(text)
    kept = _LINES.findall(_END.sub("\n", old))
    told = [usual] * len(lines)
    for tag, first, last, begin, _ in _opcodes(kept, lines):
        if tag == "equal":
            told[begin : begin + last - first] = [*ends, usual][first:last]
    for line, end in zip(lines, told, strict=True):
        yield line[:-1] + end if line.endswith("\n") else line


class TextChange(NamedTuple):
    """`old[start:end]` becomes `new`; in characters."""

    start: int
    end: int
    new: str


def changes(old: str, new: str) -> list[TextChange]:
    """The smallest change, line by line and then word by word, first to last."""
    return list(_changes(old, new, 0, (_LINES.findall, _WORDS.findall)))


def _changes(old: str, new: str, at: int, cuts: tuple[Callable[[str], list[str]], ...]) -> Iterator[TextChange]:
    if old == new:
        return
    if not cuts or not old or not new:
        yield TextChange(at, at + len(old), new)
        return
    before, after = cuts[0](old), cuts[0](new)
    for tag, first, last, begin, end in _opcodes(before, after):
        left, right = "".join(before[first:last]), "".join(after[begin:end])
        if tag != "equal":
            yield from _changes(left, right, at, cuts[1:])
        at += len(left)


def _opcodes(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """As difflib's, but quick: what is the same at both ends is set apart, and what would take too long is replaced."""
    least = min(len(a), len(b))
    head = next((place for place in range(least) if a[place] != b[place]), least)
    tail = next((place for place in range(least - head) if a[-1 - place] != b[-1 - place]), least - head)
    left, right = a[head : len(a) - tail], b[head : len(b) - tail]
    inner: list[tuple[str, int, int, int, int]] = [("replace", 0, len(left), 0, len(right))]
    if left and right and _is_quick(left, right):
        inner = list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())
    middle = [(tag, i + head, j + head, k + head, m + head) for tag, i, j, k, m in inner]
    ends = len(a) - tail, len(a), len(b) - tail, len(b)
    return [("equal", 0, head, 0, head), *middle, ("equal", *ends)]


def _is_quick(left: Sequence[str], right: Sequence[str]) -> bool:
    if len(left) > _MOST_PIECES or len(right) > _MOST_PIECES:
        return False
    often = Counter(right)
    return sum(count * often[piece] for piece, count in Counter(left).items()) <= _MOST_PAIRS


def put_changes(text: Text, old: str, wanted: list[TextChange]) -> None:
    """Make the changes to a document that says `old`. In the transaction of the caller.

    The new text goes in before the old goes out: what somebody else types after a replaced word stays after it.
    """
    places = _byte_offsets(old, wanted)
    for change, (start, end) in zip(reversed(wanted), reversed(places), strict=True):  # the last first: others stay
        inserted = len(change.new.encode())
        if inserted:
            text.insert(start, change.new)
        if end > start:
            del text[start + inserted : end + inserted]


def _byte_offsets(old: str, wanted: list[TextChange]) -> list[tuple[int, int]]:
    places, seen, at = [], 0, 0
    for change in wanted:
        at += len(old[seen : change.start].encode())
        size = len(old[change.start : change.end].encode())
        places.append((at, at + size))
        seen, at = change.end, at + size
    return places


def distance(one: str, other: str) -> int:
    """How far apart two texts are: the characters of the smallest change between them."""
    return sum(change.end - change.start + len(change.new) for change in changes(one, other))
