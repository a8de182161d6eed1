"""Casts case by case: properties that stay or go, and schemas that are trivial or cannot be used.

Properties that hold for all schemas are in `test_cast_any`.
"""

import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from casts import BOOLEAN, INTEGER, NUMBER, STRING, lossless, named
from forebay.operations import Caster
from forebay.operations.validation import Validator


@pytest.mark.parametrize("schema", [True, {}, False])
@pytest.mark.parametrize("value", [None, [1, {"a": "x"}], {"a": [1]}])
def test_a_trivial_schema_changes_nothing(schema: Any, value: Any) -> None:
    assert lossless(schema, value) is value


def test_surplus_is_stripped_and_matching_data_stays_the_same_object() -> None:
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
def test_unnamed_properties_stay_where_the_schema_has_room_for_them(more: Any, expected: Any) -> None:
    assert lossless({**named(a=INTEGER), **more}, {"a": "1", "x-b": "2", "c": "3"}) == expected


def test_patterns_are_regular_expressions_of_json_schema() -> None:
    assert lossless({"patternProperties": {r"^\p{Lu}+$": INTEGER}}, {"ÄÖ": "1", "äö": "2"}) == {"ÄÖ": 1}


def test_an_object_without_named_properties_keeps_all() -> None:
    value = {"a": 1, "b": [2]}
    assert lossless({"type": "object"}, value) is value
    assert lossless({"type": "object", "additionalProperties": False}, value) == {}
    assert lossless({"type": "object", "additionalProperties": STRING}, {"a": 1}) == {"a": "1"}


def test_prefix_items_and_items() -> None:
    pair = {"type": "array", "prefixItems": [STRING, INTEGER], "items": BOOLEAN}
    assert lossless(pair, [1, "2", "true", 0]) == ["1", 2, True, False]
    assert lossless({**pair, "items": False}, [1, "2", "true"]) == ["1", 2]
    assert lossless({**pair, "items": False}, ["1"]) == ["1"]
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [STRING], "additionalItems": INTEGER}
    assert lossless(old, [1, "2"]) == ["1", 2]


def test_an_unusable_schema_changes_nothing() -> None:
    value = {"a": "7"}
    deep: Any = INTEGER
    for _ in range(3000):
        deep = {"items": deep}
    unusable = [
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
    for schema in unusable:
        assert lossless(schema, value) is value


def test_a_caster_is_reusable_and_does_not_modify_its_schema() -> None:
    schema = {**named(a={"$ref": "#/$defs/n", "default": "7"}), "$defs": {"n": INTEGER}, "$id": "urn:x"}
    before = copy.deepcopy(schema)
    caster = Caster(schema)
    assert [caster.cast(value) for value in ({}, {"a": 1}, {"a": "2"})] == [{"a": 7}, {"a": 1}, {"a": 2}]
    assert schema == before


def test_a_default_does_not_make_valid_data_invalid() -> None:
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
        {"$id": "https://example.invalid/s", "$ref": "s#/$defs/n", "$defs": {"n": {"items": INTEGER}}},
        {"$defs": {"n": {"$id": "n", **INTEGER}}, "items": {"$ref": "n"}},
        {
            "$defs": {"n": {"$id": "urn:n", "items": {"$ref": "#/$defs/m"}, "$defs": {"m": INTEGER}}},
            "$ref": "#/$defs/n",
        },
    ],
)
def test_an_unusable_schema_is_logged_once(schema: Any, caplog: pytest.LogCaptureFixture) -> None:
    caster = Caster(schema)
    assert [caster.cast(["7"]), caster.cast(["8"])] == [["7"], ["8"]]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_no_reference_is_fetched() -> None:
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        schema = {"type": "array", "items": {"$ref": f"http://127.0.0.1:{server.server_port}/n.json"}}
        assert Caster(schema).normalize(["7"]) == lossless(schema, ["7"]) == ["7"]
        assert Validator(schema).problems(["7"]) == []
        server.shutdown()
    assert requests == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"price": "7", "etag": 1}, {"price": 7, "currency": "EUR"}),
        ({"error": "the database is down"}, None),
        ({"price": "unknown"}, None),
        ({"currency": "NZD"}, None),
        ("7", None),
    ],
)
def test_normalize_keeps_data_where_a_cast_would_discard_or_invent_something(value: Any, expected: Any) -> None:
    schema = {**named(price=NUMBER, currency={**STRING, "default": "EUR"}), "required": ["price"]}
    result = Caster(schema).normalize(value)
    assert result == (value if expected is None else expected)
    assert expected is not None or result is value


def test_normalize_keeps_an_object_of_which_no_property_would_be_left() -> None:
    value = {"error": "the database is down"}
    assert Caster(named(price=NUMBER)).normalize(value) is value
    assert Caster(named(price={**NUMBER, "default": 0})).normalize(value) is value
    assert Caster(named(order=named(price=NUMBER))).normalize({"order": value}) == {"order": value}
