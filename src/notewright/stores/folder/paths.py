"""Opens files beneath one folder and nowhere else, whatever other programs swap for a symlink meanwhile.

Every open goes from a descriptor of the root through no symlink at all: by `openat2` where the kernel has it, else
component by component. Symlinks that stay inside are resolved to the path they mean first and that path is opened just
as strictly, so that a resolution that is out of date fails instead of leading out. What the system can do is found out
by trying on the folder itself: kernels, seccomp filters and file systems differ.
"""

import ctypes
import errno
import os
import re
import stat
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

from notewright.errors import Busy, Forbidden, NoSpace, NotFound, Problem, Unavailable
from notewright.lazy_dataclass import dataclass, field

STAT_FLAGS = getattr(os, "O_PATH", 0) | os.O_CLOEXEC  # to stat it
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO must not hang us
FOLDER_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
TEMP_PREFIX = ".notewright-"  # of temp files
MAX_LINKS = 40
MAX_WAIT_SECONDS = 2.0  # for a file that another program is writing, or has just emptied
RETRY_SECONDS = 0.01
MAX_PATH = 4095

_OPENAT2 = 437  # the same number on every architecture
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_NO_LINKS = 0x04 | 0x02  # NO_SYMLINKS, NO_MAGICLINKS
_STRICT = 0x08 | _NO_LINKS  # RESOLVE_BENEATH
_NOREPLACE, _EXCHANGE = 1, 2
_NOT_FOUND = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EILSEQ, errno.ENXIO
}  # fmt: skip
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_NO_PATH = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0")

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


# Without O_NOFOLLOW: NO_SYMLINKS says it for every segment, and then a symlink to a folder is ELOOP, not ENOTDIR.
_HOW = {flags: ctypes.byref(_How(flags & ~os.O_NOFOLLOW, 0, _STRICT)) for flags in (READ_FLAGS, FOLDER_FLAGS)}
_HOW_DIRECTLY = {flags: ctypes.byref(_How(flags & ~os.O_NOFOLLOW, 0, _NO_LINKS)) for flags in (READ_FLAGS, STAT_FLAGS)}
_HOW_SIZE = ctypes.sizeof(_How)
_NO_FOLDER = nullcontext(None)
_AT_FDCWD = -100  # which an absolute path does not use


@dataclass
class Abilities:
    """What this folder's system can do. Each begins as True and is given up when trying shows otherwise."""

    openat2: bool = True
    exchange: bool = True  # two names swapped at once
    noreplace: bool = True  # a rename that refuses to replace
    link: bool = True


class Descriptor:
    """A file descriptor, closed at the end of a `with` block."""

    __slots__ = ("_file",)

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *problem: object) -> None:
        os.close(self._file)


@dataclass
class Root:
    """The folder of the notes, opened anew for each call: so nothing keeps its disk from being unmounted, and each call
    finds out whether the folder is still the one it was."""

    path: str
    able: Abilities = field(default_factory=Abilities)

    def __post_init__(self) -> None:
        self.path = os.path.realpath(self.path)
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise Unavailable(f"the folder {self.path} cannot be opened: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode):
            raise Unavailable(f"{self.path} is not a folder")
        self.device, self.inode = found.st_dev, found.st_ino
        if self.able.openat2:
            with self.open_root() as root:
                try:
                    os.close(_openat2(root, ".", FOLDER_FLAGS))
                except OSError:
                    self.able.openat2 = False

    def open_root_fd(self) -> int:
        """A descriptor of the root; Unavailable if it vanished or another folder is in its place."""
        try:
            root = os.open(self.path, FOLDER_FLAGS)
        except OSError as error:
            raise Unavailable(f"the folder of the notes cannot be reached: {error.strerror}") from error
        found = os.fstat(root)
        if found.st_ino != self.inode or found.st_dev != self.device:
            os.close(root)
            raise Unavailable("another folder is where the notes were", hint="mount it again, or restart")
        return root

    def open_root(self) -> Descriptor:
        return Descriptor(self.open_root_fd())

    def open_folder(self, root: int, path: str) -> Descriptor:
        return Descriptor(self.open(root, path, FOLDER_FLAGS))

    def open_folder_if_exists(self, root: int, path: str, *gone: int) -> AbstractContextManager[int | None]:
        """Open a folder; None in place of the descriptor if there is none (or for one of these other errors)."""
        try:
            return self.open_folder(root, path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, *gone):
                raise
            return _NO_FOLDER

    def open(self, root: int, path: str, flags: int = READ_FLAGS) -> int:
        """Open what is at `path` ("" is the root) with READ_FLAGS or FOLDER_FLAGS, through no symlink (ELOOP)."""
        if not path:
            return os.open(".", flags, dir_fd=root)
        if len(path) > MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        if is_impossible_path(path):
            raise OSError(errno.ENOENT, "not a path", path)
        if self.able.openat2:
            return _openat2(root, path, flags)
        return _open_step_by_step(root, path, flags)

    def open_directly(self, path: str, flags: int) -> int | None:
        """Open what is at a good path by its full name, READ_FLAGS or STAT_FLAGS: two system calls less than from a
        descriptor of the root, and through no symlink either (the root's own path had none when we began). -1 where
        nothing is there, None where `open` has to decide. The root is looked at last, so it was ours at the open."""
        if not self.able.openat2:
            return None
        name = os.fsencode(f"{self.path}/{path}")
        file: int = _syscall(_OPENAT2, _AT_FDCWD, name, _HOW_DIRECTLY[flags], _HOW_SIZE)
        if file < 0 and ctypes.get_errno() != errno.ENOENT:
            return None
        try:
            found = os.stat(self.path)
            if found.st_ino == self.inode and found.st_dev == self.device:
                return file
        except OSError:
            pass
        if file >= 0:
            os.close(file)
        return None

    def resolve(self, root: int, path: str) -> str:
        """The path without symlinks that `path` means, "" for the root. FileNotFoundError where it leads out.

        Safety does not depend on it: its result is opened as strictly as everything else."""
        left, done, links = path.split("/")[::-1], list[str](), 0
        while left:
            name = left.pop()
            if name == ".." and done:
                done.pop()
            elif name == "..":
                raise LeadsOut(errno.ENOENT, "it leads out", path)
            elif name not in ("", "."):
                try:
                    with self.open_folder(root, "/".join(done)) as parent:
                        target = os.readlink(name, dir_fd=parent)
                except OSError as error:
                    if error.errno not in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                        raise
                    done.append(name)  # no symlink, or not there
                    continue
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, "too many symlinks", path)
                if target.startswith("/"):
                    if target != self.path and not target.startswith(self.path.rstrip("/") + "/"):
                        raise LeadsOut(errno.ENOENT, "it leads out", target)
                    target, done = target[len(self.path) :], []
                left += target.split("/")[::-1]
        return "/".join(done)

    def exchange(self, folder: int, one: str, other: str) -> bool:
        """Swap two names in a folder at once; False where the file system cannot, and nothing happened."""
        if self.able.exchange:
            try:
                _rename(folder, one, folder, other, _EXCHANGE)
                return True
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self.able.exchange = False
        return False

    def move_new(self, folder: int, name: str, to_folder: int, to: str) -> None:
        """Rename, or FileExistsError. Where the file system cannot, by a second link; where it has no links either
        (FAT, some network mounts) by looking first, which leaves a gap for other programs."""
        if self.able.noreplace:
            try:
                return _rename(folder, name, to_folder, to, _NOREPLACE)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self.able.noreplace = False
        if self.able.link:
            try:
                os.link(name, to, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
                return os.unlink(name, dir_fd=folder)
            except OSError as error:
                if error.errno not in _CANNOT | {errno.EPERM, errno.EMLINK}:
                    raise
                self.able.link = self.able.link and error.errno == errno.EMLINK
        if exists(to_folder, to):
            raise FileExistsError(errno.EEXIST, "it exists", to)
        os.rename(name, to, src_dir_fd=folder, dst_dir_fd=to_folder)


@lru_cache(maxsize=1024)  # each call checks its path several times
def is_impossible_path(path: str) -> bool:
    """Whether it is too long, has an empty, `.` or `..` segment, or a NUL, at which ctypes would cut the name."""
    return len(path) > MAX_PATH or _NO_PATH.search(path) is not None


def exists(folder: int, name: str) -> bool:
    """Whether anything has this name, a broken symlink included."""
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


class LeadsOut(FileNotFoundError):
    """A symlink leads out of the folder: treated as if nothing were there."""


def translate_os_error(error: OSError, path: str, *, writing: bool = False) -> Problem:
    """The Problem for an error of the operating system."""
    number = error.errno
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NoSpace(f"there is no space to write {path}", hint="nothing was changed; free some space", path=path)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        doing = "written" if writing else "read"
        return Forbidden(f"the file system does not let {path or 'the folder'} be {doing}", path=path)
    if writing and number == errno.ELOOP:
        return Forbidden(f"{path} goes through a symlink, and those are never written through", path=path)
    if writing and number in (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL):
        return Forbidden(f"the file system does not take the name {path}", hint="choose a shorter one", path=path)
    if number in _NOT_FOUND:
        return NotFound(f"there is no {path}", what="file", path=path, outside=isinstance(error, LeadsOut))
    if number in (errno.EBUSY, errno.ETXTBSY, errno.EAGAIN, errno.EMFILE, errno.ENFILE):
        return Busy(f"{path} cannot be reached just now: {error.strerror}", hint="try again in a moment", path=path)
    return Unavailable(f"{path or 'the folder'} cannot be reached: {error.strerror}", path=path)


def _openat2(root: int, path: str, flags: int) -> int:
    while True:
        got: int = _syscall(_OPENAT2, root, os.fsencode(path), _HOW[flags], _HOW_SIZE)
        if got >= 0:
            return got
        number = ctypes.get_errno()
        if number not in (errno.EINTR, errno.EAGAIN):
            raise OSError(number, os.strerror(number), path)


def _open_step_by_step(root: int, path: str, flags: int) -> int:
    here, names = root, path.split("/")
    for depth, name in enumerate(names, 1):
        try:
            inner = os.open(name, flags if depth == len(names) else FOLDER_FLAGS, dir_fd=here)
        except NotADirectoryError:
            # What O_DIRECTORY says of a symlink that is not followed, and of a file.
            if stat.S_ISLNK(os.lstat(name, dir_fd=here).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
            raise
        finally:
            if here != root:
                os.close(here)
        here = inner
    return here


def _rename(folder: int, name: str, to_folder: int, to: str, flags: int) -> None:
    arguments = folder, os.fsencode(name), to_folder, os.fsencode(to)
    if hasattr(_libc, "renameat2"):
        failed = _libc.renameat2(*arguments, flags)
    elif os.uname().machine in _RENAMEAT2 and sys.platform == "linux":
        failed = _syscall(_RENAMEAT2[os.uname().machine], *arguments, flags)
    elif hasattr(_libc, "renameatx_np"):  # macOS: the same two ideas, other numbers
        failed = _libc.renameatx_np(*arguments, {_NOREPLACE: 4, _EXCHANGE: 2}[flags])
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name, None, to)
