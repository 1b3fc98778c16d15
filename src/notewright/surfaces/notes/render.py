"""The words of `notes`' answers: the outcome first, then the items, bounded, and what was left out last."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import lru_cache

from notewright.engine.changes.history import FileDiff
from notewright.engine.find.context import ContextPack, Passage
from notewright.engine.find.grep import LineMatch
from notewright.engine.find.links import ResolvedLink
from notewright.engine.find.search import Hit, Hits
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


def bounded(lines: Iterable[str], rest: str, last: Sequence[str] = ()) -> str:
    """The lines that fit, cut at a line; then what was left out and how to get it, and the `last` lines always."""
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
        kept.append(f"[{amount(left, 'more line')} left out: {rest}]")
    return "\n".join([*kept, *last])


def paged(head: str, items: Sequence[str], page: OffsetPage, left: int, thing: str, many: str = "") -> str:
    """The items that fit below a head line, of `left` that there are from here on; then how to get the rest."""
    room, kept = MOST_CHARS - LAST_LINES - len(head), len(items)
    if sum(map(len, items)) + kept > room:
        kept = count_fitting((len(item) + 1 for item in items), room)
    rest = [f'[{amount(left - kept, thing, many)}: cursor="{page.cursor(kept)}"]'] if left > kept else []
    return "\n".join([head, *items[:kept], *rest])


def shortened(text: str, most: int = LINE_CHARS) -> str:
    """Cut at the end, with a sign that it was."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: str, most: int) -> str:
    """Without line ends and other signs that would look like ours."""
    return shortened(_CONTROL.sub(" ", text), most)


def sentence(text: str) -> str:
    """With a capital letter, unless it begins with a call, and without its full stop."""
    begun = text if re.match(r"\w+\(", text) else text[:1].upper() + text[1:]
    return begun.rstrip(".")


def amount(number: int, thing: str, many: str = "") -> str:
    return f"1 {thing}" if number == 1 else f"{number:,} {many or thing + 's'}"


@lru_cache(maxsize=2_048)  # a page of a listing has a hundred of them
def size(count: int) -> str:
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def version(full: str) -> str:
    return full[:12]


def value(given: object) -> str:
    """A property's value as a person would write it, on one line."""
    plain = isinstance(given, str) and not _CONTROL.search(given)
    return str(given) if plain else json.dumps(given, ensure_ascii=False)


# ---- finding ------------------------------------------------------------------------------------------


def found(counts: Hits, shown: int) -> str:
    """How many, and how many of them hold all the words."""
    hold = f"{counts.with_all:,} {'has' if counts.with_all == 1 else 'have'}" if counts.with_all else "none has"
    return f"{amount(counts.total, 'note')} found; {hold} all the words{'; best first' if shown > 1 else ''}:"


def nothing(asked: str, nearest: Sequence[str], narrowed: Sequence[str] = ()) -> str:
    """Nothing was found; what might help."""
    said = f"Nothing found for “{shortened(asked.strip(), 200)}”."
    if nearest:
        return f"{said} Nearest: {', '.join(nearest)}."
    if narrowed:
        return f"{said} Leave out {' or '.join(narrowed)} to look everywhere."
    return f"{said} Try other words, or grep for exact text."


def hit(number: int, path: str, one: Hit, zone: tzinfo) -> str:
    """`1. Projects/Tea.md › Water (L42, 2026-11-02)`, and below it the words that were found, marked."""
    heading = f" › {shortened(one.heading, 100)}" if one.heading else ""
    line = f"{number}. {path}{heading} (L{one.line}, {format_day(one.modified_ns / 1e9, zone)})"
    snippet = _marked(one, max(HIT_BYTES - len(line.encode("utf-8", "replace")), 60))
    return f"{line}\n   {snippet}" if snippet else line


def _marked(one: Hit, most: int) -> str:
    """The snippet with its marks, in so many bytes: from a little before the first mark where all does not fit."""
    start = 0
    text = _between(one, start)
    if len(text.encode("utf-8", "replace")) > most and one.marks and one.marks[0][0] > 40:
        start = one.marks[0][0] - 20
        text = "…" + _between(one, start)
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    kept = data[: most - 6].decode("utf-8", "ignore")
    return kept + ("»…" if kept.count("«") > kept.count("»") else "…")


def _between(one: Hit, start: int) -> str:
    pieces, end = [], start
    for left, right in one.marks:
        if left >= start:
            pieces += [one.snippet[end:left], "«", one.snippet[left:right], "»"]
            end = right
    return "".join([*pieces, one.snippet[end:]])


def matching(hits: Sequence[tuple[str, LineMatch]]) -> Iterator[str]:
    """`path:line: text` and, around it, `path-line- text`; a line that is near two matches stands there once."""
    matched = {(path, one.line) for path, one in hits}
    shown: set[tuple[str, int]] = set()
    for path, one in hits:
        first = one.line - len(one.before)
        around = [*enumerate(one.before, first), (one.line, None), *enumerate(one.after, one.line + 1)]
        for number, text in around:
            if text is None:
                start = (
                    max(one.spans[0][0] - 100, 0) if one.spans else 0
                )  # of a long line the part with the first match
                is_cut = start > 0 and len(one.text) > LINE_CHARS
                line = "…" + shortened(one.text[start:], LINE_CHARS - 1) if is_cut else shortened(one.text)
                yield f"{path}:{number}: {line}"
            elif (path, number) not in shown and (path, number) not in matched:
                shown.add((path, number))
                yield f"{path}-{number}- {shortened(text)}"


def passages(pack: ContextPack, about: str, show: Callable[[Passage], str]) -> Iterator[str]:
    """Each under a line of ours; the notes' own lines are indented, so that none of them can look like one."""
    yield f"{amount(len(pack.passages), 'passage')} about {about}:"
    for one in pack.passages:
        heading = f" › {shortened(one.heading, 100)}" if one.heading else ""
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
        yield f"[{amount(pack.left_out, 'more passage')} left out: raise budget]"


# ---- reading ------------------------------------------------------------------------------------------


def header(path: str, reading: Reading, lines: int, part: str = "") -> str:
    where = f" · {part}" if part else ""
    inexact = "" if reading.exact else " · not UTF-8: shown with �, cannot be edited"
    return (
        f"{path} · version {version(reading.version)} · {amount(lines, 'line')}{where}"
        f" · modified {format_utc(reading.modified)}{inexact}"
    )


def outline(note: Note, incoming: int, outgoing: int) -> Iterator[str]:
    if note.frontmatter.problem:
        yield f"properties cannot be read: {shortened(note.frontmatter.problem, 200)}"
    for key, given in note.frontmatter.properties.items():
        if key.lower() != "tags":
            yield f"{one_line(key, 100)}: {shortened(value(given), 120)}"
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
        yield f"{'#' * heading.level} {shortened(heading.text)} (L{heading.line}-{last}, {chars:,} chars)"


def link(arrow: str, shown: str, seen: ResolvedLink, where: str, *, subpath: bool = True) -> str:
    mark = "" if seen.status == "ok" else f" [{seen.status}]"
    sub = seen.subpath if arrow == "→" and subpath else ""
    return f"{arrow} {shown}{sub} ({where}){mark}: {seen.sentence.with_marks}"


# ---- changing -----------------------------------------------------------------------------------------


def diff(before: str, after: str, most: int = DIFF_LINES) -> Iterator[str]:
    """A unified diff without its two head lines, bounded."""
    old, new = _lines(before), _lines(after)
    if max(len(old), len(new)) > DIFF_FROM:
        yield f"[too long to show a diff: {len(old):,} lines, now {len(new):,}]"
        return
    shown = compare_lines(old, new, context=1)
    yield from map(shortened, shown[:most])
    if len(shown) > most:
        yield f"[{amount(len(shown) - most, 'more line')} of diff]"


def _lines(text: str) -> list[str]:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def undo_line(change_id: str | None) -> str:
    return f'Undo: undo(change="{change_id}")' if change_id else "Nothing changed."


def moved(report: MoveReport, shown: tuple[str, str], dry_run: bool) -> str:
    verb = "Would move" if dry_run else "Moved"
    where = f"{amount(report.count, 'link')} in {amount(len(report.files), 'file')}"
    links = f"; {where} {'would follow' if dry_run else 'followed'}" if report.count else "; no links to rewrite"
    return f"{verb} {shown[0]} to {shown[1]}{links}."


def renamed(report: RenameReport, what: str, thing: str, dry_run: bool) -> str:
    """A tag or a heading has another name; `thing` is what was counted in each file."""
    files = sum(count > 0 for _, count in report.files)
    where = f"{amount(report.count, thing)} in {amount(files, 'file')}" if report.count else f"no {thing}s to rewrite"
    return f"{'Would rename' if dry_run else 'Renamed'} {what}; {where}."


def change(one: Change, workspace: str = "") -> str:
    """One line of the history; with several workspaces it says in which."""
    who = one.actor.client or one.actor.user or "somebody"
    tool = f" {one.actor.surface}.{one.actor.tool}" if one.actor.tool else ""
    where = f" in {workspace}" if workspace else ""
    undone = f" (taken back by {one.undone_by})" if one.undone_by else ""
    return f"{one.id}  {format_utc(one.at)}  {who}{tool}{where}: {shortened(one.summary, 500)}{undone}"


def differences(files: Iterable[tuple[str, FileDiff]]) -> Iterator[str]:
    for path, one in files:
        came = f" from {one.source}" if one.source else ""
        why = f" ({one.why})" if one.why else ""
        yield f"{one.kind} {path}{came}{why}"
        yield from diff_lines(one)


def diff_lines(one: FileDiff) -> Iterator[str]:
    yield from map(shortened, one.lines)
    if one.cut:
        yield "[more of this diff left out: read the note]"
