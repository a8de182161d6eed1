"""Values made to fit a schema, case by case. What holds of all schemas is in `test_operations_cast_any`."""

import copy
import math
from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NODE, NULL, NUMBER, STRING, lossless, named, replaced
from headgate.operations import cast
from headgate.operations.cast import Caster
from schemas import fits


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


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INTEGER, "7", 7),
        (INTEGER, "-12", -12),
        (INTEGER, "1.0", 1),
        (INTEGER, "-2.50e1", -25),
        (INTEGER, "1e5", 100000),
        (INTEGER, "0.0", 0),
        (INTEGER, True, 1),
        (NUMBER, "7", 7),
        (NUMBER, "0.1", 0.1),
        (NUMBER, "-1.5e3", -1500.0),
        (NUMBER, True, 1),
        (STRING, 7, "7"),
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
def test_a_value_becomes_another_type_where_nothing_is_lost(schema: Any, value: Any, expected: Any) -> None:
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
def test_what_would_lose_something_is_replaced_and_told(schema: Any, value: Any) -> None:
    result, told = replaced(schema, value)
    assert told == [("", value)]
    assert fits(schema, result)


def test_where_something_was_thrown_away_is_told_by_its_pointer() -> None:
    schema = named(**{"a/b": {"type": "array", "items": named(n=INTEGER)}, "u": {"anyOf": [named(m=STRING), NULL]}})
    value = {"a/b": [{"n": 1}, {"n": "x", "gone": 1}], "u": {"m": []}}
    result, told = replaced(schema, value)
    assert result == {"a/b": [{"n": 1}, {"n": 0}], "u": {"m": ""}}
    assert told == [("/a~1b/1/n", "x"), ("/u/m", [])]


@pytest.mark.parametrize("value", [-0.0, 1e300, 10**300, 2**70, 5, 7.0])
@pytest.mark.parametrize("schema", [INTEGER, NUMBER, {"type": ["string", "integer"]}, {"anyOf": [STRING, INTEGER]}])
def test_what_is_an_integer_to_a_schema_stays_what_it_is_to_python(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value
    assert lossless({"type": "array", "items": schema}, ["7", value])[1] is value


def test_what_is_not_json_is_kept_for_the_validator_to_tell() -> None:
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
def test_a_value_of_the_right_build_that_breaks_a_rule_is_kept(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value


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


def test_first_items_and_the_others() -> None:
    pair = {"type": "array", "prefixItems": [STRING, INTEGER], "items": BOOLEAN}
    assert lossless(pair, [1, "2", "true", 0]) == ["1", 2, True, False]
    assert lossless({**pair, "items": False}, [1, "2", "true"]) == ["1", 2]
    assert lossless({**pair, "items": False}, ["1"]) == ["1"]
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [STRING], "additionalItems": INTEGER}
    assert lossless(old, [1, "2"]) == ["1", 2]


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


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({**STRING, "nullable": True}, None),
        ({**STRING, "enum": ["a"], "nullable": True}, None),
        ({"allOf": [named(a=INTEGER)], "nullable": True}, None),
        ({"type": "object", "properties": {"nullable": BOOLEAN}}, {"nullable": True}),
    ],
)
def test_null_as_openapi_3_0_has_it(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value


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
