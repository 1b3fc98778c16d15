"""Names as they are spelled, on a file system that takes two spellings for one name (APFS, exFAT, NTFS).

There `Tea.md` is found where `tea.md` is asked for. A store tells the two apart as everywhere else: what is spelled
otherwise is not there, and a rename that changes the case alone gives the one file another spelling.
"""

import os
import stat
import time
import unicodedata

from notewright.notes.path import path_key
from notewright.stores.folder.paths import Root

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SWAPPED = str.maketrans(_LETTERS + _LETTERS.upper(), _LETTERS.upper() + _LETTERS)
_SURE_NS = 3_000_000_000  # a folder changed more recently is listed again: some count time in steps of 2 s
_MAX_LISTED = 256  # folders whose names are remembered


class Spelling:
    def __init__(self, root: Root) -> None:
        self._root = root
        self.ignores_case: bool | None = None  # None: not known yet
        self._listed: dict[str, tuple[int, frozenset[str]]] = {}  # folder → when it changed, its names

    def folds(self, root: int) -> bool:
        """Whether the file system ignores case. Found out by asking for a name that is there in the other case."""
        if self.ignores_case is None:
            try:
                self.ignores_case = _ignores_case(root)
            except OSError:  # it may not be listed, and will not be written to either
                return False
        return self.ignores_case is True

    def is_exact(self, root: int, path: str) -> bool:
        """Whether every name of the path is spelled so, or is not there at all as far as this can tell."""
        if not self.folds(root):
            return True
        pieces = path.split("/")
        try:
            return all(
                unicodedata.normalize("NFC", name) in self._names(root, "/".join(pieces[:depth]))
                for depth, name in enumerate(pieces)
            )
        except OSError:  # nothing there, or a symlink on the way: whoever opens it says what is wrong
            return True

    def _names(self, root: int, folder: str) -> frozenset[str]:
        with self._root.folder(root, folder) as opened:
            changed = os.fstat(opened).st_mtime_ns
            known = self._listed.get(folder)
            if known is not None and known[0] == changed and time.time_ns() - changed > _SURE_NS:
                return known[1]
            names = frozenset(unicodedata.normalize("NFC", name) for name in os.listdir(opened))
        if len(self._listed) >= _MAX_LISTED:
            self._listed.clear()
        self._listed[folder] = changed, names
        return names

    def respell(self, root: int, path: str) -> None:
        """Spell every name of the path so, where a file or folder is there in another spelling."""
        pieces = path.split("/")
        for depth, name in enumerate(pieces):
            folder = "/".join(pieces[:depth])
            if unicodedata.normalize("NFC", name) not in self._names(root, folder):
                with self._root.folder(root, folder) as opened:
                    self._respell(opened, name)
                    os.fsync(opened)
                self._listed.clear()

    def _respell(self, folder: int, name: str) -> None:
        twin = next((one for one in os.listdir(folder) if path_key(one) == path_key(name)), None)
        if twin is None:
            return
        os.rename(twin, name, src_dir_fd=folder, dst_dir_fd=folder)
        if name not in os.listdir(folder):  # a kernel that takes both for one file has done nothing
            # A file between two names is hidden, and its bytes are in the ledger; a folder stays to be seen.
            is_folder = stat.S_ISDIR(os.lstat(twin, dir_fd=folder).st_mode)
            from notewright.stores.folder.temp_names import temp_name

            between = f"{name} (being renamed)" if is_folder else str(temp_name(name, "respell"))
            os.rename(twin, between, src_dir_fd=folder, dst_dir_fd=folder)
            os.rename(between, name, src_dir_fd=folder, dst_dir_fd=folder)


def _ignores_case(folder: int) -> bool | None:
    """None where nothing is there to try it with."""
    names = set(os.listdir(folder))
    other = next((name.translate(_SWAPPED) for name in names if name.translate(_SWAPPED) not in names), None)
    if other is None:
        return None
    try:
        os.lstat(other, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True
