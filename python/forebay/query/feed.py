"""Items of a stored payload as a table for DuckDB: lines of JSON in a memory file, and the types of the columns.

The types come from every value, not from a sample. A column holds what Python's `json` would read: exact numbers, the
last of equal keys, `NULL` for missing values, and JSON for values of different types.
"""

import dataclasses
import functools
import os
import re
import secrets
from collections.abc import Callable, Sequence

from forebay._core import Chunk, Feed, name_rows, to_ndjson
from forebay.errors import InvalidFormat
from forebay.query.quoting import quote_identifier, quote_text
from forebay.store.reader import UNLIMITED, View
from forebay.store.scan import map_chunks

__all__ = ["Column", "Paths", "Table", "read_schema", "write_table", "write_texts"]

Paths = frozenset[tuple[str, ...]]
"""Paths of fields: a name alone is the whole field, a longer path a member of an object in it."""

_NO_COLUMN = f"no_field_{secrets.token_hex(8)}"
"""Name of the only column if the items have none of the named fields: a table has at least one column. It is random, so
that no statement can mean it."""

_MIN_LINE_BYTES = 1 << 20
"""Size of the longest line that DuckDB expects, at least. It allocates a multiple of it for each thread."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    """Type in DuckDB, such as `BIGINT`, `STRUCT("x" DOUBLE)[]` or `JSON`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table that was written to a file."""

    columns: tuple[Column, ...]
    rows: int
    size_bytes: int
    """Size of the file."""
    paths: Paths | None
    """Paths of the fields that were kept, and others; `None` if all were kept."""
    skipped: frozenset[str] | None
    """Names of the fields that were not kept, in lower case; `None` if there were too many."""
    values: tuple[str, ...]
    """For each column, the expression that selects it."""
    reader: str
    """The call of DuckDB's function that reads the file, with `?` for the path."""

    def select_from(self, path: str) -> str:
        """Return the SELECT statement that reads the table from the file at a path."""
        names = (quote_identifier(column.name) for column in self.columns)
        values = ", ".join(map("{} AS {}".format, self.values, names))
        reader = self.reader.replace("?", quote_text(path), 1)
        return f"SELECT {values} FROM {reader}"  # noqa: S608 - all are quoted

    def has_fields(self, sql_paths: Paths | None) -> bool:
        """Return whether a table with these paths, from `find_paths`, would have no other fields or members."""
        if self.paths is None or sql_paths is None:
            return self.paths is None
        if self.skipped is None:
            return sql_paths <= self.paths
        wanted, kept = _group_by_name(sql_paths), _group_by_name(self.paths)
        for column in self.columns:
            name = column.name.lower()
            members = kept.get(name, set())
            # Of a struct, only the members on these paths may be there.
            if column.type.startswith("STRUCT(") and () not in members and not wanted.get(name, set()) <= members:
                return False
        # A name with a number may be that of a column that got the number because of its case.
        return self.skipped.isdisjoint(wanted.keys() | {re.sub(r"_[0-9]+\Z", "", name) for name in wanted})


def _group_by_name(paths: Paths) -> dict[str, set[tuple[str, ...]]]:
    """Return the members below each field, by its name in lower case."""
    groups: dict[str, set[tuple[str, ...]]] = {}
    for name, *members in paths:
        groups.setdefault(name.lower(), set()).add(tuple(member.lower() for member in members))
    return groups


def write_table(view: View, sql_paths: Paths | None, fd: int) -> Table:
    """Write the items of a view to a file, with the fields that have one of these paths, in any case; `None` for all.

    Of a field that has only paths of members, it may be that only these members are written.

    Raises `InvalidFormat` if the view has no items, and `InvalidArgument` if they have too many different keys.
    """

    def start() -> None:
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)

    return _feed_items(view, sql_paths, start, functools.partial(_write_all, fd))


def write_texts(columns: Sequence[Column], rows: bytes, fd: int) -> Table:
    """Write rows of texts, which is a JSON array of arrays, to a file. Its table casts the texts to their types."""
    keys = [str(number) for number in range(len(columns))]
    lines = to_ndjson(name_rows(rows, keys, UNLIMITED))
    _write_all(fd, lines)
    return Table(
        columns=tuple(columns),
        rows=lines.count(b"\n"),
        size_bytes=len(lines),
        paths=None,
        skipped=None,
        values=tuple(f'"{key}"::{column.type}' for key, column in zip(keys, columns, strict=True)),
        reader=_read_json(dict.fromkeys(keys, "VARCHAR"), max(map(len, lines.splitlines()), default=0)),
    )


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_schema(view: View) -> tuple[Column, ...]:
    """Return the columns of a table of all fields."""
    return _feed_items(view, None, lambda: None, lambda _: None).columns


def _feed_items(
    view: View, sql_paths: Paths | None, start: Callable[[], None], write: Callable[[bytes], None]
) -> Table:
    """Write the lines of all items. `start` is called before the first line, also if all are written again."""
    index = view.items
    if index is None:
        raise InvalidFormat("this output has no items to query; read it with output_fetch or output_search")
    feed = Feed(None if sql_paths is None else list(sql_paths))

    def write_lines(data: memoryview, chunk: Chunk) -> bytes:
        return feed.write(data, index, chunk.first)

    columns = None
    while columns is None:
        start()
        size_bytes = longest_bytes = 0
        for lines in map_chunks(view, index, write_lines):
            size_bytes += len(lines)
            # A line is no longer than all lines of its chunk.
            longest_bytes = max(longest_bytes, len(lines))
            write(lines)
        columns = feed.finish(index)
    # Items without any fields have the column that items which are not objects would have.
    columns = columns or [("value" if sql_paths is None else _NO_COLUMN, "VARCHAR", "0", "VARCHAR")]
    skipped = feed.skipped()
    return Table(
        columns=tuple(Column(name, sql_type) for name, sql_type, _, _ in columns),
        rows=len(index),
        size_bytes=size_bytes,
        paths=sql_paths,
        skipped=None if skipped is None else frozenset(skipped),
        values=tuple(_select_value(*column[1:], has_cells=index.columns is not None) for column in columns),
        reader=_read_json({key: read_type for _, _, key, read_type in columns}, longest_bytes),
    )


def _read_json(types: dict[str, str], longest_bytes: int) -> str:
    """Return the call that reads lines of JSON, with `?` for the path, from the types of the keys."""
    keys = ", ".join(f"'{key}': {quote_text(read_type)}" for key, read_type in types.items())
    max_line_bytes = max(longest_bytes, _MIN_LINE_BYTES)
    options = f"format='newline_delimited', records=true, maximum_object_size={max_line_bytes}, columns={{{keys}}}"
    return f"read_json(?, {options})"


def _select_value(sql_type: str, key: str, read_type: str, *, has_cells: bool) -> str:
    if sql_type == read_type:
        return f'"{key}"'
    # A cell is a text, and an empty one is no number.
    return f"nullif(\"{key}\", '')::{sql_type}" if has_cells else f'"{key}"::{sql_type}'
