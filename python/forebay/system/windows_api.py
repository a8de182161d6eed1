"""Windows functions that Python does not wrap, and their errors.

Files are opened by `NtCreateFile`, because only it takes a name relative to an open folder. So no path is checked first
and opened later, and names such as `NUL` have no special meaning.
"""

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable
from ctypes import wintypes
from functools import cache

assert sys.platform == "win32"  # noqa: S101 - for mypy

import msvcrt

__all__ = [
    "INVALID_HANDLE",
    "IoStatus",
    "Overlapped",
    "Status",
    "advapi32",
    "check_result",
    "check_status",
    "declare",
    "get_handle",
    "get_user_sid",
    "kernel32",
    "make_security_descriptor",
    "ntdll",
    "open_relative",
    "retry_shared",
]

kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
ntdll = ctypes.WinDLL("ntdll")

INVALID_HANDLE = ctypes.c_void_p(-1).value

_CASE_INSENSITIVE = 0x40
_TOKEN_QUERY, _TOKEN_USER = 8, 1
_MAX_NAME_BYTES = 510

_RETRY_SECONDS = 2.0
"""How long to wait for programs that open files for a moment without sharing them, such as virus scanners."""


class Status:
    """NTSTATUS codes."""

    NO_MORE_FILES = 0x80000006
    INVALID_INFO_CLASS = 0xC0000003
    INVALID_PARAMETER = 0xC000000D
    ACCESS_DENIED = 0xC0000022
    SHARING_VIOLATION = 0xC0000043
    DELETE_PENDING = 0xC0000056
    FILE_IS_A_DIRECTORY = 0xC00000BA
    NOT_SUPPORTED = 0xC00000BB
    CANNOT_DELETE = 0xC0000121


class _String(ctypes.Structure):
    _fields_ = (("length", wintypes.USHORT), ("maximum", wintypes.USHORT), ("buffer", ctypes.c_void_p))


class _ObjectAttributes(ctypes.Structure):
    _fields_ = (
        ("length", wintypes.ULONG),
        ("root", wintypes.HANDLE),
        ("name", ctypes.POINTER(_String)),
        ("attributes", wintypes.ULONG),
        ("security", ctypes.c_void_p),
        ("quality", ctypes.c_void_p),
    )


class IoStatus(ctypes.Structure):
    """IO_STATUS_BLOCK: the outcome of a call of ntdll."""

    _fields_ = (("status", ctypes.c_void_p), ("information", ctypes.c_void_p))


class Overlapped(ctypes.Structure):
    """Position of a read, a write or a lock."""

    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("offset", wintypes.DWORD),
        ("offset_high", wintypes.DWORD),
        ("event", wintypes.HANDLE),
    )

    def __init__(self, position: int) -> None:
        super().__init__(offset=position & 0xFFFFFFFF, offset_high=position >> 32)


def declare(function: "ctypes._FuncPointer", result: object, *arguments: object) -> None:
    """Declare the types of a function's result and arguments."""
    function.restype = result  # type: ignore[assignment]
    function.argtypes = arguments  # type: ignore[assignment]


_handle, _pointer, _dword, _bool, _text = (
    wintypes.HANDLE,
    ctypes.c_void_p,
    wintypes.DWORD,
    wintypes.BOOL,
    wintypes.LPCWSTR,
)
declare(kernel32.CreateFileW, _handle, _text, _dword, _dword, _pointer, _dword, _dword, _handle)
declare(kernel32.CreateDirectoryW, _bool, _text, _pointer)
declare(kernel32.CloseHandle, _bool, _handle)
declare(kernel32.ReadFile, _bool, _handle, _pointer, _dword, _pointer, _pointer)
declare(kernel32.WriteFile, _bool, _handle, _pointer, _dword, _pointer, _pointer)
declare(kernel32.LockFileEx, _bool, _handle, _dword, _dword, _dword, _dword, _pointer)
declare(kernel32.UnlockFileEx, _bool, _handle, _dword, _dword, _dword, _pointer)
declare(kernel32.GetFileInformationByHandleEx, _bool, _handle, ctypes.c_int, _pointer, _dword)
declare(kernel32.GetFinalPathNameByHandleW, _dword, _handle, wintypes.LPWSTR, _dword, _dword)
declare(kernel32.CancelIoEx, _bool, _handle, _pointer)
declare(kernel32.PeekNamedPipe, _bool, _handle, _pointer, _dword, _pointer, _pointer, _pointer)
declare(kernel32.GetCurrentProcess, _handle)
declare(kernel32.LocalFree, _pointer, _pointer)
declare(advapi32.OpenProcessToken, _bool, _handle, _dword, _pointer)
declare(advapi32.GetTokenInformation, _bool, _handle, ctypes.c_int, _pointer, _dword, _pointer)
declare(advapi32.ConvertSidToStringSidW, _bool, _pointer, _pointer)
declare(advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW, _bool, _text, _dword, _pointer, _pointer)
declare(
    advapi32.GetSecurityInfo,
    *(_dword, _handle, ctypes.c_int, _dword),
    *(_pointer, _pointer, _pointer, _pointer, _pointer),
)
declare(advapi32.GetLengthSid, _dword, _pointer)
declare(
    ntdll.NtCreateFile,
    *(wintypes.ULONG, _pointer, _dword, _pointer, _pointer, _pointer),
    *(_dword, _dword, _dword, _dword, _pointer, _dword),
)
declare(ntdll.NtSetInformationFile, wintypes.ULONG, _handle, _pointer, _pointer, _dword, ctypes.c_int)
declare(ntdll.NtQueryInformationFile, wintypes.ULONG, _handle, _pointer, _pointer, _dword, ctypes.c_int)
declare(
    ntdll.NtQueryDirectoryFile,
    *(wintypes.ULONG, _handle, _handle, _pointer, _pointer, _pointer),
    *(_pointer, _dword, ctypes.c_int, wintypes.BOOLEAN, _pointer, wintypes.BOOLEAN),
)
declare(ntdll.RtlNtStatusToDosError, wintypes.ULONG, wintypes.ULONG)


def check_result(is_done: object, path: object = None) -> None:
    """Raise the error of the last function if its result is false."""
    if not is_done:
        _raise(ctypes.get_last_error(), path)


def check_status(status: int, path: object = None) -> None:
    """Raise the error that a result of ntdll stands for."""
    if status & 0x80000000:
        if status == Status.DELETE_PENDING:
            raise FileNotFoundError(errno.ENOENT, "is being removed", path)
        if status == Status.FILE_IS_A_DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        _raise(ntdll.RtlNtStatusToDosError(status), path)


def _raise(code: int, path: object) -> None:
    raise OSError(None, ctypes.FormatError(code).strip().rstrip("."), path, code)


def retry_shared(function: Callable[[], int]) -> int:
    """Call a function of ntdll again while another program uses the file without sharing it; return its result."""
    deadline, delay = time.monotonic() + _RETRY_SECONDS, 0.001
    while True:
        status = function()
        if status not in (Status.SHARING_VIOLATION, Status.ACCESS_DENIED) or time.monotonic() > deadline:
            return status
        if status == Status.ACCESS_DENIED and delay > 0.1:
            # By now, missing permissions are the likelier reason.
            return status
        time.sleep(delay)
        delay *= 2


def get_handle(fd: int) -> int:
    """Return the handle of a descriptor."""
    return msvcrt.get_osfhandle(fd)


def open_relative(
    name: str, folder: int, access: int, disposition: int, options: int, security: int | None = None
) -> int:
    """Open a name in an open folder, and return its handle. An empty name is the folder itself."""
    size = len(name.encode("utf-16-le", "surrogatepass"))
    if size > _MAX_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
    if any(character in name for character in "\0/\\:"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    text = ctypes.create_unicode_buffer(name)
    string = _String(size, size, ctypes.addressof(text))
    attributes = _ObjectAttributes(
        ctypes.sizeof(_ObjectAttributes), get_handle(folder), ctypes.pointer(string), _CASE_INSENSITIVE, security, None
    )
    handle, result = wintypes.HANDLE(), IoStatus()
    share_all, normal = 7, 0x80
    check_status(
        retry_shared(
            lambda: ntdll.NtCreateFile(
                ctypes.byref(handle),
                *(access, ctypes.byref(attributes), ctypes.byref(result), None, normal, share_all),
                *(disposition, options, None, 0),
            )
        ),
        name,
    )
    assert handle.value is not None  # noqa: S101 - it was opened
    return handle.value


@cache
def get_user_sid() -> tuple[str, bytes]:
    """Return the security identifier of the user of this process, as text and as bytes."""
    token, size = wintypes.HANDLE(), wintypes.DWORD()
    check_result(advapi32.OpenProcessToken(kernel32.GetCurrentProcess(), _TOKEN_QUERY, ctypes.byref(token)))
    try:
        buffer = ctypes.create_string_buffer(256)
        check_result(advapi32.GetTokenInformation(token, _TOKEN_USER, buffer, len(buffer), ctypes.byref(size)))
    finally:
        kernel32.CloseHandle(token)
    sid = ctypes.c_void_p.from_buffer(buffer).value
    text = wintypes.LPWSTR()
    check_result(advapi32.ConvertSidToStringSidW(sid, ctypes.byref(text)))
    try:
        return text.value or "", ctypes.string_at(sid or 0, advapi32.GetLengthSid(sid))
    finally:
        kernel32.LocalFree(ctypes.cast(text, ctypes.c_void_p))


@cache
def make_security_descriptor(*, is_folder: bool) -> int:
    """Return the address of a security descriptor that only lets the user, the system and the administrators in."""
    inheritance = "OICI" if is_folder else ""
    entries = "".join(f"(A;{inheritance};FA;;;{sid})" for sid in (get_user_sid()[0], "SY", "BA"))
    descriptor = ctypes.c_void_p()
    check_result(
        advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW(
            f"D:P{entries}", 1, ctypes.byref(descriptor), None
        )
    )
    # Never freed: it is used for each new file.
    return descriptor.value or 0
