"""Detect CSV and TSV in the text of a tool result: text blocks have no MIME type."""

import csv
import io
import re
from collections.abc import Sequence

from forebay.wire.lazy_json import ChunkSource

__all__ = ["detect_table"]

_HEAD_BYTES = 16 * 1024
"""Bytes at the start of a text that are examined."""

_MIN_ROWS = 8
_MIN_COLUMNS = 2
_MAX_NAME_LENGTH = 64
_DELIMITERS = {",": "text/csv", "\t": "text/tab-separated-values"}

_NAME = re.compile(r"[^\W\d](?:[\w .:/()%#$€-]*[\w)%#$€])?")
"""Matches a typical column name: it begins with a letter or an underscore, and does not end with a space."""


def detect_table(data: str | bytes | ChunkSource) -> str | None:
    """Return the MIME type of a text that clearly is a table with a header; `None` for any other text.

    All rows that are examined must have as many fields as the header. Each name in the header must be short and unique,
    and must not occur in its own column; otherwise the first row may be data.
    """
    head, is_cut = _read_head(data)
    first_line = head.partition("\n")[0]
    for delimiter, mime_type in _DELIMITERS.items():
        # Check the first line before all others, because most texts are not tables.
        if delimiter in first_line and _has_names(first_line.rstrip("\r").split(delimiter)):
            rows = _read_rows(head, delimiter, is_cut=is_cut)
            if rows is not None and _is_table(rows):
                return mime_type
    return None


def _read_head(data: str | bytes | ChunkSource) -> tuple[str, bool]:
    """Return the start of a text, and whether more follows."""
    start = data.head() if isinstance(data, ChunkSource) else data
    head = start[:_HEAD_BYTES] if isinstance(start, str) else bytes(start[:_HEAD_BYTES]).decode(errors="replace")
    is_cut = isinstance(data, ChunkSource) or len(start) > _HEAD_BYTES
    return head.removeprefix("\ufeff"), is_cut


def _read_rows(head: str, delimiter: str, *, is_cut: bool) -> list[list[str]] | None:
    """Return the rows, without the last one if it may be cut; `None` if this is not a table."""
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, strict=True)
    try:
        rows.extend(reader)
    except csv.Error:
        # Where the text is cut, the last field may lack its closing quotation mark. Any other error means no table.
        if not is_cut or reader.line_num < len(io.StringIO(head, newline="").readlines()):
            return None
        return rows
    return rows[:-1] if is_cut else rows


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    if len(rows) < _MIN_ROWS or not _has_names(rows[0]):
        return False
    header, *others = rows
    return all(len(row) == len(header) for row in others) and not any(
        name == field for row in others for name, field in zip(header, row, strict=True)
    )


def _has_names(fields: Sequence[str]) -> bool:
    names = [field[1:-1] if field[:1] == field[-1:] == '"' and len(field) > 1 else field for field in fields]
    return (
        len(names) >= _MIN_COLUMNS
        and len(set(names)) == len(names)
        and all(len(name) <= _MAX_NAME_LENGTH and _NAME.fullmatch(name) for name in names)
    )
