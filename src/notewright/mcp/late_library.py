"""A library that opens while the server already answers."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from notewright.engine.workspace import Workspace
from notewright.surfaces.base import Library, Surface

log = logging.getLogger(__name__)


class OpenLibrary(Library, Protocol):
    def close(self) -> None: ...


class LateLibrary:
    """The library that `opened` gives: opened in a thread of its own from `begin` on, or when somebody first asks.

    Who asks before it is open waits. If it fails, every question does. What `surfaces` begin with follows at once.
    """

    def __init__(self, opened: Callable[[], OpenLibrary], surfaces: Sequence[Surface] = ()) -> None:
        self._opened = opened
        self._beginnings = [surface.begin for surface in surfaces if surface.begin is not None]
        self._library: Future[OpenLibrary] = Future()
        self._lock = threading.Lock()
        self._begun = False

    def begin(self) -> None:
        with self._lock:
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._open, name="open", daemon=True).start()

    def __enter__(self) -> "LateLibrary":
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> None:
        try:
            library = self._opened()
        except BaseException as error:
            self._library.set_exception(error)
            return
        self._library.set_result(library)
        self._begin_in(library)

    def _begin_in(self, library: OpenLibrary) -> None:
        """A surface that cannot begin now will when it is called."""
        try:
            for begin in self._beginnings:
                for ws in library.workspaces():
                    begin(ws)
        except Exception:
            log.debug("a surface could not begin", exc_info=True)

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
        """Closed if it was ever opened; what is not open by now is left to the end of the process."""
        try:
            if self._begun and self._library.exception(timeout=1) is None:
                self._library.result().close()
        except TimeoutError:
            log.warning("the library was not open yet when it was to be closed")
