"""Headers that mirror a request, compared with what the server of the SDK reads."""

import json
from typing import Any

import pytest
from forebay.proxy.http.headers import find_header_annotations, make_message_headers
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import (
    InboundModernRoute,
    classify_inbound_request,
    find_invalid_x_mcp_header,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}

TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from([" a", "a ", "=?base64?YQ==?=", "é", "a\nb", "", "\t", "\x7f", "a b", "\u2028"]),
)
VALUES = st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False))
ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"), st.one_of(VALUES, st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)), max_size=3
)

ANNOTATED = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean", "string", "number", ["string"]])},
    optional={"x-mcp-header": st.sampled_from(["One", "Two", "Three", "one", "no token", "", 5])},
)
SCHEMAS = st.recursive(
    ANNOTATED,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=2)}),
        st.fixed_dictionaries({"$defs": st.dictionaries(st.sampled_from("ab"), inner, max_size=2)}),
        st.fixed_dictionaries({"default": inner}),
    ),
    max_leaves=5,
)
OBJECTS = st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), SCHEMAS, max_size=3)})


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}


def headers_of(message: dict[str, Any], schema: Any = None) -> dict[str, str]:
    return make_message_headers(message, json.dumps(message).encode(), lambda _: schema)


@pytest.mark.slow
@given(st.one_of(OBJECTS, SCHEMAS, st.none()))
def test_annotations_equal_those_of_the_sdk(schema: Any) -> None:
    is_valid = find_invalid_x_mcp_header(schema) is None
    assert find_header_annotations(schema) == (x_mcp_header_map(schema) if is_valid else {})


@pytest.mark.slow
@given(OBJECTS, ARGUMENTS)
def test_argument_headers_are_accepted_by_the_sdk(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    headers = headers_of(request("tools/call", {"name": "t", "arguments": arguments}), schema)
    assert validate_mcp_param_headers(schema, arguments, headers) is None


@given(st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", "x/y"]), TEXTS)
def test_method_and_name_headers_are_accepted_by_the_sdk(method: str, name: str) -> None:
    message = request(method, {"name": name, "uri": name})
    assert isinstance(classify_inbound_request(message, headers=headers_of(message)), InboundModernRoute)


def test_large_integers_are_written_in_full() -> None:
    schema = {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    message = request("tools/call", {"name": "t", "arguments": {"n": 10**30}})
    assert headers_of(message, schema)["mcp-param-N"] == "1" + "0" * 30


def test_a_lone_surrogate_is_left_out() -> None:
    schema = {"properties": {"s": {"type": "string", "x-mcp-header": "S"}}}
    message = request("tools/call", {"name": "t", "arguments": {"s": "\ud800"}})
    assert headers_of(message, schema).keys() == {"mcp-protocol-version", "mcp-method", "mcp-name"}


def test_older_versions_have_no_such_headers() -> None:
    assert headers_of({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}) == {}
    assert headers_of({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == {}
