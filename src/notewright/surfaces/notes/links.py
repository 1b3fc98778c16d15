"""The tools of `notes` that follow links: what leads where, and what is near."""

from notewright.engine.check import broken_links, mentions
from notewright.engine.find.context import about_note, about_words
from notewright.engine.find.links import LinkReport, ResolvedLink
from notewright.engine.find.links import links as links_of
from notewright.engine.read import locate
from notewright.errors import Ambiguous, Invalid, NotFound
from notewright.surfaces.arguments import NamedPath, Places
from notewright.surfaces.base import Args, Call
from notewright.surfaces.notes import render as words


def links(call: Call, args: Args) -> str:
    """What a note links to and what links to it, with the lines; broken and ambiguous links are marked. Of a
    folder: only what is broken, and notes nothing links to."""
    places, direction = Places(call), args.get("direction", "both")
    if args["path"].rstrip().endswith("/"):
        return _loose_ends(places, args["path"])
    place = places.locate(args["path"])
    ws = place.ws
    with places.saying(ws):
        report = links_of(ws, place.path, direction, args.get("depth", 1))
    lines = [f"{places.show(ws, place.path)}: {_counted(report, direction)}"]
    lines += [words.link("←", places.show(ws, one.source), one, f"L{one.line}") for one in report.incoming]
    lines += [_outgoing(places, place, one) for one in report.outgoing]
    if args.get("mentions"):
        lines += _mentions(places, place)
    return words.bounded(lines, "ask for one direction, or depth=1")


def _outgoing(places: Places, place: NamedPath, one: ResolvedLink) -> str:
    """Where it leads; a link of another note, found on the way, says in which it stands."""
    where = f"L{one.line}" if one.source == place.path else f"{places.show(place.ws, one.source)} L{one.line}"
    target = places.show(place.ws, one.path) if one.path else one.target or "itself"
    return words.link("→", target, one, where)


def _loose_ends(places: Places, raw: str) -> str:
    """`Projects/`, or `/` for everything: what is wrong with the links of a folder."""
    found = [(ws, broken_links(ws, folder)) for ws, folder in places.folders(raw)]
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


def _counted(report: LinkReport, direction: str) -> str:
    """`3 links in, 2 out, 1 broken`, of what was asked for."""
    counts = {"in": len(report.incoming), "out": len(report.outgoing)}
    said = [f"{count} {way}" for way, count in counts.items() if direction in ("both", way)]
    for status in ("broken", "ambiguous"):
        number = sum(link.status == status for link in report.outgoing)
        said += [f"{number} {status}"] if number else []
    return f"links {', '.join(said)}"


def _mentions(places: Places, place: NamedPath) -> list[str]:
    named = mentions(place.ws, place.path)
    lines = [f"~ {places.show(place.ws, one.path)} (L{one.line}): {one.context.marked}" for one in named]
    return [f"{words.amount(len(named), 'mention')} without a link{':' if named else ''}", *lines]


def context(call: Call, args: Args) -> str:
    """All that matters about a question or around a note, within a token budget, with places to cite."""
    places, budget, about = Places(call), args.get("budget", 4000), args["about"]
    place = _exactly(places, about)
    if place is not None:
        pack, named = about_note(place.ws, place.path, budget), places.show(place.ws, place.path)
    else:
        pack, named = about_words(call.workspaces, about, budget), f"“{words.shortened(about.strip(), 80)}”"
    if not pack.passages and not pack.left_out:
        return words.nothing(about, pack.nearest)
    return "\n".join(words.passages(pack, named, lambda one: places.show(one.ws, one.path)))


def _exactly(places: Places, about: str) -> NamedPath | None:
    """The file, if the words are the path of one (`.md` optional); a bare name is taken for words."""
    try:
        ws, rest = places.split(about)
        found = locate(ws, rest) if rest else None
    except (NotFound, Invalid, Ambiguous):
        return None
    wanted = rest.lower()
    return NamedPath(ws, found) if found and found.lower() in (wanted, wanted + ".md") else None
