"""Of all processes that serve one folder one is elected: whoever holds an advisory lock on a file beside the index.

What it wrote into the file is believed only while it holds the lock, which the kernel releases when it dies.
"""

import fcntl
import os
from pathlib import Path


class Election:
    """One process's part in it. The file may be deleted at any moment; then everybody stands again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "follower"
        self._held: int | None = None

    @property
    def won(self) -> bool:
        return self._held is not None

    def stand(self) -> bool:
        """Be the one, still or from now on. False where somebody else is, or the file cannot be made."""
        if self.holds():
            return True
        self.resign()
        try:
            handle = self._locked()
        except OSError:
            return False
        self._held = handle
        self.say(fresh=False)
        return True

    def holds(self) -> bool:
        """The lock we hold is on the file that everybody else finds."""
        if self._held is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._held), os.stat(self._file))
        except OSError:
            return False

    def say(self, *, fresh: bool) -> None:
        """What the others may rely on."""
        if self._held is not None:
            os.ftruncate(self._held, 0)
            os.pwrite(self._held, b"fresh" if fresh else b"", 0)

    def others_are_fresh(self) -> bool:
        """Another process follows, and has caught up since it began."""
        try:
            if self._file.read_bytes() != b"fresh":
                return False
            os.close(self._locked())
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def resign(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _locked(self) -> int:
        """The file, open and ours alone; BlockingIOError while it is somebody else's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return handle
