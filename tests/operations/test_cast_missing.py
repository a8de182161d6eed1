"""Defaults and placeholders that a cast fills in."""

from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NULL, NUMBER, STRING, lossless, named, replaced
from forebay.operations import Caster, cast
from schemas import fits


def test_defaults_are_filled_in_as_copies() -> None:
    default: dict[str, Any] = {"list": []}
    schema = named(a={"type": "object", "default": default}, b={"default": 7}, c=INTEGER)
    caster = Caster(schema)
    result = caster.cast({})
    assert result == {"a": {"list": []}, "b": 7}
    result["a"]["list"].append(1)
    assert caster.cast({}) == {"a": {"list": []}, "b": 7}
    assert default == {"list": []}


def test_a_default_is_cast_and_is_not_used_if_that_would_lose_something() -> None:
    assert lossless(named(a={**INTEGER, "default": "7"}), {}) == {"a": 7}
    assert lossless(named(a={**STRING, "default": None}), {}) == {}
    assert lossless({**named(a={**STRING, "default": None}), "required": ["a"]}, {}) == {"a": ""}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({**STRING, "default": "x"}, "x"),
        ({"const": [1]}, [1]),
        ({**STRING, "enum": [1, "b", "c"]}, "b"),
        (STRING, ""),
        ({**STRING, "minLength": 3}, "---"),
        (INTEGER, 0),
        ({**INTEGER, "minimum": 2.5}, 3),
        ({**INTEGER, "maximum": -2}, -2),
        ({**INTEGER, "minimum": 10**400}, 10**400),
        ({**NUMBER, "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        (BOOLEAN, False),
        (NULL, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "array"}, []),
        ({"type": "array", "items": INTEGER, "minItems": 2}, [0, 0]),
        ({"type": "array", "prefixItems": [STRING], "items": INTEGER, "minItems": 2}, ["", 0]),
        ({"type": "object"}, {}),
        ({**named(n=INTEGER, o=STRING, d={"default": 1}), "required": ["n"]}, {"n": 0, "d": 1}),
        ({"anyOf": [{"type": "object"}, NULL]}, None),
        (True, None),
    ],
)
def test_a_required_property_without_default_gets_the_simplest_valid_value(schema: Any, expected: Any) -> None:
    whole = {**named(a=schema), "required": ["a"]}
    result = lossless(whole, {})
    assert result == {"a": expected}
    assert type(result["a"]) is type(expected)
    assert fits(whole, result)


def test_placeholders_share_no_objects() -> None:
    schema = {"type": "array", "minItems": 2, "items": {**named(a={"type": "array"}), "required": ["a"]}}
    one, other = cast(schema, None)
    one["a"].append(1)
    assert other == {"a": []}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "array", "items": INTEGER, "minItems": 2.0}, [0, 0]),
        ({**STRING, "minLength": 2.0}, "--"),
    ],
)
def test_integral_floats_are_accepted_as_lengths(schema: Any, expected: Any) -> None:
    assert replaced(schema, None) == (expected, [("", None)])


@pytest.mark.parametrize(
    "schema",
    [
        {**STRING, "pattern": "^a"},
        {**INTEGER, "exclusiveMinimum": 4, "multipleOf": 3},
        {**STRING, "minLength": 1e9},
        {"oneOf": [NUMBER, INTEGER]},
    ],
)
def test_without_a_valid_placeholder_missing_data_stays_missing_and_wrong_data_stays(schema: Any) -> None:
    assert replaced({**named(a=schema, b=INTEGER), "required": ["a", "b"]}, {}) == ({"b": 0}, [])
    assert replaced({"items": schema}, [None, "x"])[0] == [None, "x"]


def test_a_default_that_needs_placeholders_is_not_used_by_normalize() -> None:
    schema = named(a={**named(b=INTEGER), "required": ["b"], "default": {}})
    value: Any = {}
    assert Caster(schema).normalize(value) is value
    assert lossless({**schema, "required": ["a"]}, {}) == {"a": {"b": 0}}


def test_a_placeholder_has_no_default_that_is_not_valid() -> None:
    schema = named(a={"not": {}, "default": ""}, b={"oneOf": [{}, {}], "default": ""})
    assert replaced(schema, "x") == ({}, [("", "x")])
