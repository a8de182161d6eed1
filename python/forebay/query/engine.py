"""SQL over stored payloads: feed the tables that a statement names to a worker, and return its rows."""

import bisect
import contextlib
import dataclasses
import functools
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from forebay.arguments import check_budget, decode_token
from forebay.errors import InvalidArgument, InvalidFormat, QueryFailed
from forebay.query.duckdb_module import is_installed, make_missing_error
from forebay.query.explain import explain_error, find_hint
from forebay.query.feed import Column, Paths, Table, write_table, write_texts
from forebay.query.names import find_paths
from forebay.query.process import MAX_ROW_COUNT, POOL, QueryError, Rows, TableSource, Worker
from forebay.query.quoting import shorten
from forebay.query.sidecar import keep_table, pack_table, read_table
from forebay.store.handles import is_handle
from forebay.store.payload import escaped_size
from forebay.store.queries import QueryPage, QueryRequest
from forebay.store.reader import PayloadReader, View
from forebay.store.sidecars import Sidecars
from forebay.system.workers import create_memory_file

__all__ = ["run_query", "write_parquet", "write_rows"]

ITEMS_TABLE = "items"

_MAX_TIMEOUT_SECONDS = 600.0
_MAX_SQL_BYTES = 64 << 10
_MAX_TABLES = 8
_MAX_NAME_CHARS = 128
_MAX_TYPE_CHARS = 96
_MAX_MS = 10.0**6 - 0.1
"""Upper bound for the reported time, in milliseconds; it bounds its width in the page."""

_LOAD_TIMEOUT_SECONDS = 60.0
_COPY_CHUNK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class _LoadedTable:
    """A table that a worker has loaded, and the payload it was made from."""

    handle: str
    version: object
    table: Table

    def serves(self, handle: str, reader: PayloadReader, paths: Paths | None) -> bool:
        """Return whether it is the table of this payload, with the fields that a statement with these paths needs."""
        return (self.handle, self.version) == (handle, reader.version) and self.table.has_fields(paths)


def run_query(
    readers: Mapping[str, PayloadReader], request: QueryRequest, sidecars: Sidecars, *, as_text: bool = False
) -> QueryPage:
    """Run a statement over payloads by their handles. The first one is also the table `items`.

    With `as_text` the values are texts, as `write_rows` needs them.
    """
    started = time.perf_counter()
    _check_request(readers, request)
    paths = find_paths(request.sql)

    def has_tables(tables: list[_LoadedTable]) -> bool:
        # The same tables and no others: another one may have been deleted or expired since.
        return len(tables) == len(readers) and all(
            table.serves(handle, reader, paths) for table, (handle, reader) in zip(tables, readers.items(), strict=True)
        )

    try:
        with POOL.borrow(has_tables, request.timeout) as worker, contextlib.ExitStack() as stack:
            if worker.tables is None:
                # Report a syntax error before any table is loaded.
                worker.parse(request.sql, request.timeout)
                worker.tables = _load_tables(worker, readers, paths, sidecars, stack)
            rows = worker.query(request.sql, request.max_bytes, request.timeout, as_text=as_text)
            hint = find_hint(readers, (loaded.table for loaded in worker.tables), request.sql)
    except QueryError as error:
        raise explain_error(error, readers, request) from None
    return _build_page(rows, hint, request, started, are_columns_whole=as_text)


def write_parquet(view: View, target: int) -> int:
    """Write the items of a view to an open file as Parquet, with types from every value. Return their number."""
    if not is_installed():
        raise make_missing_error("Parquet")
    with _open_memory_file() as source:
        table = write_table(view, None, source)
        _pack(table, source, target)
    return table.rows


def write_rows(page: QueryPage, names: Sequence[str], target: int) -> None:
    """Write the rows of a query that ran with `as_text` to an open file as Parquet, with the types of the query."""
    columns = [Column(name, column["type"]) for name, column in zip(names, page.columns, strict=True)]
    with _open_memory_file() as source:
        table = write_texts(columns, page.content, source)
        _pack(table, source, target)


def _pack(table: Table, source: int, target: int) -> None:
    with _open_memory_file() as packed:
        try:
            # The process that writes Parquet can open memory files only.
            pack_table(table, source, packed)
        except (OSError, subprocess.SubprocessError):
            raise QueryFailed("these items could not be written as Parquet; use ndjson or csv") from None
        with open(packed, "rb", closefd=False) as reader, open(target, "wb", closefd=False) as writer:
            reader.seek(0)
            shutil.copyfileobj(reader, writer, _COPY_CHUNK_BYTES)


def _check_request(readers: Mapping[str, PayloadReader], request: QueryRequest) -> None:
    check_budget(request.max_bytes, request.escape_levels)
    timeout = request.timeout
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout <= _MAX_TIMEOUT_SECONDS:
        raise InvalidArgument(f"timeout must be a number of seconds, more than 0 and at most {_MAX_TIMEOUT_SECONDS:g}")
    if len(request.sql.encode()) > _MAX_SQL_BYTES:
        raise InvalidArgument(f"the statement has more than {_MAX_SQL_BYTES} bytes; ask a shorter question")
    if len(readers) > _MAX_TABLES:
        raise InvalidArgument(f"a statement names at most {_MAX_TABLES} handles, not {len(readers)}")
    if not is_installed():
        raise make_missing_error("SQL")
    for handle, reader in readers.items():
        if reader.items is None:
            raise InvalidFormat(
                f"{handle} has no items to query: it is not a JSON array or map, NDJSON, CSV or TSV; read it with "
                "fetch or search"
            )


def _load_tables(
    worker: Worker,
    readers: Mapping[str, PayloadReader],
    paths: Paths | None,
    sidecars: Sidecars,
    stack: contextlib.ExitStack,
) -> list[_LoadedTable]:
    """Load the tables of payloads, from their sidecars if possible; new tables are kept when the stack is closed."""
    sources, loaded, new_tables = [], [], []
    for index, (handle, reader) in enumerate(readers.items()):
        file = stack.enter_context(_open_memory_file())
        meta = reader.footer.meta
        stored = read_table(sidecars, meta, paths, file)
        if stored is not None and stored.has_fields(paths):
            table = stored
        else:
            # The new sidecar replaces the old one, so it must have the old one's fields, too.
            all_paths = paths if stored is None or paths is None or stored.paths is None else paths | stored.paths
            table = write_table(reader, all_paths, file)
            new_tables.append((meta, table, file))
        loaded.append(_LoadedTable(handle, reader.version, table))
        name, aliases = handle, []
        if index == 0:
            name, alias = ITEMS_TABLE, _find_alias(reader)
            aliases = [handle] if alias is None else [handle, alias]
        sources.append(TableSource(name, tuple(aliases), file, table.select_from))
    try:
        worker.load(sources, _LOAD_TIMEOUT_SECONDS)
    except QueryError as error:
        # The sidecars may be corrupt: delete them, so that the next query reads the payloads again.
        for reader in readers.values():
            sidecars.delete(reader.footer.meta)
        if error.kind in ("statement", "failure"):
            # The tables are incomplete, so the pool must end the worker, which it does for this kind of error.
            raise QueryError("loading", str(error)) from None
        raise
    for meta, table, file in new_tables:
        # Runs after the query, so that packing does not compete with it for the CPU.
        stack.callback(keep_table, sidecars, meta, table, file)
    return loaded


def _find_alias(reader: PayloadReader) -> str | None:
    """Return the key of the array or map that holds the items, or `None` if it cannot be a table's name."""
    name = decode_token(reader.items_path.rpartition("/")[2])
    is_free = name.lower() != ITEMS_TABLE and not is_handle(name)
    return name if name and len(name) <= _MAX_NAME_CHARS and is_free and "\0" not in name else None


@contextlib.contextmanager
def _open_memory_file() -> Iterator[int]:
    file = create_memory_file()
    try:
        yield file
    finally:
        os.close(file)


def _build_page(
    rows: Rows, hint: str | None, request: QueryRequest, started: float, *, are_columns_whole: bool
) -> QueryPage:
    """Return a page with as many rows as fit into the budget.

    Long names and types of columns are shortened, unless `are_columns_whole`.
    """
    size_of = functools.partial(escaped_size, escape_levels=request.escape_levels, is_ascii=request.is_ascii)
    names_and_types = rows.columns
    if not are_columns_whole:
        names_and_types = [
            (shorten(name, _MAX_NAME_CHARS), shorten(column_type, _MAX_TYPE_CHARS))
            for name, column_type in names_and_types
        ]
    columns = tuple({"name": name, "type": column_type} for name, column_type in names_and_types)
    # An upper bound of the page without its rows.
    empty_page = QueryPage(columns, b"[]", MAX_ROW_COUNT, True, _MAX_MS, hint)
    remaining_bytes = request.max_bytes - size_of(empty_page.to_json())
    sizes = itertools.accumulate(size_of(line) + 1 for line in rows.lines)
    fitting = bisect.bisect_right(list(sizes), remaining_bytes)
    if hint is not None and (remaining_bytes < 0 or (rows.lines and not fitting)):
        # The rows are more important.
        return _build_page(rows, None, request, started, are_columns_whole=are_columns_whole)
    if remaining_bytes < 0 or (rows.lines and not fitting):
        raise QueryFailed(
            f"the {'columns' if remaining_bytes < 0 else 'first row'} alone would take more than "
            f"max_bytes={request.max_bytes}; select fewer columns, or parts of long texts with left(…, 200)"
        )
    content = b"[" + b",".join(rows.lines[:fitting]) + b"]"
    is_truncated = not rows.is_complete or fitting < len(rows.lines)
    ms = min(round((time.perf_counter() - started) * 1000, 1), _MAX_MS)
    return QueryPage(columns, content, rows.row_count, is_truncated, ms, hint)
