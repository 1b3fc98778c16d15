"""Our own surface: the engine's strengths in fourteen plain tools, written for a model to read."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from notewright import engine
from notewright.engine import Hits, Past, Query, Selection, Workspace
from notewright.errors import Invalid, NotFound, codes
from notewright.notes import Note, NotePath, with_md
from notewright.surfaces import notes_schema as schema
from notewright.surfaces import notes_words as words
from notewright.surfaces.base import Answer, Args, BadArgument, Call, Failed, Image, Style, Surface, Tool
from notewright.surfaces.notes_change import TOOLS as CHANGING
from notewright.surfaces.places import Place, Places, cursor_offset, cursor_to, since_time
from notewright.surfaces.resources import NoteResources

IMAGES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
MOST_IMAGE_BYTES = 1 << 20


class Plain(Style):
    """`code: what is wrong. What to do.`"""

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
        said = f"{self.table[problem.code]}: {problem.message.rstrip('.')}."
        return Answer.error(f"{said} {sentence(problem.hint)}" if problem.hint else said)

    def bad_arguments(self, failed: Failed) -> Answer:
        fault = failed.problem
        if isinstance(fault, BadArgument) and fault.fault == "unknown" and fault.expected:
            return Answer.error(f"invalid: {fault.message}. {failed.tool} takes {', '.join(fault.expected)}.")
        return Answer.error(f"invalid: {fault.message}. Call {failed.tool} again with that put right.")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


# ---- finding ------------------------------------------------------------------------------------------


def search(call: Call, args: Args) -> str:
    places, limit = Places(call), args.get("limit", 10)
    about = f"search {args['query']} {args.get('folder', '')} {args.get('tags')} {args.get('since')}"
    offset = cursor_offset(args.get("cursor"), about)
    answers = [
        (ws, engine.search(ws, _query(ws, folder, args, limit + offset)))
        for ws, folder in places.folders(args.get("folder", ""))
    ]
    ranked = sorted(((ws, hit) for ws, found in answers for hit in found.items), key=lambda pair: -pair[1].score)
    page = [(places.show(ws, hit.path), hit) for ws, hit in ranked[offset : offset + limit]]
    found = [found for _, found in answers]
    total = Hits(
        (), sum(one.total for one in found), sum(one.with_all for one in found), False,
        tuple(dict.fromkeys(near for one in found for near in one.nearest)),
    )  # fmt: skip
    more = len(ranked) > offset + limit or any(one.cut for one in found)
    lines = [*words.hits(page, total, args["query"])]
    if more and page:
        lines.append(f'More: cursor="{cursor_to(offset + limit, about)}"')
    return words.bounded(lines, "narrow the words or the folder")


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


def grep(call: Call, args: Args) -> str:
    places, limit = Places(call), args.get("limit", 50)
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
        )
        found.append((ws, engine.grep(ws, asked)))
    shown = [(places.show(ws, hit.path), hit) for ws, one in found for hit in one.items][:limit]
    lines = [*words.matches([(ws.name, one) for ws, one in found], [path for path, _ in shown])]
    for path, hit in shown:
        first = hit.line - len(hit.before)
        lines += [f"{path}-{first + n}- {words.shortened_line(text)}" for n, text in enumerate(hit.before)]
        lines.append(f"{path}:{hit.line}: {words.shortened_line(hit.text)}")
        lines += [f"{path}-{hit.line + n}- {words.shortened_line(text)}" for n, text in enumerate(hit.after, 1)]
    return words.bounded(lines, "narrow the pattern, folder or glob")


def list_(call: Call, args: Args) -> str:
    places, limit = Places(call), args.get("limit", 100)
    about = f"list {args.get('folder', '')} {args.get('glob')} {args.get('sort', 'name')}"
    offset = cursor_offset(args.get("cursor"), about)
    raw = args.get("folder", "")
    if places.several and not raw.strip().strip("/") and not args.get("glob"):
        return "\n".join(
            [f"{len(call.workspaces)} workspaces:", *(f"{ws.name}/ ({_count(ws)} notes)" for ws in call.workspaces)]
        )
    folders: list[str] = []
    files: list[tuple[str, engine.Filed, float]] = []
    total = 0
    for ws, folder in places.folders(raw):
        level = engine.list_folder(
            ws, folder, glob=args.get("glob"), sort=args.get("sort", "name"), limit=limit + offset
        )
        folders += [f"{places.show(ws, path)}/ ({words.amount(count, 'note')})" for path, count in level.folders]
        files += [(places.show(ws, filed.path), filed, at) for filed, at in level.files]
        total += level.total
    page = files[offset : offset + limit]
    where = raw.strip().strip("/") or "the root"
    lines = [f"{words.amount(len(folders), 'folder')} and {words.amount(total, 'note')} in {where}"]
    lines += folders if not offset else []
    lines += [words.entry(path, filed, at) for path, filed, at in page]
    if offset + limit < total:
        lines.append(f'More: cursor="{cursor_to(offset + limit, about)}"')
    return words.bounded(lines, "use folder, glob or a smaller limit")


def _count(ws: Workspace) -> int:
    return engine.listing(ws, Selection(limit=1, visible=ws.access.sees))[1]


def links(call: Call, args: Args) -> str:
    places = Places(call)
    place = places.locate(args["path"])
    report = engine.links(place.ws, place.path, args.get("direction", "both"), args.get("depth", 1))
    broken = sum(link.status == "broken" for link in report.outgoing)
    lines = [
        f"{places.show(place.ws, place.path)}: {len(report.incoming)} in, {len(report.outgoing)} out"
        + (f", {broken} broken" if broken else "")
    ]
    lines += [words.link(places.show(place.ws, one.source), "←", one) for one in report.incoming]
    lines += [
        words.link(places.show(place.ws, one.path) if one.path else one.target or "itself", "→", one)
        for one in report.outgoing
    ]
    if args.get("mentions"):
        named = engine.mentions(place.ws, place.path)
        lines.append(f"{words.amount(len(named), 'mention')} without a link")
        lines += [
            f"~ {places.show(place.ws, one.path)} (L{one.line}): {words.shortened(one.text, 200)}" for one in named
        ]
    return words.bounded(lines, "ask for one direction or depth=1")


def context(call: Call, args: Args) -> str:
    places, budget, about = Places(call), args.get("budget", 4000), args["about"]
    place = _exactly(places, about)
    if place is not None:
        pack = engine.about_note(place.ws, place.path, budget)
        shown = [places.show(place.ws, passage.path) for passage in pack.passages]
        return "\n".join(words.passages(pack, places.show(place.ws, place.path), shown))
    parts = [(ws, engine.about_words(ws, about, budget // len(call.workspaces))) for ws in call.workspaces]
    pack = engine.Pack(
        tuple(passage for _, one in parts for passage in one.passages), sum(one.left_out for _, one in parts), None
    )
    shown = [places.show(ws, passage.path) for ws, one in parts for passage in one.passages]
    return "\n".join(words.passages(pack, f"“{about}”", shown))


def _exactly(places: Places, about: str) -> Place | None:
    """A note, if the words are the path of one: a bare name is taken for words unless it ends in `.md`."""
    if not ("/" in about or about.lower().endswith(".md")) or len(about) > 900:
        return None
    try:
        return places.locate(about)
    except (NotFound, Invalid):
        return None


# ---- reading ------------------------------------------------------------------------------------------


def read(call: Call, args: Args) -> Answer | str:
    places = Places(call)
    place = places.locate(args["path"])
    shown = places.show(place.ws, place.path)
    if not place.path.is_note:
        return _attachment(place, shown)
    reading = engine.read(place.ws, place.path)
    note = reading.note
    total = _lines(note.text)
    if args.get("outline"):
        report = engine.links(place.ws, place.path)
        head = words.header(shown, reading, total)
        return words.bounded([head, *words.outline(note, len(report.incoming), len(report.outgoing))], "read a section")
    start, end, part = _part(note, args)
    first = note.text.count("\n", 0, start) + 1
    text = note.text[start:end]
    text = text.removeprefix("\ufeff") if start == 0 else text
    return "\n".join(_cut(words.header(shown, reading, total, part), text, first, args.get("max_chars", 20_000)))


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _cut(header: str, text: str, first: int, most: int) -> Iterator[str]:
    yield header
    if len(text) <= most:
        yield text
        return
    kept = text[:most]
    kept = kept[: kept.rfind("\n") + 1] or kept
    yield kept
    following = first + kept.count("\n")
    yield f'[cut after {len(kept):,} of {len(text):,} characters: lines="{following}-" shows the rest]'


def _part(note: Note, args: Args) -> tuple[int, int, str]:
    """The span asked for, and words for it."""
    if "section" in args and "lines" in args:
        raise Invalid("section and lines cannot both be given", hint="leave one out", what="section")
    if "section" in args:
        span = engine.section_span(note, args["section"])
        first = note.text.count("\n", 0, span[0]) + 1
        last = first + note.text[span[0] : span[1]].rstrip("\r\n").count("\n")
        return (*span, f"lines {first}-{last}")
    if "lines" in args:
        return engine.line_span(note.text, args["lines"])
    return 0, len(note.text), ""


def _attachment(place: Place, shown: str) -> Answer:
    stored = engine.fetch(place.ws, place.path)
    described = f"{shown} · {words.size(len(stored.data))} · version {words.version(stored.version)}"
    kind = IMAGES.get(place.path.rpartition(".")[2].lower())
    if kind and len(stored.data) <= MOST_IMAGE_BYTES:
        return Answer.of(described, Image(stored.data, f"image/{kind}"))
    return Answer.of(f"{described} · an attachment; its content cannot be shown here")


def history(call: Call, args: Args) -> str:
    places = Places(call)
    if "change" in args:
        ws, one = _change(call, args["change"])
        lines = [words.change(one)]
        lines += words.differences((places.show(ws, each.path), each) for each in engine.diff_of(ws, one.id))
        return words.bounded(lines, "read the notes themselves")
    limit = args.get("limit", 20)
    found = [one for ws, path in _spots(places, args) for one in engine.past(ws, _past(ws, path, args, limit + 1))]
    found.sort(key=lambda one: -one.at)
    head = f"{words.amount(min(len(found), limit), 'change')}, newest first:" if found else "No changes."
    tail = ["[more: raise limit or give since]"] if len(found) > limit else []
    return words.bounded([head, *(words.change(one) for one in found[:limit]), *tail], "a smaller limit")


def _spots(places: Places, args: Args) -> list[tuple[Workspace, str | None]]:
    """Where to look: a note that is there or was once, or everything."""
    if "path" not in args:
        return [(ws, None) for ws in places.call.workspaces]
    try:
        place = places.locate(args["path"])
        return [(place.ws, place.path)]
    except NotFound as missing:
        ws, rest = places.split(args["path"])
        path = NotePath.parse(with_md(rest))
        if not engine.past(ws, Past(path=path, limit=1)):
            raise missing from None
        return [(ws, path)]


def _past(ws: Workspace, path: str | None, args: Args, limit: int) -> Past:
    since = since_time(args["since"], ws.timezone) if "since" in args else None
    return Past(path=path, since=since, limit=limit)


def _change(call: Call, change_id: str) -> tuple[Workspace, engine.Change]:
    problem: NotFound | None = None
    for ws in call.workspaces:
        try:
            return ws, engine.change_of(ws, change_id)
        except NotFound as missing:
            problem = missing
    raise problem or NotFound(f"there is no change {change_id}", what="change")


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
