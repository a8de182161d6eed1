"""Rows of a view by their numbers: items, items that match a filter, lines, and lines of a hex dump."""

from typing import NamedTuple, Protocol

from forebay import _core
from forebay._core import ItemIndex
from forebay.store.items import read_fitting_items
from forebay.store.reader import View
from forebay.store.where import Matches

__all__ = ["MAX_ROW_BYTES", "HexRows", "ItemRows", "LineRows", "MatchRows", "Row", "Rows", "TextRows", "read_sample"]

MAX_ROW_BYTES = 64 << 10
"""Bytes of an item or line that are read to draw it. Of a larger item there is an overview."""

_READ_BYTES = 256 << 10

_SAMPLE_ROWS = 64
"""Rows that the columns of a table are chosen from, and as many at the end that only their widths depend on."""

_BYTES_PER_HEX_ROW = 16


class Row(NamedTuple):
    """An item or a line."""

    number: int
    data: bytes
    """An item as JSON, or the bytes of a line without its line end."""
    full: tuple[int, int] | None = None
    """Start and size in the view, if `data` is only an overview or the beginning."""


class Rows(Protocol):
    """Rows that are numbered from 0 without gaps."""

    @property
    def count(self) -> int: ...
    def read(self, first: int, count: int) -> list[Row]:
        """Read some rows. Called in a thread."""


class ItemRows:
    """All items of a view."""

    def __init__(self, view: View, index: ItemIndex) -> None:
        self.view = view
        self.index = index
        self.count = len(index)

    def read(self, first: int, count: int) -> list[Row]:
        rows: list[Row] = []
        number, end = first, min(first + count, self.count)
        while number < end:
            page = read_fitting_items(self.view, self.index, number, end - number, _READ_BYTES)
            if page.returned == 0:
                break
            cuts = {cut.index: (cut.byte_offset, cut.size_bytes) for cut in page.truncated}
            for position, item in enumerate(_split(page.content)):
                full = cuts.get(number + position)
                rows.append(Row(number + position, item, full))
            number += page.returned
        return rows


class MatchRows:
    """The items of a view that match a filter. The number of a row is not that of its item."""

    def __init__(self, matches: Matches, items: ItemRows, conditions: str) -> None:
        self._matches = matches
        self.items = items
        self.conditions = conditions
        self.count = matches.total

    def read(self, first: int, count: int) -> list[Row]:
        rows: list[Row] = []
        for batch in self._matches.iter_batches(first, count):
            for number, item in zip(batch.numbers, _split(batch.content), strict=True):
                rows.extend([Row(number, item)] if len(item) <= MAX_ROW_BYTES else self.items.read(number, 1))
        return rows


class LineRows:
    """The lines of a view."""

    def __init__(self, view: View, index: ItemIndex) -> None:
        self.view = view
        self.index = index
        self.count = len(index)

    def read(self, first: int, count: int) -> list[Row]:
        rows: list[Row] = []
        number, end = first, min(first + count, self.count)
        while number < end:
            found = self._read_some(number, end - number)
            rows += found
            number += len(found)
        return rows

    def _read_some(self, first: int, count: int) -> list[Row]:
        span = self.index.span(first, count)
        # The span starts at most one block of the index before the line.
        end = min(span.end, span.start + 2 * MAX_ROW_BYTES + _READ_BYTES)
        data = bytes(self.view.read(span.start, end))
        position = 0
        for _ in range(first - span.first):
            position = data.index(b"\n", position) + 1
        rows: list[Row] = []
        while len(rows) < count:
            line_end = data.find(b"\n", position)
            if line_end < 0:
                if end < span.end and rows:
                    # The last line was not read to its end: the next call begins with it.
                    break
                line_end = len(data)
            line = data[position:line_end]
            full = None
            if len(line) > MAX_ROW_BYTES or (line_end == len(data) and end < span.end):
                full = (span.start + position, self._measure_line(first + len(rows), span.start + position))
            rows.append(Row(first + len(rows), line[:MAX_ROW_BYTES].removesuffix(b"\r"), full))
            position = line_end + 1
        return rows

    def _measure_line(self, number: int, start: int) -> int:
        """Return the size of a long line, which ends where a block of the index does, or before the next line."""
        span = self.index.span(number, 1)
        tail_start = max(start, span.end - 2 * MAX_ROW_BYTES)
        tail = bytes(self.view.read(tail_start, span.end))
        line_end = tail.find(b"\n")
        return (span.end if line_end < 0 else tail_start + line_end) - start


class HexRows:
    """A view as a hex dump."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.count = -(-view.size // _BYTES_PER_HEX_ROW)

    def read(self, first: int, count: int) -> list[Row]:
        start = first * _BYTES_PER_HEX_ROW
        data = bytes(self.view.read(start, min(start + count * _BYTES_PER_HEX_ROW, self.view.size)))
        return [
            Row(first + at // _BYTES_PER_HEX_ROW, _dump(start + at, data[at : at + _BYTES_PER_HEX_ROW]))
            for at in range(0, len(data), _BYTES_PER_HEX_ROW)
        ]


class TextRows:
    """Lines in memory."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self.count = len(lines)

    def read(self, first: int, count: int) -> list[Row]:
        return [Row(first + at, line) for at, line in enumerate(self._lines[first : first + count])]


def read_sample(rows: Rows, first: int = 0) -> list[Row]:
    """Read some rows from a position on, and some of the last ones: numbers at the end are longer."""
    head = rows.read(first, _SAMPLE_ROWS)
    tail_start = max(rows.count - _SAMPLE_ROWS // 2, first + len(head))
    return head + rows.read(tail_start, rows.count - tail_start)


def _split(items: bytes) -> list[bytes]:
    """Split a JSON array into its items."""
    spans = _core.items((items, 0, len(items)), len(items))
    return [items[start:end].strip() for start, end in spans]


def _dump(offset: int, data: bytes) -> bytes:
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{offset:010x}  {data[:8].hex(' '):23}  {data[8:].hex(' '):23}  {text}".encode()
