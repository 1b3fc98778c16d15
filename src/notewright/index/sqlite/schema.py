"""The tables of the SQLite index, and functions that create and open it."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apsw

from notewright.lazy_dataclass import dataclass, field

VERSION = 6  # of the tables; an index with another number is rebuilt
MARK = "\U0010fffd"  # a word that is indexed with every note and stands in none
NOTHING = '"\U0010fffc"'  # an expression for a word that is in no note
COLUMNS = ("title", "alias", "head", "body", "place", "front", "tag")
TITLE, ALIAS, HEAD, BODY, PLACE, FRONT, TAG = range(len(COLUMNS))
WEIGHTS = (1.6, 1.6, 0.4, 0.4, 0.0, 0.0, 0.4)  # their size is FTS5's k1 too: body 0.4 is k1 = 3
NAME, ALIASED, TITLED, SLUGGED = "n", "a", "t", "s"  # kinds of names; slugs carry their precedence: s0 to s3
CACHE_KIB = 4_000
BUSY_MS = 10_000
MAX_CACHED_ANSWERS = 4_096  # of one kind, by a connection
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
  key text not null, slug text not null, whole text, sentence integer);  -- in `sentences`
create table vocabulary(id integer primary key, word text not null, stem text);  -- null: it is its own, as most are
create virtual table words using fts5({", ".join(COLUMNS)}, content='', contentless_delete=1,
  tokenize='{_TOKENIZER}');
create virtual table sentences using fts5(sentence, content='', contentless_delete=1, tokenize='{_TOKENIZER}');
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

MAX_NS = 2**63 - 1  # in the year 2262: SQLite keeps no larger number, and files may bear later times


def clamp_ns(moment: int) -> int:
    """The time, or the nearest that SQLite can store."""
    return max(-MAX_NS, min(moment, MAX_NS))


Tokens = Callable[[str], list[str]]
OffsetTokens = Callable[[str], list[tuple[int, int, str]]]


@dataclass(slots=True)
class Connection:
    """An open index: the database, its tokenizers, and what is cached with it.

    `variants` holds the forms of each word of the current query: FTS5 looks them up through the query tokenizer and
    counts all of them as one word.
    """

    db: apsw.Connection
    tokenize: Tokens
    stems: Tokens
    tokenize_with_places: OffsetTokens  # with where each word begins and ends
    name: str = ""  # of the generation
    variants: dict[str, tuple[str, ...]] = field(default_factory=dict)
    captured: dict[int, Any] = field(default_factory=dict)  # by SQL functions, by number of the row that was read
    known_words: set[str] = field(default_factory=set)  # some of the vocabulary; cleared when a transaction fails
    answers: dict[str, dict[Any, Any]] = field(default_factory=dict)  # cached by kind of question, at `_version`
    _version: int = -1

    def rows(self, sql: str, bindings: Iterable[object] = ()) -> apsw.Cursor:
        return self.db.execute(sql, tuple(bindings))

    def table(self, columns: str, sql: str, bindings: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement with these columns, in one call of SQLite.

        Read row by row, the interpreter lock would change hands at every row, and eight searches at once would do
        little but switch threads.
        """
        arrays = ", ".join(f"json_group_array({column})" for column in columns.split(", "))
        lists: Any = self.rows(f"select {arrays} from ({sql})", bindings).fetchone()  # aggregates always return one row
        return list(zip(*map(json.loads, lists), strict=True))

    def value(self, sql: str, bindings: Iterable[object] = ()) -> object:
        """The first column of the first row, None without one."""
        row = self.rows(sql, bindings).fetchone()
        return row[0] if row else None

    def number(self, sql: str, bindings: Iterable[object] = ()) -> int:
        value = self.value(sql, bindings)
        return value if isinstance(value, int) else 0

    def get_cache(self, kind: str) -> dict[Any, Any]:
        """The cache of answers to one kind of question, valid for the snapshot of this transaction: cleared after any
        write. Outside of a transaction, or before its first read, a fresh dict: nothing is cached."""
        if self.db.txn_state() != apsw.SQLITE_TXN_READ:
            return {}
        version = self.db.data_version()
        if version != self._version:
            self._version, self.answers = version, {}
        cache = self.answers.get(kind)
        if cache is None or len(cache) > MAX_CACHED_ANSWERS:
            cache = self.answers[kind] = {}
        return cache

    def close(self, *, force: bool = False) -> None:
        """Close the database; with `force` even while a statement is being read."""
        self.db.close(force)


def open_index(file: Path, *, writing: bool = False) -> Connection:
    """Connect to an existing index. apsw.Error if it is not one of this version."""
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(BUSY_MS)
        # Plan each statement once. Otherwise SQLite plans a join anew for every bound value, to use statistics that do
        # not exist here: up to 80 µs, where the answer takes 7.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        version = db.execute("pragma user_version").fetchone()
        if version != (VERSION,):
            raise apsw.NotADBError(f"the index has another form: {version}")
        db.execute(f"pragma synchronous=normal; pragma cache_size=-{CACHE_KIB}; pragma temp_store=memory")
        db.wal_autocheckpoint(CHECKPOINT_PAGES)
        con = Connection(db, *_make_tokenizers(db))
        con.name = str(con.value("select value from meta where key='name'"))
        if not writing:
            db.execute("pragma query_only=1")
            db.register_fts5_tokenizer("unicode61", _make_query_tokenizer(con))
        return con
    except BaseException:
        db.close()
        raise


def create_index(file: Path, *, ready: bool = True) -> Connection:
    """Create an empty index. Not `ready`: without indexes and durability, for bulk filling, then `finish_index`."""
    db = apsw.Connection(str(file))
    db.set_busy_timeout(BUSY_MS)
    db.execute("pragma page_size=4096; pragma synchronous=off; pragma temp_store=memory; pragma journal_mode=off")
    with db:
        db.execute(TABLES)
        db.execute(
            "insert into meta values('name', ?), ('serial', 0), ('incomplete', 1), ('building', null)",
            (os.urandom(8).hex(),),
        )
    con = Connection(db, *_make_tokenizers(db))
    if ready:
        finish_index(con)
    return con


def finish_index(con: Connection) -> None:
    """Create the secondary indexes, and make the index safe from crashes from now on."""
    with con.db:
        con.db.execute(INDEXES)
    con.db.execute(f"pragma user_version={VERSION}; pragma journal_mode=wal; pragma synchronous=normal")


def _make_tokenizers(db: apsw.Connection) -> tuple[Tokens, Tokens, OffsetTokens]:
    name, *arguments = _TOKENIZER.split()
    plain = db.fts5_tokenizer(name, arguments)
    porter = db.fts5_tokenizer("porter", [name, *arguments])
    return _make_tokenizer(plain), _make_tokenizer(porter), _make_offset_tokenizer(plain)


def _make_offset_tokenizer(tokenizer: apsw.FTS5Tokenizer) -> OffsetTokens:
    def tokenize(text: str) -> list[tuple[int, int, str]]:
        data = text.encode(errors="replace")
        tokens = tokenizer(data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=True, include_colocated=False)
        return [(len(data[:start].decode()), len(data[:end].decode()), word) for start, end, word in tokens]  # type: ignore

    return tokenize


def _make_tokenizer(tokenizer: apsw.FTS5Tokenizer) -> Tokens:
    def tokenize(text: str) -> list[str]:
        data = text.encode(errors="replace")
        return tokenizer(  # type: ignore[return-value]
            data, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )

    return tokenize


def _make_query_tokenizer(connection: Connection) -> "apsw.FTS5TokenizerFactory":
    """A tokenizer for reading connections, which expands each word of a query into its variants.

    It replaces the one the tables name: the words of a query are already folded, and nothing is ever written through
    such a connection.
    """

    def factory(db: apsw.Connection, arguments: list[str]) -> "apsw.Tokenizer":
        def tokenize(data: bytes, flags: int, locale: str | None) -> list[str | tuple[str, ...]]:
            tokens: list[str | tuple[str, ...]] = []
            for word in data.decode().split():
                tokens.append(connection.variants.get(word, word))
            return tokens

        return tokenize

    return factory
