"""Symbolic links do not lead around the rules: what hides a folder hides it under every name."""

from notewright.engine.workspace import Workspace
from notewright.errors import NotFound
from notewright.notes.path import NotePath

_TURNS = 40


def sees_through_symlinks(ws: Workspace, path: NotePath) -> None:
    """NotFound unless the caller may see this path and what it leads to."""
    ws.access.may_see(path)
    if ws.access.hide and ws.store.has_folders and not ws.access.sees(real_path(ws, path)):
        raise NotFound(f"there is no {path}", what="note", path=path)


def real_path(ws: Workspace, path: NotePath) -> NotePath:
    """Where a path leads once every symbolic link on the way is followed; links that lead out lead nowhere."""
    for _ in range(_TURNS):
        followed = _followed(ws, path)
        if followed == path:
            break
        path = followed
    return path


def _followed(ws: Workspace, path: NotePath) -> NotePath:
    """The path with its first symbolic link replaced by what it means."""
    pieces = path.split("/")
    for count in range(1, len(pieces) + 1):
        begun = NotePath("/".join(pieces[:count]))
        try:
            entry = ws.store.stat(begun, hidden=begun.is_hidden)
        except NotFound:
            return path
        if entry.kind == "symlink" and entry.real is not None:
            return NotePath("/".join(piece for piece in (entry.real, *pieces[count:]) if piece))
    return path
