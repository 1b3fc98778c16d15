"""Globs over paths, as git's `:(glob)` reads them, in time linear in the path.

`*` and `?` stay within a segment, `**` as a whole segment means any number of folders, `[a-z]` and `[!a]` are one
character, `{a,b}` either. A star takes the first place where what follows it fits and never looks back, which
finds every match and leaves no room for patterns that take for ever.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import TypeVar

from notewright.errors import Invalid

MAX_CHARS = 1000
MAX_ALTERNATIVES = 256
MAX_EXPANDED_CHARS = 20_000  # of all alternatives together
# A character, an escaped one with its backslash, or a whole class; in a class the first "]" is itself.
_TOKEN = re.compile(r"\\.|\[[!^]?+(?:\\.|[^\\])(?:\\.|[^\]\\])*+\]|[^\\\[]", re.DOTALL)
_Part = TypeVar("_Part")


def compile_glob(pattern: str, *, basename: bool = False, negation: bool = False) -> Callable[[str], bool]:
    """A test for paths. `basename`: a pattern without `/` looks at the last segment alone. `negation`: `!` in front.

    Invalid for an empty, an unfinished or an excessive pattern.
    """
    if not pattern:
        raise _invalid(pattern, "it is empty")
    if len(pattern) > MAX_CHARS:
        raise _invalid(pattern[:40] + "…", f"it is longer than {MAX_CHARS} characters")
    wanted = True
    while negation and pattern.startswith("!"):
        pattern, wanted = pattern[1:], not wanted
    matches = _compile(pattern).fullmatch
    if basename and "/" not in pattern and "**" not in pattern:
        return lambda path: (matches(path.rpartition("/")[2]) is not None) is wanted
    return lambda path: (matches(path) is not None) is wanted


def glob_prefix(pattern: str) -> str:
    """The folders every match begins with, `""` where none are certain: for narrowing a listing."""
    sure = re.split(r"[*?\[{\\]", pattern, maxsplit=1)[0]
    return "" if pattern.startswith("!") else sure.rpartition("/")[0]


def glob_literals(pattern: str) -> tuple[str, ...]:
    """Texts that every match holds, none where braces or a `!` leave that open: for narrowing a listing."""
    if "{" in pattern or pattern.startswith("!"):
        return ()
    pieces = [""]
    for _, token in _tokens(pattern):
        if token in ("*", "?", "/") or token[0] == "[":
            pieces.append("")
        else:
            pieces[-1] += token[-1]
    return tuple(piece for piece in pieces if piece)


def glob_name_start(pattern: str) -> str:
    """What the last segment of every match begins with, `""` where that is open: for narrowing a listing."""
    if "{" in pattern or pattern.startswith("!"):
        return ""
    tokens = ("/" if token[-1] == "/" else token for _, token in _tokens(pattern))
    sure = takewhile(lambda token: token not in ("*", "?") and token[0] != "[", _split(tokens, "/")[-1])
    return "".join(token[-1] for token in sure)


@lru_cache(maxsize=256)
def _compile(pattern: str) -> re.Pattern[str]:
    source = "|".join(map(_to_regex, dict.fromkeys(_expand_braces(pattern))))
    return re.compile(source, re.DOTALL)


def _invalid(pattern: str, why: str) -> Invalid:
    return Invalid(f"{pattern!r} is not a glob: {why}", hint="use a pattern like Projects/**/*.md", what="pattern")


# ---- braces -------------------------------------------------------------------------------------------


def _expand_braces(pattern: str) -> list[str]:
    """A pattern without braces for each choice."""
    done: list[str] = []
    waiting, size = [pattern], 0
    while waiting:
        current = waiting.pop()
        span = _find_brace(current)
        size += len(current)
        if len(done) + len(waiting) > MAX_ALTERNATIVES or size > MAX_EXPANDED_CHARS * 4:
            raise _invalid(pattern, f"its braces make more than {MAX_ALTERNATIVES} patterns")
        if span is None:
            done.append(current)
            continue
        start, commas, end = span
        edges = [start, *commas, end]
        waiting += [current[:start] + current[left + 1 : right] + current[end + 1 :] for left, right in pairwise(edges)]
    if sum(map(len, done)) > MAX_EXPANDED_CHARS:
        raise _invalid(pattern, "its braces make it too long")
    return done


def _find_brace(pattern: str) -> tuple[int, list[int], int] | None:
    """Where the first group opens, its own commas, and where it closes."""
    opened: list[int] = []
    commas: list[int] = []
    for place, token in _tokens(pattern):
        if token == "{":
            opened.append(place)
        elif token == "," and len(opened) == 1:
            commas.append(place)
        elif token == "}" and opened:
            start = opened.pop()
            if not opened:
                return start, commas, place
    if opened:
        raise _invalid(pattern, "a { is not closed")
    return None


# ---- one alternative ----------------------------------------------------------------------------------


def _tokens(pattern: str) -> Iterator[tuple[int, str]]:
    """Each token with its place."""
    place = 0
    while place < len(pattern):
        found = _TOKEN.match(pattern, place)
        if found is None:
            why = "a [ is not closed" if pattern[place] == "[" else "nothing follows the last backslash"
            raise _invalid(pattern, why)
        yield place, found[0]
        place = found.end()


def _split(parts: Iterable[_Part], at: _Part) -> list[list[_Part]]:
    groups: list[list[_Part]] = [[]]
    for part in parts:
        if part == at:
            groups.append([])
        else:
            groups[-1].append(part)
    return groups


def _to_regex(pattern: str) -> str:
    """The regular expression of a pattern without braces."""
    segments = _split((token for _, token in _tokens(pattern)), "/")
    groups = [list(map(_segment, group)) for group in _split(segments, ["*", "*"])]
    if len(groups) == 1:
        return "/".join(groups[0])
    first, *middle, last = groups
    source = "".join(f"{segment}/" for segment in first)
    for group in middle:
        if group:  # the first place where these folders fit is as good as any
            source += "(?>(?:[^/]+/)*?" + "".join(f"{segment}/" for segment in group) + ")"
    return source + ("(?:[^/]+/)*" + "/".join(last) if last else ".+")


def _segment(tokens: list[str]) -> str:
    """One segment: pieces between stars, each taken at the first place where it fits."""
    first, *others = ("".join(map(_token_to_regex, piece)) for piece in _split(tokens, "*"))
    if not others:
        return first
    *middle, last = others
    start = first or "(?=[^/])"  # a star alone is no empty name
    return start + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + "[^/]*" + last


def _token_to_regex(token: str) -> str:
    """One character, escaped character or class; a range that runs backwards holds nothing, as in git."""
    if token == "?":
        return "[^/]"
    if token[0] != "[":
        return re.escape(token[-1])
    negated, members = token[1] in "!^", ""
    for found in re.finditer(r"(\\.|.)(?:-(\\.|.))?", token[2 if negated else 1 : -1], re.DOTALL):
        low, high = found[1][-1], (found[2] or found[1])[-1]
        members += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
    if negated:
        return f"[^/{members}]"
    return f"(?!/)[{members}]" if members else "(?!)"
