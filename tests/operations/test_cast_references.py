"""Casts to schemas with references, recursive ones, and those of OpenAPI 3.0."""

from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NODE, NULL, STRING, lossless, named, replaced


@pytest.mark.parametrize("at", ["$defs", "definitions", "components/schemas", "properties"])
def test_local_references_are_followed(at: str) -> None:
    target = {"a~/b c": INTEGER}
    rooted: Any = {"components": {"schemas": target}} if at == "components/schemas" else {at: target}
    assert lossless({**rooted, "items": {"$ref": f"#/{at}/a~0~1b%20c"}}, ["7"]) == [7]


def test_references_by_anchor_and_by_absolute_id() -> None:
    defs = {"n": {**INTEGER, "$anchor": "number", "$dynamicAnchor": "dynamic"}}
    for reference in ("#number", "#dynamic", "https://example.invalid/s#/$defs/n"):
        schema = {"$id": "https://example.invalid/s", "$defs": defs, "items": {"$ref": reference}}
        assert lossless(schema, ["7"]) == [7]


def test_rules_beside_a_reference_apply_in_2020_12_and_not_in_openapi_3_0() -> None:
    defs = {"components": {"schemas": {"n": INTEGER}}}
    beside = {"$ref": "#/components/schemas/n", "default": 3}
    assert lossless({**named(a=beside), **defs}, {}) == {"a": 3}
    assert lossless({**named(a=beside, b={**STRING, "nullable": True}), **defs}, {}) == {}


MAYBE = "#/components/schemas/maybe"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**STRING, "nullable": True}, None),
        ({**STRING, "enum": ["a"], "nullable": True}, None),
        ({"allOf": [named(a=INTEGER)], "nullable": True}, None),
        ({"items": {"$ref": MAYBE}, "components": {"schemas": {"maybe": {**STRING, "nullable": True}}}}, [None]),
        ({"type": "object", "properties": {"nullable": BOOLEAN}}, {"nullable": True}),
    ],
)
def test_nullable_of_openapi_3_0(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value


def test_nullable_values_are_cast() -> None:
    for kind in ("string", ["string"]):
        assert lossless(named(a={"type": kind, "nullable": True}), {"a": 7}) == {"a": "7"}


def test_references_into_a_nullable_schema_still_work() -> None:
    defs = {"n": INTEGER}
    schema = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}], "nullable": True, "$defs": defs}
    assert lossless(schema, ["7"]) == [7]
    assert lossless(schema, None) is None


def test_exclusive_bounds_of_openapi_3_0() -> None:
    low = {**INTEGER, "minimum": 5, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    assert replaced(low, "x") == (6, [("", "x")])


def test_casts_to_recursive_schemas_end() -> None:
    assert lossless(NODE, {"next": {"next": {"name": 1, "x": 1}}}) == {
        "name": "",
        "next": {"name": "", "next": {"name": "1"}},
    }
    tree = {**named(kids={"type": "array", "items": {"$ref": "#"}}), "required": ["kids"]}
    assert lossless(tree, {"kids": [{}]}) == {"kids": [{"kids": []}]}
    chain = {**named(next={"anyOf": [{"$ref": "#"}, NULL]}), "required": ["next"]}
    assert lossless(chain, {}) == {"next": None}


def test_a_default_that_contains_itself_is_not_used() -> None:
    schema = {**named(next={"$ref": "#"}, n=INTEGER), "default": {"n": "1"}}
    once = lossless(schema, {"n": "2"})
    assert lossless(schema, once) is once


def test_a_default_behind_a_reference_is_used() -> None:
    schema = {**named(a={"$ref": "#/$defs/n"}), "$defs": {"n": {"allOf": [{**INTEGER, "default": 3}]}}}
    assert lossless(schema, {}) == {"a": 3}


def test_data_without_a_valid_value_is_kept_for_validation_to_report() -> None:
    endless = {**named(next={"$ref": "#/$defs/endless"}, n=INTEGER), "required": ["next", "n"]}
    schema = {**named(a={"$ref": "#/$defs/endless"}, b=INTEGER), "$defs": {"endless": endless}}
    assert replaced(schema, {"a": 5, "b": "1"}) == ({"a": 5, "b": 1}, [])
    assert replaced(schema, {"a": {"n": "1", "x": 2}}) == ({"a": {"n": 1}}, [])
    assert lossless({**named(a=False), "required": ["a"]}, {"b": 1}) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}]},
        {"oneOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
            "$ref": "#/$defs/a",
        },
        {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}},
    ],
)
@pytest.mark.parametrize("value", [4, [[4]], {"a": {"b": 4}}])
def test_circular_references_end(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value
