"""`forebay query`: SQL over a stored payload or a file, as a table, JSON or CSV."""

import contextlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forebay import _core
from forebay.cli import output
from forebay.cli.commands import open_input, open_store_of, reject_mime_type, resolve_principal
from forebay.errors import InvalidArgument, InvalidFormat

if TYPE_CHECKING:
    from forebay.store import Store
    from forebay.store.handles import Principal
    from forebay.store.queries import QueryPage

__all__ = ["query"]

_MAX_COLUMNS = 10_000


def query(args: Namespace) -> None:
    """Run a SELECT over a stored payload or a file.

    The items are the table `items`. Beside a handle, other payloads are tables with
    their handles as names. The SQL is that of DuckDB:
      forebay query orders.json "SELECT status, count(*) FROM items GROUP BY 1"
    """
    from forebay.store.export import name_columns, rows_to_csv
    from forebay.store.queries import QueryRequest

    with _open_source(args) as (store, handle, principal):
        request = QueryRequest(sql=args.sql, timeout=args.timeout, max_bytes=args.max_bytes)
        page = store.query_page(handle, request, principal=principal)
    if args.csv:
        output.print_bytes([rows_to_csv(page)])
    elif output.wants_table(args.json):
        cells = [_read_cells(row) for row in _read_rows(page)]
        columns = {name: [row[index] for row in cells] for index, name in enumerate(name_columns(page))}
        output.print_table(columns, keeps_empty=True)
    else:
        output.print_json_text(page.to_json())
    if sys.stderr is not None and (args.csv or output.wants_table(args.json)):
        if page.truncated:
            count = "more" if page.row_count is None else f"{page.row_count:,}"
            sys.stderr.write(f"these are the first of {count} rows; add LIMIT, or give a larger --max-bytes\n")
        if page.hint is not None:
            sys.stderr.write(f"{output.replace_controls(page.hint)}\n")


@contextlib.contextmanager
def _open_source(args: Namespace) -> Iterator[tuple["Store", str, "Principal"]]:
    """Open the store with the payload; a file is put into a store that lasts as long as the query."""
    import tempfile

    from forebay.store import open_store
    from forebay.store.handles import extract_handle, find_handles, is_handle
    from forebay.store.payload import guess_row_mime_type

    handle = str(extract_handle(args.source))
    if is_handle(handle):
        reject_mime_type(args, handle)
        with open_store_of(args) as store:
            yield store, handle, resolve_principal(store, args, handle)
        return
    if find_handles(args.sql):
        raise InvalidArgument(
            f"beside a file, handles are no tables; store the file with forebay put {args.source}, and query its handle"
        )
    with (
        open_input(args.source) as source,
        tempfile.TemporaryDirectory(prefix="forebay-") as folder,
        open_store(Path(folder), sweep_interval=0, warn_bytes=sys.maxsize) as store,
    ):
        handle = store.put(source, mime_type=args.mime_type or guess_row_mime_type(args.source)).output_handle
        try:
            yield store, handle, None
        except InvalidFormat as error:
            # The handle is of no use, because the store ends with the query.
            reason = str(error).partition(";")[0].replace(handle, args.source)
            raise InvalidFormat(f"{reason}; --mime-type text/csv says that it has rows") from None


def _read_rows(page: "QueryPage") -> Iterator[bytes]:
    for start, end in _core.items((page.content, 0, len(page.content)), len(page.content)):
        yield page.content[start:end]


def _read_cells(row: bytes) -> "list[str | output.NestedCell]":
    """Return the cells of a row: texts, numbers as texts with all their digits, and lists and objects."""
    cells = (row[start:end].strip().decode() for start, end in _core.items((row, 0, len(row)), _MAX_COLUMNS))
    return [_read_cell(cell) for cell in cells]


def _read_cell(cell: str) -> "str | output.NestedCell":
    if cell.startswith('"'):
        return str(json.loads(cell))
    if cell.startswith(("{", "[")):
        return output.NestedCell(cell)
    return "NULL" if cell == "null" else cell
