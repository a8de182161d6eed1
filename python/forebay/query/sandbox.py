"""Limits that the processes that run DuckDB set on themselves, before any statement of a caller runs.

DuckDB's settings are not a sandbox: an SQL function may ignore the memory limit and interrupts, and a bug in DuckDB may
run arbitrary code. So the kernel enforces the limits: on memory, files, descriptors and time by `setrlimit`, and on
system calls by a filter, on Linux on x86-64 and ARM64. Elsewhere there is no filter: `lock_system_calls` returns false.
A filter does not see which file is opened; Landlock does, and `lock_paths` uses it where the kernel has it. On Windows
the job of the process has the limits, and there is nothing to do here.
"""

import ctypes
import errno
import os
import struct
import sys
from typing import Any

if sys.platform != "win32":
    import resource

from forebay.query.limits import WORKER_CPU_SECONDS, WORKER_MEMORY_BYTES

__all__ = [
    "BASE_SETTINGS",
    "MAX_OPEN_FILES",
    "limit_memory",
    "limit_resources",
    "lock_files",
    "lock_paths",
    "lock_system_calls",
    "lower_limit",
]

MAX_OPEN_FILES = 32

BASE_SETTINGS: dict[str, Any] = {
    # Landlock binds only the calling thread and those it starts later, so other threads may start only after
    # `lock_paths`.
    "threads": 1,
    "async_threads": 0,
    "temp_directory": "",
    "max_temp_directory_size": "0B",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "extension_directory": "",
    "secret_directory": "",
    "home_directory": "",
    "python_enable_replacements": False,
}
"""DuckDB's settings in every process: no other threads, no temporary files, no extensions."""

_SECCOMP_NUMBERS = (317, 277)

# The numbers of the system calls that a worker may make, on x86-64 and on ARM64; `None` if they do not exist there.
_ALLOWED_CALLS: dict[str, tuple[int | None, int | None]] = {
    "brk": (12, 214),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getcpu": (309, 168),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "lseek": (8, 62),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "newfstatat": (262, 79),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "read": (0, 63),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "seccomp": _SECCOMP_NUMBERS,
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "setitimer": (38, 103),
    "sigaltstack": (131, 132),
    "stat": (4, None),
    "sysinfo": (99, 179),
    "write": (1, 64),
}

_WRITING_CALLS: dict[str, tuple[int | None, int | None]] = {
    "fcntl": (72, 25),
    "fdatasync": (75, 83),
    "fsync": (74, 82),
    "ftruncate": (77, 46),
    "openat": (257, 56),
    "pwrite64": (18, 68),
}
"""More calls, for a process that writes a file."""

_PROT_EXEC = 4
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Calls that are allowed only if `argument & mask` is 0: number on x86-64 and ARM64, argument, mask.
_CHECKED_CALLS: dict[str, tuple[int, int, int, int]] = {
    "mmap": (9, 222, 2, _PROT_EXEC),
    "mprotect": (10, 226, 2, _PROT_EXEC),
    "openat": (257, 56, 2, _WRITE_FLAGS),
}

_LOADING_CALLS: dict[str, tuple[int | None, int | None]] = {
    "newfstatat": (262, 79),
    "openat": (257, 56),
    "seccomp": _SECCOMP_NUMBERS,
    "stat": (4, None),
}
"""Calls needed until the tables are loaded. `lock_files` then denies them, `seccomp` included."""

_MACHINES = ["x86_64", "aarch64"]
_AUDIT_ARCHES = [0xC000003E, 0xC00000B7]
_MACHINE = os.uname().machine if hasattr(os, "uname") else ""
_ARCH_INDEX = _MACHINES.index(_MACHINE) if _MACHINE in _MACHINES else None
"""Index of this machine in the tuples of system call numbers."""

_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_VERSION_FLAG = 1
_LANDLOCK_FILE_RIGHTS = (0, 13, 14, 15, 15, 16)
"""Number of the rights on files that each version of Landlock knows; later ones know no more."""

_X32_CALLS = 0x40000000
"""Calls from this number on belong to the x32 ABI."""

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_TSYNC = 1
_ALLOW = 0x7FFF0000
_DENY = 0x00050000 | errno.EPERM
_KILL_PROCESS = 0x80000000

# Instructions of the filter: load a word of the call, AND it, compare, return.
_LOAD, _AND, _JUMP_EQUAL, _JUMP_NOT_LESS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16


def limit_resources() -> None:
    """Limit files, CPU time and core dumps of this process."""
    lower_limit("CORE", 0)
    lower_limit("FSIZE", 0)
    lower_limit("NOFILE", MAX_OPEN_FILES)
    lower_limit("CPU", WORKER_CPU_SECONDS)


def limit_memory() -> None:
    """Limit the address space of this process to `WORKER_MEMORY_BYTES` more than it has now."""
    if sys.platform != "win32":
        try:
            with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib takes time to import
                used_bytes = int(file.read().split()[0]) * resource.getpagesize()
        except OSError:
            # Without /proc, such as on macOS, the resident size is the nearest thing. macOS counts it in bytes.
            used_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        lower_limit("AS", used_bytes + WORKER_MEMORY_BYTES)


def lower_limit(name: str, value: int) -> None:
    """Set a limit of `setrlimit`, or keep the present one if it is lower."""
    if sys.platform != "win32":
        kind = getattr(resource, f"RLIMIT_{name}")
        hard_limit = resource.getrlimit(kind)[1]
        if hard_limit != resource.RLIM_INFINITY:
            value = min(value, hard_limit)
        resource.setrlimit(kind, (value, value))


def lock_paths() -> bool:
    """Take away the right to open files by their paths; return whether that works.

    It holds for this thread and those that it starts. Memory files can still be opened, through /proc/self/fd.
    """
    if not _is_supported():
        return False
    syscall = ctypes.CDLL(None).syscall
    version = syscall(*map(ctypes.c_long, (_LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_VERSION_FLAG)))
    if version < 1 or not _set_no_new_privileges():
        return False
    rights = (1 << _LANDLOCK_FILE_RIGHTS[min(version, len(_LANDLOCK_FILE_RIGHTS) - 1)]) - 1
    # A ruleset that handles all rights and has no rules.
    attributes = ctypes.create_string_buffer(struct.pack("=Q", rights), 8)
    ruleset = syscall(ctypes.c_long(_LANDLOCK_CREATE_RULESET), attributes, ctypes.c_long(8), ctypes.c_long(0))
    if ruleset < 0:
        return False
    try:
        return bool(syscall(*map(ctypes.c_long, (_LANDLOCK_RESTRICT_SELF, ruleset, 0))) == 0)
    finally:
        os.close(ruleset)


def _is_supported() -> bool:
    return sys.platform == "linux" and _ARCH_INDEX is not None and sys.maxsize > 1 << 32


def _set_no_new_privileges() -> bool:
    """Set `no_new_privs`, which Linux requires before an unprivileged process installs a filter.

    Return whether it worked.
    """
    return bool(ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))) == 0)


def lock_system_calls(*, can_write: bool = False) -> bool:
    """Allow this process only the system calls that a query needs, and reading of files; return whether that works.

    All threads lose the right to start processes and threads, to open sockets, to run new code and, unless `can_write`,
    to write files.
    """
    if not _is_supported() or not _set_no_new_privileges():
        return False
    assert _ARCH_INDEX is not None  # noqa: S101 - it is supported
    program = [
        _instruction(_LOAD, _ARCH_OFFSET),
        _instruction(_JUMP_EQUAL, _AUDIT_ARCHES[_ARCH_INDEX], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_OFFSET),
        _instruction(_JUMP_NOT_LESS, _X32_CALLS, 0, 1),
        _instruction(_RETURN, _KILL_PROCESS),
    ]
    for numbers in (_ALLOWED_CALLS | (_WRITING_CALLS if can_write else {})).values():
        number = numbers[_ARCH_INDEX]
        if number is not None:
            program += [_instruction(_JUMP_EQUAL, number, 0, 1), _instruction(_RETURN, _ALLOW)]
    for *checked_numbers, argument, mask in _CHECKED_CALLS.values():
        program += [
            _instruction(_JUMP_EQUAL, checked_numbers[_ARCH_INDEX], 0, 5),
            _instruction(_LOAD, _ARGUMENTS_OFFSET + 8 * argument),
            _instruction(_AND, mask),
            _instruction(_JUMP_EQUAL, 0, 0, 1),
            _instruction(_RETURN, _ALLOW),
            _instruction(_RETURN, _DENY),
        ]
    return _install_filter([*program, _instruction(_RETURN, _DENY)])


def lock_files() -> None:
    """Take the right to open files away from this process, after `lock_system_calls` returned true."""
    assert _ARCH_INDEX is not None  # noqa: S101 - else `lock_system_calls` returned false
    program = [_instruction(_LOAD, _NUMBER_OFFSET)]
    for numbers in _LOADING_CALLS.values():
        number = numbers[_ARCH_INDEX]
        if number is not None:
            program += [_instruction(_JUMP_EQUAL, number, 0, 1), _instruction(_RETURN, _DENY)]
    if not _install_filter([*program, _instruction(_RETURN, _ALLOW)]):
        raise OSError("the second filter of system calls was refused")


def _instruction(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


def _install_filter(instructions: list[bytes]) -> bool:
    """Install a filter for all threads, and return whether the kernel took it."""
    code = ctypes.create_string_buffer(b"".join(instructions))
    # `struct sock_fprog`: the number of instructions, and their address.
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    number = _SECCOMP_NUMBERS[_ARCH_INDEX or 0]
    arguments = map(ctypes.c_long, (number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC))
    # A positive result is the thread that could not take the filter.
    return bool(ctypes.CDLL(None).syscall(*arguments, program) == 0)
