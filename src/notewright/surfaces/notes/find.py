"""The tools of `notes` that find: by words, by pattern, by folder."""

import time
from collections.abc import Sequence
from dataclasses import replace

from notewright.engine.find.grep import PATTERN_SECONDS, Grep, Matches
from notewright.engine.find.grep import grep as grep_notes
from notewright.engine.find.search import Hit, Hits, parse_query
from notewright.engine.find.search import search as search_notes
from notewright.engine.read import FolderListing, list_folder, listing
from notewright.engine.workspace import Workspace
from notewright.errors import Invalid
from notewright.index.base import Query, Selection
from notewright.surfaces.arguments import OffsetPage, Places, day, since_time
from notewright.surfaces.base import Args, Call
from notewright.surfaces.notes import render as words
from notewright.surfaces.notes import schema

# ---- by words -----------------------------------------------------------------------------------------


def search(call: Call, args: Args) -> str:
    """Find notes by meaningful words or a whole question; ranked sections with the line to read. Start here."""
    places, page = Places(call), OffsetPage.of("search", args, 10, ("query", "folder", "tags", "since"))
    _refuse_empty(args)
    answers = [
        (ws, search_notes(ws, _query(ws, folder, args, page.end)))
        for ws, folder in places.folders(args.get("folder", ""))
    ]
    counts, ranked = _together([found for _, found in answers]), _ranked(answers)
    hits = ranked[page.offset : page.end]
    if not hits:
        return "Nothing more." if page.offset else words.nothing(args["query"], counts.nearest, _narrowed(args))
    items = [
        words.hit(number, places.show(ws, hit.path), hit, ws.timezone)
        for number, (ws, hit) in enumerate(hits, page.offset + 1)
    ]
    more = counts.cut or len(ranked) > page.end
    left = max(counts.total - page.offset, len(hits) + 1) if more else len(hits)
    return words.paged(_found(args["query"], counts, len(hits)), items, page, left, "more note")


def _refuse_empty(args: Args) -> None:
    if not args["query"].strip() and not _narrowed(args):
        raise Invalid("query is empty", hint="give words or a question", what="query")


def _narrowed(args: Args) -> list[str]:
    return [name for name in ("folder", "tags", "since") if args.get(name)]


def _query(ws: Workspace, folder: str, args: Args, limit: int) -> Query:
    query = parse_query(args["query"])
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


def _found(asked: str, counts: Hits, shown: int) -> str:
    """Conditions alone rank nothing: then the newest come first."""
    if parse_query(asked).words:
        return words.found(counts, shown)
    return f"{words.amount(counts.total, 'note')} found, newest first:"


# ---- by pattern ---------------------------------------------------------------------------------------


def grep(call: Call, args: Args) -> str:
    """Every line that matches a regular expression. For exact strings, names, patterns; use search for topics."""
    places, limit, looked = Places(call), args.get("limit", 50), call.counting("notes looked into")
    asked = Grep(
        args["pattern"],
        glob=args.get("glob"),
        ignore_case=args.get("ignore_case", True),
        context=args.get("context", 0),
        limit=limit,
        spans=1,
        cancelled=call.cancelled,
        told=looked,
    )
    folders = places.folders(args.get("folder", ""))
    if len(folders) > 1:
        asked = replace(asked, until=time.monotonic() + PATTERN_SECONDS)
    found = [(ws, grep_notes(ws, replace(asked, folder=folder))) for ws, folder in folders]
    shown = [(places.show(ws, hit.path), hit) for ws, one in found for hit in one.items][:limit]
    head, left = _matched([one for _, one in found], len(shown))
    if not shown:
        return head
    rest = "narrow the pattern, folder or glob"
    more = f"raise limit or {rest}" if limit < schema.MOST_LINES else rest
    last = [f"[{words.amount(left, 'more matching line')}: {more}]"] if left else []
    return words.bounded([head, *words.matching(shown)], rest, last)


def _matched(found: Sequence[Matches], shown: int) -> tuple[str, int]:
    """How many lines match, in words, and how many of them are not shown."""
    lines, notes = sum(one.total_lines for one in found), sum(one.total_notes for one in found)
    late = any(one.late for one in found)
    if not lines:
        return "No line matches" + (", as far as time allowed; narrow the folder or glob." if late else "."), 0
    atleast = "At least " if late else ""
    return f"{atleast}{words.amount(lines, 'line')} in {words.amount(notes, 'note')} match:", lines - shown


# ---- by folder ----------------------------------------------------------------------------------------


def list_(call: Call, args: Args) -> str:
    """Folders and notes in a folder, or all that match a glob; newest or largest first if asked."""
    places, page = Places(call), OffsetPage.of("list", args, 100, ("folder", "glob", "sort"))
    raw, glob, sort = args.get("folder", ""), args.get("glob"), args.get("sort", "name")
    if places.several and not raw.strip().strip("/") and not glob:
        return _workspaces(call)
    levels = [(ws, list_folder(ws, folder, glob=glob, sort=sort, limit=page.end)) for ws, folder in places.folders(raw)]
    folders = [
        f"{places.show(ws, path)}/ ({words.amount(count, 'note')})"
        for ws, level in levels
        for path, count in level.folders
    ]
    total = sum(level.total for _, level in levels)
    entries = [*folders, *_entries(places, levels, sort)][page.offset : page.end]
    head = _inside(raw, glob, len(folders), total) + (":" if entries else ".")
    return words.paged(head, entries, page, len(folders) + total - page.offset, "more entry", "more entries")


def _inside(raw: str, glob: str | None, folders: int, total: int) -> str:
    where = words.shortened(raw.strip().strip("/"), 200)
    if glob:
        return f"{words.amount(total, 'file')} like {words.shortened(glob, 200)}" + (f" in {where}" if where else "")
    held = f"{words.amount(folders, 'folder')} and {words.amount(total, 'note')}"
    return f"{held} in {where}" if where else f"{held} at the top"


def _entries(places: Places, levels: Sequence[tuple[Workspace, FolderListing]], sort: str) -> list[str]:
    """`path  date  size`, sorted over all workspaces."""
    files = [(places.show(ws, filed.path), filed, at, ws.timezone) for ws, level in levels for filed, at in level.files]
    if len(levels) > 1 and sort != "name":
        files.sort(key=lambda one: -one[1].size if sort == "size" else -one[2])
    return [f"{path}  {day(at, zone)}  {words.size(filed.size)}" for path, filed, at, zone in files]


def _workspaces(call: Call) -> str:
    counts = [(ws.name, listing(ws, Selection(limit=1, visible=ws.access.visibility))[1]) for ws in call.workspaces]
    lines = [f"{name}/ ({words.amount(count, 'note')})" for name, count in counts]
    return words.bounded([f"{len(counts)} workspaces:", *lines], "name one of them as folder")
