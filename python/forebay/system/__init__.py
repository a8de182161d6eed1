"""What differs between operating systems: files, locks, processes and pipes.

Each module here has the same interface everywhere and takes its functions from a module for POSIX or for Windows. No
other module may use `fcntl`, `msvcrt`, `dir_fd` and their like; `tests/project/test_system_calls.py` checks it.
"""

__all__: list[str] = []
