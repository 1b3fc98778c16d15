"""What can be found fast: a cache of the notes that can be deleted at any moment and comes back the same.

The index stores what was written; which note a link means is decided by `notes/links/resolve.py` when asked. Both the
SQLite and any later index answer these questions with the same set of answers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from notewright.lazy_dataclass import NamedTuple, Protocol, dataclass, field
from notewright.notes.glob import compile_glob
from notewright.notes.links.names import Names
from notewright.notes.path import NotePath
from notewright.notes.query import SearchTerms

if TYPE_CHECKING:
    from pathlib import Path

    from notewright.notes.excerpts import Excerpt
    from notewright.notes.model import Heading, Note

PathTest = Callable[[str], bool]
Countable = Literal["notes", "files", "bytes"]


@dataclass(frozen=True, slots=True)
class PathGlob:
    """A glob that paths must match; Invalid if it is none."""

    pattern: str
    below: str = ""  # the folder it is relative to
    basename: bool = False  # without a `/` it looks at the last segment alone
    or_path: bool = False  # a file of exactly this path counts too; without wildcards all that is below it

    def __post_init__(self) -> None:
        self.test()

    def test(self) -> PathTest:
        pattern, start = self.pattern, len(self.below) + 1 if self.below else 0
        if self.or_path and not re.search(r"[*?\[{]", pattern):
            path = pattern.rstrip("/")
            return lambda other: other == path or other.startswith(path + "/")
        matches = compile_glob(pattern, basename=self.basename)
        if self.or_path:
            return lambda other: matches(other) or other == pattern
        return (lambda other: matches(other[start:])) if start else matches


class Visibility(NamedTuple):
    """Which paths an answer may hold: a value, so that an index may read it in its own way or far away."""

    hide: tuple[str, ...] = ()  # globs; one that fits a folder hides all of it
    under: str = ""  # what every path begins with
    globs: tuple[PathGlob, ...] = ()  # all must match

    @property
    def test(self) -> PathTest | None:
        """May this path be in the answer? None: any path may."""
        return _test(self)

    def sees(self, path: str) -> bool:
        test = _test(self)
        return test is None or test(path)


EVERYTHING = Visibility()


@lru_cache(maxsize=256)
def _test(visible: Visibility) -> PathTest | None:
    """A pattern that fits a folder hides all of it, be it written `Private`, `Private/` or `Private/**`: a mistake
    hides too much, not too little."""
    if visible == EVERYTHING:
        return None
    names = [pattern.removeprefix("./").strip("/").removesuffix("/**") or "**" for pattern in visible.hide]
    hidden = [compile_glob(pattern) for name in dict.fromkeys(names) for pattern in (name, f"{name}/**")]
    wanted = [glob.test() for glob in visible.globs]
    under = visible.under

    def test(path: str) -> bool:  # of every path there is, so with plain loops
        if not path.startswith(under):
            return False
        if path[:1] == "." or "/." in path:  # an index holds none; should it, they are nobody's to see
            return False
        for hides in hidden:
            if hides(path):
                return False
        for matches in wanted:  # noqa: SIM110
            if not matches(path):
                return False
        return True

    return test


class Filing(NamedTuple):
    """One file to be put into the index. `note` is None for attachments and for what cannot be parsed."""

    path: NotePath
    stamp: str
    version: str  # "" for attachments, which are not read
    size: int
    modified_ns: int
    note: "Note | None"
    problem: str | None = None  # why it is served only in part: not UTF-8, unreadable, too large
    ready: Any = None  # what the index made of the note already (`Index.prepare`)


class IndexedFile(NamedTuple):
    """What the index knows of one file; plain, for there may be a hundred thousand of them in one answer."""

    path: NotePath
    stamp: str
    version: str
    size: int
    modified_ns: int
    title: str
    problem: str | None = None


class LinkRow(NamedTuple):
    """One link as written, with where it stands."""

    source: NotePath
    kind: str
    target: str
    subpath: str
    line: int
    note: int  # it stands in; holds within one `snapshot`
    start: int  # in the text of the note
    end: int


@dataclass(frozen=True, slots=True)
class Query(SearchTerms):
    """What is searched for: any of `words`, cut by notes.words, ranks; everything else is a condition."""

    question: str = ""  # the raw words, for the frame and the name bonus
    folder: str = ""
    since_ns: int | None = None
    limit: int = 10
    offset: int = 0
    visible: Visibility = EVERYTHING


class Occurrences(NamedTuple):
    """Where the words of a question stand in a note: for each its places in the body and how often in the title, and
    which of them are in its tags."""

    body: Mapping[int, Sequence[int]]
    title: Mapping[int, int]
    tags: Sequence[int] = ()
    whole_title: bool = False  # the title has no other words


@dataclass(slots=True)
class WordMatches:
    """The best notes by one way to read the words of a question, which are numbered."""

    having: list[int]  # how many notes have each word
    scores: dict[int, float] = field(default_factory=dict)  # bm25, larger for better
    found: dict[int, Occurrences] = field(default_factory=dict)
    starts: dict[int, list[int]] = field(default_factory=dict)  # words before each section of a note, and in all


class NameMatch(NamedTuple):
    """A note one of whose names holds nothing but words of the question."""

    note: int
    is_filename: bool  # else its title or an alias
    words: tuple[int, ...]


FEW_WHOLE = 3  # notes with all words of a question, of several: whoever asked may mean just these
_NONE: Mapping[int, Any] = MappingProxyType({})


class SearchEvidence(NamedTuple):
    """What an index knows for one search. Notes are numbers that hold within one `snapshot`."""

    total: int  # notes there are
    by_words: tuple[WordMatches, ...] = ()  # as written, and by stems where a word has other forms; () for no match
    best_mention: Mapping[int, float] = _NONE  # bm25 of the best sentence that links to a note
    said: Mapping[int, Mapping[int, int]] = _NONE  # how often which word, by all of them
    lengths: Mapping[int, int] = _NONE  # of notes, in words
    names: tuple[NameMatch, ...] = ()
    forms: tuple[str, ...] = ()  # of all words and phrases, in lower case without accents
    any_of: int = 0  # notes with any of the words, counted up to a bound
    all_of: int = 0
    whole: tuple[int, ...] = ()  # the notes with all of the words, where these are at most FEW_WHOLE
    narrowed: bool = False  # only the rarest words chose; others might bring more
    meets: frozenset[int] | None = None  # the notes that meet the conditions; None: there are none
    newest: tuple[int, ...] = ()  # those, where nothing but conditions was asked
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found


class IndexedNote(NamedTuple):
    """A note as it was indexed."""

    path: NotePath
    title: str
    modified_ns: int
    headings: Sequence["Heading"]
    text: str


def add_to_parents(own: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts of folders, each with those of all that is in it, in order."""
    counts: dict[str, int] = {}
    for folder, count in own.items():
        while folder:
            counts[folder] = counts.get(folder, 0) + count
            folder = folder.rpartition("/")[0]
    return sorted(counts.items())


class Selection(NamedTuple):
    """Which notes, in which order: for listings and the dialects' plain searches."""

    folder: str = ""
    recursive: bool = True
    folder_note: bool = False  # and the note of the folder's name that lies beside it
    notes_only: bool = True
    suffixes: tuple[str, ...] = ()  # names end in one of these, case ignored
    prefix_words: tuple[str, ...] = ()  # all must match a token by prefix, in title, tags, aliases, path or body
    tags: tuple[str, ...] = ()  # all, exact, case ignored
    tag_tree: str | None = None  # this tag or one below it, case ignored
    since_ns: int | None = None  # modified after (exclusive)
    among: frozenset[str] | None = None  # only these paths
    holding: tuple[str, ...] = ()  # texts that every path holds, in this case: they save looking at the others
    name_start: str = ""  # what every last segment begins with: the same
    sort: str = "path"  # path, name (a path without .md); modified, size: largest first, ties by path
    limit: int | None = None
    offset: int = 0
    visible: Visibility = EVERYTHING


class Progress(NamedTuple):
    done: int
    total: int | None
    building: bool
    stale: str | None = None  # why the answers may be old (the folder vanished, …)
    wanting: bool = False  # the index was lost or thrown away: everything must be filed again


class Needles(NamedTuple):
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


class Generation(NamedTuple):
    """One index among those that came one after the other. Another name: it was begun anew, or another swapped in."""

    name: str
    whole: bool  # it holds everything there is; else it was lost or thrown away, and is being filled again


class IndexEdition(NamedTuple):
    """How far an index is. Of one origin, the difference of two serials is about how many files were filed between."""

    origin: str  # the name of the index it began as, on whichever machine
    serial: int


class Build(Protocol):
    """A whole new index that is filled beside the one that answers."""

    def file(self, filings: Iterable[Filing]) -> None: ...

    def finish(self) -> None:
        """Make it ready to answer once everything is filed (secondary indexes, full text)."""

    def swap(self, again: Callable[[Iterable[str]], Iterable[Filing]]) -> None:
        """Put it in the old one's place, for every process. What `record_changes` named meanwhile is asked for again
        first; a path of these that `again` does not answer is gone. The caller holds the store's lock."""


# ---- the index, by what its parts promise; any thread may ask ------------------------------------------


class IndexWriting(Protocol):
    """Filing what was read from the store: one transaction a call."""

    def file(self, filings: Iterable[Filing], *, drop: Iterable[str] = ()) -> None:
        """Put these in place of what was known of them and forget the dropped."""

    def prepare(self, filing: Filing) -> Filing:
        """The same with what can be made of its note ahead, whatever its stamp, version, size and time will be."""
        return filing

    def record_changes(self, paths: Iterable[str]) -> None:
        """These were changed by us: a build under way in any process must read them again."""

    def rebuild(self, total: int) -> AbstractContextManager[Build]:
        """Fill a new index; leaving without `swap` throws it away."""

    def mark_whole(self, name: str) -> None:
        """The index of that name was filled and equals the store: it is whole, if it still is the one that answers."""


class IndexMoments(Protocol):
    """Which index answers, how far it is, and questions answered from one moment."""

    def snapshot(self, of: Generation | None = None) -> AbstractContextManager[None]:
        """What this thread asks inside is answered from one moment, whatever is filed meanwhile. `of`: by this index,
        for somebody who looks afterwards whether it still is the one that answers."""

    def generation(self) -> Generation:
        """Which index answers now. The same and whole before and after some questions: so were their answers."""

    def progress(self) -> Progress: ...

    def close(self) -> None: ...


class IndexCopies(Protocol):
    """The whole index as one file, for other machines."""

    form: str  # of its files: a copy of another form is of no use

    def edition(self) -> IndexEdition: ...

    def export_copy(self) -> "AbstractContextManager[tuple[Path, IndexEdition]]":
        """The index as it is now, in one file that is gone afterwards."""

    def install_copy(self, total: int) -> "AbstractContextManager[Path]":
        """Where to put such a file of another machine, about `total` notes: on leaving it takes the place of the index
        that answers, and is not whole before everything was looked at. Unavailable where it is not of this form."""


class IndexedFiles(Protocol):
    """Files and folders, notes or not."""

    def find_file(self, path: str) -> IndexedFile | None: ...

    def select(self, selection: Selection) -> tuple[list[IndexedFile], int]:
        """The page asked for, and how many there are in all."""

    def with_problem(self, problem: str) -> list[IndexedFile]:
        """Those filed with exactly this problem, by path: asked after every answer, whether it may miss any."""

    def stamps(self) -> list[tuple[str, str]]:
        """(path, stamp) of every file, in no order."""

    def total(self, of: Countable) -> int:
        """How many notes, files or bytes there are in all, hidden ones included; files and bytes are known without
        counting, for quotas."""

    def folders(
        self, below: str = "", visible: Visibility = EVERYTHING, *, deep: bool = True
    ) -> Sequence[tuple[str, int]]:
        """Every folder below one that holds files, or only those directly in it, in order, with how many notes are in
        it and below."""


class IndexedNames(Names, Protocol):
    """What notes are called and may be linked by."""

    def by_names(self, keys: Sequence[str]) -> dict[str, list[NotePath]]:
        """`by_name` for many keys at once; a key that no path has is left out."""

    def names_like(self, key: str, limit: int = 200, visible: Visibility = EVERYTHING) -> list[NotePath]:
        """Notes whose names share letters with this key, best first: for suggestions."""

    def other_keys(self, path: str) -> list[str]:
        """The keys of a note's aliases and title: what else it may be linked by."""

    def shared_aliases(self) -> list[tuple[str, list[NotePath]]]:
        """Aliases that several notes claim."""


class IndexedLinks(Protocol):
    """Links as written."""

    def links_from(self, paths: Sequence[str]) -> list[LinkRow]:
        """The links of these notes, by path and line."""

    def links_toward(self, keys: Sequence[str], *, slugs: bool = True) -> list[LinkRow]:
        """Links whose target's last segment has one of these keys, or whose slugs, of the segment or the whole, are
        among them."""

    def lines_of(self, links: Sequence[LinkRow]) -> "list[Excerpt]":
        """The line each of these stands in, of a long one the part around the link: for the few that are shown."""


class IndexedContents(Protocol):
    """What is in notes, as indexed."""

    def tags(self, visible: Visibility = EVERYTHING) -> dict[str, int]:
        """Every tag, as most notes spell it, with its number of notes."""

    def tags_of(self, paths: Sequence[str]) -> dict[str, list[str]]: ...

    def property_of(self, key: str, paths: Sequence[str]) -> dict[str, Any]:
        """One property of many notes, of those that have it."""

    def text(self, path: str) -> str | None: ...

    def bodies(self, needles: Needles, folder: str = "", visible: Visibility = EVERYTHING) -> Iterator[list[Body]]:
        """Notes that may match, in batches of a few megabytes, in path order, narrowed by the words of the index."""


class IndexEvidence(Protocol):
    """What a search is made of (`engine/find/search.py`). Notes are numbers that hold within a `snapshot`."""

    def evidence(self, query: Query, depth: int, narrow: bool = True) -> SearchEvidence:
        """What there is for a ranking, the best `depth` notes of each kind. `narrow`: the rarest words choose."""

    def neighbours(self, notes: Sequence[int]) -> list[tuple[int, int]]:
        """(source, target) of links of these notes to others."""

    def degrees(self, notes: Sequence[int], visible: Visibility = EVERYTHING) -> dict[int, int]:
        """How many links lead from and to each of these notes that may be seen."""

    def notes(self, numbers: Sequence[int]) -> dict[int, IndexedNote]: ...


class Index(
    IndexWriting, IndexMoments, IndexCopies, IndexedFiles, IndexedNames, IndexedLinks, IndexedContents, IndexEvidence,
    Protocol,
):  # fmt: skip
    """Everything the engine asks of an index."""
