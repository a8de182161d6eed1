"""Which arguments take text, and schemas extended to accept references."""

import json
from typing import Any

import jsonschema
import pytest
from forebay.outputs.schemas import accepts_text, allow_references
from hypothesis import assume, given
from hypothesis import strategies as st

TEXT, OBJECT, NUMBER, NULL = ({"type": kind} for kind in ("string", "object", "number", "null"))


def make_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


DEFINED = {
    "$defs": {
        "text": TEXT,
        "tree": make_schema(name=TEXT, more={"type": "array", "items": {"$ref": "#/$defs/tree"}}),
        "a/~b": OBJECT,
    },
    **make_schema(
        text={"$ref": "#/$defs/text"},
        tree={"$ref": "#/$defs/tree"},
        odd={"$ref": "#/$defs/a~1~0b"},
        none={"$ref": "#/$defs/none"},
        far={"$ref": "https://example.org/schema"},
        own={"$ref": "#"},
    ),
}


@pytest.mark.parametrize(
    ("schema", "path", "is_text"),
    [
        (None, ["a"], True),
        (True, ["a"], True),
        ({}, ["a"], True),
        (make_schema(), ["a"], True),
        (make_schema(a=TEXT), ["a"], True),
        (make_schema(a=OBJECT), ["a"], False),
        (make_schema(a={"type": "array"}), ["a"], False),
        (make_schema(a=NUMBER), ["a"], False),
        (make_schema(a={}), ["a"], True),
        (make_schema(a={"type": ["object", "string"]}), ["a"], True),
        (make_schema(a={"type": ["object", "null"]}), ["a"], False),
        (make_schema(a={"anyOf": [TEXT, NULL]}), ["a"], True),
        (make_schema(a={"anyOf": [OBJECT, NULL]}), ["a"], False),
        (make_schema(a={"anyOf": [OBJECT, {}]}), ["a"], True),
        (make_schema(a={"oneOf": [OBJECT, {"type": "array"}]}), ["a"], False),
        (make_schema(a={"allOf": [{"type": ["string", "object"]}, {"type": ["object", "array"]}]}), ["a"], False),
        (make_schema(a={"enum": ["x", 1]}), ["a"], True),
        (make_schema(a={"const": {}}), ["a"], False),
        (make_schema(a=make_schema(b=OBJECT)), ["a", "b"], False),
        (make_schema(a=make_schema(b=OBJECT)), ["a", "c"], True),
        (make_schema(a={"type": "object", "additionalProperties": OBJECT}), ["a", "x"], False),
        (make_schema(a={"patternProperties": {"^x": TEXT}, "additionalProperties": OBJECT}), ["a", "x"], True),
        (make_schema(a={"type": "array", "items": OBJECT}), ["a", 5], False),
        (make_schema(a={"type": "array", "items": OBJECT, "prefixItems": [TEXT]}), ["a", 0], True),
        (make_schema(a={"type": "array", "items": OBJECT, "prefixItems": [TEXT]}), ["a", 1], False),
        (make_schema(a={"type": "array", "items": [TEXT, OBJECT], "additionalItems": OBJECT}), ["a", 0], True),
        (make_schema(a={"type": "array", "items": [TEXT, OBJECT], "additionalItems": OBJECT}), ["a", 9], False),
        # Only branches that can have such a member count.
        (make_schema(a={"anyOf": [make_schema(b=OBJECT), NULL, TEXT]}), ["a", "b"], False),
        (make_schema(a={"anyOf": [make_schema(b=OBJECT), make_schema(b=TEXT)]}), ["a", "b"], True),
        (make_schema(a={"allOf": [make_schema(b=OBJECT), make_schema(c=TEXT)]}), ["a", "b"], False),
        (DEFINED, ["text"], True),
        (DEFINED, ["tree"], False),
        (DEFINED, ["tree", "more", 3, "more", 0, "name"], True),
        (DEFINED, ["tree", *["more", 3] * 40], False),
        (DEFINED, ["odd"], False),
        (DEFINED, ["none"], True),
        (DEFINED, ["far"], True),
        (DEFINED, ["own", "own", "tree"], False),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, **make_schema(a={"$ref": "#/$defs/a"})}, ["a"], True),
        (
            {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}, **make_schema(a={"$ref": "#/$defs/a"})},
            ["a", "b"],
            True,
        ),
        ({"properties": 3, "anyOf": {}, "allOf": [3], "$ref": 3, "type": 3, "items": 3}, ["a", 0], True),
    ],
)
def test_accepts_text(schema: Any, path: list[str | int], is_text: bool) -> None:
    assert accepts_text(schema, path) is is_text


def test_an_argument_that_may_be_anything_takes_references() -> None:
    extended = allow_references(make_schema(a={"oneOf": [True, {"enum": ["x"]}]}, b={"anyOf": [{"const": 1}, NULL]}))
    assert jsonschema.Draft202012Validator(extended).is_valid({"a": {"$file": "p"}})
    assert "$file" not in json.dumps(extended["properties"]["b"])


kinds = st.sampled_from(["string", "object", "array", "integer", "null"])
leaves: st.SearchStrategy[dict[str, Any]] = (
    st.just({})
    | st.builds(lambda kind: {"type": kind}, kinds)
    | st.builds(lambda types: {"type": sorted(types)}, st.sets(kinds, min_size=1))
    | st.just({"type": "string", "enum": ["a", "b"]})
    | st.just({"type": "string", "minLength": 2, "title": "T"})
    | st.just({"type": "object", "properties": {"encoding": {"type": "integer"}}, "required": ["x"]})
    | st.just({"type": "object", "additionalProperties": False})
    | st.just({"type": "object", "additionalProperties": {"type": "integer"}})
    | st.just({"$ref": "#/$defs/strict"})
    | st.just({"$ref": "#/$defs/text", "description": "d"})
)
schemas = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda name, branches, notes: {name: branches, **notes},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
        st.sampled_from([{}, {"title": "T"}, {"type": "string"}, {"default": None}]),
    ),
    max_leaves=6,
)
DEFS = {
    "text": TEXT,
    "strict": {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False},
}
SAMPLES: list[Any] = ["a", "abc", "", 3, None, [], ["x"], {}, {"a": "b"}, {"x": 1}, {"a": 1}, True, 1.5]
REFERENCES = [{"$file": "p"}, {"$handle": "h", "path": "/a", "encoding": "base64"}, {"$file": "p", "lines": [0, 3]}]


def is_valid(schema: Any, arguments: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(arguments))


@pytest.mark.slow
@given(schemas)
def test_an_extended_schema_accepts_the_same_values_and_references(inner: dict[str, Any]) -> None:
    schema = {"$defs": DEFS, "type": "object", "properties": {"a": inner}, "required": ["a"]}
    extended = allow_references(schema)
    jsonschema.Draft202012Validator.check_schema(extended)
    accepted = [sample for sample in SAMPLES if is_valid(schema, {"a": sample})]
    assert all(is_valid(extended, {"a": sample}) for sample in accepted)
    # Enumerations stay unchanged; everything else that takes a string, array or object takes a reference.
    assume("enum" not in json.dumps(inner))
    if any(isinstance(sample, str | list | dict) for sample in accepted):
        for reference in REFERENCES:
            assert is_valid(extended, {"a": reference}), reference
    else:
        assert [sample for sample in SAMPLES if is_valid(extended, {"a": sample}) and sample not in accepted] in (
            [],
            [{}, {"a": "b"}, {"x": 1}, {"a": 1}],
        )


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        make_schema(),
        make_schema(a=NUMBER, b={"type": "boolean"}, c={"enum": ["x"]}, d={"type": "string", "enum": ["x"]}),
        make_schema(a={"anyOf": [{"enum": ["x"]}, NULL]}),
        make_schema(a=OBJECT, b={"type": "object", "title": "B", "additionalProperties": True}, c={}),
        {"properties": 3},
        make_schema(a=True, b=3),
    ],
)
def test_schemas_that_need_no_change_stay_identical(schema: dict[str, Any]) -> None:
    assert allow_references(schema) is schema


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TEXT, {"type": ["string", "object"]}),
        ({"type": "array", "items": TEXT}, {"type": ["array", "object"], "items": TEXT}),
        ({"type": ["string", "null"]}, {"type": ["string", "null", "object"]}),
        ({"anyOf": [TEXT, NULL], "default": None}, {"anyOf": [TEXT, NULL, OBJECT], "default": None}),
    ],
)
def test_most_schemas_grow_by_a_few_bytes(before: Any, after: Any) -> None:
    assert allow_references(make_schema(a=before)) == make_schema(a=after)


def test_a_strict_object_accepts_references_only() -> None:
    strict = {"type": "object", "properties": {"x": NUMBER}, "required": ["x"], "additionalProperties": False}
    for inner in (strict, {"anyOf": [strict, NULL]}, {"oneOf": [strict, TEXT]}):
        extended = allow_references(make_schema(a=inner))
        assert is_valid(extended, {"a": {"x": 1}})
        assert all(is_valid(extended, {"a": reference}) for reference in REFERENCES)
        assert not is_valid(extended, {"a": {"y": 1}})
        assert not is_valid(extended, {"a": {}})
