"""Our own surface: the engine's strengths in fourteen plain tools, written for a model to read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from notewright import engine
from notewright.engine import Hit, Hits, Query, Selection, Workspace
from notewright.errors import Ambiguous, Invalid, NotFound, codes
from notewright.surfaces import notes_schema as schema
from notewright.surfaces import notes_words as words
from notewright.surfaces.base import Answer, Args, BadArgument, Call, Failed, Style, Surface, Tool
from notewright.surfaces.notes_change import TOOLS as CHANGING
from notewright.surfaces.notes_read import history, read
from notewright.surfaces.places import Place, Places, cursor_offset, cursor_to, day, since_time
from notewright.surfaces.resources import NoteResources

LONGEST_MESSAGE = 8_000  # characters of an error: it may quote what was given


class Plain(Style):
    """`code: what is wrong. What to do.`, and below it lines that say more where there are any."""

    table: ClassVar[dict[str, str]] = {code: code for code in codes()} | {
        "not_text": "invalid",
        "quota": "too_large",
        "no_space": "too_large",
        "indexing": "busy",
        "limited": "busy",
        "unavailable": "busy",
    }

    def problem(self, failed: Failed) -> Answer:
        problem = failed.problem
        message, hint = (words.one_line(text, LONGEST_MESSAGE) for text in (problem.message, problem.hint))
        said = f"{self.table[problem.code]}: {message.rstrip('.')}."
        lines = problem.details.get("lines", ()) if problem.code == "conflict" else ()
        if hint:
            said += f" {words.sentence(hint)}{':' if lines else '.'}"
        return Answer.error("\n".join([said, *lines]))

    def bad_arguments(self, failed: Failed) -> Answer:
        fault = failed.problem
        message = words.one_line(fault.message, LONGEST_MESSAGE)
        if isinstance(fault, BadArgument) and fault.fault == "unknown" and fault.expected:
            return Answer.error(f"invalid: {message}. {failed.tool} takes {', '.join(fault.expected)}.")
        return Answer.error(f"invalid: {message}. Call {failed.tool} again with that put right.")


def search(call: Call, args: Args) -> str:
    places, limit, asked = Places(call), args.get("limit", 10), args["query"]
    narrowed = [name for name in ("folder", "tags", "since") if args.get(name)]
    if not asked.strip() and not narrowed:
        raise Invalid("query is empty", hint="give words or a question", what="query")
    about = f"search {asked} {args.get('folder', '')} {args.get('tags')} {args.get('since')}"
    offset = cursor_offset(args.get("cursor"), about)
    answers = [
        (ws, engine.search(ws, _query(ws, folder, args, offset + limit)))
        for ws, folder in places.folders(args.get("folder", ""))
    ]
    counts, ranked = _together([found for _, found in answers]), _ranked(answers)
    page = ranked[offset : offset + limit]
    if not page:
        return "Nothing more." if offset else words.nothing(asked, counts.nearest, narrowed)
    items = [
        words.hit(number, places.show(ws, hit.path), hit, ws.timezone)
        for number, (ws, hit) in enumerate(page, offset + 1)
    ]

    def rest(kept: int) -> str | None:
        if kept == len(page) and not counts.cut and len(ranked) <= offset + limit:
            return None
        left = max(counts.total - offset - kept, 1)
        return f'[{words.amount(left, "more note")}: cursor="{cursor_to(offset + kept, about)}"]'

    worded = engine.parse_query(asked).words
    head = words.found(counts, len(page)) if worded else f"{words.amount(counts.total, 'note')} found, newest first:"
    return words.paged(head, items, rest)


def _query(ws: Workspace, folder: str, args: Args, limit: int) -> Query:
    query = engine.parse_query(args["query"])
    since = args.get("since")
    return replace(
        query,
        folder=folder,
        tags=(*query.tags, *(tag.removeprefix("#") for tag in args.get("tags", ()))),
        since_ns=int(since_time(since, ws.timezone) * 1e9) if since else None,
        limit=limit,
    )


def _ranked(answers: Sequence[tuple[Workspace, Hits]]) -> list[tuple[Workspace, Hit]]:
    return sorted(((ws, hit) for ws, found in answers for hit in found.items), key=lambda pair: -pair[1].score)


def _together(found: Sequence[Hits]) -> Hits:
    """The counts of several workspaces as one."""
    nearest = tuple(dict.fromkeys(near for one in found for near in one.nearest))
    total, with_all = sum(one.total for one in found), sum(one.with_all for one in found)
    return Hits((), total, with_all, any(one.cut for one in found), nearest)


def grep(call: Call, args: Args) -> str:
    places, limit, looked = Places(call), args.get("limit", 50), call.counting("notes looked into")
    found = []
    for ws, folder in places.folders(args.get("folder", "")):
        asked = engine.Grep(
            args["pattern"],
            folder=folder,
            glob=args.get("glob"),
            ignore_case=args.get("ignore_case", True),
            context=args.get("context", 0),
            limit=limit,
            cancelled=call.cancelled,
            told=looked,
        )
        found.append((ws, engine.grep(ws, asked)))
    matches = [(places.show(ws, hit.path), hit) for ws, one in found for hit in one.items][:limit]
    lines, notes = (sum(count) for count in zip(*((one.total_lines, one.total_notes) for _, one in found), strict=True))
    late = any(one.late for _, one in found)
    if not lines:
        return "No line matches" + (", as far as time allowed; narrow the folder or glob." if late else ".")
    head = f"{'At least ' if late else ''}{words.amount(lines, 'line')} in {words.amount(notes, 'note')} match:"
    rest = "narrow the pattern, folder or glob"
    more = f"raise limit or {rest}" if limit < schema.MOST_LINES else rest
    last = [f"[{words.amount(lines - len(matches), 'more matching line')}: {more}]"] if lines > len(matches) else []
    return words.bounded([head, *words.matching(matches)], rest, last)


def list_(call: Call, args: Args) -> str:
    places, limit, sort = Places(call), args.get("limit", 100), args.get("sort", "name")
    raw, glob = args.get("folder", ""), args.get("glob")
    about = f"list {raw} {glob} {sort}"
    offset = cursor_offset(args.get("cursor"), about)
    where = words.shortened(raw.strip().strip("/"), 200)
    if places.several and not where and not glob:
        return _workspaces(call)
    levels = [
        (ws, engine.list_folder(ws, folder, glob=glob, sort=sort, limit=limit + offset))
        for ws, folder in places.folders(raw)
    ]
    folders = [
        f"{places.show(ws, path)}/ ({words.amount(count, 'note')})"
        for ws, level in levels
        for path, count in level.folders
    ]
    total = sum(level.total for _, level in levels)
    entries = (folders + _entries(places, levels, sort))[offset : offset + limit]
    inside = f" in {where}" if where else ""
    head = f"{words.amount(len(folders), 'folder')} and {words.amount(total, 'note')}{inside or ' at the top'}"
    if glob:
        head = f"{words.amount(total, 'file')} like {words.shortened(glob, 200)}{inside}"

    def rest(kept: int) -> str | None:
        left = len(folders) + total - offset - kept
        return f'[{left:,} more: cursor="{cursor_to(offset + kept, about)}"]' if left > 0 else None

    return words.paged(head + (":" if entries else "."), entries, rest)


def _entries(places: Places, levels: Sequence[tuple[Workspace, engine.Level]], sort: str) -> list[str]:
    """`path  date  size`, sorted over all workspaces."""
    files = [(places.show(ws, filed.path), filed, at, ws.timezone) for ws, level in levels for filed, at in level.files]
    if len(levels) > 1 and sort != "name":
        files.sort(key=lambda one: -one[1].size if sort == "size" else -one[2])
    return [f"{path}  {day(at, zone)}  {words.size(filed.size)}" for path, filed, at, zone in files]


def _workspaces(call: Call) -> str:
    counts = [(ws.name, engine.listing(ws, Selection(limit=1, visible=ws.access.sees))[1]) for ws in call.workspaces]
    lines = [f"{name}/ ({words.amount(count, 'note')})" for name, count in counts]
    return words.bounded([f"{len(counts)} workspaces:", *lines], "name one of them as folder")


def links(call: Call, args: Args) -> str:
    places, direction = Places(call), args.get("direction", "both")
    if args["path"].rstrip().endswith("/"):
        return _loose_ends(places, args["path"])
    place = places.locate(args["path"])
    ws = place.ws
    with places.saying(ws):
        report = engine.links(ws, place.path, direction, args.get("depth", 1))
    lines = [f"{places.show(ws, place.path)}: {_counted(report, direction)}"]
    lines += [words.link("←", places.show(ws, one.source), one, f"L{one.line}") for one in report.incoming]
    for one in report.outgoing:
        where = f"L{one.line}" if one.source == place.path else f"{places.show(ws, one.source)} L{one.line}"
        target = places.show(ws, one.path) if one.path else one.target or "itself"
        lines.append(words.link("→", target, one, where))
    if args.get("mentions"):
        lines += _mentions(places, place)
    return words.bounded(lines, "ask for one direction, or depth=1")


def _loose_ends(places: Places, raw: str) -> str:
    """`Projects/`, or `/` for everything: what is wrong with the links of a folder."""
    found = [(ws, engine.loose_ends(ws, folder)) for ws, folder in places.folders(raw)]
    links = [(ws, one) for ws, ends in found for one in ends.links]
    orphans = [places.show(ws, path) for ws, ends in found for path in ends.orphans]
    late = any(ends.late for _, ends in found)
    counts = {status: sum(one.status == status for _, one in links) for status in ("broken", "ambiguous")}
    said = f"{words.amount(counts['broken'], 'broken link')}, {counts['ambiguous']} ambiguous"
    said += ", as far as time allowed" if late else f", {words.amount(len(orphans), 'note')} that nothing links to"
    lines = [f"{raw.strip().strip('/') or 'Everything'}: {said}"]
    for ws, one in links:
        shown = one.target + one.subpath
        lines.append(words.link("→", shown, one, f"{places.show(ws, one.source)} L{one.line}", subpath=False))
    return words.bounded([*lines, *(f"○ {path}" for path in orphans)], "name a smaller folder")


def _counted(report: engine.LinkReport, direction: str) -> str:
    """`3 links in, 2 out, 1 broken`, of what was asked for."""
    counts = {"in": len(report.incoming), "out": len(report.outgoing)}
    said = [f"{count} {way}" for way, count in counts.items() if direction in ("both", way)]
    for status in ("broken", "ambiguous"):
        number = sum(link.status == status for link in report.outgoing)
        said += [f"{number} {status}"] if number else []
    return f"links {', '.join(said)}"


def _mentions(places: Places, place: Place) -> list[str]:
    named = engine.mentions(place.ws, place.path)
    lines = [
        f"~ {places.show(place.ws, one.path)} (L{one.line}): {words.shortened(one.text.strip(), 200)}" for one in named
    ]
    return [f"{words.amount(len(named), 'mention')} without a link{':' if named else ''}", *lines]


def context(call: Call, args: Args) -> str:
    places, budget, about = Places(call), args.get("budget", 4000), args["about"]
    place = _exactly(places, about)
    if place is not None:
        pack, named = engine.about_note(place.ws, place.path, budget), places.show(place.ws, place.path)
    else:
        pack, named = engine.about_words(call.workspaces, about, budget), f"“{words.shortened(about.strip(), 80)}”"
    if not pack.passages:
        return words.nothing(about, pack.nearest)
    return "\n".join(words.passages(pack, named, lambda one: places.show(one.ws, one.path)))


def _exactly(places: Places, about: str) -> Place | None:
    """The file, if the words are the path of one (`.md` optional); a bare name is taken for words."""
    try:
        ws, rest = places.split(about)
        found = engine.locate(ws, rest) if rest else None
    except (NotFound, Invalid, Ambiguous):
        return None
    wanted = rest.lower()
    return Place(ws, found) if found and found.lower() in (wanted, wanted + ".md") else None


READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
SURFACE = Surface(
    "notes",
    schema.INSTRUCTIONS,
    (
        Tool("search", schema.DESCRIPTIONS["search"], schema.SEARCH, search, READ_ONLY),
        Tool("grep", schema.DESCRIPTIONS["grep"], schema.GREP, grep, READ_ONLY),
        Tool("read", schema.DESCRIPTIONS["read"], schema.READ, read, READ_ONLY),
        Tool("list", schema.DESCRIPTIONS["list"], schema.LIST, list_, READ_ONLY),
        Tool("links", schema.DESCRIPTIONS["links"], schema.LINKS, links, READ_ONLY),
        Tool("context", schema.DESCRIPTIONS["context"], schema.CONTEXT, context, READ_ONLY),
        *CHANGING,
        Tool("history", schema.DESCRIPTIONS["history"], schema.HISTORY, history, READ_ONLY),
    ),
    Plain(),
    resources=NoteResources("note:///"),
)
