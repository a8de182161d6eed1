"""Which part of a tool result is its payload."""

import base64
import json
from typing import Any

import orjson
import pytest
from forebay.outputs.result import (
    RESOURCE_META_KEY,
    ResultPayload,
    exceeds_limit,
    extract_block_fields,
    extract_payload,
)
from forebay.store.payload import read_all
from forebay.wire.lazy_json import parse_lazy
from hypothesis import given
from hypothesis import strategies as st
from texts import nasty_text


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def result(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"content": list(blocks), "isError": False, **more}


def load_payload(found: ResultPayload) -> Any:
    return json.loads(bytes(read_all(found.to_input())))


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (text('[{"id": 1}]'), ResultPayload('[{"id": 1}]')),
        (text(""), ResultPayload("")),
        (
            {"type": "image", "data": to_base64(b"\x89PNG"), "mimeType": "image/png"},
            ResultPayload(b"\x89PNG", "image/png"),
        ),
        ({"type": "audio", "data": to_base64(b"RIFF"), "mimeType": "audio/wav"}, ResultPayload(b"RIFF", "audio/wav")),
        (
            {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/csv", "text": "a,b"}},
            ResultPayload("a,b", "text/csv"),
        ),
        (
            {"type": "resource", "resource": {"uri": "https://a/b.csv?page=1", "text": "a,b"}},
            ResultPayload("a,b", "text/csv"),
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a/B.TSV", "blob": to_base64(b"a")}},
            ResultPayload(b"a", "text/tab-separated-values"),
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a.csv", "mimeType": "text/plain", "text": "a,b"}},
            ResultPayload("a,b", "text/plain"),
        ),
        ({"type": "resource", "resource": {"uri": "file:///csv", "text": "a,b"}}, ResultPayload("a,b")),
        (
            {
                "type": "resource",
                "resource": {"uri": "a:b", "mimeType": "application/gzip", "blob": to_base64(b"\x1f\x8b")},
            },
            ResultPayload(b"\x1f\x8b", "application/gzip"),
        ),
    ],
)
def test_a_sole_block_is_its_content(block: dict[str, Any], found: ResultPayload) -> None:
    assert extract_payload(result(block)) == found


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [text("a"), text("b")],
        [{"type": "image", "data": "not base64!", "mimeType": "image/png"}],
        [{"type": "image", "data": "nicht für base64", "mimeType": "image/png"}],
        [{"type": "resource_link", "uri": "a:b", "name": "c"}],
        [{"type": "resource", "resource": {"uri": "a:b"}}],
        [text("a"), {"type": "image", "data": to_base64(b"x"), "mimeType": "image/png"}],
    ],
)
def test_anything_else_is_all_of_it(blocks: list[dict[str, Any]]) -> None:
    whole = result(*blocks, resultType="complete", _meta={"io.modelcontextprotocol/serverInfo": {"name": "s"}})
    found = extract_payload(whole)
    assert (load_payload(found), found.mime_type) == ({"content": blocks, "isError": False}, "application/json")


UNKNOWN_MEMBERS: list[dict[str, Any]] = [
    result(text("a"), extra={"important": 1}),
    result(text("[1]"), structuredContent={"result": [1]}, extra=1),
    result(text("a") | {"foo": "bar"}),
    result(text("[1]") | {"foo": "bar"}, structuredContent={"result": [1]}),
    result(text("a") | {"annotations": {"priority": 1}}, text("b"), structuredContent={"result": ["a", "b"]}),
    result(text("a") | {"_meta": {"mine": 1}}, text("b"), structuredContent={"result": ["a", "b"]}),
    result({"type": "image", "data": "QUFB", "mimeType": "image/png", "alt": "a"}),
    result({"type": "image", "data": "QUFB", "mimeType": "no type"}),
    result({"type": "resource", "resource": {"uri": "a:b", "text": "a"}, "title": "t"}),
    result({"type": "resource", "resource": {"uri": "a:b", "text": "a", "blob": "QUFB"}}),
    result({"type": "resource", "resource": {"uri": "a:b", "text": "a"}, "_meta": {RESOURCE_META_KEY: 1}}),
    result(text("a") | {"_meta": ["mine"]}),
    result(text("a"), _meta=["mine"]),
    {"content": [text("a")], "isError": "perhaps"},
]


@pytest.mark.parametrize("whole", UNKNOWN_MEMBERS)
def test_what_has_members_that_have_no_other_place_is_kept_whole(whole: dict[str, Any]) -> None:
    assert load_payload(extract_payload(whole)) == whole
    assert load_payload(extract_payload(parse_lazy(orjson.dumps(whole), max_string_bytes=20))) == whole


def test_a_null_says_nothing() -> None:
    whole = {"content": [text("a") | {"_meta": None}], "_meta": None, "isError": None, "structuredContent": None}
    assert extract_payload(whole) == ResultPayload("a")
    resource = {"type": "resource", "resource": {"uri": "a:b", "text": "a"}, "_meta": None}
    assert extract_payload(result(resource)) == ResultPayload("a")
    assert extract_block_fields(result(resource)) == {"_meta": {RESOURCE_META_KEY: {"uri": "a:b"}}}


def test_what_is_no_block_is_not_lost() -> None:
    for structured in ({}, {"structuredContent": {"result": "a"}}):
        whole = {"content": [text("a"), "b"], **structured}
        assert load_payload(extract_payload(whole)) == whole


def test_what_the_tool_says_beside_it_is_kept_with_all_of_it() -> None:
    meta = {"mine": 1, "io.modelcontextprotocol/serverInfo": {}}
    assert load_payload(extract_payload(result(text("a"), _meta=meta), include_meta=True))["_meta"] == {"mine": 1}


ROWS = [{"id": number, "name": f"é {number}"} for number in range(50)]


@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        # The `mcp` SDK's result for a list: one block for each item, and a wrapper.
        ([text(json.dumps(row, indent=2, ensure_ascii=False)) for row in ROWS], {"result": ROWS}),
        # fastmcp's result for a list: one block.
        ([text(orjson.dumps(ROWS).decode())], {"result": ROWS}),
        ([text(json.dumps({"rows": ROWS}))], {"rows": ROWS}),
        ([text(json.dumps({"rows": ROWS}, indent=2))], {"rows": ROWS}),
        ([text(json.dumps({"rows": ROWS}, ensure_ascii=False))], {"rows": ROWS}),
        ([text("a"), text("b")], {"result": ["a", "b"]}),
        ([text("7")], {"result": 7}),
        ([text(json.dumps({"result": ROWS}))], {"result": ROWS}),
        ([], {"rows": ROWS}),
        ([text("[1]")], [1]),
    ],
)
def test_what_is_said_twice_is_stored_once(blocks: list[dict[str, Any]], structured: Any) -> None:
    found = extract_payload(result(*blocks, structuredContent=structured))
    assert (load_payload(found), found.mime_type) == (structured, "application/json")


@pytest.mark.parametrize("name", ["result", "content"])
def test_a_text_that_was_wrapped_is_a_text(name: str) -> None:
    lines = "one\ntwo\n"
    assert extract_payload(result(text(lines), structuredContent={name: lines})) == ResultPayload(lines)


@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        ([text("a summary")], {"rows": ROWS}),
        ([text("a"), text("c")], {"result": ["a", "b"]}),
        ([text("a")], {"result": ["a", "b"]}),
        ([text("[1]"), {"type": "image", "data": to_base64(b"x"), "mimeType": "image/png"}], {"result": [1]}),
        ([text("{")], {"a": 1}),
        ([text("a\nb")], {"name": "a\nb"}),
        ([text("a")], {"content": "a", "more": 1}),
        ([text("a")], {"content": "b"}),
        # Equal in Python, but not the same JSON.
        ([text("[1,0,1.0]")], {"result": [True, False, 1]}),
        ([text('{"a":1,"a":2,"n":12345678901234567890123}')], {"a": 2, "n": 1.2345678901234568e22}),
    ],
)
def test_what_is_not_said_twice_is_kept_whole(blocks: list[dict[str, Any]], structured: Any) -> None:
    whole = result(*blocks, structuredContent=structured)
    assert load_payload(extract_payload(whole)) == whole


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | nasty_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(nasty_text, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.slow
@given(st.lists(nasty_text, max_size=4), st.none() | json_values)
def test_nothing_is_lost(texts: list[str], structured: Any) -> None:
    """What the payload leaves out can be reconstructed from it."""
    whole = result(*map(text, texts))
    if structured is not None:
        whole["structuredContent"] = structured
    found = extract_payload(whole)
    if isinstance(payload := found.data, str):
        assert [payload] == texts
        assert structured in (None, payload, {"result": payload}, {"content": payload})
    elif load_payload(found) != json.loads(json.dumps(whole)):
        assert load_payload(found) == json.loads(json.dumps(structured))


@pytest.mark.slow
@given(st.lists(nasty_text, max_size=4), json_values, st.integers(1, 2000), st.booleans())
def test_the_size_is_that_on_the_wire(texts: list[str], structured: Any, limit: int, is_ascii: bool) -> None:
    whole = result(*map(text, texts), structuredContent=structured)
    size = len(json.dumps(whole, separators=(",", ":"), ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"))
    # Numbers may be serialized in more than one way.
    if abs(size - limit) > 64:
        assert exceeds_limit(whole, limit, is_ascii=is_ascii) == (size > limit)


@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize(
    "structured", [[[n, f"é{n}", None] for n in range(2000)], {"rows": {f"k{n}": {"a": True} for n in range(2000)}}]
)
def test_many_items_are_measured_like_few(structured: Any, is_ascii: bool) -> None:
    whole = result(structuredContent=structured)
    size = len(json.dumps(whole, separators=(",", ":"), ensure_ascii=is_ascii).encode())
    for limit in (10, size // 2, size - 1, size, 2 * size):
        assert exceeds_limit(whole, limit, is_ascii=is_ascii) == (size > limit)


def test_numbers_that_have_no_end_are_stored_once() -> None:
    rows = [{"id": 2**64 + number} for number in range(3)]
    structured = {"result": rows}
    for texts in ([json.dumps(rows, indent=2)], [json.dumps(structured)], [json.dumps(row, indent=2) for row in rows]):
        found = extract_payload(result(*map(text, texts), structuredContent=structured))
        assert load_payload(found) == structured


def test_what_a_resource_is_called_stays_beside_its_text() -> None:
    resource = {"uri": "file:///a/b.py", "mimeType": "text/x-python", "text": "print(1)", "_meta": {"a": 1}}
    fields = extract_block_fields(result({"type": "resource", "resource": resource, "_meta": {"b": 2}}))
    resource_fields = {"uri": "file:///a/b.py", "mimeType": "text/x-python", "_meta": {"a": 1}}
    assert fields == {"_meta": {"b": 2, "forebay/resource": resource_fields}}


def test_what_says_that_it_is_not_structured_is_its_content() -> None:
    assert extract_payload(result(text("a,b\n"), structuredContent={"unstructured": True})) == ResultPayload("a,b\n")
