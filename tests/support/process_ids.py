"""Processes by their ids, of every system."""

import sys
from pathlib import Path

__all__ = ["is_running"]

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _SYNCHRONIZE, _TIMEOUT = 0x100000, 0x102
    _kernel32 = ctypes.WinDLL("kernel32")
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _kernel32.WaitForSingleObject.argtypes = (wintypes.HANDLE, wintypes.DWORD)
    _kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)

    def is_running(pid: int) -> bool:
        """Return whether a process runs."""
        handle = _kernel32.OpenProcess(_SYNCHRONIZE, False, pid)
        if not handle:
            return False
        try:
            return bool(_kernel32.WaitForSingleObject(handle, 0) == _TIMEOUT)
        finally:
            _kernel32.CloseHandle(handle)

else:

    def is_running(pid: int) -> bool:
        """Return whether a process runs."""
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return False
        return state not in (b"Z", b"X")
