"""Syncing to disk beside other work: begun here, and waited for when it must be known.

A sync waits for the disk, and the processor is idle. The C library's asynchronous calls make it in a thread of theirs,
which takes the interpreter from nobody. Where there are none that we know (another system or library, a child that was
forked and has none of its parent's threads) a sync is made at once.
"""

import ctypes
import os
import struct

_HELD = 256  # bytes; struct aiocb has 168 where pointers have 8
_NOTIFY, _NOBODY = 44, 1  # where it says who is told of the end, and that it is nobody
_IDLE_S = 60  # how long a thread waits for more
_IN_PROGRESS = 115
_libc = ctypes.CDLL(None, use_errno=True)
_able = [True] if hasattr(_libc, "gnu_get_libc_version") and ctypes.sizeof(ctypes.c_void_p) == 8 else []
os.register_at_fork(after_in_child=_able.clear)
if _able:
    _libc.aio_init(struct.pack("8i", 4, 16, 0, 0, 0, 0, _IDLE_S, 0))
_under_way: "set[Sync]" = set()  # the library writes into them


class Sync:
    """The sync of an open file or folder, begun. It closes the descriptor, and needs it until then."""

    __slots__ = ("_begun", "_file")

    def __init__(self, file: int) -> None:
        self._file = file
        self._begun = ctypes.create_string_buffer(_HELD) if _able else None
        if self._begun is not None:
            struct.pack_into("i", self._begun, 0, file)
            struct.pack_into("i", self._begun, _NOTIFY, _NOBODY)
            if _libc.aio_fsync(os.O_SYNC, self._begun) == 0:
                _under_way.add(self)
                return
            self._begun = None
        try:
            os.fsync(file)
        except BaseException:
            self.wait()
            raise

    def wait(self) -> None:
        """Until it is on disk; OSError where it is not."""
        failed, begun, self._begun = 0, self._begun, None
        if begun is not None:
            waited = (ctypes.c_void_p * 1)(ctypes.addressof(begun))
            while (failed := _libc.aio_error(begun)) == _IN_PROGRESS:
                _libc.aio_suspend(waited, 1, None)
            _libc.aio_return(begun)
            _under_way.discard(self)
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        if failed:
            raise OSError(failed, os.strerror(failed))
