"""Of all processes that serve one folder one is elected: whoever holds an advisory lock on a file beside the index.

Once it has caught up it holds a second one, which the others try. Nothing is written: what a file says outlives who
wrote it, and a lock does not.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class LeaderLock:
    """One process's part in it. The files may be deleted at any moment; then everybody stands again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file, self._sign = folder, folder / "follower", folder / "fresh"
        self._held: int | None = None
        self._shown: int | None = None

    @property
    def won(self) -> bool:
        return self._held is not None

    def stand(self) -> bool:
        """Be the one, still or from now on. False where somebody else is, or the file cannot be made."""
        if self.holds():
            return True
        self.resign()
        try:
            self._held = self._locked(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def holds(self) -> bool:
        """The locks we hold are on the files that everybody else finds."""
        return self._finds(self._held, self._file) and (self._shown is None or self._finds(self._shown, self._sign))

    def _finds(self, handle: int | None, file: Path) -> bool:
        try:
            return handle is not None and os.path.samestat(os.fstat(handle), os.stat(file))
        except OSError:
            return False

    def say_fresh(self) -> None:
        """From now on the others may rely on us. Who tries the lock holds it for an instant: it is waited for."""
        if self._held is not None and self._shown is None:
            with suppress(OSError):  # then they wait for themselves
                self._shown = self._locked(self._sign, fcntl.LOCK_EX)

    def others_are_fresh(self) -> bool:
        """Another process follows, and has caught up since it began."""
        try:
            os.close(self._locked(self._sign, fcntl.LOCK_SH | fcntl.LOCK_NB))
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def resign(self) -> None:
        for handle in (self._shown, self._held):
            if handle is not None:
                os.close(handle)
        self._held = self._shown = None

    def _locked(self, file: Path, kind: int) -> int:
        """The file, open and locked; BlockingIOError where that is not to be had now and was not to be waited for."""
        self._folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, kind)
        except BaseException:
            os.close(handle)
            raise
        return handle
