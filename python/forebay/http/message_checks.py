"""Classify JSON-RPC messages from HTTP requests, and check that the headers match the message."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from forebay.errors import InvalidJSON
from forebay.wire.lazy_json import LazyJSON
from forebay.wire.protocol import (
    PROTOCOL_VERSION_KEY,
    UNSUPPORTED_VERSION,
    Fault,
    find_envelope_fault,
    find_version_fault,
)

__all__ = ["HEADER_MISMATCH", "find_request_fault", "get_params", "is_notification", "is_request", "is_response"]

HEADER_MISMATCH = -32020
"""Error code for a header that does not match the message."""

_NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the Mcp-Name header repeats, by method."""

_BASE64_PATTERN = re.compile(rb"=\?base64\?(.*)\?=")


def is_request(message: Any) -> bool:
    return _has_method(message) and "id" in message and _is_request_id(message["id"])


def is_notification(message: Any) -> bool:
    return _has_method(message) and "id" not in message


def is_response(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or "method" in message:
        return False
    if isinstance(message.get("result"), dict | LazyJSON):
        return _is_request_id(message.get("id"))
    return isinstance(message.get("error"), dict | LazyJSON) and "id" in message


def _has_method(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return False
    params = message.get("params")
    return params is None or isinstance(params, dict) or (isinstance(params, LazyJSON) and params.is_object)


def _is_request_id(request_id: object) -> bool:
    if isinstance(request_id, LazyJSON):
        # A long string, or a number that Python cannot hold exactly.
        return request_id.is_string or request_id.is_number
    return isinstance(request_id, str | int) and not isinstance(request_id, bool)


def get_params(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the params that a transport reads. If the params are large, the others are missing."""
    params = message.get("params")
    if isinstance(params, LazyJSON):
        try:
            members = params.members(("_meta", "name", "uri", "protocolVersion"))
            return {name: member.parse() for name, member in members.items()}
        except InvalidJSON:
            return None
    return params if isinstance(params, dict) else None


def find_request_fault(message: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> Fault | None:
    """Return what is wrong with the envelope of a request of the newest version, or with its headers."""
    params = get_params(message) or {}
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        fault = find_version_fault(str(_decode(headers.get(b"mcp-protocol-version"))))
        return fault or find_envelope_fault({})
    fault = find_envelope_fault(meta)
    if fault is not None and fault[0] != UNSUPPORTED_VERSION:
        return fault
    version, method = meta[PROTOCOL_VERSION_KEY], message["method"]
    if _decode(headers.get(b"mcp-protocol-version")) != version:
        text = "mcp-protocol-version header does not match the request envelope's protocol version"
        return HEADER_MISMATCH, text, None
    if _decode(headers.get(b"mcp-method")) != method:
        text = "the mcp-method header is missing, or does not match the request body's method"
        return HEADER_MISMATCH, text, None
    name_param = _NAME_PARAMS.get(method)
    if name_param is not None:
        name = params.get(name_param)
        if isinstance(name, LazyJSON) and name.is_string:
            name = name.text().decode("utf-8", "surrogatepass")
        if name is not None and _decode_name(headers.get(b"mcp-name")) != name:
            text = f"mcp-name header does not match the request body's {name_param!r} parameter"
            return HEADER_MISMATCH, text, None
    return fault


def _decode(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _decode_name(value: bytes | None) -> str | None:
    """Decode a header value, which may be base64 as in `=?base64?aGk=?=`; return `None` if that is malformed."""
    match = None if value is None else _BASE64_PATTERN.fullmatch(value)
    if match is None:
        return _decode(value)
    try:
        decoded = base64.b64decode(match[1], validate=True)
        return decoded.decode() if base64.b64encode(decoded) == match[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None
