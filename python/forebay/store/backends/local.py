"""The default backend: objects as files.

<root>/<YYYY-MM-DD>/<handle>.<extension>.zst    an object, in the folder of the day it was stored
<root>/.partial/<handle>                        an unfinished object, locked while its writer is alive
"""

import contextlib
import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from typing_extensions import Buffer

from forebay.store.backends import TOTAL_COUNTER, Count
from forebay.store.backends.filesystem import (
    SAFE_OPEN_FLAGS,
    Folders,
    close_quietly,
    ensure_private,
    ignore_missing,
    iter_file_names,
    list_names,
    translate_os_errors,
    unlock,
)
from forebay.store.handles import format_date, is_handle
from forebay.store.payload import EXTENSIONS
from forebay.store.threads import fork_safe_lock

__all__ = ["LocalBackend", "LocalCounters", "open_locked"]

_FILE_PATTERN = re.compile(rf"([^.]+)\.(?:{'|'.join(EXTENSIONS)})\.zst")
_MAX_WRITEV_PARTS = min(os.sysconf("SC_IOV_MAX"), 1024)
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE_OPEN_FLAGS
_READ_FLAGS = os.O_RDONLY | SAFE_OPEN_FLAGS
_COUNT_FORMAT = struct.Struct("<qq")
_USED_BYTES_FORMAT = struct.Struct("<q")
_MAX_COUNT = 1 << 62
_COUNTER_PATTERN = re.compile(rf"{TOTAL_COUNTER}|p-[0-9a-f]{{32}}")
_WRITE_FLAGS = os.O_RDWR | os.O_CREAT | SAFE_OPEN_FLAGS


class LocalCounters:
    """The counters of a root, to be read and set only inside `hold`.

    The file of `TOTAL_COUNTER` stays open, so that the next holder can release a lock that an interrupted
    holder left behind. The other files are opened for each access, because there may be many principals.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._lock = fork_safe_lock()
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
                if self._total_fd >= 0 and not unlock(self._total_fd):
                    self._total_fd = self._folder_fd = -1

    def _acquire(self) -> None:
        folder_fd = self._folders.get_fd(".usage", create=True)
        # A descriptor from before a fork shares its lock with the parent, so a child opens its own.
        if folder_fd == self._folder_fd and self._opened_pid == os.getpid():
            fcntl.flock(self._total_fd, fcntl.LOCK_EX)
            if os.fstat(self._total_fd).st_nlink:
                return
        self._close()
        self._total_fd = open_locked(TOTAL_COUNTER, _WRITE_FLAGS, folder_fd)
        self._folder_fd, self._opened_pid = folder_fd, os.getpid()

    def get(self, name: str) -> Count | None:
        """Return a counter, or `None` if it is not set or is 0."""
        with translate_os_errors, ignore_missing:
            if name == TOTAL_COUNTER:
                return _read_count(self._total_fd)
            fd = os.open(name, _READ_FLAGS, dir_fd=self._folder_fd)
            try:
                return _read_count(fd)
            finally:
                close_quietly(fd)
        return None

    def set(self, name: str, count: Count) -> None:
        """Set a counter. A principal's counter that becomes 0 is removed."""
        with translate_os_errors:
            if name == TOTAL_COUNTER:
                os.pwrite(self._total_fd, _COUNT_FORMAT.pack(*count), 0)
            elif count.used_bytes:
                fd = os.open(name, _WRITE_FLAGS, 0o600, dir_fd=self._folder_fd)
                try:
                    ensure_private(fd)
                    os.pwrite(fd, _COUNT_FORMAT.pack(*count), 0)
                finally:
                    close_quietly(fd)
            else:
                with ignore_missing:
                    os.unlink(name, dir_fd=self._folder_fd)

    def names(self) -> Iterator[str]:
        """Return the names of the counters that are set."""
        with translate_os_errors:
            return filter(_COUNTER_PATTERN.fullmatch, list_names(self._folder_fd))

    def close(self) -> None:
        """Close the file of `TOTAL_COUNTER`."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        fd, self._total_fd, self._folder_fd = self._total_fd, -1, -1
        if fd >= 0:
            close_quietly(fd)


def open_locked(name: str, flags: int, folder_fd: int) -> int:
    """Open and lock a file, and return its descriptor. If the file is removed before it is locked, try again."""
    while True:
        fd = os.open(name, flags, 0o600, dir_fd=folder_fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if ensure_private(fd).st_nlink:
                return fd
        except BaseException:
            close_quietly(fd)
            raise
        close_quietly(fd)


def _read_count(fd: int) -> Count | None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    stored = os.pread(fd, _COUNT_FORMAT.size, 0)
    if len(stored) == _USED_BYTES_FORMAT.size:
        # Written by a version that kept no position.
        stored += _USED_BYTES_FORMAT.pack(0)
    if len(stored) != _COUNT_FORMAT.size:
        return None
    count = Count(*_COUNT_FORMAT.unpack(stored))
    # Other values are damaged: adding to them could exceed what the file can hold.
    return count if all(0 <= value < _MAX_COUNT for value in count) else None


class LocalBackend:
    """Objects as files under `root`, which is created if it is missing.

    With `is_durable`, a committed object survives a power cut.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time, is_durable: bool = False) -> None:
        with translate_os_errors:
            self.folders = Folders(root, is_durable=is_durable)
        self.clock = clock
        self.is_durable = is_durable
        self._counters = LocalCounters(self.folders)

    @property
    def folder(self) -> Path:
        return self.folders.root

    def create(self, handle: str) -> "LocalUpload":
        with translate_os_errors:
            return self.folders.retry(lambda: LocalUpload(self, handle))

    def open(self, handle: str) -> "LocalBlob":
        with translate_os_errors:
            version = self.folders.version
            blob = self._find(handle)
            if blob is None:
                # Another process may have added a day folder since the last refresh, and stored the object there.
                self.folders.refresh()
                if self.folders.version != version:
                    blob = self._find(handle)
        if blob is None:
            raise KeyError(handle)
        return blob

    def _find(self, handle: str) -> "LocalBlob | None":
        for day in self.folders.days:
            with ignore_missing:
                folder_fd = self.folders.get_fd(day)
                for extension in EXTENSIONS:
                    with ignore_missing:
                        return LocalBlob(os.open(f"{handle}.{extension}.zst", _READ_FLAGS, dir_fd=folder_fd))
        return None

    def list(self) -> Iterator[str]:
        with translate_os_errors:
            self.folders.refresh()
            for day in self.folders.days:
                with ignore_missing:
                    for name in iter_file_names(self.folders.get_fd(day)):
                        file = _FILE_PATTERN.fullmatch(name)
                        if file and is_handle(file[1]):
                            yield file[1]

    def delete(self, handle: str) -> bool:
        with translate_os_errors:
            self.folders.refresh()
            for day in self.folders.days:
                with ignore_missing:
                    folder_fd = self.folders.get_fd(day)
                    for extension in EXTENSIONS:
                        with ignore_missing:
                            os.unlink(f"{handle}.{extension}.zst", dir_fd=folder_fd)
                            return True
        return False

    def remove_leftovers(self) -> int:
        """Remove the files of crashed writers, and empty day folders; return the number of files."""
        with translate_os_errors:
            self.folders.refresh()
            partial = self.folders.get_fd(".partial", create=True)
            removed = sum(_remove_orphan(name, partial) for name in list_names(partial))
            for day in self.folders.days:
                if day != format_date(self.clock()):
                    # `rmdir` fails on a folder that is not empty.
                    with contextlib.suppress(OSError):
                        os.rmdir(day, dir_fd=self.folders.root_fd)
            self.folders.refresh()
        return removed

    @contextlib.contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        fd, operation = -1, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            with translate_os_errors:
                fd = self.folders.retry(
                    lambda: os.open(".", os.O_RDONLY | SAFE_OPEN_FLAGS, dir_fd=self.folders.root_fd)
                )
                try:
                    fcntl.flock(fd, operation)
                    is_acquired = True
                except BlockingIOError:
                    is_acquired = False
            yield is_acquired
        finally:
            if fd >= 0 and unlock(fd):
                close_quietly(fd)

    def counters(self) -> contextlib.AbstractContextManager[LocalCounters]:
        return self._counters.hold()

    def close(self) -> None:
        self._counters.close()
        self.folders.close()


class LocalUpload:
    """An unfinished file. Its lock tells the sweeps of all processes that its writer is alive."""

    def __init__(self, backend: LocalBackend, handle: str) -> None:
        self._backend = backend
        self._handle = handle
        self._folder_fd = backend.folders.get_fd(".partial", create=True)
        # Before the file is locked, a sweep may remove it as an orphan; `open_locked` then creates it again.
        self._fd = open_locked(handle, _CREATE_FLAGS, self._folder_fd)

    def write(self, parts: Sequence[Buffer]) -> None:
        with translate_os_errors:
            for i in range(0, len(parts), _MAX_WRITEV_PARTS):
                batch = parts[i : i + _MAX_WRITEV_PARTS]
                written = os.writev(self._fd, batch)
                if written < sum([memoryview(part).nbytes for part in batch]):
                    # A nearly full disk stores only a part of the data; writing the remaining part raises the error.
                    _write_all(self._fd, memoryview(b"".join(batch))[written:])

    def read(self, start: int, length: int) -> bytes:
        return _read_range(self._fd, start, length)

    def commit(self, extension: str) -> None:
        with translate_os_errors:
            if self._backend.is_durable:
                os.fsync(self._fd)
            # Retried, because a sweep at midnight may have removed today's folder while it was empty.
            self._backend.folders.retry(lambda: self._move_into_place(f"{self._handle}.{extension}.zst"))
            self._close()

    def _move_into_place(self, name: str) -> None:
        folders, today = self._backend.folders, format_date(self._backend.clock())
        folder_fd = folders.get_current_fd(today)
        try:
            os.rename(self._handle, name, src_dir_fd=self._folder_fd, dst_dir_fd=folder_fd)
            if self._backend.is_durable:
                os.fsync(folder_fd)
                os.fsync(folders.root_fd)
            # The folder may have been moved away meanwhile.
            folders.check_current(today, folder_fd)
        except BaseException:
            # The caller gets an error, or the object is moved to another folder, so it must not stay in this one.
            self._withdraw(name, folder_fd)
            raise

    def _withdraw(self, name: str, folder_fd: int) -> None:
        try:
            os.rename(name, self._handle, src_dir_fd=folder_fd, dst_dir_fd=self._folder_fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder_fd)

    def abort(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._handle, dir_fd=self._folder_fd)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        close_quietly(fd)


def _write_all(fd: int, view: memoryview) -> None:
    while len(view):
        view = view[os.write(fd, view) :]


def _read_range(fd: int, start: int, length: int) -> bytes:
    with translate_os_errors:
        data = os.pread(fd, length, start)
        while len(data) < length:
            chunk = os.pread(fd, length - len(data), start + len(data))
            if not chunk:
                break
            data += chunk
        return data


class LocalBlob:
    """A file that is open for reading. It stays readable after it is deleted."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError
        except BaseException:
            self.close()
            raise
        self.size = status.st_size
        self.modified_at = status.st_mtime
        self.version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def read(self, start: int, length: int) -> bytes:
        return _read_range(self._fd, start, length)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close_quietly(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _remove_orphan(name: str, folder_fd: int) -> bool:
    """Remove a file that nobody has locked: its writer is dead. Return whether the file was removed."""
    try:
        fd = os.open(name, _READ_FLAGS, dir_fd=folder_fd)
    except OSError:
        # Either the file was committed in the meantime, or it is something else, such as a link that someone planted.
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the file was committed just before it was locked, it was renamed, so it is not removed here.
        os.unlink(name, dir_fd=folder_fd)
    except OSError:
        return False
    finally:
        close_quietly(fd)
    return True
