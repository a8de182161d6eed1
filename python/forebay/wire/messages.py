"""JSON-RPC messages as bytes: parsed lazily, changed where needed, and dumped with every other byte unchanged."""

import contextlib
import dataclasses
import hashlib
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import orjson

from forebay import _core
from forebay.errors import InvalidArgument, InvalidJSON
from forebay.store.payload import CHUNK_BYTES, SerializedJSON, encode
from forebay.wire.framing import Line, LineBuffer, LostMessage, Message, Spool
from forebay.wire.protocol import PROTOCOL_VERSION_KEY

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_BATCH_MESSAGES",
    "MAX_CONTAINER_BYTES",
    "MAX_DEPTH",
    "MAX_STRING_BYTES",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "ChunkSource",
    "LazyJSON",
    "SourceSpan",
    "as_lazy",
    "dump",
    "dump_chunks",
    "dump_line",
    "dump_message",
    "dump_size",
    "get_meta",
    "is_unambiguous",
    "make_error_message",
    "make_id_key",
    "make_optional_key",
    "make_result_message",
    "open_span",
    "parse",
    "parse_lazy",
    "protocol_version",
    "split_batch",
]

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603

MAX_STRING_BYTES = 1024
"""Maximum bytes of a string to parse; longer ones stay `LazyJSON`."""

MAX_CONTAINER_BYTES = 8192
"""Maximum bytes of an object or array to parse; larger ones stay `LazyJSON`."""

MAX_DEPTH = 64
"""Maximum nesting depth to parse; deeper values stay `LazyJSON`. `orjson` reads at most 1,024 levels."""

MAX_BATCH_MESSAGES = 10_000
"""Maximum number of messages in a batch."""

_MAX_ENVELOPE_BYTES = 256 << 10
"""Like `MAX_CONTAINER_BYTES`, for a second attempt if `params` or `result` was larger than that."""

_MAX_MEMORY_BYTES = 1 << 20
"""Maximum bytes of a message to take out of a spool into memory; a larger one gets a spool of its own."""

_MAX_ID_KEY_BYTES = 1024
"""Maximum bytes of a request id to keep as a dictionary key; of a longer one, a digest is kept."""

_MEMBER_NAMES = ("jsonrpc", "id", "method", "params", "result", "error")

_HOLE_TOKEN = secrets.token_hex(16)
"""Start of a placeholder in parsed JSON. It is random, so that no message can contain it."""

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
        """Return another span of the same message."""
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


def parse(raw_message: Message) -> Any:
    """Parse a JSON-RPC message like `parse_lazy`; return `None` if it is not JSON.

    The members of JSON-RPC are always found, even if other members are very large or have invalid names. A large batch
    stays `LazyJSON`; `split_batch` returns its messages.
    """
    try:
        message = parse_lazy(raw_message)
        if _has_lazy_body(message):
            message = parse_lazy(raw_message, max_container_bytes=_MAX_ENVELOPE_BYTES)
        if isinstance(message, LazyJSON) and not message.is_array:
            return _parse_members(raw_message)
        return message
    except InvalidJSON:
        return None


def split_batch(message: Any) -> list[Any] | None:
    """Return the messages of a parsed batch, each parsed or `LazyJSON`; `None` if the message is not a batch.

    Raises `InvalidArgument` for more than `MAX_BATCH_MESSAGES` messages.
    """
    if isinstance(message, list):
        if len(message) <= MAX_BATCH_MESSAGES:
            return message
    elif isinstance(message, LazyJSON) and message.is_array:
        with contextlib.suppress(InvalidArgument):
            return message.items(MAX_BATCH_MESSAGES)
    else:
        return None
    raise InvalidArgument(f"a batch has at most {MAX_BATCH_MESSAGES:,} messages; send them in several smaller batches")


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
    value = as_lazy(source, start, end)
    skeleton, holes = _core.dissect(
        value.span,
        _HOLE_TOKEN,
        max_string_bytes=max_string_bytes,
        max_container_bytes=max_container_bytes,
        max_depth=max_depth,
    )
    return _fill_holes(orjson.loads(skeleton), [value.slice(*hole) for hole in holes])


def as_lazy(source: bytes | bytearray | memoryview | Spool, start: int = 0, end: int | None = None) -> LazyJSON:
    """Return bytes as `LazyJSON`, without checking that they are JSON."""
    if not isinstance(source, Spool):
        source = memoryview(source).cast("B").toreadonly()
    return LazyJSON(source, start, len(source) if end is None else end)


def _has_lazy_body(message: Any) -> bool:
    """Return whether the message, its params or its result were too large to parse."""
    if isinstance(message, dict):
        return any(isinstance(message.get(name), LazyJSON) for name in ("params", "result"))
    return isinstance(message, LazyJSON)


def _parse_members(raw_message: Message) -> dict[str, Any] | None:
    """Parse only the members of JSON-RPC, for a message that also has members whose names cannot be decoded."""
    members = as_lazy(raw_message).members(_MEMBER_NAMES)
    return {name: member.parse() for name, member in members.items()} or None


def _fill_holes(skeleton: Any, holes: list[LazyJSON]) -> Any:
    """Replace each placeholder by its `LazyJSON`, without recursion, because JSON may be nested very deeply."""
    root = [skeleton]
    stack: list[Any] = [root] if holes else []
    while stack:
        container = stack.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, dict | list):
                stack.append(value)
            elif isinstance(value, str):
                token, _, number = value.partition(":")
                if token == _HOLE_TOKEN:
                    container[key] = holes[int(number)]
    return root[0]


def dump(value: object) -> bytes:
    """Return a value as JSON, with the original bytes of each `LazyJSON` in it."""
    data = dump_chunks(value)
    return data.read_all() if isinstance(data, ChunkSource) else data


def dump_chunks(value: object) -> bytes | ChunkSource:
    """Return a value as JSON like `dump`, or as chunks if a part of it is spooled."""
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


def dump_line(value: object) -> Line:
    """Return a value as JSON like `dump`; a large value with spooled parts gets a spool of its own.

    If that spool cannot be written, the line is a `LostMessage`.
    """
    data = dump_chunks(value)
    if isinstance(data, bytes):
        return data
    folder = data.folder or tempfile.gettempdir()
    buffer = LineBuffer(_MAX_MEMORY_BYTES, lambda: Spool(folder))
    for chunk in data:
        buffer.append(chunk)
    return buffer.take()


def dump_message(value: object) -> Message:
    """Return a value as JSON like `dump_line`. Raises `StoreFull` or `StoreUnavailable` if the disk fails."""
    line = dump_line(value)
    if isinstance(line, LostMessage):
        raise line.error
    return line


def is_unambiguous(message: Message) -> bool:
    """Return whether a message is valid JSON without line breaks, so that every reader sees this one message.

    `LazyJSON` is not validated, and many readers end a line at a carriage return, too.
    """
    indexer = _core.ItemIndexer()
    try:
        for chunk in message.chunks() if isinstance(message, Spool) else [bytes(message)]:
            if b"\r" in chunk or b"\n" in chunk:
                return False
            indexer.feed(chunk)
        indexer.finish()
    except InvalidJSON:
        return False
    return True


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


def make_result_message(request_id: object, result: Mapping[str, Any]) -> bytes:
    """Return a JSON-RPC response with a result."""
    return dump({"jsonrpc": "2.0", "id": request_id, "result": result})


def make_error_message(request_id: object, code: int, message: str, data: object = None) -> bytes:
    """Return a JSON-RPC error response."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return dump({"jsonrpc": "2.0", "id": request_id, "error": error})


def make_id_key(request_id: object) -> bytes:
    """Return a request id as a dictionary key: 7, 7.0 and 70e-1 have the same key, "7" has another."""
    if isinstance(request_id, str):
        return _bound_key(b'"', [request_id.encode("utf-8", "surrogatepass")])
    if isinstance(request_id, int | float) and not isinstance(request_id, bool):
        return str(Decimal(request_id).normalize()).encode()
    if not isinstance(request_id, LazyJSON):
        data = dump_chunks(request_id)
        return _bound_key(b"", [data] if isinstance(data, bytes) else data)
    if request_id.is_string:
        return _bound_key(b'"', request_id.text_chunks())
    key = _bound_key(b"", request_id.json_chunks())
    with contextlib.suppress(ArithmeticError, ValueError):
        return str(Decimal(key.decode()).normalize()).encode()
    return key


def make_optional_key(value: object) -> bytes | None:
    """Return a progress token or cursor as a key like `make_id_key`, or `None` without one."""
    return None if value is None else make_id_key(value)


def _bound_key(prefix: bytes, chunks: Iterable[bytes | memoryview]) -> bytes:
    """Return the prefix and the chunks, or a digest of them if they are long."""
    key, digest = bytearray(prefix), None
    for chunk in chunks:
        if digest is None:
            key += chunk
            if len(key) > _MAX_ID_KEY_BYTES:
                digest = hashlib.sha256(key)
        else:
            digest.update(chunk)
    # No JSON starts with "#".
    return bytes(key) if digest is None else b"#" + digest.hexdigest().encode()


def get_meta(params: object) -> dict[str, Any]:
    """Return the `_meta` of a request's params."""
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return meta if isinstance(meta, dict) else {}


def protocol_version(params: object) -> str | None:
    """Return the protocol version in the `_meta` of a request, as sent since `MODERN_VERSION`; `None` if missing."""
    version = get_meta(params).get(PROTOCOL_VERSION_KEY)
    return version if isinstance(version, str) else None
