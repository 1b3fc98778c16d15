"""Opening workspaces: the one place that names a concrete store, index and ledger. The command line needs no more."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from notewright import engine
from notewright.config import Config, WorkspaceConfig
from notewright.engine import Workspace
from notewright.errors import Invalid
from notewright.index.sqlite import SqliteIndex
from notewright.ledger import Ledger
from notewright.ledger.sqlite import SqliteLedger
from notewright.stores.folder import FolderStore


def open_workspace(asked: WorkspaceConfig, config: Config, *, watch: bool = True) -> Workspace:
    """A workspace ready for its first call: what a dead process left is finished, and the index is being followed.

    Without `watch` the index is brought up to date once, for a command that ends soon.
    """
    if asked.kind != "folder":
        raise Invalid(f"{asked.location} is not a folder", hint="this version serves folders", what="location")
    store = FolderStore(Path(asked.location))
    ledger = SqliteLedger.open(Path(config.state) / store.identity)
    cache = Path(config.cache) / store.identity
    index = SqliteIndex.open(cache)
    follower = engine.Follower(store, index, cache, watch=watch, daily=_forgetting(ledger, config) if watch else None)
    ws = Workspace(
        name=asked.name,
        id=asked.id,
        store=store,
        index=index,
        ledger=ledger,
        follower=follower,
        access=engine.Access(read_only=asked.read_only, hide=asked.hide, write_under=asked.write_under),
        timezone=_zone(asked.timezone),
        limits=engine.Limits(asked.max_file_size, asked.quota_files, asked.quota_bytes),
    )
    if ledger.unfinished():  # seldom: the machine of changes is not loaded for nothing
        engine.recover(ws)
    if asked.bootstrap == "para":
        engine.bootstrap(ws)
    follower.start()
    return ws


def _forgetting(ledger: Ledger, config: Config) -> Callable[[], None]:
    """What keeps the history within its bounds."""
    days, most = config["history.keep_days"], config["history.keep_bytes"]
    return lambda: ledger.trim(keep_days=days, keep_bytes=most, now=time.time())


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(f"{name!r} is not a timezone", hint="use a name like Europe/Lisbon", what="timezone") from None


def close_workspace(ws: Workspace) -> None:
    """Stop following, finish what was begun, let go of the files."""
    ws.follower.close()
    ws.index.close()
    ws.ledger.close()
    ws.store.close()


def enclosing(folder: str, config: Config) -> str | None:
    """The nearest folder around this one that is a workspace already: it has a history, or it is an Obsidian vault."""
    for outer in Path(folder).parents:
        try:
            found = outer.stat()
        except OSError:
            return None
        kept = Path(config.state) / f"{found.st_dev:x}-{found.st_ino:x}" / "ledger.db"
        if kept.exists() or (outer / ".obsidian").is_dir():
            return str(outer)
    return None


class OpenShelf(engine.Shelf):
    """The workspaces of a configuration, open until closed."""

    def close(self) -> None:
        for workspace in self.workspaces():
            close_workspace(workspace)


def open_library(config: Config) -> OpenShelf:
    """Every workspace of the configuration, in order."""
    opened: list[Workspace] = []
    try:
        for asked in config.workspaces:
            opened.append(open_workspace(asked, config))
    except BaseException:
        _close_all(opened)
        raise
    return OpenShelf(opened)


def _close_all(workspaces: Sequence[Workspace]) -> None:
    for workspace in workspaces:
        close_workspace(workspace)
