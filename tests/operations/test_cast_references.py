"""Schemas that refer to others, or to themselves, and what OpenAPI 3.0 says in words of its own."""

from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NODE, NULL, STRING, lossless, named, replaced


@pytest.mark.parametrize("at", ["$defs", "definitions", "components/schemas", "properties"])
def test_local_references_are_followed(at: str) -> None:
    target = {"a~/b c": INTEGER}
    rooted: Any = {"components": {"schemas": target}} if at == "components/schemas" else {at: target}
    assert lossless({**rooted, "items": {"$ref": f"#/{at}/a~0~1b%20c"}}, ["7"]) == [7]


def test_references_by_anchor_and_by_the_schemas_own_name() -> None:
    defs = {"n": {**INTEGER, "$anchor": "number", "$dynamicAnchor": "dynamic"}}
    for reference in ("#number", "#dynamic", "https://example.invalid/s#/$defs/n", "s#/$defs/n", "/s#number"):
        schema = {"$id": "https://example.invalid/s", "$defs": defs, "items": {"$ref": reference}}
        assert lossless(schema, ["7"]) == [7]


def test_rules_beside_a_reference_hold_in_2020_and_not_in_openapi_3_0() -> None:
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
def test_null_as_openapi_3_0_has_it(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value


def test_what_may_be_null_is_still_made_to_fit() -> None:
    for kind in ("string", ["string"]):
        assert lossless(named(a={"type": kind, "nullable": True}), {"a": 7}) == {"a": "7"}


def test_a_schema_that_may_be_null_keeps_what_is_referred_to_where_it_is() -> None:
    defs = {"n": INTEGER}
    schema = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}}], "nullable": True, "$defs": defs}
    assert lossless(schema, ["7"]) == [7]
    assert lossless(schema, None) is None


def test_bounds_as_openapi_3_0_has_them() -> None:
    low = {**INTEGER, "minimum": 5, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False}
    assert replaced(low, "x") == (6, [("", "x")])


def test_recursive_schemas_end() -> None:
    assert lossless(NODE, {"next": {"next": {"name": 1, "x": 1}}}) == {
        "name": "",
        "next": {"name": "", "next": {"name": "1"}},
    }
    tree = {**named(kids={"type": "array", "items": {"$ref": "#"}}), "required": ["kids"]}
    assert lossless(tree, {"kids": [{}]}) == {"kids": [{"kids": []}]}
    chain = {**named(next={"anyOf": [{"$ref": "#"}, NULL]}), "required": ["next"]}
    assert lossless(chain, {}) == {"next": None}


def test_a_default_that_brings_itself_in_is_none() -> None:
    schema = {**named(next={"$ref": "#"}, n=INTEGER), "default": {"n": "1"}}
    once = lossless(schema, {"n": "2"})
    assert lossless(schema, once) is once


def test_a_default_behind_a_reference_counts() -> None:
    schema = {**named(a={"$ref": "#/$defs/n"}), "$defs": {"n": {"allOf": [{**INTEGER, "default": 3}]}}}
    assert lossless(schema, {}) == {"a": 3}


def test_what_may_be_there_and_can_never_end_goes() -> None:
    endless = {**named(next={"$ref": "#/$defs/endless"}), "required": ["next"]}
    assert lossless({**named(a={"$ref": "#/$defs/endless"}), "$defs": {"endless": endless}}, {"a": 5}) == {}


def test_what_can_never_end_is_given_up() -> None:
    endless = {**named(next={"$ref": "#"}, n=INTEGER), "required": ["next", "n"]}
    assert lossless(endless, {}) == {"n": 0}
    assert replaced(endless, 5) == ({"n": 0}, [("", 5)])
    assert lossless({**named(a=False), "required": ["a"]}, {"b": 1}) == {}


IMPOSSIBLE = {"properties": {"a": {"allOf": [INTEGER, STRING]}}, "required": ["a"]}


def test_what_no_object_can_be_becomes_something_else() -> None:
    assert replaced({"items": IMPOSSIBLE}, [{"a": 1}, 7]) == ([None, 7], [("/0", {"a": 1})])
    assert lossless({**named(x={**IMPOSSIBLE, "not": NULL}), "required": ["x"]}, {}) == {"x": 0}


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
def test_references_in_a_circle_end(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value
