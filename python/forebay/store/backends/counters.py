"""Counters in files, shared by all processes that use a root.

<root>/.usage/total     bytes stored in all; its file lock guards all counters
<root>/.usage/<name>    another counter; no file if it is 0
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
    """The counters of a root, to be read and set only inside `hold`.

    The file of `TOTAL` stays open, so that the next holder can release a lock that an interrupted one left behind. The
    other files are opened for each access: principals may be many, and open files are limited.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = ForkSafeLock()
        self._folder_fd = -1
        self._total_fd = -1
        self._opened_pid = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[Self]:
        """Hold the lock of the counters against other threads and processes."""
        with self._lock:
            try:
                with translate_os_errors:
                    self._folders.retry(self._acquire)
                yield self
            finally:
                if self._total_fd >= 0:
                    # Closing would not release it: a child forked meanwhile has the file open too.
                    fcntl.flock(self._total_fd, fcntl.LOCK_UN)

    def _acquire(self) -> None:
        folder_fd = self._folders.get_fd(".usage", make=True)
        # A descriptor from before a fork shares its lock with the parent, so a child opens its own.
        if folder_fd == self._folder_fd and self._opened_pid == os.getpid():
            fcntl.flock(self._total_fd, fcntl.LOCK_EX)
            if os.fstat(self._total_fd).st_nlink:
                return
        self._close()
        self._total_fd = open_locked(TOTAL, _WRITE_FLAGS, folder_fd)
        self._folder_fd, self._opened_pid = folder_fd, os.getpid()

    def get(self, name: str) -> int | None:
        """Return a counter, or `None` if it is not set or is 0."""
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
        """Set a counter. One that becomes 0 is removed."""
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
        """Return the names of the counters that are set."""
        with translate_os_errors:
            for name in list_names(self._folder_fd):
                with ignore_missing:
                    if stat.S_ISREG(os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False).st_mode):
                        yield name

    def close(self) -> None:
        """Close the file that stays open."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        fd, self._total_fd, self._folder_fd = self._total_fd, -1, -1
        if fd >= 0:
            os.close(fd)


def open_locked(name: str, flags: int, folder_fd: int) -> int:
    """Open a file and lock it, again if it is removed before the lock is acquired; return its descriptor."""
    while True:
        fd = os.open(name, flags, 0o600, dir_fd=folder_fd)
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
