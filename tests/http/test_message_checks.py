"""Requests of the newest version: the headers repeat what the message says, in text or in base64."""

import base64
import json
from typing import Any

import pytest
from forebay.http.message_checks import HEADER_MISMATCH, find_request_fault, get_params, is_request
from forebay.wire.lazy_json import LazyJSON
from forebay.wire.messages import INVALID_PARAMS
from forebay.wire.protocol import UNSUPPORTED_VERSION
from wires import MODERN, MODERN_META

HEADERS = {b"mcp-protocol-version": MODERN.encode(), b"mcp-method": b"tools/call", b"mcp-name": b"a tool"}


def make_message(**changes: Any) -> dict[str, Any]:
    params = {"name": "a tool", "_meta": MODERN_META, **changes}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def make_lazy(data: bytes) -> LazyJSON:
    return LazyJSON(memoryview(data), 0, len(data))


def encode(text: str) -> bytes:
    return b"=?base64?%s?=" % base64.b64encode(text.encode())


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({}, "a tool"),
        ({b"mcp-name": encode("a tool")}, "a tool"),
        ({b"mcp-name": encode("é\n")}, "é\n"),
        # Without a name, there is nothing to repeat.
        ({b"mcp-name": b"anything"}, None),
    ],
)
def test_headers_that_repeat_the_message_are_right(headers: dict[bytes, bytes], name: str | None) -> None:
    assert find_request_fault(make_message(name=name), {**HEADERS, **headers}) is None


@pytest.mark.parametrize(
    ("header", "value", "text"),
    [
        (b"mcp-protocol-version", b"2025-11-25", "mcp-protocol-version header does not match"),
        (b"mcp-protocol-version", None, "mcp-protocol-version header does not match"),
        (b"mcp-method", b"tools/list", "mcp-method header is missing, or does not match"),
        (b"mcp-method", None, "mcp-method header is missing, or does not match"),
        (b"mcp-name", b"other", "mcp-name header does not match the request body's 'name' parameter"),
        (b"mcp-name", None, "mcp-name header does not match"),
        (b"mcp-name", encode("other"), "mcp-name header does not match"),
        # No base64, another spelling of the same bytes, and bytes that are no text.
        (b"mcp-name", b"=?base64?!?=", "mcp-name header does not match"),
        (b"mcp-name", b"=?base64?YSB0b29s?=\n", "mcp-name header does not match"),
        (b"mcp-name", b"=?base64?/w==?=", "mcp-name header does not match"),
    ],
)
def test_a_header_that_says_something_else_is_a_fault(header: bytes, value: bytes | None, text: str) -> None:
    headers = {name: old for name, old in HEADERS.items() if name != header}
    fault = find_request_fault(make_message(), headers if value is None else {**headers, header: value})
    assert fault is not None
    assert fault[0] == HEADER_MISMATCH
    assert text in fault[1]


@pytest.mark.parametrize(
    ("meta", "version", "code"),
    [
        # Without an envelope, the header says which version is meant.
        (None, MODERN.encode(), INVALID_PARAMS),
        (None, b"2099-01-01", UNSUPPORTED_VERSION),
        ({}, MODERN.encode(), INVALID_PARAMS),
        ({"io.modelcontextprotocol/protocolVersion": 3}, MODERN.encode(), INVALID_PARAMS),
        ({"io.modelcontextprotocol/protocolVersion": "2099-01-01"}, b"2099-01-01", UNSUPPORTED_VERSION),
        # That the header is wrong comes first.
        ({"io.modelcontextprotocol/protocolVersion": "2099-01-01"}, MODERN.encode(), HEADER_MISMATCH),
    ],
)
def test_a_wrong_envelope_is_a_fault(meta: dict[str, Any] | None, version: bytes, code: int) -> None:
    envelope = {**MODERN_META, **meta} if meta else meta
    fault = find_request_fault(make_message(_meta=envelope), {**HEADERS, b"mcp-protocol-version": version})
    assert fault is not None
    assert fault[0] == code


def test_large_members_are_checked_too() -> None:
    name = "x" * 100_000
    message = make_message()
    message["params"] = make_lazy(json.dumps({"name": name, "_meta": MODERN_META}).encode())
    assert find_request_fault(message, {**HEADERS, b"mcp-name": name.encode()}) is None
    fault = find_request_fault(message, HEADERS)
    assert fault is not None
    assert fault[0] == HEADER_MISMATCH
    message["params"] = {"name": make_lazy(json.dumps(name).encode()), "_meta": MODERN_META}
    assert find_request_fault(message, {**HEADERS, b"mcp-name": name.encode()}) is None
    for request_id, is_right in ((b'"%s"' % name.encode(), True), (b"7" * 5000, True), (b"[1]", False)):
        assert is_request({**make_message(), "id": make_lazy(request_id)}) is is_right


def test_params_that_cannot_be_read_are_none() -> None:
    assert get_params({"params": make_lazy(b'{"name": "a", "name": ')}) is None
    assert get_params({"params": 3}) is None
