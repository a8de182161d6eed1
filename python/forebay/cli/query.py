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
from forebay.cli.commands import open_input, open_store_of, resolve_principal

if TYPE_CHECKING:
    from forebay.store import Store
    from forebay.store.handles import Principal
    from forebay.store.queries import QueryPage

__all__ = ["query"]

_MAX_COLUMNS = 10_000


def query(args: Namespace) -> None:
    """Run a SELECT over a stored payload or a file.

    The items are the table `items`, and other payloads are tables with their
    handles as names. The SQL is that of DuckDB:
      forebay query orders.json "SELECT status, count(*) FROM items GROUP BY 1"
    """
    from forebay.store.queries import QueryRequest

    with _open_source(args) as (store, handle, principal):
        request = QueryRequest(sql=args.sql, timeout=args.timeout, max_bytes=args.max_bytes)
        page = store.query_page(handle, request, principal=principal)
    if args.csv:
        output.print_bytes([_write_csv(page)])
    elif output.wants_table(args.json):
        names = _make_unique([column["name"] for column in page.columns])
        cells = [_read_cells(row) for row in _read_rows(page)]
        output.print_table({name: [row[index] for row in cells] for index, name in enumerate(names)})
    else:
        output.print_json_text(page.to_json())
    if page.truncated and sys.stderr is not None and (args.csv or output.wants_table(args.json)):
        count = "more" if page.row_count is None else f"{page.row_count:,}"
        sys.stderr.write(f"these are the first of {count} rows; add LIMIT, or give a larger --max-bytes\n")


@contextlib.contextmanager
def _open_source(args: Namespace) -> Iterator[tuple["Store", str, "Principal"]]:
    """Open the store with the payload; a file is put into a store that lasts as long as the query."""
    import tempfile

    from forebay.store import open_store
    from forebay.store.handles import extract_handle, is_handle
    from forebay.store.payload import guess_row_mime_type

    handle = str(extract_handle(args.source))
    if is_handle(handle):
        with open_store_of(args) as store:
            yield store, handle, resolve_principal(store, args, handle)
        return
    with (
        open_input(args.source) as source,
        tempfile.TemporaryDirectory(prefix="forebay-") as folder,
        open_store(Path(folder), sweep_interval=0, warn_bytes=sys.maxsize) as store,
    ):
        yield store, store.put(source, mime_type=guess_row_mime_type(args.source)).output_handle, None


def _read_rows(page: "QueryPage") -> Iterator[bytes]:
    for start, end in _core.items((page.content, 0, len(page.content)), len(page.content)):
        yield page.content[start:end]


def _read_cells(row: bytes) -> list[str | None]:
    """Return the cells of a row as texts: numbers with all their digits, lists and objects as JSON."""
    cells: list[str | None] = []
    for start, end in _core.items((row, 0, len(row)), _MAX_COLUMNS):
        cell = row[start:end].strip().decode()
        cells.append(json.loads(cell) if cell.startswith('"') else None if cell == "null" else cell)
    return cells


def _make_unique(names: list[str]) -> list[str]:
    """Return names for the columns of a table, none of which occurs twice."""
    unique: dict[str, None] = {}
    for name in names:
        while name in unique:
            name += "'"
        unique[name] = None
    return list(unique)


def _write_csv(page: "QueryPage") -> bytes:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column["name"] for column in page.columns])
    writer.writerows(_read_cells(row) for row in _read_rows(page))
    return text.getvalue().encode()
