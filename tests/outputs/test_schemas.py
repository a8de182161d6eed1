"""Output schemas that also allow a handle."""

from typing import Any

import jsonschema
import pytest
from forebay.outputs.schemas import allow_handle, allow_handle_for_fastmcp, allow_handle_for_older_fastmcp
from forebay.store.handles import Descriptor
from hypothesis import given
from hypothesis import strategies as st

HANDLE = Descriptor(
    "oh_AAAAAAAAAAAA", "application/json", 50_000, None, "[1, 2", "2027-01-15T08:00:00Z", items_path=""
).to_dict()

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
def test_the_schema_accepts_the_original_values_and_a_handle(schema: dict[str, Any], instance: Any) -> None:
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
def test_a_schema_that_cannot_be_nested_accepts_any_object(schema: dict[str, Any]) -> None:
    assert allow_handle(schema) == {"type": "object"}


def test_the_schema_for_an_older_fastmcp_keeps_the_mark_of_wrapped_results() -> None:
    marker = "x-fastmcp-wrap-result"
    wrapped = {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"], marker: True}
    extended = allow_handle_for_older_fastmcp(wrapped)
    assert extended[marker] is True
    validator = jsonschema.Draft202012Validator(extended)
    # Its client reads `result` of every response, and finds none in a handle.
    for instance, is_valid in (
        (HANDLE, True),
        ({**HANDLE, "result": None}, True),
        ({"result": [1]}, True),
        ({}, False),
    ):
        assert validator.is_valid(instance) is is_valid
    assert allow_handle_for_older_fastmcp(PERSON) == allow_handle_for_fastmcp(PERSON)


def test_the_schema_dialect_stays_at_the_root() -> None:
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
