"""What a tool returned, as pieces of bytes, and what kind of thing they are."""

import abc
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol, TypeAlias, cast

import orjson
from typing_extensions import Buffer

from forebay.errors import InvalidArgument

__all__ = [
    "CHUNK_BYTES",
    "EXTENSIONS",
    "Payload",
    "Redaction",
    "SerializedJSON",
    "choose_extension",
    "detect_mime_type",
    "encode",
    "is_compressed",
    "is_json_mime_type",
    "iter_chunks",
    "needs_json_encoding",
    "read_all",
    "sanitize_mime_type",
    "to_buffer",
]

CHUNK_BYTES = 1024 * 1024
"""How much is handed on at once."""

Payload: TypeAlias = "object | str | Buffer | BinaryIO | Iterator[Buffer]"
"""Bytes, text, an open binary file, an iterator of chunks, or anything that can be written as JSON."""


Redaction: TypeAlias = Callable[[bytes], bytes]
"""Takes out of a payload what must not be stored."""


class SerializedJSON(abc.ABC):
    """What is JSON already, and is written as it came."""

    __slots__ = ()

    @abc.abstractmethod
    def json(self) -> bytes:
        """All of it."""


class _ReadableFile(Protocol):
    def read(self, size: int, /) -> bytes | str | None: ...


def to_buffer(payload: Payload) -> Buffer | None:
    """The payload in one piece that nobody can change, unless it streams."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        # A lone surrogate is no text, and is kept for what it is.
        return payload.encode("utf-8", "surrogatepass")
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
    """The payload whole, also if it streams."""
    data = to_buffer(payload)
    return b"".join(iter_chunks(payload)) if data is None else data


def encode(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """A value as JSON; `other` makes something of what JSON has no room for, or returns it as it is."""

    def plain(inner: object) -> object:
        found = inner if default is None else default(inner)
        return _to_serializable(inner) if found is inner else found

    def dumps(inner: object) -> bytes:
        return orjson.dumps(inner, default=plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)

    def piece(inner: object) -> bytes:
        try:
            return dumps(inner)
        except TypeError:
            return encode(plain(inner), default)

    try:
        return dumps(value)
    except TypeError:
        # It may only be an integer of more than 64 bits, which nothing but JSON itself has room for.
        return _encode_with_json_module(value, piece)


def _encode_with_json_module(value: object, encode_unknown: Callable[[object], bytes]) -> bytes:
    """A value as Python's own JSON has it. What that does not know stands in it as it was written by `piece`."""
    pieces: list[bytes] = []
    # Nobody can have guessed it, so there is no such text in the value.
    mark = os.urandom(16).hex()

    def marked(inner: object) -> str:
        pieces.append(encode_unknown(inner))
        return f"{mark}{len(pieces) - 1}"

    def dumps(inner: object) -> bytes:
        def written(*, is_ascii: bool) -> bytes:
            text = json.dumps(inner, default=marked, allow_nan=False, separators=(",", ":"), ensure_ascii=is_ascii)
            return text.encode()

        try:
            return written(is_ascii=False)
        except UnicodeEncodeError:
            # Half of a surrogate pair can be written only so.
            return written(is_ascii=True)

    try:
        text = dumps(value)
    except TypeError:
        text = dumps(_stringify_keys(value))
    return re.sub(rf'"{mark}(\d+)"'.encode(), lambda found: pieces[int(found[1])], text)


def _stringify_keys(value: object) -> object:
    """A value without the keys that `orjson` can write and Python's own JSON cannot: UUIDs, dates, members of enums."""
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


def needs_json_encoding(payload: Payload) -> bool:
    """Whether it is to be written as JSON, having no bytes of its own."""
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
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    # Bytes inside of an object would be guessed to be text, and an iterator is gone once it was looked at.
    if isinstance(value, Iterator | bytes | bytearray | memoryview):
        raise TypeError
    # What the SDKs write: sets, decimals, paths. It takes long to import, and few need it.
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def iter_chunks(payload: Payload) -> Iterator[Buffer]:
    """The payload in pieces of `CHUNK_BYTES` bytes, the last one shorter. None is empty."""
    data = to_buffer(payload)
    if data is not None:
        view = memoryview(data)
        return (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))
    # A file is an iterator too, of lines, and one line may be all of it.
    if callable(getattr(payload, "read", None)):
        return _rechunk(_read_chunks(cast("_ReadableFile", payload)))
    return _rechunk(cast("Iterator[object]", payload))


def _read_chunks(file: _ReadableFile) -> Iterator[object]:
    while True:
        piece = file.read(CHUNK_BYTES)
        if piece is None:
            raise InvalidArgument("this file has nothing to read yet, and does not wait for it; open it blocking")
        # A file of text ends in an empty text, not in empty bytes.
        if not piece:
            return
        yield piece


def _rechunk(chunks: Iterable[object]) -> Iterator[bytes]:
    waiting = bytearray()
    for chunk in chunks:
        view = chunk.encode("utf-8", "surrogatepass") if isinstance(chunk, str) else _as_memoryview(chunk)
        if view is None:
            raise InvalidArgument(f"a chunk of a payload is bytes or text, not {type(chunk).__name__}")
        if not waiting and len(view) == CHUNK_BYTES:
            yield chunk if isinstance(chunk, bytes) else bytes(view)
            continue
        waiting += view
        while len(waiting) >= CHUNK_BYTES:
            yield bytes(memoryview(waiting)[:CHUNK_BYTES])
            del waiting[:CHUNK_BYTES]
    if waiting:
        yield bytes(waiting)


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

EXTENSIONS = tuple(dict.fromkeys(["json", "txt", "ndjson", "md", "bin", *_EXTENSION_BY_MIME_TYPE.values()]))
"""All that a stored file may have, the usual ones first."""

_COMPRESSED_MIME_TYPES = {
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "application/gzip",
    "application/zstd",
    "application/zip",
}

# A heading, a fence, a list of links, a table: one of them at the start of a line is no accident. The line's end stands
# first in the pattern, so that nothing else is looked at.
_MARKDOWN_LINE = rb"#{2,6} \S|```|[ \t]*[-*] \[[^\]\n]+\]\([^)\n]+\)|\|(?: *:?-+:? *\|)+[ \t\r]*(?:\n|\Z)"
_MARKDOWN_FIRST_LINE = re.compile(rb"\s*(?:# \S|" + _MARKDOWN_LINE + rb")")
_MARKDOWN_LATER_LINE = re.compile(rb"\n(?:" + _MARKDOWN_LINE + rb")")


def sniff_mime_type(head: bytes) -> str | None:
    """What the first bytes of a binary say."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC_NUMBERS if head.startswith(magic)), None)


def detect_mime_type(nature: str, head: bytes) -> str:
    """The type of a payload whose nature is known, by its first bytes."""
    match nature:
        case "json":
            return "application/json"
        case "ndjson":
            return "application/x-ndjson"
        case "text":
            is_markdown = _MARKDOWN_FIRST_LINE.match(head) or _MARKDOWN_LATER_LINE.search(head)
            return "text/markdown" if is_markdown else "text/plain"
        case _:
            return sniff_mime_type(head) or "application/octet-stream"


_MIME_TYPE_PATTERN = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}(?: *;[ -~]{0,127})?", re.ASCII)


def sanitize_mime_type(mime_type: str | None) -> str | None:
    """The type, if it is one: it comes from wherever the payload does, and goes into messages of a bounded size."""
    return mime_type if mime_type is not None and _MIME_TYPE_PATTERN.fullmatch(mime_type) else None


def is_json_mime_type(mime_type: str | None) -> bool | None:
    """Whether a type that was given is JSON or NDJSON; `None` where none was given."""
    if mime_type is None:
        return None
    essence = mime_type.partition(";")[0].strip().lower()
    return essence.endswith(("json", "ndjson", "jsonl", "json-seq")) or essence in {"text/x-json"}


def is_compressed(head: bytes) -> bool:
    """Whether compressing it again would be in vain."""
    return sniff_mime_type(head) in _COMPRESSED_MIME_TYPES


def choose_extension(mime_type: str, nature: str) -> str:
    """What the stored file is called, for people who look."""
    fallback = {"json": "json", "ndjson": "ndjson", "text": "txt"}.get(nature, "bin")
    return _EXTENSION_BY_MIME_TYPE.get(mime_type, fallback)
