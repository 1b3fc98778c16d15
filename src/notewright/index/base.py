"""What can be found fast: a cache of the notes that can be deleted at any moment and comes back the same.

The index stores what was written; which note a link means is decided by `notes/links/resolve.py` when asked. Both the
SQLite and any later index answer these questions with the same set of answers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from notewright.notes.excerpts import Excerpt
from notewright.notes.model import Heading, Note
from notewright.notes.path import NotePath

Visible = Callable[[str], bool]  # may the reader see this path?


def everything(path: str) -> bool:
    """The reader who may see all."""
    return True


@dataclass(frozen=True, slots=True)
class Filing:
    """One file to be put into the index. `note` is None for attachments and for what cannot be parsed."""

    path: NotePath
    stamp: str
    version: str  # "" for attachments, which are not read
    size: int
    modified_ns: int
    note: Note | None
    problem: str | None = None  # why it is served only in part: not UTF-8, unreadable, too large


@dataclass(frozen=True, slots=True)
class Filed:
    """What the index knows of one file."""

    path: NotePath
    stamp: str
    version: str
    size: int
    modified_ns: int
    title: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link as written, with where it stands."""

    source: NotePath
    kind: str
    target: str
    subpath: str
    display: str | None
    line: int
    context: Excerpt  # the line it stands in, of a long one the part around the link
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for: any of `words` ranks; everything else is a condition."""

    words: tuple[str, ...] = ()  # as the person wrote them, cut by notes.words
    question: str = ""  # the raw words, for the frame and the name bonus
    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # all, children included
    without_tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # substring of the path, case ignored
    without_paths: tuple[str, ...] = ()
    properties: tuple[tuple[str, str | None], ...] = ()
    without_properties: tuple[tuple[str, str | None], ...] = ()
    folder: str = ""
    since_ns: int | None = None
    limit: int = 10
    offset: int = 0
    visible: Visible = everything


@dataclass(frozen=True, slots=True)
class Hit:
    path: NotePath
    title: str
    score: float
    modified_ns: int
    heading: str | None  # the best section's; None above the first heading
    line: int  # first line of that section
    snippet: str  # the best lines of that section, whitespace folded
    marks: tuple[tuple[int, int], ...] = ()  # where in the snippet the words are


@dataclass(frozen=True, slots=True)
class Hits:
    items: tuple[Hit, ...]
    total: int  # notes that hold any of the words and meet the conditions (counted up to a bound)
    with_all: int  # notes that hold them all
    cut: bool
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found


@dataclass(frozen=True, slots=True)
class Selection:
    """Which notes, in which order: for listings and the dialects' plain searches."""

    folder: str = ""
    recursive: bool = True
    notes_only: bool = True
    prefix_words: tuple[str, ...] = ()  # all must match a token by prefix, in title, tags, aliases, path or body
    tags: tuple[str, ...] = ()  # all, exact, case ignored
    since_ns: int | None = None  # modified after (exclusive)
    among: frozenset[str] | None = None  # only these paths
    holding: tuple[str, ...] = ()  # texts that every path holds, in this case: they save looking at the others
    sort: str = "path"  # path, name (a path without .md); modified, created, size: largest first, ties by path
    limit: int | None = None
    offset: int = 0
    visible: Visible = everything


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int | None
    building: bool
    stale: str | None = None  # why the answers may be old (the folder vanished, …)
    wanting: bool = False  # the index was lost or thrown away: everything must be filed again


@dataclass(frozen=True, slots=True)
class Needles:
    """What a text must hold to be worth a look: of every group one member, case ignored. No group: anything."""

    groups: tuple[tuple[str, ...], ...] = ()


class Body(NamedTuple):
    """A note's text; plain, for there may be a hundred thousand of them in one answer."""

    path: NotePath
    data: bytes  # UTF-8: who looks through all notes looks at bytes, and few are ever decoded
    modified_ns: int
    size: int

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything stored about one note, for comparing an index with one built from nothing."""

    rows: Mapping[str, Sequence[Any]] = field(default_factory=dict)


class Generation(NamedTuple):
    """One index among those that came one after the other. Another name: it was begun anew, or another swapped in."""

    name: str
    whole: bool  # it holds everything there is; else it was lost or thrown away, and is being filled again


class Build(Protocol):
    """A whole new index being filled beside the one that answers."""

    def file(self, filings: Iterable[Filing]) -> None: ...

    def finish(self) -> None:
        """Everything is filed: make it ready to answer (secondary indexes, full text)."""
        ...

    def swap(self, again: Callable[[Iterable[str]], Iterable[Filing]]) -> None:
        """Put it in the old one's place, for every process. What was `touched` meanwhile is asked for again first; a
        touched path that `again` does not answer is gone. The caller holds the store's lock."""
        ...


class Index(Protocol):
    """Questions the engine asks. Any thread may ask; `file` and `drop` are for whoever read the store."""

    def file(self, filings: Iterable[Filing], *, drop: Iterable[str] = ()) -> None:
        """Put these in place of what was known of them and forget the dropped: one transaction."""
        ...

    def touched(self, paths: Iterable[str]) -> None:
        """These were changed by us: a build under way in any process must read them again."""
        ...

    def rebuilding(self, total: int) -> AbstractContextManager[Build]:
        """Fill a new index; leaving without `swap` throws it away."""
        ...

    def steady(self) -> AbstractContextManager[None]:
        """What this thread asks inside is answered from one moment, whatever is filed meanwhile."""
        ...

    def generation(self) -> Generation:
        """Which index answers now. The same and whole before and after some questions: so were their answers."""
        ...

    def settled(self, name: str) -> None:
        """The index of that name was filled and equals the store: it is whole, if it still is the one that answers."""
        ...

    def stamps(self) -> Iterator[tuple[str, str]]:
        """(path, stamp) of every file, in code point order of the path."""
        ...

    def filed(self, path: str) -> Filed | None: ...

    def select(self, selection: Selection) -> tuple[list[Filed], int]:
        """The page asked for, and how many there are in all."""
        ...

    def bearing(self, key: str) -> Sequence[NotePath]:
        """Paths whose last segment, with or without `.md`, has this key (`Names`)."""
        ...

    def bearing_each(self, keys: Iterable[str]) -> dict[str, list[NotePath]]:
        """`bearing` for many keys at once; what nothing bears is left out."""
        ...

    def aliased(self, key: str) -> Sequence[NotePath]: ...

    def titled(self, key: str) -> Sequence[NotePath]: ...

    def slugged(self, slug: str) -> Sequence[NotePath]: ...

    def names_like(self, key: str, *, limit: int = 200, visible: Visible = everything) -> list[NotePath]:
        """Notes whose names share letters with this key, best first: for suggestions."""
        ...

    def other_names(self, path: str) -> list[str]:
        """The title and aliases of a note: what else it may be linked by."""
        ...

    def folders(self, *, below: str = "", visible: Visible = everything) -> list[tuple[str, int]]:
        """Every folder below one that holds files, with how many notes are in it and below."""
        ...

    def links_from(self, path: str) -> list[LinkRow]: ...

    def all_links(self) -> Iterator[LinkRow]:
        """Every link of every note, by source and line."""
        ...

    def links_toward(self, keys: Iterable[str]) -> list[LinkRow]:
        """Links whose target's last segment (or whole slug) has one of these keys."""
        ...

    def headings(self, path: str) -> list[Heading]: ...

    def tags(self, *, visible: Visible = everything) -> dict[str, int]:
        """Every tag, as most notes spell it, with its number of notes."""
        ...

    def tagged(self, key: str) -> list[NotePath]:
        """Notes with this tag or one below it, case ignored (`tag_key`)."""
        ...

    def tags_of(self, paths: Iterable[str]) -> dict[str, list[str]]: ...

    def properties(self, path: str) -> Mapping[str, Any]: ...

    def property_of(self, key: str, paths: Iterable[str]) -> dict[str, Any]:
        """One property of many notes, of those that have it."""
        ...

    def search(self, query: Query) -> Hits: ...

    def bodies(self, needles: Needles, *, folder: str = "", visible: Visible = everything) -> Iterator[list[Body]]:
        """Notes that may match, in batches of a few megabytes, in path order, narrowed by the words of the index."""
        ...

    def text(self, path: str) -> str | None:
        """The text as indexed."""
        ...

    def count(self) -> tuple[int, int]:
        """(notes, other files)."""
        ...

    def usage(self) -> tuple[int, int]:
        """(files, bytes) in all, hidden ones included: for quotas."""
        ...

    def ending(self, *suffixes: str) -> list[NotePath]:
        """Files whose names end so (`.canvas`), case ignored."""
        ...

    def with_problem(self, problem: str) -> list[NotePath]:
        """Files that were filed with exactly this problem."""
        ...

    def alias_twins(self) -> list[tuple[str, list[NotePath]]]:
        """Aliases that several notes claim."""
        ...

    def progress(self) -> Progress: ...

    def close(self) -> None: ...
