"""Output schemas that also allow a handle, and output modes."""

import copy
from typing import Any

import jsonschema
import pytest
from forebay import InvalidArgument
from forebay.outputs.listing import allow_handle
from forebay.outputs.modes import Mode, ToolModes, add_mode_arguments, split_mode_arguments
from hypothesis import given
from hypothesis import strategies as st

HANDLE = {"output_handle": "oh_AAAAAAAAAAAA", "fetch_with": "output_fetch"}

PERSON = {
    "type": "object",
    "properties": {"boss": {"$ref": "#/$defs/Person"}, "name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"Person": {"type": "object", "properties": {"boss": {"$ref": "#/$defs/Person"}}, "required": ["name"]}},
}

instances = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.sampled_from(["name", "boss", "result", "x"]), inner) | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        PERSON,
        {"type": "object"},
        {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"]},
        {"type": "object", "definitions": {"A": {"type": "integer"}}, "properties": {"x": {"$ref": "#/definitions/A"}}},
        {"anyOf": [{"type": "object", "required": ["x"]}, {"type": "object", "required": ["name"]}]},
        {"type": "array"},
        {"type": ["object", "null"], "required": ["x"]},
        {},
    ],
)
@given(instance=instances)
def test_it_takes_what_it_took_or_a_handle(schema: dict[str, Any], instance: Any) -> None:
    either = jsonschema.Draft202012Validator(allow_handle(schema))
    either.check_schema(allow_handle(schema))
    assert either.is_valid(HANDLE)
    is_handle = isinstance(instance, dict) and "output_handle" in instance
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(instance)
    assert either.is_valid(instance) == (is_valid or is_handle)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"type": "object", "properties": {"child": {"$ref": "#/properties/other"}, "other": {"type": "integer"}}},
        {"$id": "https://example.test/schema", "type": "object", "properties": {"child": {"$ref": "#/$defs/A"}}},
        {"type": "object", "$defs": {"A": {"$anchor": "a"}}, "properties": {"child": {"$ref": "#a"}}},
    ],
)
def test_one_that_cannot_be_moved_takes_any_object(schema: dict[str, Any]) -> None:
    assert allow_handle(schema) == {"type": "object"}


def test_what_it_is_a_schema_of_stands_at_its_top() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "integer"}, {"type": "string"}]}},
        "required": ["pair"],
    }
    validator = jsonschema.validators.validator_for(allow_handle(schema))
    assert validator is jsonschema.Draft7Validator
    validator.check_schema(allow_handle(schema))
    assert validator(allow_handle(schema)).is_valid({"pair": [1, "a"]})
    assert not validator(allow_handle(schema)).is_valid({"pair": ["a", 1]})


def test_the_first_pattern_that_matches_counts() -> None:
    modes = ToolModes(
        Mode("auto"), {"list_users": "inline", "list_*": "handle", "*": {"output_inline_limit_bytes": 5000}}
    )
    assert modes.find_mode("list_users").output_mode == "inline"
    assert modes.find_mode("list_rows").output_mode == "handle"
    assert modes.find_mode("other") == Mode("auto", 5000)
    assert modes.find_mode("LIST_rows") == Mode("auto", 5000)


def test_a_call_says_what_it_wants_of_its_own() -> None:
    mode, rest = split_mode_arguments(
        Mode("inline"), {"output_mode": "auto", "output_inline_limit_bytes": 4096, "url": "x"}
    )
    assert (mode, rest) == (Mode("auto", 4096), {"url": "x"})
    mode, rest = split_mode_arguments(Mode("handle"), {"output_mode": None})
    assert (mode, rest) == (Mode("handle"), {})
    with pytest.raises(InvalidArgument, match="output_mode is one of inline, handle, auto, not 'x"):
        split_mode_arguments(Mode(), {"output_mode": "x" * 1000})


def test_the_arguments_are_listed_beside_the_tool_s() -> None:
    properties = {"url": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["url"], "additionalProperties": False}
    before = copy.deepcopy(schema)
    listed = add_mode_arguments(schema, Mode("auto", 2048))
    validator = jsonschema.Draft202012Validator(listed)
    assert validator.is_valid({"url": "x", "output_mode": "handle", "output_inline_limit_bytes": 5000})
    assert not validator.is_valid({"url": "x", "output_mode": "both"})
    assert not validator.is_valid({"output_mode": "handle"})
    assert listed["properties"]["output_mode"]["default"] == "auto"
    assert schema == before, "the original schema is unchanged"
