"""The process that writes a table as Parquet. It runs one statement of ours, and no SQL of anybody else.

It runs as `python -I -S` with an empty environment, and reads the statement from standard input. It can open memory
files only, where the kernel has Landlock, and has the same filter of system calls as a worker, except that it writes.
"""

import os
import resource
import sys
from typing import Any

import _duckdb

from forebay.query import sandbox

__all__ = ["MAX_FILE_BYTES", "run"]

MAX_FILE_BYTES = 1 << 30
_MAX_MEMORY_BYTES = 2 << 30
_MAX_CPU_SECONDS = 60
_MAX_OPEN_FILES = 32
_NICENESS = 10
"""Queries come first."""


def run() -> None:
    """Run the statement."""
    os.nice(_NICENESS)
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_CPU, _MAX_CPU_SECONDS),
        (resource.RLIMIT_AS, _MAX_MEMORY_BYTES),
    ):
        hard_limit = resource.getrlimit(kind)[1]
        bound = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
        resource.setrlimit(kind, (bound, bound))
    statement = sys.stdin.buffer.read().decode()
    settings: dict[str, Any] = {
        "threads": 1,
        # Other threads would keep the right to open files.
        "async_threads": 0,
        "memory_limit": "256MB",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
        "python_enable_replacements": False,
    }
    connection = _duckdb.connect(":memory:", config=settings)
    sandbox.lock_paths()
    sandbox.lock_system_calls(can_write=True)
    connection.execute(statement)
