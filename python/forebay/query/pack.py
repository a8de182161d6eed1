"""The process that writes a table as Parquet. It runs one statement, which forebay wrote.

It runs as `python -I -S` with an empty environment, and reads the statement from standard input. It can open memory
files only, where the kernel has Landlock, and has the same filter of system calls as a worker, except that it writes.
"""

import os
import sys

import _duckdb

from forebay.query import sandbox
from forebay.query.limits import PACK_CPU_SECONDS, PACK_MEMORY_BYTES

__all__ = ["run"]

_MAX_FILE_BYTES = 1 << 30
_NICENESS = 10
"""Queries come first."""


def run() -> None:
    """Run the COPY statement from standard input."""
    if sys.platform != "win32":
        os.nice(_NICENESS)
    sandbox.lower_limit("CORE", 0)
    sandbox.lower_limit("FSIZE", _MAX_FILE_BYTES)
    sandbox.lower_limit("NOFILE", sandbox.MAX_OPEN_FILES)
    sandbox.lower_limit("CPU", PACK_CPU_SECONDS)
    sandbox.lower_limit("AS", PACK_MEMORY_BYTES)
    statement = sys.stdin.buffer.read().decode()
    connection = _duckdb.connect(":memory:", config={**sandbox.BASE_SETTINGS, "memory_limit": "256MB"})
    sandbox.lock_paths()
    sandbox.lock_system_calls(can_write=True)
    connection.execute(statement)
