"""Casts to unions, to `allOf`, and to schemas with conditions."""

from typing import Any

import pytest
from casts import INTEGER, NULL, STRING, lossless, named, replaced

CAT = {**named(kind={"const": "cat"}, lives=INTEGER), "required": ["kind"]}
DOG = {**named(kind={"enum": ["dog", "wolf"]}, lives=STRING), "required": ["kind", "lives"]}


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
@pytest.mark.parametrize(
    ("members", "value", "expected"),
    [
        ([INTEGER, STRING], "7", "7"),
        ([INTEGER, NULL], "7", 7),
        ([CAT, DOG], {"kind": "dog", "lives": "1", "x": 1}, {"kind": "dog", "lives": "1"}),
        ([CAT, DOG], {"kind": "wolf", "lives": 1}, {"kind": "wolf", "lives": "1"}),
        ([CAT, DOG], {"kind": "cat", "lives": "9"}, {"kind": "cat", "lives": 9}),
        ([DOG, CAT], {"kind": "wolf"}, {"kind": "wolf", "lives": ""}),
        ([DOG, CAT], {"lives": 9}, {"lives": 9, "kind": "cat"}),
        ([NULL, named(a=INTEGER)], {"a": "1"}, {"a": 1}),
        ([{"type": "array", "items": INTEGER}, {"type": "array", "items": STRING}], ["a", "b"], ["a", "b"]),
    ],
)
def test_the_alternative_that_keeps_most_is_chosen(word: str, members: Any, value: Any, expected: Any) -> None:
    assert lossless({word: members}, value) == expected


def test_the_alternative_that_names_most_properties_is_chosen() -> None:
    schema = {"anyOf": [named(a=INTEGER), named(a=INTEGER, b=INTEGER)]}
    assert lossless(schema, {"a": "1", "b": 2}) == {"a": 1, "b": 2}


def test_a_wrong_property_does_not_change_the_kind_of_an_object() -> None:
    result, old_values = replaced({"oneOf": [CAT, DOG]}, {"kind": "dog", "lives": []})
    assert (result, old_values) == ({"kind": "dog", "lives": ""}, [("/lives", [])])


def test_a_discriminator_counts_more_than_what_is_kept() -> None:
    loose = {**named(kind={"const": "cat"}, lives=True), "required": ["kind"]}
    result, old_values = replaced({"anyOf": [loose, DOG]}, {"kind": "dog", "lives": [1, 2, 3]})
    assert (result, old_values) == ({"kind": "dog", "lives": ""}, [("/lives", [1, 2, 3])])


def test_impossible_alternatives_are_not_chosen() -> None:
    impossible = {"allOf": [INTEGER, STRING]}
    assert lossless({"anyOf": [False, impossible, INTEGER]}, "7") == 7
    assert lossless({"anyOf": [named(a=impossible), named(a=INTEGER)]}, {"a": 1}) == {"a": 1}
    assert lossless(named(a=impossible), {"a": 1, "b": 2}) == {}


V = {"properties": {"v": INTEGER}, "required": ["v"]}


@pytest.mark.parametrize(
    "condition",
    [
        {"if": {"properties": {"k": {"const": "x"}}}, "then": V},
        {"if": {"properties": {"k": {"const": "y"}}}, "else": V},
        {"if": {"properties": {"k": {"const": "x"}}}, "then": V, "unevaluatedProperties": False},
        {"dependentSchemas": {"k": V}},
        {"dependencies": {"k": V}, "$schema": "http://json-schema.org/draft-07/schema#"},
        {"$dynamicRef": "#v", "$defs": {"v": {"$dynamicAnchor": "v", **V}}},
        {"allOf": [{"dependentSchemas": {"k": V}}], "unevaluatedProperties": False},
    ],
)
def test_properties_that_a_condition_names_stay(condition: Any) -> None:
    schema = {**named(k=STRING), **condition}
    value = {"k": "x", "v": 1}
    assert lossless(schema, value) is value
    assert lossless({**schema, "additionalProperties": False}, value) == {"k": "x"}


def test_rules_beside_a_union_apply_to_each_alternative() -> None:
    schema = {**named(id=STRING), "required": ["id"], "anyOf": [named(a=INTEGER), named(b=INTEGER)]}
    assert lossless(schema, {"id": 7, "b": "1", "c": 1}) == {"id": "7", "b": 1}


def test_all_of_is_merged() -> None:
    schema = {
        "allOf": [{**named(a=INTEGER, n={"type": ["integer", "string"]}), "required": ["a"]}, named(b=STRING)],
        "properties": {"n": {"type": ["number", "null"]}},
    }
    assert lossless(schema, {"a": "1", "b": 2, "n": "3", "x": 4}) == {"a": 1, "b": "2", "n": 3}
    closed = {"allOf": [{**named(a=INTEGER), "additionalProperties": False}, named(b=STRING)]}
    assert lossless(closed, {"a": 1, "b": "x"}) == {"a": 1}


def test_a_rule_decides_between_alternatives_of_the_same_structure() -> None:
    cat = named(name={**STRING, "pattern": "^cat"}, lives=INTEGER)
    dog = named(name={**STRING, "pattern": "^dog"}, lives=INTEGER, tail=STRING)
    value = {"name": "dog 1", "lives": 1, "x": 2}
    assert lossless({"anyOf": [cat, {**dog, "required": ["tail"]}, dog]}, value) == {"name": "dog 1", "lives": 1}
    number = {"anyOf": [{**named(n={**INTEGER, "maximum": 9})}, named(n=STRING)]}
    assert lossless(number, {"n": "10"}) == {"n": "10"}


def test_one_of_many_constants() -> None:
    schema = {"anyOf": [{"const": f"c{number}"} for number in range(2000)]}
    assert lossless({"type": "array", "items": schema}, ["c1999"]) == ["c1999"]
