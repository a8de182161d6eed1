"""The process that runs SQL: it gets tables and statements from its parent, and does no other I/O.

It runs as `python -I -S` without the environment of its parent. A message is the length of a JSON header, the length of
a body (4 bytes each, big-endian), the header and the body. Requests have no body.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import _duckdb

from forebay.query import sandbox
from forebay.query.quoting import quote_identifier, quote_text, shorten
from forebay.query.rows import Encoder, encode_value, make_encoder
from forebay.query.types import find_cast, get_parquet_type, has_json
from forebay.system.worker_channel import WorkerChannel

__all__ = ["run"]

_IDLE_SECONDS = 120.0
"""A worker that gets no message for this long ends."""

_COUNTING_SECONDS = 0.25
"""Time to count the rows that did not fit."""

_ROWS_PER_FETCH = 64
_ROWS_PER_COUNT = 2048
_MAX_MESSAGE_CHARS = 1500
_LENGTH_BYTES = 4

_FILES_FOLDER = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"

_THREADS = 2

_SETTINGS: dict[str, Any] = {
    **sandbox.BASE_SETTINGS,
    "memory_limit": "768MB",
    "max_expression_depth": 250,
}

_BEGIN = "BEGIN TRANSACTION READ ONLY"

_PLAIN_ERRORS = (_duckdb.ParserException, _duckdb.BinderException, _duckdb.CatalogException)
"""Errors of a statement that did not run. After any other error the worker is not used again."""


_STATEMENT_START = "; \t\r\n"
"""Characters before a statement that DESCRIBE does not take."""


class _StatementError(Exception):
    """An error that the caller can fix by changing the statement."""


class _Column(NamedTuple):
    name: str
    type: str
    """Type that is reported."""
    cast: str | None
    """Type to which the column is cast before its values are fetched."""
    encode: Encoder


def run() -> None:
    """Serve requests from the parent until its end of the connection is closed, or idle for `_IDLE_SECONDS`."""
    sandbox.limit_resources()
    channel = WorkerChannel(_IDLE_SECONDS)
    connection = _duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'")
    # Import now what the first result would import: later, no file can be opened.
    connection.execute("SELECT 1.5::DECIMAL(4, 1), TIME '01:02:03', uuid()").fetchall()
    sandbox.limit_memory()
    sandbox.lock_paths()
    connection.execute(f"SET threads = {_THREADS}")
    _Worker(channel, connection, has_filter=sandbox.lock_system_calls()).serve()


class _Worker:
    def __init__(self, channel: WorkerChannel, connection: Any, *, has_filter: bool) -> None:
        self._channel = channel
        self._connection = connection
        self._has_filter = has_filter

    def serve(self) -> None:
        self._send({"has_filter": self._has_filter})
        while True:
            request, files = self._receive()
            self._channel.set_deadline(request["timeout"])
            try:
                if "tables" in request:
                    self._load(request["tables"], files)
                    self._send({})
                elif "max_bytes" in request:
                    self._query(request["sql"], request["max_bytes"], as_text=request["as_text"])
                else:
                    self._parse(request["sql"])
                    self._send({})
            except (_StatementError, *_PLAIN_ERRORS) as error:
                self._send({"error": "statement", "message": shorten(str(error), _MAX_MESSAGE_CHARS)})
            except (MemoryError, _duckdb.OutOfMemoryException):
                self._send({"error": "memory", "message": ""})
            except Exception as error:
                self._send({"error": "failure", "message": shorten(str(error), _MAX_MESSAGE_CHARS)})
            self._channel.set_deadline(0)

    def _load(self, tables: list[dict[str, Any]], files: list[int]) -> None:
        # Without files, the statements have their paths already.
        inherited: Sequence[int | None] = files or [None] * len(tables)
        for table, file in zip(tables, inherited, strict=True):
            name, select = quote_identifier(table["name"]), table["select"]
            if file is not None:
                select = select.replace(table["path"], f"{_FILES_FOLDER}/{file}")
            self._connection.execute(f"CREATE TABLE {name} AS {select}")
            if file is not None:
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
        """Return the only statement in `sql`; raise `_StatementError` unless it is a SELECT.

        DuckDB parses FROM, DESCRIBE and SUMMARIZE as SELECT, too.
        """
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != _duckdb.StatementType.SELECT:
            kinds = ", ".join(str(statement.type).rpartition(".")[2] for statement in statements[:5]) or "nothing"
            raise _StatementError(f"a query is one SELECT, DESCRIBE or SUMMARIZE; this is {kinds}")
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
        self._connection.execute(_BEGIN)
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def _restart_transaction(self) -> None:
        """Make statements possible again after an error, which may have aborted the transaction."""
        self._connection.execute("ROLLBACK")
        self._connection.execute(_BEGIN)

    def _bind(self, statement: Any, sql: str, *, as_text: bool) -> list[_Column]:
        """Return the columns of a statement. If DuckDB rejects it, run it to get an error that quotes its own text."""
        try:
            described = self._connection.execute("DESCRIBE " + sql.lstrip(_STATEMENT_START)).fetchall()
        except _duckdb.Error:
            # The error of DESCRIBE quotes the wrong position, so get the error of the statement itself.
            self._restart_transaction()
            self._connection.execute(statement)
            raise
        types = {text: self._connection.type(text) for text in {row[1] for row in described}}
        columns = [(name, text, types[text]) for name, text, *_ in described]
        if as_text:
            return [_make_text_column(name, kind) for name, _, kind in columns]
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
                        raise _StatementError(_describe_large_row(columns, values, max_bytes))
                    self._send_rows(columns, rows, None)
                    self._send({"row_count": _count_rows(self._connection, len(rows) + len(batch) - index)})
                    return
                rows.append(row)
        self._send_rows(columns, rows, len(rows))

    def _send_rows(self, columns: list[_Column], rows: list[str], row_count: int | None) -> None:
        described = [[column.name, column.type] for column in columns]
        self._send({"columns": described, "row_count": row_count}, "\n".join(rows).encode())

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        text = json.dumps(header).encode()
        lengths = len(text).to_bytes(_LENGTH_BYTES, "big") + len(body).to_bytes(_LENGTH_BYTES, "big")
        self._channel.send(lengths + text + body)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next request and the files that came with it. End the process when there is none."""
        data, files = self._channel.receive_first()
        if not data:
            sys.exit()
        size = int.from_bytes(data[:_LENGTH_BYTES], "big") + 2 * _LENGTH_BYTES
        while len(data) < size:
            part = self._channel.receive(1 << 20)
            if not part:
                # The parent died in the middle of a message.
                sys.exit()
            data += part
        return json.loads(data[2 * _LENGTH_BYTES :]), files


def _make_text_column(name: str, column_type: Any) -> _Column:
    """Return a column of texts, which the writer of Parquet casts back."""
    if has_json(column_type):
        # DuckDB's text of a list of JSON cannot be cast back: it has NULL, and its numbers would be rounded.
        encode = make_encoder(column_type)
        return _Column(
            name,
            "JSON",
            find_cast(column_type),
            lambda value: "null" if value is None else encode_value(encode(value)),
        )
    return _Column(name, get_parquet_type(column_type), "VARCHAR", encode_value)


def _count_rows(result: Any, count: int) -> int | None:
    """Return the total number of rows, or `None` if counting takes longer than `_COUNTING_SECONDS`.

    `count` rows were fetched already.
    """
    deadline = time.monotonic() + _COUNTING_SECONDS
    while batch := result.fetchmany(_ROWS_PER_COUNT):
        count += len(batch)
        if time.monotonic() > deadline:
            return None
    return count


def _describe_large_row(columns: list[_Column], values: tuple[Any, ...], max_bytes: int) -> str:
    sizes = [len(column.encode(value).encode()) for column, value in zip(columns, values, strict=True)]
    name = shorten(quote_identifier(columns[sizes.index(max(sizes))].name), 100)
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
    # As a string argument, the statement may end with a semicolon or a comment.
    return f"SELECT {', '.join(values)} FROM query({quote_text(sql)})"  # noqa: S608 - it is quoted


@contextlib.contextmanager
def _hide_wrapper() -> Iterator[None]:
    """Remove the quoted line from errors: it shows our wrapper, not the caller's statement."""
    try:
        yield
    except _duckdb.Error as error:
        raise type(error)(str(error).partition("\n\nLINE ")[0]) from None
