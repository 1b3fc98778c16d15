"""What is stored of one file: from a filing to plain rows, and the rows into the tables and out of them.

Rows are made where notes are parsed and written where the database is, which in a build are two processes: so they
are tuples of plain values that travel cheaply, and prepared by the one that has less to do.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from notewright.index.sqlite.schema import ALIASED, MARK, NAME, SLUGGED, TITLED, Connection, within_ns
from notewright.index.sqlite.vocabulary import find_stems
from notewright.notes.links.resolve import list_slugs, slug_key
from notewright.notes.mentions import find_mentions
from notewright.notes.model import Note, tag_key
from notewright.notes.path import path_key, without_md
from notewright.notes.words import index_words

if TYPE_CHECKING:  # who writes the rows has none
    from notewright.index.base import Filing

_MARKED = bytes(ord("a" if chr(code).isalnum() else " ") for code in range(128)) + bytes(128)  # words in ASCII
PREPARED = 32  # rows whose words are cut at a time: each is there several times over until it is written
LEARNED = 20_000  # words that a connection remembers to be in the vocabulary
PIECE = 16_384  # characters whose words are cut at a time
_PIECE = re.compile(rf"(?s:.{{1,{PIECE}}}+)\S*+")


class Row(NamedTuple):
    """Everything stored of one file."""

    file: tuple[object, ...]  # the columns of `files` after id
    text: tuple[str, str, str] | None  # headings, properties, text; None for what was not parsed
    sections: list[str]  # the body, cut before each heading: the words of column `body`
    names: list[tuple[str, str]]  # (kind, key)
    tags: list[tuple[str, str]]  # (key, name)
    links: list[tuple[Any, ...]]  # columns of `links` after source, no keys; `said` counts from the first link, or None
    words: tuple[str, ...]  # the other columns of `words`
    said: list[tuple[int, str]]  # (number of the first link of the sentence, the sentence)
    is_prepared: bool = False


def to_row(filing: "Filing") -> Row:
    """The rows of one file, made of plain values only."""
    path, note = filing.path, filing.note
    title = note.title if note else path.stem
    file = (
        str(path), path.folder, filing.stamp, filing.version, filing.size, within_ns(filing.modified_ns),
        int(path.is_note), title, filing.problem,
    )  # fmt: skip
    if isinstance(filing.ready, Row):
        return filing.ready._replace(file=file)
    names = [(NAME, path_key(path.name))]
    if note is None:
        return Row(file, None, [], names, [], [], (), [])
    names += _other_names(note)
    links, said = _links(note)
    return Row(file, _text(note), _sections(note), names, _tags(note), links, _words(note), said)


def _other_names(note: Note) -> list[tuple[str, str]]:
    names = {(ALIASED, path_key(alias.strip())): None for alias in note.aliases}
    names[TITLED, path_key(note.title)] = None
    taken: set[str] = set()
    for place, slug in list_slugs(note):
        if slug not in taken:
            taken.add(slug)
            names[f"{SLUGGED}{place}", slug] = None
    return list(names)


def _text(note: Note) -> tuple[str, str, str]:
    headings = [[h.level, h.text, h.line, h.start, h.end, int(h.top)] for h in note.headings]
    return (_json(headings) if headings else "[]", _json(note.frontmatter.properties), note.text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str) if value else "{}"


def _tags(note: Note) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for tag in note.tags:
        found.setdefault(tag_key(tag.name), tag.name)
    return list(found.items())


def prepare_row(row: Row) -> Row:
    """The row with words cut for the full text."""
    if row.is_prepared:
        return row
    return row._replace(
        sections=list(map(index_words, row.sections)),
        words=tuple(map(index_words, row.words)),
        said=[(number, index_words(sentence)) for number, sentence in row.said],
        is_prepared=True,
    )


def _links(note: Note) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    if not note.links:
        return [], []
    sentences = {mention.link.start: mention.sentence for mention in find_mentions(note)}
    rows: list[tuple[Any, ...]] = []
    said: list[tuple[int, str]] = []
    before: str | None = None
    for number, link in enumerate(note.links):
        sentence = sentences.get(link.start) if link.key is None else None
        if sentence is not None and sentence is not before:
            said.append((number, sentence))
        before = sentence
        place = said[-1][0] if sentence is not None else None
        rows.append((link.kind, link.target, link.subpath, link.line, link.start, link.end, place))
    return rows, said


@lru_cache(8_192)
def _link_keys(target: str) -> tuple[str, str, str | None]:
    """What a link is found by: the key and the slug of its last segment, and the slug of the whole if it has more."""
    target = without_md(target)
    last = target.rpartition("/")[2]
    return path_key(last), slug_key(last), slug_key(target) if len(last) < len(target) else None


def _words(note: Note) -> tuple[str, ...]:
    properties = note.frontmatter.properties
    title = properties.get("title")
    aliases = [*note.aliases, title] if isinstance(title, str) else note.aliases
    heads = "\n".join(heading.text for heading in note.headings)
    tags = "\n".join(name for _, name in _tags(note))
    place, front = f"{MARK}\n{note.path.folder}", note.text[: note.frontmatter.end]
    return note.path.stem, "\n".join(aliases), heads, place, front, tags


def _sections(note: Note) -> list[str]:
    """What stands above the first heading, then one piece for each heading: the rule `section_starts` relies on."""
    pieces, at = [], note.frontmatter.end
    for heading in note.headings:
        if heading.top and heading.start >= at:
            pieces.append(note.text[at : heading.start])
            at = heading.start
    pieces.append(note.text[at:])
    return pieces


# ---- into the tables and out of them ------------------------------------------------------------------

_FILE = "insert into files values(?,?,?,?,?,?,?,?,?,?)"
_CHANGED = "update files set stamp=?, version=?, size=?, modified=?, title=?, problem=? where id=?"
_KNOWN = """
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
_SAID = "insert into said(rowid, sentence) values(?,?)"
_LEARN = "insert into vocabulary(word, stem) values(?1, nullif(?2, ?1))"


def insert_files(to: Connection, rows: Iterable[tuple[int, Row]]) -> None:
    """The rows of `files`, each with its number."""
    to.db.executemany(_FILE, ((file, *row.file) for file, row in rows))


def insert(to: Connection, rows: Iterable[tuple[int, Row]], first_link: int) -> int:
    """Put prepared rows whose files are there, each with its number, ascending; the next free one of a link. What
    `remove` left of a file that changed is written over."""
    many = to.db.executemany
    texts, names, tags, words, said = [], [], [], [], []
    linking: list[tuple[int, int, Row]] = []
    for file, row in rows:
        names += [(file, *name) for name in row.names]
        if row.text is None:
            continue
        headings, properties, text = row.text
        texts.append((file, headings, section_starts(to, row.sections), properties, text))
        words.append((file, *row.words, "\n".join(row.sections)))
        tags += [(file, *tag) for tag in row.tags]
        said += [(first_link + number, sentence) for number, sentence in row.said]
        if row.links:
            linking.append((first_link, file, row))
            first_link += len(row.links)
    for sql, found in ((_TEXT, texts), (_NAME, names), (_TAG, tags), (_WORDS, words), (_SAID, said)):
        if found:
            many(sql, found)
    if linking:
        many(_LINK, (link for first, file, row in linking for link in _link_rows(first, file, row)))
    return first_link


def _link_rows(first: int, file: int, row: Row) -> Iterator[tuple[Any, ...]]:
    """Made one by one while they are written: a note may have a hundred thousand."""
    for number, link in enumerate(row.links):
        place = None if link[-1] is None else first + link[-1]
        yield (first + number, file, *link[:-1], *_link_keys(link[1]), place)


def section_starts(to: Connection, sections: list[str]) -> str:
    """The number of words before each section, and in all: FTS5 tells a word's place by its number."""
    starts = [0]
    for piece in sections:
        starts.append(starts[-1] + sum(_word_count(to, some) for some in _pieces(piece)))
    return ",".join(map(str, starts))


def _word_count(to: Connection, text: str) -> int:
    if not text.isascii():
        return len(to.tokenize(text))
    marked = text.encode().translate(_MARKED)
    return marked.count(b" a") + marked.startswith(b"a")


def _pieces(text: str) -> Iterable[str]:
    """A long text cut between words, so that not all of them are in memory at once."""
    return (text,) if len(text) <= PIECE else (found[0] for found in _PIECE.finditer(text))


def _remove(to: Connection, gone: Iterable[int], linking: Iterable[int]) -> None:
    """Take files out of every table but `files` and `words`, and those that were `linking` out of the links; in order:
    FTS5 flushes what it holds in memory, and may then merge whole segments, whenever a smaller number follows a larger
    one or a condition looks into its table."""
    numbers = [(file,) for file in sorted({*gone, *linking})]
    if not numbers:
        return
    many = to.db.executemany
    said = [row for (file,) in numbers for row in to.rows("select said from links where source=?", (file,)) if row[0]]
    many("delete from said where rowid=?", sorted(set(said)))
    many("delete from links where source=?", numbers)
    for table, column in (("tags", "file"), ("names", "file"), ("texts", "id")):
        many(f"delete from {table} where {column}=?", [(file,) for file in gone])


def _without_what_stays(to: Connection, file: int, row: Row, names: str | None, tags: str | None) -> Row:
    """The row of a file that changed, without the names and tags that it had, as `_KNOWN` writes them: most edits
    change neither, and each is in three places. Those that it may have no longer are taken out."""
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


def put(to: Connection, rows: Iterable[Row], drop: Iterable[str] = ()) -> None:
    """Put files in place of what was known of them, vocabulary included, and forget those of `drop`.

    In an order that lets FTS5 write down what changed once: `files` before all, for its triggers make a savepoint of
    each statement, at which FTS5 would write down what it holds; and words that changed are replaced number by number.
    """
    latest = {str(row.file[0]): row for row in rows}
    gone = set()
    for path in drop:
        latest.pop(path, None)
        gone.add(to.number("select id from files where path=?", (path,)))
    changed: dict[int, Row] = {}
    linking: list[int] = []
    new: list[Row] = []
    for path, row in latest.items():
        known = to.rows(_KNOWN, (path,)).fetchone()
        if known is None:
            new.append(row)
            continue
        file, version, problem, is_parsed, links, names, tags = known
        # Nothing but the stamp changed: the version says so, if both were parsed or neither.
        if (version, problem, bool(is_parsed)) == (row.file[3], row.file[8], row.text is not None) and (
            is_parsed or not version
        ):
            stamp, _, size, modified = row.file[2:6]
            to.rows("update files set stamp=?, size=?, modified=? where id=?", (stamp, size, modified, file))
            continue
        changed[file] = _without_what_stays(to, file, row, names, tags)
        linking += [file] if links else []
    gone -= {0}
    many = to.db.executemany
    if gone:
        many("delete from files where id=?", [(file,) for file in gone])
    come = sorted(changed.items())
    many(_CHANGED, [(*row.file[2:6], *row.file[7:], file) for file, row in come])
    for row in new:
        to.db.execute(_FILE, (None, *row.file))
        come.append((to.db.last_insert_rowid(), row))
    _remove(to, gone, linking)
    silent = {*gone, *changed} - {file for file, row in come if row.text is not None}
    many("delete from words where rowid=?", [(file,) for file in sorted(silent)])
    _insert(to, come)


def _insert(to: Connection, numbered: Sequence[tuple[int, Row]]) -> None:
    link, met = 0, set[str]()
    if any(row.links for _, row in numbered):
        link = to.number("select max(id) from links") + 1
    for start in range(0, len(numbered), PREPARED):
        batch = [(file, prepare_row(row)) for file, row in numbered[start : start + PREPARED]]
        link = insert(to, batch, link)
        for _, row in batch:
            for piece in _pieces("\n".join((*row.words, *row.sections, *(sentence for _, sentence in row.said)))):
                met.update(to.tokenize(piece))
    learn(to, met)


def learn(to: Connection, met: Iterable[str]) -> None:
    """Words met for the first time, with their stems. Words that no note has any more do no harm, and so whoever writes
    remembers which are there."""
    unsure = set(met) - to.known_words
    if not unsure:
        return
    unknown = "select value from json_each(?) where not exists (select 1 from vocabulary where word = value)"
    fresh = sorted(word for (word,) in to.rows(unknown, (json.dumps(list(unsure)),)))
    if len(to.known_words) + len(unsure) > LEARNED:
        to.known_words.clear()
    to.known_words.update(list(unsure)[:LEARNED])
    to.db.executemany(_LEARN, zip(fresh, find_stems(to, fresh), strict=True))


def learn_all(to: Connection) -> None:
    """The vocabulary of everything filed, in one go."""
    words = [word for (word,) in to.rows("select term from terms")]
    to.db.executemany(_LEARN, zip(words, find_stems(to, words), strict=True))
