"""JSON values that are parsed lazily, and dumped with their original bytes."""

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import orjson

from forebay import _core
from forebay.store.payload import CHUNK_BYTES, SerializedJSON, encode
from forebay.wire.framing import Spool

__all__ = [
    "MAX_CONTAINER_BYTES",
    "MAX_DEPTH",
    "MAX_STRING_BYTES",
    "ChunkSource",
    "LazyJSON",
    "SourceSpan",
    "as_lazy",
    "dump",
    "dump_chunks",
    "dump_size",
    "open_container",
    "open_span",
    "parse_lazy",
    "to_text",
]

MAX_STRING_BYTES = 1024
"""Maximum bytes of a string to parse; longer ones stay `LazyJSON`."""

MAX_CONTAINER_BYTES = 8192
"""Maximum bytes of an object or array to parse; larger ones stay `LazyJSON`."""

MAX_DEPTH = 64
"""Maximum nesting depth to parse; deeper values stay `LazyJSON`. `orjson` reads at most 1,024 levels."""

_HOLE_TOKEN = os.urandom(16).hex()
"""Start of a placeholder in parsed JSON. It is random, so that no message can contain it."""

_HOLE_PREFIX = f"{_HOLE_TOKEN}:"

_HOLE_PATTERN = re.compile(f'"{_HOLE_TOKEN}:([0-9]+)"'.encode())

SourceSpan: TypeAlias = tuple[bytes | memoryview | str, int, int]
"""A buffer or the path of a file, with the start and end of a value in it, for functions of `_core`."""


class LazyJSON(SerializedJSON):
    """Unparsed JSON value: a span of bytes in memory or in a spool, quotes or brackets included."""

    __slots__ = ("_source", "end", "start")

    def __init__(self, source: memoryview | Spool, start: int, end: int) -> None:
        self._source = source
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def __repr__(self) -> str:
        where = "in a spool" if self.is_spooled else "in memory"
        return f"LazyJSON({len(self)} bytes {where})"

    @property
    def is_spooled(self) -> bool:
        return isinstance(self._source, Spool)

    @property
    def folder(self) -> str | None:
        """Folder of the spool, which also has room for a copy; `None` if the value is in memory."""
        return self._source.folder if isinstance(self._source, Spool) else None

    @property
    def is_string(self) -> bool:
        return self._first_byte == b'"'

    @property
    def is_array(self) -> bool:
        return self._first_byte == b"["

    @property
    def is_object(self) -> bool:
        return self._first_byte == b"{"

    @property
    def is_number(self) -> bool:
        return self._first_byte in b"-0123456789"

    @property
    def _first_byte(self) -> bytes:
        return b"".join(self._chunks(self.start, self.start + 1))

    @property
    def span(self) -> SourceSpan:
        source = self._source
        return (source.path if isinstance(source, Spool) else source, self.start, self.end)

    def slice(self, start: int, end: int) -> "LazyJSON":
        """Return another span of the same source."""
        return LazyJSON(self._source, start, end)

    def only_member(self, name: str) -> "LazyJSON | None":
        """Return the value of the member `name`, if the object has no other member."""
        span = _core.only_member(self.span, name)
        return None if span is None else self.slice(*span)

    def members(self, names: Sequence[str]) -> "dict[str, LazyJSON]":
        """Return the members with these names, even if other names cannot be decoded. Raises `InvalidJSON`."""
        spans = _core.members(self.span, names)
        return {name: self.slice(*span) for name, span in zip(names, spans, strict=True) if span is not None}

    def items(self, max_items: int) -> "list[LazyJSON]":
        """Return the items of an array. Raises `InvalidArgument` for more than `max_items`, and `InvalidJSON`."""
        return [self.slice(*span) for span in _core.items(self.span, max_items)]

    def parse(self, **limits: int) -> Any:
        """Parse the value with `parse_lazy`."""
        return parse_lazy(self._source, self.start, self.end, **limits)

    def open_object(self) -> dict[str, Any]:
        """Return the members of a large object. Only its `_meta` is parsed further."""
        members: dict[str, Any] = self.parse(max_container_bytes=len(self), max_depth=1)
        meta = members.get("_meta")
        return {**members, "_meta": meta.parse()} if isinstance(meta, LazyJSON) else members

    def to_object(self) -> Any:
        """Return the whole value as Python objects. Raises `RecursionError` if it is nested too deeply."""
        # Not orjson: it turns integers of more than 64 bits into floats.
        return json.loads(self.json())

    def json_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the original bytes."""
        return self._chunks(self.start, self.end)

    def text_chunks(self) -> Iterator[bytes]:
        """Yield the unescaped UTF-8 text of a string."""
        unescaper = _core.Unescaper()
        for chunk in self._chunks(self.start + 1, self.end - 1):
            yield unescaper.push(chunk)
        yield unescaper.finish()

    def json(self) -> bytes:
        return b"".join(self.json_chunks())

    def text(self) -> bytes:
        """Return the unescaped UTF-8 text of a string."""
        if isinstance(self._source, Spool):
            return b"".join(self.text_chunks())
        return _core.unescape(self._source[self.start + 1 : self.end - 1])

    def _chunks(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        if isinstance(self._source, Spool):
            return self._source.chunks(start, end)
        view = self._source[start:end]
        return (view[offset : offset + CHUNK_BYTES] for offset in range(0, len(view), CHUNK_BYTES))


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkSource:
    """Payload that may be too large for memory. Each iteration yields its chunks from the start."""

    open: Callable[[], Iterator[bytes | memoryview]]
    max_size: int
    """Maximum size of the payload in bytes."""
    folder: str | None = None
    """Folder that has room for a copy of the payload."""

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self.open()

    def head(self) -> bytes:
        """Return the first chunk."""
        return bytes(next((chunk for chunk in self if chunk), b""))

    def read_all(self) -> bytes:
        return b"".join(self)


def parse_lazy(
    source: bytes | bytearray | memoryview | Spool,
    start: int = 0,
    end: int | None = None,
    *,
    max_string_bytes: int = MAX_STRING_BYTES,
    max_container_bytes: int = MAX_CONTAINER_BYTES,
    max_depth: int = MAX_DEPTH,
) -> Any:
    """Parse JSON in which values that are large, or that Python would not reproduce exactly, stay `LazyJSON`.

    Raises `InvalidJSON` unless the bytes are one JSON value.
    """
    end = len(source) if end is None else end
    # Most messages are bytes in which no value stays unparsed, so they need no `LazyJSON`.
    span = (source, start, end) if type(source) is bytes else as_lazy(source, start, end).span
    skeleton, holes = _core.dissect(
        span,
        _HOLE_TOKEN,
        max_string_bytes=max_string_bytes,
        max_container_bytes=max_container_bytes,
        max_depth=max_depth,
    )
    parsed = orjson.loads(skeleton)
    if not holes:
        return parsed
    value = as_lazy(source, start, end)
    return _fill_holes(parsed, [value.slice(*hole) for hole in holes])


def as_lazy(source: bytes | bytearray | memoryview | Spool, start: int = 0, end: int | None = None) -> LazyJSON:
    """Return bytes as `LazyJSON`, without checking that they are JSON."""
    if not isinstance(source, Spool):
        source = memoryview(source).cast("B").toreadonly()
    return LazyJSON(source, start, len(source) if end is None else end)


def _fill_holes(skeleton: Any, holes: list[LazyJSON]) -> Any:
    """Replace each placeholder by its `LazyJSON`, without recursion, because the JSON may be nested very deeply."""
    root = [skeleton]
    stack: list[Any] = [root]
    unfilled = len(holes)
    # Of duplicate keys only the last one is kept, so some placeholders may be gone.
    while unfilled and stack:
        container = stack.pop()
        for key, value in container.items() if type(container) is dict else enumerate(container):
            kind = type(value)
            if kind is dict or kind is list:
                stack.append(value)
            elif kind is str and value.startswith(_HOLE_PREFIX):
                container[key] = holes[int(value[len(_HOLE_PREFIX) :])]
                unfilled -= 1
    return root[0]


def open_container(value: Any) -> Any:
    """Return an object or array that `parse_lazy` has left unparsed because it is large; other values as they are."""
    return value.parse(max_container_bytes=len(value)) if isinstance(value, LazyJSON) else value


def to_text(value: object) -> str | None:
    """Return a string value of parsed JSON as a `str`, however long; `None` for other values."""
    if isinstance(value, LazyJSON) and value.is_string:
        return value.text().decode("utf-8", "surrogatepass")
    return value if isinstance(value, str) else None


def dump(value: object) -> bytes:
    """Return a value as JSON, with the original bytes of each `LazyJSON` in it."""
    data = dump_chunks(value)
    return data.read_all() if isinstance(data, ChunkSource) else data


def dump_chunks(value: object) -> bytes | ChunkSource:
    """Return a value as JSON like `dump`, or as chunks if a part of it is spooled."""
    # Most values hold no `LazyJSON`, and `encode` takes ten times as long.
    with contextlib.suppress(TypeError):
        return orjson.dumps(value)
    holes: list[LazyJSON] = []

    def add_hole(nested_value: object) -> object:
        if not isinstance(nested_value, LazyJSON):
            return nested_value
        holes.append(nested_value)
        return f"{_HOLE_TOKEN}:{len(holes) - 1}"

    skeleton = encode(value, add_hole)

    def chunks() -> Iterator[bytes | memoryview]:
        # Splitting by a pattern with a group gives text and hole numbers in turn.
        for index, part in enumerate(_HOLE_PATTERN.split(skeleton)):
            if index % 2 == 0:
                yield part
            else:
                yield from holes[int(part)].json_chunks()

    folder = next((hole.folder for hole in holes if hole.folder is not None), None)
    if folder is not None:
        placeholder_bytes = sum(len(f'"{_HOLE_TOKEN}:{number}"') for number in range(len(holes)))
        return ChunkSource(chunks, len(skeleton) - placeholder_bytes + sum(map(len, holes)), folder)
    return b"".join(chunks()) if holes else skeleton


def dump_size(value: object) -> int:
    """Return the length of `dump(value)`, without reading spooled parts."""
    data = dump_chunks(value)
    return len(data) if isinstance(data, bytes) else data.max_size


@contextlib.contextmanager
def open_span(value: object) -> Iterator[SourceSpan]:
    """Yield a value as a span for `_core`. If a part of it is spooled, the value is written to a new spool first."""
    if isinstance(value, LazyJSON):
        yield value.span
        return
    data = dump_chunks(value)
    if isinstance(data, bytes):
        yield data, 0, len(data)
        return
    with Spool(data.folder or tempfile.gettempdir()) as spool:
        for chunk in data:
            spool.write(chunk)
        yield spool.path, 0, spool.size
