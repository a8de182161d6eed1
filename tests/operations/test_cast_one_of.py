"""Casts to a `oneOf` whose members overlap: data that several members accept is kept for validation to report."""

from typing import Any

import pytest
from casts import INTEGER, NULL, NUMBER, STRING, named, replaced
from forebay.operations import Caster
from forebay.operations.validation import Validator
from schemas import fits

LIST = {"type": "array"}
OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("members", "value"),
    [
        ([{}, INTEGER], 1),
        ([LIST, {**LIST, "items": INTEGER}], [1, 2]),
        ([named(name=STRING), named(name=STRING, age=INTEGER)], {"name": "x"}),
        ([OBJECT, {**OBJECT, "required": ["a"]}], {"a": 1, "b": 2}),
        ([named(a=INTEGER), named(a=INTEGER, b=INTEGER)], {"a": 1, "b": 2}),
        ([named(a=INTEGER), {**named(a=INTEGER, b=INTEGER), "required": ["b"]}], {"a": 1, "b": 2}),
        ([named(a=NUMBER), named(a=INTEGER)], {"a": 1}),
        ([NUMBER, INTEGER], 1),
        ([NULL, {"enum": [None, 4]}], None),
        ([LIST, {**LIST, "maxItems": 0}], []),
        ([INTEGER, INTEGER], 1),
    ],
)
def test_data_that_two_members_accept_is_kept_and_reported(members: Any, value: Any) -> None:
    schema = {"oneOf": members}
    assert replaced(schema, value) == (value, [])
    assert Caster(schema).normalize(value) is value
    assert [problem["path"] for problem in Validator(schema).problems(value)] == [""]
    outer = named(x={"type": "array", "items": schema})
    assert replaced(outer, {"x": [value]}) == ({"x": [value]}, [])
    assert [problem["path"] for problem in Validator(outer).problems({"x": [value]})] == ["/x/0"]


def test_data_that_one_member_accepts_stays_the_same_object() -> None:
    value = {"a": 0.5}
    assert replaced({"oneOf": [named(a=NUMBER), named(a=INTEGER)]}, value)[0] is value


def test_of_equal_attempts_the_valid_one_is_chosen() -> None:
    schema = {"oneOf": [named(a=STRING), {**named(a=STRING), "maxProperties": 0}, named(a=INTEGER)]}
    result, old_values = replaced(schema, {"a": True, "x": 1})
    assert (result, old_values) == ({"a": "true"}, [])
    assert fits(schema, result)


def test_a_placeholder_is_valid_for_one_member_only() -> None:
    schema = {"oneOf": [{**INTEGER, "maximum": 5}, {**INTEGER, "minimum": 0}, NULL]}
    assert replaced(schema, "x") == (None, [("", "x")])


@pytest.mark.parametrize("others", [[{"const": "x"}], [{"const": {}}, {"enum": [{}]}]])
def test_constants_are_not_the_only_alternatives_to_try(others: Any) -> None:
    value: Any = {"b": {}}
    assert replaced({"oneOf": [STRING, *others]}, value) == ("", [("", value)])


def test_a_constant_of_the_same_type_is_preferred() -> None:
    value: Any = {"b": {}}
    assert replaced({"oneOf": [STRING, {"const": {"a": 1}}]}, value) == ({"a": 1}, [("", value)])
