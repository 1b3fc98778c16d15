"""Opens workspaces, backups and the registry: the one place that names a concrete store, index and ledger. The command
line needs no more."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notewright.config.load import Config, WorkspaceConfig
from notewright.config.locations import is_bucket, parse_folder_or_bucket
from notewright.engine.access import Access
from notewright.engine.indexing.difference import IdleFollower, is_unchanged
from notewright.engine.workspace import IndexFollower, Limits, Workspace
from notewright.errors import Busy, Invalid
from notewright.index.sqlite.index import SqliteIndex
from notewright.lazy_dataclass import replace
from notewright.ledger.sqlite import SqliteLedger
from notewright.locks import FileLocks
from notewright.notes.times import load_timezone
from notewright.stores.folder.store import FolderStore

if TYPE_CHECKING:  # few need pycrdt, and a search loads no backups, no accounts and nothing that fills an index
    from notewright.accounts.sqlite import SqliteAccounts
    from notewright.engine.transfer.manifest import BackupPlace
    from notewright.ledger.base import Change
    from notewright.stores.base import Store
    from notewright.stores.live.documents import LiveDocuments
    from notewright.stores.s3.settings import BucketSettings


def open_workspace(
    workspace: WorkspaceConfig,
    config: Config,
    *,
    watch: bool = True,
    follow: bool = True,
    reads: bool = False,
    on_change: Callable[[Workspace, Change], None] | None = None,
    live: bool = False,
) -> Workspace:
    """A workspace ready for its first call: changes that a dead process left are finished, and the index is followed.

    Without `watch` the index is brought up to date once, for a command that ends soon; without `follow` it is left as
    it is, for a command that neither uses it nor writes. `reads`: the caller writes nothing, so an index that is up
    to date needs no follower. `on_change` is called for every change set. `live`: this process can have documents open.
    """
    store = open_store(workspace, config, serving=watch)
    documents = None
    if live and workspace.live and not workspace.read_only:
        store, documents = _with_documents(workspace, config, store)
    state, cache = Path(config.state) / store.identity, Path(config.cache) / store.identity
    ledger = SqliteLedger.open(state)
    index = SqliteIndex(cache)
    locks, unfinished = FileLocks(cache), bool(ledger.find_unfinished())
    only_reads = reads and not unfinished and workspace.bootstrap is None
    follower: IndexFollower
    if only_reads and (not follow or is_unchanged(store, index, locks)):
        follower, start = IdleFollower(index), None
    else:
        from notewright.engine.indexing.indexer import Indexer

        def trim_history() -> None:
            ledger.trim(keep_days=config["history.keep_days"], keep_bytes=config["history.keep_bytes"], now=time.time())

        snapshot = None
        if store.objects is not None:  # in a bucket
            from notewright.engine.indexing.index_snapshot import IndexSnapshot

            # Machines may reach one bucket by different addresses: its name and prefix say which notes they are.
            objects, writes = store.objects.at(".notewright/index"), watch and not workspace.read_only
            snapshot = IndexSnapshot(index, objects, workspace.location, writes=writes)
        daily = trim_history if watch else None
        follower = indexer = Indexer(store, index, locks, watch=watch, daily=daily, snapshot=snapshot)
        start = indexer.start if follow else None
    ws = Workspace(
        name=workspace.name,
        id=workspace.id,
        store=store,
        index=index,
        ledger=ledger,
        follower=follower,
        locks=FileLocks(state / "locks"),
        live=documents,
        on_change=on_change,
        **mutable_settings(workspace),
    )
    if documents is not None:
        from notewright.engine.changes.live import connect_documents

        connect_documents(replace(ws, access=Access()), documents)
    if unfinished:  # rare, so the modules for changes are imported only then
        from notewright.engine.changes.commit import recover

        recover(ws)
    if workspace.bootstrap == "para":
        from notewright.engine.write import bootstrap

        bootstrap(ws)
    if documents is not None:
        documents.try_host()
    if start is not None:
        start()
    return ws


def open_store(workspace: WorkspaceConfig, config: Config, *, serving: bool = False) -> Store:
    """The store of a workspace; a Problem that says what to install or set where it cannot be used."""
    if is_bucket(workspace.location):
        return _open_bucket(workspace, config, serving)
    return FolderStore(Path(workspace.location))


def _with_documents(workspace: WorkspaceConfig, config: Config, folder: Store) -> tuple[Store, LiveDocuments]:
    """The store of the same folder with its open notes as shared documents."""
    try:
        from notewright.stores.live.documents import LiveDocuments
        from notewright.stores.live.store import LiveStore
    except ImportError:
        hint = "pip install 'notewright[live]'"
        raise Invalid(f"live:{workspace.location}: live documents need pycrdt", hint=hint, what="location") from None
    documents = LiveDocuments(folder, Path(config.state) / folder.identity)
    return LiveStore(folder, documents), documents


def _open_bucket(workspace: WorkspaceConfig, config: Config, serving: bool) -> Store:
    settings = _bucket_settings(workspace)
    import logging

    from notewright.stores.s3.lease import LeaseOwner
    from notewright.stores.s3.store import S3Store

    store = S3Store(workspace.location, settings, state=Path(config.state))
    if store.refuses_writes:
        logging.getLogger(__name__).warning("the workspace %s: %s", workspace.name, store.refuses_writes)
    locks = FileLocks(Path(config.state) / store.identity / "locks")
    shared = locks.try_lock("lease", shared=True)

    def is_last() -> bool:
        """Whether no other process of this machine has the bucket open."""
        if shared is not None:
            shared.release()
        exclusive = locks.try_lock("lease")
        if exclusive is not None:
            exclusive.release()
        return exclusive is not None

    owner = LeaseOwner(_machine_id(Path(config.state)), os.uname().nodename)
    store.hold_lease(owner, is_last=is_last, now=serving and not workspace.read_only)
    return store


def _machine_id(state: Path) -> str:
    """The same for all processes that share this state folder, and for no others."""
    file, made = state / "machine-id", os.urandom(16).hex()
    if not file.exists():
        (temp := state / f"machine-id-{made}").write_text(made)
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(temp, file)
        temp.unlink()
    return file.read_text()


def _bucket_settings(workspace: WorkspaceConfig) -> BucketSettings:
    try:
        from notewright.stores.s3.settings import BucketSettings
    except ImportError:
        hint = "pip install 'notewright[s3]'"
        raise Invalid(f"{workspace.location}: buckets need the package obstore", hint=hint, what="location") from None
    from notewright.config.aws import aws_endpoint, aws_region, read_aws_profile

    endpoint, region = workspace.endpoint or aws_endpoint(), workspace.region or aws_region()
    poll_seconds = float(max(workspace.poll_seconds, 1))
    return BucketSettings(endpoint, region, workspace.path_style, poll_seconds, profile=read_aws_profile())


def refuse_unreachable(locations: Iterable[WorkspaceConfig]) -> None:
    """Refuse buckets that cannot be used at the start: a Problem with what to install or set. Folders were checked when
    the configuration was read."""
    for workspace in locations:
        if is_bucket(workspace.location):
            settings = _bucket_settings(workspace)
            from notewright.stores.s3.objects import refuse_unreachable_bucket

            refuse_unreachable_bucket(workspace.location, settings)


def other_locations(config: Config) -> list[WorkspaceConfig]:
    """Folders and buckets beside those of the workspaces: for backups, and for workspaces to be made in."""
    root = config["workspaces_root"]
    locations = [_backup_location(config["backup.to"], config)] if config["backup.to"] else []
    return [*locations, WorkspaceConfig("workspaces", "workspaces", root)] if root else locations


def mutable_settings(workspace: WorkspaceConfig) -> dict[str, Any]:
    """The fields of a Workspace that may change while it is open."""
    return {
        "access": Access(read_only=workspace.read_only, hide=workspace.hide, write_under=workspace.write_under),
        "timezone": load_timezone(workspace.timezone),
        "limits": Limits(workspace.max_file_size, workspace.quota_files, workspace.quota_bytes),
    }


def close_workspace(ws: Workspace) -> None:
    """Stop following, finish what was begun, close the files."""
    if ws.live is not None:  # saves what was typed, which needs all the rest
        ws.live.close()
    ws.follower.close()
    ws.index.close()
    ws.ledger.close()
    ws.store.close()


def open_backups(location: str, config: Config) -> BackupPlace:
    """The folder or bucket that backups are kept in, to be closed; refused as a workspace there would be."""
    from notewright.engine.transfer.backup_bucket import BackupBucket
    from notewright.engine.transfer.backup_folder import BackupFolder

    place = parse_folder_or_bucket(location)
    return (
        BackupBucket(open_store(_backup_location(place, config), config)) if is_bucket(place) else BackupFolder(place)
    )


def _backup_location(location: str, config: Config) -> WorkspaceConfig:
    endpoint, region = config["backup.endpoint"], config["backup.region"]
    return WorkspaceConfig("backups", "backups", location, endpoint=endpoint, region=region)


def open_destination(location: str, config: Config) -> Store:
    """A folder or bucket to copy files to, to be closed. A folder is made if it is missing."""
    if not is_bucket(location):
        from notewright.engine.transfer.manifest import os_errors_as_problems

        with os_errors_as_problems(location):
            os.makedirs(location, exist_ok=True)
    return open_store(WorkspaceConfig("copy", "copy", location), config)


def transfer_history(ws: Workspace, store: Store, config: Config) -> int | None:
    """Copy a moved workspace's history to its new store, so that undo works there: how many changes. None where the new
    store has changes of its own. To be called while nothing can change the old one."""
    if ws.ledger.find_unfinished():
        raise Busy("a change of the notes is not finished yet", hint="wait for it")
    assert isinstance(ws.ledger, SqliteLedger)
    with contextlib.closing(SqliteLedger.open(Path(config.state) / store.identity)) as ledger:
        return ledger.take_over(ws.ledger)


def find_enclosing_workspace(folder: str, config: Config) -> str | None:
    """The nearest folder around this one that is a workspace already: it has a history, or it is an Obsidian vault."""
    for outer in Path(folder).parents:
        try:
            stat = outer.stat()
        except OSError:
            return None
        history = Path(config.state) / f"{stat.st_dev:x}-{stat.st_ino:x}" / "ledger.db"
        if os.path.exists(history) or os.path.isdir(outer / ".obsidian"):  # False for what may not be looked at
            return str(outer)
    return None


def open_registry(config: Config) -> SqliteAccounts:
    from notewright.accounts.sqlite import SqliteAccounts

    return SqliteAccounts.open(Path(config.state))


def has_registry(config: Config) -> bool:
    return os.access(f"{config.state}/registry.db", os.F_OK)  # called for every call of a tool


def with_owner_changes(config: Config, *, added: bool = True) -> Config:
    """The same configuration with what the owner changed, if anything ever was; for a command that ends soon."""
    if not has_registry(config):
        return config
    from notewright.engine.library import effective_workspaces

    with contextlib.closing(open_registry(config)) as registry:
        return replace(config, workspaces=effective_workspaces(config, registry, added=added))


def record_admin_action(config: Config, action: str, **facts: Any) -> None:
    """Write what the owner did by command into the audit log of the servers that use this state."""
    from notewright.server.ops.audit_log import AuditLog, audit_file

    AuditLog(audit_file(config["audit_log"], config.state)).record_admin(action, user=process_user(), **facts)


def process_user() -> str:
    """The user who runs this process, for the history."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return ""
