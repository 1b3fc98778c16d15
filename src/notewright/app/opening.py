"""Opening workspaces: the one place that names a concrete store, index and ledger. The command line needs no more."""

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from notewright.accounts.base import Accounts
from notewright.accounts.sqlite import SqliteAccounts
from notewright.config.aws import aws_endpoint, aws_profile, aws_region
from notewright.config.load import Config, WorkspaceConfig
from notewright.config.locations import bucket_location, is_bucket, refuse_not_yet
from notewright.engine.access import Access
from notewright.engine.indexing.index_snapshot import IndexSnapshot
from notewright.engine.indexing.indexer import Indexer
from notewright.engine.library import Library, effective_workspaces
from notewright.engine.workspace import Limits, UserQuota, Workspace
from notewright.errors import Busy, Invalid, Problem
from notewright.index.base import Index
from notewright.index.sqlite.index import SqliteIndex
from notewright.ledger.base import Change, Ledger
from notewright.ledger.sqlite import SqliteLedger
from notewright.locks import FileLocks
from notewright.stores.base import Store
from notewright.stores.folder.store import FolderStore

if TYPE_CHECKING:  # few need pycrdt, and a search loads no backups
    from notewright.engine.transfer.manifest import BackupPlace, Destination
    from notewright.stores.live.documents import LiveDocuments
    from notewright.stores.s3.settings import BucketSettings

log = logging.getLogger(__name__)
Heard = Callable[[Workspace, Change], None]
CALL_SECONDS = 60.0  # after which nobody uses a workspace any more that is not served
AGAIN_SECONDS = 30.0  # between two attempts to open a workspace that could not be


def open_workspace(
    asked: WorkspaceConfig,
    config: Config,
    *,
    watch: bool = True,
    follow: bool = True,
    heard: Heard | None = None,
    live: bool = False,
) -> Workspace:
    """A workspace ready for its first call: what a dead process left is finished, and the index is being followed.

    Without `watch` the index is brought up to date once, for a command that ends soon; without `follow` it is left as
    it is, for one that asks it nothing and writes nothing. `live`: this process can have documents open.
    """
    store = open_store(asked, config, serving=watch)
    documents = None
    if live and asked.live and not asked.read_only:
        store, documents = _with_documents(asked, config, store)
    ledger = SqliteLedger.open(Path(config.state) / store.identity)
    cache = Path(config.cache) / store.identity
    index = SqliteIndex(cache)
    daily = _forgetting(ledger, config) if watch else None
    snapshot = _snapshot(store, index, asked, writes=watch and not asked.read_only)
    follower = Indexer(store, index, FileLocks(cache), watch=watch, daily=daily, snapshot=snapshot)
    ws = Workspace(
        name=asked.name,
        id=asked.id,
        store=store,
        index=index,
        ledger=ledger,
        follower=follower,
        locks=FileLocks(Path(config.state) / store.identity / "locks"),
        live=documents,
        **_rules(asked),
    )
    if heard is not None:
        ws = replace(ws, heard=heard)
    if documents is not None:
        from notewright.engine.changes.live import follow as follow_documents

        follow_documents(replace(ws, access=Access()), documents)
    if ledger.unfinished():  # seldom: the machine of changes is not loaded for nothing
        from notewright.engine.changes.commit import recover

        recover(ws)
    if asked.bootstrap == "para":
        from notewright.engine.write import bootstrap

        bootstrap(ws)
    if documents is not None:
        documents.host()
    if follow:
        follower.start()
    return ws


def _snapshot(store: Store, index: Index, asked: WorkspaceConfig, *, writes: bool) -> IndexSnapshot | None:
    """The copy of the index in a bucket. Machines may reach one bucket by different addresses: its name and prefix say
    which notes they are."""
    files = store.own_files("index")
    return None if files is None else IndexSnapshot(index, files, asked.location, writes=writes)


def open_store(asked: WorkspaceConfig, config: Config, *, serving: bool = False) -> Store:
    """Where the notes of a workspace are; a Problem that says what to install or set where they cannot be served."""
    return _OPENERS["bucket" if is_bucket(asked.location) else "folder"](asked, config, serving)


def _open_folder(asked: WorkspaceConfig, config: Config, serving: bool) -> Store:
    return FolderStore(Path(asked.location))


def _with_documents(asked: WorkspaceConfig, config: Config, folder: Store) -> "tuple[Store, LiveDocuments]":
    """The same folder, with its open notes as shared documents."""
    try:
        from notewright.stores.live.documents import LiveDocuments
        from notewright.stores.live.store import LiveStore
    except ImportError:
        hint = "pip install 'notewright[live]'"
        raise Invalid(f"live:{asked.location}: live documents need pycrdt", hint=hint, what="location") from None
    documents = LiveDocuments(folder, Path(config.state) / folder.identity)
    return LiveStore(folder, documents), documents


def _open_bucket(asked: WorkspaceConfig, config: Config, serving: bool) -> Store:
    settings = _bucket_settings(asked)
    from notewright.stores.s3.lease import LeaseOwner
    from notewright.stores.s3.store import S3Store

    store = S3Store.open(asked.location, settings, state=Path(config.state))
    if store.refuses_writes:
        log.warning("the workspace %s: %s", asked.name, store.refuses_writes)
    locks = FileLocks(Path(config.state) / store.identity / "locks")
    using = locks.try_lock("lease", shared=True)

    def is_last() -> bool:
        """No other process of this machine has the bucket open."""
        if using is not None:
            using.release()
        alone = locks.try_lock("lease")
        if alone is not None:
            alone.release()
        return alone is not None

    owner = LeaseOwner(_machine_id(Path(config.state)), os.uname().nodename)
    store.hold_lease(owner, is_last=is_last, now=serving and not asked.read_only)
    return store


def _bucket_settings(asked: WorkspaceConfig) -> "BucketSettings":
    try:
        from notewright.stores.s3.settings import BucketSettings
    except ImportError:
        hint = "pip install 'notewright[s3]'"
        raise Invalid(f"{asked.location}: buckets need the package obstore", hint=hint, what="location") from None
    endpoint, region = asked.endpoint or aws_endpoint(), asked.region or aws_region()
    poll_seconds = float(max(asked.poll_seconds, 1))
    return BucketSettings(endpoint, region, asked.path_style, poll_seconds, profile=aws_profile())


def refuse_unreachable(places: Iterable[WorkspaceConfig]) -> None:
    """What cannot be used is said at the start: a Problem with what to install or set. Folders were looked for when
    the configuration was read."""
    for asked in places:
        if is_bucket(asked.location):
            settings = _bucket_settings(asked)
            from notewright.stores.s3 import reach

            reach.refuse_unreachable(asked.location, settings)


def places_beside(config: Config) -> list[WorkspaceConfig]:
    """What is used beside the workspaces: where backups go, and where workspaces are made."""
    root = config["workspaces_root"]
    made_in = [WorkspaceConfig("workspaces", "workspaces", root)] if root else []
    return [_backups_at(config["backup.to"], config), *made_in] if config["backup.to"] else made_in


def _machine_id(state: Path) -> str:
    """The same for all processes that keep their history here, and for no others."""
    place, made = state / "machine-id", os.urandom(16).hex()
    if not place.exists():
        (beside := state / f"machine-id-{made}").write_text(made)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(beside, place)
        beside.unlink()
    return place.read_text()


_OPENERS: dict[str, Callable[[WorkspaceConfig, Config, bool], Store]] = {
    "folder": _open_folder,
    "bucket": _open_bucket,
}


def _rules(asked: WorkspaceConfig) -> dict[str, Any]:
    """What may change while a workspace is open."""
    return {
        "access": Access(read_only=asked.read_only, hide=asked.hide, write_under=asked.write_under),
        "timezone": ZoneInfo(asked.timezone),
        "limits": Limits(asked.max_file_size, asked.quota_files, asked.quota_bytes),
    }


def _forgetting(ledger: Ledger, config: Config) -> Callable[[], None]:
    """What keeps the history within its bounds."""
    days, most = config["history.keep_days"], config["history.keep_bytes"]
    return lambda: ledger.trim(keep_days=days, keep_bytes=most, now=time.time())


def close_workspace(ws: Workspace) -> None:
    """Stop following, finish what was begun, let go of the files."""
    if ws.live is not None:  # what was typed is saved, which takes all the rest
        ws.live.close()
    ws.follower.close()
    ws.index.close()
    ws.ledger.close()
    ws.store.close()


def open_backups(location: str, config: Config) -> "BackupPlace":
    """The folder or bucket that backups are kept in, to be closed; refused as a workspace there would be."""
    if not is_bucket(location):
        from notewright.engine.transfer.backup_folder import BackupFolder

        refuse_not_yet(location)
        return BackupFolder(location)
    from notewright.engine.transfer.backup_bucket import BackupBucket

    return BackupBucket(open_store(_backups_at(bucket_location(location), config), config))


def _backups_at(location: str, config: Config) -> WorkspaceConfig:
    endpoint, region = config["backup.endpoint"], config["backup.region"]
    return WorkspaceConfig("backups", "backups", location, endpoint=endpoint, region=region)


def open_destination(location: str, config: Config) -> "Destination":
    """A folder or bucket to copy files to, to be closed."""
    if not is_bucket(location):
        from notewright.engine.transfer.backup_folder import NewFolder

        return NewFolder(location)
    from notewright.engine.transfer.backup_bucket import NewBucket

    return NewBucket(open_store(WorkspaceConfig("copy", "copy", location), config))


def carry_history(ws: Workspace, store: Store, config: Config) -> int | None:
    """Give the place that a workspace was moved to its history, so that undo works there: how many changes. None where
    that place has changes of its own. Called while nobody can change the old place."""
    if ws.ledger.unfinished():
        raise Busy("a change of the notes is not finished yet", hint="wait for it")
    assert isinstance(ws.ledger, SqliteLedger)
    with contextlib.closing(SqliteLedger.open(Path(config.state) / store.identity)) as ledger:
        return ledger.take_over(ws.ledger)


def enclosing(folder: str, config: Config) -> str | None:
    """The nearest folder around this one that is a workspace already: it has a history, or it is an Obsidian vault."""
    for outer in Path(folder).parents:
        try:
            found = outer.stat()
        except OSError:
            return None
        kept = Path(config.state) / f"{found.st_dev:x}-{found.st_ino:x}" / "ledger.db"
        if os.path.exists(kept) or os.path.isdir(outer / ".obsidian"):  # False for what may not be looked at
            return str(outer)
    return None


class OpenWorkspaces(Library):
    """The workspaces of a configuration, open until closed. What the owner changes in the registry holds at the next
    question: no server has to be started again.

    Without a registry that of the state folder is followed as soon as there is one; workspaces that were added are for
    those who serve with it."""

    def __init__(
        self, config: Config, registry: Accounts | None = None, heard: Heard | None = None, *, live: bool = False
    ) -> None:
        """`heard` is told of every change set that is done. `live`: notes can be opened as shared documents here."""
        super().__init__(self._now)
        self._config = config
        self._heard = heard
        self._live = live
        self._registry = registry
        self._kept: SqliteAccounts | None = None
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._open: dict[str, Workspace] = {}  # by location
        self._leaving: list[Workspace] = []  # no longer served
        self._complained: dict[str, str] = {}  # what was said of those that cannot be opened
        self._shelf: Sequence[Workspace] = ()
        self._pulse: int | None = None
        self._try_again = math.inf  # when what could not be opened is tried again
        with self._lock:
            self._follow(strict=True)

    def reconfigure(self, config: Config) -> None:
        """From now on as this configuration says."""
        with self._lock:
            self._config = config
            self._follow()

    def _now(self) -> Sequence[Workspace]:
        if self._is_behind():
            with self._lock:
                if self._is_behind():
                    self._follow()
        return self._shelf

    def _is_behind(self) -> bool:
        registry = self._owners()
        changed = registry is not None and registry.pulse() != self._pulse
        return changed or time.monotonic() >= self._try_again

    def _owners(self) -> Accounts | None:
        """What the owner changed: one stat where nothing ever was."""
        if self._registry is None and self._kept is None and _has_registry(self._config):
            with self._opening:
                if self._kept is None:
                    self._kept = open_registry(self._config)
        return self._registry or self._kept

    def _follow(self, *, strict: bool = False) -> None:
        """Open what is new, change what is there, let go of what is gone. Nobody who asks meanwhile is told the old."""
        registry = self._owners()
        pulse = registry.pulse() if registry is not None else None
        asked = effective_workspaces(self._config, registry, added=self._registry is not None)
        shelf = [ws for one in asked if (ws := self._opened(one, strict)) is not None]
        named = {ws.store.identity for ws in shelf}
        gone = [location for location, ws in self._open.items() if ws.store.identity not in named]
        closing = [self._open.pop(location) for location in gone]
        self._try_again = math.inf if len(shelf) == len(asked) else time.monotonic() + AGAIN_SECONDS
        self._shelf, self._pulse = tuple(shelf), pulse
        if closing:  # calls that are under way still use them
            self._leaving += closing
            later = threading.Timer(CALL_SECONDS, self._let_go, [closing])
            later.daemon = True
            later.start()

    def _let_go(self, closing: list[Workspace]) -> None:
        with self._lock:
            left = [ws for ws in closing if any(ws is one for one in self._leaving)]
            self._leaving = [ws for ws in self._leaving if not any(ws is one for one in left)]
            self._close(left)

    def _opened(self, asked: WorkspaceConfig, strict: bool) -> Workspace | None:
        """A workspace as it is wanted now; None for one that cannot be opened beside others that can."""
        try:
            there = self._open.get(asked.location)
            if there is None:
                there = self._open[asked.location] = open_workspace(
                    asked, self._config, heard=self._heard, live=self._live
                )
            self._complained.pop(asked.location, None)
            return replace(there, name=asked.name, id=asked.id, user_quota=self._user_quota(), **_rules(asked))
        except Problem as problem:
            if strict and any(asked.location == one.location for one in self._config.workspaces):
                self._close(list(self._open.values()))
                raise
            if self._complained.get(asked.location) != str(problem):
                log.warning("the workspace %s cannot be opened: %s", asked.name, problem)
            self._complained[asked.location] = str(problem)
            return None

    def _user_quota(self) -> UserQuota | None:
        """Of whoever may use everything; `Principal.library` narrows it."""
        files, size = self._config["user_quota_files"], self._config["user_quota_bytes"]
        return None if files is None and size is None else UserQuota(files, size, lambda: self._shelf)

    @staticmethod
    def _close(workspaces: list[Workspace]) -> None:
        for workspace in workspaces:
            close_workspace(workspace)

    def close(self) -> None:
        with self._lock:
            self._close([*self._open.values(), *self._leaving])
            self._open, self._leaving = {}, []
            if self._kept is not None:
                self._kept.close()


def open_registry(config: Config) -> SqliteAccounts:
    return SqliteAccounts.open(Path(config.state))


def _has_registry(config: Config) -> bool:
    return os.path.exists(os.path.join(config.state, "registry.db"))


def as_owned(config: Config, *, added: bool = True) -> Config:
    """The same configuration with what the owner changed, if anything ever was; for a command that ends soon."""
    if not _has_registry(config):
        return config
    registry = open_registry(config)
    try:
        return replace(config, workspaces=effective_workspaces(config, registry, added=added))
    finally:
        registry.close()
