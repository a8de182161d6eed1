"""Payloads as chunks of bytes, their encoding as JSON, and their MIME types."""

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import PurePath
from typing import BinaryIO, Literal, Protocol, TypeAlias, TypeGuard, cast

import orjson
from typing_extensions import Buffer

from forebay import _core
from forebay._core import ItemIndex, outline, read_items
from forebay.errors import ForebayError, InvalidArgument

__all__ = [
    "CHUNK_BYTES",
    "EXTENSIONS",
    "UTF8_BOM",
    "Payload",
    "RowFormat",
    "SerializedJSON",
    "choose_extension",
    "detect_mime_type",
    "encode",
    "escaped_size",
    "get_row_format",
    "guess_row_mime_type",
    "is_compressed",
    "is_json_mime_type",
    "is_mostly_items",
    "iter_chunks",
    "needs_json_encoding",
    "outline_first_items",
    "read_all",
    "rechunk",
    "sanitize_mime_type",
    "skip_bom",
    "to_buffer",
]

CHUNK_BYTES = 1024 * 1024
"""Size of the chunks that payloads are processed in."""

_ENCODED_CHARACTERS = 64 * 1024
"""Characters of a text to encode at once, so that they stay in the processor's cache."""

Payload: TypeAlias = "object | str | Buffer | BinaryIO | Iterator[Buffer]"
"""Bytes, text, an open binary file, an iterator of chunks, or an object that can be encoded as JSON."""


UTF8_BOM = b"\xef\xbb\xbf"
"""U+FEFF, which some programs write before their JSON or text."""

_MAX_BYTES_AROUND_ITEMS = 1024
"""If no more payload bytes than these are outside the items, the items count as most of the payload."""


class SerializedJSON:
    """Base class of values that are JSON text already. `encode` copies the text unchanged."""

    # Not an `abc.ABC`, because `isinstance` takes five times as long for one.
    __slots__ = ()

    def json(self) -> bytes:
        """Return the JSON text."""
        raise NotImplementedError


class _ReadableFile(Protocol):
    def read(self, size: int, /) -> bytes | str | None: ...


class _Model(Protocol):
    def model_dump(self, *, mode: str) -> object: ...


def to_buffer(payload: Payload) -> Buffer | None:
    """Return a payload as one immutable buffer, or `None` if it is a stream or a text that takes long to encode."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        # Encoding a long text takes as long as storing it, so `iter_chunks` encodes it while other threads compress.
        return None if _is_encoded_in_chunks(payload) else _encode_text(payload)
    view = _as_memoryview(payload)
    if view is not None:
        return view if view.readonly else bytes(view)
    if _is_stream(payload):
        return None
    if hasattr(payload, "__aiter__"):
        raise InvalidArgument("chunks that are awaited are for put_async")
    if isinstance(payload, os.PathLike):
        raise InvalidArgument('a path is not a payload; pass open(path, "rb")')
    try:
        return encode(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"this payload cannot be written as JSON ({error}); pass bytes, text, an open binary file, "
            "an iterator of bytes, or plain objects"
        ) from None


def read_all(payload: Payload) -> Buffer:
    """Return a payload as one buffer, reading it to the end if it is a stream."""
    data = to_buffer(payload)
    return b"".join(iter_chunks(payload)) if data is None else data


def encode(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """Encode a value as JSON.

    `default` converts objects that JSON cannot represent. An object that it returns unchanged is encoded as usual.
    """

    def convert(value: object) -> object:
        converted = value if default is None else default(value)
        return _to_serializable(value) if converted is value else converted

    def dumps(nested_value: object) -> bytes:
        return orjson.dumps(nested_value, default=convert, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)

    def encode_unknown(unknown_object: object) -> bytes:
        try:
            return dumps(unknown_object)
        except TypeError:
            return encode(convert(unknown_object), default)

    try:
        return dumps(value)
    except TypeError:
        # The reason may be an integer of more than 64 bits, which orjson cannot encode.
        return _encode_with_json_module(value, encode_unknown)


def _encode_with_json_module(value: object, encode_unknown: Callable[[object], bytes]) -> bytes:
    """Encode a value with the standard library; objects unknown to it are encoded by `encode_unknown`."""
    fragments: list[bytes] = []
    # The marker is random, so that the value cannot contain it.
    marker = os.urandom(16).hex()

    def add_fragment(unknown_object: object) -> str:
        fragments.append(encode_unknown(unknown_object))
        return f"{marker}{len(fragments) - 1}"

    def dumps(nested_value: object, *, ensure_ascii: bool = False) -> bytes:
        text = json.dumps(
            nested_value, default=add_fragment, allow_nan=False, separators=(",", ":"), ensure_ascii=ensure_ascii
        )
        try:
            return text.encode()
        except UnicodeEncodeError:
            # A lone surrogate can only be written as an escape.
            return dumps(nested_value, ensure_ascii=True)

    try:
        text = dumps(value)
    except TypeError:
        text = dumps(_stringify_keys(value))
    return re.sub(rf'"{marker}(\d+)"'.encode(), lambda match: fragments[int(match[1])], text)


def _stringify_keys(value: object) -> object:
    """Replace the keys that orjson can encode and the standard library cannot: UUIDs, dates, enum members."""
    match value:
        case dict():
            return {_stringify_key(key): _stringify_keys(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_stringify_keys(inner) for inner in value]
    return value


def _stringify_key(key: object) -> object:
    if key is None or isinstance(key, str | int | float):
        return key
    (text,) = orjson.loads(orjson.dumps({key: None}, option=orjson.OPT_NON_STR_KEYS))
    return text


def skip_bom(data: Buffer) -> memoryview:
    """Return a payload without the byte order mark that it may start with. Functions that parse JSON refuse a mark."""
    view = memoryview(data)
    return view[len(UTF8_BOM) :] if view[: len(UTF8_BOM)] == UTF8_BOM else view


def needs_json_encoding(payload: Payload) -> bool:
    """Return whether a payload is an object to encode, not bytes, text or a stream."""
    return not isinstance(payload, bytes | str) and not _is_stream(payload) and _as_memoryview(payload) is None


def _is_stream(payload: object) -> bool:
    return callable(getattr(payload, "read", None)) or isinstance(payload, Iterator)


def _as_memoryview(payload: object) -> memoryview | None:
    try:
        return memoryview(cast("Buffer", payload)).cast("B")
    except TypeError:
        return None


def _to_serializable(value: object) -> object:
    if isinstance(value, SerializedJSON):
        return orjson.Fragment(value.json())
    # Asked of the class, because mocks and remote proxies have an attribute of any name, whose results nest endlessly.
    if hasattr(value.__class__, "model_dump"):
        return cast("_Model", value).model_dump(mode="json")
    # Refused, because pydantic would decode bytes as text, and consume an iterator.
    if isinstance(value, Iterator | bytes | bytearray | memoryview):
        raise TypeError
    # As pydantic encodes them, which the base package does not need.
    if isinstance(value, set | frozenset | deque):
        return list(value)
    if isinstance(value, Decimal | PurePath):
        return str(value)
    # Encodes other types as the SDKs do. Imported late, because it is slow to import and seldom needed.
    try:
        from pydantic_core import to_jsonable_python
    except ModuleNotFoundError:
        raise TypeError(f"{type(value).__qualname__} is not known") from None
    return to_jsonable_python(value)


def iter_chunks(payload: Payload) -> Iterator[Buffer]:
    """Return a payload in chunks of `CHUNK_BYTES`; only the last one may be shorter, and none is empty."""
    data = to_buffer(payload)
    if data is not None:
        view = memoryview(data)
        return (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))
    if isinstance(payload, str):
        starts = range(0, len(payload), _ENCODED_CHARACTERS)
        return rechunk(_encode_text(payload[start : start + _ENCODED_CHARACTERS]) for start in starts)
    # Read, not iterated: a file is also an iterator of lines, and one line may be as long as the file.
    if callable(getattr(payload, "read", None)):
        return rechunk(_read_chunks(cast("_ReadableFile", payload)))
    return rechunk(cast("Iterator[object]", payload))


def _is_encoded_in_chunks(text: str) -> bool:
    # To encode ASCII, Python only copies it.
    return len(text) > CHUNK_BYTES and not text.isascii()


def _encode_text(text: str) -> bytes:
    # A lone surrogate is not valid text, but its bytes are stored.
    return text.encode("utf-8", "surrogatepass")


def _read_chunks(file: _ReadableFile) -> Iterator[object]:
    while True:
        chunk = file.read(CHUNK_BYTES)
        if chunk is None:
            raise InvalidArgument("this file has nothing to read yet, and does not wait for it; open it blocking")
        # The end of the file: `read` returned empty bytes, or empty text if this is a text file.
        if not chunk:
            return
        yield chunk


def rechunk(chunks: Iterable[object]) -> Iterator[bytes]:
    """Return chunks of any size as chunks of `CHUNK_BYTES`."""
    buffer = bytearray()
    for chunk in chunks:
        view = _encode_text(chunk) if isinstance(chunk, str) else _as_memoryview(chunk)
        if view is None:
            raise InvalidArgument(f"a chunk of a payload is bytes or text, not {type(chunk).__name__}")
        if not buffer and len(view) == CHUNK_BYTES:
            yield chunk if isinstance(chunk, bytes) else bytes(view)
            continue
        buffer += view
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(memoryview(buffer)[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
    if buffer:
        yield bytes(buffer)


_MAGIC_NUMBERS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "application/gzip"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
)

_EXTENSION_BY_MIME_TYPE = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "text/markdown": "md",
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
    "application/gzip": "gz",
    "application/zstd": "zst",
    "application/zip": "zip",
}

_EXTENSION_BY_NATURE = {"json": "json", "ndjson": "ndjson", "text": "txt"}

EXTENSIONS = tuple(dict.fromkeys(["json", "txt", "ndjson", "md", "bin", *_EXTENSION_BY_MIME_TYPE.values()]))
"""Extensions of stored files, the most common first."""

_COMPRESSED_MIME_TYPES = {
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "application/gzip",
    "application/zstd",
    "application/zip",
}

# A heading, a code fence, a link in a list or the ruler of a table, at the start of a line. The pattern for later lines
# begins with the preceding newline, so that the search skips from line to line.
_MARKDOWN_LINE = rb"#{2,6} \S|```|[ \t]*[-*] \[[^\]\n]+\]\([^)\n]+\)|\|(?: *:?-+:? *\|)+[ \t\r]*(?:\n|\Z)"
_MARKDOWN_FIRST_LINE_PATTERN = re.compile(rb"\s*(?:# \S|" + _MARKDOWN_LINE + rb")")
_MARKDOWN_LATER_LINE_PATTERN = re.compile(rb"\n(?:" + _MARKDOWN_LINE + rb")")


def sniff_mime_type(head: bytes) -> str | None:
    """Return the MIME type of binary data by its first bytes, or `None` if they are unknown."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime_type for magic, mime_type in _MAGIC_NUMBERS if head.startswith(magic)), None)


def detect_mime_type(nature: str, head: bytes | memoryview) -> str:
    """Detect the MIME type of a payload from its nature (`json`, `ndjson`, `text` or `binary`) and first bytes."""
    match nature:
        case "json":
            return "application/json"
        case "ndjson":
            return "application/x-ndjson"
        case "text":
            is_markdown = _MARKDOWN_FIRST_LINE_PATTERN.match(head) or _MARKDOWN_LATER_LINE_PATTERN.search(head)
            return "text/markdown" if is_markdown else "text/plain"
        case _:
            return sniff_mime_type(bytes(head)) or "application/octet-stream"


_MIME_TYPE_PATTERN = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?: *;[ -~]{0,127})?", re.ASCII)


def sanitize_mime_type(mime_type: str | None) -> str | None:
    """Return a MIME type, or `None` if it is malformed or too long to repeat in a message of bounded size."""
    return mime_type if mime_type is not None and _MIME_TYPE_PATTERN.fullmatch(mime_type) else None


def is_json_mime_type(mime_type: str | None) -> bool | None:
    """Return whether a MIME type is JSON or NDJSON; `None` if there is no MIME type."""
    if mime_type is None:
        return None
    essence = mime_type.partition(";")[0].strip().lower()
    return essence.endswith(("json", "ndjson", "jsonl", "json-seq")) or essence in {"text/x-json"}


RowFormat: TypeAlias = Literal["csv", "tsv"]

_ROW_FORMATS: dict[str, RowFormat] = {"text/csv": "csv", "text/tab-separated-values": "tsv"}


def get_row_format(mime_type: str | None) -> RowFormat | None:
    """Return the format of the rows that a MIME type declares, or `None` if it declares no rows with a header."""
    if mime_type is None:
        return None
    essence, _, parameters = mime_type.lower().partition(";")
    return None if re.search(r"\bheader\s*=\s*absent\b", parameters) else _ROW_FORMATS.get(essence.strip())


def guess_row_mime_type(name: str) -> str | None:
    """Return the MIME type of CSV or TSV by a file name, or `None` if the name has another extension."""
    return next((mime_type for mime_type, rows in _ROW_FORMATS.items() if name.lower().endswith(f".{rows}")), None)


def is_compressed(head: bytes) -> bool:
    """Return whether a payload with these first bytes is already compressed."""
    return sniff_mime_type(head) in _COMPRESSED_MIME_TYPES


def choose_extension(mime_type: str, nature: str, decoded_from: str = "") -> str:
    """Return the extension of a stored file."""
    # `zstd -dc` returns the payload as it was put.
    if decoded_from.startswith("gzip"):
        return "gz"
    return _EXTENSION_BY_MIME_TYPE.get(mime_type) or _EXTENSION_BY_NATURE.get(nature, "bin")


def escaped_size(text: bytes, escape_levels: int, *, is_ascii: bool = False) -> int:
    """Return the size of a text after it was written into a JSON string `escape_levels` times.

    `is_ascii` is for transports whose last encoding escapes all characters that are not ASCII, and DEL.
    """
    if not is_ascii or (text.isascii() and b"\x7f" not in text):
        return _core.escaped_size(text, escape_levels)
    for _ in range(escape_levels):
        text = orjson.dumps(text.decode())[1:-1]
    # `json.dumps` also escapes quotes and backslashes, which are counted already.
    return len(json.dumps(text.decode())) - 2 - text.count(b'"') - text.count(b"\\")


def is_mostly_items(index: ItemIndex | None, size: int) -> TypeGuard[ItemIndex]:
    """Return whether the items make up most of a payload, so that paging through the items covers nearly all of it."""
    if index is None or index.kind is None:
        return False
    items_size = index.end - index.start
    return size - items_size <= max(items_size, _MAX_BYTES_AROUND_ITEMS)


def outline_first_items(head: Buffer, items: ItemIndex | None, max_bytes: int) -> str | None:
    """Outline a payload by the items in its first chunk; `…` stands for the values around the items.

    Return `None` if the chunk has no whole item, or the outline would take more than `max_bytes`.
    """
    if items is None or items.kind is None or len(items) == 0:
        return None
    start = items.span(0, 1).start
    try:
        page = read_items(memoryview(head)[start:], items, 0, 100, CHUNK_BYTES, base=start)
        is_map = items.kind == "map"
        entries = (
            b"".join((b"{", memoryview(head)[page.start : page.end], b"}")) if is_map and not page.truncated else None
        )
        shape = outline(entries or page.content, max_bytes - 24)
    except ForebayError:
        return None
    if is_map and not shape.startswith("{<"):
        # The first entries are too large to tell that they are those of a map.
        shape = f"{shape[:-1]}, …}}" if entries else "{…}"
    shape = f"{shape.rpartition(' ×')[0] if shape.endswith(f'×{page.returned}') else shape} ×{len(items)}"
    for key in reversed((items.path or "").split("/")[1:]):
        shape = f"{{{key.replace('~1', '/').replace('~0', '~')}: {shape}, …}}"
    return shape if len(shape.encode()) <= max_bytes else None
