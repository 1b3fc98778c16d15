"""The tools of `notes` that read one thing: a note or part of it, a day's note, what was changed."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from notewright.engine.changes.history import diff_change, find_change, list_changes
from notewright.engine.find.links import links
from notewright.engine.read import Reading, fetch, find_former_path, read_version_text, stat_file
from notewright.engine.read import read as read_note
from notewright.engine.spans import find_section_span, parse_line_span
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid, NotFound
from notewright.ledger.base import ChangeQuery
from notewright.notes.edits.splices import line_count
from notewright.surfaces.arguments import NamedPath, Places, parse_since
from notewright.surfaces.base import Answer, Args, Call, Image
from notewright.surfaces.notes import render as words

T = TypeVar("T")
IMAGES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
MOST_IMAGE_BYTES = 1 << 20
MOST_CHARS = 20_000
MAX_REMEMBERED = 16  # texts a session keeps, so that a conflict can say what changed
MAX_REMEMBERED_CHARS = 100_000  # of all of them together


def read(call: Call, args: Args) -> Answer | str:
    """The text of a note, one section, some lines, or its outline. Images come as images."""
    places = Places(call)
    found = places.read(args["path"])
    reading = found[1] if found else None
    place = NamedPath(found[0], found[1].path) if found else places.locate(args["path"])
    with places.prefixing_problems(place.ws):
        if not place.path.is_note:
            return _describe_attachment(place, places.show(place.ws, place.path))
        return show(call, place, reading or read_note(place.ws, place.path), args)


def show(call: Call, place: NamedPath, reading: Reading, args: Args) -> str:
    """A note, the requested part of it, or its outline, below a header line with its version."""
    remember(call, place, reading.version, reading.text)
    path, total = Places(call).show(place.ws, place.path), line_count(reading.text)
    if args.get("outline"):
        report = links(place.ws, place.path)
        lines = words.format_outline(reading.note, len(report.incoming), len(report.outgoing))
        return words.fit_lines([words.format_header(path, reading, total), *lines], "read a section")
    start, end, part = _requested_span(reading, args)
    text = reading.text[start:end]
    text = text.removeprefix("\ufeff") if start == 0 else text
    first = line_count(reading.text, start) + 1
    kept, rest = _cut(text, first, args.get("max_chars", MOST_CHARS))
    if rest:  # said above the text too: below it, a note could say so itself
        part = f"lines {first}-{first + max(line_count(kept) - 1, 0)}, cut"
    return "\n".join([words.format_header(path, reading, total, part), kept, *rest])


def _requested_span(reading: Reading, args: Args) -> tuple[int, int, str]:
    """Start and end of the requested part, and how the header names it."""
    if "section" in args and "lines" in args:
        raise Invalid("section and lines cannot both be given", hint="leave one out", what="section")
    if "lines" in args:
        return parse_line_span(reading.text, args["lines"])
    if "section" not in args:
        return 0, len(reading.text), ""
    start, end = find_section_span(reading.note, args["section"])
    first = line_count(reading.text, start) + 1
    last = line_count(reading.text, start + len(reading.text[start:end].rstrip()))
    return start, end, f"lines {first}-{max(first, last)}"


def _cut(text: str, first: int, most: int) -> tuple[str, list[str]]:
    """The text, cut at a line end where it is longer than `most`, and then a line that says how to read on."""
    if len(text) <= most:
        return text, []
    whole = max(text.rfind("\n", 0, most), text.rfind("\r", 0, most)) + 1
    kept = text[: whole or most]
    left = f"cut after {len(kept):,} of {len(text):,} characters"
    if not whole:
        return kept, [f"[{left}, in the middle of line {first}: raise max_chars]"]
    return kept, [f'[{left}: lines="{first + line_count(kept)}-" shows the rest]']


def _describe_attachment(place: NamedPath, path: str) -> Answer:
    entry = stat_file(place.ws, place.path)
    kind = IMAGES.get(place.path.rpartition(".")[2].lower())
    if kind and entry.size <= MOST_IMAGE_BYTES:
        stored = fetch(place.ws, place.path)
        described = f"{path} · {words.format_size(len(stored.data))} · version {words.cut_version(stored.version)}"
        return Answer.of(described, Image(stored.data, f"image/{kind}"))
    what = "an image of more than 1 MiB" if kind else "an attachment"
    return Answer.of(f"{path} · {words.format_size(entry.size)} · {what}: its content cannot be shown here")


# ---- texts a session was shown ---------------------------------------------------------------------------


def remember(call: Call, place: NamedPath, version: str, text: str) -> None:
    """Keep the text that this client was shown: the history only holds texts that were changed through us."""
    with call.session.lock:
        seen: OrderedDict[str, str] = call.session.values.setdefault("seen", OrderedDict())
        seen[_memory_key(place, version)] = text
        while len(seen) > MAX_REMEMBERED or sum(map(len, seen.values())) > MAX_REMEMBERED_CHARS:
            seen.popitem(last=False)


def find_shown_text(call: Call, place: NamedPath, version: str) -> str | None:
    """The text of a version, from the session or the history; None where neither has it any more."""
    with call.session.lock:
        kept: str | None = call.session.values.get("seen", {}).get(_memory_key(place, version))
    return kept if kept is not None else read_version_text(place.ws, place.path, version)


def _memory_key(place: NamedPath, version: str) -> str:
    return f"{place.ws.id} {words.cut_version(version.lower())} {place.path}"


# ---- the past -----------------------------------------------------------------------------------------


def history(call: Call, args: Args) -> str:
    """What was changed through this server: when, by whom, with which tool; or one change as a diff."""
    places = Places(call)
    if "change" in args:
        ws, one = next(ask_each(call.workspaces, lambda ws: find_change(ws, args["change"])))
        lines = [words.format_change(one, ws.name if places.several else "")]
        lines += words.format_diffs((places.show(ws, each.path), each) for each in diff_change(ws, one.id))
        return words.fit_lines(lines, "read the notes themselves")
    limit, found = args.get("limit", 20), []
    for ws, path in _locate_history(places, args):
        since = parse_since(args["since"], ws.timezone) if "since" in args else None
        changes = list_changes(ws, ChangeQuery(path=path, since=since, limit=limit + 1))
        found += [(one, ws.name if places.several else "") for one in changes]
    if not found:
        return "No changes were made through this server" + (" since then." if "since" in args else ".")
    found.sort(key=lambda pair: -pair[0].at)
    lines = [words.format_change(*one) for one in found[:limit]]
    tail = ["[more changes: raise limit]"] if len(found) > limit else []
    head = f"{words.pluralize(len(lines), 'change')}, newest first:"
    return words.fit_lines([head, *lines], "a smaller limit", tail)


def _locate_history(places: Places, args: Args) -> list[tuple[Workspace, str | None]]:
    """The note or folder whose changes are asked for, also one that is gone; None as the path: everything."""
    if "path" not in args:
        return [(ws, None) for ws in places.call.workspaces]
    try:
        place = places.locate(args["path"])
        return [(place.ws, place.path)]
    except NotFound as missing:
        try:
            candidates = [places.split(args["path"])]
        except NotFound:
            candidates = [(ws, args["path"]) for ws in places.call.workspaces]
        if "folder" in missing.details:
            return [*candidates]
        found = [(ws, path) for ws, rest in candidates if rest and (path := find_former_path(ws, rest))]
        if not found:
            raise missing from None
        return [*found]


def ask_each(workspaces: Sequence[Workspace], find: Callable[[Workspace], T]) -> Iterator[tuple[Workspace, T]]:
    """What `find` returns for each workspace that has the change, one after the other. If none has it: the NotFound
    that names the nearest ones."""
    is_found = False
    problem: NotFound | None = None
    for ws in workspaces:
        try:
            answer = find(ws)
        except NotFound as missing:
            problem = problem if problem and problem.details["nearest"] else missing
        else:
            is_found = True
            yield ws, answer
    if not is_found:
        raise problem or NotFound("there is no workspace you may use", what="change")
