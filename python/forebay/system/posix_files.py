"""Files and folders by descriptors, on POSIX."""

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import Buffer

from forebay.system.descriptors import close_quietly

assert sys.platform != "win32"  # noqa: S101 - for mypy

__all__ = [
    "MAX_PARTS",
    "SAFE_OPEN_FLAGS",
    "copy_ownership",
    "create_private_folder",
    "create_temporary",
    "describe_foreign_access",
    "describe_readers",
    "ensure_private",
    "enter_folder",
    "enter_root",
    "is_pseudo_device",
    "is_removed",
    "iter_file_names",
    "list_names",
    "lock",
    "make_private_folder",
    "open_file",
    "open_folder",
    "open_lock",
    "open_shared",
    "open_subfolder",
    "read_at",
    "remove_file",
    "remove_folder",
    "rename",
    "rename_new",
    "replace",
    "stat_file",
    "sync",
    "sync_folder",
    "sync_folder_at",
    "unlock",
    "write_at",
    "write_parts",
]

MAX_PARTS = min(os.sysconf("SC_IOV_MAX"), 1024)
"""Maximum number of parts that `write_parts` takes at once."""

# O_NONBLOCK, because opening a pipe that someone planted would block.
SAFE_OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags to open a file with that may have been planted by somebody else."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH needs search permission only; macOS does not have it.
_PATH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FULL_SYNC_ERRNOS = {errno.EINVAL, errno.ENOTSUP, errno.ENOTTY}


def open_folder(path: Path | str) -> int:
    """Open a folder by its path; only its last name must not be a link."""
    return os.open(path, _FOLDER_FLAGS)


def open_subfolder(name: str, folder: int) -> int:
    """Open a folder in an open folder."""
    return os.open(name, _FOLDER_FLAGS, dir_fd=folder)


def enter_root(path: str) -> int:
    """Open the root of the file system, to open what is below it."""
    return os.open(path, _PATH_FLAGS)


def enter_folder(name: str, folder: int) -> int:
    """Open a folder in an open folder, to open what is in it: that needs no permission to read, where possible."""
    return os.open(name, _PATH_FLAGS, dir_fd=folder)


def open_file(name: str, flags: int, folder: int) -> int:
    """Open a file in an open folder. A file that is created is private, as far as the umask allows."""
    return os.open(name, flags, 0o600, dir_fd=folder)


def stat_file(name: str, folder: int) -> os.stat_result:
    """Return the status of a file or folder by its name."""
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def remove_file(name: str, folder: int) -> None:
    """Remove a file. Processes that have it open can still use it."""
    os.unlink(name, dir_fd=folder)


def remove_folder(name: str, folder: int) -> None:
    """Remove an empty folder."""
    os.rmdir(name, dir_fd=folder)


def rename(name: str, folder: int, new_name: str, new_folder: int) -> None:
    """Rename a file, and replace the file that has the new name."""
    os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)


def rename_new(name: str, new_name: str, folder: int) -> None:
    """Rename a file in its folder, without replacing any. Raises `FileExistsError`; the old name may remain."""
    # Unlike a rename, a link fails if the name is taken. A symbolic link there counts, too.
    os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def create_temporary(folder: str) -> tuple[int, str, str | None]:
    """Create a file. Return its descriptor, a path to open it, and that path again if the caller must remove the file.

    A file without a name leaves nothing behind, even if this process is killed.
    """
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            return fd, f"/proc/self/fd/{fd}", None
    fd, name = tempfile.mkstemp(prefix="message-", suffix=".spool", dir=folder)
    return fd, name, name


def open_shared(path: str) -> int:
    """Open a file to read it, so that others can remove it meanwhile."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def create_private_folder(path: Path) -> None:
    """Create a folder that only its owner can use. Raises `FileExistsError`."""
    path.mkdir(mode=0o700)
    # The umask may have removed permissions.
    path.chmod(0o700)


def make_private_folder(name: str, folder: int) -> None:
    """Create a folder in an open folder, as `create_private_folder` does."""
    os.mkdir(name, 0o700, dir_fd=folder)
    os.chmod(name, 0o700, dir_fd=folder)


def describe_foreign_access(folder: int, path: Path) -> str | None:
    """Return in words why others could change the content of an open folder, or `None`."""
    status = os.fstat(folder)
    if status.st_uid != os.geteuid():
        return f"{path} belongs to another user; name a folder of your own, here or in FOREBAY_HOME"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written to by others; run: chmod 700 {shlex.quote(os.fspath(path))}"
    return None


def describe_readers(fd: int, path: str) -> str | None:
    """Return the command that keeps others from reading an open file, or `None` if they cannot read it."""
    status = os.fstat(fd)
    # A secret that is mounted into a container belongs to root, and can be read by the group of the container.
    is_mounted = status.st_uid == 0 != os.geteuid() and status.st_gid in (os.getegid(), *os.getgroups())
    return f"chmod 600 {shlex.quote(path)}" if status.st_mode & (0o037 if is_mounted else 0o077) else None


def copy_ownership(fd: int, status: os.stat_result) -> None:
    """Give an open file the owner and the permissions of another one. Raises `PermissionError`."""
    os.fchown(fd, status.st_uid, status.st_gid)
    # Set the permissions last, because changing the owner may clear permission bits.
    os.fchmod(fd, stat.S_IMODE(status.st_mode))


def replace(path: Path, new_path: Path) -> None:
    """Rename a file, and replace the file that has the new path."""
    path.replace(new_path)


def ensure_private(fd: int) -> os.stat_result:
    """Restrict an open file to its owner, whatever the umask, and return its status."""
    status = os.fstat(fd)
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(fd, 0o600)
    return status


def is_removed(status: os.stat_result, fd: int) -> bool:  # noqa: ARG001 - Windows needs the descriptor
    """Return whether an open file or folder was removed from its folder. `status` is that of the descriptor."""
    return status.st_nlink == 0


def list_names(folder: int) -> list[str]:
    """Return the names in an open folder."""
    # Opened again: a descriptor has one read position, and threads that list through it miss entries.
    fd = os.open(".", _FOLDER_FLAGS, dir_fd=folder)
    try:
        return os.listdir(fd)
    finally:
        close_quietly(fd)


def iter_file_names(folder: int) -> Iterator[str]:
    """Iterate over the names of the regular files in an open folder, which may be millions."""
    fd = os.open(".", _FOLDER_FLAGS, dir_fd=folder)
    try:
        entries = os.scandir(fd)
    finally:
        # `scandir` has a duplicate.
        close_quietly(fd)
    with entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry.name


def open_lock(folder: int) -> int:
    """Return a descriptor for `lock` that stands for an open folder."""
    return os.open(".", os.O_RDONLY | SAFE_OPEN_FLAGS, dir_fd=folder)


def lock(fd: int, *, wait: bool = True) -> None:
    """Lock an open file against other descriptors of it. Without `wait`, raise `BlockingIOError` if it is locked.

    The lock ends with `unlock`, and when the descriptor and its duplicates are closed. To lock twice does nothing.
    """
    fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(fd: int) -> None:
    """Release a lock."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Read at a position; the result may be shorter, and is empty only at the end."""
    return os.pread(fd, length, offset)


def write_at(fd: int, data: Buffer, offset: int) -> int:
    """Write at a position, and return the number of bytes written."""
    return os.pwrite(fd, data, offset)


def write_parts(fd: int, parts: Sequence[Buffer]) -> int:
    """Write at most `MAX_PARTS` parts to the end of a file, and return the number of bytes written."""
    return os.writev(fd, parts)


def sync(fd: int) -> None:
    """Write a file through to the disk."""
    # The fsync of macOS leaves data in the cache of the disk.
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            # A network share may not know it.
            if error.errno not in _NO_FULL_SYNC_ERRNOS:
                raise
    os.fsync(fd)


def sync_folder(fd: int) -> None:
    """Write the names in an open folder through to the disk."""
    os.fsync(fd)


def sync_folder_at(path: Path) -> None:
    """Write the names in the folder at a path through to the disk; links are followed."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        close_quietly(fd)


_PSEUDO_FILESYSTEMS = frozenset(
    b"autofs binder binfmt_misc bpf cgroup cgroup2 configfs cpuset debugfs devfs devpts devtmpfs efivarfs fdescfs "
    b"functionfs fusectl mqueue nfsd nsfs proc procfs pstore resctrl rpc_pipefs securityfs selinuxfs smackfs sysfs "
    b"tracefs".split()
)
_MOUNT_INFO = Path("/proc/self/mountinfo")


def is_pseudo_device(device: int) -> bool:
    """Return whether a device number belongs to a filesystem whose files the kernel generates, such as /proc."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    # A system without a mount list has no pseudo filesystems such as /proc either.
    with contextlib.suppress(OSError):
        return any(_is_pseudo_mount(line, number) for line in _MOUNT_INFO.read_bytes().splitlines())
    return False


def _is_pseudo_mount(mount: bytes, device_number: bytes) -> bool:
    """Return whether a line of mountinfo mounts a pseudo filesystem that has this device number.

    Such a line is `22 27 0:21 / /proc rw,nosuid - proc proc rw`, with the device number `0:21`.
    """
    location, _, source = mount.partition(b" - ")
    return location.split()[2:3] == [device_number] and not _PSEUDO_FILESYSTEMS.isdisjoint(source.split()[:1])
