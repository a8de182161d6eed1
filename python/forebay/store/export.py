"""Payloads in the formats of files, whole or only the items that fulfil conditions, and results of queries."""

import contextlib
import csv
import dataclasses
import io
import mmap
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from typing_extensions import Buffer

from forebay._core import Filter, ItemIndex, csv_columns, name_rows, read_items, to_csv, to_ndjson
from forebay.arguments import short_repr
from forebay.errors import FileRefTooLarge, InvalidArgument, InvalidFormat
from forebay.store.backends.filesystem import translate_os_errors
from forebay.store.queries import QueryPage, load_engine
from forebay.store.reader import ByteView, PayloadReader, ValueView, View
from forebay.store.scan import CHUNK_BYTES, map_chunks

__all__ = [
    "FORMATS",
    "MAX_RESULT_BYTES",
    "Export",
    "export_payload",
    "export_rows",
    "name_columns",
    "rows_to_objects",
    "write_csv",
]

FORMATS = ("json", "ndjson", "csv", "parquet")

MAX_RESULT_BYTES = 64 << 20
"""Maximum size of a query's result that is written to a file."""

_MAX_COLUMNS = 4096
"""Maximum number of columns of CSV: a row has a comma for each."""

_UNLIMITED = 1 << 62
_EMPTY_ARRAY = b"[]"

_T = TypeVar("_T")


@dataclasses.dataclass(slots=True)
class Export:
    """The content of a file."""

    format: str
    """`json`, `ndjson`, `csv` or `parquet`; `text` or `binary` for a payload that is copied and has no such format."""
    chunks: Iterator[Buffer]
    """The content. It can be read once, while the payload is open."""
    rows: int | None = 0
    """The number of items; complete once all chunks were read. `None` if the payload has no items."""
    principal: str | None = None
    """The principal of the payload."""


def export_payload(reader: PayloadReader, format: str | None = None, conditions: str | None = None) -> Export:  # noqa: A002
    """Return a payload in a format, or only its items that fulfil conditions. By default the format stays as it is.

    A payload whose format stays is copied byte for byte.
    """
    own_format = _get_own_format(reader)
    if format not in (None, *FORMATS):
        raise InvalidArgument(f"format is {', '.join(FORMATS)}, not {short_repr(format)}")
    if conditions is None and format in (None, own_format):
        view = reader.original if format is None else reader
        rows = None if reader.items is None else len(reader.items)
        # The original of a decoded payload, such as gzip, is not what was found in it.
        is_binary = format is None and reader.decoded_from is not None
        return Export("binary" if is_binary else own_format or reader.nature, _iter_bytes(view), rows)
    index = reader.items
    if index is None:
        raise InvalidFormat("this payload has no items to convert or select; leave out format and where to copy it")
    if format == "parquet" and conditions is not None and index.columns is not None:
        # Items of rows are texts, but the columns of their Parquet have types.
        raise InvalidArgument("rows of CSV and TSV become parquet whole, or by sql; use sql instead of where")
    items_filter = None if conditions is None else Filter(conditions, index.columns or ())
    export = Export(format or own_format or "json", iter(()))
    items = _Items(reader, index, items_filter, export)
    if format == "parquet":
        export.chunks = _iter_parquet(reader if conditions is None else items, export)
        return export
    export.chunks = {"json": items.iter_json, "ndjson": items.iter_ndjson, "csv": items.iter_csv}[export.format]()
    return export


def export_rows(page: QueryPage, format: str | None = None) -> Export:  # noqa: A002
    """Return the result of a query in a format, by default JSON: an array of objects.

    For Parquet, the query must have run with `as_text`. Raises `FileRefTooLarge` if the result is not complete.
    """
    if format not in (None, *FORMATS):
        raise InvalidArgument(f"format is {', '.join(FORMATS)}, not {short_repr(format)}")
    export = Export(format or "json", iter(()), page.row_count)
    if format == "parquet":
        if page.truncated:
            raise _make_too_large_error(MAX_RESULT_BYTES)
        # Its readers may take names that differ only in case for the same.
        names = name_columns(page, fold=str.lower)
        export.chunks = _iter_file(lambda file: load_engine().write_rows(page, names, file))
        return export
    items = rows_to_objects(page, MAX_RESULT_BYTES)
    match export.format:
        case "json":
            export.chunks = iter((items,))
        case "ndjson":
            export.chunks = iter((to_ndjson(items),))
        case "csv":
            export.chunks = iter((write_csv(page),))
    return export


def write_csv(page: QueryPage) -> bytes:
    """Return the rows of a query as CSV. A null is an empty field, and an empty text is in quotes."""
    names = name_columns(page)
    return _write_header(names) + to_csv(name_rows(page.content, names, _UNLIMITED), names)


def rows_to_objects(page: QueryPage, max_bytes: int) -> bytes:
    """Return the rows of a query as a JSON array of objects.

    Raises `FileRefTooLarge` if the result is not complete, or takes more than `max_bytes`.
    """
    with contextlib.suppress(InvalidArgument):
        if not page.truncated:
            return name_rows(page.content, name_columns(page), max_bytes)
    raise _make_too_large_error(max_bytes)


def _make_too_large_error(max_bytes: int) -> FileRefTooLarge:
    return FileRefTooLarge(f"the rows of this query take more than {max_bytes} bytes; select fewer rows or columns")


def name_columns(page: QueryPage, fold: Callable[[str], str] = str) -> list[str]:
    """Return the names of a result's columns, with a number behind each name that another column has, too.

    Names are the same if `fold` returns the same for them.
    """
    names: dict[str, str] = {}
    for column in page.columns:
        name, number = column["name"], 1
        while fold(name) in names:
            number += 1
            name = f"{column['name']}_{number}"
        names[fold(name)] = name
    return list(names.values())


def _get_own_format(reader: PayloadReader) -> str | None:
    if reader.nature in ("json", "ndjson"):
        return reader.nature
    return "csv" if reader.items is not None and reader.items.kind == "csv" else None


def _iter_bytes(view: ByteView) -> Iterator[Buffer]:
    for start in range(0, view.size, CHUNK_BYTES):
        yield view.read(start, min(start + CHUNK_BYTES, view.size))


def _iter_parquet(source: "View | _Items", export: Export) -> Iterator[Buffer]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(translate_os_errors)
        if isinstance(source, _Items):
            selected = stack.enter_context(tempfile.TemporaryFile())
            selected.writelines(source.iter_json())
            selected.flush()
            source = ValueView(memoryview(mmap.mmap(selected.fileno(), 0, access=mmap.ACCESS_READ)))
        view = source

        def write(file: int) -> None:
            export.rows = load_engine().write_parquet(view, file)

        yield from _iter_file(write)


def _iter_file(write: Callable[[int], None]) -> Iterator[Buffer]:
    """Return what a function writes to a file."""
    with translate_os_errors, tempfile.TemporaryFile() as file:
        write(file.fileno())
        file.seek(0)
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")


class _Items:
    """The items of a payload, or those that match a filter, in different formats."""

    def __init__(self, reader: PayloadReader, index: ItemIndex, items_filter: Filter | None, export: Export) -> None:
        self._reader = reader
        self._index = index
        self._filter = items_filter
        self._export = export

    def iter_json(self) -> Iterator[bytes]:
        separator = b"["
        for items in self._map(lambda items: items[1:-1].strip()):
            if items:
                yield separator + items
                separator = b","
        yield _EMPTY_ARRAY if separator == b"[" else b"]"

    def iter_ndjson(self) -> Iterator[bytes]:
        return self._map(to_ndjson)

    def iter_csv(self) -> Iterator[bytes]:
        # A row may have more cells than the header.
        columns = [*dict.fromkeys([*(self._index.columns or ()), *self._find_columns()])]
        yield _write_header(columns)
        yield from self._map(lambda items: to_csv(items, columns))

    def _find_columns(self) -> list[str]:
        columns: dict[str, None] = {}
        for names in self._map(lambda items: csv_columns(items, _MAX_COLUMNS)):
            columns.update(dict.fromkeys(names))
            if len(columns) > _MAX_COLUMNS:
                raise InvalidArgument(f"the items have more than {_MAX_COLUMNS} fields, too many for CSV; use ndjson")
        self._export.rows = 0
        return list(columns)

    def _map(self, convert: Callable[[bytes], _T]) -> Iterator[_T]:
        """Convert the items of each chunk, which are a JSON array, in threads, and count them."""
        index, items_filter = self._index, self._filter

        def select(data: memoryview, chunk: Any) -> tuple[int, _T]:
            if items_filter is not None:
                selected = items_filter.select(data, index, chunk, 0, _UNLIMITED)
                return len(selected.numbers), convert(selected.content)
            if chunk.count == 0:
                return 0, convert(_EMPTY_ARRAY)
            page = read_items(data, index, chunk.first, chunk.count, _UNLIMITED, base=chunk.start)
            return page.returned, convert(page.content)

        for count, converted in map_chunks(self._reader, index, select):
            self._export.rows = (self._export.rows or 0) + count
            yield converted


def _write_header(columns: list[str]) -> bytes:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(columns)
    return header.getvalue().encode()
