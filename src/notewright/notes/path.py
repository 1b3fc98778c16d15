"""Paths of notes and files, and which raw strings can be one."""

import re
import unicodedata
from functools import lru_cache

from notewright.errors import Invalid

MAX_SEGMENT_BYTES = 250
MAX_PATH_BYTES = 900
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNPORTABLE = re.compile(r'[\\:*?"<>|\x00-\x1f\x7f]')
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE)


class NotePath(str):
    """A path beneath a workspace: `/`-separated, no empty, `.` or `..` segment, extension included."""

    __slots__ = ()

    @classmethod
    def parse(cls, raw: str) -> "NotePath":
        """The path a caller wrote, or Invalid. Existing odd names pass; only what cannot be a path is refused."""
        problem = path_problem(raw)
        if problem:
            raise Invalid(f"{raw!r} is not a path: {problem}", hint="use a path like Folder/Note.md", what="path")
        return cls(raw)

    @property
    def name(self) -> str:
        """The last segment, with its extension; plain text also where it is the whole path."""
        return str(self.rpartition("/")[2])

    @property
    def stem(self) -> str:
        """The last segment without `.md`; other extensions stay."""
        name = self.name
        return name[:-3] if name[-3:].lower() == ".md" else name

    @property
    def folder(self) -> str:
        """The folder it is in, `""` for the root."""
        return self.rpartition("/")[0]

    @property
    def is_note(self) -> bool:
        return self[-3:].lower() == ".md"

    @property
    def is_hidden(self) -> bool:
        """A segment begins with a dot: outside the workspace for everyone."""
        return self.startswith(".") or "/." in self


def path_problem(raw: str) -> str | None:
    """Why `raw` cannot name anything beneath a workspace, or None."""
    if not raw:
        return "it is empty"
    if _CONTROL.search(raw):
        return "it holds a control character"
    if "\\" in raw:
        return "it holds a backslash"
    try:
        encoded = raw.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if len(encoded) > 4096:
        return "it is too long"
    for segment in raw.split("/"):
        if segment in ("", ".", ".."):
            return f"{segment!r} is not a name"
        if len(segment.encode()) > 255:
            return "a name in it is longer than 255 bytes"
    return None


def name_problem(path: str, names: str | None = None) -> str | None:
    """Why a *new* name would not work on every system and in every store, or None. `path` has passed `parse`. `names`:
    the part of it that is new, all of it by default."""
    names = path if names is None else names
    if unicodedata.normalize("NFC", names) != names:
        return "it is not in NFC form"
    for segment in names.split("/") if names else ():
        bad = _UNPORTABLE.search(segment)
        if bad:
            return f"{bad[0]!r} does not work in names on every system"
        if segment[0] == ".":
            return "a name may not begin with a dot"
        if segment[-1] in ". ":
            return "a name may not end with a dot or a space"
        if _DEVICES.match(segment):
            return f"{segment!r} is a device name on Windows"
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            return f"a name in it is longer than {MAX_SEGMENT_BYTES} bytes"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"it is longer than {MAX_PATH_BYTES} bytes"
    return None


@lru_cache(maxsize=8_192)  # candidates of one link are those of the next
def path_key(path: str) -> str:
    """What two spellings of one name share: case and composition ignored. Links and twins are compared by it."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def with_md(path: str) -> str:
    """`path` with `.md`, if it has not got it."""
    return path if path[-3:].lower() == ".md" else path + ".md"


def without_md(path: str) -> str:
    """`path` without a final `.md`."""
    return path[:-3] if path[-3:].lower() == ".md" else path
