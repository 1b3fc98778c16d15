"""Changes one note so that no other program's save is lost: exchange names, look at what came out, maybe swap back.

Comparing first and renaming then would lose what an editor saves in between. Here the exchange *is* the comparison:
once the new bytes have the note's name, what they replaced has the temp name, where it can be checked without a race.
All callers hold the lock (`lock.py`): only foreign programs write at the same time.
"""

import os
from contextlib import suppress

from notewright.errors import Conflict
from notewright.notes.path import NotePath
from notewright.stores.base import Version, changed_error
from notewright.stores.folder.paths import Root, exists
from notewright.stores.folder.temp_names import TempName, digest_file, remove_if_safe

MAX_SWAPS = 100


def replace_note(root: Root, folder: int, temp: TempName, path: NotePath, ours: Version, seen: Version) -> bool:
    """Give the temp file the note's name. True if what was seen is gone then, False if it has the temp name. Conflict,
    and nothing changed, if what came out is not what was seen."""
    note, name = path.name, str(temp)
    try:
        if not root.exchange(folder, name, note):
            _replace_without_exchange(folder, temp, path, seen)
            return False
    except FileNotFoundError:
        raise changed_error(path, None) from None
    try:
        out, is_gone = remove_if_safe(folder, temp, seen)
    except OSError:
        out, is_gone = "unreadable", False
    if out != seen:
        swap_back(root, folder, name, note, ours)
        raise conflict_error(path, out)
    return is_gone


def swap_back(root: Root, folder: int, name: str, note: str, placed: str) -> None:
    """Exchange until what comes out is what we placed: an editor may save between any two exchanges, and its newest
    save must end up under the note's name."""
    for _ in range(MAX_SWAPS):
        inside = digest_file(folder, name)
        try:
            root.exchange(folder, name, note)
        except FileNotFoundError:  # the note was moved away meanwhile: the name is free
            return root.move_new(folder, name, folder, note)
        if inside is None or digest_file(folder, name) == placed:
            return
        placed = inside


def _replace_without_exchange(folder: int, temp: TempName, path: NotePath, seen: Version) -> None:
    """Where the file system has no exchange: look, rename over, look again at the old bytes under a second name. A save
    by rename between the two looks is lost; without an exchange there is no way to see it."""
    note, second = path.name, str(temp._replace(number=f"{temp.number}0"))
    with suppress(OSError):  # no links here: the look before is all there is
        os.link(note, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    try:
        found = digest_file(folder, second if exists(folder, second) else note)
        if found != seen:
            raise conflict_error(path, found)
        os.rename(str(temp), note, src_dir_fd=folder, dst_dir_fd=folder)
        found = digest_file(folder, second)
        if found not in (seen, None):
            os.rename(second, note, src_dir_fd=folder, dst_dir_fd=folder)
            raise conflict_error(path, found)
        if found:
            os.rename(second, str(temp), src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        if exists(folder, second):
            os.unlink(second, dir_fd=folder)
        raise


def remove_note(root: Root, folder: int, temp: TempName, path: NotePath, seen: Version) -> None:
    """Rename the note to `temp`, if it is there. Conflict, and it stays, if it is not what was seen."""
    note, name = path.name, str(temp)
    try:
        root.move_new(folder, note, folder, name)
    except FileNotFoundError:
        return
    out = digest_file(folder, name)
    if out != seen:
        # FileExistsError: a program has saved the note anew meanwhile; this older save is kept by `leftovers.py`.
        with suppress(FileExistsError):
            root.move_new(folder, name, folder, note)
        raise conflict_error(path, out)


def conflict_error(path: NotePath, found: str | None) -> Conflict:
    """The mark of what is no readable file (`digest_file`) is no version."""
    return changed_error(path, None if found is None or found.startswith("!") else found)
