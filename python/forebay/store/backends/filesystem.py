"""A folder that belongs to its user alone, and the folders in it, each opened once and from the one above.

No symbolic link is followed, so that nothing planted in the root leads out of it.
"""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from forebay.errors import ForebayError, StoreFull, StoreUnavailable
from forebay.store.threads import ForkSafeLock

__all__ = ["SAFE_OPEN_FLAGS", "Folders", "ensure_private", "ignore_missing", "list_names", "translate_os_errors"]

_T = TypeVar("_T")

_DAY_PATTERN = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Not blocking: what someone planted may be a pipe.
SAFE_OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """Open folders by name. They may be removed by others at any time: `refresh` notices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = ForkSafeLock()
        self._fds: dict[str, int] = {}
        # Folders that are gone, still open: another thread may be about to use one, and a closed number is soon
        # that of some other file.
        self._stale_fds: list[int] = []
        self._days: list[str] = []
        self.version = 0
        """Another one each time that folders are found to have come or gone, by whichever thread."""
        self._root_fd = _open_root(root)
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def get_fd(self, name: str, *, make: bool = False) -> int:
        """The folder `name`, made if it is not there and `make` says so."""
        fd = self._fds.get(name)
        if fd is not None:
            return fd
        with self._lock:
            fd = self._fds.get(name)
            if fd is None:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=self.root_fd)
                        # The umask may have taken from that.
                        os.chmod(name, 0o700, dir_fd=self.root_fd)
                fd = self._fds[name] = os.open(name, _DIRECTORY_FLAGS, dir_fd=self.root_fd)
                self._refresh_days()
        return fd

    def get_current_fd(self, name: str) -> int:
        """The folder `name`, made if it is not there: the one that everyone who opens the store now would find.

        An open folder may have been moved away, itself or with the root, and another one be in its place.
        """
        fd = self.get_fd(name, make=True)
        with ignore_missing:
            if os.path.samestat(os.fstat(fd), os.stat(f"{self.root}/{name}", follow_symlinks=False)):
                return fd
        self.refresh()
        return self.get_fd(name, make=True)

    @property
    def days(self) -> list[str]:
        """The folders of days, newest first, as far as known."""
        return self._days

    @property
    def root_fd(self) -> int:
        if self._root_fd < 0:
            raise StoreUnavailable("this store is closed; open it again with open_store")
        return self._root_fd

    def refresh(self) -> None:
        """Looks again which folders there are."""
        with self._lock:
            if self._is_root_replaced():
                root_fd = _open_root(self.root)
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
            return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=self.root_fd, follow_symlinks=False))
        return False

    def _is_root_replaced(self) -> bool:
        """Whether the root was removed, or another one is in its place; one that was moved away is still good."""
        ours = os.fstat(self.root_fd)
        if ours.st_nlink == 0:
            return True
        with ignore_missing:
            return not os.path.samestat(ours, os.stat(self.root, follow_symlinks=False))
        return False

    def retry(self, attempt: Callable[[], _T]) -> _T:
        """Tries again when a folder turns out to be gone: others remove them, the root too."""
        for _ in range(3):
            with ignore_missing:
                return attempt()
            self.refresh()
        return attempt()

    def _refresh_days(self) -> None:
        days = sorted(filter(_DAY_PATTERN.fullmatch, list_names(self.root_fd)), reverse=True)
        if days != self._days:
            self._days = days
            self.version += 1

    def close(self) -> None:
        with self._lock:
            fds = (self._root_fd, *self._fds.values(), *self._stale_fds)
            # Never used again: the numbers are soon those of other files.
            self._root_fd, self._fds, self._stale_fds, self._days = -1, {}, [], []
            for fd in fds:
                if fd >= 0:
                    os.close(fd)


def list_names(folder: int) -> list[str]:
    """What is in an open folder.

    It is opened once more for that: all who list through one descriptor share the place they have got to, and miss what
    the others were given.
    """
    fd = os.open(".", _DIRECTORY_FLAGS, dir_fd=folder)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def ensure_private(fd: int) -> os.stat_result:
    """What is known of an open file of ours, which only its owner may read and write, whatever the umask."""
    status = os.fstat(fd)
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(fd, 0o600)
    return status


def _open_root(root: Path) -> int:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
            root.chmod(0o700)
    except OSError as error:
        why = error.strerror or error
        raise StoreUnavailable(
            f"{root} cannot be made: {why}; name a folder of your own, here or in FOREBAY_HOME"
        ) from error
    if root.is_symlink():
        raise StoreUnavailable(f"{root} is a symbolic link; name the folder it leads to, or another one")
    fd = os.open(root, _DIRECTORY_FLAGS)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        os.close(fd)
        raise StoreUnavailable(f"{root} belongs to another user; name a folder of your own, here or in FOREBAY_HOME")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise StoreUnavailable(f"{root} can be written to by others; run: chmod 700 {root}")
    return fd


_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _TranslateOSErrors:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError) or isinstance(error, ForebayError):
            return
        if error.errno in _DISK_FULL_ERRNOS:
            raise StoreFull("the disk has no room for this payload; free some, or store less of it") from error
        raise StoreUnavailable(f"the store cannot be used: {error.strerror or error}") from error


class _IgnoreMissing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return True
        # A symbolic link is refused as a loop: it is nothing of ours.
        return isinstance(error, OSError) and error.errno == errno.ELOOP


translate_os_errors = _TranslateOSErrors()
"""Within it, an `OSError` becomes `StoreFull` or `StoreUnavailable`, with the reason in its message."""

ignore_missing = _IgnoreMissing()
"""Within it, what is not there ends the block quietly."""
