"""The tools of `notes` that find: by words, by pattern, by folder, by links."""

import time
from dataclasses import replace

from notewright.engine.check import broken_links, mentions
from notewright.engine.find.context import pack_for_note, pack_for_words
from notewright.engine.find.grep import PATTERN_SECONDS, Grep
from notewright.engine.find.grep import grep as grep_notes
from notewright.engine.find.links import links as links_of
from notewright.engine.find.search import Hits, parse_query
from notewright.engine.find.search import search as search_notes
from notewright.engine.read import list_files, list_folder, locate
from notewright.engine.workspace import Workspace
from notewright.errors import Ambiguous, Invalid, NotFound
from notewright.index.base import Selection
from notewright.surfaces.arguments import NamedPath, OffsetPage, Places, format_day, parse_since
from notewright.surfaces.base import Args, Call
from notewright.surfaces.notes import render as words
from notewright.surfaces.notes import schema

# ---- by words -----------------------------------------------------------------------------------------


def search(call: Call, args: Args) -> str:
    """Find notes by meaningful words or a whole question; ranked sections with the line to read. Start here."""
    places, page = Places(call), OffsetPage.of("search", args, 10, ("query", "folder", "tags", "since"))
    if not args["query"].strip() and not _conditions(args):
        raise Invalid("query is empty", hint="give words or a question", what="query")
    answers: list[tuple[Workspace, Hits]] = []
    for ws, folder in places.folders(args.get("folder", "")):
        since = parse_since(args["since"], ws.timezone) if args.get("since") else None
        query = parse_query(args["query"], folder=folder, tags=args.get("tags", ()), since=since, limit=page.end)
        answers.append((ws, search_notes(ws, query)))
    each = [found for _, found in answers]
    nearest = tuple(dict.fromkeys(near for found in each for near in found.nearest))
    total = sum(found.total for found in each)
    ranked = sorted(((ws, hit) for ws, found in answers for hit in found.items), key=lambda pair: -pair[1].score)
    hits = ranked[page.offset : page.end]
    if not hits:
        return "Nothing more." if page.offset else words.report_no_hits(args["query"], nearest, _conditions(args))
    items = [
        words.format_hit(number, places.show(ws, hit.path), hit, ws.timezone)
        for number, (ws, hit) in enumerate(hits, page.offset + 1)
    ]
    more = any(found.cut for found in each) or len(ranked) > page.end
    left = max(total - page.offset, len(hits) + 1) if more else len(hits)
    head = f"{words.pluralize(total, 'note')} found, newest first:"  # conditions alone rank nothing
    if query.words:
        head = words.format_hit_counts(each, len(hits))
    return words.format_page(head, items, page, left, "more note")


def _conditions(args: Args) -> list[str]:
    return [name for name in ("folder", "tags", "since") if args.get(name)]


# ---- by pattern ---------------------------------------------------------------------------------------


def grep(call: Call, args: Args) -> str:
    """Every line that matches a regular expression. For exact strings, names, patterns; use search for topics."""
    places, limit, looked_into = Places(call), args.get("limit", 50), 0

    def report(count: int) -> None:
        nonlocal looked_into
        looked_into += count
        call.report(looked_into, None, f"{looked_into} notes looked into")

    query = Grep(
        args["pattern"],
        ignore_case=args.get("ignore_case", True),
        context=args.get("context", 0),
        limit=limit,
        spans=1,
        cancelled=call.cancelled,
        on_progress=report,
    )
    folders = places.globbed_folders(args.get("folder", ""), args.get("glob"))
    if len(folders) > 1:
        query = replace(query, until=time.monotonic() + PATTERN_SECONDS)
    found = [(ws, grep_notes(ws, replace(query, folder=folder, glob=glob))) for ws, folder, glob in folders]
    shown = [(places.show(ws, hit.path), hit) for ws, one in found for hit in one.items][:limit]
    lines, notes = sum(one.total_lines for _, one in found), sum(one.total_notes for _, one in found)
    late = any(one.late for _, one in found)
    if not lines:
        return "No line matches" + (", as far as time allowed; narrow the folder or glob." if late else ".")
    head = f"{'At least ' if late else ''}{words.pluralize(lines, 'line')} in {words.pluralize(notes, 'note')} match:"
    if not shown:
        return head
    left = lines - len(shown)
    rest = "narrow the pattern, folder or glob"
    more = f"raise limit or {rest}" if limit < schema.MOST_LINES else rest
    last = [f"[{words.pluralize(left, 'more matching line')}: {more}]"] if left else []
    return words.fit_lines([head, *words.format_matches(shown)], rest, last)


# ---- by folder ----------------------------------------------------------------------------------------


def list_(call: Call, args: Args) -> str:
    """Folders and notes in a folder, or all that match a glob; newest or largest first if asked."""
    places, page = Places(call), OffsetPage.of("list", args, 100, ("folder", "glob", "sort"))
    raw, glob, sort = args.get("folder", ""), args.get("glob"), args.get("sort", "name")
    if places.several and not raw.strip().strip("/") and not glob:
        counts = [
            (ws.name, list_files(ws, Selection(limit=1, visible=ws.access.visibility))[1]) for ws in call.workspaces
        ]
        lines = [f"{name}/ ({words.pluralize(count, 'note')})" for name, count in counts]
        return words.fit_lines([f"{len(counts)} workspaces:", *lines], "name one of them as folder")
    levels = [
        (ws, list_folder(ws, folder, glob=inside, sort=sort, limit=page.end))
        for ws, folder, inside in places.globbed_folders(raw, glob)
    ]
    folders = [
        f"{places.show(ws, path)}/ ({words.pluralize(count, 'note')})"
        for ws, level in levels
        for path, count in level.folders
    ]
    total = sum(level.total for _, level in levels)
    files = [(ws, file, at) for ws, level in levels for file, at in level.files]
    if len(levels) > 1 and sort != "name":
        files.sort(key=lambda file: -file[1].size if sort == "size" else -file[2])
    shown = [
        f"{places.show(ws, file.path)}  {format_day(at, ws.timezone)}  {words.format_size(file.size)}"
        for ws, file, at in files
    ]
    entries = [*folders, *shown][page.offset : page.end]
    where = words.shorten(raw.strip().strip("/"), 200)
    if glob:
        head = f"{words.pluralize(total, 'file')} like {words.shorten(glob, 200)}"
    else:
        head = f"{words.pluralize(len(folders), 'folder')} and {words.pluralize(total, 'note')}"
    head += f" in {where}" if where else "" if glob else " at the top"
    head += ":" if entries else "."
    return words.format_page(head, entries, page, len(folders) + total - page.offset, "more entry", "more entries")


# ---- by links -----------------------------------------------------------------------------------------


def links(call: Call, args: Args) -> str:
    """What a note links to and what links to it, with the lines; broken and ambiguous links are marked. Of a
    folder: only what is broken, and notes nothing links to."""
    places, direction = Places(call), args.get("direction", "both")
    if args["path"].rstrip().endswith("/"):
        return _report_broken_links(places, args["path"])
    place = places.locate(args["path"])
    ws = place.ws
    with places.prefixing_problems(ws):
        report = links_of(ws, place.path, direction, args.get("depth", 1))
    counts = [] if direction == "out" else [f"{len(report.incoming)} in"]
    if direction != "in":
        statuses = [link.status for link in report.outgoing]
        counts.append(f"{len(statuses)} out")
        counts += [f"{statuses.count(status)} {status}" for status in ("broken", "ambiguous") if status in statuses]
    lines = [f"{places.show(ws, place.path)}: links {', '.join(counts)}"]
    for link in report.incoming:
        lines.append(words.format_link("←", places.show(ws, link.source), link, f"L{link.line}"))
    for link in report.outgoing:  # one of another note, found on the way, says in which it stands
        where = f"L{link.line}" if link.source == place.path else f"{places.show(ws, link.source)} L{link.line}"
        target = places.show(ws, link.path) if link.path else link.target or "itself"
        lines.append(words.format_link("→", target, link, where))
    if args.get("mentions"):
        named = mentions(ws, place.path)
        lines.append(f"{words.pluralize(len(named), 'mention')} without a link{':' if named else ''}")
        lines += [f"~ {places.show(ws, one.path)} (L{one.line}): {one.context.with_marks}" for one in named]
    return words.fit_lines(lines, "ask for one direction, or depth=1")


def _report_broken_links(places: Places, raw: str) -> str:
    """The broken and ambiguous links of a folder (`Projects/`, or `/` for everything) and its orphaned notes."""
    found = [(ws, broken_links(ws, folder)) for ws, folder in places.folders(raw)]
    links = [(ws, one) for ws, ends in found for one in ends.links]
    orphans = [places.show(ws, path) for ws, ends in found for path in ends.orphans]
    late = any(ends.late for _, ends in found)
    counts = {status: sum(one.status == status for _, one in links) for status in ("broken", "ambiguous")}
    summary = f"{words.pluralize(counts['broken'], 'broken link')}, {counts['ambiguous']} ambiguous"
    count = words.pluralize(len(orphans), "note")
    summary += ", as far as time allowed" if late else f", {count} that nothing links to"
    lines = [f"{raw.strip().strip('/') or 'Everything'}: {summary}"]
    for ws, one in links:
        shown = one.target + one.subpath
        lines.append(words.format_link("→", shown, one, f"{places.show(ws, one.source)} L{one.line}", subpath=False))
    return words.fit_lines([*lines, *(f"○ {path}" for path in orphans)], "name a smaller folder")


def context(call: Call, args: Args) -> str:
    """All that matters about a question or around a note, within a token budget, with places to cite."""
    places, budget, about = Places(call), args.get("budget", 4000), args["about"]
    place = _locate_exact_path(places, about)
    if place is not None:
        pack, topic = pack_for_note(place.ws, place.path, budget), places.show(place.ws, place.path)
    else:
        pack, topic = pack_for_words(call.workspaces, about, budget), f"“{words.shorten(about.strip(), 80)}”"
    if not pack.passages and not pack.left_out:
        return words.report_no_hits(about, pack.nearest)
    return "\n".join(words.format_passages(pack, topic, lambda one: places.show(one.ws, one.path)))


def _locate_exact_path(places: Places, about: str) -> NamedPath | None:
    """The file whose path this text is (`.md` optional), or None; a bare name is taken for words to search for."""
    try:
        ws, rest = places.split(about)
        found = locate(ws, rest) if rest else None
    except (NotFound, Invalid, Ambiguous):
        return None
    wanted = rest.lower()
    return NamedPath(ws, found) if found and found.lower() in (wanted, wanted + ".md") else None
