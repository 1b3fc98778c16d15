"""Which note a link means: Obsidian's rules, and the other surfaces' rules as small policies over the same names.

A policy is a row of steps. Each step looks at the link and either passes it on or decides, so that a policy reads
from left to right like the sentence that describes it. Only names are looked at, never texts, so that the whole
question costs one look-up by the target's last segment.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from notewright.lazy_dataclass import dataclass
from notewright.notes.links.names import Names, OtherName
from notewright.notes.model import Note
from notewright.notes.path import NotePath, path_key, with_md, without_md

_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


class Resolution(NamedTuple):
    """What a link means, and whether others could be meant as well."""

    path: NotePath | None
    ambiguous: bool  # nothing but the order of code points chose it


class LinkQuery(NamedTuple):
    """One link being asked about."""

    target: str
    source: NotePath
    named: Sequence[NotePath]  # what bears the target's last segment, looked up once
    names: Names
    roots: tuple[str, ...]


Rank = tuple[object, ...]
Found = list[tuple[Rank, NotePath]]
Step = Callable[[LinkQuery], Found | None]  # None: not for this step; an empty list: decided, and nothing is there


@dataclass(frozen=True, slots=True)
class LinkPolicy:
    """How one surface reads links. `roots` are the names of several workspaces, each path's first segment."""

    steps: tuple[Step, ...]
    roots: tuple[str, ...] = ()
    unique_name_decides: bool = False  # the steps find a file that alone bears a bare name, whatever else they look at
    depends_on_folder: bool = True  # where a link stands may decide what it means
    other_names: bool = False  # a note is linked by its aliases, title and slugs too


def link_key(target: str) -> str:
    """The key of a target's last segment: what links and the files they could mean have in common."""
    return path_key(target.rpartition("/")[2])


def slug_key(text: str) -> str:
    """Lower case, runs of anything but letters and digits as one dash."""
    return _NOT_ALPHANUMERIC.sub("-", path_key(text)).strip("-")


# ---- steps --------------------------------------------------------------------------------------------


def _itself(asking: LinkQuery) -> Found | None:
    return None if asking.target else [((), asking.source)]


def _explicitly_relative(asking: LinkQuery) -> Found | None:
    if not asking.target.startswith(("./", "../")):
        return None
    joined = posixpath.normpath(posixpath.join(asking.source.folder, asking.target))
    return _at(joined, asking)


def _from_root(asking: LinkQuery) -> Found | None:
    return _at(asking.target.lstrip("/"), asking) if asking.target.startswith("/") else None


def _exact_path(asking: LinkQuery) -> Found | None:
    return _at(asking.target, asking) or None


def _path_suffix(asking: LinkQuery) -> Found | None:
    for ending in _spellings(asking.target) if asking.named else ():
        wanted = "/" + path_key(ending)
        found = [path for path in asking.named if path_key(path).endswith(wanted)]
        if len(found) == 1:
            return [((), found[0])]
        if found:
            here = path_key(posixpath.join(asking.source.folder, asking.target))
            return [
                ((path_key(path) not in (here, here + ".md"), len(path), not path.endswith("/" + ending)), path)
                for path in found
            ]
    return None


def _at(place: str, asking: LinkQuery) -> Found:
    """What is at this path, with or without `.md`."""
    if not asking.named:
        return []
    first, second = _spellings(place)
    return _spelled(first, asking) or _spelled(second, asking)


def _spelled(spelling: str, asking: LinkQuery) -> Found:
    """What has this path, case ignored; of twins the one spelled the same."""
    wanted = path_key(spelling)
    return [((path != spelling,), path) for path in asking.named if path_key(path) == wanted]


def _spellings(target: str) -> tuple[str, str]:
    """As written and with `.md`. Without an extension the note comes first: `LICENSE` means `LICENSE.md`."""
    as_note = target + ".md"
    return (target, as_note) if "." in target.rpartition("/")[2] else (as_note, target)


def _stem(asking: LinkQuery) -> Found | None:
    return [((not path.is_note, len(path)), path) for path in asking.named if path.stem == asking.target]


def _bare_stem(asking: LinkQuery) -> Found | None:
    """Exactly this name, of several the one Obsidian would choose; what has a folder or `.md` is a path."""
    if "/" in asking.target or asking.target[-3:].lower() == ".md":
        return None
    return [
        ((not path.is_note, path.folder != "", path.folder != asking.source.folder, len(path)), path)
        for path in asking.named
        if path.stem == asking.target
    ]


def _same_path(asking: LinkQuery) -> Found | None:
    wanted = with_md(asking.target)
    return [((), path) for path in asking.named if path == wanted] or None


def _by(names: Callable[[LinkQuery], Sequence[NotePath]]) -> Step:
    return lambda asking: [((len(path),), path) for path in names(asking)] or None


def _segment(asking: LinkQuery) -> Sequence[NotePath]:
    return [path for path in asking.named if path.is_note] if "/" not in asking.target else ()


def _slug(asking: LinkQuery) -> Found | None:
    slug = slug_key(without_md(asking.target))
    return [
        ((place,), path) for place, path in enumerate(asking.names.by_other_name("slug", slug) if slug else ())
    ] or None


def _beside(asking: LinkQuery) -> Found | None:
    """Relative to the source's folder; `..` stops at the workspace's root."""
    if asking.target.startswith("/"):
        return None
    root = _root(asking)
    inner = "/" + asking.source.folder[len(root) + 1 :]
    joined = posixpath.normpath(posixpath.join(inner, asking.target))
    return _document(posixpath.join(root, joined.lstrip("/")), asking)


def _below_own_root(asking: LinkQuery) -> Found | None:
    return _document(posixpath.join(_root(asking), asking.target.lstrip("/")), asking)


def _any_case_path(asking: LinkQuery) -> Found | None:
    return _document(asking.target, asking)


def _anywhere(asking: LinkQuery) -> Found | None:
    wanted, own = "/" + path_key(with_md(asking.target)), _root(asking)
    order = {root: place for place, root in enumerate(asking.roots)}
    return [
        ((root != own, order.get(root, len(order)), len(path)), path)
        for path in asking.named
        if path_key(path).endswith(wanted)
        for root in [path.partition("/")[0]]
    ] or None


def _document(place: str, asking: LinkQuery) -> Found | None:
    return _spelled(with_md(place), asking) or None


def _root(asking: LinkQuery) -> str:
    return asking.source.partition("/")[0]


# ---- policies -----------------------------------------------------------------------------------------

OBSIDIAN = LinkPolicy((_itself, _explicitly_relative, _from_root, _exact_path, _path_suffix), unique_name_decides=True)
STEM = LinkPolicy((_itself, _stem), depends_on_folder=False)
STEM_OR_PATH = LinkPolicy((_itself, _bare_stem, _explicitly_relative, _from_root, _exact_path, _path_suffix))
CAIRN = LinkPolicy(
    (
        _itself,
        _same_path,
        _any_case_path,
        _by(lambda asking: asking.names.by_other_name("alias", path_key(asking.target))),
        _by(lambda asking: asking.names.by_other_name("title", path_key(asking.target))),
        _by(_segment),
        _slug,
    ),
    other_names=True,
)


def lens_policy(roots: Sequence[str]) -> LinkPolicy:
    """Links across workspaces: every path begins with its workspace's name, and `roots` names them in order."""
    return LinkPolicy((_itself, _beside, _below_own_root, _any_case_path, _anywhere), tuple(roots))


# ---- asking -------------------------------------------------------------------------------------------


def resolve(target: str, source: NotePath, names: Names, policy: LinkPolicy = OBSIDIAN) -> NotePath | None:
    """The path a link in `source` means, or None where it is broken."""
    return resolve_link(target, source, names, policy).path


def resolve_unique_name(target: str, named: Sequence[NotePath], policy: LinkPolicy) -> Resolution | None:
    """What a target means wherever it stands, if one file alone bears its name; None where the steps must decide."""
    if policy.unique_name_decides and len(named) == 1 and "/" not in target:
        return Resolution(named[0], False)
    return None


def resolve_link(target: str, source: NotePath, names: Names, policy: LinkPolicy = OBSIDIAN) -> Resolution:
    """The path a link means: the best that the first step found which decides."""
    target = target.strip()
    named = names.by_name(link_key(target)) if target else ()
    if (meant := resolve_unique_name(target, named, policy)) is not None:
        return meant
    asking = LinkQuery(target, source, named, names, policy.roots)
    for step in policy.steps:
        found = step(asking)
        if found is not None:
            return _best(found)
    return Resolution(None, False)


def _best(found: Found) -> Resolution:
    if len(found) == 1:
        return Resolution(found[0][1], False)
    ordered = sorted(set(found), key=lambda entry: (*entry[0], entry[1]))
    return Resolution(ordered[0][1] if ordered else None, len(ordered) > 1 and ordered[0][0] == ordered[1][0])


# ---- names of a vault held in memory ------------------------------------------------------------------


class InMemoryNames:
    """The names of these paths, for small vaults; aliases, titles and slugs are known for `notes` alone."""

    def __init__(self, paths: Iterable[NotePath] = (), notes: Iterable[Note] = ()) -> None:
        self.known: defaultdict[tuple[str, str], list[NotePath]] = defaultdict(list)
        for path in paths:
            for key in name_keys(path):
                self.known["name", key].append(path)
        slugs: list[tuple[int, str, NotePath]] = []
        for note in notes:
            self.known["title", path_key(note.title)].append(note.path)
            for alias in note.aliases:
                self.known["alias", path_key(alias.strip())].append(note.path)
            slugs += [(place, slug, note.path) for place, slug in list_slugs(note)]
        for _, slug, path in sorted(slugs, key=lambda entry: (entry[0], len(entry[2]), entry[2])):
            if path not in self.known["slug", slug]:
                self.known["slug", slug].append(path)

    def by_name(self, key: str) -> Sequence[NotePath]:
        return self.known.get(("name", key), ())

    def by_other_name(self, kind: OtherName, key: str) -> Sequence[NotePath]:
        return self.known.get((kind, key), ())


def name_keys(path: NotePath, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The keys under which `bearing` must find this path; with its other names, of all links that could mean it."""
    name = path.name
    return tuple(dict.fromkeys([path_key(name), path_key(without_md(name)), *map(link_key, others)]))


def list_slugs(note: Note) -> list[tuple[int, str]]:
    """The slugs of a note with their precedence: 0 path, 1 alias, 2 title, 3 last segment."""
    own = [(0, without_md(note.path)), *((1, alias) for alias in note.aliases), (2, note.title), (3, note.path.stem)]
    return [(place, slug) for place, text in own if (slug := slug_key(text))]
