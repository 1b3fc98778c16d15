"""SQLite files that are kept: their schema grows in small steps, each done once, never backwards."""

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
    """A file that is made if it is not there, with its folder. Both are for their owner's eyes only."""
    with words(what):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        return apsw.Connection(str(file))


def set_up(db: apsw.Connection, what: str, pragmas: str, steps: Sequence[str]) -> None:
    """Make a connection ready: it waits for other processes' transactions, which are all short."""
    db.set_busy_timeout(_WAIT_MS)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # a statement is planned once, not for every value it is given
    with words(what):
        _write_ahead(db)
        db.execute(pragmas)
        migrate(db, steps)


def migrate(db: apsw.Connection, steps: Sequence[str]) -> None:
    """Bring a file up to this program's schema. A newer one is refused: we could not keep what we do not know."""
    if _version(db) == len(steps):
        return
    db.execute("begin immediate")
    try:
        for number in range(_known(db, len(steps)), len(steps)):
            db.execute(steps[number])
        db.execute(f"pragma user_version = {len(steps)}")
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise


def _version(db: apsw.Connection) -> int:
    return int(db.execute("pragma user_version").get)


def _known(db: apsw.Connection, newest: int) -> int:
    version = _version(db)
    if version > newest:
        raise Unavailable(
            f"the history was written by a newer Notewright (schema {version}, this one knows {newest})",
            hint="upgrade this one, or give it another state directory with --state",
        )
    return version


def _write_ahead(db: apsw.Connection) -> None:
    """SQLite does not wait by itself where several processes switch a new file over at once."""
    for _ in range(100):
        try:
            db.execute("pragma journal_mode = wal")
            return
        except apsw.BusyError:
            time.sleep(0.02)
    raise Busy("the state directory is being set up by another process", hint="try again in a moment")


class words:
    """SQLite's troubles as ours. A class, for it is entered a dozen times in a write."""

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
