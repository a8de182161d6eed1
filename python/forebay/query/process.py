"""Workers from the side of the parent: start them, give them tables and statements, and end them."""

import atexit
import contextlib
import dataclasses
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from forebay._core import locate
from forebay.query.duckdb_module import find_duckdb, is_installed
from forebay.query.limits import WORKER_CPU_SECONDS, WORKER_MEMORY_BYTES, WORKER_START_BYTES
from forebay.query.types import is_parquet_type
from forebay.store.threads import fork_safe_lock
from forebay.system.workers import PASSES_FILES, WorkerProcess, get_file_path

__all__ = [
    "MAX_ROW_COUNT",
    "POOL",
    "QueryError",
    "Rows",
    "TableSource",
    "Worker",
    "WorkerPool",
    "prestart",
]

_log = logging.getLogger("forebay")

MAX_RUNNING = 4
"""Maximum number of queries that run at the same time in this process."""

_MAX_IDLE_WORKERS = 2
"""Maximum number of workers that wait for the next query, beside the spare."""

_START_SECONDS = 20.0
_SPARE_DELAY_SECONDS = 0.05
_COUNT_WAIT_SECONDS = 0.5
"""Time that the parent waits for the number of the rows that did not fit."""

_GRACE_SECONDS = 1.0
"""A worker ends itself this long after its deadline if its parent has not done it."""

MAX_ROW_COUNT = 10**15
_MAX_HEADER_BYTES = 1 << 20
_LENGTH_BYTES = 4

_BOOT_CODE = "import sys; sys.path += sys.argv[1:]; from forebay.query.worker import run; run()"


class QueryError(Exception):
    """A query that failed.

    `kind` is `statement`, `failure`, `memory`, `time`, `died`, `busy`, `start` or `loading`.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclasses.dataclass(frozen=True, slots=True)
class TableSource:
    """A table to load: a file, and the SQL that reads it."""

    name: str
    aliases: tuple[str, ...]
    """More names of the table."""
    file: int
    """The descriptor of the file. The worker opens it by itself, from the start."""
    select_from: Callable[[str], str]
    """Returns the SELECT that reads a file with this path."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Rows from a worker. Their form is validated; their content is not trusted."""

    columns: list[tuple[str, str]]
    """Name and type of each column."""
    lines: list[bytes]
    """Each row as a JSON array."""
    row_count: int | None
    is_complete: bool


class Worker:
    """A child process that runs SQL, for callers that know that DuckDB is installed. One thread at a time uses it."""

    def __init__(self) -> None:
        self.tables: Any = None
        """The loaded tables, which `WorkerPool.borrow` passes to `has_tables`."""
        self._is_ready = False
        package_folder = str(Path(__file__).parents[2])
        self._process = WorkerProcess(
            ["-I", "-S", "-B", "-c", _BOOT_CODE, package_folder, str(find_duckdb())],
            max_memory_bytes=WORKER_START_BYTES + WORKER_MEMORY_BYTES,
            max_cpu_seconds=WORKER_CPU_SECONDS,
        )

    @property
    def pid(self) -> int:
        """The process id, to measure the process."""
        return self._process.pid

    def parse(self, sql: str, timeout: float) -> None:
        """Raise `QueryError` unless the worker would run this statement, as far as its syntax tells."""
        self._send({"sql": sql}, timeout)
        self._receive(time.monotonic() + timeout, 0)

    def load(self, tables: Sequence[TableSource], timeout: float) -> None:
        """Create the tables. After this, the worker cannot open files any more."""
        # The worker replaces this placeholder by the path of its file. It is random, so no payload can contain it.
        placeholder = f"forebay-{os.urandom(16).hex()}"
        described = []
        for table in tables:
            select = table.select_from(placeholder if PASSES_FILES else get_file_path(table.file))
            described.append({"name": table.name, "aliases": table.aliases, "select": select, "path": placeholder})
        self._send({"tables": described}, timeout, [table.file for table in tables] if PASSES_FILES else [])
        self._receive(time.monotonic() + timeout, 0)

    def query(self, sql: str, max_bytes: int, timeout: float, *, as_text: bool = False) -> Rows:
        """Run a statement and return its rows, as many as fit into `max_bytes`.

        With `as_text` each value is null or the text that DuckDB prints for it, and each column has a type that
        Parquet has, to which its texts can be cast.
        """
        self._send({"sql": sql, "max_bytes": max_bytes, "as_text": as_text}, timeout)
        deadline = time.monotonic() + timeout
        header, body = self._receive(deadline, max_bytes)
        is_complete = header.get("row_count") is not None
        if not is_complete:
            with contextlib.suppress(QueryError):
                counted, _ = self._receive(min(deadline, time.monotonic() + _COUNT_WAIT_SECONDS), 0)
                header["row_count"] = counted.get("row_count")
        with self._translate_errors():
            columns = [(_replace_surrogates(name), _replace_surrogates(kind)) for name, kind in header["columns"]]
            if as_text and not all(is_parquet_type(kind) for _, kind in columns):
                raise ValueError("a wrong type")
            row_count = None if header["row_count"] is None else int(header["row_count"])
            if row_count is not None and not 0 <= row_count <= MAX_ROW_COUNT:
                raise ValueError("a wrong number of rows")
            lines = body.split(b"\n") if body else []
            locate(b"[%b]" % b",".join(lines), "")
            return Rows(columns, lines, row_count, is_complete)

    def end(self) -> None:
        """Kill the process."""
        self._process.end()

    def forget(self) -> None:
        """Drop this worker in a forked child, and leave its process to the parent."""
        self._process.forget()

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def _send(self, request: dict[str, Any], timeout: float, files: Sequence[int] = ()) -> None:
        if not self._is_ready:
            header, _ = self._receive(time.monotonic() + _START_SECONDS, 0)
            _warn_without_filter(header.get("has_filter") is True)
            self._is_ready = True
        text = orjson.dumps({**request, "timeout": timeout + _GRACE_SECONDS})
        message = len(text).to_bytes(_LENGTH_BYTES, "big") + bytes(_LENGTH_BYTES) + text
        with self._translate_errors():
            self._process.send(message, files, timeout)

    def _receive(self, deadline: float, max_body_bytes: int) -> tuple[dict[str, Any], bytes]:
        """Return the next message. Any failure ends the process, except for an error in a statement."""
        try:
            with self._translate_errors():
                lengths = self._process.receive(2 * _LENGTH_BYTES, deadline)
                sizes = [int.from_bytes(part, "big") for part in (lengths[:_LENGTH_BYTES], lengths[_LENGTH_BYTES:])]
                if sizes[0] > _MAX_HEADER_BYTES or sizes[1] > max_body_bytes:
                    raise ValueError("a message of the worker is too large")
                header = json.loads(self._process.receive(sizes[0], deadline))
                body = self._process.receive(sizes[1], deadline)
                error, message = header.get("error"), str(header.get("message"))
        except QueryError:
            self.end()
            raise
        if error is not None:
            if error != "statement":
                self.end()
            raise QueryError(error if error in ("statement", "memory") else "failure", message)
        return header, body

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise QueryError("time") from None
        except (
            OSError,
            EOFError,
            ValueError,
            TypeError,
            AttributeError,
            KeyError,
            OverflowError,
            RecursionError,
        ) as error:
            raise QueryError("died", str(error)) from None


def _replace_surrogates(text: object) -> str:
    return str(text).encode(errors="replace").decode()


@functools.cache
def _warn_without_filter(has_filter: bool) -> None:
    if not has_filter:
        _log.warning(
            "forebay: no usable system call filter (seccomp) on this system; queries are confined only by the "
            "system's limits on processes and by DuckDB's own settings"
        )


class WorkerPool:
    """The workers of this process: running, idle with their tables, and one that has started and has none."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._running = threading.BoundedSemaphore(MAX_RUNNING)
        self._idle: list[Worker] = []
        self._spare: Worker | None = None
        self._keeps_spare = False

    def prestart(self) -> None:
        """Start a worker for the next query that needs new tables, and another one whenever it is used."""
        with self._lock:
            self._forget_after_fork()
            self._keeps_spare = True
        self._start_spare()

    def _start_spare(self) -> None:
        with self._lock:
            self._forget_after_fork()
            if not self._keeps_spare:
                return
            if self._spare is not None and not self._spare.is_running:
                self._spare.end()
                self._spare = None
            if self._spare is None:
                # A query that finds no worker will report why none can be started.
                with contextlib.suppress(OSError):
                    self._spare = Worker()

    @contextlib.contextmanager
    def borrow(self, has_tables: Callable[[Any], bool], timeout: float) -> Iterator[Worker]:
        """Lend an idle worker whose `tables` satisfy `has_tables`, else one without tables.

        Raises `QueryError` of kind `busy` if too many queries still run after `timeout` seconds.
        """
        with self._lock:
            self._forget_after_fork()
            running = self._running
        if not running.acquire(timeout=timeout):
            raise QueryError("busy")
        try:
            worker = self._take(has_tables)
            try:
                yield worker
            except QueryError as error:
                if error.kind != "statement":
                    worker.end()
                raise
            except BaseException:
                # The worker may still be busy with this query.
                worker.end()
                raise
            finally:
                self._give_back(worker)
        finally:
            running.release()

    def _take(self, has_tables: Callable[[Any], bool]) -> Worker:
        with self._lock:
            for worker in reversed(self._idle):
                if worker.is_running and worker.tables is not None and has_tables(worker.tables):
                    self._idle.remove(worker)
                    return worker
            spare, self._spare = self._spare, None
        if spare is not None:
            if spare.is_running:
                return spare
            spare.end()
        try:
            return Worker()
        except OSError as error:
            raise QueryError("start", error.strerror or "") from None

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if worker.is_running and worker.tables is None and self._spare is None:
                self._spare = worker
            elif worker.is_running:
                self._idle.append(worker)
            retired = [old for old in self._idle if not old.is_running] + self._idle[:-_MAX_IDLE_WORKERS]
            self._idle = [old for old in self._idle if old not in retired]
        for old in retired:
            old.end()
        if self._keeps_spare and self._spare is None:
            # Later, so that this query does not wait for it.
            timer = threading.Timer(_SPARE_DELAY_SECONDS, self._start_spare)
            timer.daemon = True
            timer.start()

    def end_all(self) -> None:
        """End all workers that are not running a query, and keep none ready any more."""
        with self._lock:
            self._forget_after_fork()
            self._keeps_spare = False
            workers, self._idle, self._spare = [*self._idle, *([self._spare] if self._spare else [])], [], None
        for worker in workers:
            worker.end()

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            for worker in [*self._idle, *([self._spare] if self._spare else [])]:
                worker.forget()
            self._reset()


POOL = WorkerPool()
atexit.register(POOL.end_all)


def prestart() -> None:
    """Start a worker if DuckDB is installed, so that the next query does not wait for it."""
    if is_installed():
        POOL.prestart()
