"""Convert payloads, selected items and query results to file formats."""

import contextlib
import csv
import dataclasses
import io
import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from typing_extensions import Buffer

from forebay._core import Filter, ItemIndex, csv_columns, name_rows, read_items, to_csv, to_ndjson
from forebay.arguments import short_repr
from forebay.errors import FileRefTooLarge, InvalidArgument, InvalidFormat
from forebay.store.backends.filesystem import translate_os_errors
from forebay.store.items import check_fields_exist, resolve_columns
from forebay.store.projection import Projection
from forebay.store.queries import QueryPage, load_engine
from forebay.store.reader import UNLIMITED, ByteView, PayloadReader, ValueView, View
from forebay.store.scan import CHUNK_BYTES, map_chunks

__all__ = [
    "FORMATS",
    "MAX_RESULT_BYTES",
    "Export",
    "export_payload",
    "export_rows",
    "name_columns",
    "rows_to_csv",
    "rows_to_objects",
]

FORMATS = ("json", "ndjson", "csv", "parquet")

MAX_RESULT_BYTES = 64 << 20
"""Maximum size of a query's result that is written to a file."""

_MAX_COLUMNS = 4096
"""Maximum number of columns of CSV: a row has a comma for each."""

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


def export_payload(
    reader: PayloadReader,
    format: str | None = None,  # noqa: A002
    conditions: str | None = None,
    fields: Sequence[str] | None = None,
) -> Export:
    """Convert a payload, or the items that match `conditions`, to a format. `fields` are those that items keep.

    Without conditions and fields the default is a byte-for-byte copy; with them it is the payload's own format, or JSON
    if that is not in `FORMATS`.
    """
    _check_format(format)
    own_format = _get_own_format(reader)
    is_whole = conditions is None and fields is None
    if is_whole and format in (None, own_format):
        view = reader.original if format is None else reader
        rows = None if reader.items is None else len(reader.items)
        # The copy holds the original bytes, such as gzip, not the decoded text.
        is_binary = format is None and reader.decoded_from is not None
        return Export("binary" if is_binary else own_format or reader.nature, _iter_bytes(view), rows)
    index = reader.items
    if index is None:
        raise InvalidFormat(
            "this payload has no items to convert or select; to copy it, leave out format, where and fields, and end "
            "the name of the file in another way than .csv, .json, .jsonl, .ndjson or .parquet"
        )
    if format == "parquet" and not is_whole and index.columns is not None:
        # Items of rows are all texts, but Parquet columns have types.
        raise InvalidArgument("where and fields cannot select from CSV or TSV for parquet; use sql, or export all rows")
    items_filter = None if conditions is None else Filter(conditions, index.columns or ())
    export = Export(format or own_format or "json", iter(()))
    items = _Items(reader, index, items_filter, export, _make_projection(reader, index, fields))
    if format == "parquet":
        export.chunks = _iter_parquet(reader if is_whole else items, export)
        return export
    export.chunks = {"json": items.iter_json, "ndjson": items.iter_ndjson, "csv": items.iter_csv}[export.format]()
    return export


def _make_projection(reader: PayloadReader, index: ItemIndex, fields: Sequence[str] | None) -> Projection | None:
    """Return the projection to some fields, and to the keys of a map. Raise `PathNotFound` if no item has a field."""
    if fields is None:
        return None
    resolved = [*resolve_columns(index, fields)]
    if resolved and len(index):
        check_fields_exist(reader, index, resolved, 0, has_offset=False)
    keys = ["_key"] if index.kind == "map" and resolved else []
    return Projection([*keys, *resolved], [*keys, *fields])


def export_rows(page: QueryPage, format: str | None = None) -> Export:  # noqa: A002
    """Return the result of a query in a format, by default JSON: an array of objects.

    For Parquet, the query must have run with `as_text`. Raises `FileRefTooLarge` if the result is not complete.
    """
    _check_format(format)
    export = Export(format or "json", iter(()), page.row_count)
    if format == "parquet":
        if page.truncated:
            raise _make_too_large_error(MAX_RESULT_BYTES)
        # Some Parquet readers ignore the case of column names.
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
            export.chunks = iter((_objects_to_csv(items, name_columns(page)),))
    return export


def _check_format(format: str | None) -> None:  # noqa: A002
    if format not in (None, *FORMATS):
        raise InvalidArgument(f"format is {', '.join(FORMATS)}, not {short_repr(format)}")


def rows_to_csv(page: QueryPage) -> bytes:
    """Return the rows of a query as CSV. A null is an empty field, and an empty text is in quotes."""
    names = name_columns(page)
    return _objects_to_csv(name_rows(page.content, names, UNLIMITED), names)


def _objects_to_csv(items: bytes, names: list[str]) -> bytes:
    return _format_csv_header(names) + to_csv(items, names)


def rows_to_objects(page: QueryPage, max_bytes: int) -> bytes:
    """Return the rows of a query as a JSON array of objects.

    Raises `FileRefTooLarge` if the result is not complete, or takes more than `max_bytes`.
    """
    if page.truncated:
        raise _make_too_large_error(max_bytes)
    try:
        return name_rows(page.content, name_columns(page), max_bytes)
    except InvalidArgument:
        # `name_rows` raises it only for a result that is too large.
        raise _make_too_large_error(max_bytes) from None


def _make_too_large_error(max_bytes: int) -> FileRefTooLarge:
    return FileRefTooLarge(f"the rows of this query take more than {max_bytes} bytes; select fewer rows or columns")


def name_columns(page: QueryPage, fold: Callable[[str], str] = str) -> list[str]:
    """Return the names of a result's columns. A name that an earlier column has gets a number: `n`, `n_2`.

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
    def write(file: int) -> None:
        with _open_selected(source) if isinstance(source, _Items) else contextlib.nullcontext(source) as view:
            export.rows = load_engine().write_parquet(view, file)

    return _iter_file(write)


@contextlib.contextmanager
def _open_selected(items: "_Items") -> Iterator[View]:
    """Yield a view of selected items, which are copied to a temporary file."""
    with tempfile.TemporaryFile() as file:
        file.writelines(items.iter_json())
        file.flush()
        yield ValueView(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def _iter_file(write: Callable[[int], None]) -> Iterator[Buffer]:
    """Return what a function writes to a file."""
    with translate_os_errors, tempfile.TemporaryFile() as file:
        write(file.fileno())
        file.seek(0)
        yield from iter(lambda: file.read(CHUNK_BYTES), b"")


class _Items:
    """The items of a payload, or those that match a filter, in different formats."""

    def __init__(
        self,
        reader: PayloadReader,
        index: ItemIndex,
        items_filter: Filter | None,
        export: Export,
        projection: Projection | None,
    ) -> None:
        self._reader = reader
        self._index = index
        self._filter = items_filter
        self._export = export
        self._projection = projection

    def iter_json(self) -> Iterator[bytes]:
        separator = b"["
        for items in self._convert_chunks(lambda items: items[1:-1].strip()):
            if items:
                yield separator + items
                separator = b","
        yield _EMPTY_ARRAY if separator == b"[" else b"]"

    def iter_ndjson(self) -> Iterator[bytes]:
        return self._convert_chunks(to_ndjson)

    def iter_csv(self) -> Iterator[bytes]:
        if (projection := self._projection) is not None:
            yield _format_csv_header(projection.names)
            yield from self._convert_chunks(lambda items: to_csv(projection.flatten(items), projection.names))
            return
        # A row may have more cells than the header.
        columns = [*dict.fromkeys([*(self._index.columns or ()), *self._find_columns()])]
        yield _format_csv_header(columns)
        yield from self._convert_chunks(lambda items: to_csv(items, columns))

    def _find_columns(self) -> list[str]:
        columns: dict[str, None] = {}
        for names in self._convert_chunks(lambda items: csv_columns(items, _MAX_COLUMNS)):
            columns.update(dict.fromkeys(names))
            if len(columns) > _MAX_COLUMNS:
                raise InvalidArgument(f"the items have more than {_MAX_COLUMNS} fields, too many for CSV; use ndjson")
        # The first pass counted the items; the second counts them again.
        self._export.rows = 0
        return list(columns)

    def _convert_chunks(self, convert: Callable[[bytes], _T]) -> Iterator[_T]:
        """Convert the JSON array of items in each chunk, in threads; add the number of items to `export.rows`."""
        index, items_filter, projection = self._index, self._filter, self._projection

        def select(data: memoryview, chunk: Any) -> tuple[int, _T]:
            if items_filter is not None:
                selected = items_filter.select(data, index, chunk, 0, UNLIMITED)
                count, content = len(selected.numbers), selected.content
            elif chunk.count == 0:
                count, content = 0, _EMPTY_ARRAY
            else:
                page = read_items(data, index, chunk.first, chunk.count, UNLIMITED, base=chunk.start)
                count, content = page.returned, page.content
            return count, convert(content if projection is None else projection.select(content))

        for count, converted in map_chunks(self._reader, index, select):
            self._export.rows = (self._export.rows or 0) + count
            yield converted


def _format_csv_header(columns: list[str]) -> bytes:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(columns)
    return header.getvalue().encode()
