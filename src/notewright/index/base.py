"""The index protocol: a cache for fast queries over the notes, which can be deleted at any moment and is rebuilt.

The index stores what was written; which note a link means is decided by `notes/links/resolve.py` at query time. Every
implementation must give the same answers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from notewright.lazy_dataclass import NamedTuple, Protocol, dataclass, field
from notewright.notes.glob import compile_glob
from notewright.notes.links.names import Names, Namesakes
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
    """A glob that paths must match; Invalid if it cannot be compiled."""

    pattern: str
    below: str = ""  # the folder it is relative to
    basename: bool = False  # without a `/` it matches the last segment alone
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
    """Which paths an answer may hold: plain data, so that an index may evaluate it in its own way or remotely."""

    hide: tuple[str, ...] = ()  # globs; one that fits a folder hides all of it
    under: str = ""  # what every path begins with
    globs: tuple[PathGlob, ...] = ()  # all must match

    @property
    def test(self) -> PathTest | None:
        """A function that says whether a path may be in the answer; None if any path may."""
        return _test(self)

    def sees(self, path: str) -> bool:
        test = _test(self)
        return test is None or test(path)


EVERYTHING = Visibility()


@lru_cache(maxsize=256)
def _test(visible: Visibility) -> PathTest | None:
    """Compile the test. A pattern that matches a folder hides all of it, written `Private`, `Private/` or `Private/**`:
    a mistake hides too much, not too little."""
    if visible == EVERYTHING:
        return None
    names = [pattern.removeprefix("./").strip("/").removesuffix("/**") or "**" for pattern in visible.hide]
    hidden = [compile_glob(pattern) for name in dict.fromkeys(names) for pattern in (name, f"{name}/**")]
    wanted = [glob.test() for glob in visible.globs]
    under = visible.under

    def test(path: str) -> bool:  # called for every path there is, so with plain loops
        if not path.startswith(under):
            return False
        if path[:1] == "." or "/." in path:  # hidden files: an index holds none, and if it did they would be invisible
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
    """One file to be indexed. `note` is None for attachments and for notes that cannot be parsed."""

    path: NotePath
    stamp: str
    version: str  # "" for attachments, which are not read
    size: int
    modified_ns: int
    note: "Note | None"
    problem: str | None = None  # why it is indexed only in part: not UTF-8, unreadable, too large
    ready: Any = None  # the note as the index prepared it (`Index.prepare`)


class IndexedFile(NamedTuple):
    """One file as indexed. Plain values, for there may be a hundred thousand of them in one answer."""

    path: NotePath
    stamp: str
    version: str
    size: int
    modified_ns: int
    title: str
    problem: str | None = None


class LinkRow(NamedTuple):
    """One link as written, with its place."""

    source: NotePath
    kind: str
    target: str
    subpath: str
    line: int
    note: int  # the number of its note, valid within one `snapshot`
    start: int  # in the text of the note
    end: int


@dataclass(frozen=True, slots=True)
class Query(SearchTerms):
    """A search: any of `words`, split by notes.words, ranks; everything else is a condition."""

    question: str = ""  # the raw words, for the frame and the name bonus
    folder: str = ""
    since_ns: int | None = None
    limit: int = 10
    offset: int = 0
    visible: Visibility = EVERYTHING


class Occurrences(NamedTuple):
    """The occurrences of the words of a question in a note: for each its places in the body and its count in the title,
    and which of them are in its tags."""

    body: Mapping[int, Sequence[int]]
    title: Mapping[int, int]
    tags: Sequence[int] = ()
    whole_title: bool = False  # the title has no other words


@dataclass(slots=True)
class WordMatches:
    """The best notes for the numbered words of a question, either as written or by stems."""

    having: list[int]  # how many notes have each word
    scores: dict[int, float] = field(default_factory=dict)  # bm25, larger for better
    found: dict[int, Occurrences] = field(default_factory=dict)
    starts: dict[int, list[int]] = field(default_factory=dict)  # words before each section of a note, and in all


class NameMatch(NamedTuple):
    """A note with a name that consists of words of the question only."""

    note: int
    is_filename: bool  # else its title or an alias
    words: tuple[int, ...]


MAX_COUNTED = 1_000  # notes with the words of a search; more are not counted
FEW_WHOLE = 3  # at most so many notes with all of several words are raised: the reader may mean just these
_NONE: Mapping[int, Any] = MappingProxyType({})


class SearchEvidence(NamedTuple):
    """The evidence for ranking one search. Notes are numbers, valid within one `snapshot`."""

    total: int  # notes there are
    by_words: tuple[WordMatches, ...] = ()  # as written, and by stems where a word has other forms; () for no match
    best_mention: Mapping[int, float] = _NONE  # bm25 of the best sentence that links to a note
    mentioned: Mapping[int, Mapping[int, int]] = _NONE  # the count of each word in all of these sentences
    lengths: Mapping[int, int] = _NONE  # of notes, in words
    names: tuple[NameMatch, ...] = ()
    forms: tuple[str, ...] = ()  # of all words and phrases, in lower case without accents
    any_of: int = 0  # notes with any of the words, up to MAX_COUNTED
    all_of: int = 0  # the same with all of them
    whole: tuple[int, ...] = ()  # the notes with all of the words, where these are at most FEW_WHOLE
    narrowed: bool = False  # only the rarest words selected notes; others might bring more
    meets: frozenset[int] | None = None  # the notes that meet the conditions; None without conditions
    newest: tuple[int, ...] = ()  # those, newest first, for a query of conditions alone
    nearest: tuple[str, ...] = ()  # spellings and names, when nothing was found


class IndexedNote(NamedTuple):
    """A note as it was indexed."""

    path: NotePath
    title: str
    modified_ns: int
    headings: Sequence["Heading"]
    text: str


def add_to_parents(own: Mapping[str, int]) -> list[tuple[str, int]]:
    """Add the counts of folders to all folders above them; in order of names."""
    counts: dict[str, int] = {}
    for folder, count in own.items():
        while folder:
            counts[folder] = counts.get(folder, 0) + count
            folder = folder.rpartition("/")[0]
    return sorted(counts.items())


class Selection(NamedTuple):
    """Conditions, order and page of a listing; also for the plain searches of the dialects."""

    folder: str = ""
    recursive: bool = True
    folder_note: bool = False  # and the note of the folder's name beside it
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
    total: int | None  # None: not known, of a build or of an index that was lost and is being filled again
    building: bool
    stale: str | None = None  # why the answers may be old (the folder vanished, …)


class Needles(NamedTuple):
    """What a text must hold to possibly match: one member of every group, case ignored. No group: any text may."""

    groups: tuple[tuple[str, ...], ...] = ()


class Body(NamedTuple):
    """The text of a note. Plain values, for there may be a hundred thousand of them in one answer."""

    path: NotePath
    data: bytes  # UTF-8: a search over all notes runs on bytes, and few are ever decoded
    modified_ns: int
    size: int

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


class Generation(NamedTuple):
    """The identity of an index over time. Another name: it was created again, or replaced by a build or a copy."""

    name: str
    whole: bool  # it holds everything; else it was lost or discarded and is being filled again


class IndexEdition(NamedTuple):
    """The progress of an index: with one origin, two serials differ by about the number of files indexed between."""

    origin: str  # the name of the index it was first created as, on whichever machine
    serial: int


class Build(Protocol):
    """A new index that is filled beside the current one."""

    def file(self, filings: Iterable[Filing]) -> None: ...

    def finish(self) -> None:
        """Complete it after the last file: secondary indexes, full text."""

    def swap(self, again: Callable[[Iterable[str]], Iterable[Filing]]) -> None:
        """Make it the current index, for every process. First `again` is called for the paths that `record_changes`
        named meanwhile; those it returns no filing for are dropped. The caller holds the store's lock."""


# ---- the index, by what its parts promise; any thread may ask ------------------------------------------


class IndexWriting(Protocol):
    """Methods that write: one transaction per call."""

    def file(self, filings: Iterable[Filing], *, drop: Iterable[str] = ()) -> None:
        """Insert or replace these files, and delete the dropped ones."""

    def file_over(self, known: IndexedFile | None, filing: Filing) -> None:
        """Insert or replace a file, if `known` still is what the index has of it."""

    def prepare(self, filing: Filing) -> Filing:
        """Prepare the note ahead of `file`: everything that does not depend on stamp, version, size and time."""
        return filing

    def record_changes(self, paths: Iterable[str]) -> None:
        """Record paths that we changed: a running build of any process must read them again."""

    def rebuild(self, total: int) -> AbstractContextManager[Build]:
        """Build a new index; leaving without `swap` discards it."""

    def mark_whole(self, name: str) -> None:
        """Mark the index of that name as complete and equal to the store, if it still is the current one."""


class IndexMoments(Protocol):
    """Snapshots, and the state of the current index."""

    def snapshot(self, of: Generation | None = None) -> AbstractContextManager[None]:
        """Answer everything this thread asks inside from one snapshot, whatever is written meanwhile. `of`: of this
        index, for a caller that checks afterwards whether it still is the current one."""

    def generation(self) -> Generation:
        """The current index. If whole and the same before and after some questions, their answers are complete."""

    def progress(self) -> Progress: ...

    def close(self) -> None: ...


class IndexCopies(Protocol):
    """Copies of the index as one file, for other machines."""

    form: str  # of its files; a copy of another form cannot be used

    def edition(self) -> IndexEdition: ...

    def export_copy(self) -> "AbstractContextManager[tuple[Path, IndexEdition]]":
        """The index as it is now, in one file that is deleted on exit."""

    def install_copy(self, total: int) -> "AbstractContextManager[Path]":
        """A path for such a file of another machine, of about `total` notes: on exit it becomes the current index, not
        whole until everything was compared with the store. Unavailable where it is not of this form."""


class IndexedFiles(Protocol):
    """Queries for files and folders, notes or not."""

    def find_file(self, path: str) -> IndexedFile | None: ...

    def select(self, selection: Selection) -> tuple[list[IndexedFile], int]:
        """The requested page, and how many there are in all."""

    def with_problem(self, problem: str) -> list[IndexedFile]:
        """The files with exactly this problem, by path: asked after every answer, to say what it may miss."""

    def stamps(self) -> list[tuple[str, str]]:
        """(path, stamp) of every file, in no order."""

    def total(self, of: Countable) -> int:
        """The number of notes, files or bytes in all, hidden ones included; files and bytes need no counting, as quotas
        ask for them at every write."""

    def folders(
        self, below: str = "", visible: Visibility = EVERYTHING, *, deep: bool = True
    ) -> Sequence[tuple[str, int]]:
        """Every folder below one that holds files, or only those directly in it, in order, with how many notes are in
        it and below."""


class IndexedNames(Names, Protocol):
    """Queries for the names by which notes are linked."""

    def by_names(self, keys: Sequence[str]) -> dict[str, Namesakes]:
        """`by_name` for many keys at once; a key that no path has is left out."""

    def names_like(self, key: str, limit: int = 200, visible: Visibility = EVERYTHING) -> list[NotePath]:
        """Notes with names similar to this key, best first: for suggestions."""

    def other_keys(self, path: str) -> list[str]:
        """The keys of a note's aliases and title, by which it may also be linked."""

    def shared_aliases(self) -> list[tuple[str, list[NotePath]]]:
        """Aliases that several notes have."""


class IndexedLinks(Protocol):
    """Queries for links as written."""

    def links_from(self, paths: Sequence[str]) -> list[LinkRow]:
        """The links of these notes, by path and line."""

    def links_toward(self, keys: Sequence[str], *, slugs: bool = True) -> list[LinkRow]:
        """Links whose target's last segment has one of these keys, or whose slugs, of the segment or the whole, are
        among them."""

    def lines_of(self, links: Sequence[LinkRow]) -> "list[Excerpt]":
        """The line of each of these links, of a long one the part around the link: for the few that are shown."""


class IndexedContents(Protocol):
    """Queries for the contents of notes."""

    def tags(self, visible: Visibility = EVERYTHING) -> dict[str, int]:
        """Every tag, as most notes spell it, with its number of notes."""

    def tags_of(self, paths: Sequence[str]) -> dict[str, list[str]]: ...

    def property_of(self, key: str, paths: Sequence[str]) -> dict[str, Any]:
        """One property of many notes, of those that have it."""

    def text(self, path: str) -> str | None: ...

    def bodies(self, needles: Needles, folder: str = "", visible: Visibility = EVERYTHING) -> Iterator[list[Body]]:
        """Notes that may match, in batches of a few megabytes, in path order, narrowed by the words of the index."""


class IndexEvidence(Protocol):
    """Queries for a search (`engine/find/search.py`). Notes are numbers, valid within one `snapshot`."""

    def evidence(self, query: Query, depth: int, narrow: bool = True) -> SearchEvidence:
        """The evidence for a ranking, the best `depth` notes of each kind. `narrow`: only the rarest words select."""

    def neighbours(self, notes: Sequence[int]) -> list[tuple[int, int]]:
        """(source, target) of links of these notes to others."""

    def degrees(self, notes: Sequence[int], visible: Visibility = EVERYTHING) -> dict[int, int]:
        """The number of links from and to each of these notes that the reader may see."""

    def notes(self, numbers: Sequence[int]) -> dict[int, IndexedNote]: ...


class Index(
    IndexWriting, IndexMoments, IndexCopies, IndexedFiles, IndexedNames, IndexedLinks, IndexedContents, IndexEvidence,
    Protocol,
):  # fmt: skip
    """All that the engine needs of an index."""
