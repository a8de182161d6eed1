"""Processes by their ids, of every system."""

import sys
from pathlib import Path

__all__ = ["find_children", "is_running"]

if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _SYNCHRONIZE, _TIMEOUT = 0x100000, 0x102
    _SNAPSHOT_OF_PROCESSES = 2

    class _ProcessEntry(ctypes.Structure):
        _fields_ = (
            ("size", wintypes.DWORD),
            ("usage_count", wintypes.DWORD),
            ("pid", wintypes.DWORD),
            ("heap", ctypes.c_void_p),
            ("module", wintypes.DWORD),
            ("thread_count", wintypes.DWORD),
            ("parent_pid", wintypes.DWORD),
            ("priority", wintypes.LONG),
            ("flags", wintypes.DWORD),
            ("executable", wintypes.WCHAR * 260),
        )

    _kernel32 = ctypes.WinDLL("kernel32")
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _kernel32.CreateToolhelp32Snapshot.restype = wintypes.HANDLE
    _kernel32.Process32FirstW.argtypes = (wintypes.HANDLE, ctypes.c_void_p)
    _kernel32.Process32NextW.argtypes = (wintypes.HANDLE, ctypes.c_void_p)
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

    def find_children(pid: int) -> list[int]:
        """Return the processes that a process has started, except those of its console."""
        entry = _ProcessEntry(size=ctypes.sizeof(_ProcessEntry))
        children = []
        snapshot = _kernel32.CreateToolhelp32Snapshot(_SNAPSHOT_OF_PROCESSES, 0)
        try:
            is_filled = _kernel32.Process32FirstW(snapshot, ctypes.byref(entry))
            while is_filled:
                if entry.parent_pid == pid and entry.executable.lower() != "conhost.exe":
                    children.append(int(entry.pid))
                is_filled = _kernel32.Process32NextW(snapshot, ctypes.byref(entry))
        finally:
            _kernel32.CloseHandle(snapshot)
        # A process that has ended stays listed as long as its parent has a handle to it.
        return [child for child in children if is_running(child)]

else:

    def is_running(pid: int) -> bool:
        """Return whether a process runs."""
        try:
            state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            return False
        return state not in (b"Z", b"X")

    def find_children(pid: int) -> list[int]:
        """Return the processes that a process has started."""
        # Each thread has its own list of children.
        lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        return [int(word) for words in lists for word in words]
