"""JSON-RPC messages as bytes: parsed lazily, changed where needed, and dumped with every other byte unchanged."""

import contextlib
import itertools
import re
import tempfile
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from forebay import _core
from forebay.errors import InvalidArgument, InvalidJSON
from forebay.wire.framing import HeadTail, Line, LineBuffer, LostMessage, Message, Spool
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, dump_chunks, parse_lazy

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_BATCH_MESSAGES",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "dump_line",
    "dump_message",
    "find_response_id",
    "get_meta",
    "get_params",
    "is_unambiguous",
    "make_error_message",
    "make_id_key",
    "make_optional_key",
    "make_result_message",
    "parse",
    "read_bytes",
    "replace_id",
    "replace_result",
    "replace_values",
    "split_batch",
]

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603

MAX_BATCH_MESSAGES = 10_000
"""Maximum number of messages in a batch."""

_MAX_ENVELOPE_BYTES = 256 << 10
"""Like `MAX_CONTAINER_BYTES`, for a second attempt if `params` or `result` was larger than that."""

_MAX_MEMORY_BYTES = 1 << 20
"""Maximum bytes of a message to take out of a spool into memory; a larger one gets a spool of its own."""

_MAX_ID_KEY_BYTES = 1024
"""Maximum bytes of a request id to keep as a dictionary key; of a longer one, a digest is kept."""

_MAX_INTEGER_KEY = 10**18
"""Integers below this are keys as they are written; other numbers in the normal form of `Decimal`."""

_MEMBER_NAMES = ("jsonrpc", "id", "method", "params", "result", "error")

_EMPTY_OBJECT_PATTERN = re.compile(rb"\{[ \t\r\n]*\}")


def parse(raw_message: Message) -> Any:
    """Parse a JSON-RPC message like `parse_lazy`; return `None` if it is not JSON.

    The members of JSON-RPC are always found, even if other members are very large or have invalid names. So is the
    `_meta` of the params, because it says who sends a request, unless it is larger than 256 KiB. A large batch stays
    `LazyJSON`; `split_batch` returns its messages.
    """
    try:
        message = parse_lazy(raw_message)
        if _has_lazy_body(message):
            message = parse_lazy(raw_message, max_container_bytes=_MAX_ENVELOPE_BYTES)
        if isinstance(message, LazyJSON) and not message.is_array:
            return _parse_members(raw_message)
        _open_meta(message)
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


def _has_lazy_body(message: Any) -> bool:
    """Return whether the message, its params or its result were too large to parse."""
    if isinstance(message, dict):
        return isinstance(message.get("params"), LazyJSON) or isinstance(message.get("result"), LazyJSON)
    return isinstance(message, LazyJSON)


def _open_meta(message: Any) -> None:
    params = message.get("params") if isinstance(message, dict) else None
    if isinstance(params, dict) and isinstance(meta := params.get("_meta"), LazyJSON):
        params["_meta"] = meta.parse(max_container_bytes=_MAX_ENVELOPE_BYTES)


def _parse_members(raw_message: Message) -> dict[str, Any] | None:
    """Parse only the members of JSON-RPC, for a message that also has members whose names cannot be decoded."""
    members = as_lazy(raw_message).members(_MEMBER_NAMES)
    return {name: member.parse() for name, member in members.items()} or None


def dump_line(value: object) -> Line:
    """Return a value as JSON like `dump`; a large value with spooled parts gets a spool of its own.

    If that spool cannot be written, the line is a `LostMessage`.
    """
    data = dump_chunks(value)
    return data if isinstance(data, bytes) else _collect(data, data.folder)


def dump_message(value: object) -> Message:
    """Return a value as JSON like `dump_line`. Raises `StoreFull` or `StoreUnavailable` if the disk fails."""
    return _check_line(dump_line(value))


def _collect(chunks: Iterable[bytes | memoryview], folder: str | None) -> Line:
    buffer = LineBuffer(_MAX_MEMORY_BYTES, lambda: Spool(folder or tempfile.gettempdir()))
    for chunk in chunks:
        buffer.append(chunk)
    return buffer.take()


def _check_line(line: Line) -> Message:
    if isinstance(line, LostMessage):
        raise line.error
    return line


def replace_values(
    raw_message: Message, values: Mapping[tuple[str, ...], bytes], added: Mapping[tuple[str, ...], bytes] | None = None
) -> Message:
    """Return a message with other values at these paths of member names, and every other byte unchanged.

    The new values are JSON. If a name is repeated, all of its values are replaced, so that every reader gets the new
    one. `added` has members, without the braces around them, that are put first into the objects at other paths.
    Raises `InvalidArgument` if the message has no value or no object at a path, `InvalidJSON` if it is incomplete, and
    `StoreFull` or `StoreUnavailable` if the disk fails.
    """
    replacements = {**values, **added} if added else values
    paths, new_values = [*replacements], [*replacements.values()]
    # This runs for each message that is forwarded. Bytes need no view to be safe.
    span = (raw_message, 0, len(raw_message)) if type(raw_message) is bytes else as_lazy(raw_message).span
    spans = _core.values_at(span, paths)
    if len(spans) < len(paths) or len({index for index, _, _ in spans}) < len(paths):
        missing = {*range(len(paths))}.difference([index for index, _, _ in spans])
        raise InvalidArgument(f"the message has no member {'.'.join(paths[min(missing)])}; replace only what it has")
    parts, position = [], 0
    for index, start, end in spans:
        new_value = new_values[index]
        if index >= len(values):
            new_value += _check_object(as_lazy(raw_message, start, end))
            start, end = start + 1, start + 1
        parts.append((position, start, new_value))
        position = end
    parts.append((position, len(raw_message), b""))
    if not isinstance(raw_message, Spool):
        return b"".join([part for start, end, value in parts for part in (raw_message[start:end], value)])
    spool = raw_message
    chunks = (chunk for start, end, value in parts for chunk in itertools.chain(spool.chunks(start, end), [value]))
    return _check_line(_collect(chunks, spool.folder))


def _check_object(value: LazyJSON) -> bytes:
    """Return what separates a new first member of an object from the next one. Raises `InvalidArgument`."""
    head = next(iter(value.json_chunks()))
    if head[:1] != b"{":
        raise InvalidArgument("members can be added to objects only")
    return b"" if _EMPTY_OBJECT_PATTERN.match(head) else b","


def read_bytes(message: Message) -> bytes:
    """Return a message as bytes, even if it is spooled."""
    return b"".join(message.chunks()) if isinstance(message, Spool) else bytes(message)


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


def replace_id(raw: Message, request_id: object) -> Message:
    """Return a message with another id."""
    return replace_values(raw, {("id",): dump(request_id)})


def replace_result(raw: Message, message: Mapping[str, Any], original: object) -> Message:
    """Return the bytes of a message whose result has replaced another one, `original`."""
    result = message["result"]
    if not isinstance(original, dict) or not isinstance(result, dict):
        return dump_message(message)
    if any(name not in result or result[name] is not value for name, value in original.items()):
        return dump_message(message)
    added = {name: value for name, value in result.items() if name not in original}
    return replace_values(raw, {("id",): dump(message["id"])}, {("result",): dump(added)[1:-1]})


def find_response_id(raw: Message, head_tail: HeadTail) -> object:
    """Return the id of a response that is not JSON, or `None` if it is not found or the message is a request."""
    with contextlib.suppress(InvalidJSON):
        # Only the brackets and quotes of the other members need to be right.
        members = as_lazy(raw).members(("id", "method"))
        return members["id"].parse() if "id" in members and "method" not in members else None
    return None if head_tail.is_request else head_tail.find_id()


def make_result_message(request_id: object, result: Mapping[str, Any]) -> bytes:
    """Return a JSON-RPC response with a result."""
    return dump({"jsonrpc": "2.0", "id": request_id, "result": result})


def make_error_message(request_id: object, code: int, message: str, data: object = None) -> bytes:
    """Return a JSON-RPC error response."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return dump({"jsonrpc": "2.0", "id": request_id, "error": error})


def make_id_key(request_id: object) -> bytes:
    """Return a request id as a dictionary key: 7, 7.0 and 70e-1 have the same key, "7" has another."""
    if type(request_id) is int and -_MAX_INTEGER_KEY < request_id < _MAX_INTEGER_KEY:
        return b"%d" % request_id
    if isinstance(request_id, str):
        return _bound_key(b'"', [request_id.encode("utf-8", "surrogatepass")])
    if isinstance(request_id, int | float) and not isinstance(request_id, bool):
        return _make_number_key(Decimal(request_id))
    if not isinstance(request_id, LazyJSON):
        data = dump_chunks(request_id)
        return _bound_key(b"", [data] if isinstance(data, bytes) else data)
    if request_id.is_string:
        return _bound_key(b'"', request_id.text_chunks())
    key = _bound_key(b"", request_id.json_chunks())
    with contextlib.suppress(ArithmeticError, ValueError):
        return _make_number_key(Decimal(key.decode()))
    return key


def _make_number_key(number: Decimal) -> bytes:
    if abs(number) < _MAX_INTEGER_KEY and number == int(number):
        return b"%d" % int(number)
    return str(number.normalize()).encode()


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
                # Imported here, because it loads OpenSSL.
                import hashlib

                digest = hashlib.sha256(key)
        else:
            digest.update(chunk)
    # No JSON starts with "#".
    return bytes(key) if digest is None else b"#" + digest.hexdigest().encode()


def get_params(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a message; none if they are no object, or too large to parse."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def get_meta(params: object) -> dict[str, Any]:
    """Return the `_meta` of a request's params."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}
