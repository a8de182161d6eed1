"""Measure peak memory in a child process, which starts small."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_GROWTH_BYTES = 64 << 20
"""How much memory the gateway may take beyond what it has when it is idle, and beyond one message."""


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    class _MemoryCounters(ctypes.Structure):
        _fields_ = (
            ("size", wintypes.DWORD),
            ("page_faults", wintypes.DWORD),
            ("peak_working_set_bytes", ctypes.c_size_t),
            ("others", ctypes.c_size_t * 7),
        )

    _QUERY_LIMITED_INFORMATION = 0x1000
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _kernel32.K32GetProcessMemoryInfo.argtypes = (wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD)
    _kernel32.CloseHandle.argtypes = (wintypes.HANDLE,)

    def peak() -> int:
        """Return this process's peak memory in bytes."""
        return get_peak_bytes(os.getpid())

    def get_peak_bytes(pid: int) -> int:
        """Return the peak memory of a running process."""
        counters = _MemoryCounters(size=ctypes.sizeof(_MemoryCounters))
        handle = _kernel32.OpenProcess(_QUERY_LIMITED_INFORMATION, False, pid)
        try:
            if not _kernel32.K32GetProcessMemoryInfo(handle, ctypes.byref(counters), counters.size):
                raise ctypes.WinError(ctypes.get_last_error())
        finally:
            _kernel32.CloseHandle(handle)
        return int(counters.peak_working_set_bytes)

else:

    def peak() -> int:
        """Return this process's peak memory in bytes; on Linux without the memory used before `exec`."""
        try:
            return get_peak_bytes(os.getpid())
        except FileNotFoundError:
            import resource

            unit = 1 if sys.platform == "darwin" else 1024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def get_peak_bytes(pid: int) -> int:
        """Return the peak memory of a running process; only on Linux and Windows."""
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10


@contextmanager
def bounded_growth(pid: int, message_bytes: int = 0) -> Iterator[None]:
    """Check that the peak memory of a process grows by at most `MAX_GROWTH_BYTES` and the size of one message."""
    before = get_peak_bytes(pid)
    yield
    growth = get_peak_bytes(pid) - before
    assert growth <= MAX_GROWTH_BYTES + message_bytes, f"{growth >> 20} MiB"


def measured(script: str, *arguments: str) -> list[int]:
    """Run a script in a process that can import this file and return the numbers it prints."""
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom peak import peak\n{script}"
    command = [sys.executable, "-c", script, *arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(number) for number in answer.stdout.split()]
