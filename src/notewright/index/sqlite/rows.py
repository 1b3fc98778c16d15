"""Converts a filing into plain rows, and writes the rows of a file into the tables or removes them.

Rows are made where notes are parsed and written where the database is, which in a build are two processes: so they
are tuples of plain values that are cheap to send, and are prepared by the process that has less to do.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from notewright.index.sqlite.schema import ALIASED, MARK, NAME, SLUGGED, TITLED, Connection, clamp_ns
from notewright.index.sqlite.vocabulary import find_stems
from notewright.notes.links.resolve import list_slugs, slug_key
from notewright.notes.mentions import find_mentions
from notewright.notes.model import Note, tag_key
from notewright.notes.path import path_key, without_md
from notewright.notes.words import index_words

if TYPE_CHECKING:  # the process that writes the rows has no filings
    from notewright.index.base import Filing

_WORD_MARKS = bytes(ord("a" if chr(code).isalnum() else " ") for code in range(128)) + bytes(128)  # for ASCII text
ROWS_PER_BATCH = 32  # rows prepared together: each is in memory several times over until it is written
MAX_REMEMBERED_WORDS = 20_000  # words of the vocabulary that a connection caches
PIECE_CHARS = 16_384  # of text that are tokenized together
_PIECE = re.compile(rf"(?s:.{{1,{PIECE_CHARS}}}+)\S*+")


class Row(NamedTuple):
    """Everything the index stores for one file."""

    file: tuple[object, ...]  # the columns of `files` after id
    text: tuple[str, str, str] | None  # headings, properties, text; None for a file that was not parsed
    sections: list[str]  # the body, split before each heading: the words of column `body`
    names: list[tuple[str, str]]  # (kind, key)
    tags: list[tuple[str, str]]  # (key, name)
    links: list[tuple[Any, ...]]  # columns of `links` after source, no keys; `sentence` counts from the first link
    words: tuple[str, ...]  # the other columns of `words`
    sentences: list[tuple[int, str]]  # (number of the first link of the sentence, the sentence)
    is_prepared: bool = False
    words_met: frozenset[str] | None = None  # for the vocabulary; None: not cut yet


def to_row(filing: "Filing") -> Row:
    """Convert a filing to plain values."""
    path, note = filing.path, filing.note
    title = note.title if note else path.stem
    file = (
        str(path), path.folder, filing.stamp, filing.version, filing.size, clamp_ns(filing.modified_ns),
        int(path.is_note), title, filing.problem,
    )  # fmt: skip
    if isinstance(filing.ready, Row):
        return filing.ready._replace(file=file)
    names = [(NAME, path_key(path.name))]
    if note is None:
        return Row(file, None, [], names, [], [], (), [])
    names += _list_other_names(note)
    links, sentences = _list_links(note)
    return Row(file, _to_texts(note), _cut_sections(note), names, _list_tags(note), links, _list_words(note), sentences)


def _list_other_names(note: Note) -> list[tuple[str, str]]:
    names = {(ALIASED, path_key(alias.strip())): None for alias in note.aliases}
    names[TITLED, path_key(note.title)] = None
    taken: set[str] = set()
    for place, slug in list_slugs(note):
        if slug not in taken:
            taken.add(slug)
            names[f"{SLUGGED}{place}", slug] = None
    return list(names)


def _to_texts(note: Note) -> tuple[str, str, str]:
    headings = [[h.level, h.text, h.line, h.start, h.end, int(h.top)] for h in note.headings]
    return (_to_json(headings) if headings else "[]", _to_json(note.frontmatter.properties), note.text)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str) if value else "{}"


def _list_tags(note: Note) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for tag in note.tags:
        found.setdefault(tag_key(tag.name), tag.name)
    return list(found.items())


def prepare_row(row: Row) -> Row:
    """Normalize the words of a row for the full-text index; a prepared row stays as it is."""
    if row.is_prepared:
        return row
    return row._replace(
        sections=list(map(index_words, row.sections)),
        words=tuple(map(index_words, row.words)),
        sentences=[(number, index_words(sentence)) for number, sentence in row.sentences],
        is_prepared=True,
    )


def _list_links(note: Note) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    if not note.links:
        return [], []
    sentences = {mention.link.start: mention.sentence for mention in find_mentions(note)}
    rows: list[tuple[Any, ...]] = []
    numbered: list[tuple[int, str]] = []
    before: str | None = None
    for number, link in enumerate(note.links):
        sentence = sentences.get(link.start) if link.key is None else None
        if sentence is not None and sentence is not before:
            numbered.append((number, sentence))
        before = sentence
        place = numbered[-1][0] if sentence is not None else None
        rows.append((link.kind, link.target, link.subpath, link.line, link.start, link.end, place))
    return rows, numbered


@lru_cache(8_192)
def _make_link_keys(target: str) -> tuple[str, str, str | None]:
    """The keys that find a link: key and slug of its last segment, and the slug of the whole if it has several."""
    target = without_md(target)
    last = target.rpartition("/")[2]
    return path_key(last), slug_key(last), slug_key(target) if len(last) < len(target) else None


def _list_words(note: Note) -> tuple[str, ...]:
    properties = note.frontmatter.properties
    title = properties.get("title")
    aliases = [*note.aliases, title] if isinstance(title, str) else note.aliases
    heads = "\n".join(heading.text for heading in note.headings)
    tags = "\n".join(name for _, name in _list_tags(note))
    place, front = f"{MARK}\n{note.path.folder}", note.text[: note.frontmatter.end]
    return note.path.stem, "\n".join(aliases), heads, place, front, tags


def _cut_sections(note: Note) -> list[str]:
    """Split the body: the part above the first heading, then one for each; `list_section_starts` relies on this."""
    pieces, at = [], note.frontmatter.end
    for heading in note.headings:
        if heading.top and heading.start >= at:
            pieces.append(note.text[at : heading.start])
            at = heading.start
    pieces.append(note.text[at:])
    return pieces


# ---- into the tables and out of them ------------------------------------------------------------------

_INSERT_FILE = "insert into files values(?,?,?,?,?,?,?,?,?,?)"
_UPDATE_FILE = "update files set stamp=?, version=?, size=?, modified=?, title=?, problem=? where id=?"
_STORED = """
select id, version, problem, exists(select 1 from texts t where t.id = f.id),
  exists(select 1 from links where source = f.id),
  (select group_concat(kind || length(key) || ':' || key, '') from names where file = f.id),
  (select group_concat(length(key) || ':' || key || name, ' ') from tags where file = f.id)
from files f where path=?"""
_TEXT = "replace into texts values(?,?,?,?,?)"
_NAME = "insert into names values(?,?,?)"
_TAG = "insert into tags values(?,?,?)"
_LINK = "insert into links values(?,?,?,?,?,?,?,?,?,?,?,?)"
_WORDS = "replace into words(rowid, title, alias, head, place, front, tag, body) values(?,?,?,?,?,?,?,?)"
_SENTENCE = "insert into sentences(rowid, sentence) values(?,?)"
_INSERT_WORD = "insert into vocabulary(word, stem) values(?1, nullif(?2, ?1))"


def insert_files(to: Connection, rows: Iterable[tuple[int, Row]]) -> None:
    """Insert the rows of `files`, each with its number."""
    to.db.executemany(_INSERT_FILE, ((file, *row.file) for file, row in rows))


def insert(to: Connection, rows: Iterable[tuple[int, Row]], first_link: int) -> int:
    """Insert prepared rows whose `files` rows exist, each with its number, ascending; return the next free number of a
    link. Rows of a changed file that `_remove` left are replaced."""
    many = to.db.executemany
    texts, names, tags, words, sentences = [], [], [], [], []
    linking: list[tuple[int, int, Row]] = []
    for file, row in rows:
        names += [(file, *name) for name in row.names]
        if row.text is None:
            continue
        headings, properties, text = row.text
        texts.append((file, headings, list_section_starts(to, row.sections), properties, text))
        words.append((file, *row.words, "\n".join(row.sections)))
        tags += [(file, *tag) for tag in row.tags]
        sentences += [(first_link + number, sentence) for number, sentence in row.sentences]
        if row.links:
            linking.append((first_link, file, row))
            first_link += len(row.links)
    for sql, found in ((_TEXT, texts), (_NAME, names), (_TAG, tags), (_WORDS, words), (_SENTENCE, sentences)):
        if found:
            many(sql, found)
    if linking:
        many(_LINK, (link for first, file, row in linking for link in _link_rows(first, file, row)))
    return first_link


def _link_rows(first: int, file: int, row: Row) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `links`, made one by one while they are written: a note may have a hundred thousand."""
    for number, link in enumerate(row.links):
        place = None if link[-1] is None else first + link[-1]
        yield (first + number, file, *link[:-1], *_make_link_keys(link[1]), place)


def list_section_starts(to: Connection, sections: list[str]) -> str:
    """The number of words before each section, and in all: FTS5 gives the place of a word as its number."""
    starts = [0]
    for piece in sections:
        starts.append(starts[-1] + sum(_count_words(to, part) for part in _cut_pieces(piece)))
    return ",".join(map(str, starts))


def _count_words(to: Connection, text: str) -> int:
    if not text.isascii():
        return len(to.tokenize(text))
    marked = text.encode().translate(_WORD_MARKS)
    return marked.count(b" a") + marked.startswith(b"a")


def _cut_pieces(text: str) -> Iterable[str]:
    """Split a long text between words, so that not all of them are in memory at once."""
    return (text,) if len(text) <= PIECE_CHARS else (found[0] for found in _PIECE.finditer(text))


def _remove(to: Connection, dropped: Iterable[int], linking: Iterable[int]) -> None:
    """Remove files from every table but `files` and `words`, and those in `linking` from the links; in ascending order:
    FTS5 flushes what it holds in memory, and may then merge whole segments, whenever a smaller number follows a larger
    one or a condition looks into its table."""
    numbers = [(file,) for file in sorted({*dropped, *linking})]
    if not numbers:
        return
    many = to.db.executemany
    select = "select sentence from links where source=?"
    sentences = [row for (file,) in numbers for row in to.rows(select, (file,)) if row[0]]
    many("delete from sentences where rowid=?", sorted(set(sentences)))
    many("delete from links where source=?", numbers)
    for table, column in (("tags", "file"), ("names", "file"), ("texts", "id")):
        many(f"delete from {table} where {column}=?", [(file,) for file in dropped])


def _remove_changed_names(to: Connection, file: int, row: Row, names: str | None, tags: str | None) -> Row:
    """Delete the names and tags of a changed file if they changed; return the row without those that stay. `names` and
    `tags` are as `_STORED` writes them: most edits change neither, and each is in three places."""
    if row.text is None:
        to.rows("delete from texts where id=?", (file,))
    if names == "".join([f"{kind}{len(key)}:{key}" for kind, key in row.names]):
        row = row._replace(names=[])
    else:
        to.rows("delete from names where file=?", (file,))
    if (tags or "") == " ".join([f"{len(key)}:{key}{name}" for key, name in row.tags]):
        return row._replace(tags=[]) if tags else row
    to.rows("delete from tags where file=?", (file,))
    return row


def upsert(to: Connection, rows: Iterable[Row], drop: Iterable[str] = ()) -> None:
    """Insert or replace files, vocabulary included, and delete those of `drop`.

    The order lets FTS5 flush only once: `files` first, as its triggers make a savepoint of each statement, at which
    FTS5 would flush what it holds in memory; and changed words are replaced in ascending order of row numbers.
    """
    latest = {str(row.file[0]): row for row in rows}
    dropped = set()
    for path in drop:
        latest.pop(path, None)
        dropped.add(to.number("select id from files where path=?", (path,)))
    changed: dict[int, Row] = {}
    linking: list[int] = []
    new: list[Row] = []
    for path, row in latest.items():
        known = to.rows(_STORED, (path,)).fetchone()
        if known is None:
            new.append(row)
            continue
        file, version, problem, is_parsed, links, names, tags = known
        # Only the stamp changed: the version is the same, and both were parsed or neither.
        if (version, problem, bool(is_parsed)) == (row.file[3], row.file[8], row.text is not None) and (
            is_parsed or not version
        ):
            stamp, _, size, modified = row.file[2:6]
            to.rows("update files set stamp=?, size=?, modified=? where id=?", (stamp, size, modified, file))
            continue
        changed[file] = _remove_changed_names(to, file, row, names, tags)
        linking += [file] if links else []
    dropped -= {0}
    many = to.db.executemany
    if dropped:
        many("delete from files where id=?", [(file,) for file in dropped])
    written = sorted(changed.items())
    many(_UPDATE_FILE, [(*row.file[2:6], *row.file[7:], file) for file, row in written])
    for row in new:
        to.db.execute(_INSERT_FILE, (None, *row.file))
        written.append((to.db.last_insert_rowid(), row))
    _remove(to, dropped, linking)
    without_words = {*dropped, *changed} - {file for file, row in written if row.text is not None}
    many("delete from words where rowid=?", [(file,) for file in sorted(without_words)])
    _insert_with_words(to, written)


def _insert_with_words(to: Connection, numbered: Sequence[tuple[int, Row]]) -> None:
    link, words_met = 0, set[str]()
    if any(row.links for _, row in numbered):
        link = to.number("select max(id) from links") + 1
    for start in range(0, len(numbered), ROWS_PER_BATCH):
        batch = [(file, prepare_row(row)) for file, row in numbered[start : start + ROWS_PER_BATCH]]
        link = insert(to, batch, link)
        for _, row in batch:
            words_met |= cut_words(to, row) if row.words_met is None else row.words_met
    add_words(to, words_met)


def cut_words(to: Connection, row: Row) -> frozenset[str]:
    """The words of a prepared row, each once."""
    text = "\n".join((*row.words, *row.sections, *(sentence for _, sentence in row.sentences)))
    return frozenset().union(*map(to.tokenize, _cut_pieces(text)))


def add_words(to: Connection, words_met: Iterable[str]) -> None:
    """Add new words to the vocabulary, with their stems. Words are never removed, as they do no harm, so a writing
    connection may cache which are there."""
    unsure = set(words_met) - to.known_words
    if not unsure:
        return
    unknown = "select value from json_each(?) where not exists (select 1 from vocabulary where word = value)"
    fresh = sorted(word for (word,) in to.rows(unknown, (json.dumps(list(unsure)),)))
    if len(to.known_words) + len(unsure) > MAX_REMEMBERED_WORDS:
        to.known_words.clear()
    to.known_words.update(list(unsure)[:MAX_REMEMBERED_WORDS])
    to.db.executemany(_INSERT_WORD, zip(fresh, find_stems(to, fresh), strict=True))


def add_all_words(to: Connection) -> None:
    """Add the words of all notes to the empty vocabulary, in one go."""
    words = [word for (word,) in to.rows("select term from terms")]
    to.db.executemany(_INSERT_WORD, zip(words, find_stems(to, words), strict=True))
