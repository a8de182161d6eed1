"""A stored payload, open for reading: the frames a page touches, or all of it where nothing less will do."""

import functools
import io
import mmap
import re
import tempfile
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, cast

from typing_extensions import Buffer

from forebay._core import ItemIndex, Survey, index_items, index_lines, locate, read_items
from forebay.arguments import short_repr
from forebay.errors import PathNotFound
from forebay.store.backends import Blob
from forebay.store.backends.filesystem import translate_os_errors
from forebay.store.frames import Footer

__all__ = ["ArrayView", "PayloadFile", "PayloadReader", "ValueView", "View", "read_value"]

_MAX_IN_MEMORY_BYTES = 16 << 20
"""Payloads up to this size are read into memory where all of one is needed, larger ones into a file without a name."""

_SCAN_BYTES = 1 << 20
"""How much is read at a time where all of something has to be gone through once."""

_ITEM_NUMBER = re.compile(r"/(0|[1-9][0-9]{0,17})(?=/|\Z)")
"""How the rest of a path into the items begins."""


class View(Protocol):
    """What pages are made of."""

    @property
    def size(self) -> int: ...
    @property
    def nature(self) -> str:
        """`json`, `ndjson`, `text` or `binary`."""

    @property
    def items(self) -> ItemIndex | None:
        """`None` where there are none."""

    @property
    def items_path(self) -> str:
        """Where they are in the view; `""` where it has none."""

    @property
    def origin(self) -> int:
        """Where the view starts in what the index of its items counts bytes of."""

    @property
    def lines(self) -> ItemIndex | None:
        """`None` where it is binary."""

    def read(self, start: int, end: int) -> memoryview:
        """These bytes, from as little of what is stored as holds them."""


class ValueView:
    """A value inside of a payload, as a payload of its own."""

    nature = "json"
    origin = 0

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.size = len(data)
        # Whoever names an object means all of it, not an array inside.
        self.items = index_items(data, "", validate=False) if bytes(data[:1]) == b"[" else None
        self.items_path = ""

    @functools.cached_property
    def lines(self) -> ItemIndex:
        return index_lines(self._data)

    def read(self, start: int, end: int) -> memoryview:
        return self._data[start:end]


class ArrayView:
    """The array of a payload's items, as a payload of its own: where it is, is known, so nothing else is read."""

    nature = "json"
    items_path = ""

    def __init__(self, reader: "PayloadReader", index: ItemIndex) -> None:
        self._reader = reader
        self.items = index
        self.origin = index.start
        self.size = index.end - index.start

    @functools.cached_property
    def lines(self) -> ItemIndex:
        survey = Survey(is_json=False)
        for start in range(0, self.size, _SCAN_BYTES):
            survey.feed(self.read(start, start + _SCAN_BYTES))
        lines = survey.finish().lines
        # JSON is text, which always has lines.
        return cast("ItemIndex", lines)

    def read(self, start: int, end: int) -> memoryview:
        return self._reader.read(self.origin + start, self.origin + min(end, self.size))


class PayloadReader:
    """A stored payload, by ranges of bytes."""

    origin = 0

    def __init__(self, blob: Blob, footer: Footer) -> None:
        self._blob = blob
        self.footer = footer
        self._last_read = (0, memoryview(b""))

    @property
    def size(self) -> int:
        return self.footer.size

    @property
    def version(self) -> object:
        """Equal as long as the stored file is."""
        return self._blob.version

    @property
    def stored_bytes(self) -> int:
        """What it takes on disk."""
        return self._blob.size

    @property
    def nature(self) -> str:
        return str(self.footer.meta["nature"])

    @property
    def items(self) -> ItemIndex | None:
        index = self.footer.items
        return index if index is not None and index.kind is not None else None

    @property
    def items_path(self) -> str:
        return "" if self.items is None else self.items.path or ""

    @property
    def lines(self) -> ItemIndex | None:
        return self.footer.lines

    def read_frames(self, start: int, end: int) -> tuple[int, memoryview]:
        """At least the bytes from `start` to `end`, and where what is returned starts."""
        base, data = self.footer.read_frames(self._blob, start, end)
        return base, memoryview(data)

    def read(self, start: int, end: int) -> memoryview:
        """Exactly the bytes from `start` to `end`."""
        base, data = self._last_read
        # A page that turned out too heavy is made again, of less.
        if not base <= start <= end <= base + len(data):
            base, data = self._last_read = self.read_frames(start, end)
        return data[start - base : end - base]

    def read_item(self, index: ItemIndex, number: int) -> memoryview:
        """One of its items, from as little of what is stored as holds it."""
        span = index.span(number, 1)
        data = self.read(span.start, span.end)
        # A budget of all that was read, and of the least that is one, cuts nothing.
        page = read_items(data, index, number, 1, len(data) + 16, base=span.start)
        return data[page.start - span.start : page.end - span.start]

    def read_all(self) -> Buffer:
        """The payload. A large one is mapped, so that the memory it takes can be taken back."""
        if self.size <= _MAX_IN_MEMORY_BYTES:
            return b"".join(self.footer.iter_chunks(self._blob))
        with translate_os_errors, tempfile.TemporaryFile() as file:
            for piece in self.footer.iter_chunks(self._blob):
                file.write(piece)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        self._blob.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_value(reader: PayloadReader, path: str, read_payload: Callable[[], Buffer]) -> memoryview:
    """What a JSON Pointer leads to.

    Of equal keys the first is meant. Only on the way to the items and into them it is the one that leads there, so that
    item 7 of a page is what its path says. Anywhere else than there it takes `whole`, which gives all of the payload.
    """
    index = reader.items
    if index is not None and index.path is not None and path.startswith(index.path):
        rest = path[len(index.path) :]
        if rest == "" and index.kind == "array":
            return reader.read(index.start, index.end)
        number = _ITEM_NUMBER.match(rest)
        if number is not None:
            return _read_inside_item(reader, index, path, int(number[1]), rest[number.end() :])
    data = memoryview(read_payload())
    start, end = locate(data, path)
    return data[start:end]


def _read_inside_item(reader: PayloadReader, index: ItemIndex, path: str, number: int, rest: str) -> memoryview:
    try:
        if number < len(index):
            item = reader.read_item(index, number)
            start, end = locate(item, rest)
            return item[start:end]
    except PathNotFound:
        pass
    raise PathNotFound(f"nothing at path {short_repr(path)}; outline() shows which paths exist")


class PayloadFile(io.RawIOBase):
    """A stored payload as a file: it can be read, sought in, and is closed with its `Reader`."""

    def __init__(self, reader: PayloadReader) -> None:
        self._reader = reader
        self._pos = 0
        self._base = 0
        self._data = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._pos, io.SEEK_END: self._reader.size}[whence]
        if start + offset < 0:
            raise ValueError("a file has no bytes before its first")
        self._pos = start + offset
        return self._pos

    def tell(self) -> int:
        return self._pos

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer).cast("B")
        if self._pos >= self._reader.size or not into:
            return 0
        if not self._base <= self._pos < self._base + len(self._data):
            self._base, self._data = self._reader.read_frames(self._pos, self._pos + 1)
        found = self._data[self._pos - self._base :][: len(into)]
        into[: len(found)] = found
        self._pos += len(found)
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()
