"""How the SQLite ledger grows: small steps, each done once, never backwards."""

import apsw

from notewright.errors import Unavailable

MIGRATIONS = (
    """
    create table change(
        seq integer primary key,
        id text not null unique,
        at real not null,
        user text not null, client text not null, surface text not null, tool text not null,
        summary text not null,
        state text not null,
        undone_by text,
        emptied text not null, made text not null       -- JSON lists of folders
    );
    create index change_open on change(seq) where state = 'recorded';
    create index change_at on change(at);
    create table step(
        change integer not null references change(seq) on delete cascade,
        place integer not null,
        path text not null,
        before text, after text, source text,
        primary key(change, place)
    ) without rowid;
    create index step_path on step(path, after);
    create table undo(
        change integer not null references change(seq) on delete cascade,
        undone text not null,
        primary key(change, undone)
    ) without rowid;
    create table blob(version text primary key, data blob not null);
    create table born(path text primary key, at real not null) without rowid;
    """,
)


def migrate(db: apsw.Connection) -> None:
    """Bring a ledger up to this program's schema. A newer one is refused: we could not keep what we do not know."""
    if _version(db) == len(MIGRATIONS):
        return
    db.execute("begin immediate")
    try:
        for number in range(_known(db), len(MIGRATIONS)):
            db.execute(MIGRATIONS[number])
        db.execute(f"pragma user_version = {len(MIGRATIONS)}")
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise


def _version(db: apsw.Connection) -> int:
    return int(db.execute("pragma user_version").get)


def _known(db: apsw.Connection) -> int:
    version = _version(db)
    if version > len(MIGRATIONS):
        raise Unavailable(
            f"the history was written by a newer Notewright (schema {version}, this one knows {len(MIGRATIONS)})",
            hint="upgrade this one, or give it another state directory with --state",
        )
    return version
