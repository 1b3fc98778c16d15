"""Makes a folder beneath another one without ever following a link: its name came over the network."""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

from notewright.errors import Invalid, NoSpace, Unavailable
from notewright.notes.path import name_problem, path_problem

MAX_DEPTH = 8
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parse_segments(location: str, root: str) -> tuple[str, ...]:
    """The names between the root and a place beneath it, which is relative to the root or absolute."""
    inside = location.removeprefix(root + "/")
    problem = path_problem(inside) or name_problem(inside)
    if problem or len(segments := tuple(inside.split("/"))) > MAX_DEPTH:
        hint = f"name a folder beneath workspaces_root, as in work; at most {MAX_DEPTH} deep"
        raise Invalid(f"{location[:200]!r} is no place for a workspace", hint=hint, what="location")
    return segments


@contextlib.contextmanager
def make_folder(root: str, segments: Sequence[str]) -> Iterator[None]:
    """Make the folders that are missing on the way, for a block; they are removed again if the block fails. Each is
    opened by its name in the one before, so that none can be swapped for a link on the way."""
    made: list[str] = []
    try:
        try:
            with contextlib.ExitStack() as opened:
                here = os.open(root, _FLAGS)
                opened.callback(os.close, here)
                for depth, name in enumerate(segments, 1):
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=here)
                        made.append("/".join((root, *segments[:depth])))
                    here = os.open(name, _FLAGS, dir_fd=here)
                    opened.callback(os.close, here)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ELOOP):
                hint = "name another; a file, a link and a folder of somebody else cannot be one"
                what = f"{'/'.join(segments)!r} cannot be a workspace's folder"
                raise Invalid(what, hint=hint, what="location") from None
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpace("the disk for workspaces is full", hint="free some space and try again") from None
            what = f"the folder cannot be made: {error.strerror}"
            raise Unavailable(what, hint="look at workspaces_root") from None
        yield
    except BaseException:
        for place in reversed(made):
            with contextlib.suppress(OSError):  # another program has put something there meanwhile
                os.rmdir(place)
        raise
