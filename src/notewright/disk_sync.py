"""Syncing to disk beside other work: begun here, and waited for when it must be known.

A sync waits for the disk, and the processor is idle. The C library's asynchronous calls make it in a thread of theirs,
which takes the interpreter from nobody. Where there are none that we know (another system or library, a child that was
forked and has none of its parent's threads) a sync is made at once.
"""

import ctypes
import errno
import os
import struct

_HELD = 256  # bytes; struct aiocb has 168 where pointers have 8
_NOTIFY, _NOBODY = 44, 1  # where it says who is told of the end, and that it is nobody
_IDLE_S = 60  # how long a thread waits for more
_Request = ctypes.c_char * _HELD
_libc = ctypes.CDLL(None, use_errno=True)
_is_able = hasattr(_libc, "aio_init") and hasattr(_libc, "aio_fsync") and ctypes.sizeof(ctypes.c_void_p) == 8
if _is_able:
    _libc.aio_init(struct.pack("8i", 4, 16, 0, 0, 0, 0, _IDLE_S, 0))
_begun_in = 0  # the process that has the threads
_under_way: "set[Sync]" = set()  # the library writes into them


class Sync:
    """The sync of an open file or folder, begun: of its bytes, or of all that is known of it (`whole`). It closes the
    descriptor, and needs it until then."""

    __slots__ = ("_begun", "_file")

    def __init__(self, file: int, *, whole: bool = True) -> None:
        global _begun_in
        self._file, process = file, os.getpid()
        has_threads = _is_able and _begun_in in (0, process)
        self._begun = _Request() if has_threads else None
        if self._begun is not None:
            struct.pack_into("i", self._begun, 0, file)
            struct.pack_into("i", self._begun, _NOTIFY, _NOBODY)
            if _libc.aio_fsync(os.O_SYNC if whole else os.O_DSYNC, self._begun) == 0:
                _under_way.add(self)
                _begun_in = process
                return
            self._begun = None
        try:
            os.fsync(file)
        except BaseException:
            self.wait()
            raise

    def wait(self) -> None:
        """Until it is on disk; OSError where it is not."""
        failed = 0
        if self._begun is not None:
            waited = (ctypes.c_void_p * 1)(ctypes.addressof(self._begun))
            while (failed := _libc.aio_error(self._begun)) == errno.EINPROGRESS:
                _libc.aio_suspend(waited, 1, None)
            _libc.aio_return(self._begun)
            self._begun = None
            _under_way.discard(self)
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        if failed:
            raise OSError(failed, os.strerror(failed))
