"""Which file an address of the page means."""

from notewright.engine.read import exists, locate
from notewright.engine.workspace import Workspace, with_timeout
from notewright.errors import NotFound
from notewright.notes.path import NotePath, path_problem

INDEX_SECONDS = 2.0  # seconds for the index


def is_file(ws: Workspace, raw: str) -> bool:
    """Whether this is the path of a file that the caller may see."""
    return not path_problem(raw) and ws.access.sees(raw) and exists(ws, NotePath(raw))


def find_file(ws: Workspace, raw: str) -> NotePath:
    """The file at this path, or the one note that bears this name."""
    if is_file(ws, raw):
        return NotePath(raw)
    if path_problem(raw):
        raise NotFound("there is no such note", hint="search may find it", what="note")
    return locate(with_timeout(ws, INDEX_SECONDS), raw)
