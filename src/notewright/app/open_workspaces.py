"""The workspaces of a server, opened and closed as its owner adds and removes them."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from notewright.accounts.base import Accounts
from notewright.accounts.sqlite import SqliteAccounts
from notewright.app.opening import close_workspace, has_registry, open_registry, open_workspace, rules_of
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import Library, effective_workspaces
from notewright.engine.workspace import UserQuota, Workspace
from notewright.errors import Problem
from notewright.ledger.base import Change

log = logging.getLogger(__name__)
Heard = Callable[[Workspace, Change], None]
CALL_SECONDS = 60.0  # after which nobody uses a workspace any more that is not served
AGAIN_SECONDS = 30.0  # between two attempts to open a workspace that could not be


class OpenWorkspaces(Library):
    """The workspaces of a configuration, open until closed. What the owner changes in the registry holds at the next
    question: no server has to be started again.

    Without a registry that of the state folder is followed as soon as there is one; workspaces that were added are for
    those who serve with it."""

    def __init__(
        self,
        config: Config,
        registry: Accounts | None = None,
        heard: Heard | None = None,
        *,
        live: bool = False,
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
        self._data_version: int | None = None
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
        changed = registry is not None and registry.data_version() != self._data_version
        return changed or time.monotonic() >= self._try_again

    def _owners(self) -> Accounts | None:
        """What the owner changed: one stat where nothing ever was."""
        if self._registry is None and self._kept is None and has_registry(self._config):
            with self._opening:
                if self._kept is None:
                    self._kept = open_registry(self._config)
        return self._registry or self._kept

    def _follow(self, *, strict: bool = False) -> None:
        """Open what is new, change what is there, let go of what is gone. Nobody who asks meanwhile is told the old."""
        registry = self._owners()
        data_version = registry.data_version() if registry is not None else None
        asked = effective_workspaces(self._config, registry, added=self._registry is not None)
        shelf = [ws for one in asked if (ws := self._opened(one, strict)) is not None]
        named = {ws.store.identity for ws in shelf}
        gone = [location for location, ws in self._open.items() if ws.store.identity not in named]
        closing = [self._open.pop(location) for location in gone]
        self._try_again = math.inf if len(shelf) == len(asked) else time.monotonic() + AGAIN_SECONDS
        self._shelf, self._data_version = tuple(shelf), data_version
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
            return replace(there, name=asked.name, id=asked.id, user_quota=self._user_quota(), **rules_of(asked))
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
