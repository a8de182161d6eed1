"""Casts to a `oneOf` whose members overlap: the result is one of them, and one only."""

from typing import Any

import pytest
from casts import INTEGER, NULL, NUMBER, STRING, named, replaced
from forebay.operations.cast import Caster
from schemas import fits

LIST = {"type": "array"}
OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("members", "value", "expected", "lost"),
    [
        ([{}, INTEGER], 1, "1", []),
        ([LIST, {**LIST, "items": INTEGER}], [1, 2], [1, 2, None], []),
        ([named(name=STRING), named(name=STRING, age=INTEGER)], {"name": "x"}, {"name": "x", "age": None}, []),
        ([OBJECT, {**OBJECT, "required": ["a"]}], {"a": 1, "b": 2}, {"b": 2}, [("/a", 1)]),
        ([named(a=INTEGER), named(a=INTEGER, b=INTEGER)], {"a": 1, "b": 2}, {"a": 1, "b": None}, [("/b", 2)]),
        ([named(a=NUMBER), named(a=INTEGER)], {"a": 1}, {"a": 0.5}, [("/a", 1)]),
        ([NUMBER, INTEGER], 1, 0.5, [("", 1)]),
        ([NULL, {"enum": [None, 4]}], None, 4, [("", None)]),
        ([LIST, {**LIST, "maxItems": 0}], [], [None], []),
    ],
)
def test_a_value_of_two_members_is_changed_by_as_little_as_can_be(
    members: Any, value: Any, expected: Any, lost: Any
) -> None:
    schema = {"oneOf": members}
    assert replaced(schema, value) == (expected, lost)
    assert fits(schema, expected)
    assert replaced(schema, expected) == (expected, [])
    assert Caster(schema).normalized(value) is value
    inside, told = replaced(named(x={"type": "array", "items": schema}), {"x": [value]})
    assert inside == {"x": [expected]}
    assert told == [(f"/x/0{path}", old) for path, old in lost]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([NUMBER, INTEGER], 0.5),
        ([LIST, {**LIST, "items": INTEGER}], [None]),
        ([{**LIST, "items": NUMBER}, {**LIST, "items": INTEGER}], [0.5]),
        ([OBJECT, named(a=INTEGER)], {"a": None}),
        ([{**named(a=NUMBER), "required": ["a"]}, {**named(a=INTEGER), "required": ["a"]}], {"a": 0.5}),
    ],
)
def test_what_is_made_up_is_of_one_member_only(members: Any, expected: Any) -> None:
    schema = {"oneOf": members}
    assert replaced(schema, "x") == (expected, [("", "x")])
    whole = {**named(x=schema), "required": ["x"]}
    assert replaced(whole, {}) == ({"x": expected}, [])
    assert fits(whole, {"x": expected})


def test_a_value_that_one_member_takes_stays_the_same_object() -> None:
    value = {"a": 0.5}
    assert replaced({"oneOf": [named(a=NUMBER), named(a=INTEGER)]}, value)[0] is value


def test_where_no_value_is_of_one_member_only_it_is_kept() -> None:
    assert replaced({"oneOf": [INTEGER, INTEGER]}, 1) == (1, [])
