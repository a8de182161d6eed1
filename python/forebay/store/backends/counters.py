"""Numbers in files, that all processes on one root share.

<root>/.usage/total     what is stored in all; its lock is that of all counters
<root>/.usage/<name>    another one; there is no file where the number is 0
"""

import contextlib
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from typing import Self

from forebay.store.backends.filesystem import (
    SAFE_OPEN_FLAGS,
    Folders,
    ensure_private,
    ignore_missing,
    list_names,
    translate_os_errors,
)
from forebay.store.threads import ForkSafeLock

__all__ = ["TOTAL", "LocalCounters", "open_locked"]

TOTAL = "total"

_COUNT_FORMAT = struct.Struct("<q")
_READ_FLAGS = os.O_RDONLY | SAFE_OPEN_FLAGS
_WRITE_FLAGS = os.O_RDWR | os.O_CREAT | SAFE_OPEN_FLAGS


class LocalCounters:
    """The counters of a root. They are read and set only while they are held.

    The file whose lock it is stays open, so that a lock that an interrupt left behind is let go of by the next one who
    holds them. Those of principals are opened anew every time: they are many, and the files that may be open few.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = ForkSafeLock()
        self._folder_fd = -1
        self._total_fd = -1
        self._opened_pid = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[Self]:
        """The counters, which other processes and other threads wait for meanwhile."""
        with self._lock:
            try:
                with translate_os_errors:
                    self._folders.retry(self._acquire)
                yield self
            finally:
                if self._total_fd >= 0:
                    # Not by closing it: a child that was forked meanwhile has it open too.
                    fcntl.flock(self._total_fd, fcntl.LOCK_UN)

    def _acquire(self) -> None:
        folder = self._folders.get_fd(".usage", make=True)
        # What a child has from before the fork is locked by its parent, too.
        if folder == self._folder_fd and self._opened_pid == os.getpid():
            fcntl.flock(self._total_fd, fcntl.LOCK_EX)
            if os.fstat(self._total_fd).st_nlink:
                return
        self._close()
        self._total_fd, self._folder_fd, self._opened_pid = (
            open_locked(TOTAL, _WRITE_FLAGS, folder),
            folder,
            os.getpid(),
        )

    def get(self, name: str) -> int | None:
        """`None` if it was never set, or to 0."""
        with translate_os_errors, ignore_missing:
            if name == TOTAL:
                return _read_count(self._total_fd)
            fd = os.open(name, _READ_FLAGS, dir_fd=self._folder_fd)
            try:
                return _read_count(fd)
            finally:
                os.close(fd)
        return None

    def set(self, name: str, value: int) -> None:
        with translate_os_errors:
            if name == TOTAL:
                os.pwrite(self._total_fd, _COUNT_FORMAT.pack(value), 0)
            elif value:
                fd = os.open(name, _WRITE_FLAGS, 0o600, dir_fd=self._folder_fd)
                try:
                    ensure_private(fd)
                    os.pwrite(fd, _COUNT_FORMAT.pack(value), 0)
                finally:
                    os.close(fd)
            else:
                with ignore_missing:
                    os.unlink(name, dir_fd=self._folder_fd)

    def names(self) -> Iterator[str]:
        """All that are set."""
        with translate_os_errors:
            for name in list_names(self._folder_fd):
                with ignore_missing:
                    if stat.S_ISREG(os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False).st_mode):
                        yield name

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        total, self._total_fd, self._folder_fd = self._total_fd, -1, -1
        if total >= 0:
            os.close(total)


def open_locked(name: str, flags: int, folder: int) -> int:
    """A file of this name, locked; opened again as often as it was removed before the lock was there."""
    while True:
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if ensure_private(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _read_count(fd: int) -> int | None:
    stored = os.pread(fd, _COUNT_FORMAT.size, 0)
    return int(_COUNT_FORMAT.unpack(stored)[0]) if len(stored) == _COUNT_FORMAT.size else None
