"""Formats the answers of `notes`: the outcome first, then the items, cut to fit, and what was left out last."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import lru_cache

from notewright.engine.changes.history import FileDiff
from notewright.engine.find.context import ContextPack, Passage
from notewright.engine.find.grep import LineMatch
from notewright.engine.find.links import ResolvedLink
from notewright.engine.find.search import Hit, Hits, describe_counts
from notewright.engine.move import MoveReport, RenameReport
from notewright.engine.read import Reading
from notewright.ledger.base import Change
from notewright.notes.edits.diff import compare_lines
from notewright.notes.model import Note
from notewright.notes.parse.headings import list_sections
from notewright.notes.times import format_utc
from notewright.surfaces.arguments import OffsetPage, format_day
from notewright.surfaces.base import count_fitting

MOST_CHARS = 24_000
LAST_LINES = 300  # characters kept free for the lines that say what was left out
HIT_BYTES = 285  # of one hit with its snippet: twenty of them fit into 6 kB
DIFF_LINES = 40
INDENT = "  "
DIFF_FROM = 20_000  # lines; comparing longer texts takes too long
LINE_CHARS = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")


def fit_lines(lines: Iterable[str], rest: str, last: Sequence[str] = ()) -> str:
    """The lines that fit into an answer, then how many were left out and how to get them; `last` is never left out."""
    kept: list[str] = []
    room = MOST_CHARS - LAST_LINES - sum(len(line) + 1 for line in last)
    left = 0
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            left += 1
        else:
            kept.append(line)
    if left:
        kept.append(f"[{pluralize(left, 'more line')} left out: {rest}]")
    return "\n".join([*kept, *last])


def format_page(head: str, items: Sequence[str], page: OffsetPage, left: int, noun: str, plural: str = "") -> str:
    """A head line, the items that fit below it, and the cursor for the rest. `left`: how many there are from here."""
    room, kept = MOST_CHARS - LAST_LINES - len(head), len(items)
    if sum(map(len, items)) + kept > room:
        kept = count_fitting((len(item) + 1 for item in items), room)
    rest = [f'[{pluralize(left - kept, noun, plural)}: cursor="{page.cursor(kept)}"]'] if left > kept else []
    return "\n".join([head, *items[:kept], *rest])


def shorten(text: str, most: int = LINE_CHARS) -> str:
    """The text in at most so many characters; `…` at the end says that it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def to_one_line(text: str, most: int) -> str:
    """The text without line ends and control characters: they could pass for lines of ours."""
    return shorten(_CONTROL.sub(" ", text), most)


def to_sentence(text: str) -> str:
    """The text without its full stop, beginning with a capital letter unless it begins with a call."""
    capitalized = text if re.match(r"\w+\(", text) else text[:1].upper() + text[1:]
    return capitalized.rstrip(".")


def pluralize(number: int, noun: str, plural: str = "") -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


@lru_cache(maxsize=2_048)  # a page of a listing has a hundred of them
def format_size(count: int) -> str:
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def cut_version(full: str) -> str:
    return full[:12]


def format_value(given: object) -> str:
    """A property's value as a person would write it, on one line."""
    plain = isinstance(given, str) and not _CONTROL.search(given)
    return str(given) if plain else json.dumps(given, ensure_ascii=False)


# ---- finding ------------------------------------------------------------------------------------------


def format_hit_counts(found: Sequence[Hits], shown: int) -> str:
    """How many notes were found, and how many of them hold all the words."""
    total, having = describe_counts(*found)
    hold = "none has" if having == "0" else f"{having} {'has' if having == '1' else 'have'}"
    order = "; best first" if shown > 1 else ""
    return f"{total} note{'' if total == '1' else 's'} found; {hold} all the words{order}:"


def report_no_hits(asked: str, nearest: Sequence[str], narrowed: Sequence[str] = ()) -> str:
    """Say that nothing was found, and what might help."""
    message = f"Nothing found for “{shorten(asked.strip(), 200)}”."
    if nearest:
        return f"{message} Nearest: {', '.join(nearest)}."
    if narrowed:
        return f"{message} Leave out {' or '.join(narrowed)} to look everywhere."
    return f"{message} Try other words, or grep for exact text."


def format_hit(number: int, path: str, one: Hit, zone: tzinfo) -> str:
    """`1. Projects/Tea.md › Water (L42, 2026-11-02)`, and below it the words that were found, marked."""
    heading = f" › {shorten(one.heading, 100)}" if one.heading else ""
    line = f"{number}. {path}{heading} (L{one.line}, {format_day(one.modified_ns / 1e9, zone)})"
    snippet = _mark_snippet(one, max(HIT_BYTES - len(line.encode("utf-8", "replace")), 60))
    return f"{line}\n   {snippet}" if snippet else line


def _mark_snippet(one: Hit, most: int) -> str:
    """The snippet with its marks in at most so many bytes; one that is too long begins just before its first mark."""
    start = 0
    text = _insert_marks(one, start)
    if len(text.encode("utf-8", "replace")) > most and one.marks and one.marks[0][0] > 40:
        start = one.marks[0][0] - 20
        text = "…" + _insert_marks(one, start)
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    kept = data[: most - 6].decode("utf-8", "ignore")
    return kept + ("»…" if kept.count("«") > kept.count("»") else "…")


def _insert_marks(one: Hit, start: int) -> str:
    pieces, end = [], start
    for left, right in one.marks:
        if left >= start:
            pieces += [one.snippet[end:left], "«", one.snippet[left:right], "»"]
            end = right
    return "".join([*pieces, one.snippet[end:]])


def format_matches(hits: Sequence[tuple[str, LineMatch]]) -> Iterator[str]:
    """`path:line: text` for a match and `path-line- text` for its context; a line near two matches appears once."""
    matched = {(path, one.line) for path, one in hits}
    shown: set[tuple[str, int]] = set()
    for path, one in hits:
        first = one.line - len(one.before)
        around = [*enumerate(one.before, first), (one.line, None), *enumerate(one.after, one.line + 1)]
        for number, text in around:
            if text is None:
                start = max(one.spans[0][0] - 100, 0) if one.spans else 0  # a long line: from its first match on
                is_cut = start > 0 and len(one.text) > LINE_CHARS
                line = "…" + shorten(one.text[start:], LINE_CHARS - 1) if is_cut else shorten(one.text)
                yield f"{path}:{number}: {line}"
            elif (path, number) not in shown and (path, number) not in matched:
                shown.add((path, number))
                yield f"{path}-{number}- {shorten(text)}"


def format_passages(pack: ContextPack, about: str, show: Callable[[Passage], str]) -> Iterator[str]:
    """Each passage below a header line; lines of notes are indented, so that none can look like a header."""
    yield f"{pluralize(len(pack.passages), 'passage')} about {about}:"
    for one in pack.passages:
        heading = f" › {shorten(one.heading, 100)}" if one.heading else ""
        why = "" if one.why == "match" else f", {one.why}"
        lines = f"L{one.first_line}" if one.first_line == one.last_line else f"L{one.first_line}-{one.last_line}"
        cut = ""
        if one.full_end is not None:
            cut = f"; cut, goes on to L{one.full_end}" if one.full_end > one.last_line else "; cut in this line"
        yield ""
        yield f"## {show(one)}{heading} ({lines}{why}{cut})"
        yield from (INDENT + line if line else "" for line in one.text.splitlines())
    if pack.left_out:
        yield ""
        yield f"[{pluralize(pack.left_out, 'more passage')} left out: raise budget]"


# ---- reading ------------------------------------------------------------------------------------------


def format_header(path: str, reading: Reading, lines: int, part: str = "") -> str:
    where = f" · {part}" if part else ""
    inexact = "" if reading.exact else " · not UTF-8: shown with �, cannot be edited"
    return (
        f"{path} · version {cut_version(reading.version)} · {pluralize(lines, 'line')}{where}"
        f" · modified {format_utc(reading.modified)}{inexact}"
    )


def format_outline(note: Note, incoming: int, outgoing: int) -> Iterator[str]:
    if note.frontmatter.problem:
        yield f"properties cannot be read: {shorten(note.frontmatter.problem, 200)}"
    for key, given in note.frontmatter.properties.items():
        if key.lower() != "tags":
            yield f"{to_one_line(key, 100)}: {shorten(format_value(given), 120)}"
    tags = list(dict.fromkeys(tag.name for tag in note.tags))
    if tags:
        yield "tags: " + ", ".join("#" + tag for tag in tags[:50])
    yield f"links: {outgoing} out, {incoming} in"
    if not note.headings:
        yield "no headings"
    for section in list_sections(note):
        heading = section.heading
        last = max(section.end_line - 1, heading.line)
        chars = section.end - section.start
        yield f"{'#' * heading.level} {shorten(heading.text)} (L{heading.line}-{last}, {chars:,} chars)"


def format_link(arrow: str, shown: str, seen: ResolvedLink, where: str, *, subpath: bool = True) -> str:
    mark = "" if seen.status == "ok" else f" [{seen.status}]"
    sub = seen.subpath if arrow == "→" and subpath else ""
    return f"{arrow} {shown}{sub} ({where}){mark}: {seen.sentence.with_marks}"


# ---- changing -----------------------------------------------------------------------------------------


def format_diff(before: str, after: str) -> Iterator[str]:
    """A unified diff without its two head lines, of at most DIFF_LINES lines."""
    old, new = _split_lines(before), _split_lines(after)
    if max(len(old), len(new)) > DIFF_FROM:
        yield f"[too long to show a diff: {len(old):,} lines, now {len(new):,}]"
        return
    shown = compare_lines(old, new, context=1)
    yield from map(shorten, shown[:DIFF_LINES])
    if len(shown) > DIFF_LINES:
        yield f"[{pluralize(len(shown) - DIFF_LINES, 'more line')} of diff]"


def _split_lines(text: str) -> list[str]:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def format_undo(change_id: str | None) -> str:
    return f'Undo: undo(change="{change_id}")' if change_id else "Nothing changed."


def describe_move(report: MoveReport, shown: tuple[str, str], dry_run: bool) -> str:
    verb = "Would move" if dry_run else "Moved"
    where = f"{pluralize(report.count, 'link')} in {pluralize(len(report.files), 'file')}"
    links = f"; {where} {'would follow' if dry_run else 'followed'}" if report.count else "; no links to rewrite"
    return f"{verb} {shown[0]} to {shown[1]}{links}."


def describe_rename(report: RenameReport, what: str, noun: str, dry_run: bool) -> str:
    """One sentence on a renamed tag or heading; `noun` is what was counted in each file."""
    files = sum(count > 0 for _, count in report.files)
    where = (
        f"{pluralize(report.count, noun)} in {pluralize(files, 'file')}" if report.count else f"no {noun}s to rewrite"
    )
    return f"{'Would rename' if dry_run else 'Renamed'} {what}; {where}."


def format_change(one: Change, workspace: str = "") -> str:
    """One line of the history. `workspace` is named where there are several."""
    who = one.actor.client or one.actor.user or "somebody"
    tool = f" {one.actor.surface}.{one.actor.tool}" if one.actor.tool else ""
    where = f" in {workspace}" if workspace else ""
    undone = f" (taken back by {one.undone_by})" if one.undone_by else ""
    return f"{one.id}  {format_utc(one.at)}  {who}{tool}{where}: {shorten(one.summary, 500)}{undone}"


def format_diffs(files: Iterable[tuple[str, FileDiff]]) -> Iterator[str]:
    for path, one in files:
        came = f" from {one.source}" if one.source else ""
        why = f" ({one.why})" if one.why else ""
        yield f"{one.kind} {path}{came}{why}"
        yield from format_diff_lines(one)


def format_diff_lines(one: FileDiff) -> Iterator[str]:
    yield from map(shorten, one.lines)
    if one.cut:
        yield "[more of this diff left out: read the note]"
