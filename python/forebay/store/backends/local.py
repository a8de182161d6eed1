"""The default backend: objects as files.

<root>/<YYYY-MM-DD>/<handle>.<extension>.zst    an object, in the folder of the day it was stored
<root>/.partial/<handle>                        an unfinished object, locked while its writer is alive
"""

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from typing_extensions import Buffer

from forebay.store.backends import Listed
from forebay.store.backends.filesystem import (
    READ_FLAGS,
    Folders,
    ignore_missing,
    is_missing,
    iter_file_names,
    open_locked,
    raise_translated,
    translate_os_errors,
    unlock,
)
from forebay.store.backends.local_accounts import LocalAccounts, LocalRecount
from forebay.store.backends.local_counts import LocalCountTable
from forebay.store.backends.local_log import LocalLog
from forebay.store.entries import Entry
from forebay.store.handles import format_date, is_handle
from forebay.store.payload import EXTENSIONS
from forebay.system import files
from forebay.system.descriptors import close_quietly

__all__ = ["LocalBackend"]

_FILE_PATTERN = re.compile(rf"([^.]+)\.(?:{'|'.join(EXTENSIONS)})\.zst")
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | files.SAFE_OPEN_FLAGS


class LocalBackend:
    """Objects as files under `root`, which is created if it is missing.

    With `is_durable`, a committed object survives a power cut.
    """

    expires_by_handle = False

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time, is_durable: bool = False) -> None:
        with translate_os_errors:
            self.folders = Folders(root, is_durable=is_durable)
        self.clock = clock
        self.is_durable = is_durable
        self.accounts = LocalAccounts(self.folders)
        self.log = LocalLog(self.folders, clock)
        self.call_counts = LocalCountTable(self.folders)

    @property
    def folder(self) -> Path:
        return self.folders.root

    def check(self) -> None:
        with translate_os_errors:
            self.folders.refresh()
            files.stat_file(".", self.folders.root_fd)

    def create(self, handle: str) -> "LocalUpload":
        # Not `translate_os_errors`, which is slower: every put calls this.
        try:
            return self.folders.retry(LocalUpload, self, handle)
        except OSError as error:
            raise_translated(error)
            raise

    def open(self, handle: str, version: object = None) -> "LocalBlob":  # noqa: ARG002 - an open file has one
        try:
            folders_version = self.folders.version
            blob = self._find(handle)
            if blob is None:
                # Another process may have added a day folder since the last refresh, and stored the object there.
                self.folders.refresh()
                if self.folders.version != folders_version:
                    blob = self._find(handle)
        except OSError as error:
            raise_translated(error)
            raise
        if blob is None:
            raise KeyError(handle)
        return blob

    def _find(self, handle: str) -> "LocalBlob | None":
        for day in self.folders.days:
            with ignore_missing:
                folder_fd = self.folders.get_fd(day)
                for extension in EXTENSIONS:
                    # Not `ignore_missing`, which is slower: every page calls this.
                    try:
                        return LocalBlob(files.open_file(f"{handle}.{extension}.zst", READ_FLAGS, folder_fd))
                    except OSError as error:
                        if not is_missing(error):
                            raise
        return None

    def is_committed(self, handle: str, version: object) -> bool:  # noqa: ARG002 - a commit is one step
        return True

    def list(self) -> Iterator[Listed]:
        with translate_os_errors:
            self.folders.refresh()
            for day in self.folders.days:
                with ignore_missing:
                    for name in iter_file_names(self.folders.get_fd(day)):
                        file = _FILE_PATTERN.fullmatch(name)
                        if file and is_handle(file[1]):
                            yield Listed(file[1])

    def delete(self, handle: str, size: int, accounts: Collection[str]) -> bool:
        return self.accounts.release(size, accounts, lambda: self._remove(handle))

    def _remove(self, handle: str) -> bool:
        with translate_os_errors:
            self.folders.refresh()
            for day in self.folders.days:
                with ignore_missing:
                    folder_fd = self.folders.get_fd(day)
                    for extension in EXTENSIONS:
                        with ignore_missing:
                            files.remove_file(f"{handle}.{extension}.zst", folder_fd)
                            return True
        return False

    def usage(self, accounts: Collection[str] | None = None) -> dict[str, int]:
        return self.accounts.read(accounts)

    def begin_recount(self) -> LocalRecount:
        return self.accounts.begin_recount()

    def remove_leftovers(self) -> int:
        """Remove the files of crashed writers, and empty day folders; return the number of files."""
        with translate_os_errors:
            self.folders.refresh()
            partial = self.folders.get_fd(".partial", create=True)
            removed = sum(_remove_orphan(name, partial) for name in files.list_names(partial))
            for day in self.folders.days:
                if day != format_date(self.clock()):
                    # `rmdir` fails on a folder that is not empty.
                    with contextlib.suppress(OSError):
                        files.remove_folder(day, self.folders.root_fd)
            self.folders.refresh()
        return removed

    @contextlib.contextmanager
    def lock(self, *, wait: bool) -> Iterator[bool]:
        fd = -1
        try:
            with translate_os_errors:
                fd = self.folders.retry(lambda: files.open_lock(self.folders.root_fd))
                try:
                    files.lock(fd, wait=wait)
                    is_acquired = True
                except BlockingIOError:
                    is_acquired = False
            yield is_acquired
        finally:
            if fd >= 0 and unlock(fd):
                close_quietly(fd)

    def close(self) -> None:
        self.log.close()
        self.accounts.close()
        self.folders.close()


class LocalUpload:
    """An unfinished file. Its lock tells the sweeps of all processes that its writer is alive."""

    def __init__(self, backend: LocalBackend, handle: str) -> None:
        self._backend = backend
        self._handle = handle
        self._folder_fd = backend.folders.get_fd(".partial", create=True)
        # Before the file is locked, a sweep may remove it as an orphan; `open_locked` then creates it again.
        try:
            self._fd = open_locked(handle, _CREATE_FLAGS, self._folder_fd)
        except FileExistsError:
            # What is written under a handle that is not new, such as a sidecar, may be left by a killed writer.
            if not _remove_orphan(handle, self._folder_fd):
                raise
            self._fd = open_locked(handle, _CREATE_FLAGS, self._folder_fd)
        self._size = 0

    def write(self, parts: Sequence[Buffer]) -> None:
        try:
            for i in range(0, len(parts), files.MAX_PARTS):
                batch = parts[i : i + files.MAX_PARTS]
                written, size = files.write_parts(self._fd, batch), sum([memoryview(part).nbytes for part in batch])
                self._size += size
                if written < size:
                    # A nearly full disk stores only a part of the data; writing the remaining part raises the error.
                    _write_all(self._fd, memoryview(b"".join(batch))[written:])
        except OSError as error:
            raise_translated(error)
            raise

    def read(self, start: int, length: int) -> bytes:
        return _read_range(self._fd, start, length)

    def commit(self, extension: str, limits: Mapping[str, int | None], entry: Entry) -> None:  # noqa: ARG002 - no index
        name = f"{self._handle}.{extension}.zst"
        # Retried, because a sweep at midnight may have removed today's folder while it was empty.
        move = functools.partial(self._backend.folders.retry, self._move_into_place, name)
        self._backend.accounts.reserve(self._size, limits, move)
        self._close()

    def _move_into_place(self, name: str) -> None:
        folders, today = self._backend.folders, format_date(self._backend.clock())
        if self._backend.is_durable:
            files.sync(self._fd)
        folder_fd = folders.get_fd(today, create=True)
        try:
            files.rename(self._handle, self._folder_fd, name, folder_fd)
            if self._backend.is_durable:
                files.sync_folder(folder_fd)
                files.sync_folder(folders.root_fd)
            # The folder of the open descriptor may have been moved away, alone or with the root.
            folders.check_current(today, folder_fd)
        except BaseException:
            # The caller gets an error, or the object is moved to another folder, so it must not stay in this one.
            self._withdraw(name, folder_fd)
            raise

    def _withdraw(self, name: str, folder_fd: int) -> None:
        try:
            files.rename(name, folder_fd, self._handle, self._folder_fd)
        except OSError:
            with contextlib.suppress(OSError):
                files.remove_file(name, folder_fd)

    def abort(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                files.remove_file(self._handle, self._folder_fd)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        close_quietly(fd)


def _write_all(fd: int, view: memoryview) -> None:
    while len(view):
        view = view[files.write_parts(fd, (view,)) :]


def _read_range(fd: int, start: int, length: int) -> bytes:
    try:
        data = files.read_at(fd, length, start)
        while len(data) < length:
            chunk = files.read_at(fd, length - len(data), start + len(data))
            if not chunk:
                break
            data += chunk
        return data
    except OSError as error:
        raise_translated(error)
        raise


class LocalBlob:
    """A file that is open for reading. It stays readable after it is deleted."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._content: bytes | None = None
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
        if self._content is not None:
            return self._content[start : start + length]
        data = _read_range(self._fd, start, length)
        if start == 0 and len(data) == self.size:
            # The read for the footer got all of a small file. Its frames are read next, from memory.
            self._content = data
        return data

    def read_ahead(self) -> None:
        """Do nothing: the system reads ahead."""

    def check(self) -> None:
        """Do nothing: a deleted file stays readable while it is open."""

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
        fd = files.open_file(name, READ_FLAGS, folder_fd)
    except OSError:
        # Either the file was committed in the meantime, or it is something else, such as a link that someone planted.
        return False
    try:
        files.lock(fd, wait=False)
        # If the file was committed just before it was locked, it was renamed, so it is not removed here.
        files.remove_file(name, folder_fd)
    except OSError:
        return False
    finally:
        close_quietly(fd)
    return True
