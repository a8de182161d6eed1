"""Access to a private folder through open descriptors, and translation of operating system errors.

Symbolic links are never followed, so that a link planted in the folder cannot lead out of it.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from forebay.errors import ForebayError, StoreFull, StoreUnavailable
from forebay.store.threads import fork_safe_lock
from forebay.system import files
from forebay.system.descriptors import close_quietly

__all__ = [
    "READ_FLAGS",
    "Folders",
    "ignore_missing",
    "is_missing",
    "iter_file_names",
    "open_locked",
    "raise_translated",
    "translate_os_errors",
    "unlock",
]

_T = TypeVar("_T")
_P = ParamSpec("_P")

_DAY_PATTERN = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

READ_FLAGS = os.O_RDONLY | files.SAFE_OPEN_FLAGS


class Folders:
    """Open descriptors of a root folder and of the folders in it.

    Other processes may remove or replace a folder at any time; `refresh` notices that. With `is_durable`, a root that
    is created survives a power cut.
    """

    def __init__(self, root: Path, *, is_durable: bool = False) -> None:
        self.root = root
        self._path = os.fspath(root)
        self._is_durable = is_durable
        self._lock = fork_safe_lock()
        self._fds: dict[str, int] = {}
        # Device and inode of each open folder, by its descriptor.
        self._identities: dict[int, tuple[int, int]] = {}
        # Descriptors of removed folders stay open: another thread may be about to use one, and the system soon reuses
        # the number of a closed descriptor for another file.
        self._stale_fds: list[int] = []
        self._days: list[str] = []
        self.version = 0
        """Incremented whenever this object notices that folders were added, removed or replaced."""
        self._root_fd = _open_root(root, is_durable=is_durable)
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def get_fd(self, name: str, *, create: bool = False) -> int:
        """Return the descriptor of a folder; with `create`, create the folder if it is missing."""
        fd = self._fds.get(name)
        if fd is not None:
            return fd
        with self._lock:
            fd = self._fds.get(name)
            if fd is None:
                if create:
                    with contextlib.suppress(FileExistsError):
                        files.make_private_folder(name, self.root_fd)
                fd = self._fds[name] = files.open_subfolder(name, self.root_fd)
                self._refresh_days()
        return fd

    def check_current(self, name: str, fd: int) -> None:
        """Check that an open folder is the one that others find under the path of the root.

        Raise `StoreUnavailable` if the root was moved away, or `FileNotFoundError` if only the folder was.
        """
        # Not `ignore_missing`, which is slower: every put calls this.
        try:
            identity = _identify(os.stat(f"{self._path}/{name}", follow_symlinks=False))
            if self._identities.get(fd) != identity:
                # Not known yet, or changed: an overlay file system may change the inode of a folder.
                self._identities[fd] = _identify(os.fstat(fd))
            if self._identities[fd] == identity:
                return
        except OSError as error:
            if not is_missing(error):
                raise
        is_root_removed = files.is_removed(os.fstat(self.root_fd), self.root_fd)
        if not is_root_removed and not os.path.lexists(self.root):
            raise StoreUnavailable(f"{self.root} was moved away; move it back, or open the store again")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    @property
    def days(self) -> list[str]:
        """Names of the day folders as of the last refresh, newest first."""
        return self._days

    @property
    def root_fd(self) -> int:
        """The descriptor of the root. Raises `StoreUnavailable` if the store is closed."""
        if self._root_fd < 0:
            raise StoreUnavailable("this store is closed; open it again with open_store")
        return self._root_fd

    def refresh(self) -> None:
        """Drop the descriptors of folders that were removed or replaced, and list the day folders again."""
        with self._lock:
            if self._is_root_replaced():
                root_fd = _open_root(self.root, is_durable=self._is_durable)
                self._stale_fds += self._root_fd, *self._fds.values()
                self._root_fd, self._fds = root_fd, {}
                self.version += 1
            for name, fd in list(self._fds.items()):
                if not self._is_unchanged(name, fd):
                    self._stale_fds.append(self._fds.pop(name))
                    self.version += 1
            self._refresh_days()

    def _is_unchanged(self, name: str, fd: int) -> bool:
        with ignore_missing:
            return os.path.samestat(os.fstat(fd), files.stat_file(name, self.root_fd))
        return False

    def _is_root_replaced(self) -> bool:
        """Return whether the root was deleted, or another folder is at its path. A renamed root still works."""
        status = os.fstat(self.root_fd)
        if files.is_removed(status, self.root_fd):
            return True
        with ignore_missing:
            return not os.path.samestat(status, os.stat(self.root, follow_symlinks=False))
        return False

    def retry(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function. If a folder is missing, reopen the folders and repeat the call, at most three times."""
        # Not `ignore_missing`, which is slower: every put calls this several times.
        for _ in range(3):
            try:
                return function(*args, **kwargs)
            except OSError as error:
                if not is_missing(error):
                    raise
            self.refresh()
        return function(*args, **kwargs)

    def _refresh_days(self) -> None:
        days = sorted(filter(_DAY_PATTERN.fullmatch, files.list_names(self.root_fd)), reverse=True)
        if days != self._days:
            self._days = days
            self.version += 1

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            fds = (self._root_fd, *self._fds.values(), *self._stale_fds)
            # Clear the descriptors before they are closed: the system soon reuses their numbers for other files.
            self._root_fd, self._fds, self._stale_fds, self._days = -1, {}, [], []
            for fd in fds:
                if fd >= 0:
                    close_quietly(fd)


def unlock(fd: int) -> bool:
    """Release the lock of an open file. If that fails, close the file, which releases the lock too, and return false.

    Closing alone is not enough: a child forked meanwhile has the file open too, and would keep the lock.
    """
    try:
        files.unlock(fd)
    except OSError:
        close_quietly(fd)
        return False
    return True


def open_locked(name: str, flags: int, folder_fd: int) -> int:
    """Open and lock a file, and return its descriptor. If the file is removed before it is locked, try again."""
    while True:
        fd = files.open_file(name, flags, folder_fd)
        try:
            files.lock(fd)
            if not files.is_removed(files.ensure_private(fd), fd):
                return fd
        except BaseException:
            close_quietly(fd)
            raise
        close_quietly(fd)


def iter_file_names(folder_fd: int) -> Iterator[str]:
    """Iterate over the names of the regular files in an open folder, which may be millions."""
    pid = os.getpid()
    for name in files.iter_file_names(folder_fd):
        yield name
        if os.getpid() != pid:
            raise StoreUnavailable("a forked process cannot continue this listing; list the store again")


def _open_root(root: Path, *, is_durable: bool) -> int:
    try:
        _create_root(root, is_durable=is_durable)
    except OSError as error:
        reason = error.strerror or error
        raise StoreUnavailable(
            f"{root} cannot be made: {reason}; name a folder of your own, here or in FOREBAY_HOME"
        ) from error
    if root.is_symlink():
        raise StoreUnavailable(f"{root} is a symbolic link; name the folder it leads to, or another one")
    try:
        fd = files.open_folder(root)
    except NotADirectoryError as error:
        raise StoreUnavailable(f"{root} is not a folder; name one, here or in FOREBAY_HOME") from error
    try:
        problem = files.describe_foreign_access(fd, root)
        if problem is not None:
            raise StoreUnavailable(problem)
    except BaseException:
        close_quietly(fd)
        raise
    return fd


def _create_root(root: Path, *, is_durable: bool) -> None:
    missing = [folder for folder in (root, *root.parents) if not os.path.lexists(folder)]
    root.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        files.create_private_folder(root)
    if is_durable:
        for folder in missing:
            files.sync_folder_at(folder.parent)


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def is_missing(error: BaseException | None) -> bool:
    """Return whether an error means that a file or folder does not exist."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return True
    # O_NOFOLLOW reports a symbolic link as ELOOP; the store never creates one.
    return isinstance(error, OSError) and error.errno == errno.ELOOP


_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def raise_translated(error: BaseException | None) -> None:
    """Raise `StoreFull` or `StoreUnavailable` in place of an `OSError`; return for anything else."""
    if not isinstance(error, OSError) or isinstance(error, ForebayError):
        return
    if error.errno in _DISK_FULL_ERRNOS:
        raise StoreFull("the disk has no room for this payload; free some, or store less of it") from error
    raise StoreUnavailable(f"the store cannot be used: {error.strerror or error}") from error


# `_TranslateOSErrors` and `_IgnoreMissing` are classes, because a context manager made by `contextlib` works only once.
class _TranslateOSErrors:
    def __enter__(self) -> None:
        pass

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> None:
        raise_translated(error)


class _IgnoreMissing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> bool:
        return is_missing(error)


translate_os_errors = _TranslateOSErrors()
"""Context manager that raises `StoreFull` or `StoreUnavailable` in place of an `OSError`."""

ignore_missing = _IgnoreMissing()
"""Context manager that ends its block quietly if a file or folder does not exist."""
