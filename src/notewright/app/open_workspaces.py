"""The workspaces of a server, opened and closed as its owner adds and removes them."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from notewright.accounts.base import Accounts
from notewright.accounts.sqlite import SqliteAccounts
from notewright.app.opening import close_workspace, has_registry, mutable_settings, open_registry, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import Library, effective_workspaces
from notewright.engine.workspace import UserQuota, Workspace
from notewright.errors import Problem
from notewright.ledger.base import Change

log = logging.getLogger(__name__)
CLOSE_SECONDS = 60.0  # after which no call uses a removed workspace any more
RETRY_SECONDS = 30.0  # between two attempts to open a workspace


class OpenWorkspaces(Library):
    """The workspaces of a configuration, open until closed. What the owner changes in the registry holds from the next
    call on: no server has to be restarted.

    Without a registry that of the state folder is followed as soon as there is one; workspaces that were added are
    served only with it."""

    def __init__(
        self,
        config: Config,
        registry: Accounts | None = None,
        on_change: Callable[[Workspace, Change], None] | None = None,
        *,
        live: bool = False,
    ) -> None:
        """`on_change` is called for every change set. `live`: notes can be opened as shared documents here."""
        super().__init__(self._now)
        self._config = config
        self._on_change = on_change
        self._live = live
        self._registry = registry
        self._own_registry: SqliteAccounts | None = None
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._open: dict[str, Workspace] = {}  # by location
        self._closing: list[Workspace] = []  # no longer served
        self._logged: dict[str, str] = {}  # why a workspace cannot be opened, by location
        self._served: Sequence[Workspace] = ()
        self._data_version: int | None = None
        self._retry_at = math.inf  # when what could not be opened is tried again
        with self._lock:
            self._update(strict=True)

    def reconfigure(self, config: Config) -> None:
        """Serve what this configuration says."""
        with self._lock:
            self._config = config
            self._update()

    def _now(self) -> Sequence[Workspace]:
        if self._is_outdated():
            with self._lock:
                if self._is_outdated():
                    self._update()
        return self._served

    def _is_outdated(self) -> bool:
        registry = self._find_registry()
        changed = registry is not None and registry.data_version() != self._data_version
        return changed or time.monotonic() >= self._retry_at

    def _find_registry(self) -> Accounts | None:
        """The owner's changes; costs one stat where there never were any."""
        if self._registry is None and self._own_registry is None and has_registry(self._config):
            with self._opening:
                if self._own_registry is None:
                    self._own_registry = open_registry(self._config)
        return self._registry or self._own_registry

    def _update(self, *, strict: bool = False) -> None:
        """Open new workspaces, change the settings of those that are open, close removed ones. Calls wait meanwhile.

        `strict` raises the Problem of a workspace of the configuration that cannot be opened; else it is logged."""
        registry = self._find_registry()
        data_version = registry.data_version() if registry is not None else None
        wanted = effective_workspaces(self._config, registry, added=self._registry is not None)
        served = [ws for config in wanted if (ws := self._open_one(config, strict)) is not None]
        identities = {ws.store.identity for ws in served}
        gone = [location for location, ws in self._open.items() if ws.store.identity not in identities]
        closing = [self._open.pop(location) for location in gone]
        self._retry_at = math.inf if len(served) == len(wanted) else time.monotonic() + RETRY_SECONDS
        self._served, self._data_version = tuple(served), data_version
        if closing:  # calls that are under way still use them
            self._closing += closing
            timer = threading.Timer(CLOSE_SECONDS, self._close_removed, [closing])
            timer.daemon = True
            timer.start()

    def _close_removed(self, removed: list[Workspace]) -> None:
        with self._lock:
            for workspace in [ws for ws in self._closing if any(ws is other for other in removed)]:
                self._closing = [ws for ws in self._closing if ws is not workspace]
                close_workspace(workspace)

    def _open_one(self, wanted: WorkspaceConfig, strict: bool) -> Workspace | None:
        """A workspace with its current settings; None if it cannot be opened."""
        config = self._config
        try:
            opened = self._open.get(wanted.location)
            if opened is None:
                opened = open_workspace(wanted, config, on_change=self._on_change, live=self._live)
                self._open[wanted.location] = opened
            self._logged.pop(wanted.location, None)
            quota = None
            if config["user_quota_files"] is not None or config["user_quota_bytes"] is not None:
                # With all rights; `Principal.narrow_library` restricts it to those of a caller.
                quota = UserQuota(config["user_quota_files"], config["user_quota_bytes"], lambda: self._served)
            return replace(opened, name=wanted.name, id=wanted.id, user_quota=quota, **mutable_settings(wanted))
        except Problem as problem:
            if strict and any(wanted.location == workspace.location for workspace in config.workspaces):
                for workspace in self._open.values():
                    close_workspace(workspace)
                raise
            if self._logged.get(wanted.location) != str(problem):
                log.warning("the workspace %s cannot be opened: %s", wanted.name, problem)
            self._logged[wanted.location] = str(problem)
            return None

    def close(self) -> None:
        with self._lock:
            for workspace in (*self._open.values(), *self._closing):
                close_workspace(workspace)
            self._open, self._closing = {}, []
            if self._own_registry is not None:
                self._own_registry.close()
