"""Envelopes: their content, how they are detected, and their lossless JSON form."""

import dataclasses
import datetime
import enum
import json
import subprocess
import sys
import time
import uuid
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from documents import values
from forebay import InvalidArgument, InvalidText
from forebay.envelope import (
    HTTP_RESPONSE_META_SCHEMA,
    LOCAL_RESPONSE_META_SCHEMA,
    MCP_CONTENT_BLOCK_SCHEMA,
    MCP_RESPONSE_META_SCHEMA,
    RESPONSE_ENVELOPE_SCHEMA,
    RESPONSE_META_SCHEMA,
    RESPONSE_SOURCES,
    Body,
    MCPResponseMeta,
    ResponseEnvelope,
    body,
    content_block,
    content_blocks,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
    unwrap,
)
from forebay.operations import event_from_json, event_to_json
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ImageContent, TextContent

BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026"}},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "a://b", "mimeType": "text/plain", "text": "t"}},
    {"type": "resource", "resource": {"uri": "a://b", "blob": "AAAA"}},
    {"type": "resource_link", "uri": "a://b", "name": "n", "description": "d", "mimeType": "text/plain"},
]

HTTP: dict[str, Any] = {"status_code": 200, "headers": {"x": "1, 2"}, "content_type": "application/json"}


def all_sources(data: Any) -> list[ResponseEnvelope[Any]]:
    return [
        local_envelope(data, "ns.name"),
        http_envelope(data, **HTTP),
        mcp_envelope(data, content=BLOCKS),
        mcp_envelope(data, is_error=True, content=[], structured_content={"a": 1}, meta={"k": "v"}),
    ]


def test_the_keys_are_those_of_the_wire() -> None:
    before = time.time_ns() // 1_000_000
    local, http, mcp, error = [json.loads(envelope.to_json()) for envelope in all_sources(1)]
    assert local["data"] == 1
    assert local["meta"].keys() == {"source", "operationId", "timestamp"}
    assert before <= local["meta"]["timestamp"] <= time.time_ns() // 1_000_000
    assert http["meta"] == {
        "source": "http",
        "statusCode": 200,
        "headers": {"x": "1, 2"},
        "contentType": "application/json",
    }
    assert mcp["meta"] == {"source": "mcp", "isError": False, "content": BLOCKS}
    assert error["meta"] == {
        "source": "mcp",
        "isError": True,
        "content": [],
        "structuredContent": {"a": 1},
        "_meta": {"k": "v"},
    }
    assert [envelope.is_error for envelope in all_sources(1)] == [False, False, False, True]


def test_nothing_is_a_value_too() -> None:
    assert unwrap(local_envelope(None, "a.b")) is None


@pytest.mark.slow
@given(
    values
    | st.binary(max_size=20)
    | st.dictionaries(st.sampled_from(["$base64", "$$base64", "base64", "a"]), st.binary() | st.text(max_size=5)),
)
def test_json_loses_nothing(data: Any) -> None:
    for envelope in all_sources(data):
        again = ResponseEnvelope.from_json(envelope.to_json())
        assert again == envelope
        assert type(again.data) is type(data)
        assert again.to_json() == envelope.to_json()


def test_a_key_of_ours_with_other_content_is_kept() -> None:
    again = ResponseEnvelope.from_json(
        local_envelope(1, "a.b").to_json().replace(b'"data":1', b'"data":{"$base64":"no!"}')
    )
    assert again.data == {"$base64": "no!"}


def test_equal_bodies_have_equal_hashes() -> None:
    bodies = {Body(b"1", "application/json"), Body(b"1", "application/json"), Body(b"1", "text/plain")}
    assert len(bodies) == 2
    assert Body(b"1", "text/plain") != b"1"


def test_json_may_be_text() -> None:
    envelope = local_envelope({"a": "é", "b": b"\xff"}, "a.b")
    assert ResponseEnvelope.from_json(envelope.to_json().decode()) == envelope


def test_a_body_that_is_no_text_says_where_it_is_none() -> None:
    with pytest.raises(InvalidText, match="not UTF-8 at byte 2") as caught:
        Body("é".encode() + b"\xff").text()
    assert isinstance(caught.value, ValueError)


def test_what_is_nested_deeply_survives_or_is_told() -> None:
    deep = json.loads("[" * 600 + "]" * 600)
    assert unwrap(ResponseEnvelope.from_json(local_envelope(deep, "a.b").to_json())) == deep
    assert event_from_json(event_to_json({"requestId": "1", "operationId": "a.b", "input": deep}))["input"] == deep
    deeper = b"[" * 1000 + b'{"$base64":"aGk="}' + b"]" * 1000
    for read in (ResponseEnvelope.from_json, event_from_json):
        with pytest.raises(InvalidArgument, match="nested too deeply"):
            read(local_envelope("x", "a.b").to_json().replace(b'"x"', deeper))


def test_numbers_of_any_length_survive() -> None:
    data = {"id": 2**70, "small": 7, "float": 1.5}
    assert unwrap(ResponseEnvelope.from_json(local_envelope(data, "a.b").to_json())) == data
    assert Body(b'{"id": 1180591620717411303424}', "application/json").json() == {"id": 2**70}


def test_a_body_of_json_is_written_as_it_came() -> None:
    body = Body(b'{"a": 1.50, "b": [1,2]}', "application/problem+json; charset=utf-8")
    text = http_envelope(body, **HTTP).to_json()
    assert text.startswith(b'{"data":{"a": 1.50, "b": [1,2]},"meta":')
    assert body.json() is body.json()
    assert (body.text(), len(body)) == ('{"a": 1.50, "b": [1,2]}', 23)


@pytest.mark.parametrize("body", [Body(b"{", "application/json"), Body(b"{}"), Body(b"\xff", "text/plain")])
def test_a_body_that_is_no_json_is_bytes(body: Body) -> None:
    again = ResponseEnvelope.from_json(http_envelope(body, **HTTP).to_json())
    assert unwrap(again) == body.content


@pytest.mark.parametrize("source", RESPONSE_SOURCES)
def test_source_is_all_that_is_looked_at(source: str) -> None:
    assert is_response_envelope({"data": None, "meta": {"source": source}})


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "data",
        [],
        {},
        {"data": 1},
        {"meta": {"source": "local"}},
        {"data": 1, "meta": None},
        {"data": 1, "meta": "local"},
        {"data": 1, "meta": {"source": "ftp"}},
        {"data": 1, "meta": {"source": ["local"]}},
        {"data": 1, "meta": {}},
    ],
)
def test_what_is_no_envelope(value: Any) -> None:
    assert not is_response_envelope(value)
    with pytest.raises(InvalidArgument):
        ResponseEnvelope.from_dict(value)


def test_every_envelope_is_told_for_one_before_and_after_json() -> None:
    for envelope in all_sources({"a": 1}):
        assert is_response_envelope(envelope)
        assert is_response_envelope(json.loads(envelope.to_json()))


def test_an_envelope_that_lacks_something_says_what() -> None:
    with pytest.raises(InvalidArgument, match=r"statusCode, headers and contentType; http_envelope\(\) makes one"):
        ResponseEnvelope.from_dict({"data": 1, "meta": {"source": "http"}})


def test_schemas_take_what_the_factories_make_and_nothing_less() -> None:
    schemas = [LOCAL_RESPONSE_META_SCHEMA, HTTP_RESPONSE_META_SCHEMA, MCP_RESPONSE_META_SCHEMA]
    for number, envelope in enumerate(all_sources({"a": 1})):
        dumped = json.loads(envelope.to_json())
        jsonschema.Draft202012Validator(RESPONSE_ENVELOPE_SCHEMA).validate(dumped)
        jsonschema.Draft202012Validator(RESPONSE_META_SCHEMA).validate(dumped["meta"])
        for other, schema in enumerate(schemas):
            assert jsonschema.Draft202012Validator(schema).is_valid(dumped["meta"]) == (other == min(number, 2))
        for key in dumped["meta"].keys() - {"structuredContent", "_meta"}:
            less = {name: value for name, value in dumped["meta"].items() if name != key}
            assert not jsonschema.Draft202012Validator(RESPONSE_META_SCHEMA).is_valid(less)


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_stay_as_they_are(block: dict[str, Any]) -> None:
    assert content_block(block) == block
    assert jsonschema.Draft202012Validator(MCP_CONTENT_BLOCK_SCHEMA).is_valid(block)
    assert content_block({**block, "_meta": {"new": 1}}) == {**block, "_meta": {"new": 1}}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "shape": [1, 2]},
        {"type": "text"},
        {"type": "text", "text": 7},
        {"type": "image", "data": "AAAA"},
        {"type": "resource", "resource": {}},
        {"type": "resource_link", "uri": "a://b"},
        {},
        [1],
        None,
    ],
)
def test_a_block_that_is_not_known_is_text_with_its_json(block: Any) -> None:
    dumped = content_block(block)
    assert dumped["type"] == "text"
    assert json.loads(dumped["text"]) == block


def test_blocks_of_an_sdk_are_mapped() -> None:
    sdk = [TextContent(type="text", text="t"), ImageContent(type="image", data="AAAA", mime_type="image/png")]
    assert content_blocks(sdk) == [
        {"type": "text", "text": "t"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]
    assert content_blocks(None) == []
    assert content_blocks([MappingProxyType({"type": "text", "text": "t"})]) == [{"type": "text", "text": "t"}]
    meta = mcp_envelope(None, content=sdk).meta
    assert isinstance(meta, MCPResponseMeta)
    assert meta.content[0] == {"type": "text", "text": "t"}


def test_the_mcp_package_is_not_needed() -> None:
    script = (
        "import sys, forebay.envelope; "
        "print([name for name in ('mcp', 'mcp_types', 'pydantic', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "content",
    [
        b'{"$base64":"aGk="}',
        b'{"x":{"$base64":"!!"}}',
        b'{"$base64":"a"}',
        b'{"$$base64":"aGk="}',
        b'["\\ud800"]',
        b'{"a\\"$base64":1}',
        b'{"a\\\\\\"$base64":"$base64","b\\\\":{"$base64":"aGk="}}',
    ],
)
def test_a_body_may_say_anything(content: bytes) -> None:
    envelope = http_envelope(Body(content, "application/json"), **HTTP)
    assert unwrap(ResponseEnvelope.from_json(envelope.to_json())) == json.loads(content)


ODD_NUMBERS = b'{"x": 1.00000000000000000001, "y": 1e-400, "z": 1.10}'


@pytest.mark.parametrize("beside", [1, 2**70, "\ud800", {2**70}, Decimal("1.5"), {"\ud800": Decimal(2**70)}])
def test_a_body_goes_out_as_it_came_whatever_is_beside_it(beside: Any) -> None:
    dumped = local_envelope({"beside": beside, "body": Body(ODD_NUMBERS, "application/json")}, "a.b").to_json()
    assert b'"body":' + ODD_NUMBERS in dumped


class Kind(enum.Enum):
    A = "a"


@pytest.mark.parametrize("beside", [2**70, "\ud800"])
@pytest.mark.parametrize(
    ("key", "text"),
    [(uuid.UUID(int=1), str(uuid.UUID(int=1))), (Kind.A, "a"), (datetime.date(2026, 1, 2), "2026-01-02")],
)
def test_a_key_is_written_whatever_is_beside_it(key: Any, text: str, beside: Any) -> None:
    data = {"inner": [{key: beside}], "more": (1, None)}
    dumped = local_envelope(data, "a.b").to_json()
    assert json.loads(dumped)["data"] == {"inner": [{text: beside}], "more": [1, None]}


def test_a_key_like_ours_in_a_body_changes_nothing_else_of_it() -> None:
    content = b'{"a": 1.10, "b": {"$base64" : 1e-400, "c": "\\"$base64\\": \\ud800"}}'
    dumped = local_envelope([Body(content, "application/json"), b""], "a.b").to_json()
    assert content.replace(b'{"$base64"', b'{"$$base64"') in dumped


@pytest.mark.parametrize(
    "number", [b"1e999", b"-1.5E+400", b"9999e306", b"1" * 299 + b"e11", b"1" * 310 + b".0", b"1" * 5000]
)
def test_a_body_with_a_number_that_cannot_be_read_is_the_bytes_that_came(number: bytes) -> None:
    body = Body(b'{"a":%s,"b":"kept"}' % number, "application/json")
    with pytest.raises(ValueError, match=r"more than a number|integer string"):
        body.json()
    envelope = http_envelope(body, **HTTP)
    assert unwrap(ResponseEnvelope.from_json(envelope.to_json())) == body.content
    event = event_from_json(event_to_json({"requestId": "r", "output": http_envelope([body], **HTTP).to_dict()}))
    assert event["output"]["data"] == [body.content]


@pytest.mark.parametrize("number", [b"1e308", b"1e-999", b"1" * 300])
def test_a_body_with_a_long_number_is_what_it_stands_for(number: bytes) -> None:
    envelope = http_envelope(Body(number, "application/json"), **HTTP)
    assert unwrap(ResponseEnvelope.from_json(envelope.to_json())) == json.loads(number)


@pytest.mark.parametrize("content", [b'{"x":1e400}', b'[-1E+309, "1234567890123456789012"]'])
def test_a_number_that_python_has_no_room_for_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="is more than a number here can be; use the bytes"):
        Body(content, "application/json").json()


def test_half_of_a_surrogate_pair_survives() -> None:
    envelope = mcp_envelope({"\ud800": "\udfff"}, content=[{"type": "text", "text": "\ud800"}])
    assert ResponseEnvelope.from_json(envelope.to_json()) == envelope


@pytest.mark.parametrize(
    "meta",
    [
        {"source": "local", "operationId": "a.b", "timestamp": float("nan")},
        {"source": "local", "operationId": "a.b", "timestamp": float("inf")},
        {"source": "local", "operationId": "a.b", "timestamp": 10**400},
        {"source": "http", "statusCode": True, "headers": {}, "contentType": ""},
        {"source": "mcp", "isError": False, "content": [], "_meta": 5},
    ],
)
def test_a_meta_that_cannot_be_is_refused(meta: Any) -> None:
    with pytest.raises(InvalidArgument):
        ResponseEnvelope.from_dict({"data": 1, "meta": meta})


@pytest.mark.parametrize(
    "data", [b"[" * 5000 + b"]" * 5000, b"[NaN]", b"{", b'[NaN,"1234567890123456789012"]', b"[1e999]", '["\ud800"]']
)
def test_what_is_no_envelope_s_json_is_told(data: bytes | str) -> None:
    with pytest.raises(InvalidArgument, match="not JSON"):
        ResponseEnvelope.from_json(data)


def test_bytes_in_a_block_that_is_not_known_are_told_of() -> None:
    assert content_block({"type": "new", "raw": b"hi"}) == {
        "type": "text",
        "text": '{"type":"new","raw":{"$base64":"aGk="}}',
    }


def test_data_is_walked_through_only_where_it_has_a_key_like_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []
    walk = body.to_jsonable

    def count_calls(data: Any) -> Any:
        walked.append(data)
        return walk(data)

    monkeypatch.setattr(body, "to_jsonable", count_calls)
    local_envelope([{"id": number} for number in range(100)], "a.b").to_json()
    assert walked == []
    assert json.loads(local_envelope({"a": b"hi"}, "a.b").to_json())["data"] == {"a": {"$base64": "aGk="}}
    assert walked == [b"hi"]


@dataclasses.dataclass
class Record:
    blob: Any
    note: Any = None


@pytest.mark.parametrize(
    ("data", "again"),
    [
        (Body(b'{"\\u0024base64":"AAAA"}', "application/json"), {"$base64": "AAAA"}),
        (Body(b'{"$b\\u0061se64":"AAAA"}', "application/json"), {"$base64": "AAAA"}),
        ({"a": b"x", "b": 2**70, "c": {"$base64": "AAAA"}}, {"a": b"x", "b": 2**70, "c": {"$base64": "AAAA"}}),
        (Record({"$base64": "AAAA"}), {"blob": {"$base64": "AAAA"}, "note": None}),
        ({"$base64": 1, "$$base64": 2, "a": b"x"}, {"$base64": 1, "$$base64": 2, "a": b"x"}),
        (Record(b"x", "the key $base64"), {"blob": b"x", "note": "the key $base64"}),
        (TextContent(type="text", text="t"), {"type": "text", "text": "t", "annotations": None, "meta": None}),
        ([b"x", b"x", {"$base64": "AAAA"}], [b"x", b"x", {"$base64": "AAAA"}]),
    ],
)
def test_nothing_of_theirs_is_taken_for_ours(data: Any, again: Any) -> None:
    envelope = local_envelope(data, "a.b")
    assert unwrap(ResponseEnvelope.from_json(envelope.to_json())) == again
    assert event_from_json(event_to_json({"requestId": "r", "output": envelope.to_dict()}))["output"]["data"] == again
