"""A library that opens while the server already answers."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from notewright.engine import Workspace
from notewright.errors import NotFound
from notewright.surfaces import Library


class OpenLibrary(Library, Protocol):
    def close(self) -> None: ...


class Opening:
    """The library that `opened` gives: opened in a thread of its own from `begin` on, or when somebody first asks.

    Who asks before it is open waits. If it fails, every question does.
    """

    def __init__(self, opened: Callable[[], OpenLibrary]) -> None:
        self._opened = opened
        self._library: Future[OpenLibrary] = Future()
        self._lock = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        with self._lock:
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._open, name="open", daemon=True).start()

    def __enter__(self) -> "Opening":
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> None:
        try:
            self._library.set_result(self._opened())
        except BaseException as error:
            self._library.set_exception(error)

    def _open_one(self) -> OpenLibrary:
        if not self._begun:
            self.begin()
        return self._library.result()

    def workspaces(self) -> Sequence[Workspace]:
        return self._open_one().workspaces()

    @property
    def default(self) -> Workspace:
        return self._open_one().default

    def named(self, id_or_name: str) -> Workspace:
        return self._open_one().named(id_or_name)

    def close(self) -> None:
        """Closed if it was ever opened."""
        if self._begun and self._library.exception() is None:
            self._library.result().close()


class Bound:
    """One workspace of a library as a library of its own."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def workspaces(self) -> Sequence[Workspace]:
        return (self._workspace,)

    @property
    def default(self) -> Workspace:
        return self._workspace

    def named(self, id_or_name: str) -> Workspace:
        if id_or_name in (self._workspace.id, self._workspace.name):
            return self._workspace
        raise NotFound(f"there is no workspace {id_or_name!r}", what="workspace", workspace=id_or_name)
