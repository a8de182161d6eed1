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

from forebay.store.backends.folders import SAFELY, Folders, names, own
from forebay.store.locks import Lock
from forebay.store.os_errors import absent, structured

__all__ = ["TOTAL", "LocalCounters", "locked"]

TOTAL = "total"

_COUNT = struct.Struct("<q")
_READ = os.O_RDONLY | SAFELY
_WRITE = os.O_RDWR | os.O_CREAT | SAFELY


class LocalCounters:
    """The counters of a root. They are read and set only while they are held.

    The file whose lock it is stays open, so that a lock that an interrupt left behind is let go of by the next one who
    holds them. Those of principals are opened anew every time: they are many, and the files that may be open few.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = Lock()
        self._folder = -1
        self._total = -1
        self._opened_in = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[Self]:
        """The counters, which other processes and other threads wait for meanwhile."""
        with self._lock:
            try:
                with structured:
                    self._folders.persist(self._take)
                yield self
            finally:
                if self._total >= 0:
                    # Not by closing it: a child that was forked meanwhile has it open too.
                    fcntl.flock(self._total, fcntl.LOCK_UN)

    def _take(self) -> None:
        folder = self._folders.fd(".usage", make=True)
        # What a child has from before the fork is locked by its parent, too.
        if folder == self._folder and self._opened_in == os.getpid():
            fcntl.flock(self._total, fcntl.LOCK_EX)
            if os.fstat(self._total).st_nlink:
                return
        self._close()
        self._total, self._folder, self._opened_in = locked(TOTAL, _WRITE, folder), folder, os.getpid()

    def get(self, name: str) -> int | None:
        """`None` if it was never set, or to 0."""
        with structured, absent:
            if name == TOTAL:
                return _read(self._total)
            fd = os.open(name, _READ, dir_fd=self._folder)
            try:
                return _read(fd)
            finally:
                os.close(fd)
        return None

    def set(self, name: str, value: int) -> None:
        with structured:
            if name == TOTAL:
                os.pwrite(self._total, _COUNT.pack(value), 0)
            elif value:
                fd = os.open(name, _WRITE, 0o600, dir_fd=self._folder)
                try:
                    own(fd)
                    os.pwrite(fd, _COUNT.pack(value), 0)
                finally:
                    os.close(fd)
            else:
                with absent:
                    os.unlink(name, dir_fd=self._folder)

    def names(self) -> Iterator[str]:
        """All that are set."""
        with structured:
            for name in names(self._folder):
                with absent:
                    if stat.S_ISREG(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode):
                        yield name

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        total, self._total, self._folder = self._total, -1, -1
        if total >= 0:
            os.close(total)


def locked(name: str, flags: int, folder: int) -> int:
    """A file of this name, locked; opened again as often as it was removed before the lock was there."""
    while True:
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if own(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _read(fd: int) -> int | None:
    stored = os.pread(fd, _COUNT.size, 0)
    return int(_COUNT.unpack(stored)[0]) if len(stored) == _COUNT.size else None
