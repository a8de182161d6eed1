"""Files and folders by descriptors, on Windows.

A descriptor is one of the C runtime, so that `os.read`, `os.fstat` and `os.close` take it, also for a folder. Files are
opened with all sharing modes, so that others can rename and remove them while they are open, as on POSIX.
"""

import contextlib
import ctypes
import errno
import os
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from ctypes import wintypes
from pathlib import Path

from typing_extensions import Buffer

assert sys.platform == "win32"  # noqa: S101 - for mypy

import msvcrt

from forebay.system.access_lists import ADMINISTRATORS, READ_RIGHTS, WRITE_RIGHTS, find_others
from forebay.system.descriptors import close_quietly
from forebay.system.windows_api import (
    INVALID_HANDLE,
    IoStatus,
    Overlapped,
    Status,
    advapi32,
    check_result,
    check_status,
    get_handle,
    get_user_sid,
    kernel32,
    make_security_descriptor,
    ntdll,
    open_relative,
    retry_shared,
)

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

MAX_PARTS = 1024
"""Maximum number of parts that `write_parts` takes at once."""

SAFE_OPEN_FLAGS = 0
"""Flags to open a file with that may have been planted by somebody else. All files are opened in this way."""

_READ, _WRITE, _DELETE, _READ_ATTRIBUTES = 0x120089, 0x120116, 0x110000, 0x100080
_WRITE_DATA = 0x2
_FOLDER_ACCESS = _READ | 0x20
"""Read, and traverse."""

# Dispositions, options and kinds of information of NtCreateFile and its relatives.
_OPEN, _CREATE, _OPEN_OR_CREATE, _OVERWRITE, _OVERWRITE_OR_CREATE = 1, 2, 3, 4, 5
_FOLDER_ONLY, _SYNCHRONOUS, _NO_FOLDER, _OPEN_REPARSE_POINT = 0x1, 0x20, 0x40, 0x200000
_DELETE_ON_CLOSE = 0x1000
_DIRECTORY_INFORMATION, _RENAME, _DISPOSITION, _DISPOSITION_EX, _RENAME_EX = 1, 10, 13, 64, 65
_REPLACE, _POSIX_RENAME = 0x1, 0x2
_DELETE_NAME, _POSIX_DELETE, _IGNORE_READ_ONLY = 0x1, 0x2, 0x10
_STANDARD_INFORMATION, _ATTRIBUTE_TAG_INFORMATION = 1, 9
_REPARSE_POINT, _FOLDER_ATTRIBUTE = 0x400, 0x10
_UNSUPPORTED = {Status.INVALID_INFO_CLASS, Status.INVALID_PARAMETER, Status.NOT_SUPPORTED}

_BACKUP_SEMANTICS, _OPEN_REPARSE_POINT_FLAG = 0x02000000, 0x00200000
_OWNER_INFORMATION, _ACCESS_INFORMATION, _FILE_OBJECT = 1, 4, 1

_ENTRY = struct.Struct("<I52xII")
_NAME_OFFSET = 64
_LIST_BYTES = 64 << 10

_LOCK_POSITION = 0x7FFF_FFFF_FFFF_FFFE
"""Position of the byte that is locked: locks are mandatory, so it is one that nobody reads or writes."""
_EXCLUSIVE, _AT_ONCE = 2, 1
_ERROR_FILE_NOT_FOUND, _ERROR_PATH_NOT_FOUND, _ERROR_ACCESS_DENIED = 2, 3, 5
_ERROR_HANDLE_EOF, _ERROR_LOCK_VIOLATION, _ERROR_IO_PENDING = 38, 33, 997
_MAX_CALL_BYTES = 1 << 30
_END_OF_FILE = 0xFFFF_FFFF_FFFF_FFFF
_REPLACE_SECONDS = 2.0


def open_folder(path: Path | str) -> int:
    """Open a folder by its path; only its last name must not be a link."""
    share_all, open_existing = 7, 3
    handle = kernel32.CreateFileW(
        _make_long(path),
        *(_FOLDER_ACCESS, share_all, None, open_existing, _BACKUP_SEMANTICS | _OPEN_REPARSE_POINT_FLAG, None),
    )
    check_result(handle != INVALID_HANDLE, str(path))
    fd = _make_fd(handle, str(path))
    try:
        if not _get_attributes(fd) & _FOLDER_ATTRIBUTE:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    except BaseException:
        close_quietly(fd)
        raise
    return fd


def open_subfolder(name: str, folder: int) -> int:
    """Open a folder in an open folder."""
    return _open(name, folder, _FOLDER_ACCESS, _OPEN, _FOLDER_ONLY)


def enter_root(path: str) -> int:
    """Open the root of a drive or a share, to open what is below it."""
    return open_folder(path)


def enter_folder(name: str, folder: int) -> int:
    """Open a folder in an open folder, to open what is in it."""
    return open_subfolder(name, folder)


def open_file(name: str, flags: int, folder: int) -> int:
    """Open a file in an open folder. A file that is created is private."""
    mode = flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
    access = 0
    if mode != os.O_WRONLY:
        access |= _READ
    if mode != os.O_RDONLY:
        # With only the right to append, every write appends.
        access |= (_WRITE & ~_WRITE_DATA) if flags & os.O_APPEND else _WRITE
    if flags & os.O_CREAT:
        disposition = _OVERWRITE_OR_CREATE if flags & os.O_TRUNC else _OPEN_OR_CREATE
        disposition = _CREATE if flags & os.O_EXCL else disposition
        return _open(name, folder, access, disposition, _NO_FOLDER, make_security_descriptor(is_folder=False))
    return _open(name, folder, access, _OVERWRITE if flags & os.O_TRUNC else _OPEN, 0)


def stat_file(name: str, folder: int) -> os.stat_result:
    """Return the status of a file or folder by its name."""
    fd = _open("" if name == "." else name, folder, _READ_ATTRIBUTES, _OPEN, 0)
    try:
        return os.fstat(fd)
    finally:
        close_quietly(fd)


def remove_file(name: str, folder: int) -> None:
    """Remove a file. Processes that have it open can still use it."""
    _remove(name, folder, _NO_FOLDER)


def remove_folder(name: str, folder: int) -> None:
    """Remove an empty folder."""
    _remove(name, folder, _FOLDER_ONLY)


def _remove(name: str, folder: int, option: int) -> None:
    handle = open_relative(name, folder, _DELETE, _OPEN, option | _SYNCHRONOUS | _OPEN_REPARSE_POINT)
    try:
        flags = struct.pack("<I", _DELETE_NAME | _POSIX_DELETE | _IGNORE_READ_ONLY)
        status = _set_information(handle, flags, _DISPOSITION_EX)
        if status in _UNSUPPORTED:
            # Not NTFS: the system removes the name when the last descriptor of the file is closed.
            status = _set_information(handle, b"\x01", _DISPOSITION)
        if status == Status.CANNOT_DELETE:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        check_status(status, name)
    finally:
        kernel32.CloseHandle(handle)


def rename(name: str, folder: int, new_name: str, new_folder: int) -> None:
    """Rename a file, and replace the file that has the new name."""
    _rename(name, folder, new_name, new_folder, replaces=True)


def rename_new(name: str, new_name: str, folder: int) -> None:
    """Rename a file in its folder, without replacing any. Raises `FileExistsError`; the old name may remain."""
    _rename(name, folder, new_name, folder, replaces=False)


def _rename(name: str, folder: int, new_name: str, new_folder: int, *, replaces: bool) -> None:
    target = new_name.encode("utf-16-le", "surrogatepass")
    root = get_handle(new_folder)

    def encode(flags: int) -> bytes:
        # FILE_RENAME_INFORMATION, which has 24 bytes with its padding.
        return (struct.pack("<I4xQI", flags, root, len(target)) + target).ljust(24, b"\0")

    handle = open_relative(name, folder, _DELETE, _OPEN, _SYNCHRONOUS | _OPEN_REPARSE_POINT)
    try:
        flags = _POSIX_RENAME | (_REPLACE if replaces else 0)
        status = _set_information(handle, encode(flags), _RENAME_EX)
        if status in _UNSUPPORTED:
            # Not NTFS. An open file cannot be replaced there: `_set_information` retries while others close it.
            status = _set_information(handle, encode(int(replaces)), _RENAME)
        check_status(status, new_name)
    finally:
        kernel32.CloseHandle(handle)


def _set_information(handle: int, data: bytes, kind: int) -> int:
    buffer, result = ctypes.create_string_buffer(data, len(data)), IoStatus()
    return retry_shared(lambda: ntdll.NtSetInformationFile(handle, ctypes.byref(result), buffer, len(data), kind))


def create_temporary(folder: str) -> tuple[int, str, str | None]:
    """Create a file. Return its descriptor, a path to open it, and that path again if the caller must remove the file.

    The system removes the file when it is closed, even if this process is killed.
    """
    name = f"message-{os.urandom(8).hex()}.spool"
    folder_fd = open_folder(folder)
    try:
        access, options = _READ | _WRITE | _DELETE, _NO_FOLDER | _DELETE_ON_CLOSE
        fd = _open(name, folder_fd, access, _CREATE, options, make_security_descriptor(is_folder=False))
    finally:
        close_quietly(folder_fd)
    return fd, os.path.join(folder, name), None


def open_shared(path: str) -> int:
    """Open a file to read it, so that others can remove it meanwhile."""
    share_all, open_existing = 7, 3
    handle = kernel32.CreateFileW(_make_long(path), _READ, share_all, None, open_existing, 0, None)
    check_result(handle != INVALID_HANDLE, path)
    return msvcrt.open_osfhandle(handle, os.O_NOINHERIT | os.O_BINARY)


def create_private_folder(path: Path) -> None:
    """Create a folder that only its owner can use. Raises `FileExistsError`."""
    # SECURITY_ATTRIBUTES: size, descriptor, and whether processes inherit the handle.
    attributes = ctypes.create_string_buffer(struct.pack("<I4xQI4x", 24, make_security_descriptor(is_folder=True), 0))
    check_result(kernel32.CreateDirectoryW(_make_long(path), attributes), str(path))


def make_private_folder(name: str, folder: int) -> None:
    """Create a folder in an open folder, as `create_private_folder` does."""
    security = make_security_descriptor(is_folder=True)
    options = _FOLDER_ONLY | _SYNCHRONOUS | _OPEN_REPARSE_POINT
    kernel32.CloseHandle(open_relative(name, folder, _READ_ATTRIBUTES, _CREATE, options, security))


def describe_foreign_access(folder: int, path: Path) -> str | None:
    """Return in words why others could change the content of an open folder, or `None`."""
    user = get_user_sid()[1]
    owner, access_list = _read_security(folder)
    # A file created by an administrator may belong to their group.
    if owner not in (user, ADMINISTRATORS):
        return f"{path} belongs to another user; name a folder of your own, here or in FOREBAY_HOME"
    if find_others(access_list, [user], WRITE_RIGHTS):
        return (
            f'{path} can be written to by others; run: icacls "{path}" /inheritance:r /grant:r "%USERNAME%:(OI)(CI)F"'
        )
    return None


def describe_readers(fd: int, path: str) -> str | None:
    """Return the command that keeps others from reading an open file, or `None` if they cannot read it."""
    if find_others(_read_security(fd)[1], [get_user_sid()[1]], READ_RIGHTS):
        return f'icacls "{path}" /inheritance:r /grant:r "%USERNAME%:F"'
    return None


def _read_security(fd: int) -> tuple[bytes, bytes | None]:
    """Return the identifier of the owner and the access control list of what is open."""
    owner, access_list, descriptor = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    code = advapi32.GetSecurityInfo(
        get_handle(fd),
        *(_FILE_OBJECT, _OWNER_INFORMATION | _ACCESS_INFORMATION, ctypes.byref(owner), None),
        *(ctypes.byref(access_list), None, ctypes.byref(descriptor)),
    )
    if code:
        raise OSError(None, ctypes.FormatError(code).strip(), None, code)
    try:
        sid = ctypes.string_at(owner.value, advapi32.GetLengthSid(owner)) if owner.value else b""
        if not access_list.value:
            return sid, None
        size = struct.unpack_from("<H", ctypes.string_at(access_list.value, 8), 2)[0]
        return sid, ctypes.string_at(access_list.value, size)
    finally:
        kernel32.LocalFree(descriptor)


def copy_ownership(fd: int, status: os.stat_result) -> None:
    """Do nothing: a new file has the permissions of its folder."""


def replace(path: Path, new_path: Path) -> None:
    """Rename a file, and replace the file that has the new path."""
    deadline, delay = time.monotonic() + _REPLACE_SECONDS, 0.001
    while True:
        try:
            path.replace(new_path)
            return
        except PermissionError:
            # A program that reads the file, such as a virus scanner, may not share it.
            if time.monotonic() > deadline:
                raise
        time.sleep(delay)
        delay *= 2


def ensure_private(fd: int) -> os.stat_result:
    """Return the status of an open file. It is private from the start, or its folder is."""
    return os.fstat(fd)


def is_removed(status: os.stat_result, fd: int) -> bool:
    """Return whether an open file or folder was removed from its folder. `status` is that of the descriptor."""
    # FILE_STANDARD_INFO: sizes, number of links, whether the file is being removed.
    information = ctypes.create_string_buffer(24)
    check_result(
        kernel32.GetFileInformationByHandleEx(get_handle(fd), _STANDARD_INFORMATION, information, len(information))
    )
    links, is_pending = struct.unpack_from("<16xIB", information)
    if is_pending or not links:
        return True
    # NTFS moves a removed file that is still open to `\$Extend\$Deleted`.
    path = ctypes.create_unicode_buffer(1024)
    length = kernel32.GetFinalPathNameByHandleW(get_handle(fd), path, len(path), 0)
    if length > len(path):
        path = ctypes.create_unicode_buffer(length)
        length = kernel32.GetFinalPathNameByHandleW(get_handle(fd), path, len(path), 0)
    if length:
        if status.st_file_attributes & _FOLDER_ATTRIBUTE:
            with contextlib.suppress(FileNotFoundError):
                return not os.path.samestat(status, os.stat(path.value))
            return True
        return "\\$Extend\\$Deleted\\" in path.value
    return ctypes.get_last_error() in (_ERROR_FILE_NOT_FOUND, _ERROR_PATH_NOT_FOUND, _ERROR_ACCESS_DENIED)


def list_names(folder: int) -> list[str]:
    """Return the names in an open folder."""
    return [name for name, _ in _iter_entries(folder)]


def iter_file_names(folder: int) -> Iterator[str]:
    """Iterate over the names of the regular files in an open folder, which may be millions."""
    for name, attributes in _iter_entries(folder):
        if not attributes & (_REPARSE_POINT | _FOLDER_ATTRIBUTE):
            yield name


def _iter_entries(folder: int) -> Iterator[tuple[str, int]]:
    """Yield the names in a folder and their attributes."""
    # Opened again: a handle has one read position.
    handle = open_relative("", folder, _READ, _OPEN, _FOLDER_ONLY | _SYNCHRONOUS)
    try:
        buffer, result = ctypes.create_string_buffer(_LIST_BYTES), IoStatus()
        while True:
            status = ntdll.NtQueryDirectoryFile(
                *(handle, None, None, None, ctypes.byref(result), buffer, len(buffer)),
                *(_DIRECTORY_INFORMATION, False, None, False),
            )
            if status == Status.NO_MORE_FILES:
                return
            check_status(status)
            data = ctypes.string_at(buffer, result.information or 0)
            offset = 0
            while True:
                next_offset, attributes, size = _ENTRY.unpack_from(data, offset)
                start = offset + _NAME_OFFSET
                name = data[start : start + size].decode("utf-16-le", "surrogatepass")
                if name not in (".", ".."):
                    yield name, attributes
                if not next_offset:
                    break
                offset += next_offset
    finally:
        kernel32.CloseHandle(handle)


def open_lock(folder: int) -> int:
    """Return a descriptor for `lock` that stands for an open folder: a folder itself cannot be locked."""
    return open_file(".lock", os.O_RDWR | os.O_CREAT, folder)


def lock(fd: int, *, wait: bool = True) -> None:
    """Lock an open file against other descriptors of it. Without `wait`, raise `BlockingIOError` if it is locked.

    The lock ends with `unlock`, and when the descriptor and its duplicates are closed. A lock that is held already is
    released first.
    """
    # A second lock of the same handle would wait for the first one.
    with contextlib.suppress(OSError):
        unlock(fd)
    flags = _EXCLUSIVE if wait else _EXCLUSIVE | _AT_ONCE
    if not kernel32.LockFileEx(get_handle(fd), flags, 0, 1, 0, ctypes.byref(Overlapped(_LOCK_POSITION))):
        if not wait and ctypes.get_last_error() in (_ERROR_LOCK_VIOLATION, _ERROR_IO_PENDING):
            raise BlockingIOError(errno.EAGAIN, "locked by another process")
        check_result(is_done=False)


def unlock(fd: int) -> None:
    """Release a lock."""
    check_result(kernel32.UnlockFileEx(get_handle(fd), 0, 1, 0, ctypes.byref(Overlapped(_LOCK_POSITION))))


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Read at a position; the result may be shorter, and is empty only at the end."""
    length = min(length, _MAX_CALL_BYTES)
    buffer, count = bytearray(length), wintypes.DWORD()
    # ctypes needs an array type to pass the address.
    target = (ctypes.c_char * length).from_buffer(buffer) if length else None
    position = ctypes.byref(Overlapped(offset))
    if not kernel32.ReadFile(get_handle(fd), target, length, ctypes.byref(count), position):
        check_result(ctypes.get_last_error() == _ERROR_HANDLE_EOF)
    return bytes(memoryview(buffer)[: count.value])


def write_at(fd: int, data: Buffer, offset: int) -> int:
    """Write at a position, and return the number of bytes written."""
    part, count = bytes(memoryview(data)[:_MAX_CALL_BYTES]), wintypes.DWORD()
    check_result(
        kernel32.WriteFile(get_handle(fd), part, len(part), ctypes.byref(count), ctypes.byref(Overlapped(offset)))
    )
    return count.value


def write_parts(fd: int, parts: Sequence[Buffer]) -> int:
    """Write at most `MAX_PARTS` parts to the end of a file, and return the number of bytes written."""
    # `read_at` moves the position of the descriptor, so the write must not depend on it.
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    return write_at(fd, data, _END_OF_FILE)


def sync(fd: int) -> None:
    """Write a file through to the disk."""
    os.fsync(fd)


def sync_folder(fd: int) -> None:
    """Do nothing: Windows cannot be asked to write the names in a folder to the disk."""


def sync_folder_at(path: Path) -> None:
    """Do nothing, as `sync_folder`."""


def _open(name: str, folder: int, access: int, disposition: int, option: int, security: int | None = None) -> int:
    options = option | _SYNCHRONOUS | _OPEN_REPARSE_POINT
    return _make_fd(open_relative(name, folder, access, disposition, options, security), name)


def _make_fd(handle: int, name: str) -> int:
    """Return a descriptor for a handle. Raises `OSError` if it is one of a reparse point."""
    try:
        fd = msvcrt.open_osfhandle(handle, os.O_NOINHERIT | os.O_BINARY)
    except BaseException:
        kernel32.CloseHandle(handle)
        raise
    try:
        if _get_attributes(fd) & _REPARSE_POINT:
            raise OSError(errno.ELOOP, "is a link", name)
    except BaseException:
        close_quietly(fd)
        raise
    return fd


def _get_attributes(fd: int) -> int:
    information = ctypes.create_string_buffer(8)
    kind = _ATTRIBUTE_TAG_INFORMATION
    check_result(kernel32.GetFileInformationByHandleEx(get_handle(fd), kind, information, len(information)))
    return int(struct.unpack_from("<I", information)[0])


def _make_long(path: Path | str) -> str:
    """Return a path that may have more than 260 characters."""
    text = os.path.abspath(path)
    if text.startswith("\\\\?\\"):
        return text
    return f"\\\\?\\UNC\\{text[2:]}" if text.startswith("\\\\") else f"\\\\?\\{text}"


def is_pseudo_device(device: int) -> bool:  # noqa: ARG001 - POSIX needs it
    """Return whether the system generates the files of a device: Windows does so for none."""
    return False
