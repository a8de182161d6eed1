"""Casts to unions, and to schemas that hold together or for some values only."""

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
def test_the_member_of_a_union_is_the_one_that_keeps_most(word: str, members: Any, value: Any, expected: Any) -> None:
    assert lossless({word: members}, value) == expected


def test_the_member_that_names_most_is_the_one_that_keeps_most() -> None:
    schema = {"anyOf": [named(a=INTEGER), named(a=INTEGER, b=INTEGER)]}
    assert lossless(schema, {"a": "1", "b": 2}) == {"a": 1, "b": 2}


def test_one_member_that_does_not_fit_does_not_make_it_another_kind() -> None:
    result, told = replaced({"oneOf": [CAT, DOG]}, {"kind": "dog", "lives": []})
    assert (result, told) == ({"kind": "dog", "lives": ""}, [("/lives", [])])


def test_what_tells_kinds_apart_counts_for_more_than_what_is_kept() -> None:
    loose = {**named(kind={"const": "cat"}, lives=True), "required": ["kind"]}
    result, told = replaced({"anyOf": [loose, DOG]}, {"kind": "dog", "lives": [1, 2, 3]})
    assert (result, told) == ({"kind": "dog", "lives": ""}, [("/lives", [1, 2, 3])])


def test_a_union_of_what_cannot_be_is_none_of_them() -> None:
    never = {"anyOf": [False, {"allOf": [INTEGER, STRING]}]}
    assert lossless(named(a={**INTEGER, **never}), {"a": 1, "b": 2}) == {}
    assert lossless({"anyOf": [named(a=never), named(a=INTEGER)]}, {"a": 1}) == {"a": 1}


V = {"properties": {"v": INTEGER}, "required": ["v"]}


@pytest.mark.parametrize(
    "condition",
    [
        {"if": {"properties": {"k": {"const": "x"}}}, "then": V},
        {"if": {"properties": {"k": {"const": "y"}}}, "else": V},
        {"dependentSchemas": {"k": V}},
        {"dependencies": {"k": V}, "$schema": "http://json-schema.org/draft-07/schema#"},
        {"$dynamicRef": "#v", "$defs": {"v": {"$dynamicAnchor": "v", **V}}},
        {"allOf": [{"dependentSchemas": {"k": V}}], "unevaluatedProperties": False},
    ],
)
def test_members_that_only_some_values_have_stay(condition: Any) -> None:
    schema = {**named(k=STRING), **condition}
    value = {"k": "x", "v": 1}
    assert lossless(schema, value) is value
    assert lossless({**schema, "additionalProperties": False}, value) == {"k": "x"}


def test_what_is_said_beside_a_union_holds_for_each_member() -> None:
    schema = {**named(id=STRING), "required": ["id"], "anyOf": [named(a=INTEGER), named(b=INTEGER)]}
    assert lossless(schema, {"id": 7, "b": "1", "c": 1}) == {"id": "7", "b": 1}


def test_all_of_is_one_schema() -> None:
    schema = {
        "allOf": [{**named(a=INTEGER, n={"type": ["integer", "string"]}), "required": ["a"]}, named(b=STRING)],
        "properties": {"n": {"type": ["number", "null"]}},
    }
    assert lossless(schema, {"a": "1", "b": 2, "n": "3", "x": 4}) == {"a": 1, "b": "2", "n": 3}
    closed = {"allOf": [{**named(a=INTEGER), "additionalProperties": False}, named(b=STRING)]}
    assert lossless(closed, {"a": 1, "b": "x"}) == {"a": 1}
