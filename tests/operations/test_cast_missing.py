"""What a cast puts in where something is missing: defaults, and what is made up."""

from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NULL, NUMBER, STRING, lossless, named, replaced
from forebay.operations import cast
from forebay.operations.cast import Caster
from schemas import fits


def test_defaults_come_in_and_are_nobodys_but_the_results() -> None:
    default: dict[str, Any] = {"list": []}
    schema = named(a={"type": "object", "default": default}, b={"default": 7}, c=INTEGER)
    caster = Caster(schema)
    result = caster.cast({})
    assert result == {"a": {"list": []}, "b": 7}
    result["a"]["list"].append(1)
    assert caster.cast({}) == {"a": {"list": []}, "b": 7}
    assert default == {"list": []}


def test_a_default_is_made_to_fit_and_one_that_cannot_be_is_none() -> None:
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
        ({**INTEGER, "exclusiveMinimum": 4, "multipleOf": 3}, 6),
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
        ({"oneOf": [NUMBER, INTEGER]}, 0.5),
        (True, None),
    ],
)
def test_what_must_be_there_is_made_up(schema: Any, expected: Any) -> None:
    whole = {**named(a=schema), "required": ["a"]}
    result = lossless(whole, {})
    assert result == {"a": expected}
    assert type(result["a"]) is type(expected)
    assert fits(whole, result)


def test_nothing_that_is_made_up_is_twice_the_same_object() -> None:
    schema = {"type": "array", "minItems": 2, "items": {**named(a={"type": "array"}), "required": ["a"]}}
    one, other = cast(schema, None)
    one["a"].append(1)
    assert other == {"a": []}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "array", "items": INTEGER, "minItems": 2.0}, [0, 0]),
        ({**STRING, "minLength": 2.0}, "--"),
        ({**NUMBER, "minimum": 1e308, "multipleOf": 1e-308}, 0),
    ],
)
def test_odd_bounds_are_no_obstacle(schema: Any, expected: Any) -> None:
    assert replaced(schema, None) == (expected, [("", None)])
