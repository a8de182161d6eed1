"""Views of bytes in memory, and of a range of another view."""

from collections.abc import Callable
from typing import Literal

from typing_extensions import Buffer

from forebay._core import ItemIndex, ItemIndexer, Survey, index_lines
from forebay.cli.view.jobs import Job
from forebay.errors import InvalidJSON
from forebay.store.payload import skip_bom
from forebay.store.reader import View

__all__ = ["STEP_BYTES", "BufferView", "PartView", "index_entries", "index_json", "survey"]

STEP_BYTES = 4 << 20
"""Bytes to process between two reports of progress."""

_SNIFFED_BYTES = 4096


class BufferView:
    """A view of a buffer, such as a mapped file, with the index of its items."""

    origin = 0
    decoded_from = None

    def __init__(
        self, data: Buffer, nature: str = "json", items: ItemIndex | None = None, lines: ItemIndex | None = None
    ) -> None:
        self.data = memoryview(data)
        self.size = self.data.nbytes
        self.nature = nature
        self.items = items if items is not None and items.kind is not None else None
        self._lines = lines

    @property
    def items_path(self) -> str:
        return "" if self.items is None else self.items.path or ""

    @property
    def lines(self) -> ItemIndex | None:
        if self._lines is None and self.nature != "binary":
            self._lines = index_lines(self.data)
        return self._lines

    @property
    def original(self) -> "BufferView":
        return self

    def read(self, start: int, end: int) -> memoryview:
        return self.data[start:end]


class PartView:
    """A JSON value inside another view. Its entries are the items, if it is an array or object."""

    nature = "json"
    origin = 0
    decoded_from = None
    items_path = ""
    lines: ItemIndex | None = None

    def __init__(self, whole: View, start: int, size: int) -> None:
        self._whole = whole
        self._start = start
        self.size = size
        self.items: ItemIndex | None = None

    @property
    def original(self) -> "PartView":
        return self

    def map(self, map_whole: Callable[[Job], Buffer], job: Job) -> Buffer:
        """Return all bytes of the value, given a function that returns those of the outermost view."""
        if isinstance(self._whole, BufferView):
            data: Buffer = self._whole.data
        elif isinstance(self._whole, PartView):
            data = self._whole.map(map_whole, job)
        else:
            data = map_whole(job)
        return memoryview(data)[self._start : self._start + self.size]

    def read(self, start: int, end: int) -> memoryview:
        return self._whole.read(self._start + start, self._start + min(end, self.size))


def index_json(data: memoryview, job: Job) -> BufferView | None:
    """Return a view of JSON or NDJSON, or `None` for anything else.

    Only the beginning is validated: that is enough to tell JSON from text, and takes a fraction of the time.
    """
    data = skip_bom(data)
    if bytes(data[:_SNIFFED_BYTES]).lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        ItemIndexer().feed(data[:STEP_BYTES])
        # An error in the last bytes of a piece comes with the next piece: so a small file is validated to its end.
        indexer = ItemIndexer(validate=data.nbytes <= STEP_BYTES)
        for start in range(0, data.nbytes, STEP_BYTES):
            job.advance(start)
            indexer.feed(data[start : start + STEP_BYTES])
        index = indexer.finish()
    except InvalidJSON:
        return None
    return BufferView(data, "ndjson" if index.kind == "ndjson" else "json", index)


def survey(
    data: Buffer, job: Job, *, is_json: bool | None = None, rows: Literal["csv", "tsv"] | None = None
) -> BufferView:
    """Find out what a buffer contains, and return a view of it."""
    view = memoryview(data)
    found = Survey(is_json, rows)
    for start in range(0, view.nbytes, STEP_BYTES):
        job.advance(start)
        found.feed(view[start : start + STEP_BYTES])
    findings = found.finish()
    return BufferView(data, findings.nature, findings.items, findings.lines)


def index_entries(view: View, job: Job) -> ItemIndex:
    """Index the entries of the array or object that a view consists of."""
    indexer = ItemIndexer("", validate=False)
    for start in range(0, view.size, STEP_BYTES):
        job.advance(start)
        indexer.feed(view.read(start, min(start + STEP_BYTES, view.size)))
    return indexer.finish()
