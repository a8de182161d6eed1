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

from headgate.store.folders import SAFELY, Folders, names, own
from headgate.store.structured import absent, structured

__all__ = ["TOTAL", "LocalCounters", "locked"]

TOTAL = "total"

_COUNT = struct.Struct("<q")
_READ = os.O_RDONLY | SAFELY
_WRITE = os.O_RDWR | os.O_CREAT | SAFELY


class LocalCounters:
    """The counters of a root, as long as they are locked.

    Their files are opened anew every time: principals are many, and the files that may be open few.
    """

    def __init__(self, folder: int, total: int) -> None:
        self._folder = folder
        self._total = total

    @classmethod
    @contextlib.contextmanager
    def of(cls, folders: Folders) -> Iterator["LocalCounters"]:
        """The counters, which other processes and other threads wait for meanwhile."""
        with structured:
            folder, total = folders.persist(lambda: _locked_total(folders))
        try:
            yield cls(folder, total)
        finally:
            # A child that was forked meanwhile has the file open too, and would hold the lock for as long.
            fcntl.flock(total, fcntl.LOCK_UN)
            os.close(total)

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


def _locked_total(folders: Folders) -> tuple[int, int]:
    folder = folders.fd(".usage", make=True)
    return folder, locked(TOTAL, _WRITE, folder)


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
