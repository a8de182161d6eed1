"""Values made to fit a schema, case by case: what stays, what goes, and schemas that say nothing or too much.

What holds of all schemas is in `test_operations_cast_any`.
"""

import copy
from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, STRING, lossless, named
from forebay.operations.cast import Caster


@pytest.mark.parametrize("schema", [True, {}, False])
@pytest.mark.parametrize("value", [None, [1, {"a": "x"}], {"a": [1]}])
def test_a_schema_that_says_nothing_changes_nothing(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value


def test_what_is_not_named_goes_and_what_fits_stays_the_same_object() -> None:
    schema = named(kept=named(n=INTEGER), list={"type": "array", "items": INTEGER})
    value = {"kept": {"n": 1}, "list": [1, 2], "other": 3}
    before = copy.deepcopy(value)
    result = lossless(schema, value)
    assert result == {"kept": {"n": 1}, "list": [1, 2]}
    assert (result["kept"] is value["kept"], result["list"] is value["list"]) == (True, True)
    assert value == before
    assert lossless(schema, result) is result


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"a": 1}),
        ({"additionalProperties": False}, {"a": 1}),
        ({"additionalProperties": True}, {"a": 1, "x-b": "2", "c": "3"}),
        ({"additionalProperties": INTEGER}, {"a": 1, "x-b": 2, "c": 3}),
        ({"patternProperties": {"^x-": INTEGER}}, {"a": 1, "x-b": 2}),
        ({"patternProperties": {"^x-": INTEGER}, "additionalProperties": True}, {"a": 1, "x-b": 2, "c": "3"}),
        ({"required": ["c"]}, {"a": 1, "c": "3"}),
        ({"unevaluatedProperties": True}, {"a": 1, "x-b": "2", "c": "3"}),
    ],
)
def test_other_members_stay_where_the_schema_has_room_for_them(more: Any, expected: Any) -> None:
    assert lossless({**named(a=INTEGER), **more}, {"a": "1", "x-b": "2", "c": "3"}) == expected


def test_patterns_are_those_of_json_schema() -> None:
    assert lossless({"patternProperties": {r"^\p{Lu}+$": INTEGER}}, {"ÄÖ": "1", "äö": "2"}) == {"ÄÖ": 1}


def test_an_object_of_which_nothing_is_said_keeps_its_members() -> None:
    value = {"a": 1, "b": [2]}
    assert lossless({"type": "object"}, value) is value
    assert lossless({"type": "object", "additionalProperties": False}, value) == {}
    assert lossless({"type": "object", "additionalProperties": STRING}, {"a": 1}) == {"a": "1"}


def test_first_items_and_the_others() -> None:
    pair = {"type": "array", "prefixItems": [STRING, INTEGER], "items": BOOLEAN}
    assert lossless(pair, [1, "2", "true", 0]) == ["1", 2, True, False]
    assert lossless({**pair, "items": False}, [1, "2", "true"]) == ["1", 2]
    assert lossless({**pair, "items": False}, ["1"]) == ["1"]
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [STRING], "additionalItems": INTEGER}
    assert lossless(old, [1, "2"]) == ["1", 2]


@pytest.mark.slow
def test_a_schema_that_cannot_be_understood_changes_nothing() -> None:
    value = {"a": "7"}
    deep: Any = INTEGER
    for _ in range(3000):
        deep = {"items": deep}
    wrong_ones = [
        {"type": "nope"},
        {"$ref": "https://example.invalid/x"},
        {"$ref": "#/nope"},
        {"$ref": "#nope"},
        {"$ref": "#/required", "required": []},
        {"$anchor": []},
        {"nullable": True, "type": {}},
        {"nullable": True, "type": "string", "enum": 5},
        {"required": True},
        deep,
    ]
    for wrong in wrong_ones:
        assert lossless(wrong, value) is value


def test_a_schema_is_read_once_for_many_casts_and_not_changed() -> None:
    schema = {**named(a={"$ref": "#/$defs/n", "default": "7"}), "$defs": {"n": INTEGER}, "$id": "urn:x"}
    before = copy.deepcopy(schema)
    caster = Caster(schema)
    assert [caster.cast(value) for value in ({}, {"a": 1}, {"a": "2"})] == [{"a": 7}, {"a": 1}, {"a": 2}]
    assert schema == before


def test_a_value_that_fits_is_not_broken_by_what_comes_in() -> None:
    default = named(k={**STRING, "default": "x"}, v=INTEGER)
    value = {"v": "1"}
    for rule in ({"if": {"required": ["k"]}, "then": {"required": ["w"]}}, {"maxProperties": 1}):
        fitting = {"v": 1}
        assert lossless({**default, **rule}, fitting) is fitting
        assert lossless({**default, **rule}, value)["v"] == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "https://example.invalid/s", "$ref": "other#/$defs/n"},
        {"$defs": {"n": {"$id": "n", **INTEGER}}, "items": {"$ref": "n"}},
        {
            "$defs": {"n": {"$id": "urn:n", "items": {"$ref": "#/$defs/m"}, "$defs": {"m": INTEGER}}},
            "$ref": "#/$defs/n",
        },
    ],
)
def test_what_is_not_followed_is_told_once(schema: Any, caplog: pytest.LogCaptureFixture) -> None:
    caster = Caster(schema)
    assert [caster.cast(["7"]), caster.cast(["8"])] == [["7"], ["8"]]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
