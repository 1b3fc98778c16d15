"""Exact spelling of names on a file system that takes two spellings for one name (APFS, exFAT, NTFS).

There `Tea.md` is found where `tea.md` is asked for. The store tells the two apart as everywhere else: what is spelled
otherwise does not exist, and a rename that changes the case alone gives the one file another spelling.
"""

import os
import stat
import time
import unicodedata

from notewright.notes.path import path_key
from notewright.stores.folder.paths import Root

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SWAP_CASE = str.maketrans(_LETTERS + _LETTERS.upper(), _LETTERS.upper() + _LETTERS)
_TRUSTED_AGE_NS = 3_000_000_000  # a folder changed more recently is listed again: some disks count in steps of 2 s
_MAX_CACHED = 256  # folders whose names are cached


class Spelling:
    def __init__(self, root: Root) -> None:
        self._root = root
        self.ignores_case: bool | None = None  # None: not known yet
        self._cache: dict[str, tuple[int, frozenset[str]]] = {}  # folder → when it changed, its names

    def folds(self, root: int) -> bool:
        """Whether the file system ignores case. Found out by asking for a name that is there in the other case."""
        if self.ignores_case is None:
            try:
                names = set(os.listdir(root))
            except OSError:  # it may not be listed, and will not be written to either
                return False
            other = next(
                (name.translate(_SWAP_CASE) for name in names if name.translate(_SWAP_CASE) not in names), None
            )
            if other is not None:  # else nothing is there to try it with
                try:
                    os.lstat(other, dir_fd=root)
                    self.ignores_case = True
                except FileNotFoundError:
                    self.ignores_case = False
                except OSError:
                    return False
        return self.ignores_case is True

    def is_exact(self, root: int, path: str) -> bool:
        """Whether every name of the path has this spelling, or does not exist."""
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
        with self._root.open_folder(root, folder) as opened:
            changed = os.fstat(opened).st_mtime_ns
            cached = self._cache.get(folder)
            if cached is not None and cached[0] == changed and time.time_ns() - changed > _TRUSTED_AGE_NS:
                return cached[1]
            names = frozenset(unicodedata.normalize("NFC", name) for name in os.listdir(opened))
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[folder] = changed, names
        return names

    def respell(self, root: int, path: str) -> None:
        """Give every file and folder of the path this spelling, where it has another one."""
        pieces = path.split("/")
        for depth, name in enumerate(pieces):
            folder = "/".join(pieces[:depth])
            if unicodedata.normalize("NFC", name) not in self._names(root, folder):
                with self._root.open_folder(root, folder) as opened:
                    twin = next((other for other in os.listdir(opened) if path_key(other) == path_key(name)), None)
                    if twin is not None:
                        _rename_spelling(opened, twin, name)
                    os.fsync(opened)
                self._cache.clear()


def _rename_spelling(folder: int, twin: str, name: str) -> None:
    os.rename(twin, name, src_dir_fd=folder, dst_dir_fd=folder)
    if name not in os.listdir(folder):  # a kernel that takes both for one file has done nothing
        # A file between two names is hidden, and its bytes are in the ledger; a folder stays to be seen.
        is_folder = stat.S_ISDIR(os.lstat(twin, dir_fd=folder).st_mode)
        from notewright.stores.folder.temp_names import new_temp_name

        between = f"{name} (being renamed)" if is_folder else str(new_temp_name(name, "respell"))
        os.rename(twin, between, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(between, name, src_dir_fd=folder, dst_dir_fd=folder)
