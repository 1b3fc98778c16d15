"""Opening workspaces: the one place that names a concrete store, index and ledger. The command line needs no more."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from notewright import engine
from notewright.config import Config, WorkspaceConfig, with_settings
from notewright.engine import Workspace
from notewright.errors import Invalid, Problem
from notewright.index.sqlite import SqliteIndex
from notewright.ledger import Ledger, Registry, WorkspaceRecord
from notewright.ledger.registry_sqlite import SqliteRegistry
from notewright.ledger.sqlite import SqliteLedger
from notewright.stores.folder import FolderStore

log = logging.getLogger(__name__)
CALL_SECONDS = 60.0  # after which nobody uses a workspace any more that is not served


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
        **_rules(asked),
    )
    if ledger.unfinished():  # seldom: the machine of changes is not loaded for nothing
        engine.recover(ws)
    if asked.bootstrap == "para":
        engine.bootstrap(ws)
    follower.start()
    return ws


def _rules(asked: WorkspaceConfig) -> dict[str, Any]:
    """What may change while a workspace is open."""
    return {
        "access": engine.Access(read_only=asked.read_only, hide=asked.hide, write_under=asked.write_under),
        "timezone": _zone(asked.timezone),
        "limits": engine.Limits(asked.max_file_size, asked.quota_files, asked.quota_bytes),
    }


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


class OpenShelf:
    """The workspaces of a configuration, open until closed. What the owner changes in the registry holds at the next
    question: no server has to be started again."""

    def __init__(self, config: Config, registry: Registry | None = None) -> None:
        self._config = config
        self._registry = registry
        self._lock = threading.Lock()
        self._open: dict[str, Workspace] = {}  # by location
        self._shelf = engine.Shelf(())
        self._pulse: int | None = None
        with self._lock:
            self._follow(strict=True)

    def workspaces(self) -> Sequence[Workspace]:
        return self._now().workspaces()

    @property
    def default(self) -> Workspace:
        return self._now().default

    def named(self, id_or_name: str) -> Workspace:
        return self._now().named(id_or_name)

    def reconfigure(self, config: Config) -> None:
        """From now on as this configuration says."""
        with self._lock:
            self._config = config
            self._follow()

    def _now(self) -> engine.Shelf:
        if self._registry is not None and self._registry.pulse() != self._pulse:
            with self._lock:
                self._follow()
        return self._shelf

    def _follow(self, *, strict: bool = False) -> None:
        """Open what is new, change what is there, let go of what is gone."""
        if self._registry is not None:
            self._pulse = self._registry.pulse()
        shelf: list[Workspace] = []
        for asked in as_owner_wants(self._config, self._registry):
            try:
                shelf.append(self._opened(asked))
            except Problem as problem:
                if strict and asked in self._config.workspaces:
                    self._close(list(self._open.values()))
                    raise
                log.warning("the workspace %s cannot be opened: %s", asked.name, problem)
        named = {ws.store.identity for ws in shelf}
        gone = [location for location, ws in self._open.items() if ws.store.identity not in named]
        closing = [self._open.pop(location) for location in gone]
        self._shelf = engine.Shelf(shelf)
        if closing:  # calls that are under way still use them
            threading.Timer(CALL_SECONDS, self._close, [closing]).start()

    def _opened(self, asked: WorkspaceConfig) -> Workspace:
        there = self._open.get(asked.location)
        if there is None:
            there = self._open[asked.location] = open_workspace(asked, self._config)
        return replace(there, name=asked.name, id=asked.id, **_rules(asked))

    @staticmethod
    def _close(workspaces: list[Workspace]) -> None:
        for workspace in workspaces:
            close_workspace(workspace)

    def close(self) -> None:
        with self._lock:
            self._close(list(self._open.values()))
            self._open = {}


def open_registry(config: Config) -> SqliteRegistry:
    return SqliteRegistry.open(Path(config.state))


def open_library(config: Config, registry: Registry | None = None) -> OpenShelf:
    """Every workspace of the configuration, in order; with a registry also those that the owner added."""
    return OpenShelf(config, registry)


def as_owner_wants(config: Config, registry: Registry | None) -> Sequence[WorkspaceConfig]:
    """The workspaces of a configuration with what their owner changed since, and those the owner added."""
    if registry is None:
        return config.workspaces
    records = {record.location: record for record in registry.records()}
    asked = [_changed(one, records.get(one.location), config) for one in config.workspaces]
    known = {one.location for one in asked}
    for record in records.values():
        if record.added and record.location not in known:
            asked.append(_changed(WorkspaceConfig("", "", record.location), record, config))
    return asked


def _changed(asked: WorkspaceConfig, record: WorkspaceRecord | None, config: Config) -> WorkspaceConfig:
    if record is None:
        return asked
    changed = with_settings(asked, record.settings)
    return replace(changed, read_only=changed.read_only or config["read_only"])
