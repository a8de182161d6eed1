"""Limits on the processes that run DuckDB. On POSIX they set them on themselves; on Windows their job has them."""

__all__ = [
    "PACK_CPU_SECONDS",
    "PACK_MEMORY_BYTES",
    "WORKER_CPU_SECONDS",
    "WORKER_MEMORY_BYTES",
    "WORKER_START_BYTES",
]

WORKER_MEMORY_BYTES = 1 << 30
"""Maximum memory of a worker for tables and queries, in addition to its memory after the start."""

WORKER_START_BYTES = 256 << 20
"""Upper bound of a worker's memory after its start, for systems whose limit includes it."""

WORKER_CPU_SECONDS = 900
"""Maximum CPU time of a worker in its whole life. Each query has a deadline of its own."""

PACK_MEMORY_BYTES = 2 << 30
"""Maximum memory of the process that writes Parquet, with all that it takes."""

PACK_CPU_SECONDS = 60
"""Maximum CPU time of the process that writes Parquet."""
