"""JSON-RPC messages: how they are read, told apart and written."""

import contextlib
import dataclasses
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import orjson

from forebay import _core
from forebay.errors import InvalidJSON
from forebay.store.payload import CHUNK_BYTES, SerializedJSON, encode
from forebay.wire.framing import Message, Spool
from forebay.wire.protocol import PROTOCOL_VERSION_KEY

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
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
    "error_message",
    "get_meta",
    "id_key",
    "open_span",
    "parse",
    "parse_fully",
    "parse_lazy",
    "protocol_version",
    "result_message",
]

MAX_STRING_BYTES = 1024
"""The longest string that is parsed."""


MAX_CONTAINER_BYTES = 8192
"""The largest container that is parsed."""


MAX_DEPTH = 64
"""How many containers stand around what is parsed; `orjson` reads no more than 1,024."""


_HOLE_TOKEN = secrets.token_hex(16)
"""What stands for holes. Nobody who writes messages knows it, so nobody can write a hole."""


_HOLE_PATTERN = re.compile(f'"{_HOLE_TOKEN}:([0-9]+)"'.encode())


SourceSpan: TypeAlias = tuple[bytes | memoryview | str, int, int]
"""A value as the core takes it: a buffer or the path of a file, and where in it."""


class LazyJSON(SerializedJSON):
    """The bytes of a value, quotes or brackets included: in memory, or in a spool."""

    __slots__ = ("_source", "end", "start")

    def __init__(self, source: memoryview | Spool, start: int, end: int) -> None:
        self._source = source
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def __repr__(self) -> str:
        where = "in a spool" if self.is_spooled else "in memory"
        return f"Raw({len(self)} bytes {where})"

    @property
    def is_spooled(self) -> bool:
        return isinstance(self._source, Spool)

    @property
    def folder(self) -> str | None:
        """Where there is room for more of the same, if it is spooled."""
        return self._source.folder if isinstance(self._source, Spool) else None

    @property
    def is_string(self) -> bool:
        return self._first_byte == b'"'

    @property
    def is_object(self) -> bool:
        return self._first_byte == b"{"

    @property
    def is_array(self) -> bool:
        return self._first_byte == b"["

    @property
    def _first_byte(self) -> bytes:
        return b"".join(self._chunks(self.start, self.start + 1))

    @property
    def span(self) -> SourceSpan:
        source = self._source
        return (source.path if isinstance(source, Spool) else source, self.start, self.end)

    def slice(self, start: int, end: int) -> "LazyJSON":
        """What stands elsewhere in the same message."""
        return LazyJSON(self._source, start, end)

    def only_member(self, name: str) -> "LazyJSON | None":
        """The value of the only member, if that is called so."""
        span = _core.only_member(self.span, name)
        return None if span is None else self.slice(*span)

    def members(self, names: Sequence[str]) -> "dict[str, LazyJSON]":
        """The members of these names, each as it came, whatever others are called. Raises `InvalidJSON`."""
        spans = _core.members(self.span, names)
        return {name: self.slice(*span) for name, span in zip(names, spans, strict=True) if span is not None}

    def parse(self) -> Any:
        """What `taken_apart` makes of it."""
        return parse_lazy(self._source, self.start, self.end)

    def json_chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes that came."""
        return self._chunks(self.start, self.end)

    def text_chunks(self) -> Iterator[bytes]:
        """What a string stands for."""
        unescaper = _core.Unescaper()
        for piece in self._chunks(self.start + 1, self.end - 1):
            yield unescaper.push(piece)
        yield unescaper.finish()

    def json(self) -> bytes:
        return b"".join(self.json_chunks())

    def text(self) -> bytes:
        if isinstance(self._source, Spool):
            return b"".join(self.text_chunks())
        return _core.unescape(self._source[self.start + 1 : self.end - 1])

    def _chunks(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        if isinstance(self._source, Spool):
            return self._source.chunks(start, end)
        view = self._source[start:end]
        return (view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES))


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkSource:
    """A payload that is too large for memory: as often as it is asked, from its start."""

    open: Callable[[], Iterator[bytes | memoryview]]
    max_size: int
    """What it is not larger than."""
    folder: str | None = None
    """Where there is room for as much again."""

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self.open()

    def head(self) -> bytes:
        """Its start."""
        return bytes(next((piece for piece in self if piece), b""))

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
    """A message in which everything large, and whatever Python would not keep as it is, is a `Raw`.

    Raises `InvalidJSON` for what is not one JSON value.
    """
    whole = as_lazy(source, start, end)
    skeleton, holes = _core.dissect(
        whole.span, _HOLE_TOKEN, most_string=max_string_bytes, most_container=max_container_bytes, most_depth=max_depth
    )
    return _fill_holes(orjson.loads(skeleton), [whole.slice(*hole) for hole in holes])


def as_lazy(source: bytes | bytearray | memoryview | Spool, start: int = 0, end: int | None = None) -> LazyJSON:
    """A message that nobody parsed."""
    if not isinstance(source, Spool):
        source = memoryview(source).cast("B").toreadonly()
    return LazyJSON(source, start, len(source) if end is None else end)


def _fill_holes(skeleton: Any, holes: list[LazyJSON]) -> Any:
    """The skeleton with its holes in it. Not by recursion: it may be deeper than Python's stack."""
    root = [skeleton]
    waiting: list[Any] = [root] if holes else []
    while waiting:
        container = waiting.pop()
        for place, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, dict | list):
                waiting.append(value)
            elif isinstance(value, str):
                token, _, number = value.partition(":")
                if token == _HOLE_TOKEN:
                    container[place] = holes[int(number)]
    return root[0]


def dump(value: object) -> bytes:
    """A value as JSON, each `Raw` in it as the bytes that came."""
    data = dump_chunks(value)
    return data.read_all() if isinstance(data, ChunkSource) else data


def dump_chunks(value: object) -> bytes | ChunkSource:
    """A value as JSON, each `Raw` in it as the bytes that came; in pieces if one of them is spooled."""
    holes: list[LazyJSON] = []

    def placeholder(inner: object) -> object:
        if not isinstance(inner, LazyJSON):
            return inner
        holes.append(inner)
        return f"{_HOLE_TOKEN}:{len(holes) - 1}"

    skeleton = encode(value, placeholder)

    def pieces() -> Iterator[bytes | memoryview]:
        for number, between in enumerate(_HOLE_PATTERN.split(skeleton)):
            if number % 2 == 0:
                yield between
            else:
                yield from holes[int(between)].json_chunks()

    folder = next((hole.folder for hole in holes if hole.folder is not None), None)
    if folder is not None:
        return ChunkSource(pieces, len(skeleton) + sum(map(len, holes)), folder)
    return b"".join(pieces()) if holes else skeleton


@contextlib.contextmanager
def open_span(value: object) -> Iterator[SourceSpan]:
    """A value as the core takes it; one with something spooled in it is put together where that is."""
    if isinstance(value, LazyJSON):
        yield value.span
        return
    data = dump_chunks(value)
    if isinstance(data, bytes):
        yield data, 0, len(data)
        return
    with Spool(data.folder or tempfile.gettempdir()) as spool:
        for piece in data:
            spool.write(piece)
        yield spool.path, 0, spool.size


PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603


_MAX_ENVELOPE_BYTES = 1 << 20
"""What a message may have beside what it says."""

_UNLIMITED = 1 << 62
_FULL_DEPTH = 512

_MEMBER_NAMES = ("jsonrpc", "id", "method", "params", "result", "error")


def parse(line: Message) -> Any:
    """A message to be looked at, of which all that is large or delicate is `Raw`; `None` for what is no message.

    What it is for is always read: however much stands beside it, and whatever that is called.
    """
    try:
        message = parse_lazy(line)
        if _has_lazy_body(message):
            message = parse_lazy(line, max_container_bytes=_MAX_ENVELOPE_BYTES)
        return _parse_members(line) if isinstance(message, LazyJSON) else message
    except InvalidJSON:
        return None


def parse_fully(line: Message) -> dict[str, Any]:
    """A message of which all is to be looked at; numbers that Python has no room for are `Raw`."""
    message = parse_lazy(line, max_string_bytes=_UNLIMITED, max_container_bytes=_UNLIMITED, max_depth=_FULL_DEPTH)
    return message if isinstance(message, dict) else {}


def _has_lazy_body(message: Any) -> bool:
    """Whether there is so much in it that the message itself, or what it says, is not taken apart."""
    if isinstance(message, dict):
        return any(isinstance(message.get(key), LazyJSON) for key in ("params", "result"))
    return isinstance(message, LazyJSON)


def _parse_members(line: Message) -> dict[str, Any] | None:
    """What a message says whose names Python cannot read, such as half of a surrogate pair, each as it came."""
    members = as_lazy(line).members(_MEMBER_NAMES)
    return {name: member.parse() for name, member in members.items()} or None


def id_key(request_id: object) -> bytes:
    """A request's id as a key, however it is written: 7, 7.0 and 70e-1 are one number, and "7" is none."""
    if isinstance(request_id, LazyJSON):
        text = request_id.json()
        if request_id.is_string:
            return b'"' + request_id.text()
        try:
            number = Decimal(text.decode())
        except (ArithmeticError, ValueError):
            return text
        return str(number.normalize()).encode()
    if isinstance(request_id, str):
        return b'"' + request_id.encode("utf-8", "surrogatepass")
    if isinstance(request_id, int | float) and not isinstance(request_id, bool):
        return str(Decimal(request_id).normalize()).encode()
    return dump(request_id)


def get_meta(params: object) -> dict[str, Any]:
    """What a request says beside its parameters."""
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return meta if isinstance(meta, dict) else {}


def protocol_version(params: object) -> str | None:
    """The version of the protocol that a request names; none did so before the newest."""
    version = get_meta(params).get(PROTOCOL_VERSION_KEY)
    return version if isinstance(version, str) else None


def result_message(request_id: object, result: Mapping[str, Any]) -> bytes:
    """An answer."""
    return dump({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_message(request_id: object, code: int, message: str, data: object = None) -> bytes:
    """An answer that there is none."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return dump({"jsonrpc": "2.0", "id": request_id, "error": error})
