"""Changing one note so that nobody's work is lost: swap the names, look at what came out, put it back if need be.

Comparing first and renaming then would lose what an editor saves in between. Here the swap *is* the comparison: once
the new bytes have the note's name, what they replaced lies beside and can be looked at in peace. All callers are alone
(`lock.py`): only foreign programs write at the same time.
"""

import os
from contextlib import suppress
from dataclasses import replace as with_changes

from notewright.errors import Conflict
from notewright.notes.path import NotePath
from notewright.stores.base import Version, changed_error
from notewright.stores.folder.paths import Root, exists
from notewright.stores.folder.temp_names import TempName, digest, take_out

_TURNS = 100


def check(folder: int, path: NotePath, seen: Version) -> None:
    """Conflict if the note is not what was seen: laying bytes takes long, and it is better not to show them even for a
    moment if they must be taken back."""
    if (found := digest(folder, path.name)) != seen:
        raise _refused(path, found)


def replace(root: Root, folder: int, laid: TempName, path: NotePath, ours: Version, seen: Version) -> bool:
    """Give the laid bytes the note's name. What was seen is gone then, or lies beside: False. Conflict, and nothing
    changed, if what came out is not what was seen."""
    note, name = path.name, str(laid)
    try:
        if not root.exchange(folder, name, note):
            _replace_looking_first(folder, laid, path, seen)
            return False
    except FileNotFoundError:
        raise changed_error(path, None) from None
    try:
        out, is_gone = take_out(folder, laid, seen)
    except OSError:
        out, is_gone = "unreadable", False
    if out != seen:
        put_back(root, folder, name, note, ours)
        raise _refused(path, out)
    return is_gone


def put_back(root: Root, folder: int, name: str, note: str, placed: str) -> None:
    """Swap back until what comes out is what we placed: an editor may save between any two swaps, and its newest save
    must end up under the note's name."""
    for _ in range(_TURNS):
        inside = digest(folder, name)
        try:
            root.exchange(folder, name, note)
        except FileNotFoundError:  # the note was moved away meanwhile: the name is free
            return root.move_new(folder, name, folder, note)
        if inside is None or digest(folder, name) == placed:
            return
        placed = inside


def _replace_looking_first(folder: int, laid: TempName, path: NotePath, seen: Version) -> None:
    """Where names cannot be swapped: look, rename over, look again at the old bytes under a second name. A save by
    rename between the two looks is lost; no file system without swapping lets us see it."""
    note, aside = path.name, str(with_changes(laid, number=f"{laid.number}0"))
    with suppress(OSError):  # no links here: the look before is all there is
        os.link(note, aside, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    try:
        found = digest(folder, aside if exists(folder, aside) else note)
        if found != seen:
            raise _refused(path, found)
        os.rename(str(laid), note, src_dir_fd=folder, dst_dir_fd=folder)
        found = digest(folder, aside)
        if found not in (seen, None):
            os.rename(aside, note, src_dir_fd=folder, dst_dir_fd=folder)
            raise _refused(path, found)
        if found:
            os.rename(aside, str(laid), src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        if exists(folder, aside):
            os.unlink(aside, dir_fd=folder)
        raise


def remove(root: Root, folder: int, laid: TempName, path: NotePath, seen: Version) -> None:
    """Move the note aside, to lie under `laid`, if it is there. Conflict, and it stays, if it is not what was seen."""
    note, name = path.name, str(laid)
    try:
        root.move_new(folder, note, folder, name)
    except FileNotFoundError:
        return
    out = digest(folder, name)
    if out != seen:
        try:
            root.move_new(folder, name, folder, note)
        except FileExistsError:
            pass  # somebody has saved the note anew meanwhile: this older save is kept by whoever looks at asides
        raise _refused(path, out)


def _refused(path: NotePath, found: str | None) -> Conflict:
    """The refusal to replace what was not seen; a mark of what is no readable file (`digest`) is no version."""
    return changed_error(path, None if found is None or found.startswith("!") else found)
