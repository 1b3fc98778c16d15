"""A folder beneath another one, made without ever following a link: what comes over a network names nothing else."""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

from notewright.errors import Invalid, NoSpace, Problem, Unavailable
from notewright.notes.path import name_problem, path_problem

DEEPEST = 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def segments_of(location: str, root: str) -> tuple[str, ...]:
    """The names between the root and a place beneath it, told from the root or in full."""
    inside = location.removeprefix(root + "/") if location.startswith(root + "/") else location
    problem = path_problem(inside) or name_problem(inside)
    if problem or len(segments := tuple(inside.split("/"))) > DEEPEST:
        hint = f"name a folder beneath workspaces_root, as in work; at most {DEEPEST} deep"
        raise Invalid(f"{location[:200]!r} is no place for a workspace", hint=hint, what="location")
    return segments


@contextlib.contextmanager
def folder_beneath(root: str, segments: Sequence[str]) -> Iterator[None]:
    """Makes what is missing of the way. What it made goes again if the block fails."""
    made: list[str] = []
    try:
        _make(root, segments, made)
        yield
    except BaseException:
        for place in reversed(made):
            with contextlib.suppress(OSError):  # somebody has put something there meanwhile
                os.rmdir(place)
        raise


def _make(root: str, segments: Sequence[str], made: list[str]) -> None:
    """Each folder is opened by its name in the one before: none of them can be swapped for a link on the way."""
    with contextlib.ExitStack() as open_now:
        try:
            here = os.open(root, _FOLDER)
            open_now.callback(os.close, here)
            for number, name in enumerate(segments):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=here)
                    made.append("/".join((root, *segments[: number + 1])))
                here = os.open(name, _FOLDER, dir_fd=here)
                open_now.callback(os.close, here)
        except OSError as error:
            raise _in_words(error, segments) from None


def _in_words(error: OSError, segments: Sequence[str]) -> Problem:
    if error.errno in (errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ELOOP):
        hint = "name another; a file, a link and a folder of somebody else cannot be one"
        return Invalid(f"{'/'.join(segments)!r} cannot be a workspace's folder", hint=hint, what="location")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace("the disk for workspaces is full", hint="free some space and try again")
    return Unavailable(f"the folder cannot be made: {error.strerror}", hint="look at workspaces_root")
