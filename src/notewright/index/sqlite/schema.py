"""The tables of the SQLite index, and how a connection to them is opened."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw

from notewright.lazy_dataclass import dataclass, field

VERSION = 5  # another number and the index is begun anew
MARK = "\U0010fffd"  # a word that every note holds and nobody types
NOTHING = '"\U0010fffc"'  # an expression for a word that no note holds
COLUMNS = ("title", "alias", "head", "body", "place", "front", "tag")
TITLE, ALIAS, HEAD, BODY, PLACE, FRONT, TAG = range(len(COLUMNS))
WEIGHTS = (1.6, 1.6, 0.4, 0.4, 0.0, 0.0, 0.4)  # their size is FTS5's k1 too: body 0.4 is k1 = 3
NAME, ALIASED, TITLED, SLUGGED = "n", "a", "t", "s"  # kinds of names; slugs carry their precedence: s0 to s3
CACHE_KIB = 4_000
BUSY_MS = 10_000
MOST_REMEMBERED = 4_096  # answers of one kind, by a connection
CHECKPOINT_PAGES = 2_000
_TOKENIZER = "unicode61 remove_diacritics 2"

TABLES = f"""
create table meta(key text primary key, value) without rowid;
create table touched(path text primary key) without rowid;
create table files(
  id integer primary key, path text not null, folder text not null, stamp text not null, version text not null,
  size integer not null, modified integer not null, note integer not null,
  title text not null, problem text);
create table texts(
  id integer primary key, headings text not null, sections text not null, properties text not null,
  text text not null);
create table names(file integer not null, kind text not null, key text not null);
create table tags(file integer not null, key text not null, name text not null);
create table links(
  id integer primary key, source integer not null, kind text not null, target text not null, subpath text not null,
  line integer not null, start integer not null, end integer not null,  -- start and end in the text
  key text not null, slug text not null, whole text, said integer);
create table vocabulary(id integer primary key, word text not null, stem text);  -- null: it is its own, as most are
create virtual table words using fts5({", ".join(COLUMNS)}, content='', contentless_delete=1,
  tokenize='{_TOKENIZER}');
create virtual table said using fts5(sentence, content='', contentless_delete=1, tokenize='{_TOKENIZER}');
create virtual table terms using fts5vocab(words, row);
insert into words(words, rank) values('rank', 'bm25({", ".join(map(str, WEIGHTS))})');
"""
INDEXES = """
create unique index files_path on files(path);
create index files_folder on files(folder, note, path);
create index files_note on files(note, modified);
create index files_problem on files(problem, path) where problem is not null;
create index names_key on names(key, kind, file);
create index names_file on names(file);
create index tags_key on tags(key, name, file);
create index tags_file on tags(file);
create index links_source on links(source);
create index links_key on links(key, source);
create index links_slug on links(slug) where slug is not key;
create index links_whole on links(whole) where whole is not null;
create unique index vocabulary_word on vocabulary(word);
create index vocabulary_stem on vocabulary(stem) where stem is not null;
insert into meta select 'files', count(*) from files;
insert into meta select 'bytes', coalesce(sum(size), 0) from files;
create trigger files_came after insert on files begin
  update meta set value = value + 1 where key = 'files';
  update meta set value = value + new.size where key = 'bytes';
end;
create trigger files_went after delete on files begin
  update meta set value = value - 1 where key = 'files';
  update meta set value = value - old.size where key = 'bytes';
end;
create trigger files_resized after update of size on files begin
  update meta set value = value + new.size - old.size where key = 'bytes';
end;
"""

MOST_NS = 2**63 - 1  # in the year 2262: SQLite keeps no larger number, and files may bear later times


def within_ns(moment: int) -> int:
    """The time, or the last or first that is kept."""
    return max(-MOST_NS, min(moment, MOST_NS))


Tokens = Callable[[str], list[str]]
Placed = Callable[[str], list[tuple[int, int, str]]]


@dataclass(slots=True)
class Connection:
    """An open index: the database, its tokenizers, and what is cached with it.

    `variants` is what a word of a question stands for at this moment: FTS5 asks for it while it reads a query and
    counts all of them as one word.
    """

    db: apsw.Connection
    tokenize: Tokens
    stems: Tokens
    tokenize_with_places: Placed  # with where each word begins and ends
    name: str = ""  # of the generation
    variants: dict[str, tuple[str, ...]] = field(default_factory=dict)
    captured: dict[int, Any] = field(default_factory=dict)  # by functions of SQL, of the rows that were read
    known_words: set[str] = field(
        default_factory=set
    )  # some words of the vocabulary; forgotten where a transaction fails
    answers: dict[str, dict[Any, Any]] = field(default_factory=dict)  # cached by kind of question, as of a version
    _version: int = -1

    def rows(self, sql: str, bindings: Iterable[object] = ()) -> apsw.Cursor:
        return self.db.execute(sql, tuple(bindings))

    def table(self, columns: str, sql: str, bindings: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement with these columns, in one call of SQLite.

        Row by row every row would be a chance for another thread to take Python away, and eight searches at once
        would do nothing but take turns.
        """
        arrays = ", ".join(f"json_group_array({column})" for column in columns.split(", "))
        found: Any = self.rows(f"select {arrays} from ({sql})", bindings).fetchone()  # aggregates always give one
        return list(zip(*map(json.loads, found), strict=True))

    def value(self, sql: str, bindings: Iterable[object] = ()) -> object:
        """The first column of the first row, None without one."""
        row = self.rows(sql, bindings).fetchone()
        return row[0] if row else None

    def number(self, sql: str, bindings: Iterable[object] = ()) -> int:
        value = self.value(sql, bindings)
        return value if isinstance(value, int) else 0

    def cached(self, kind: str) -> dict[Any, Any]:
        """The cache of answers to one kind of question by the index as this transaction sees it, cleared as soon as
        anybody has filed anything. Outside of a transaction, or before its first question, nothing is cached."""
        if self.db.txn_state() != apsw.SQLITE_TXN_READ:
            return {}
        version = self.db.data_version()
        if version != self._version:
            self._version, self.answers = version, {}
        known = self.answers.get(kind)
        if known is None or len(known) > MOST_REMEMBERED:
            known = self.answers[kind] = {}
        return known

    def close(self, *, force: bool = False) -> None:
        """Forced: even while a statement is being read."""
        self.db.close(force)


def open_index(file: Path, *, writing: bool = False) -> Connection:
    """A connection to an index that is there. apsw.Error when it is not one of ours."""
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(BUSY_MS)
        # A statement is planned once. Else SQLite plans each that joins anew for every value it is given, hoping for
        # statistics that nobody gathers here: up to 80 µs, where the answer takes 7.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        version = db.execute("pragma user_version").fetchone()
        if version != (VERSION,):
            raise apsw.NotADBError(f"the index has another form: {version}")
        db.execute(f"pragma synchronous=normal; pragma cache_size=-{CACHE_KIB}; pragma temp_store=memory")
        db.wal_autocheckpoint(CHECKPOINT_PAGES)
        found = Connection(db, *_tokenizers(db))
        found.name = str(found.value("select value from meta where key='name'"))
        if not writing:
            db.execute("pragma query_only=1")
            db.register_fts5_tokenizer("unicode61", _asking(found))
        return found
    except BaseException:
        db.close()
        raise


def new_index(file: Path, *, ready: bool = True) -> Connection:
    """An empty index. Not `ready`: without secondary indexes and safety, to be filled in bulk and then `finished`."""
    db = apsw.Connection(str(file))
    db.set_busy_timeout(BUSY_MS)
    db.execute("pragma page_size=4096; pragma synchronous=off; pragma temp_store=memory; pragma journal_mode=off")
    with db:
        db.execute(TABLES)
        db.execute(
            "insert into meta values('name', ?), ('serial', 0), ('wanting', 1), ('building', null)",
            (os.urandom(8).hex(),),
        )
    made = Connection(db, *_tokenizers(db))
    if ready:
        finish(made)
    return made


def finish(made: Connection) -> None:
    """The secondary indexes, and from now on safe from a crash."""
    with made.db:
        made.db.execute(INDEXES)
    made.db.execute(f"pragma user_version={VERSION}; pragma journal_mode=wal; pragma synchronous=normal")


def _tokenizers(db: apsw.Connection) -> tuple[Tokens, Tokens, Placed]:
    name, *arguments = _TOKENIZER.split()
    plain = db.fts5_tokenizer(name, arguments)
    porter = db.fts5_tokenizer("porter", [name, *arguments])
    return _tokens(plain), _tokens(porter), _placed(plain)


def plain_tokenizer() -> Tokens:
    """How words are cut and folded, without an index at hand."""
    return _tokenizers(apsw.Connection(":memory:"))[0]


def _placed(tokenizer: apsw.FTS5Tokenizer) -> Placed:
    def cut(text: str) -> list[tuple[int, int, str]]:
        data = text.encode(errors="replace")
        found = tokenizer(data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=True, include_colocated=False)
        return [(len(data[:start].decode()), len(data[:end].decode()), word) for start, end, word in found]  # type: ignore

    return cut


def _tokens(tokenizer: apsw.FTS5Tokenizer) -> Tokens:
    def cut(text: str) -> list[str]:
        data = text.encode(errors="replace")
        return tokenizer(  # type: ignore[return-value]
            data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )

    return cut


def _asking(connection: Connection) -> "apsw.FTS5TokenizerFactory":
    """Where questions are asked, a tokenizer that answers with the variants of a word.

    It takes the place of the one the tables name: words of a question come folded already, and nothing is ever
    written through such a connection.
    """

    def factory(db: apsw.Connection, arguments: list[str]) -> "apsw.Tokenizer":
        def tokenize(data: bytes, flags: int, locale: str | None) -> list[str | tuple[str, ...]]:
            found: list[str | tuple[str, ...]] = []
            for word in data.decode().split():
                found.append(connection.variants.get(word, word))
            return found

        return tokenize

    return factory
