"""Conversion of envelopes and errors to MCP tool results and to HTTP responses.

result = to_call_tool_result(await registry.execute("crm.find", {"name": "Ada"}))
"""

import base64
import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from forebay.arguments import is_text
from forebay.envelope import Body, HTTPResponseMeta, MCPResponseMeta, ResponseEnvelope
from forebay.envelope.body import (
    decode_text,
    dump,
    get_media_type,
    has_only_json_types,
    is_json_type,
    names_other_charset,
)
from forebay.operations.errors import CallCode, CallError
from forebay.operations.results import is_blocks_only
from forebay.operations.spec import OperationSpec
from forebay.operations.validation import Schema, has_rules
from forebay.outputs.result import BodyResult, ResultPayload
from forebay.store.payload import encode, is_json_mime_type
from forebay.wire.lazy_json import ChunkSource, LazyJSON
from forebay.wire.protocol import SERVER_INFO_KEY

__all__ = [
    "HTTPResponse",
    "error_to_call_tool_result",
    "error_to_http_response",
    "needs_result_wrapper",
    "to_body_result",
    "to_call_tool_result",
    "to_http_response",
    "wrap_schema",
    "wrap_structured_content",
]

_BINARY_TYPE, _JSON_TYPE, _TEXT_TYPE = "application/octet-stream", "application/json", "text/plain; charset=utf-8"

_MIN_BODY_RESULT_BYTES = 64 * 1024
"""Smaller bodies are decoded at once: most clients get them inline."""

_DROPPED_HEADERS = frozenset(
    (
        # Hop-by-hop headers.
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade"),
        # These describe the original bytes; the body has been decoded and perhaps cast to a schema.
        *("content-encoding", "content-length", "content-md5", "content-digest", "repr-digest", "digest", "etag"),
        # Envelopes join repeated headers with commas, which makes several cookies invalid.
        "set-cookie",
        # This module sets the content type itself.
        "content-type",
    )
)

_STATUS_BY_CODE: Mapping[CallCode, int] = {
    "OPERATION_NOT_FOUND": 404,
    "VALIDATION_ERROR": 400,
    "ACCESS_DENIED": 403,
    "EXECUTION_ERROR": 500,
    "TIMEOUT": 504,
    "ABORTED": 499,
}

_BAD_GATEWAY = 502

_BODILESS_STATUSES = (204, 205, 304)

# Other characters, such as line breaks, could inject another header or a whole response.
_HEADER_NAME_PATTERN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE_PATTERN = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CONTENT_TYPE_PATTERN = re.compile(r"[\t\x20-\x7e]+")

_ABSENT = object()
"""Marks missing structured content, since `None` is JSON's null."""


@dataclasses.dataclass(frozen=True, slots=True)
class HTTPResponse:
    """An HTTP response for any framework to send. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def to_call_tool_result(
    envelope: ResponseEnvelope[Any], *, spec: OperationSpec | None = None, is_legacy: bool = False
) -> dict[str, Any]:
    """Convert an envelope to the result of a `tools/call`, as a dict with wire keys.

    The content of an MCP envelope is passed on unchanged, without the `_meta` entry about its server. Other data
    becomes one block: a string as text, bytes as an image, audio, text or resource, anything else as JSON. If the
    operation has an output schema, the data is structured content too.

    Set `is_legacy` for protocol versions up to 2025-11-25. In them, structured content is always an object, so
    data that is not an object, or whose schema is not of type `object`, is sent as `{"result": data}`.
    """
    meta = envelope.meta
    if isinstance(meta, MCPResponseMeta):
        result: dict[str, Any] = {"content": meta.content, "isError": meta.is_error}
        if extra := {key: value for key, value in (meta.meta or {}).items() if key != SERVER_INFO_KEY}:
            result["_meta"] = extra
        structured = _get_tool_structured_content(envelope.data, meta, spec)
    else:
        result = {"content": [_to_block(envelope)], "isError": False}
        structured = _get_structured_content(envelope.data, spec)
    if structured is _ABSENT:
        return result
    result["structuredContent"] = structured
    return wrap_structured_content(result, None if spec is None else spec.output_schema) if is_legacy else result


def to_body_result(envelope: ResponseEnvelope[Any], spec: OperationSpec) -> BodyResult | None:
    """Convert an envelope with a large body to a tool result without decoding the body.

    The result is the one of `to_call_tool_result`. Return `None` if the data is not a large body, or must be decoded:
    for the output schema, from another charset, or because it is an image or audio, which goes inline.
    """
    match envelope.data:
        case Body() as body:
            pass
        case bytes() as content:
            body = Body(content, _get_content_type(envelope))
        case _:
            return None
    mime_type = get_media_type(body.content_type) or _BINARY_TYPE
    if (
        isinstance(envelope.meta, MCPResponseMeta)
        or len(body) < _MIN_BODY_RESULT_BYTES
        or (has_rules(spec.output_schema) and is_json_type(mime_type))
        or _get_main_type(mime_type) in ("image", "audio")
    ):
        return None
    data = ChunkSource(body.chunks, len(body)) if body.is_spooled else body.content
    if _is_text_type(mime_type):
        if names_other_charset(body.content_type):
            return None
        if body.is_utf8:
            return BodyResult(ResultPayload(data), {"content": [{"type": "text", "text": ""}], "isError": False})
    block = {"type": "resource", "resource": _make_resource(mime_type, b"")}
    return BodyResult(ResultPayload(data, mime_type), {"content": [block], "isError": False})


def error_to_call_tool_result(error: CallError) -> dict[str, Any]:
    """Convert an error to the result of a `tools/call` that a model can act on."""
    return {"content": [{"type": "text", "text": _dump_error(error).decode()}], "isError": True}


def needs_result_wrapper(schema: Schema | None) -> bool:
    """Return whether a schema has rules and its type is not `object`.

    Up to protocol version 2025-11-25, data of such a schema is sent as `{"result": data}`.
    """
    return has_rules(schema) and not (isinstance(schema, Mapping) and schema.get("type") == "object")


def wrap_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules for `{"result": data}`, given the schema of the data."""
    # References like `#/$defs/x` are relative to the nearest `$id`, so a schema with its own `$id` can be nested.
    return {"properties": {"result": {"$id": "forebay:result", **schema}}, "required": ["result"]}


def wrap_structured_content(result: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
    """Return a result whose structured content is an object, as versions up to 2025-11-25 require.

    The result itself is returned if its structured content and the schema of that are of type `object`.
    """
    structured = result["structuredContent"]
    is_object = structured.is_object if isinstance(structured, LazyJSON) else isinstance(structured, Mapping)
    if is_object and not needs_result_wrapper(schema):
        return result
    return {**result, "structuredContent": {"result": structured}}


def to_http_response(envelope: ResponseEnvelope[Any]) -> HTTPResponse:
    """Convert an envelope to an HTTP response.

    An HTTP envelope keeps its status, content type and end-to-end headers. The result of a function is sent as JSON,
    even if it is a string, but bytes are sent unchanged. A tool result that is a single block is sent as that block's
    content. A tool error becomes a 502, because only the status can tell the reader that the call failed.
    """
    meta, data = envelope.meta, envelope.data
    match meta:
        case HTTPResponseMeta():
            return _convert_http_data(data, meta)
        case MCPResponseMeta():
            body, content_type = _dump_blocks(meta) if is_blocks_only(data, meta) else (dump(data), _JSON_TYPE)
            return _make_response(_BAD_GATEWAY if meta.is_error else 200, content_type, body)
    match data:
        case Body():
            return _make_response(200, data.content_type, data.content)
        case bytes() | bytearray() | memoryview():
            return _make_response(200, _BINARY_TYPE, bytes(data))
    return _make_response(200, _JSON_TYPE, dump(data))


def error_to_http_response(error: CallError) -> HTTPResponse:
    """Convert an error to an HTTP response. A failure of an upstream server becomes a 502."""
    is_upstream = error.code == "EXECUTION_ERROR" and not error.details.keys().isdisjoint({"status", "code"})
    return _make_response(_BAD_GATEWAY if is_upstream else _STATUS_BY_CODE[error.code], _JSON_TYPE, _dump_error(error))


def _dump_error(error: CallError) -> bytes:
    try:
        return dump(error.to_dict())
    except (TypeError, ValueError, RecursionError):
        # The details may hold objects without a JSON form.
        return dump(CallError(error.code, str(error)).to_dict())


def _make_response(status: int, content_type: str, body: bytes) -> HTTPResponse:
    return HTTPResponse(status, {"content-type": _sanitize_content_type(content_type)}, body)


def _sanitize_content_type(content_type: str) -> str:
    return content_type if _CONTENT_TYPE_PATTERN.fullmatch(content_type) else _BINARY_TYPE


def _convert_http_data(data: Any, meta: HTTPResponseMeta) -> HTTPResponse:
    received = {key.lower(): value for key, value in meta.headers.items()}
    dropped = _DROPPED_HEADERS | {name.strip().lower() for name in str(received.get("connection", "")).split(",")}
    headers = {key: value for key, value in received.items() if key not in dropped and _is_valid_header(key, value)}
    status = _to_valid_status(meta.status_code)
    if status in _BODILESS_STATUSES:
        return HTTPResponse(status, headers, b"")
    content_type = _sanitize_content_type(meta.content_type)
    is_json = is_json_mime_type(content_type)
    match data:
        case Body():
            body = data.content
        case bytes() | bytearray() | memoryview():
            body = bytes(data)
        case None if not is_json or received.get("content-length") == "0":
            # Only a JSON response can have null as its data; any other response came without a body.
            body = b""
        case str() if not is_json:
            body = data.encode("utf-8", "surrogatepass")
            content_type = f"{get_media_type(content_type) or _BINARY_TYPE}; charset=utf-8"
        case _:
            body, content_type = dump(data), content_type if is_json else _JSON_TYPE
    return HTTPResponse(status, {**headers, "content-type": content_type}, body)


def _is_valid_header(name: str, value: object) -> bool:
    return bool(
        _HEADER_NAME_PATTERN.fullmatch(name) and isinstance(value, str) and _HEADER_VALUE_PATTERN.fullmatch(value)
    )


def _to_valid_status(status: int) -> int:
    """Return a status that a final response can have: 200 instead of 1xx, 502 instead of an invalid status."""
    if 100 <= status < 200:
        return 200
    return status if 200 <= status <= 599 else _BAD_GATEWAY


def _dump_blocks(meta: MCPResponseMeta) -> tuple[bytes, str]:
    """Return an HTTP body and its content type: the content of a single block, or all blocks as JSON."""
    match meta.content:
        case [{"type": "text", "text": str(text)}] if is_text(text):
            return text.encode(), _TEXT_TYPE
        case [{"type": "image" | "audio", "data": str(data), "mimeType": str(mime_type)}] | [
            {"type": "resource", "resource": {"blob": str(data), "mimeType": str(mime_type)}}
        ]:
            try:
                # Line breaks are allowed, so `split` removes them. Without `validate`, other characters that are not
                # base64 would be skipped silently.
                return base64.b64decode("".join(data.split()), validate=True), mime_type
            except ValueError:
                pass
    return encode(meta.content), _JSON_TYPE


def _get_tool_structured_content(data: Any, meta: MCPResponseMeta, spec: OperationSpec | None) -> Any:
    """Return the data cast to the output schema if there is one, else the tool's own structured content."""
    has_schema = not meta.is_error and spec is not None and has_rules(spec.output_schema)
    if has_schema and not is_blocks_only(data, meta):
        return _get_structured_content(data, spec)
    return _ABSENT if meta.structured_content is None else meta.structured_content


def _get_structured_content(data: Any, spec: OperationSpec | None) -> Any:
    """Return data in JSON types, or `_ABSENT` without an output schema; bytes are never structured."""
    if spec is None or not has_rules(spec.output_schema):
        return _ABSENT
    match data:
        case None:
            return _ABSENT if spec.output.problems(None) else None
        case Body(is_json=False) | bytes() | bytearray() | memoryview():
            return _ABSENT
    if has_only_json_types(data):
        return data
    body = data if isinstance(data, Body) else Body(dump(data))
    try:
        value = body.json()
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        # The data has a number too large for Python, or a lone surrogate. It is sent in the content only.
        return _ABSENT
    return value


def _to_block(envelope: ResponseEnvelope[Any]) -> dict[str, Any]:
    """Convert data to one content block. A body is not parsed: its text is passed on unchanged."""
    match envelope.data:
        case Body() as body:
            return _bytes_to_block(body.content, body.content_type)
        case bytes() | bytearray() | memoryview() as data:
            return _bytes_to_block(bytes(data), _get_content_type(envelope))
        case str() as text if is_text(text):
            return {"type": "text", "text": text}
    return {"type": "text", "text": dump(envelope.data).decode()}


def _bytes_to_block(content: bytes, content_type: str) -> dict[str, Any]:
    mime_type = get_media_type(content_type) or _BINARY_TYPE
    main_type = _get_main_type(mime_type)
    if main_type in ("image", "audio"):
        return {"type": main_type, "data": base64.b64encode(content).decode(), "mimeType": mime_type}
    if _is_text_type(mime_type):
        text = decode_text(content, content_type)
        if text is not None:
            return {"type": "text", "text": text}
    return {"type": "resource", "resource": _make_resource(mime_type, content)}


def _get_content_type(envelope: ResponseEnvelope[Any]) -> str:
    """Return the content type of an envelope whose data is bytes."""
    return envelope.meta.content_type if isinstance(envelope.meta, HTTPResponseMeta) else _BINARY_TYPE


def _get_main_type(mime_type: str) -> str:
    return mime_type.partition("/")[0]


def _is_text_type(mime_type: str) -> bool:
    return _get_main_type(mime_type) == "text" or mime_type.endswith(
        ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded")
    )


def _make_resource(mime_type: str, content: bytes) -> dict[str, Any]:
    # A resource must have a URI; this one is a placeholder that no client can read.
    return {"uri": "forebay:inline", "mimeType": mime_type, "blob": base64.b64encode(content).decode()}
