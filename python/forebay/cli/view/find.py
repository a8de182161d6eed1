"""Search for the next or previous row that has a match, and count all matches."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from typing_extensions import Buffer

from forebay import _core
from forebay._core import Chunk, ItemIndex, SearchResult
from forebay.cli.view.cells import decode_text
from forebay.cli.view.jobs import Job
from forebay.cli.view.rows import Row, Rows
from forebay.store.reader import View

__all__ = ["ByteFinder", "Finder", "Pattern", "RowFinder", "find_spans"]

_WINDOW_BYTES = 16 << 20
"""Bytes that are searched between two reports of progress."""

_BACK_BYTES = 1 << 20
"""First distance to look back for a previous match."""

_PAGE_MATCHES = 1000
_MAX_COUNT_SECONDS = 20.0
_MAX_SPANS = 64


class Pattern(NamedTuple):
    """What to search for."""

    text: str
    regex: bool = False
    ignore_case: bool = False
    values: bool = False
    """Whether to search keys and values of JSON with their escapes decoded."""

    def search(self, data: Buffer | str, offset: int = 0, limit: int = 1) -> SearchResult:
        mode: Literal["text", "values"] = "values" if self.values else "text"
        return _core.search(
            data,
            self.text,
            regex=self.regex,
            ignore_case=self.ignore_case,
            mode=mode,
            offset=offset,
            limit=limit,
            context=0,
        )

    @property
    def is_local(self) -> bool:
        """Whether a match depends only on its own bytes, so that a payload can be searched in windows."""
        return not self.regex and not self.values

    @property
    def max_bytes(self) -> int:
        """Maximum size of a match, if `is_local`. A character of another case takes up to 4 bytes."""
        return len(self.text) * 4


def find_spans(pattern: Pattern, text: str) -> list[tuple[int, int]]:
    """Return the spans of the matches in a text that is drawn, in characters. A match may be in a key or in a value."""
    shown = pattern._replace(values=False)
    data = text.encode("utf-8", "replace")
    matches = shown.search(data, limit=_MAX_SPANS).matches
    if len(data) == len(text):
        return [(match.start, match.end) for match in matches]
    return [(len(decode_text(data[: match.start])), len(decode_text(data[: match.end]))) for match in matches]


class Finder(Protocol):
    """Finds rows that have a match. Its methods run in threads."""

    def find(self, pattern: Pattern, row: int, job: Job, *, is_backward: bool = False) -> int | None:
        """Return the next row after `row` that has a match, or the previous one; `None` if there is none."""

    def count(self, pattern: Pattern, job: Job) -> str:
        """Return a phrase about the number of all matches."""


class RowFinder:
    """Searches rows one by one: those that a filter left, or those in memory."""

    def __init__(self, rows: Rows, unit: str) -> None:
        self._rows = rows
        self._unit = unit

    def find(self, pattern: Pattern, row: int, job: Job, *, is_backward: bool = False) -> int | None:
        step = 256
        done = 0
        while True:
            first = max(row - step, 0) if is_backward else row + 1
            rows = self._rows.read(first, row - first if is_backward else step)
            if not rows:
                return None
            if _may_match(pattern, rows):
                for position in reversed(range(len(rows))) if is_backward else range(len(rows)):
                    if pattern.search(rows[position].data).matches:
                        return first + position
            done += len(rows)
            job.advance(done)
            row = first if is_backward else first + len(rows) - 1

    def count(self, pattern: Pattern, job: Job) -> str:
        matches = found = first = 0
        job.start("count", self._rows.count)
        while rows := self._rows.read(first, 256):
            for row in rows if _may_match(pattern, rows) else ():
                count = _core.count_matches(
                    row.data,
                    pattern.text,
                    regex=pattern.regex,
                    ignore_case=pattern.ignore_case,
                    mode="values" if pattern.values else "text",
                    max_seconds=1.0,
                ).matches
                matches += count
                found += count > 0
            first += len(rows)
            job.advance(first)
        return f"{_count(matches, 'match')} in {_count(found, self._unit)}"


def _may_match(pattern: Pattern, rows: list[Row]) -> bool:
    """Return whether any of the rows may have a match. One search of all is much faster than one of each."""
    if pattern.regex and "\\" in pattern.text:
        # The start and end of a row are no longer those of the text.
        return True
    return bool(pattern.search(b"\n".join(row.data for row in rows)).matches)


class ByteFinder:
    """Searches the bytes of a view, and finds the item or line that a match is in."""

    def __init__(self, view: View, index: ItemIndex, unit: str, map_payload: Callable[[Job], Buffer]) -> None:
        self._view = view
        self._index = index
        self._unit = unit
        self._map = map_payload

    def find(self, pattern: Pattern, row: int, job: Job, *, is_backward: bool = False) -> int | None:
        if is_backward:
            end = _find_row_span(self._view, self._index, row, self._unit)[0] if row < len(self._index) else None
            offset = self._find_previous(pattern, self._index.end - self._view.origin if end is None else end, job)
        else:
            first = self._index.start - self._view.origin
            start = first if row < 0 else _find_row_span(self._view, self._index, row, self._unit)[1]
            offset = self._find_next(pattern, start, job)
        return None if offset is None else _find_row(self._view, self._index, offset, self._unit)

    def count(self, pattern: Pattern, job: Job) -> str:
        data = self._map(job)
        job.start("count", 0)
        counted = _core.count_matches(
            data,
            pattern.text,
            regex=pattern.regex,
            ignore_case=pattern.ignore_case,
            mode="values" if pattern.values else "text",
            index=self._index if self._unit == "item" else None,
            max_seconds=_MAX_COUNT_SECONDS,
        )
        text = _count(counted.matches, "match")
        if counted.items is not None:
            text += f" in {_count(counted.items, 'item')}"
        return text if counted.is_complete else f"at least {text}"

    def _find_next(self, pattern: Pattern, start: int, job: Job) -> int | None:
        """Return the offset of the first match that begins at or after `start`, among the rows."""
        end = self._index.end - self._view.origin
        job.start("search", max(end - start, 1))
        if not pattern.is_local:
            data = self._map(job)
            job.start("search", 0)
            matches = pattern.search(data, start).matches
            return matches[0].start if matches and matches[0].start < end else None
        position = start
        while position < end:
            window = self._view.read(position, min(position + _WINDOW_BYTES + pattern.max_bytes, self._view.size))
            matches = pattern.search(window).matches
            if matches:
                offset = position + matches[0].start
                return offset if offset < end else None
            position += _WINDOW_BYTES
            job.advance(position - start)
        return None

    def _find_previous(self, pattern: Pattern, end: int, job: Job) -> int | None:
        """Return the offset of the last match that begins before `end`, among the rows."""
        first = self._index.start - self._view.origin
        data = None if pattern.is_local else memoryview(self._map(job))
        job.start("search", max(end - first, 1))
        upper, step = end, _BACK_BYTES
        while upper > first:
            lower = max(upper - step, first)
            if data is None:
                window = self._view.read(lower, min(upper + pattern.max_bytes, self._view.size))
                found = _find_last(pattern, window, 0, upper - lower)
                found = None if found is None else found + lower
            else:
                found = _find_last(pattern, data, lower, upper)
            if found is not None:
                return found
            job.advance(end - lower)
            upper, step = lower, min(step * 2, _WINDOW_BYTES)
        return None


def _find_last(pattern: Pattern, data: Buffer, start: int, end: int) -> int | None:
    """Return the offset of the last match that begins from `start` to before `end`."""
    last = None
    offset: int | None = start
    while offset is not None and offset < end:
        # The first search stops at one match, because it may be far away.
        result = pattern.search(data, offset, 1 if last is None else _PAGE_MATCHES)
        starts = [match.start for match in result.matches if match.start < end]
        if starts:
            last = starts[-1]
        if len(starts) < len(result.matches):
            break
        offset = result.next_offset
    return last


def _find_row_span(view: View, index: ItemIndex, row: int, unit: str) -> tuple[int, int]:
    """Return where a row starts and ends in a view."""
    span = index.span(row, 1)
    if unit == "line":
        data = bytes(view.read(span.start, span.end))
        start = 0
        for _ in range(row - span.first):
            start = data.index(b"\n", start) + 1
        end = data.find(b"\n", start)
        return span.start + start, span.start + (len(data) if end < 0 else end + 1)
    data = bytes(view.read(span.start - view.origin, span.end - view.origin))
    page = _core.read_items(data, index, row, 1, 1 << 62, base=span.start)
    return page.start - view.origin, page.end - view.origin


def _find_row(view: View, index: ItemIndex, offset: int, unit: str) -> int | None:
    """Return the number of the item or line that a byte of a view is in."""
    chunk = _find_chunk(index, offset + view.origin)
    if chunk is None or chunk.count == 0:
        return None
    start = chunk.start - view.origin
    if unit == "line":
        return chunk.first + bytes(view.read(start, offset)).count(b"\n")
    data = view.read(start, chunk.end - view.origin)
    low, high = 0, chunk.count - 1
    while low < high:
        middle = (low + high + 1) // 2
        page = _core.read_items(data, index, chunk.first + middle, 1, 1 << 62, base=chunk.start)
        if page.start <= offset + view.origin:
            low = middle
        else:
            high = middle - 1
    return chunk.first + low


def _find_chunk(index: ItemIndex, offset: int) -> Chunk | None:
    """Return the block of an index that a byte is in, or the last one before it."""
    low, high = 0, 1
    while (chunk := index.chunk(high, 0)) is not None and chunk.start <= offset:
        low, high = high, high * 2
    # The block is at or after `low`, and before `high`.
    while high - low > 1:
        middle = (low + high) // 2
        chunk = index.chunk(middle, 0)
        low, high = (middle, high) if chunk is not None and chunk.start <= offset else (low, middle)
    return index.chunk(low, 0)


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
