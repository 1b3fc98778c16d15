"""Opens SQLite files and migrates their schema: in small steps, each applied once, never backwards."""

import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import apsw

from notewright.errors import Busy, Exists, NoSpace, Unavailable

P = ParamSpec("P")
T = TypeVar("T")
_WAIT_MS = 10_000
DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError)


def open_file(file: Path, what: str) -> apsw.Connection:
    """Open a file, made with its folder if missing. Only their owner may read either."""
    with translate_errors(what):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        return apsw.Connection(str(file))


def set_up(db: apsw.Connection, what: str, pragmas: str, migrations: Sequence[str]) -> None:
    """Configure a connection and migrate its file to this program's schema. Waits for transactions of other processes,
    which are all short. A newer schema is refused: we could not preserve what we do not know."""
    db.set_busy_timeout(_WAIT_MS)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # a statement is planned once, not for every value it is given
    with translate_errors(what):
        for _ in range(100):  # SQLite does not wait by itself where several processes switch a new file over at once
            try:
                db.execute("pragma journal_mode = wal")
                break
            except apsw.BusyError:
                time.sleep(0.02)
        else:
            raise Busy("the state directory is being set up by another process", hint="try again in a moment")
        db.execute(pragmas)
        if db.execute("pragma user_version").get == len(migrations):
            return
        db.execute("begin immediate")
        try:
            version = db.execute("pragma user_version").get
            if version > len(migrations):
                raise Unavailable(
                    f"the history was written by a newer Notewright (schema {version}, this one knows"
                    f" {len(migrations)})",
                    hint="upgrade this one, or give it another state directory with --state",
                )
            for migration in migrations[version:]:
                db.execute(migration)
            db.execute(f"pragma user_version = {len(migrations)}")
            db.execute("commit")
        except BaseException:
            if db.in_transaction:  # else SQLite has rolled back by itself, as on a full disk
                db.execute("rollback")
            raise


class translate_errors:
    """Raise errors of SQLite as Problems. A class, not a generator, for speed: a write enters it a dozen times."""

    def __init__(self, what: str, directory: str = "state") -> None:
        self._what, self._directory = what, directory

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """The function with its errors translated. `ContextDecorator` would take three calls more for each call."""

        @wraps(function)
        def translated(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise

        return translated

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        what = self._what
        match error:
            case None:
                return
            case apsw.BusyError() | apsw.LockedError():
                raise Busy(f"{what} is in use by another process", hint="try again in a moment") from error
            case apsw.FullError():
                raise NoSpace(f"the disk that holds {what} is full", hint="free some space and try again") from error
            case apsw.ConstraintError():
                raise Exists(f"one of this name is in {what} already") from error
        if isinstance(error, (OSError, *DAMAGE)):
            hint = f"look at the {self._directory} directory"
            raise Unavailable(f"{what} cannot be used: {error}", hint=hint) from error
