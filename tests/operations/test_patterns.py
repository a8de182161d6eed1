"""A pattern that the validator cannot compile is ignored; the rest of the schema still counts."""

import logging
from typing import Any

import pytest
from forebay.operations.cast import Caster
from forebay.operations.patterns import remove_foreign_patterns
from forebay.operations.validation import Validator

FOREIGN = r"^(?>a+)\Z"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "string", "pattern": FOREIGN}, "b", 1),
        ({"type": "string", "pattern": FOREIGN, "maxLength": 2}, "bb", "bbb"),
        ({"properties": {"a": {"pattern": FOREIGN}, "b": {"pattern": "^x"}}}, {"a": "b", "b": "x"}, {"b": "y"}),
        ({"properties": {"pattern": {"type": "string", "pattern": FOREIGN}}}, {"pattern": "b"}, {"pattern": 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "pattern": FOREIGN}}}, "b", 1),
        ({"$ref": "#/x-own/0", "x-own": [{"type": "string", "pattern": FOREIGN}]}, "b", 1),
        ({"items": {"anyOf": [{"type": "string", "pattern": FOREIGN}, {"type": "null"}]}}, ["b", None], [1]),
        ({"propertyNames": {"pattern": FOREIGN, "minLength": 2}}, {"bb": 1}, {"b": 1}),
        (
            {"patternProperties": {FOREIGN: {"type": "null"}, "^n": {"type": "integer"}}},
            {"n": 1, "a": 1},
            {"n": "x"},
        ),
        (
            {"patternProperties": {FOREIGN: {}}, "additionalProperties": False, "properties": {"n": {"type": "null"}}},
            {"n": None, "a": 1},
            {"n": "x"},
        ),
        (
            {"allOf": [{"patternProperties": {FOREIGN: {}}}], "unevaluatedProperties": False, "required": ["a"]},
            {"a": 1},
            {},
        ),
        ({"patternProperties": {"^n": {"type": "string", "pattern": FOREIGN}}}, {"n": "b"}, {"n": 1}),
        (
            {
                "$schema": DRAFT_7,
                "$id": "http://example.com/root.json",
                "properties": {"a": {"$ref": "inner.json"}, "b": {"$ref": "#/definitions/other"}},
                "definitions": {
                    "inner": {"$id": "inner.json", "type": "string", "pattern": FOREIGN},
                    "other": {"patternProperties": {FOREIGN: {}}, "maxProperties": 1},
                },
            },
            {"a": "b", "b": {"c": 1}},
            {"a": 1},
        ),
        ({"$schema": DRAFT_7, "dependencies": {"a": {"properties": {"b": {"pattern": FOREIGN}}, "required": ["b"]}}},
         {"a": 1, "b": "x"}, {"a": 1}),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "pattern": FOREIGN, "type": "string"}, "b", 1),
        ({"nullable": True, "type": "string", "pattern": FOREIGN}, None, 1),
        ({"const": {"pattern": FOREIGN}, "properties": {"pattern": {"pattern": FOREIGN}}}, {"pattern": FOREIGN}, {}),
    ],
)  # fmt: skip
def test_only_the_pattern_is_ignored(
    schema: dict[str, Any], valid: Any, invalid: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "forebay"):
        validator = Validator(schema, "the input of x")
    assert validator.has_rules
    assert validator.problems(valid) == []
    assert validator.problems(invalid)
    [record] = caplog.records
    assert "the input of x" in record.getMessage()
    assert repr(FOREIGN) in record.getMessage()


def test_the_warning_names_a_few_patterns_of_many(caplog: pytest.LogCaptureFixture) -> None:
    properties = {f"p{number}": {"type": "integer", "pattern": f"(?>{number})"} for number in range(2000)}
    validator = Validator({"properties": properties})
    assert validator.problems({"p1999": "x"})
    [record] = caplog.records
    assert "/properties/p0/pattern '(?>0)'" in record.getMessage()
    assert "and 1995 more" in record.getMessage()


def test_another_fault_still_switches_validation_off(caplog: pytest.LogCaptureFixture) -> None:
    assert not Validator({"pattern": FOREIGN, "type": 5}).has_rules
    [record] = caplog.records
    assert "is not checked: its schema" in record.getMessage()


def test_a_schema_whose_patterns_are_all_known_stays_equal() -> None:
    schema = {"pattern": "^(?=a)", "patternProperties": {"x": {"pattern": "y"}}, "enum": [{"pattern": FOREIGN}]}
    assert remove_foreign_patterns(schema) == (schema, [])


def test_values_are_still_cast() -> None:
    properties = {"n": {"type": "integer"}, "s": {"type": "string", "pattern": FOREIGN}}
    assert Caster({"type": "object", "properties": properties}).cast({"n": "5", "s": "b"}) == {"n": 5, "s": "b"}
