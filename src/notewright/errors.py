"""Every way we say no: one tree, one code each.

    Problem
      NotFound     not_found    nothing there; `nearest` names what is close
      Ambiguous    ambiguous    a name several things bear; `candidates` lists them
      Exists       exists       something is already there
      Conflict     conflict     it changed since it was read
      Invalid      invalid      the question itself is wrong
      NotText      not_text     the note is not UTF-8 and is never edited
      TooLarge     too_large    over a size limit
      ReadOnly     read_only    the workspace takes no writes
      Forbidden    forbidden    the caller may not do this here
      Quota        quota        the workspace is full
      NoSpace      no_space     the disk is full; the old bytes stay
      Busy         busy         somebody is in the way; try again
      Indexing     indexing     the index is not there yet; try again
      Limited      limited      too many calls; `retry_after` says when
      Unavailable  unavailable  the store does not answer
      Internal     internal     our fault

Inner rooms raise these and know nothing of MCP, HTTP or exit codes; each edge has one table from code
to its own words. `details` are values for those tables: never look inside a message.
"""

from typing import Any, ClassVar


class Problem(Exception):
    """Something that was asked for and will not happen: what, which, and the next step."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class NotFound(Problem):
    """`what` is one of note, file, folder, section, block, text, line, change, workspace, key."""

    code = "not_found"


class Ambiguous(Problem):
    """`what` as in NotFound; `candidates` is a list of paths, or `lines` and `count` for text found more than once."""

    code = "ambiguous"


class Exists(Problem):
    """`path` is what is in the way."""

    code = "exists"


class Conflict(Problem):
    """`path` changed underneath; `current` is its version now, or None where it is gone."""

    code = "conflict"


class Invalid(Problem):
    """`what` says which argument."""

    code = "invalid"


class NotText(Problem):
    code = "not_text"


class TooLarge(Problem):
    """`size` and `limit` in bytes."""

    code = "too_large"


class ReadOnly(Problem):
    code = "read_only"


class Forbidden(Problem):
    """`by` is "rule" where the workspace's own rules forbid it; else the file system does."""

    code = "forbidden"


class Quota(Problem):
    code = "quota"


class NoSpace(Problem):
    code = "no_space"


class Busy(Problem):
    code = "busy"


class Indexing(Problem):
    """`done` and `total` count notes."""

    code = "indexing"


class Limited(Problem):
    """`retry_after` in seconds, `limit`, `window` in seconds."""

    code = "limited"


class Unavailable(Problem):
    code = "unavailable"


class Internal(Problem):
    code = "internal"


def codes() -> frozenset[str]:
    """Every code there is, for the tests that prove each edge's table whole."""
    return frozenset(kind.code for kind in Problem.__subclasses__())
