"""Tables as Parquet beside their payloads, so that the next query need not read the items again, in any process."""

import dataclasses
import logging
import os
import queue
import re
import threading
from pathlib import Path
from typing import Any, NamedTuple

from forebay.errors import HandleCorrupt
from forebay.query.duckdb_module import find_duckdb
from forebay.query.feed import Column, Paths, Table
from forebay.query.limits import PACK_CPU_SECONDS, PACK_MEMORY_BYTES
from forebay.query.quoting import quote_identifier, quote_text
from forebay.store.sidecars import Sidecars
from forebay.system.workers import PASSES_FILES, create_memory_file, get_file_path, open_target, run_worker

__all__ = ["keep_table", "pack_table", "read_table", "wait_for_tables"]

_log = logging.getLogger("forebay")

_FORMAT = 2
_MIN_TABLE_BYTES = 256 << 10
"""Smaller tables are read as fast from their payload."""

_MAX_WAITING = 4
_PACK_SECONDS = 120.0
_BOOT_CODE = "import sys; sys.path += sys.argv[1:]; from forebay.query.pack import run; run()"


class _Job(NamedTuple):
    sidecars: Sidecars
    meta: dict[str, Any]
    table: Table
    file: int
    """A file with the table, which is closed at the end."""


def read_table(sidecars: Sidecars, meta: dict[str, Any], sql_paths: Paths | None, fd: int) -> Table | None:
    """Return the table in the sidecar of a payload, or `None` if there is none.

    If it has the fields that a statement with these paths may use, it is copied to a file, and the columns are those of
    the statement alone.
    """
    with sidecars.open(meta) as sidecar:
        table = None if sidecar is None else _load_description(*sidecar)
        if sidecar is None or table is None or not table.has_fields(sql_paths):
            return table
        try:
            for chunk in sidecar[1].iter_chunks():
                rest = memoryview(chunk)
                while rest:
                    rest = rest[os.write(fd, rest) :]
        except HandleCorrupt:
            # The payload may be intact: the next sidecar replaces this one.
            return None
        return table if sql_paths is None else _select_columns(table, sql_paths)


def _select_columns(table: Table, sql_paths: Paths) -> Table:
    names = {path[0].lower() for path in sql_paths}
    kept = [number for number, column in enumerate(table.columns) if column.name.lower() in names]
    # A table has at least one column.
    kept = kept or [0]
    dropped = {column.name.lower() for number, column in enumerate(table.columns) if number not in kept}
    if table.paths is None:
        skipped: frozenset[str] | None = frozenset(dropped)
    else:
        skipped = None if table.skipped is None else table.skipped | dropped
    return dataclasses.replace(
        table,
        columns=tuple(table.columns[number] for number in kept),
        values=tuple(table.values[number] for number in kept),
        paths=sql_paths,
        skipped=skipped,
    )


def _load_description(description: dict[str, Any], content: Any) -> Table | None:
    try:
        if description["format"] != _FORMAT:
            return None
        columns = tuple(Column(str(name), str(sql_type)) for name, sql_type in description["columns"])
        paths, skipped = description["paths"], description["skipped"]
        return Table(
            columns=columns,
            rows=int(description["rows"]),
            size_bytes=content.size,
            paths=None if paths is None else frozenset(map(tuple, paths)),
            skipped=None if skipped is None else frozenset(skipped),
            values=tuple(_cast(quote_identifier(column.name), column.type) for column in columns),
            reader="read_parquet(?)",
        )
    except (KeyError, TypeError, ValueError):
        return None


def _cast(value: str, sql_type: str) -> str:
    return value if _get_stored_type(sql_type) == sql_type else f"{value}::{sql_type}"


def _get_stored_type(sql_type: str) -> str:
    """Return the type that a column has in Parquet, which has no integers of 128 bits: DuckDB would round them."""
    return re.sub(
        r'"(?:[^"]|"")*"|HUGEINT', lambda match: "DECIMAL(38,0)" if match[0] == "HUGEINT" else match[0], sql_type
    )


def keep_table(sidecars: Sidecars, meta: dict[str, Any], table: Table, fd: int) -> None:
    """Store the table in a file as the sidecar of its payload, in the background. The file must not change any more."""
    if table.size_bytes < _MIN_TABLE_BYTES or find_duckdb() is None:
        return
    job = _Job(sidecars, meta, table, os.dup(fd))
    try:
        _get_queue().put_nowait(job)
    except queue.Full:
        os.close(job.file)


def wait_for_tables() -> None:
    """Wait until all tables are stored."""
    _get_queue().join()


_lock = threading.Lock()
_state: tuple[int, "queue.Queue[_Job]"] | None = None


def _get_queue() -> "queue.Queue[_Job]":
    """Return the queue of the thread that stores tables. After a fork, there is a new one."""
    global _state
    with _lock:
        if _state is None or _state[0] != os.getpid():
            _state = os.getpid(), queue.Queue(_MAX_WAITING)
            threading.Thread(target=_run_jobs, args=[_state[1]], name="forebay-sidecar", daemon=True).start()
        return _state[1]


def _run_jobs(jobs: "queue.Queue[_Job]") -> None:
    while True:
        job = jobs.get()
        try:
            _run_job(job)
        except Exception as error:
            # The next query reads the payload again.
            _log.warning("forebay: a table was not kept: %s", error)
        finally:
            os.close(job.file)
            jobs.task_done()


def _run_job(job: _Job) -> None:
    description = {
        "format": _FORMAT,
        "columns": [[column.name, column.type] for column in job.table.columns],
        "rows": job.table.rows,
        "paths": None if job.table.paths is None else sorted(job.table.paths),
        "skipped": None if job.table.skipped is None else sorted(job.table.skipped),
    }
    with os.fdopen(create_memory_file(), "r+b") as parquet:
        pack_table(job.table, job.file, parquet.fileno())
        parquet.seek(0)
        job.sidecars.write(job.meta, description, parquet)


def pack_table(table: Table, source: int, target: int) -> None:
    """Write a table to a file as Parquet, in a process of its own. Both are memory files, if the system has them."""
    values = ", ".join(
        f"{quote_identifier(column.name)}::{_get_stored_type(column.type)} AS {quote_identifier(column.name)}"
        for column in table.columns
    )
    arguments = ["-I", "-S", "-B", "-c", _BOOT_CODE, str(Path(__file__).parents[2]), str(find_duckdb())]
    with open_target(target) as path:
        statement = (
            f"COPY (SELECT {values} FROM ({table.select_from(get_file_path(source))})) "  # noqa: S608 - all are quoted
            f"TO {quote_text(path)} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        )
        run_worker(
            arguments,
            statement.encode(),
            [source, target] if PASSES_FILES else [],
            _PACK_SECONDS,
            max_memory_bytes=PACK_MEMORY_BYTES,
            max_cpu_seconds=PACK_CPU_SECONDS,
        )
