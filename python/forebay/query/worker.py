"""The process that runs SQL: it gets tables and statements over a socket, and has no other way to the world.

It runs as `python -I -S` with an empty environment. Each message is two lengths of four bytes, a JSON object, and data.
"""

import _socket
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import _duckdb

from forebay.query import sandbox
from forebay.query.quoting import quote_identifier, quote_text
from forebay.query.rows import Encoder, encode_value, make_encoder
from forebay.query.types import find_cast, get_parquet_type

__all__ = ["run"]

_IDLE_SECONDS = 120.0
"""A worker that gets no message for this long ends."""

_COUNTING_SECONDS = 0.25
"""Time to count the rows that did not fit."""

_ROWS_PER_FETCH = 64
_ROWS_PER_COUNT = 2048
_MAX_TABLES = 16
_MAX_MESSAGE_CHARS = 1500
_LENGTH_BYTES = 4

_FILES_FOLDER = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"

_THREADS = 2

_SETTINGS: dict[str, Any] = {
    # More are started when none of them can open files any more.
    "threads": 1,
    "async_threads": 0,
    "memory_limit": "768MB",
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
    "max_expression_depth": 250,
}

_PLAIN_ERRORS = (_duckdb.ParserException, _duckdb.BinderException, _duckdb.CatalogException)
"""Errors of a statement that did not run. After any other error the worker is not used again."""


class _Refused(Exception):
    """A statement that is not run."""


class _Column(NamedTuple):
    name: str
    type: str
    """Type that is reported."""
    cast: str | None
    """Type to which the column is cast before its values are fetched."""
    encode: Encoder


def run() -> None:
    """Serve the socket that is standard input until it is closed."""
    sandbox.limit_resources()
    # The parent may ignore alarms, and a child inherits that.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    channel = _socket.socket(fileno=0)
    channel.settimeout(_IDLE_SECONDS)
    connection = _duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'")
    # Import now what the first result would import: later, no file can be opened.
    connection.execute("SELECT 1.5::DECIMAL(4, 1), TIME '01:02:03', uuid()").fetchall()
    sandbox.limit_memory()
    sandbox.lock_paths()
    connection.execute(f"SET threads = {_THREADS}")
    _Worker(channel, connection, has_filter=sandbox.lock_system_calls()).serve()


class _Worker:
    def __init__(self, channel: _socket.socket, connection: Any, *, has_filter: bool) -> None:
        self._socket = channel
        self._connection = connection
        self._has_filter = has_filter

    def serve(self) -> None:
        self._send({"has_filter": self._has_filter})
        while True:
            request, files = self._receive()
            # The kernel ends the worker even if its parent does not exist any more.
            signal.setitimer(signal.ITIMER_REAL, request["timeout"])
            try:
                if "tables" in request:
                    self._load(request["tables"], files)
                    self._send({})
                elif "max_bytes" in request:
                    self._query(request["sql"], request["max_bytes"], as_text=request["as_text"])
                else:
                    self._parse(request["sql"])
                    self._send({})
            except (_Refused, *_PLAIN_ERRORS) as error:
                self._send({"error": "statement", "message": _shorten(str(error))})
            except (MemoryError, _duckdb.OutOfMemoryException):
                self._send({"error": "memory", "message": ""})
            except Exception as error:
                self._send({"error": "failure", "message": _shorten(str(error))})
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _load(self, tables: list[dict[str, Any]], files: list[int]) -> None:
        for table, file in zip(tables, files, strict=True):
            name = quote_identifier(table["name"])
            select = table["select"].replace(table["path"], f"{_FILES_FOLDER}/{file}")
            self._connection.execute(f"CREATE TABLE {name} AS {select}")
            os.close(file)
            for alias in table["aliases"]:
                # The name comes from the payload, and may be one that DuckDB does not take.
                with contextlib.suppress(_duckdb.Error):
                    self._connection.execute(f"CREATE VIEW {quote_identifier(alias)} AS FROM {name}")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        if self._has_filter:
            sandbox.lock_files()

    def _parse(self, sql: str) -> Any:
        """Return the statement, if it is one that only reads. DuckDB's parser makes a SELECT of those that do."""
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != _duckdb.StatementType.SELECT:
            kinds = ", ".join(str(statement.type).rpartition(".")[2] for statement in statements[:5]) or "nothing"
            raise _Refused(f"a query is one SELECT, DESCRIBE or SUMMARIZE; this is {kinds}")
        return statements[0]

    def _query(self, sql: str, max_bytes: int, *, as_text: bool) -> None:
        statement = self._parse(sql)
        with self._read_only():
            columns = self._bind(statement, sql, as_text=as_text)
            is_cast = any(column.cast for column in columns)
            with _hide_wrapper() if is_cast else contextlib.nullcontext():
                self._connection.execute(_wrap(sql, columns) if is_cast else statement)
                self._send_result(columns, max_bytes)

    @contextlib.contextmanager
    def _read_only(self) -> Iterator[None]:
        """Run statements that may not write. A SELECT may still hold an INSERT or DELETE, in its WITH."""
        self._connection.execute("BEGIN TRANSACTION READ ONLY")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def _bind(self, statement: Any, sql: str, *, as_text: bool) -> list[_Column]:
        """Return the columns of a statement, without running it."""
        try:
            described = self._connection.execute(f"DESCRIBE {sql}").fetchall()
        except _duckdb.Error:
            # The error of the statement alone shows the right part of its text.
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
            self._connection.execute(statement)
            raise
        types = {text: self._connection.type(text) for text in {row[1] for row in described}}
        columns = [(name, text, types[text]) for name, text, *_ in described]
        if as_text:
            return [_Column(name, get_parquet_type(kind), "VARCHAR", encode_value) for name, _, kind in columns]
        return [_Column(name, text, find_cast(kind), make_encoder(kind)) for name, text, kind in columns]

    def _send_result(self, columns: list[_Column], max_bytes: int) -> None:
        encoders = [column.encode for column in columns]
        rows: list[str] = []
        remaining_bytes = max_bytes
        while batch := self._connection.fetchmany(_ROWS_PER_FETCH):
            for index, values in enumerate(batch):
                row = f"[{','.join(encode(value) for encode, value in zip(encoders, values, strict=True))}]"
                remaining_bytes -= len(row.encode()) + 1
                if remaining_bytes < 0:
                    if not rows:
                        raise _Refused(_describe_large_row(columns, values, max_bytes))
                    self._send_rows(columns, rows, None)
                    self._send({"row_count": _count_rest(self._connection, len(rows) + len(batch) - index)})
                    return
                rows.append(row)
        self._send_rows(columns, rows, len(rows))

    def _send_rows(self, columns: list[_Column], rows: list[str], row_count: int | None) -> None:
        described = [[column.name, column.type] for column in columns]
        self._send({"columns": described, "row_count": row_count}, "\n".join(rows).encode())

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(header).encode()
        lengths = len(text).to_bytes(_LENGTH_BYTES, "big") + len(body).to_bytes(_LENGTH_BYTES, "big")
        self._socket.sendall(lengths + text + body)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next request and the files that came with it. End the process when there is none."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(1 << 16, _socket.CMSG_SPACE(4 * _MAX_TABLES))
        except TimeoutError:
            data, ancillary = b"", []
        if not data:
            sys.exit()
        files = [file for *_, content in ancillary for file in memoryview(content).cast("i").tolist()]
        size = int.from_bytes(data[:_LENGTH_BYTES], "big") + 2 * _LENGTH_BYTES
        while len(data) < size:
            data += self._socket.recv(1 << 20)
        return json.loads(data[2 * _LENGTH_BYTES :]), files


def _count_rest(result: Any, count: int) -> int | None:
    """Return the number of all rows, if there are not too many left to count; `count` of them were fetched."""
    deadline = time.monotonic() + _COUNTING_SECONDS
    while batch := result.fetchmany(_ROWS_PER_COUNT):
        count += len(batch)
        if time.monotonic() > deadline:
            return None
    return count


def _describe_large_row(columns: list[_Column], values: tuple[Any, ...], max_bytes: int) -> str:
    sizes = [len(column.encode(value).encode()) for column, value in zip(columns, values, strict=True)]
    name = _shorten(quote_identifier(columns[sizes.index(max(sizes))].name), 100)
    return (
        f"the first row alone has {sum(sizes)} bytes, {max(sizes)} of them in {name}, and an answer has at "
        f"most {max_bytes}; select less of it, such as a part of a text with left(…, 200)"
    )


def _wrap(sql: str, columns: list[_Column]) -> str:
    """Return the statement that casts columns of another statement."""
    values = (
        f"#{number}{f'::{column.cast}' if column.cast else ''} AS {quote_identifier(column.name)}"
        for number, column in enumerate(columns, 1)
    )
    # As an argument the statement may end with a semicolon and comments.
    return f"SELECT {', '.join(values)} FROM query({quote_text(sql)})"  # noqa: S608 - it is quoted


@contextlib.contextmanager
def _hide_wrapper() -> Iterator[None]:
    """Leave the line out of an error: it is a line of the statement from `_wrap`."""
    try:
        yield
    except _duckdb.Error as error:
        raise type(error)(str(error).partition("\n\nLINE ")[0]) from None


def _shorten(text: str, max_chars: int = _MAX_MESSAGE_CHARS) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"
