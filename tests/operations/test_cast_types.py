"""Values of another type than the schema allows: conversions, replacements, and what is kept."""

import math
from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NULL, NUMBER, STRING, lossless, named, replaced
from forebay.operations import Caster
from schemas import fits


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INTEGER, "7", 7),
        (INTEGER, "-12", -12),
        (INTEGER, "1.0", 1),
        (INTEGER, "-2.50e1", -25),
        (INTEGER, "1e5", 100000),
        (INTEGER, "0.0", 0),
        (INTEGER, "123456789012345678901234567890", 123456789012345678901234567890),
        (INTEGER, True, 1),
        (NUMBER, "7", 7),
        (NUMBER, "0.1", 0.1),
        (NUMBER, "-1.5e3", -1500.0),
        (NUMBER, True, 1),
        (NUMBER, "9007199254740993", 9007199254740993),
        (NUMBER, "9007199254740993.0", 9007199254740993),
        (STRING, 7, "7"),
        (STRING, 123456789012345678901234567890, "123456789012345678901234567890"),
        (STRING, 0.5, "0.5"),
        (STRING, True, "true"),
        (BOOLEAN, "true", True),
        (BOOLEAN, "false", False),
        (BOOLEAN, 1, True),
        (BOOLEAN, 0, False),
        (BOOLEAN, 1.0, True),
        (BOOLEAN, 0.0, False),
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": ["boolean", "integer"]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": "1"}, 1, "1"),
        ({"type": "array", "items": INTEGER}, (1, "2"), [1, 2]),
        ({"type": "array", "items": INTEGER}, (1, 2), (1, 2)),
    ],
)
def test_a_value_is_converted_where_nothing_is_lost(schema: Any, value: Any, expected: Any) -> None:
    result = lossless(schema, value)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INTEGER, "007"),
        (INTEGER, "-0"),
        (INTEGER, " 7"),
        (INTEGER, "٧"),
        (INTEGER, "7.5"),
        (INTEGER, "1" * 5000),
        (INTEGER, 1.5),
        (INTEGER, None),
        (NUMBER, "0.1234567890123456789"),
        (NUMBER, "1e999"),
        (NUMBER, "nan"),
        (STRING, None),
        (STRING, 10**1000),
        (STRING, [1]),
        (BOOLEAN, "True"),
        (BOOLEAN, 2),
        (BOOLEAN, 0.5),
        (NULL, ""),
        ({"type": "array"}, 1),
        ({"type": "object"}, []),
        ({"enum": [0, 2]}, True),
        ({"const": False}, 1.0),
        (INTEGER, "-0.0"),
        (INTEGER, "1e-1"),
        (INTEGER, "1e999999"),
        ({"const": [0]}, [False]),
    ],
)
def test_a_value_that_cannot_be_converted_exactly_is_replaced_and_reported(schema: Any, value: Any) -> None:
    result, old_values = replaced(schema, value)
    assert old_values == [("", value)]
    assert Caster(schema).normalize(value) is value
    assert fits(schema, result)


def test_replaced_values_are_reported_with_their_pointers() -> None:
    schema = named(**{"a/b": {"type": "array", "items": named(n=INTEGER)}, "u": {"anyOf": [named(m=STRING), NULL]}})
    value = {"a/b": [{"n": 1}, {"n": "x", "gone": 1}], "u": {"m": []}}
    result, old_values = replaced(schema, value)
    assert result == {"a/b": [{"n": 1}, {"n": 0}], "u": {"m": ""}}
    assert old_values == [("/a~1b/1/n", "x"), ("/u/m", [])]


@pytest.mark.parametrize("value", [-0.0, 1e300, 10**300, 2**70, 5, 7.0])
@pytest.mark.parametrize("schema", [INTEGER, NUMBER, {"type": ["string", "integer"]}, {"anyOf": [STRING, INTEGER]}])
def test_integral_numbers_keep_their_python_type(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value
    assert lossless({"type": "array", "items": schema}, ["7", value])[1] is value


def test_what_is_not_json_is_kept_for_validation_to_report() -> None:
    assert math.isnan(lossless(NUMBER, math.nan))
    body = b"\x00"
    assert lossless({**STRING, "format": "binary"}, body) is body


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**INTEGER, "minimum": 5}, 1),
        ({**STRING, "pattern": "^a", "minLength": 9}, "b"),
        ({"type": "array", "minItems": 2, "uniqueItems": True}, [1]),
        ({**STRING, "format": "date"}, "no date"),
        ({"not": STRING, "if": STRING, "then": INTEGER}, "x"),
        ({"anyOf": [{**INTEGER, "maximum": 10}, {"type": "object"}]}, 50),
        ({"oneOf": [{**INTEGER, "maximum": 10}, {"type": "object"}]}, 50),
    ],
)
def test_a_value_that_only_breaks_a_rule_is_kept(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value
