"""How `notes` says things: the outcome first, then the items, bounded, and what was left out last."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from notewright.engine import Change, Difference, Filed, Hit, Hits, LinkSeen, Matches, Moved, Pack, Reading
from notewright.notes import Note, sections
from notewright.surfaces.places import day, stamp

MOST_CHARS = 24_000
DIFF_LINES = 40
LINE_CHARS = 300


def bounded(lines: Iterable[str], rest: str, most: int = MOST_CHARS) -> str:
    """The lines that fit, cut at a line; the last says what was left out and how to get it."""
    kept: list[str] = []
    room = most - len(rest) - 60
    left = 0
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            left += 1
        else:
            kept.append(line)
    if left:
        kept.append(f"[{left} more lines left out: {rest}]")
    return "\n".join(kept)


def shortened(text: str, most: int = LINE_CHARS) -> str:
    text = text.strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def amount(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(count: int) -> str:
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def version(full: str) -> str:
    return full[:12]


# ---- finding ------------------------------------------------------------------------------------------


def hits(found: Sequence[tuple[str, Hit]], counts: Hits, asked: str) -> Iterator[str]:
    """`found` are (shown path, hit)."""
    if not found:
        near = f" Nearest: {', '.join(counts.nearest)}." if counts.nearest else ""
        yield f"Nothing found for {asked!r}.{near}"
        return
    hold = f"{amount(counts.with_all, 'note')} with all the words" if counts.with_all else "none has all the words"
    yield f"{amount(counts.total, 'note')} found, {hold}; best first:"
    for number, (path, hit) in enumerate(found, 1):
        heading = f" › {hit.heading}" if hit.heading else ""
        yield f"{number}. {path}{heading} (L{hit.line}, {day(hit.modified_ns / 1e9)})"
        if hit.snippet:
            yield f"   {marked(hit)}"


def marked(hit: Hit) -> str:
    pieces, end = [], 0
    for start, stop in hit.marks:
        pieces += [hit.snippet[end:start], "«", hit.snippet[start:stop], "»"]
        end = stop
    return "".join([*pieces, hit.snippet[end:]])


def matches(found: Sequence[tuple[str, Matches]], show: Sequence[str]) -> Iterator[str]:
    lines = sum(one.total_lines for _, one in found)
    notes = sum(one.total_notes for _, one in found)
    if not lines:
        yield "No line matches."
        return
    shown = len(show)
    yield f"{amount(lines, 'line')} in {amount(notes, 'note')} match" + (
        f"; the first {shown}:" if shown < lines else ":"
    )


def passages(pack: Pack, asked: str, show: Sequence[str]) -> Iterator[str]:
    if not pack.passages:
        yield f"Nothing found about {asked!r}."
        return
    yield f"{amount(len(pack.passages), 'passage')} about {asked}" + (
        f", {pack.left_out} left out (raise budget):" if pack.left_out else ":"
    )
    for path, passage in zip(show, pack.passages, strict=True):
        heading = f" › {passage.heading}" if passage.heading else ""
        why = "" if passage.why == "match" else f", {passage.why}"
        yield ""
        yield f"## {path}{heading} (L{passage.first_line}-{passage.last_line}{why})"
        yield passage.text


# ---- reading ------------------------------------------------------------------------------------------


def header(path: str, reading: Reading, lines: int, part: str = "") -> str:
    where = f" · {part}" if part else ""
    inexact = "" if reading.exact else " · not UTF-8: shown with �, cannot be edited"
    return (
        f"{path} · version {version(reading.version)} · {amount(lines, 'line')}{where}"
        f" · modified {stamp(reading.modified)}{inexact}"
    )


def outline(note: Note, incoming: int, outgoing: int) -> Iterator[str]:
    for key, value in note.frontmatter.properties.items():
        if key.lower() == "tags":
            continue
        yield f"{key}: {shortened(str(value), 120)}"
    tags = list(dict.fromkeys(tag.name for tag in note.tags))
    if tags:
        yield "tags: " + ", ".join("#" + tag for tag in tags[:50])
    yield f"links: {outgoing} out, {incoming} in"
    if not note.headings:
        yield "no headings"
    for section in sections(note):
        heading = section.heading
        end = section.end_line - 1
        yield f"{'#' * heading.level} {heading.text} (L{heading.line}-{end}, {section.end - section.start} chars)"


def entry(path: str, filed: Filed, seconds: float) -> str:
    return f"{path}  {day(seconds)}  {size(filed.size)}"


def link(shown: str, arrow: str, seen: LinkSeen) -> str:
    mark = "" if seen.status == "ok" else f" [{seen.status}]"
    sub = seen.subpath if arrow == "→" else ""
    return f"{arrow} {shown}{sub} (L{seen.line}){mark}: {shortened(seen.text, 200)}"


# ---- changing -----------------------------------------------------------------------------------------


def diff(before: str, after: str, most: int = DIFF_LINES) -> Iterator[str]:
    """A unified diff without its two head lines, bounded."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    shown = [shortened_line(line) for line in lines if not line.startswith(("--- ", "+++ "))]
    yield from shown[:most]
    if len(shown) > most:
        yield f"[{len(shown) - most} more lines of diff]"


def shortened_line(line: str) -> str:
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"


def undo_line(change_id: str | None) -> str:
    return f'Undo: undo(change="{change_id}")' if change_id else "Nothing changed."


def moved(report: Moved, shown: tuple[str, str], files: Sequence[tuple[str, int]], dry_run: bool) -> Iterator[str]:
    verb = "Would move" if dry_run else "Moved"
    links = f"; {amount(report.links, 'link')} in {amount(len(report.files), 'file')} rewritten" if report.links else ""
    yield f"{verb} {shown[0]} to {shown[1]}{links}."
    for path, count in files[:100]:
        yield f"{path}: {amount(count, 'link')}"
    if len(files) > 100:
        yield f"[{len(files) - 100} more notes]"


def change(one: Change) -> str:
    who = one.actor.client or one.actor.user or "somebody"
    tool = f" {one.actor.surface}.{one.actor.tool}" if one.actor.tool else ""
    undone = f" (taken back by {one.undone_by})" if one.undone_by else ""
    return f"{one.id}  {stamp(one.at)}  {who}{tool}: {one.summary}{undone}"


def differences(files: Iterable[tuple[str, Difference]]) -> Iterator[str]:
    for path, one in files:
        came = f" from {one.source}" if one.source else ""
        why = f" ({one.why})" if one.why else ""
        yield f"{one.kind} {path}{came}{why}"
        yield from map(shortened_line, one.lines)
        if one.cut:
            yield "[more of this diff left out]"
