"""Which note a link means: Obsidian's rules, and the other surfaces' rules as small policies over the same names.

A policy is a list of steps. The first step that returns candidates, or an empty list, decides. Steps look at names
only, never at texts, so that resolving a link costs one look-up by the target's last segment.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from notewright.lazy_dataclass import dataclass
from notewright.notes.links.names import Names, Namesakes, OtherName
from notewright.notes.model import Note
from notewright.notes.path import NotePath, path_key, with_md, without_md

_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


class Resolution(NamedTuple):
    """The path a link means, and whether others could be meant as well."""

    path: NotePath | None
    ambiguous: bool  # nothing but the order of code points chose it


class LinkQuery(NamedTuple):
    """A link to resolve, and what the steps look at."""

    target: str
    source: NotePath
    named: Namesakes  # the paths with the target's last segment, looked up once
    names: Names
    roots: tuple[str, ...]

    @property
    def root(self) -> str:
        return self.source.partition("/")[0]


Candidates = list[tuple[tuple[object, ...], NotePath]]  # each with its rank: the lowest is the best
Step = Callable[[LinkQuery], Candidates | None]  # None: not for this step; an empty list: decided, and nothing is there


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """How one surface resolves links. `roots` are the names of several workspaces, each path's first segment."""

    steps: tuple[Step, ...]
    roots: tuple[str, ...] = ()
    unique_name_decides: bool = (
        False  # a bare name that only one file has means that file, whatever the steps would look at
    )
    depends_on_folder: bool = True  # what a link means may depend on the folder it stands in
    other_names: bool = False  # a note is also linked by its aliases, title and slugs


def link_key(target: str) -> str:
    """The key of a target's last segment: what links and the files they could mean have in common."""
    return path_key(target.rpartition("/")[2])


def slug_key(text: str) -> str:
    """Lower case, runs of anything but letters and digits as one dash."""
    return _NOT_ALPHANUMERIC.sub("-", path_key(text)).strip("-")


# ---- steps --------------------------------------------------------------------------------------------


def _itself(query: LinkQuery) -> Candidates | None:
    return None if query.target else [((), query.source)]


def _explicitly_relative(query: LinkQuery) -> Candidates | None:
    if not query.target.startswith(("./", "../")):
        return None
    joined = posixpath.normpath(posixpath.join(query.source.folder, query.target))
    return _at(joined, query)


def _from_root(query: LinkQuery) -> Candidates | None:
    return _at(query.target.lstrip("/"), query) if query.target.startswith("/") else None


def _exact_path(query: LinkQuery) -> Candidates | None:
    return _at(query.target, query) or None


def _path_suffix(query: LinkQuery) -> Candidates | None:
    for ending in _spellings(query.target) if query.named else ():
        beside = query.named.with_key(path_key(posixpath.join(query.source.folder, ending)))
        found = beside or query.named.shortest_below(path_key(ending))
        if found:
            return [((len(path), not path.endswith("/" + ending)), path) for path in found]
    return None


def _at(place: str, query: LinkQuery) -> Candidates:
    """What is at this path, with or without `.md`."""
    if not query.named:
        return []
    first, second = _spellings(place)
    return _spelled(first, query) or _spelled(second, query)


def _spelled(spelling: str, query: LinkQuery) -> Candidates:
    """What has this path, case ignored; of twins the one spelled the same."""
    return [((path != spelling,), path) for path in query.named.with_key(path_key(spelling))]


def _spellings(target: str) -> tuple[str, str]:
    """As written and with `.md`. Without an extension the note comes first: `LICENSE` means `LICENSE.md`."""
    as_note = target + ".md"
    return (target, as_note) if "." in target.rpartition("/")[2] else (as_note, target)


def _stem(query: LinkQuery) -> Candidates | None:
    if "/" in query.target:
        return []
    return [((not path.is_note, len(path)), path) for path in query.named if path.stem == query.target]


def _bare_stem(query: LinkQuery) -> Candidates | None:
    """Exactly this name, of several the one Obsidian would choose; what has a folder or `.md` is a path."""
    if "/" in query.target or query.target[-3:].lower() == ".md":
        return None
    return [
        ((not path.is_note, path.folder != "", path.folder != query.source.folder, len(path)), path)
        for path in (_nearest_notes(query) if query.named.are_many else ()) or query.named
        if path.stem == query.target
    ]


def _nearest_notes(query: LinkQuery) -> list[NotePath]:
    """The notes with exactly this name in the root or the source's folder, else the shortest."""
    ending = path_key(query.target + ".md")
    there = (posixpath.join(folder, ending) for folder in ("", path_key(query.source.folder)))
    found = [path for place in there for path in query.named.with_key(place)]
    near = [path for path in found if path.stem == query.target and path.folder in ("", query.source.folder)]
    return near or [path for path in query.named.shortest_below(ending) if path.stem == query.target]


def _same_path(query: LinkQuery) -> Candidates | None:
    wanted = with_md(query.target)
    return [((), path) for path in query.named.with_key(path_key(wanted)) if path == wanted] or None


def _alias(query: LinkQuery) -> Candidates | None:
    return [((len(path),), path) for path in query.names.by_other_name("alias", path_key(query.target))] or None


def _title(query: LinkQuery) -> Candidates | None:
    return [((len(path),), path) for path in query.names.by_other_name("title", path_key(query.target))] or None


def _last_segment(query: LinkQuery) -> Candidates | None:
    if "/" in query.target:
        return None
    return [((len(path),), path) for path in query.named if path.is_note] or None


def _slug(query: LinkQuery) -> Candidates | None:
    slug = slug_key(without_md(query.target))
    return [
        ((place,), path) for place, path in enumerate(query.names.by_other_name("slug", slug) if slug else ())
    ] or None


def _beside(query: LinkQuery) -> Candidates | None:
    """Relative to the source's folder; `..` stops at the workspace's root."""
    if query.target.startswith("/"):
        return None
    inner = "/" + query.source.folder[len(query.root) + 1 :]
    joined = posixpath.normpath(posixpath.join(inner, query.target))
    return _note_at(posixpath.join(query.root, joined.lstrip("/")), query)


def _below_own_root(query: LinkQuery) -> Candidates | None:
    return _note_at(posixpath.join(query.root, query.target.lstrip("/")), query)


def _any_case_path(query: LinkQuery) -> Candidates | None:
    return _note_at(query.target, query)


def _anywhere(query: LinkQuery) -> Candidates | None:
    wanted, own = "/" + path_key(with_md(query.target)), query.root
    order = {root: place for place, root in enumerate(query.roots)}
    return [
        ((root != own, order.get(root, len(order)), len(path)), path)
        for path in query.named
        if path_key(path).endswith(wanted)
        for root in [path.partition("/")[0]]
    ] or None


def _note_at(place: str, query: LinkQuery) -> Candidates | None:
    return _spelled(with_md(place), query) or None


# ---- policies -----------------------------------------------------------------------------------------

OBSIDIAN = LinkPolicy((_itself, _explicitly_relative, _from_root, _exact_path, _path_suffix), unique_name_decides=True)
STEM = LinkPolicy((_itself, _stem), depends_on_folder=False)
STEM_OR_PATH = LinkPolicy((_itself, _bare_stem, _explicitly_relative, _from_root, _exact_path, _path_suffix))
CAIRN = LinkPolicy(
    (_itself, _same_path, _any_case_path, _alias, _title, _last_segment, _slug),
    depends_on_folder=False,
    other_names=True,
)


def lens_policy(roots: Sequence[str]) -> LinkPolicy:
    """Links across workspaces: every path begins with its workspace's name, and `roots` names them in order."""
    return LinkPolicy((_itself, _beside, _below_own_root, _any_case_path, _anywhere), tuple(roots))


# ---- resolving ----------------------------------------------------------------------------------------


def resolve(target: str, source: NotePath, names: Names, policy: LinkPolicy = OBSIDIAN) -> NotePath | None:
    """The path a link in `source` means, or None where it is broken."""
    return resolve_link(target, source, names, policy).path


def resolve_unique_name(target: str, named: Sequence[NotePath], policy: LinkPolicy) -> Resolution | None:
    """What a target means wherever it stands, if only one file has its name; None where the steps must decide."""
    if policy.unique_name_decides and len(named) == 1 and "/" not in target:
        return Resolution(named[0], False)
    return None


def resolve_link(target: str, source: NotePath, names: Names, policy: LinkPolicy = OBSIDIAN) -> Resolution:
    """The path a link means, chosen by the first step that decides: its best candidate."""
    target = target.strip()
    named = names.by_name(link_key(target)) if target else ()
    if (unique := resolve_unique_name(target, named, policy)) is not None:
        return unique
    known = named if isinstance(named, Namesakes) else Namesakes(named)
    query = LinkQuery(target, source, known, names, policy.roots)
    for step in policy.steps:
        found = step(query)
        if found is not None:
            ordered = sorted(set(found), key=lambda entry: (*entry[0], entry[1])) if len(found) > 1 else found
            ambiguous = len(ordered) > 1 and ordered[0][0] == ordered[1][0]
            return Resolution(ordered[0][1] if ordered else None, ambiguous)
    return Resolution(None, False)


# ---- names of a vault held in memory ------------------------------------------------------------------


class InMemoryNames:
    """The names of these paths, for small vaults; aliases, titles and slugs only those of `notes`."""

    def __init__(self, paths: Iterable[NotePath] = (), notes: Iterable[Note] = ()) -> None:
        self.paths_by_key: defaultdict[tuple[str, str], Namesakes] = defaultdict(Namesakes)
        for path in paths:
            for key in name_keys(path):
                self.paths_by_key["name", key].append(path)
        slugs: list[tuple[int, str, NotePath]] = []
        for note in notes:
            self.paths_by_key["title", path_key(note.title)].append(note.path)
            for alias in note.aliases:
                self.paths_by_key["alias", path_key(alias.strip())].append(note.path)
            slugs += [(place, slug, note.path) for place, slug in list_slugs(note)]
        for _, slug, path in sorted(slugs, key=lambda entry: (entry[0], len(entry[2]), entry[2])):
            if path not in self.paths_by_key["slug", slug]:
                self.paths_by_key["slug", slug].append(path)

    def by_name(self, key: str) -> Sequence[NotePath]:
        return self.paths_by_key.get(("name", key), ())

    def by_other_name(self, kind: OtherName, key: str) -> Sequence[NotePath]:
        return self.paths_by_key.get((kind, key), ())


def name_keys(path: NotePath, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The keys under which `by_name` must find this path; with `others`, the keys of all links that could mean it."""
    name = path.name
    return tuple(dict.fromkeys([path_key(name), path_key(without_md(name)), *map(link_key, others)]))


def list_slugs(note: Note) -> list[tuple[int, str]]:
    """The slugs of a note with their precedence: 0 path, 1 alias, 2 title, 3 last segment."""
    own = [(0, without_md(note.path)), *((1, alias) for alias in note.aliases), (2, note.title), (3, note.path.stem)]
    return [(place, slug) for place, text in own if (slug := slug_key(text))]
