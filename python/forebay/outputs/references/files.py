"""Open files below the allowed folders only, for paths that a client chose.

Each folder of a path is opened relative to its parent, without following symbolic links, and checks are made on the
open descriptor. So nothing can be swapped between the check and the read.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from forebay.arguments import is_text, short_repr
from forebay.errors import FileRefDenied, FileRefNotFound, InvalidArgument
from forebay.system import files
from forebay.system.paths import IS_WINDOWS, NativePath, check_windows_name

__all__ = ["FileRoots", "OpenFile"]

_READ_FLAGS = os.O_RDONLY | files.SAFE_OPEN_FLAGS


class OpenFile:
    """A regular file, open for reading; `size` is its size when it was opened."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        chunks: list[bytes] = []
        try:
            while start < end and (chunk := files.read_at(self._fd, end - start, start)):
                chunks.append(chunk)
                start += len(chunk)
        except OSError as error:
            raise FileRefDenied(f"this file cannot be read: {error.strerror}; name another one") from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class FileRoots:
    """The folders below which files may be read; the store's folder and secret files are always refused."""

    _option = "file_roots"
    _use = "read"

    def __init__(
        self,
        roots: Iterable[str | os.PathLike[str]],
        store_folder: Path | None,
        secret_files: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        if isinstance(roots, str | os.PathLike):
            raise InvalidArgument(f"{self._option} are a list of folders, such as [{str(roots)!r}]")
        self._store_folder = store_folder
        self._secret_files = [os.fspath(path) for path in secret_files]
        # Each root as configured and as resolved: the operator may name a root by a symbolic link.
        self._roots = [(_check_root(root, self._option), NativePath(os.path.realpath(root))) for root in roots]

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[OpenFile]:
        """Open the file at a path that is relative to the first root, or absolute and below any root."""
        with contextlib.ExitStack() as stack:
            try:
                anchor, *folders, name = self._split_path(path)
                folder = self._open_folder(anchor, folders, path, stack)
                fd, size = _open_regular(name, folder, path, stack)
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
        """Return the root of the file system or drive, the names of the folders below it, and the file's own name."""
        requested = NativePath(path)
        if not is_text(path) or "\0" in path or ".." in requested.parts:
            raise FileRefDenied(f'{short_repr(path)} is refused for its ".." or its characters; write a plain path')
        if IS_WINDOWS:
            _check_windows_names(requested, path)
        if not requested.anchor and self._roots:
            return self._split_below_root(self._roots[0][1] / requested, path)
        for configured, resolved in self._roots:
            for root in (configured, resolved):
                if requested.is_relative_to(root):
                    return self._split_below_root(resolved / requested.relative_to(root), path)
        raise FileRefDenied(f"{short_repr(path)} is no file that may be {self._use}, {self._describe_roots()}")

    def _split_below_root(self, resolved_path: PurePath, path: str) -> list[str]:
        if any(resolved_path == root for _, root in self._roots):
            raise FileRefDenied(f"{short_repr(path)} is a folder; name a file {self._describe_roots()}")
        return list(resolved_path.parts)

    def _open_folder(self, anchor: str, names: list[str], path: str, stack: contextlib.ExitStack) -> int:
        store_status = self._stat_store_folder()
        folder = _close_on_exit(files.enter_root(anchor), stack)
        for name in names:
            is_link = stat.S_ISLNK(_stat_file(name, folder, path).st_mode)
            try:
                folder = _close_on_exit(files.enter_folder(name, folder), stack)
            except OSError:
                if is_link:
                    raise _make_link_error(path) from None
                raise
            if store_status is not None and os.path.samestat(os.fstat(folder), store_status):
                raise FileRefDenied(
                    f'{short_repr(path)} is in the store; refer to a stored output by its handle, {{"$handle": "oh_…"}}'
                )
        return folder

    def _is_secret(self, fd: int) -> bool:
        """Return whether an open file is one of the secret files: tokens or configuration."""
        status = os.fstat(fd)
        for path in self._secret_files:
            with contextlib.suppress(OSError):
                if os.path.samestat(status, os.stat(path)):
                    return True
        return False

    def _stat_store_folder(self) -> os.stat_result | None:
        with contextlib.suppress(OSError):
            return None if self._store_folder is None else os.stat(self._store_folder)
        return None

    def _describe_roots(self) -> str:
        if not self._roots:
            return f"(no folder is allowed: {self._option} is empty)"
        return "below " + " or ".join(dict.fromkeys(str(root) for root, _ in self._roots))


def _check_root(root: str | os.PathLike[str], option: str) -> PurePath:
    if not os.path.isdir(root):
        raise InvalidArgument(f"{option}: {short_repr(os.fspath(root))} is no folder; make it, or name another one")
    return NativePath(os.path.abspath(root))


def _close_on_exit(fd: int, stack: contextlib.ExitStack) -> int:
    stack.callback(os.close, fd)
    return fd


def _open_regular(name: str, folder: int, path: str, stack: contextlib.ExitStack) -> tuple[int, int]:
    """Open a regular file and return its descriptor and size."""
    # Checked before opening as well: opening a device can have side effects.
    _check_regular(_stat_file(name, folder, path), path)
    fd = _close_on_exit(files.open_file(name, _READ_FLAGS, folder), stack)
    status = os.fstat(fd)
    _check_regular(status, path)
    if files.is_pseudo_device(status.st_dev) or (status.st_size == 0 and files.read_at(fd, 1, 0)):
        raise FileRefDenied(f"{short_repr(path)} is not a file on a disk; copy it to one, and refer to that")
    return fd, status.st_size


def _stat_file(name: str, folder: int, path: str) -> os.stat_result:
    try:
        return files.stat_file(name, folder)
    except OSError as error:
        # On Windows the status of a link is an error.
        if error.errno == errno.ELOOP:
            raise _make_link_error(path) from None
        raise


def _check_windows_names(requested: PurePath, path: str) -> None:
    """Refuse names that mean something else to Windows than a file with that name."""
    for name in requested.parts[1 if requested.anchor else 0 :]:
        reason = check_windows_name(name)
        if reason is not None:
            raise FileRefDenied(f"{short_repr(path)} is refused: {short_repr(name)} {reason}; name another file")


def _check_regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _make_link_error(path)
    if not stat.S_ISREG(status.st_mode):
        file_type = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, a pipe or a socket"
        raise FileRefDenied(f"{short_repr(path)} is {file_type}; name a file")
    # Refused, because another hard link to the same file may lie outside the roots.
    if status.st_nlink > 1:
        raise FileRefDenied(
            f"{short_repr(path)} has more names than this one (hard links); copy it, and refer to the copy"
        )


def _make_link_error(path: str) -> FileRefDenied:
    return FileRefDenied(f"{short_repr(path)} is a symbolic link or leads through one; name the file itself")
