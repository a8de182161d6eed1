"""Reading a stored payload, or a value inside it: only the frames that are needed, or all of them."""

import dataclasses
import functools
import io
import mmap
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Protocol, Self, cast

from typing_extensions import Buffer

from forebay._core import ItemIndex, Survey, index_items, index_lines, locate, read_items
from forebay.arguments import check_pointer, short_repr
from forebay.errors import InvalidFormat, PathNotFound
from forebay.store.backends import Blob
from forebay.store.backends.filesystem import translate_os_errors
from forebay.store.cache import LRUCache
from forebay.store.frames import Footer
from forebay.store.payload import skip_bom
from forebay.store.threads import fork_safe_lock

__all__ = [
    "UNLIMITED",
    "PayloadFile",
    "PayloadReader",
    "RecentReads",
    "ValueView",
    "View",
    "read_value",
    "select_view",
]

_MAX_IN_MEMORY_BYTES = 16 << 20
"""Maximum size of a payload that is read into memory. A larger one is written to a temporary file and mapped."""

_SCAN_BYTES = 1 << 20
"""Bytes read at a time while scanning a value."""

_MAX_RECENT_READ_BYTES = 512 * 1024
"""Maximum size of a read that is kept for the next page. The largest default page reads 256 KB."""

_MAX_RECENT_BYTES = 4 << 20
"""Maximum size of all reads that are kept."""

UNLIMITED = 1 << 62
"""A limit in bytes that is larger than any payload."""

_NOTHING = memoryview(b"")

_ITEM_NUMBER_PATTERN = re.compile(r"/(0|[1-9][0-9]{0,17})(?=/|\Z)")
"""Matches an item number at the start of a path that is relative to the items."""


class View(Protocol):
    """A payload, or a value inside one, that pages are built from."""

    @property
    def size(self) -> int: ...
    @property
    def nature(self) -> str:
        """Type of the view: `json`, `ndjson`, `text` or `binary`."""

    @property
    def items(self) -> ItemIndex | None:
        """The index of the items, if there are any."""

    @property
    def items_path(self) -> str:
        """JSON Pointer to the items inside the view; `""` if there are none."""

    @property
    def origin(self) -> int:
        """Offset of the view's first byte in the data that `items` was built from."""

    @property
    def lines(self) -> ItemIndex | None:
        """The index of the lines, unless the view is binary."""

    @property
    def decoded_from(self) -> str | None:
        """What the text of the view was decoded from, such as `gzip`; `None` if the payload is as it was put."""

    @property
    def original(self) -> "ByteView":
        """The bytes that were put, or those of a value inside."""

    def read(self, start: int, end: int) -> memoryview:
        """Read the bytes from `start` to `end`."""


class ByteView(Protocol):
    """Bytes that pages are built from."""

    @property
    def size(self) -> int: ...
    def read(self, start: int, end: int) -> memoryview: ...


class ValueView:
    """A view of a JSON value inside a payload."""

    nature = "json"
    origin = 0
    decoded_from = None

    def __init__(self, data: memoryview, *, is_map: bool = False) -> None:
        """Create a view. `is_map` says that the entries of an object are its items, even if they are not alike."""
        self._data = data
        self.size = len(data)
        self.items_path = ""
        self.items: ItemIndex | None = None
        first = bytes(data[:1])
        if first == b"[" or (first == b"{" and is_map):
            self.items = index_items(data, "", validate=False)
        elif first == b"{":
            index = index_items(data, validate=False)
            # Items inside of the object do not count: a path to an object means the whole object.
            self.items = index if index.kind == "map" and index.path == "" else None

    @property
    def original(self) -> ByteView:
        return self

    @functools.cached_property
    def lines(self) -> ItemIndex:
        return index_lines(self._data)

    def read(self, start: int, end: int) -> memoryview:
        return self._data[start:end]


class ItemsView:
    """A view of the array or map that holds a payload's items. The index has its position: no scan is needed."""

    nature = "json"
    items_path = ""
    decoded_from = None

    def __init__(self, reader: "PayloadReader", index: ItemIndex) -> None:
        self._reader = reader
        self.items = index
        self.origin = index.start
        self.size = index.end - index.start

    @property
    def original(self) -> ByteView:
        return self

    @functools.cached_property
    def lines(self) -> ItemIndex:
        survey = Survey(is_json=False)
        for start in range(0, self.size, _SCAN_BYTES):
            survey.feed(self.read(start, start + _SCAN_BYTES))
        lines = survey.finish().lines
        # JSON is text, so it can always be read by lines.
        return cast("ItemIndex", lines)

    def read(self, start: int, end: int) -> memoryview:
        return self._reader.read(self.origin + start, self.origin + min(end, self.size))


class RecentReads:
    """The last frames that were read of recent payloads, because the next page mostly begins in the same frame."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._reads: LRUCache[str, tuple[object, int, memoryview]] = LRUCache(
            _MAX_RECENT_BYTES, lambda read: len(read[2])
        )

    def get(self, handle: str, version: object) -> tuple[int, memoryview]:
        """Return the last frames of this version of a payload, and their offset in it; no bytes if there are none."""
        with self._lock:
            read_version, base, data = self._reads.get(handle, (None, 0, _NOTHING))
        return (base, data) if read_version == version else (0, _NOTHING)

    def put(self, handle: str, version: object, base: int, data: memoryview) -> None:
        """Keep frames, unless they are many: then a whole value is being read."""
        if len(data) <= _MAX_RECENT_READ_BYTES:
            with self._lock:
                self._reads[handle] = (version, base, data)

    def remove(self, handle: str) -> None:
        """Remove the frames of a payload."""
        with self._lock:
            self._reads.remove(handle)


class PayloadReader:
    """A view of a whole stored payload: of its text, if it was decoded."""

    origin = 0

    def __init__(self, blob: Blob, footer: Footer, recent: RecentReads | None = None) -> None:
        """Create a reader. `recent` keeps frames for the next reader of the same payload."""
        self._blob = blob
        self.footer = footer
        self._content = footer.text or footer
        self._recent = recent
        self._last_read = (0, _NOTHING) if recent is None else recent.get(footer.meta["handle"], blob.version)

    @property
    def size(self) -> int:
        return self._content.size

    @property
    def decoded_from(self) -> str | None:
        return self.footer.meta.get("decoded_from")

    @property
    def original(self) -> "PayloadReader":
        """A reader of the bytes that were put, of the same file. Only one of the two is closed."""
        return PayloadReader(self._blob, dataclasses.replace(self.footer, text=None))

    @property
    def version(self) -> object:
        """A value that changes whenever the stored file does."""
        return self._blob.version

    @property
    def stored_bytes(self) -> int:
        """The size of the file on disk."""
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
    def has_rows(self) -> bool:
        """Whether the items are rows of CSV or TSV."""
        return self.items is not None and self.items.kind in ("csv", "tsv")

    @property
    def has_paths(self) -> bool:
        """Whether a path can lead into the payload: to a JSON value, or to a row of CSV or TSV."""
        return self.nature in ("json", "ndjson") or self.has_rows

    @property
    def lines(self) -> ItemIndex | None:
        return self.footer.lines

    def read_frames(self, start: int, end: int) -> tuple[int, memoryview]:
        """Read the frames that hold the bytes from `start` to `end`. Return their payload offset and their content."""
        base, data = self._content.read_frames(self._blob, start, end)
        return base, memoryview(data)

    def read(self, start: int, end: int) -> memoryview:
        """Read the bytes from `start` to `end`."""
        base, data = self._last_read
        # The last read is kept, because a page that turned out too large is built again from the same frames.
        if not base <= start <= end <= base + len(data):
            base, data = self._last_read = self._read_on(start, end)
            if self._recent is not None:
                self._recent.put(self.footer.meta["handle"], self._blob.version, base, data)
        return data[start - base : end - base]

    def _read_on(self, start: int, end: int) -> tuple[int, memoryview]:
        """Read frames like `read_frames`, except those at the start that the last read has read."""
        base, data = self._last_read
        next_base = base + len(data)
        if not base <= start < next_base < end:
            return self.read_frames(start, end)
        kept = data[(self._content.find_frame(start) - self._content.find_frame(base)) * self._content.frame_bytes :]
        _, rest = self.read_frames(next_base, end)
        return next_base - len(kept), memoryview(b"".join((kept, rest)))

    def read_item(self, index: ItemIndex, number: int) -> memoryview:
        """Read one item as JSON."""
        span = index.span(number, 1)
        data = self.read(span.start, span.end)
        # With a budget larger than any item nothing is cut.
        page = read_items(data, index, number, 1, UNLIMITED, base=span.start)
        return memoryview(page.content)[1:-1]

    def iter_chunks(self) -> Iterator[bytes]:
        """Read the payload frame by frame."""
        return self._content.iter_chunks(self._blob)

    def read_all(self) -> Buffer:
        """Read the whole payload. A large one is mapped from a file, so that the system can reclaim its memory."""
        if self.size <= _MAX_IN_MEMORY_BYTES:
            return b"".join(self.iter_chunks())
        with translate_os_errors, tempfile.TemporaryFile() as file:
            for chunk in self.iter_chunks():
                file.write(chunk)
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def read_ahead(self) -> None:
        """Expect that all of the payload will be read in order."""
        self._blob.read_ahead()

    def check(self) -> None:
        """Raise `HandleNotFound` if the payload is gone."""
        self._blob.check()

    def close(self) -> None:
        self._blob.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def select_view(
    reader: PayloadReader, path: str | None, read_payload: Callable[[], Buffer], *, is_map: bool = False
) -> View:
    """Return a view of the value at a path, or of the whole payload. For `read_payload` see `read_value`.

    With `is_map`, an object at the path has items in any case: its entries.
    """
    if path is not None:
        check_pointer("path", path)
    # Without a path the view is the whole payload, with its item index, even if the items are nested.
    if path is None or (path == "" and reader.has_paths and not (is_map and reader.items is None)):
        return reader
    if reader.items is not None and reader.items.kind in ("array", "map") and path == reader.items.path:
        return ItemsView(reader, reader.items)
    if not reader.has_paths:
        raise InvalidFormat("a path leads into JSON, and this payload is not; leave the path out")
    return ValueView(read_value(reader, path, read_payload), is_map=is_map)


def read_value(reader: PayloadReader, path: str, read_payload: Callable[[], Buffer]) -> memoryview:
    """Return the value at a JSON Pointer.

    If a key is repeated, the first one is used, except on the way to the items: there the key that leads to them is
    used, so that the path of an item on a page returns that item. Unless the path leads to the items or into one of
    them, `read_payload` is called and the whole payload is scanned. A key in a map is looked for in the map alone.
    """
    index = reader.items
    if index is not None and index.path is not None and path.startswith(index.path):
        rest = path[len(index.path) :]
        if rest == "" and index.kind in ("array", "map"):
            return reader.read(index.start, index.end)
        if rest.startswith("/") and index.kind == "map":
            return _read_inside_entry(reader, index, path, rest)
        match = _ITEM_NUMBER_PATTERN.match(rest)
        if match is not None:
            return _read_inside_item(reader, index, path, int(match[1]), rest[match.end() :])
    if reader.has_rows:
        raise PathNotFound(f"nothing at path {short_repr(path)}; the path of a row is /0, of a field in it /0/NAME")
    data = skip_bom(read_payload())
    start, end = locate(data, path)
    return data[start:end]


def _read_inside_item(reader: PayloadReader, index: ItemIndex, path: str, number: int, inner_path: str) -> memoryview:
    if number >= len(index):
        raise _make_path_error(path)
    return _read_inside(reader.read_item(index, number), inner_path, path)


def _read_inside_entry(reader: PayloadReader, index: ItemIndex, path: str, inner_path: str) -> memoryview:
    """Read a value inside a map, chunk by chunk up to the first entry that has the key."""
    key, slash, rest = inner_path[1:].partition("/")
    block = 0
    while (chunk := index.chunk(block, _SCAN_BYTES)) is not None:
        data = bytes(reader.read(chunk.start, chunk.end))
        # The last chunk ends with the brace of the map, any other one with a comma.
        entries = b"{" + data if chunk.end == index.end else b"{" + data[:-1] + b"}"
        try:
            start, end = locate(entries, f"/{key}")
        except PathNotFound:
            block += chunk.block_count
            continue
        return _read_inside(memoryview(entries)[start:end], slash + rest, path)
    raise _make_path_error(path)


def _read_inside(value: memoryview, inner_path: str, path: str) -> memoryview:
    try:
        start, end = locate(value, inner_path)
    except PathNotFound:
        raise _make_path_error(path) from None
    return value[start:end]


def _make_path_error(path: str) -> PathNotFound:
    return PathNotFound(f"nothing at path {short_repr(path)}; outline() shows which paths exist")


class PayloadFile(io.RawIOBase):
    """A stored payload as a seekable file, which closes its reader when it is closed."""

    def __init__(self, reader: PayloadReader) -> None:
        self._reader = reader.original
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

    def readall(self) -> bytes:
        self._reader.read_ahead()
        return super().readall()

    def readinto(self, buffer: Buffer) -> int:
        target = memoryview(buffer).cast("B")
        if self._pos >= self._reader.size or not target:
            return 0
        if not self._base <= self._pos < self._base + len(self._data):
            self._base, self._data = self._reader.read_frames(self._pos, self._pos + 1)
        data = self._data[self._pos - self._base :][: len(target)]
        target[: len(data)] = data
        self._pos += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()
