"""What holds of the cast of any value to any schema."""

import copy
import json
from typing import Any

import pytest
from forebay.operations import cast
from forebay.operations.casting.changing import Change, Defaults
from forebay.operations.casting.shapes import Shapes
from forebay.operations.dialect import modern
from forebay.operations.validation import Validator
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schemas import (
    NAMES,
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


@given(schemas, anything)
def test_the_result_fits(schema: Schema, value: Any) -> None:
    assert fits(schema, cast(schema, value))


@given(schemas, anything)
def test_a_second_cast_changes_nothing(schema: Schema, value: Any) -> None:
    once = cast(schema, value)
    assert cast(schema, once) is once


CANDIDATES: list[Any] = [None, 0, 0.5, "", "x", False, [], {}, [None], [0], [""], [[]], [{}]]
CANDIDATES += [{name: value} for name in NAMES for value in CANDIDATES[:8]]


@given(ambiguous, anything)
def test_the_result_fits_a_schema_whose_members_overlap_if_anything_does(schema: Schema, value: Any) -> None:
    told: list[tuple[str, Any]] = []
    result = cast(schema, value, on_replaced=lambda path, old: told.append((path, old)))
    for path, old in told:
        assert found(value, path) is old
    if any(fits(schema, candidate) for candidate in [value, *CANDIDATES]):
        assert fits(schema, result)
        assert cast(schema, result, on_replaced=lambda path, _: pytest.fail(path)) is result


@given(schemas | wild | ambiguous, anything)
def test_neither_value_nor_schema_is_changed(schema: Schema, value: Any) -> None:
    before = copy.deepcopy((schema, value))
    told: list[tuple[str, Any]] = []
    result = cast(schema, value, on_replaced=lambda path, old: told.append((path, old)))
    assert as_json([schema, value]) == as_json([*before])
    for path, old in told:
        assert as_json(found(value, path)) == as_json(old)
    json.dumps(result)


def found(value: Any, path: str) -> Any:
    for name in path.split("/")[1:]:
        value = value[int(name)] if isinstance(value, list) else value[name.replace("~1", "/").replace("~0", "~")]
    return value


@given(st.data(), schemas)
def test_what_fits_stays_equal(data: st.DataObject, schema: Schema) -> None:
    value = data.draw(fitting(schema, schema))
    assert fits(schema, value)
    result = cast(schema, value, on_replaced=lambda path, _: pytest.fail(path))
    assert fits(schema, result)
    if not has_defaults(schema):
        assert result == value


def has_defaults(schema: Schema) -> bool:
    return '"default"' in as_json(schema)


@given(schemas | wild, anything)
def test_what_is_seen_to_stay_at_once_would_not_be_changed(schema: Schema, value: Any) -> None:
    for given_value in (value, cast(schema, value)):
        shapes = Shapes(schema)
        if shapes.stay(given_value):
            assert Change(Defaults()).fitted(shapes.root, given_value, 0) is given_value


def naive(schema: Any, value: Any, root: Schema) -> Any:
    """A cast to a schema without unions, as plain as it can be: of members that fit, are named, and of no default."""
    if "$ref" in schema:
        schema = root if schema["$ref"] == "#" else root["$defs"][schema["$ref"].rpartition("/")[2]]
    if schema.get("type") == "array" and isinstance(value, list):
        return [naive(schema.get("items", {}), item, root) for item in value]
    if schema.get("type") == "object" and isinstance(value, dict) and "properties" in schema:
        members = schema["properties"]
        return {name: naive(members[name], item, root) for name, item in value.items() if name in members}
    return value


@given(plain_schemas, anything)
def test_what_only_has_too_much_is_cut_down_like_plain_python(schema: Schema, value: Any) -> None:
    schema = json.loads(as_json(schema).replace('"default"', '"x-default"'))
    expected = naive(schema, value, schema)
    if fits(schema, expected):
        assert as_json(cast(schema, value)) == as_json(expected)


@given(wild, anything)
@example({"oneOf": [{}, {"$ref": "#"}], "$defs": {"a": {}}}, "")
def test_what_fits_is_what_a_validator_says(schema: Schema, value: Any) -> None:
    assert Shapes(schema).root.fits(value) == fits(modern(schema), value)


@settings(max_examples=400)
@given(conditional, small)
@example({"properties": {"a": {"default": 1}, "b": {}}, "maxProperties": 1}, {"b": 1})
@example({"properties": {"a": {}}, "dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1})
def test_what_fits_still_fits(schema: Schema, value: Any) -> None:
    if fits(schema, value):
        assert fits(schema, cast(schema, value))


@given(junk, anything)
def test_whatever_calls_itself_a_schema_does_no_harm(schema: Any, value: Any) -> None:
    cast(schema, value)
    Validator(schema).problems(value)
