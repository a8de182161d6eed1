"""Accounts of stored bytes as files: each `.usage/<account>` holds the bytes and a position."""

import errno
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, Self

from forebay.store.backends import TOTAL_ACCOUNT, AccountFull, has_room, name_account
from forebay.store.backends.filesystem import (
    READ_FLAGS,
    Folders,
    ignore_missing,
    open_locked,
    raise_translated,
    unlock,
)
from forebay.store.threads import fork_safe_lock
from forebay.system import files
from forebay.system.descriptors import close_quietly

__all__ = ["LocalAccounts", "LocalRecount"]

_COUNT_FORMAT = struct.Struct("<qq")
_USED_BYTES_FORMAT = struct.Struct("<q")
_MAX_COUNT = 1 << 62
_ACCOUNT_PATTERN = re.compile(rf"{TOTAL_ACCOUNT}|p-[0-9a-f]{{32}}")
_WRITE_FLAGS = os.O_RDWR | os.O_CREAT | files.SAFE_OPEN_FLAGS

_MAX_LOCKED_CORRECTIONS = 64
"""Maximum number of accounts that a recount corrects before it lets other users of the accounts pass."""


class _Count(NamedTuple):
    """The content of an account's file."""

    used_bytes: int
    position: int
    """Bytes that were ever added to or removed from the whole store, as of the last such change of this account."""


class LocalAccounts:
    """The accounts of a root.

    An object and its accounts change under one lock, so that a recount can tell what changed since it began.
    """

    def __init__(self, folders: Folders) -> None:
        self._files = _CountFiles(folders)

    def read(self, names: Collection[str] | None = None) -> dict[str, int]:
        """Return the stored bytes of these accounts, or of all."""
        with self._files.lock, self._files as accounts:
            return _get_usage({name: accounts.get(name) for name in (accounts.names() if names is None else names)})

    def reserve(self, size: int, limits: Mapping[str, int | None], commit: Callable[[], object]) -> None:
        """Add `size` bytes and call `commit`, which makes the object visible. If that raises, take the bytes back.

        Raises `AccountFull` if the bytes do not fit.
        """
        with self._files.lock, self._files as accounts:
            counts = {name: accounts.get(name) for name in limits}
            usage = _get_usage(counts)
            if not has_room(usage, size, limits):
                raise AccountFull(usage)
            try:
                _change(accounts, counts, size)
                commit()
            except BaseException:
                for name, count in counts.items():
                    accounts.set(name, count or _Count(0, 0))
                raise

    def release(self, size: int, names: Collection[str], delete: Callable[[], bool]) -> bool:
        """Call `delete` and, if it returns that the object existed, subtract the object's size."""
        with self._files.lock, self._files as accounts:
            if not delete():
                return False
            _change(accounts, {name: accounts.get(name) for name in names}, -size)
            return True

    def begin_recount(self) -> "LocalRecount":
        """Begin to count all objects."""
        return LocalRecount(self._files)

    def close(self) -> None:
        self._files.close()


def _get_usage(counts: Mapping[str, _Count | None]) -> dict[str, int]:
    return {name: count.used_bytes for name, count in counts.items() if count is not None}


def _change(accounts: "_CountFiles", counts: Mapping[str, _Count | None], added_bytes: int) -> None:
    total = counts[TOTAL_ACCOUNT]
    if total is None:
        # Not counted yet. An account that is set now would look as if it were.
        return
    position = total.position + abs(added_bytes)
    for name, count in counts.items():
        used_bytes = count.used_bytes if count is not None else 0
        accounts.set(name, _Count(max(0, used_bytes + added_bytes), position))


class _CountFiles:
    """The files of the accounts, to be read and set only inside `with files.lock, files`.

    The block holds the lock of the accounts against other threads and processes, and translates errors of the operating
    system.

    The lock against threads is an object of its own: a signal can interrupt a context manager that is written in Python
    before it has released anything.

    The file of `TOTAL_ACCOUNT` stays open, so that the next holder can release a lock that an interrupted
    holder left behind. The other files are opened for each access, because there may be many principals.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self.lock = fork_safe_lock()
        self._folder_fd = -1
        self._total_fd = -1
        self._opened_pid = 0

    # Not `contextlib.contextmanager`, which is slower: every put enters this block.
    def __enter__(self) -> Self:
        try:
            self._folders.retry(self._acquire)
        except BaseException as error:
            self.__exit__(None, error, None)
            raise
        return self

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> None:
        if self._total_fd >= 0 and not unlock(self._total_fd):
            self._total_fd = self._folder_fd = -1
        raise_translated(error)

    def _acquire(self) -> None:
        folder_fd = self._folders.get_fd(".usage", create=True)
        # A descriptor from before a fork shares its lock with the parent, so a child opens its own.
        if folder_fd == self._folder_fd and self._opened_pid == os.getpid():
            files.lock(self._total_fd)
            if not files.is_removed(os.fstat(self._total_fd), self._total_fd):
                return
        self._close()
        self._total_fd = open_locked(TOTAL_ACCOUNT, _WRITE_FLAGS, folder_fd)
        self._folder_fd, self._opened_pid = folder_fd, os.getpid()

    def get(self, name: str) -> _Count | None:
        """Return an account, or `None` if it is not set or is 0."""
        if name == TOTAL_ACCOUNT:
            return _read_count(self._total_fd)
        with ignore_missing:
            fd = files.open_file(name, READ_FLAGS, self._folder_fd)
            try:
                return _read_count(fd)
            finally:
                close_quietly(fd)
        return None

    def set(self, name: str, count: _Count) -> None:
        """Set an account. A principal's account that becomes 0 is removed."""
        if name == TOTAL_ACCOUNT:
            files.write_at(self._total_fd, _COUNT_FORMAT.pack(*count), 0)
        elif count.used_bytes:
            fd = files.open_file(name, _WRITE_FLAGS, self._folder_fd)
            try:
                files.ensure_private(fd)
                files.write_at(fd, _COUNT_FORMAT.pack(*count), 0)
            finally:
                close_quietly(fd)
        else:
            with ignore_missing:
                files.remove_file(name, self._folder_fd)

    def names(self) -> Iterator[str]:
        """Return the names of the accounts that are set."""
        return filter(_ACCOUNT_PATTERN.fullmatch, files.list_names(self._folder_fd))

    def close(self) -> None:
        """Close the file of `TOTAL_ACCOUNT`."""
        with self.lock:
            self._close()

    def _close(self) -> None:
        fd, self._total_fd, self._folder_fd = self._total_fd, -1, -1
        if fd >= 0:
            close_quietly(fd)


def _read_count(fd: int) -> _Count | None:
    try:
        stored = files.read_at(fd, _COUNT_FORMAT.size, 0)
    except OSError as error:
        # A pipe that someone planted has no positions.
        if error.errno != errno.ESPIPE:
            raise
        return None
    if len(stored) == _USED_BYTES_FORMAT.size:
        # Written by a version that kept no position.
        stored += _USED_BYTES_FORMAT.pack(0)
    if len(stored) != _COUNT_FORMAT.size:
        return None
    used_bytes, position = _COUNT_FORMAT.unpack(stored)
    # Other values are damaged: adding to them could exceed what the file can hold.
    return _Count(used_bytes, position) if 0 <= used_bytes < _MAX_COUNT and 0 <= position < _MAX_COUNT else None


class LocalRecount:
    """A count of all objects, made without the lock of the accounts, that then corrects the accounts.

    Objects may be stored and deleted meanwhile. What has not changed since the beginning is set to the sum of the
    objects. What has changed is only lowered, and never below the true value: to the sum of the objects that were
    listed and of all bytes that were added meanwhile.
    """

    def __init__(self, accounts: _CountFiles) -> None:
        self._files = accounts
        self._sums: Counter[str | None] = Counter()
        with accounts.lock, accounts:
            self._start = accounts.get(TOTAL_ACCOUNT)

    def add(self, principal: str | None, size: int) -> None:
        """Count an object."""
        self._sums[principal] += size

    def apply(self) -> Iterator[None]:
        """Correct the accounts, some at each step of the iteration."""
        sums = Counter({name_account(name): size for name, size in self._sums.items() if name is not None})
        sums[TOTAL_ACCOUNT] = self._sums.total()
        with self._files.lock, self._files as accounts:
            names = {*sums, *accounts.names()} - {TOTAL_ACCOUNT}
        # The total comes last: until it is set, nobody relies on the other accounts.
        remaining = [TOTAL_ACCOUNT, *names]
        while remaining:
            batch = [remaining.pop() for _ in range(min(_MAX_LOCKED_CORRECTIONS, len(remaining)))]
            with self._files.lock, self._files as accounts:
                total = accounts.get(TOTAL_ACCOUNT)
                if not self._is_valid(total):
                    return
                for name in batch:
                    self._correct(accounts, name, sums[name], total)
            yield

    def _is_valid(self, total: _Count | None) -> bool:
        """Return whether the accounts are still those from the beginning, and were not removed or replaced."""
        if self._start is None or total is None:
            return self._start is total
        return total.position >= self._start.position

    def _correct(self, accounts: _CountFiles, name: str, listed: int, total: _Count | None) -> None:
        counted = accounts.get(name)
        if self._start is None or total is None:
            # The first position is random: a count that began with the accounts of another folder changes nothing.
            position = int.from_bytes(os.urandom(7)) if name == TOTAL_ACCOUNT else 0
            accounts.set(name, _Count(listed, position))
            return
        used_bytes, position = counted or _Count(0, total.position)
        if position > self._start.position:
            listed = min(used_bytes, listed + total.position - self._start.position)
        # An account without a value was not written yet when its process was killed.
        if counted is None or listed != used_bytes:
            accounts.set(name, _Count(listed, position))
