"""Opening a file that someone else named, so that it is one below the folders that were allowed.

Each folder on the way is opened from the one above it and no symbolic link is followed, so that nothing can be put in
its place between a check and an opening. What is checked is what was opened.
"""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from forebay.arguments import is_text, short_repr
from forebay.errors import FileRefDenied, FileRefNotFound, InvalidArgument

__all__ = ["FileRoots", "OpenFile", "is_pseudo_device"]

# Only to go through it: a folder on the way need not be one that we may list.
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: it may have become a pipe.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class OpenFile:
    """A regular file, open for reading, as large as it was when it was opened."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        pieces: list[bytes] = []
        try:
            while start < end and (piece := os.pread(self._fd, end - start, start)):
                pieces.append(piece)
                start += len(piece)
        except OSError as error:
            raise FileRefDenied(f"this file cannot be read: {error.strerror}; name another one") from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class FileRoots:
    """The folders that files may be read below, and the one that none is ever read below."""

    def __init__(
        self,
        roots: Iterable[str | os.PathLike[str]],
        store_folder: Path | None,
        secret_files: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        if isinstance(roots, str | os.PathLike):
            raise InvalidArgument(f"file_roots are a list of folders, such as [{str(roots)!r}]")
        self._store_folder = store_folder
        self._secret_files = [os.fspath(path) for path in secret_files]
        # As they were named, and where they are: the way to them may have links, and was chosen by who runs this.
        self._roots = [(_check_root(root), PurePosixPath(os.path.realpath(root))) for root in roots]

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[OpenFile]:
        """The file at a path, which is relative to the first root or below one of them."""
        with contextlib.ExitStack() as opened:
            try:
                *folders, name = self._split_path(path)
                folder = self._open_folder(folders, path, opened)
                fd, size = _open_regular(name, folder, path, opened)
                if self._is_secret(fd):
                    raise FileRefDenied(
                        f"{short_repr(path)} is not for tools to read; name another file {self._describe_roots()}"
                    )
            except FileRefDenied:
                raise
            except (FileNotFoundError, NotADirectoryError):
                raise FileRefNotFound(
                    f"there is no file {short_repr(path)} {self._describe_roots()}; check the path"
                ) from None
            except OSError as error:
                raise FileRefDenied(
                    f"{short_repr(path)} cannot be opened: {error.strerror}; name another file {self._describe_roots()}"
                ) from None
            yield OpenFile(fd, size)

    def _split_path(self, path: str) -> list[str]:
        """The folders on the way to a file, from the very top, and its own name."""
        given = PurePosixPath(path)
        if not is_text(path) or "\0" in path or ".." in given.parts:
            raise FileRefDenied(f'{short_repr(path)} is refused for its ".." or its characters; write a plain path')
        if not given.is_absolute() and self._roots:
            return self._check_not_root(self._roots[0][1] / given, path)
        for roots in self._roots:
            for root in roots:
                if given.is_relative_to(root):
                    return self._check_not_root(roots[1] / given.relative_to(root), path)
        raise FileRefDenied(f"{short_repr(path)} is not among the files that may be read, {self._describe_roots()}")

    def _check_not_root(self, path: PurePosixPath, given: str) -> list[str]:
        names = list(path.parts[1:])
        if any(path == root for _, root in self._roots):
            raise FileRefDenied(f"{short_repr(given)} is a folder; name a file {self._describe_roots()}")
        return names

    def _open_folder(self, names: list[str], path: str, opened: contextlib.ExitStack) -> int:
        never = self._stat_store_folder()
        folder = _close_on_exit(os.open("/", _FOLDER_FLAGS), opened)
        for name in names:
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            try:
                folder = _close_on_exit(os.open(name, _FOLDER_FLAGS, dir_fd=folder), opened)
            except OSError:
                if is_link:
                    raise _link_error(path) from None
                raise
            if never is not None and os.path.samestat(os.fstat(folder), never):
                raise FileRefDenied(
                    f'{short_repr(path)} is in the store; refer to a stored output by its handle, {{"$handle": "oh_…"}}'
                )
        return folder

    def _is_secret(self, fd: int) -> bool:
        """Whether it is one of the files that say who may call, or how servers are reached."""
        opened = os.fstat(fd)
        for path in self._secret_files:
            with contextlib.suppress(OSError):
                if os.path.samestat(opened, os.stat(path)):
                    return True
        return False

    def _stat_store_folder(self) -> os.stat_result | None:
        with contextlib.suppress(OSError):
            return None if self._store_folder is None else os.stat(self._store_folder)
        return None

    def _describe_roots(self) -> str:
        if not self._roots:
            return "(no folder is allowed: file_roots is empty)"
        return "below " + " or ".join(dict.fromkeys(str(given) for given, _ in self._roots))


def _check_root(root: str | os.PathLike[str]) -> PurePosixPath:
    if not os.path.isdir(root):
        raise InvalidArgument(f"file_roots: {short_repr(os.fspath(root))} is no folder; make it, or name another one")
    return PurePosixPath(os.path.abspath(root))


def _close_on_exit(fd: int, opened: contextlib.ExitStack) -> int:
    opened.callback(os.close, fd)
    return fd


def _open_regular(name: str, folder: int, path: str, opened: contextlib.ExitStack) -> tuple[int, int]:
    """An open file and its size."""
    # Looked at before, too: opening a device may do something.
    _check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
    fd = _close_on_exit(os.open(name, _READ_FLAGS, dir_fd=folder), opened)
    status = os.fstat(fd)
    _check_regular(status, path)
    if is_pseudo_device(status.st_dev) or (status.st_size == 0 and os.pread(fd, 1, 0)):
        raise FileRefDenied(f"{short_repr(path)} is not a file on a disk; copy it to one, and refer to that")
    return fd, status.st_size


def _check_regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _link_error(path)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, a pipe or a socket"
        raise FileRefDenied(f"{short_repr(path)} is {kind}; name a file")
    # Its other names may be anywhere, also where nothing may be read.
    if status.st_nlink > 1:
        raise FileRefDenied(
            f"{short_repr(path)} has more names than this one (hard links); copy it, and refer to the copy"
        )


def _link_error(path: str) -> FileRefDenied:
    return FileRefDenied(f"{short_repr(path)} is a symbolic link or leads through one; name the file itself")


_PSEUDO_FILESYSTEMS = frozenset(
    b"autofs binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devfs devpts devtmpfs efivarfs fdescfs "
    b"functionfs fusectl mqueue nfsd nsfs proc procfs pstore resctrl rpc_pipefs securityfs selinuxfs smackfs sysfs "
    b"tracefs".split()
)
_MOUNT_INFO = Path("/proc/self/mountinfo")


def is_pseudo_device(device: int) -> bool:
    """Whether what is mounted from a device is made up by the kernel, wherever it is mounted."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    # Where the list is not, there is no /proc either.
    with contextlib.suppress(OSError):
        return any(_is_pseudo_mount(line, number) for line in _MOUNT_INFO.read_bytes().splitlines())
    return False


def _is_pseudo_mount(mount: bytes, number: bytes) -> bool:
    """By a line such as `22 27 0:21 / /proc rw,nosuid - proc proc rw`."""
    about, _, kind = mount.partition(b" - ")
    return about.split()[2:3] == [number] and kind.split()[:1] != [] and kind.split()[0] in _PSEUDO_FILESYSTEMS
