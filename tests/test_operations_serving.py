"""Envelopes on their way out: results of tools, responses over HTTP, and registries as servers."""

import base64
import json
from typing import Any

import orjson
import pytest
from headgate.envelope import Body, ResponseEnvelope, http_envelope, local_envelope, mcp_envelope
from headgate.operations import (
    CODES,
    CallError,
    OperationSpec,
)
from headgate.operations.serving import (
    error_to_call_tool_result,
    error_to_http_response,
    to_call_tool_result,
    to_http_response,
)

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LIST = {"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": NUMBER}}
TEXT = {"type": "text", "text": "t"}
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "other", "version": "1"}}


def spec(name: str = "op", namespace: str = "ns", **more: Any) -> OperationSpec:
    return OperationSpec(namespace=namespace, name=name, **more)


def http(data: Any, content_type: str = "application/json", status: int = 200, **headers: str) -> ResponseEnvelope[Any]:
    return http_envelope(data, status_code=status, headers=headers, content_type=content_type)


def blocks_itself(**more: Any) -> ResponseEnvelope[Any]:
    """As a tool's result is that has nothing structured."""
    made = mcp_envelope(None, **more)
    return ResponseEnvelope(made.meta.content, made.meta)  # type: ignore[union-attr]


def test_a_tools_result_goes_out_as_it_came() -> None:
    blocks = [TEXT, {"type": "image", "data": "AAAA", "mimeType": "image/png", "_meta": {"new": 1}}]
    envelope = blocks_itself(content=blocks, is_error=True, meta={**STAMP, "own": 1})
    assert to_call_tool_result(envelope) == {"content": blocks, "isError": True, "_meta": {"own": 1}}
    assert to_call_tool_result(blocks_itself(content=blocks, meta=STAMP)) == {"content": blocks, "isError": False}
    structured = mcp_envelope({"a": 1}, content=[TEXT], structured_content={"a": 1})
    assert to_call_tool_result(structured) == {"content": [TEXT], "isError": False, "structuredContent": {"a": 1}}


def test_what_a_schema_made_of_a_tools_result_is_structured() -> None:
    parsed = mcp_envelope({"n": 1}, content=[{"type": "text", "text": '{"n": 1}'}])
    assert "structuredContent" not in to_call_tool_result(parsed)
    assert to_call_tool_result(parsed, spec=spec(output_schema=NUMBER))["structuredContent"] == {"n": 1}
    blocks = blocks_itself(content=[TEXT])
    assert "structuredContent" not in to_call_tool_result(blocks, spec=spec(output_schema=NUMBER))
    failed = mcp_envelope({"n": 1}, is_error=True, structured_content={"why": 1})
    assert to_call_tool_result(failed, spec=spec(output_schema=NUMBER))["structuredContent"] == {"why": 1}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"a": [1, 2**70]}, '{"a":[1,1180591620717411303424]}'),
        (None, "null"),
        ("plain text", "plain text"),
        ("", ""),
        (Body(b'{"a":  1.50}', "application/json"), '{"a":  1.50}'),
        (Body(b"not json", "application/json"), "not json"),
        (Body("é".encode("latin-1"), "text/plain; charset=iso-8859-1"), "é"),
        ({"inner": Body(b"[1 ]", "application/json")}, '{"inner":[1 ]}'),
        ({"inner": b"\x00"}, '{"inner":{"$base64":"AA=="}}'),
    ],
)
def test_anything_else_is_one_text(data: Any, text: str) -> None:
    result = to_call_tool_result(local_envelope(data, "ns.op"))
    assert result == {"content": [{"type": "text", "text": text}], "isError": False}


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("image/png", "image"),
        ("audio/wav", "audio"),
        ("application/pdf", "resource"),
        ("", "resource"),
        # It says that it is text, and is none.
        ("text/plain", "resource"),
        ("text/plain; charset=klingon", "resource"),
    ],
)
def test_bytes_are_what_they_are_said_to_be(content_type: str, kind: str) -> None:
    data = b"\xff\x00\xfe"
    for envelope in (http(Body(data, content_type)), http(data, content_type)):
        (block,) = to_call_tool_result(envelope)["content"]
        assert block["type"] == kind
        inner = block["resource"] if kind == "resource" else block
        assert base64.b64decode(inner["blob" if kind == "resource" else "data"]) == data
        assert inner["mimeType"] == (content_type.partition(";")[0] or "application/octet-stream")
    assert to_call_tool_result(local_envelope(data, "ns.op"))["content"][0]["type"] == "resource"


@pytest.mark.parametrize(
    ("schema", "data", "modern", "legacy"),
    [
        (NUMBER, {"n": 1}, {"n": 1}, {"n": 1}),
        (LIST, [{"n": 1}], [{"n": 1}], {"result": [{"n": 1}]}),
        # By the schema, so that what is listed is kept to.
        ({"anyOf": [NUMBER, {"type": "null"}]}, {"n": 1}, {"n": 1}, {"result": {"n": 1}}),
        ({"type": "string"}, "t", "t", {"result": "t"}),
        (NUMBER, Body(b'{"n": 1}', "application/json"), {"n": 1}, {"n": 1}),
    ],
)
def test_a_schema_makes_it_structured(schema: Any, data: Any, modern: Any, legacy: Any) -> None:
    envelope = local_envelope(data, "ns.op")
    has_schema = spec(output_schema=schema)
    assert to_call_tool_result(envelope, spec=has_schema)["structuredContent"] == modern
    assert to_call_tool_result(envelope, spec=has_schema, is_legacy=True)["structuredContent"] == legacy
    assert "structuredContent" not in to_call_tool_result(envelope, spec=spec())
    assert "structuredContent" not in to_call_tool_result(envelope)


@pytest.mark.parametrize("data", [b"\x00", Body(b"\x00"), Body(b"{", "application/json")])
def test_bytes_are_not_structured(data: Any) -> None:
    result = to_call_tool_result(local_envelope(data, "ns.op"), spec=spec(output_schema=NUMBER))
    assert "structuredContent" not in result


def test_a_response_keeps_what_is_for_its_reader() -> None:
    headers = {
        "X-Total": "7",
        "ETag": '"a"',
        "Content-Encoding": "gzip",
        "Content-Length": "3",
        "Connection": "close, X-Hop",
        "X-Hop": "1",
        "Transfer-Encoding": "chunked",
        "Set-Cookie": "a=1, b=2",
        "Content-Type": "application/json",
    }
    body = Body(b'{"a":  1}', "application/json")
    response = to_http_response(http(body, "application/problem+json", 201, **headers))
    assert (response.status, response.body) == (201, body.content)
    assert response.headers == {"x-total": "7", "content-type": "application/problem+json"}


@pytest.mark.parametrize(
    ("envelope", "status", "content_type", "body"),
    [
        (http({"a": 1}, "application/json; charset=utf-8"), 200, "application/json; charset=utf-8", b'{"a":1}'),
        (http({"a": 1}, "text/html"), 200, "application/json", b'{"a":1}'),
        (http("é", "text/html; charset=latin-1"), 200, "text/html; charset=utf-8", "é".encode()),
        (http("s", "application/json"), 200, "application/json", b'"s"'),
        (http(b"\x00", "image/png", 206), 206, "image/png", b"\x00"),
        (http(b"", "", 204), 204, None, b""),
        (local_envelope({"a": 1}, "a.b"), 200, "application/json", b'{"a":1}'),
        (local_envelope("s", "a.b"), 200, "application/json", b'"s"'),
        (local_envelope(None, "a.b"), 200, "application/json", b"null"),
        (local_envelope(b"\x00", "a.b"), 200, "application/octet-stream", b"\x00"),
        (local_envelope(Body(b"x", "text/csv"), "a.b"), 200, "text/csv", b"x"),
        (mcp_envelope({"a": 1}, structured_content={"a": 1}), 200, "application/json", b'{"a":1}'),
        (blocks_itself(content=[TEXT]), 200, "text/plain; charset=utf-8", b"t"),
        (blocks_itself(content=[TEXT], is_error=True), 502, "text/plain; charset=utf-8", b"t"),
        (blocks_itself(content=[{"type": "image", "data": "AA==", "mimeType": "a/b"}]), 200, "a/b", b"\x00"),
        (
            blocks_itself(
                content=[{"type": "resource", "resource": {"uri": "a:b", "blob": "AA==", "mimeType": "a/b"}}]
            ),
            200,
            "a/b",
            b"\x00",
        ),
        (blocks_itself(content=[TEXT, TEXT]), 200, "application/json", orjson.dumps([TEXT, TEXT])),
    ],
)
def test_envelopes_are_responses(envelope: Any, status: int, content_type: str | None, body: bytes) -> None:
    response = to_http_response(envelope)
    assert (response.status, response.headers.get("content-type"), response.body) == (status, content_type, body)


def test_errors_are_responses_and_results() -> None:
    statuses = [error_to_http_response(CallError(code, "m")).status for code in CODES]
    assert dict(zip(CODES, statuses, strict=True)) == {
        "OPERATION_NOT_FOUND": 404,
        "VALIDATION_ERROR": 400,
        "ACCESS_DENIED": 403,
        "EXECUTION_ERROR": 500,
        "TIMEOUT": 504,
        "ABORTED": 499,
    }
    for details in ({"status": 503}, {"code": -32603}):
        error = CallError("EXECUTION_ERROR", "m", details)
        response = error_to_http_response(error)
        assert response.status == 502
        assert json.loads(response.body) == error.to_dict()
        assert response.headers == {"content-type": "application/json"}
        result = error_to_call_tool_result(error)
        assert result["isError"] is True
        assert json.loads(result["content"][0]["text"]) == error.to_dict()
