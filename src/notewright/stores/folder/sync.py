"""Syncing to disk beside other work: the kernel is told to begin, and asked for the outcome when it is needed.

A sync waits for the disk, and the processor is idle. The kernel's own asynchronous calls need no thread of ours, which
would take the interpreter from the one that goes on. Where there are none (another system, a container that forbids
them) a sync is made at once.
"""

import ctypes
import errno
import os

_CALLS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4), "riscv64": (0, 2, 4)}  # io_setup, io_submit, io_getevents
_SETUP, _SUBMIT, _EVENTS = _CALLS.get(os.uname().machine, (-1, -1, -1)) if os.uname().sysname == "Linux" else (-1,) * 3
_FSYNC = 2
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


class _Request(ctypes.Structure):
    """struct iocb, as machines that put the lowest byte first have it."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("what", ctypes.c_uint16),
        ("priority", ctypes.c_int16), ("file", ctypes.c_uint32), ("rest", ctypes.c_uint64 * 5),
    )  # fmt: skip


class _Queue:
    """Where one sync at a time is asked for and its outcome is found."""

    def __init__(self) -> None:
        self._context = ctypes.c_ulong(0)
        if _SETUP < 0 or _syscall(_SETUP, 1, ctypes.byref(self._context)):
            raise OSError("there are no asynchronous calls here")
        self._request = _Request(what=_FSYNC)
        self._requests = ctypes.byref((ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request)))
        self._found = (ctypes.c_int64 * 4)()  # struct io_event: the third is the outcome
        self._into = ctypes.byref(self._found)

    def begin(self, file: int) -> None:
        self._request.file = file
        if _syscall(_SUBMIT, self._context, 1, self._requests) != 1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def outcome(self) -> int:
        """Once it is there; 0, or the negative number of an error."""
        while _syscall(_EVENTS, self._context, 1, 1, self._into, None) != 1:
            if (number := ctypes.get_errno()) != errno.EINTR:
                return -number
        return int(self._found[2])


_free: list[_Queue] = []  # a process does not have its parent's
_able = [True]  # until a try shows otherwise
os.register_at_fork(after_in_child=_free.clear)


class Sync:
    """The sync of a file or folder, begun; its descriptor may be closed at once."""

    __slots__ = ("_queue",)

    def __init__(self, file: int) -> None:
        self._queue: _Queue | None = None
        if _able:
            try:
                queue = _free.pop() if _free else _Queue()
                queue.begin(file)
                self._queue = queue
                return
            except OSError:
                _able.clear()
        os.fsync(file)

    def wait(self) -> None:
        """Until it is on disk; OSError, once, where it is not."""
        queue, self._queue = self._queue, None
        if queue is not None:
            failed = -queue.outcome()
            _free.append(queue)
            if failed:
                raise OSError(failed, os.strerror(failed))
