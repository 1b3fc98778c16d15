"""Queries for names, links, tags, headings, properties and listings: what the methods of `SqliteIndex` ask."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from notewright.index.base import (
    EVERYTHING,
    Countable,
    IndexedFile,
    IndexedNote,
    LinkRow,
    Selection,
    Visibility,
    add_to_parents,
)
from notewright.index.sqlite.schema import ALIASED, MARK, NAME, NOTHING, SLUGGED, TITLED, Connection, clamp_ns
from notewright.index.sqlite.vocabulary import Vocabulary, find_similar_words, list_trigrams
from notewright.notes.links.names import Namesakes, OtherName
from notewright.notes.model import Heading, tag_key
from notewright.notes.path import NotePath, path_key, without_md
from notewright.notes.words import index_words

if TYPE_CHECKING:
    from notewright.notes.excerpts import Excerpt

MIN_GLOB_CHARS = 4  # of a piece of a path worth a condition: few paths hold it, but all notes hold `.md`
LINKS_PER_BATCH = 1_000  # links whose texts are read together
_Counts = Sequence[tuple[str, int]]
_new_tuple = tuple.__new__  # makes a row in half the time of calling its type
MAX_CACHED_KEYS = 500  # in one question; more are not cached, they come from a pass over all links
MAX_READERS = 16  # with different visibility, whose counts of folders are cached
LAST_CHAR = "\U0010ffff"  # appended to a prefix: sorts after every name with that prefix
MIN_RATIO = 0.6  # the least similarity, of 1, of a name that shares no trigram with the key
MAX_INLINE_KEYS = 8  # bound one by one; a list as JSON costs as much as the statement

# ---- files and names ----------------------------------------------------------------------------------

_FILED = "select f.path, f.stamp, f.version, f.size, f.modified, f.title, f.problem from files f"


def find_file(con: Connection, path: str) -> IndexedFile | None:
    row = con.rows(f"{_FILED} where f.path=?", (path,)).fetchone()
    return IndexedFile(NotePath(row[0]), *row[1:]) if row else None


def _to_files(rows: Iterable[tuple[Any, ...]]) -> list[IndexedFile]:
    return [_new_tuple(IndexedFile, (NotePath(row[0]), *row[1:])) for row in rows]


def with_problem(con: Connection, problem: str) -> list[IndexedFile]:
    known: dict[str, list[IndexedFile]] = con.get_cache("problem")
    if problem not in known:
        sql = f"{_FILED} where f.problem is not null and f.problem = ? order by f.path"
        known[problem] = _to_files(con.rows(sql, (problem,)))
    return known[problem]


def stamps(con: Connection) -> list[tuple[str, str]]:
    return list(con.rows("select path, stamp from files"))  # sorted by path it takes a third longer


def total(con: Connection, of: Countable) -> int:
    """The number of notes, files or bytes. Triggers count the last two: else every write would read all rows."""
    if of == "notes":
        return con.number("select count(*) from files where note = 1")
    return con.number("select value from meta where key = ?", (of,))


def by_name(con: Connection, key: str) -> list[NotePath]:
    return by_names(con, (key,)).get(key, [])


def by_other_name(con: Connection, kind: OtherName, key: str) -> list[NotePath]:
    return (
        _find_by_slug(con, key) if kind == "slug" else _find_by_keys(con, ALIASED if kind == "alias" else TITLED, key)
    )


def _find_by_keys(con: Connection, kind: str, *keys: str) -> list[NotePath]:
    rows = con.rows(
        f"""select f.path from names n cross join files f on f.id = n.file
        where n.kind=? and n.key in ({",".join("?" * len(keys))})""",
        (kind, *keys),
    )
    return sorted({NotePath(path) for (path,) in rows})


def by_names(con: Connection, keys: Sequence[str]) -> dict[str, Namesakes]:
    known: dict[str, Namesakes] = con.get_cache("by_name") if len(keys) <= MAX_CACHED_KEYS else {}
    unknown = [key for key in keys if key not in known]
    if len(unknown) == 1:
        known[unknown[0]] = Namesakes(_find_by_keys(con, NAME, unknown[0], unknown[0] + ".md"))
    elif unknown:
        each, values = "select value from json_each(?)", [json.dumps(unknown)]
        if len(unknown) <= MAX_INLINE_KEYS:
            each, values = f"values {','.join(['(?)'] * len(unknown))}", unknown
        rows = con.rows(
            f"""with each(key) as ({each}) select each.key, f.path from each
            cross join names n on n.key in (each.key, each.key || '.md') and n.kind = '{NAME}'
            cross join files f on f.id = n.file order by f.path""",
            values,
        )
        found = _group_by_key(rows)
        known.update((key, found.get(key, Namesakes())) for key in unknown)
    return {key: paths for key in keys if (paths := known[key])}


def _group_by_key(rows: Iterable[tuple[str, str]]) -> dict[str, Namesakes]:
    found: defaultdict[str, Namesakes] = defaultdict(Namesakes)
    for key, path in rows:
        found[key].append(NotePath(path))
    return dict(found)


def _find_by_slug(con: Connection, slug: str) -> list[NotePath]:
    """By path first, then by alias, by title, by last segment; the shorter path first."""
    rows = con.rows(
        f"""select f.path, n.kind from names n join files f on f.id = n.file
        where n.key=? and n.kind between '{SLUGGED}0' and '{SLUGGED}3'""",
        (slug,),
    )
    ordered = sorted(rows, key=lambda row: (row[1], len(row[0]), row[0]))
    return [NotePath(path) for path in dict.fromkeys(path for path, _ in ordered)]


def names_like(
    con: Connection, vocabulary: Vocabulary, key: str, limit: int = 200, visible: Visibility = EVERYTHING
) -> list[NotePath]:
    """Notes with names similar to the key, most similar first. Candidates share most trigrams with it among its
    neighbours in order and the notes best found by similar words; among all names if it is shorter than a trigram. The
    limit applies after visibility, so that a hidden name takes no place."""
    from difflib import SequenceMatcher

    runs = list_trigrams(key)[:24]
    shared = " + ".join("(instr(n.key, ?) > 0)" for _ in runs)
    named, among = f"kind in ('{NAME}', '{ALIASED}', '{TITLED}')", "instr(n.key, ?)"
    if len(key) > 2:
        among = f"""n.rowid in (select rowid from names where key >= ? and key < ? and {named} order by key limit ?)
            or n.rowid in (select rowid from names where key < ? and key >= ? and {named} order by key desc limit ?)
            or n.file in (select rowid from words where words match ? order by rank limit ?)"""
    sql = f"""select f.path, f.note, s.shared from (select n.file, {shared} as shared from names n
          where {named} and ({among}) order by shared desc, length(n.key) limit ?) s join files f on f.id = s.file"""
    like = find_similar_words(con, vocabulary, key) if len(key) > 2 else ()
    words = " OR ".join(f'"{word}"' for word in like) or NOTHING
    match, first, rows = f"{{title alias head}} : ({words})", runs[0], list[tuple[Any, ...]]()
    row_limit = most = max(limit, 50)
    con.variants = {}
    while True:
        before, near = len(rows), row_limit // 8
        around = (key, first + LAST_CHAR, near, key, first, near, match, row_limit // 2) if len(key) > 2 else (key,)
        values = (*runs, *around, row_limit)
        rows = con.rows(sql, values).fetchall()
        seen = [(NotePath(path), note, some) for path, note, some in rows if visible.sees(str(path))]
        if len(seen) == len(rows) or len(seen) >= most or len(rows) == before:
            break
        row_limit *= 4
    ratios = {path: SequenceMatcher(None, key, path_key(path.stem)).ratio() for path, note, _ in seen if note}
    alike = {path for path, note, some in seen if note and (some or ratios[path] >= MIN_RATIO)}
    return sorted(alike, key=lambda path: (-ratios[path], path))[:limit]


def other_keys(con: Connection, path: str) -> list[str]:
    sql = f"""select n.key from names n join files f on f.id = n.file
        where f.path=? and n.kind in ('{ALIASED}', '{TITLED}') order by n.rowid"""
    return [key for (key,) in con.rows(sql, (path,))]


def shared_aliases(con: Connection) -> list[tuple[str, list[NotePath]]]:
    rows = con.rows(
        f"""select n.key, f.path from names n join files f on f.id = n.file where n.kind='{ALIASED}' and n.key in
        (select key from names where kind='{ALIASED}' group by key having count(distinct file) > 1)
        order by n.key, f.path"""
    )
    return [(key, list(paths)) for key, paths in _group_by_key(rows).items()]


# ---- listings -----------------------------------------------------------------------------------------

_ORDERS = {
    "path": "f.path",
    "name": "case f.note when 1 then substr(f.path, 1, length(f.path) - 3) else f.path end",
    "modified": "f.modified desc, f.path",
    "size": "f.size desc, f.path",
}


def select(con: Connection, selection: Selection) -> tuple[list[IndexedFile], int]:
    each = selection.visible != EVERYTHING or selection.among is not None
    where, values = _build_condition(con, selection, by_path=each and selection.sort == "path")
    if where is None:
        return [], 0
    order = _ORDERS[selection.sort]
    if each:  # visibility depends on the path; only the page is read in full
        among, sees = selection.among, selection.visible.test
        ids = [
            note
            for note, path in con.rows(f"select f.id, f.path from files f where {where} order by {order}", values)
            if (among is None or path in among) and (sees is None or sees(path))
        ]
        end = None if selection.limit is None else selection.offset + selection.limit
        chosen = json.dumps(ids[selection.offset : end])
        return _to_files(con.rows(f"{_FILED} join json_each(?) e on e.value = f.id order by e.key", (chosen,))), len(
            ids
        )
    limit = -1 if selection.limit is None else selection.limit
    rows = con.rows(f"{_FILED} where {where} order by {order} limit ? offset ?", (*values, limit, selection.offset))
    page = _to_files(rows)
    if (page or not selection.offset) and (selection.limit is None or len(page) < selection.limit):
        return page, selection.offset + len(page)  # the page holds the last row
    known: dict[object, int] = con.get_cache("count")
    condition = (where, *values)
    if condition not in known:
        known[condition] = con.number(f"select count(*) from files f where {where}", values)
    return page, known[condition]


def _build_condition(con: Connection, selection: Selection, *, by_path: bool) -> tuple[str | None, list[object]]:
    """Build the SQL condition of a selection; None if nothing can meet it. `by_path`: the rows are read in order from
    the index of paths, and nothing else is read if the condition names only paths."""
    where, values = ["1"], list[object]()
    if selection.notes_only:
        where.append("f.path like '%.md'" if by_path else "f.note = 1")
    if selection.folder or not selection.recursive:
        inside = "(f.path >= ? and f.path < ?)" if selection.recursive else "f.folder = ?"
        values += [selection.folder + "/", selection.folder + "0"] if selection.recursive else [selection.folder]
        if selection.folder_note:
            inside = f"({inside} or f.path = ?)"
            values.append(selection.folder + ".md")
        where.append(inside)
    if selection.suffixes:
        if not any(suffix.lower().endswith(".md") for suffix in selection.suffixes):
            where.append("f.note = 0")  # reads a few rows by an index instead of all paths
        where.append("(" + " or ".join("f.path like ?" for _ in selection.suffixes) + ")")
        values += [f"%{suffix}" for suffix in selection.suffixes]
    if selection.since_ns is not None:
        where.append("f.modified > ?")
        values.append(clamp_ns(selection.since_ns))
    for piece in selection.holding:
        if len(piece) >= MIN_GLOB_CHARS:
            where.append("f.path glob ?")  # a third faster than instr
            values.append("*" + re.sub(r"[*?\[]", r"[\g<0>]", piece) + "*")
    if len(selection.name_start) > 1 and selection.name_start.isascii():
        key = path_key(selection.name_start)
        if key[-1].isalpha() or key[-1] in "<=>":  # in a key it may be combined with a mark that follows
            key = key[:-1]
        where.append(f"f.id in (select file from names where key >= ? and key < ? and kind = '{NAME}')")
        values += [key, key[:-1] + chr(ord(key[-1]) + 1)]
    for tag in selection.tags:
        where.append("f.id in (select file from tags where key = ?)")
        values.append(tag_key(tag))
    if selection.tag_tree is not None:
        key = tag_key(selection.tag_tree)
        where.append("f.id in (select file from tags where key = ? or (key >= ? and key < ?))")
        values += [key, key + "/", key + "0"]
    if selection.prefix_words:
        expression = make_prefix_expression(con, selection.prefix_words)
        if expression is None:
            return None, []
        where.append("f.id in (select rowid from words where words match ?)")
        values.append(expression)
    return " and ".join(where), values


def make_prefix_expression(con: Connection, words: Iterable[str]) -> str | None:
    """An FTS5 expression for notes with words that begin with all of these, but for frontmatter; None without words."""
    con.variants = {}
    found = [token for word in words for token in con.tokenize(index_words(word)) if token != MARK]
    wanted = " AND ".join(f'"{token}"*' for token in dict.fromkeys(found))
    return f"{{title alias head body place tag}} : ({wanted})" if wanted else None


def folders(con: Connection, below: str = "", visible: Visibility = EVERYTHING, *, deep: bool = True) -> _Counts:
    """Counting reads every file's row, and a listing shows a few folders: within a snapshot the counts of all folders
    are cached, by who may see what, with those directly in each."""
    if deep and below:  # reads a few rows, which is faster than those of all folders
        counts = _count_folders(con, visible, "where folder >= ? and folder < ?", (f"{below}/", f"{below}0"))
        return [(name, count) for name, count in counts if name.startswith(f"{below}/")]
    known: dict[Visibility, tuple[_Counts, dict[str, _Counts]]] = con.get_cache("folders")
    if visible not in known:
        if len(known) >= MAX_READERS:
            known.clear()
        counts = _count_folders(con, visible)
        children: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for name, count in counts:
            children[name.rpartition("/")[0]].append((name, count))
        known[visible] = counts, dict(children)
    every, by_parent = known[visible]
    return every if deep else by_parent.get(below, ())


def _count_folders(con: Connection, visible: Visibility, where: str = "", values: Sequence[str] = ()) -> _Counts:
    """Every folder with files in it or below, in order, and how many of these are notes."""
    sees = visible.test
    if sees is None:
        return add_to_parents(dict(con.rows(f"select folder, sum(note) from files {where} group by folder", values)))
    own: dict[str, int] = {}
    for folder, path, note in con.rows(f"select folder, path, note from files {where}", values):
        if sees(path):
            own[folder] = own.get(folder, 0) + note
    return add_to_parents(own)


# ---- links --------------------------------------------------------------------------------------------

_LINK = """select f.path, l.kind, l.target, l.subpath, l.line, l.source, l.start, l.end
  from links l join files f on f.id = l.source"""


def links_from(con: Connection, paths: Sequence[str]) -> list[LinkRow]:
    if len(paths) == 1:
        return _read_links(con, f"{_LINK} where f.path = ? order by l.id", paths)
    sources = "select id from files where path in (select value from json_each(?))"
    return _read_links(con, f"{_LINK} where l.source in ({sources}) order by f.path, l.id", (json.dumps(paths),))


def links_toward(con: Connection, keys: Sequence[str], *, slugs: bool = True) -> list[LinkRow]:
    keys = list(dict.fromkeys(map(without_md, keys)))  # a link's key is without it, of `Tea.md` for Tea.md.md as well
    if len(keys) <= MAX_INLINE_KEYS:
        given, values = ",".join(map("?{}".format, range(1, len(keys) + 1))), keys
    else:
        given, values = "select value from json_each(?1)", [json.dumps(keys)]
    by_slug = f""" or (l.slug is not l.key and l.slug in ({given}))
          or (l.whole is not null and l.whole in ({given}))"""
    return _read_links(con, f"{_LINK} where l.key in ({given}){by_slug if slugs else ''} order by f.path, l.id", values)


def _read_links(con: Connection, sql: str, values: Iterable[object]) -> list[LinkRow]:
    return [_new_tuple(LinkRow, (NotePath(row[0]), *row[1:])) for row in con.rows(sql, values)]


def lines_of(con: Connection, links: Sequence[LinkRow]) -> "list[Excerpt]":
    """The lines of links, cut from the texts: stored with each link they would double the index."""
    from notewright.notes.excerpts import excerpt_line

    found: list[Excerpt] = []
    texts: dict[int, str] = {}
    for at, link in enumerate(links):
        if link.note not in texts:
            texts = _read_texts(con, {row.note for row in links[at : at + LINKS_PER_BATCH]})
        found.append(excerpt_line(texts.get(link.note, ""), link.start, link.end))
    return found


def _read_texts(con: Connection, notes: set[int]) -> dict[int, str]:
    if len(notes) <= MAX_INLINE_KEYS:
        return dict(con.rows(f"select id, text from texts where id in ({','.join('?' * len(notes))})", notes))
    every = json.dumps(list(notes))
    return dict(con.rows("select id, text from texts where id in (select value from json_each(?))", (every,)))


# ---- what is in a note --------------------------------------------------------------------------------


def notes(con: Connection, numbers: Sequence[int]) -> dict[int, IndexedNote]:
    rows = con.rows(
        """select f.id, f.path, f.title, f.modified, t.headings, t.text from files f join texts t on t.id = f.id
        where f.id in (select value from json_each(?))""",
        (json.dumps(numbers),),
    )
    return {
        note: IndexedNote(NotePath(path), title, modified, _parse_headings(headings), text)
        for note, path, title, modified, headings, text in rows
    }


def _parse_headings(stored: str) -> list[Heading]:
    return [
        Heading(level, text, line, start, end, bool(top)) for level, text, line, start, end, top in json.loads(stored)
    ]


def property_of(con: Connection, key: str, paths: Sequence[str]) -> dict[str, Any]:
    rows = con.rows(
        """select f.path, t.properties -> ? from json_each(?) e
        join files f on f.path = e.value join texts t on t.id = f.id where t.properties -> ? is not null""",
        (f"$.{json.dumps(key)}", json.dumps(paths), f"$.{json.dumps(key)}"),
    )
    return {path: json.loads(value) for path, value in rows}


def text(con: Connection, path: str) -> str | None:
    found = con.value("select t.text from texts t join files f on f.id = t.id where f.path=?", (path,))
    return found if isinstance(found, str) else None


# ---- tags ---------------------------------------------------------------------------------------------


def tags(con: Connection, visible: Visibility = EVERYTHING) -> dict[str, int]:
    sees = visible.test
    if sees is None:
        rows = list(con.rows("select key, name, count(*) from tags group by key, name"))
    else:
        found = con.rows("select t.key, t.name, f.path from tags t join files f on f.id = t.file")
        counted = Counter((key, name) for key, name, path in found if sees(path))
        rows = [(key, name, count) for (key, name), count in counted.items()]
    spelled: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, name, count in rows:
        spelled[key][name] += count
    chosen = {min(names, key=lambda name: (-names[name], name)): names.total() for names in spelled.values()}
    return dict(sorted(chosen.items()))


def tags_of(con: Connection, paths: Sequence[str]) -> dict[str, list[str]]:
    """The tags of each of these notes, as first spelled, in their order."""
    found: dict[str, list[str]] = {path: [] for path in paths}
    rows = con.rows(
        """select f.path, t.name from json_each(?) e join files f on f.path = e.value join tags t on t.file = f.id
        order by t.rowid""",
        (json.dumps(list(found)),),
    )
    for path, name in rows:
        found[path].append(name)
    return found
