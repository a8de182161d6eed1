"""Jobs of Windows: processes that end together, at the latest when this process does, and limits on them."""

import ctypes
import struct
import sys
from ctypes import wintypes
from typing import TYPE_CHECKING

assert sys.platform == "win32"  # noqa: S101 - for mypy

from forebay.system.windows_api import check_result, check_status, declare, kernel32, ntdll

if TYPE_CHECKING:
    import subprocess

__all__ = ["CREATE_SUSPENDED", "Job"]

CREATE_SUSPENDED = 0x4
"""Flag for a process that `Job.start` starts."""

_ACCOUNTING_INFORMATION, _EXTENDED_LIMITS = 1, 9
_LIMIT_CPU, _LIMIT_PROCESSES, _LIMIT_MEMORY, _NO_DIALOGS, _KILL_ON_CLOSE = 0x2, 0x8, 0x100, 0x400, 0x2000

_LIMITS = struct.Struct("<q8xI4x16xI68xQ24x")
"""JOBOBJECT_EXTENDED_LIMIT_INFORMATION: CPU time of each process, flags, number of processes, memory of each."""

_TICKS_PER_SECOND = 10_000_000
_ACCOUNTING_BYTES = 48
_ACTIVE_PROCESSES_OFFSET = 40

_handle, _dword, _pointer = wintypes.HANDLE, wintypes.DWORD, ctypes.c_void_p
declare(kernel32.CreateJobObjectW, _handle, _pointer, wintypes.LPCWSTR)
declare(kernel32.SetInformationJobObject, wintypes.BOOL, _handle, ctypes.c_int, _pointer, _dword)
declare(kernel32.QueryInformationJobObject, wintypes.BOOL, _handle, ctypes.c_int, _pointer, _dword, _pointer)
declare(kernel32.AssignProcessToJobObject, wintypes.BOOL, _handle, _handle)
declare(kernel32.TerminateJobObject, wintypes.BOOL, _handle, wintypes.UINT)
declare(ntdll.NtResumeProcess, wintypes.ULONG, _handle)


class Job:
    """A group of processes. The system ends them when the job is closed, also by the end of this process.

    With limits it is for one process, which can start no others.
    """

    def __init__(self, *, max_memory_bytes: int | None = None, max_cpu_seconds: int | None = None) -> None:
        flags = _KILL_ON_CLOSE
        if max_memory_bytes is not None:
            flags |= _LIMIT_MEMORY | _LIMIT_PROCESSES | _NO_DIALOGS
        if max_cpu_seconds is not None:
            flags |= _LIMIT_CPU
        limits = _LIMITS.pack((max_cpu_seconds or 0) * _TICKS_PER_SECOND, flags, 1, max_memory_bytes or 0)
        handle = kernel32.CreateJobObjectW(None, None)
        check_result(handle)
        self._handle = int(handle)
        try:
            check_result(kernel32.SetInformationJobObject(self._handle, _EXTENDED_LIMITS, limits, len(limits)))
        except BaseException:
            self.close()
            raise

    def start(self, process: "subprocess.Popen[bytes]") -> None:
        """Take a suspended process into the job, and let it run. If that fails, it is killed."""
        try:
            handle = int(process._handle)  # type: ignore[attr-defined]
            check_result(kernel32.AssignProcessToJobObject(self._handle, handle))
            check_status(ntdll.NtResumeProcess(handle))
        except BaseException:
            process.kill()
            raise

    def count_processes(self) -> int | None:
        """Return how many processes of the job run, or `None` if the system does not tell."""
        information = ctypes.create_string_buffer(_ACCOUNTING_BYTES)
        if not kernel32.QueryInformationJobObject(
            self._handle, _ACCOUNTING_INFORMATION, information, len(information), None
        ):
            return None
        return int(struct.unpack_from("<I", information, _ACTIVE_PROCESSES_OFFSET)[0])

    def end(self, exit_code: int) -> None:
        """End all processes of the job."""
        kernel32.TerminateJobObject(self._handle, exit_code)

    def close(self) -> None:
        """Close the job, which ends its processes. Call this only once."""
        kernel32.CloseHandle(self._handle)
