"""Properties of casts, for any schema and any value."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from forebay.operations import Caster, cast
from forebay.operations.validation import Validator, map_schemas
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schemas import (
    Schema,
    ambiguous,
    anything,
    conditional,
    fits,
    fitting,
    junk,
    plain_schemas,
    schemas,
    small,
    wild,
)

pytestmark = pytest.mark.slow


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def look_up(value: Any, pointer: str) -> Any:
    for name in pointer.split("/")[1:]:
        value = value[int(name)] if isinstance(value, list) else value[name.replace("~1", "/").replace("~0", "~")]
    return value


def loosen(schema: Schema) -> Schema:
    """Return a schema with `anyOf` for each `oneOf`."""
    loose: Schema = map_schemas(
        schema, lambda keywords, _: {word.replace("oneOf", "anyOf"): keywords[word] for word in keywords}
    )
    return loose


@given(schemas | ambiguous.map(loosen), anything)
def test_a_result_is_valid(schema: Schema, value: Any) -> None:
    assert fits(schema, cast(schema, value))


SIMPLE_VALUES: list[Any] = [None, 0, "", False, [], {}]


def has_simple_values(root: Schema) -> bool:
    """Return whether each schema, also each nested one, accepts a simple value or a value of an enum."""
    pointers: list[str] = []
    choices = [*SIMPLE_VALUES]

    def collect(keywords: Schema, pointer: str) -> Schema:
        pointers.append(pointer)
        choices.extend([*keywords.get("enum", ()), *([keywords["const"]] if "const" in keywords else [])])
        return keywords

    map_schemas(root, collect)
    defs = {"root": {**root, "$id": "urn:root"}}
    nested = [{"$ref": f"urn:root#{pointer}", "$defs": defs} for pointer in pointers]
    return all(any(fits(schema, choice) for choice in choices) for schema in nested)


def has_nested_unions(schema: Schema) -> bool:
    """Return whether a member of a `oneOf` is a `oneOf` itself, or a reference that may be one."""
    members: list[Any] = []

    def collect(keywords: Schema, _: str) -> Schema:
        members.extend(keywords.get("oneOf", ()))
        return keywords

    map_schemas(schema, collect)
    return any(isinstance(member, dict) and not member.keys().isdisjoint({"oneOf", "$ref"}) for member in members)


@given(ambiguous, anything)
@example({"oneOf": [{"type": "string"}, {"const": "x"}]}, {"b": {}})
@example({"oneOf": [{"type": "string"}, {"const": {}}, {"enum": [{}]}]}, {"b": {}})
def test_a_result_only_breaks_a_one_of_with_several_matching_members(schema: Schema, value: Any) -> None:
    # A placeholder for a union in a union may fit two members of the outer one; then the value stays as it is.
    if has_simple_values(schema) and not has_nested_unions(schema):
        assert fits(loosen(schema), cast(schema, value))


@given(schemas | ambiguous, anything)
def test_a_second_cast_changes_nothing(schema: Schema, value: Any) -> None:
    once = cast(schema, value)
    assert cast(schema, once, on_replaced=lambda path, _: pytest.fail(path)) is once


@given(schemas | wild | ambiguous, anything)
def test_a_valid_value_stays_valid(schema: Schema, value: Any) -> None:
    if fits(schema, value):
        assert fits(schema, cast(schema, value))
        assert fits(schema, Caster(schema).normalize(value))


@settings(max_examples=400)
@given(conditional, small)
@example({"properties": {"a": {"default": 1}, "b": {}}, "maxProperties": 1}, {"b": 1})
@example({"properties": {"a": {}}, "dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1})
def test_a_valid_value_stays_valid_under_conditions(schema: Schema, value: Any) -> None:
    if fits(schema, value):
        assert fits(schema, cast(schema, value))


@given(schemas | wild | ambiguous, anything)
def test_value_and_schema_are_not_modified_and_paths_lead_to_replaced_values(schema: Schema, value: Any) -> None:
    before = copy.deepcopy((schema, value))
    replaced: list[tuple[str, Any]] = []
    result = cast(schema, value, on_replaced=lambda path, old: replaced.append((path, old)))
    assert as_json([schema, value]) == as_json([*before])
    for path, old in replaced:
        assert look_up(value, path) is old
    json.dumps(result)


@given(st.data(), schemas)
def test_a_valid_value_without_surplus_is_unchanged(data: st.DataObject, schema: Schema) -> None:
    value = data.draw(fitting(schema, schema))
    assert fits(schema, value)
    result = cast(schema, value, on_replaced=lambda path, _: pytest.fail(path))
    assert fits(schema, result)
    if '"default"' not in as_json(schema):
        assert result == value


@given(schemas | wild | ambiguous | conditional, anything)
def test_normalize_invents_nothing(schema: Schema, value: Any) -> None:
    schema = json.loads(as_json(schema).replace('"default"', '"x-default"'))
    assert is_part(Caster(schema).normalize(value), value)


def is_part(result: Any, value: Any) -> bool:
    """Return whether a result is a value without some properties and last items, and with scalars converted."""
    if isinstance(result, dict):
        return isinstance(value, dict) and all(name in value and is_part(result[name], value[name]) for name in result)
    if isinstance(result, list):
        return isinstance(value, list) and len(result) <= len(value) and all(map(is_part, result, value))
    if result is value or json.dumps(value) == json.dumps(result).strip('"'):
        return True
    one, other = (float({"true": 1, "false": 0}.get(str(scalar).lower(), scalar)) for scalar in (result, value))
    return one == other


def is_circular(root: Schema) -> bool:
    """Return whether a union leads back to itself without a value in between, which JSON Schema leaves undefined."""

    def leads_back(schema: Any, path: list[int], last_union: int) -> bool:
        if not isinstance(schema, dict):
            return False
        if id(schema) in path:
            return last_union >= path.index(id(schema))
        union = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        others = [*schema.get("allOf", ()), *([look_up(root, schema["$ref"][1:])] if "$ref" in schema else [])]
        path = [*path, id(schema)]
        return any(leads_back(member, path, len(path) - 1) for member in union) or any(
            leads_back(other, path, last_union) for other in others
        )

    return any(leads_back(schema, [], -1) for schema in iter_objects(root))


def iter_objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from iter_objects(item)


@given(schemas | wild | ambiguous, anything)
def test_values_that_need_no_change_would_not_be_changed(schema: Schema, value: Any) -> None:
    for candidate in (value, cast(schema, value)):
        caster = Caster(schema)
        shapes = caster._shapes
        if shapes is not None and shapes.needs_no_change(candidate):
            shapes.needs_no_change = lambda _: False
            assert caster.cast(candidate) is candidate or is_circular(schema)


def strip(schema: Any, value: Any, root: Schema) -> Any:
    """Strip what a schema without unions does not name: a reference implementation."""
    if "$ref" in schema:
        schema = root if schema["$ref"] == "#" else root["$defs"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "array" and isinstance(value, list):
        return [strip(schema.get("items", {}), item, root) for item in value]
    if schema.get("type") == "object" and isinstance(value, dict) and "properties" in schema:
        members = schema["properties"]
        return {name: strip(members[name], item, root) for name, item in value.items() if name in members}
    return value


@given(plain_schemas, anything)
def test_surplus_is_stripped_like_in_the_reference_implementation(schema: Schema, value: Any) -> None:
    schema = json.loads(as_json(schema).replace('"default"', '"x-default"'))
    expected = strip(schema, value, schema)
    if fits(schema, expected):
        assert as_json(cast(schema, value)) == as_json(expected)


@given(junk, anything)
def test_any_json_is_harmless_as_a_schema(schema: Any, value: Any) -> None:
    cast(schema, value)
    Caster(schema).normalize(value)
    Validator(schema).problems(value)
