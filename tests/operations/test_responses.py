"""Envelopes and errors as tool results and HTTP responses."""

import base64
import json
from typing import Any

import orjson
import pytest
from forebay.envelope import Body, ResponseEnvelope, http_envelope, local_envelope, mcp_envelope
from forebay.operations import (
    CODES,
    CallError,
    OperationSpec,
)
from forebay.operations.responses import (
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


def blocks_only(**more: Any) -> ResponseEnvelope[Any]:
    """Return the envelope of a tool result without structured content."""
    envelope = mcp_envelope(None, **more)
    return ResponseEnvelope(envelope.meta.content, envelope.meta)  # type: ignore[union-attr]


def test_a_tools_result_goes_out_as_it_came() -> None:
    blocks = [TEXT, {"type": "image", "data": "AAAA", "mimeType": "image/png", "_meta": {"new": 1}}]
    envelope = blocks_only(content=blocks, is_error=True, meta={**STAMP, "own": 1})
    assert to_call_tool_result(envelope) == {"content": blocks, "isError": True, "_meta": {"own": 1}}
    assert to_call_tool_result(blocks_only(content=blocks, meta=STAMP)) == {"content": blocks, "isError": False}
    structured = mcp_envelope({"a": 1}, content=[TEXT], structured_content={"a": 1})
    assert to_call_tool_result(structured) == {"content": [TEXT], "isError": False, "structuredContent": {"a": 1}}


def test_what_a_schema_made_of_a_tools_result_is_structured() -> None:
    parsed = mcp_envelope({"n": 1}, content=[{"type": "text", "text": '{"n": 1}'}])
    assert "structuredContent" not in to_call_tool_result(parsed)
    assert to_call_tool_result(parsed, spec=spec(output_schema=NUMBER))["structuredContent"] == {"n": 1}
    blocks = blocks_only(content=[TEXT])
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
        # Declared as text, but not valid in its charset.
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
        # Depends on the schema, so that results fit the listed schema.
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


@pytest.mark.parametrize("data", [Body(b'{"n": 1e400}', "application/json"), {"n": Body(b"1e400", "text/json")}])
def test_a_number_that_python_has_no_room_for_is_in_the_content_only(data: Any) -> None:
    result = to_call_tool_result(local_envelope(data, "ns.op"), spec=spec(output_schema=NUMBER))
    assert "1e400" in result["content"][0]["text"]
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
        (http(None, "text/html"), 200, "text/html", b""),
        (http(None, ""), 200, "application/octet-stream", b""),
        (http(None, "application/json", 200, **{"Content-Length": "0"}), 200, "application/json", b""),
        (http(None, "application/json", 200, **{"Content-Length": "4"}), 200, "application/json", b"null"),
        (local_envelope({"a": 1}, "a.b"), 200, "application/json", b'{"a":1}'),
        (local_envelope("s", "a.b"), 200, "application/json", b'"s"'),
        (local_envelope(None, "a.b"), 200, "application/json", b"null"),
        (local_envelope(b"\x00", "a.b"), 200, "application/octet-stream", b"\x00"),
        (local_envelope(Body(b"x", "text/csv"), "a.b"), 200, "text/csv", b"x"),
        (mcp_envelope({"a": 1}, structured_content={"a": 1}), 200, "application/json", b'{"a":1}'),
        (blocks_only(content=[TEXT]), 200, "text/plain; charset=utf-8", b"t"),
        (blocks_only(content=[TEXT], is_error=True), 502, "text/plain; charset=utf-8", b"t"),
        (blocks_only(content=[{"type": "image", "data": "AA==", "mimeType": "a/b"}]), 200, "a/b", b"\x00"),
        (
            blocks_only(content=[{"type": "resource", "resource": {"uri": "a:b", "blob": "AA==", "mimeType": "a/b"}}]),
            200,
            "a/b",
            b"\x00",
        ),
        (blocks_only(content=[TEXT, TEXT]), 200, "application/json", orjson.dumps([TEXT, TEXT])),
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


@pytest.mark.parametrize(
    "content",
    [[TEXT], [TEXT, TEXT], [], [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]],
)
@pytest.mark.parametrize("is_legacy", [False, True])
def test_an_envelope_that_was_json_is_served_alike(content: Any, is_legacy: bool) -> None:
    for envelope in (
        blocks_only(content=content),
        mcp_envelope({"n": 1}, content=content, structured_content={"n": 1}),
        mcp_envelope({"n": 1}, content=content),
    ):
        again = ResponseEnvelope.from_json(envelope.to_json())
        assert to_http_response(again) == to_http_response(envelope)
        for served_spec in (None, spec(output_schema=NUMBER)):
            dumped = to_call_tool_result(envelope, spec=served_spec, is_legacy=is_legacy)
            assert to_call_tool_result(again, spec=served_spec, is_legacy=is_legacy) == dumped


def test_null_is_structured_where_the_schema_has_it() -> None:
    nothing = local_envelope(None, "ns.op")
    maybe = spec(output_schema={"anyOf": [NUMBER, {"type": "null"}]})
    assert to_call_tool_result(nothing, spec=maybe)["structuredContent"] is None
    assert to_call_tool_result(nothing, spec=maybe, is_legacy=True)["structuredContent"] == {"result": None}
    assert "structuredContent" not in to_call_tool_result(nothing, spec=spec(output_schema=NUMBER))
    assert "structuredContent" not in to_call_tool_result(nothing)


def test_bytes_in_what_a_tool_said_are_json() -> None:
    envelope = mcp_envelope({"n": b"\x00"}, structured_content={"n": 1})
    result = to_call_tool_result(envelope, spec=spec(output_schema=NUMBER))
    assert result["structuredContent"] == {"n": {"$base64": "AA=="}}


@pytest.mark.parametrize("bad", ["b\r\nset-cookie: evil=1", "a\nb", "\x00", "\x7f", "\u20ac", 7, None])
def test_headers_that_would_be_something_else_are_left_out(bad: Any) -> None:
    headers = {"x-good": "caf\xe9\t1", "x-bad": bad, "x bad": "1", "x\r\n": "1", "": "1", "connection": bad}
    response = to_http_response(http_envelope(b"x", status_code=200, headers=headers, content_type="text/plain"))
    assert response.headers == {"x-good": "caf\xe9\t1", "content-type": "text/plain"}


def test_a_content_type_is_on_one_line() -> None:
    kind = "image/png\r\nset-cookie: a=b"
    for envelope in (
        http(b"x", kind),
        local_envelope(Body(b"x", kind), "ns.op"),
        blocks_only(content=[{"type": "image", "data": "eA==", "mimeType": kind}]),
    ):
        assert to_http_response(envelope).headers == {"content-type": "application/octet-stream"}


def test_base64_may_be_on_several_lines() -> None:
    block = {"type": "image", "data": "AAEC\r\nAwQ=\n", "mimeType": "image/png"}
    assert to_http_response(blocks_only(content=[block])).body == bytes(range(5))


@pytest.mark.parametrize("data", ["a", "\xe9", "-_-_AAAA", "not base64 !"])
def test_a_block_that_is_no_base64_is_told_as_it_is(data: str) -> None:
    block = {"type": "image", "data": data, "mimeType": "image/png"}
    response = to_http_response(blocks_only(content=[block]))
    assert (response.status, json.loads(response.body)) == (200, [block])


@pytest.mark.parametrize(
    ("status", "sent"),
    [(100, 200), (103, 200), (0, 502), (-1, 502), (99999, 502), (600, 502), (206, 206), (599, 599)],
)
def test_a_status_is_one_that_can_be_sent(status: int, sent: int) -> None:
    response = to_http_response(http(b"body", status=status))
    assert (response.status, response.body) == (sent, b"body")


@pytest.mark.parametrize("status", [204, 205, 304])
def test_some_statuses_have_no_body(status: int) -> None:
    response = to_http_response(http(b"body", status=status))
    assert (response.status, response.body, response.headers) == (status, b"", {})


@pytest.mark.parametrize("details", [{"b": b"\x00"}, {"o": object()}, {"nan": float("nan")}])
def test_any_details_can_be_told(details: Any) -> None:
    error = CallError("TIMEOUT", "late", details)
    for dumped in (error_to_http_response(error).body, error_to_call_tool_result(error)["content"][0]["text"]):
        assert json.loads(dumped)["error"]["code"] == "TIMEOUT"


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "undefined", "unicode_escape", "raw_unicode_escape", "hex", "rot13", "zlib"]
)
def test_what_is_no_encoding_of_text_is_bytes(charset: str) -> None:
    (block,) = to_call_tool_result(http(Body(b"\\ud800ab-", f"text/plain; charset={charset}")))["content"]
    assert base64.b64decode(block["resource"]["blob"]) == b"\\ud800ab-"


def test_half_a_character_is_bytes() -> None:
    (block,) = to_call_tool_result(http(Body(b"+2AA-", "text/plain; charset=utf-7")))["content"]
    assert block["type"] == "resource"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"$base64": "aGk=", "mime": "x"}, '{"$base64":"aGk=","mime":"x"}'),
        ({"inner": Body(b'{"$base64": 1e999}', "application/json")}, '{"inner":{"$base64": 1e999}}'),
        ([{"$base64": "aGk="}, b"hi"], '[{"$base64":"aGk="},{"$base64":"aGk="}]'),
    ],
)
def test_what_is_served_is_the_data_whatever_its_keys_are(data: Any, text: str) -> None:
    for envelope in (local_envelope(data, "a.b"), http(data), mcp_envelope(data)):
        assert to_http_response(envelope).body.decode() == text
    assert to_call_tool_result(local_envelope(data, "a.b"))["content"] == [{"type": "text", "text": text}]


def test_what_is_structured_keeps_its_keys() -> None:
    data = {"when": {1}, "$base64": "aGk="}
    result = to_call_tool_result(local_envelope(data, "a.b"), spec=spec(output_schema={"type": "object"}))
    assert result["structuredContent"] == {"when": [1], "$base64": "aGk="}


def test_a_block_and_the_details_of_an_error_keep_their_keys() -> None:
    details = {"$base64": "aGk="}
    dumped = json.loads(error_to_http_response(CallError("EXECUTION_ERROR", "no", details)).body)
    assert dumped["error"]["details"] == details
    block: Any
    (block,) = mcp_envelope(None, content=[{"type": "new", "$base64": 1}]).meta.content  # type: ignore[union-attr]
    assert json.loads(block["text"]) == {"type": "new", "$base64": 1}
