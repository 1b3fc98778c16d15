"""Syncs to disk that run beside other work.

While a sync waits for the disk the processor is idle. The asynchronous calls of the C library (`aio_fsync`) run it in a
thread of theirs, which never needs the interpreter lock. Where we know of none (another system or library, a forked
child, which has none of its parent's threads) a sync is made at once.
"""

import ctypes
import errno
import os
import struct

_Request = ctypes.c_char * 256  # struct aiocb has 168 bytes where pointers have 8
_NOTIFY_OFFSET, _SIGEV_NONE = 44, 1
_THREAD_IDLE_SECONDS = 60
_libc = ctypes.CDLL(None, use_errno=True)
_has_aio = hasattr(_libc, "aio_init") and hasattr(_libc, "aio_fsync") and ctypes.sizeof(ctypes.c_void_p) == 8
if _has_aio:
    _libc.aio_init(struct.pack("8i", 4, 16, 0, 0, 0, 0, _THREAD_IDLE_SECONDS, 0))
_threads_pid = 0  # the process that has the threads
_pending: "set[Sync]" = set()  # kept alive: the library writes into their requests


class Sync:
    """A sync of an open file or folder that has begun: of its bytes, or of its metadata too (`whole`). It owns the
    descriptor and closes it."""

    __slots__ = ("_file", "_request")

    def __init__(self, file: int, *, whole: bool = True) -> None:
        global _threads_pid
        self._file, process = file, os.getpid()
        self._request = _Request() if _has_aio and _threads_pid in (0, process) else None
        if self._request is not None:
            struct.pack_into("i", self._request, 0, file)
            struct.pack_into("i", self._request, _NOTIFY_OFFSET, _SIGEV_NONE)
            if _libc.aio_fsync(os.O_SYNC if whole else os.O_DSYNC, self._request) == 0:
                _pending.add(self)
                _threads_pid = process
                return
            self._request = None
        try:
            os.fsync(file)
        except BaseException:
            self.wait()
            raise

    def wait(self) -> None:
        """Wait until it is on disk; OSError where that failed."""
        failed = 0
        if self._request is not None:
            requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
            while (failed := _libc.aio_error(self._request)) == errno.EINPROGRESS:
                _libc.aio_suspend(requests, 1, None)
            _libc.aio_return(self._request)
            self._request = None
            _pending.discard(self)
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        if failed:
            raise OSError(failed, os.strerror(failed))
