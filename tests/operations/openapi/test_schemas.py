"""Conversion of a document's schemas to those of operations."""

from typing import Any

import jsonschema_rs
import pytest
from http_api import document, single_operation
from openapi_specs import BASE_URL, content, read_input_schema, read_output_schema, read_specs

TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}}


def test_references_are_bundled() -> None:
    for schema in (
        read_output_schema({"$ref": "#/components/schemas/Tree"}, Tree=TREE, Unused={}),
        read_output_schema({"$ref": "#/components/schemas/Tree"}, "3.0.3", Tree=TREE, Unused={}),
    ):
        assert schema["$ref"] == "#/$defs/Tree"
        assert [*schema["$defs"]] == ["Tree"]
        validator = jsonschema_rs.validator_for(schema)
        assert validator.is_valid({"children": [{"children": []}]})
        assert not validator.is_valid({"children": [{"children": 7}]})


def test_references_with_equal_or_escaped_names() -> None:
    components: dict[str, Any] = {
        "A~B/C": {"type": "string"},
        "Wrap": {"properties": {"A": {"type": "integer"}}},
        "A": {"type": "null"},
    }
    refs = ["#/components/schemas/A~0B~1C", "#/components/schemas/Wrap/properties/A", "#/components/schemas/A"]
    converted = read_output_schema({"prefixItems": [{"$ref": ref} for ref in refs]}, **components)
    validator = jsonschema_rs.validator_for(converted)
    assert validator.is_valid(["x", 1, None])
    for invalid in ([1], ["x", "y"], ["x", 1, 2]):
        assert not validator.is_valid(invalid)


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "string", "nullable": True}, ["a", None], [1]),
        ({"type": "string", "nullable": False}, ["a"], [None]),
        ({"type": "string", "enum": ["a"], "nullable": True}, ["a", None], ["b"]),
        ({"allOf": [{"$ref": "#/components/schemas/N"}], "nullable": True}, [1, None], ["a"]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": False}, [1], [0]),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": True}, [0], [1]),
        ({"$ref": "#/components/schemas/N", "type": "string"}, [1], ["a"]),
        ({"properties": {"nullable": {"type": "string"}, "example": {"type": "string"}}}, [{}], [{"example": 1}]),
        ({"type": "object", "properties": {"a": {"type": "string", "required": True}}}, [{}], [{"a": 1}]),
    ],
)
def test_schemas_of_3_0(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    converted = read_output_schema(schema, "3.0.3", N={"type": "integer"})
    jsonschema_rs.meta.validate(converted)
    validator = jsonschema_rs.validator_for(converted)
    assert all(map(validator.is_valid, valid))
    assert not any(map(validator.is_valid, invalid))


def test_annotations_are_dropped_and_the_discriminator_is_kept() -> None:
    constraints = {"discriminator": {"propertyName": "kind"}, "oneOf": [{"type": "object"}], "x-own": 1}
    annotations = {"example": 1, "examples": [1], "xml": {}, "externalDocs": {}, "$id": "http://elsewhere.invalid/"}
    assert read_output_schema({**constraints, **annotations}) == constraints


def test_schemas_of_3_1_are_unchanged() -> None:
    schema = {"type": ["string", "null"], "exclusiveMinimum": 1, "const": 1, "if": {"nullable": True}}
    assert read_output_schema(schema) == schema


def test_read_only_properties_are_optional_in_requests() -> None:
    schema = {
        "type": "object",
        "required": ["id", "name", "password"],
        "properties": {"id": {"readOnly": True}, "name": {}, "password": {"writeOnly": True}},
    }
    assert read_input_schema(schema)["properties"]["body"]["required"] == ["name", "password"]
    assert read_output_schema(schema)["required"] == ["id", "name"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"id": {"$ref": "#/components/schemas/Id"}, "name": {}}},
        {"properties": {"id": {"allOf": [{"$ref": "#/components/schemas/Id"}]}, "name": {}}},
        {"allOf": [{"$ref": "#/components/schemas/Base"}]},
        {"$ref": "#/components/schemas/Base"},
    ],
)
def test_read_only_through_references_and_all_of(schema: dict[str, Any]) -> None:
    components: dict[str, Any] = {
        "Id": {"type": "integer", "readOnly": True},
        "Base": {"properties": {"id": {"$ref": "#/components/schemas/Id"}, "name": {}}},
    }
    requiring = {**schema, "required": ["id", "name"]}
    assert read_input_schema(requiring, **components)["properties"]["body"]["required"] == ["name"]
    assert read_output_schema(requiring, **components)["required"] == ["id", "name"]
    beside = {"allOf": [schema, {"required": ["id", "name"]}]}
    assert read_input_schema(beside, **components)["properties"]["body"]["allOf"][1]["required"] == ["name"]


def is_valid(schema: Any, value: Any) -> bool:
    return jsonschema_rs.validator_for(schema).is_valid(value)


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_read_only_applies_to_all_parts_of_all_of(version: str) -> None:
    def ref(name: str) -> dict[str, Any]:
        return {"$ref": f"#/components/schemas/{name}"}

    components: dict[str, Any] = {
        "ReadOnly": {"properties": {"id": {"type": "integer", "readOnly": True}}},
        "Required": {"type": "object", "required": ["id", "name"]},
        "Nested": {"allOf": [ref("Required"), ref("Nested2")]},
        "Nested2": {"allOf": [ref("Required"), ref("Required")]},
    }
    separate = {"type": "object", "properties": {"own": ref("Required")}, "required": ["own"]}
    for name in ("Required", "Nested"):
        schema = {"allOf": [ref("ReadOnly"), ref(name), separate]}
        request = read_input_schema(schema, version, **components)
        response = read_output_schema(schema, version, **components)
        own = {"id": 1, "name": "a"}
        assert is_valid(request, {"body": {"name": "a", "own": own}})
        assert not is_valid(request, {"body": {"id": 1, "own": own}})
        assert not is_valid(request, {"body": {"name": "a", "own": {"name": "a"}}})
        assert not is_valid(response, {"name": "a", "own": own})


def test_read_only_beside_a_reference() -> None:
    schema = {"$ref": "#/components/schemas/Required", "properties": {"id": {"readOnly": True}}}
    assert is_valid(read_input_schema(schema, Required={"required": ["id"]}), {"body": {}})


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_exponentially_nested_all_of(version: str) -> None:
    """60 schemas that would have 2**59 copies of `S0` if they were inlined."""
    parts: dict[str, Any] = {
        f"S{number}": {"allOf": [{"$ref": f"#/components/schemas/S{number - 1}"}] * 2} for number in range(1, 60)
    }
    read_only = {"properties": {"id": {"readOnly": True}}}
    schema = {"allOf": [read_only, {"$ref": "#/components/schemas/S59"}]}
    converted = read_input_schema(schema, version, **parts, S0={"required": ["id"]})
    assert len(converted["$defs"]) == 60
    assert converted["$defs"]["S0"]["required"] == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_long_chains_of_references(version: str) -> None:
    def ref(number: int) -> dict[str, Any]:
        return {"$ref": f"#/components/schemas/S{number % 5000}"}

    chain = {f"S{number}": {"type": "object", "properties": {"next": ref(number + 1)}} for number in range(5000)}
    assert len(read_output_schema(ref(0), version, **chain)["$defs"]) == 5000
    aliases = {f"S{number}": ref(number + 1) for number in range(4999)}
    converted = read_input_schema(ref(0), version, **aliases, S4999={"type": "integer"})
    assert converted["$defs"]["S4999"] == {"type": "integer"}


def test_schema_is_converted_once_for_all_operations() -> None:
    responses = {"200": content({"$ref": "#/components/schemas/S"})}
    paths = {f"/{number}": {"get": {"responses": responses}} for number in range(2)}
    first, second = read_specs(document(paths, BASE_URL, components={"schemas": {"S": {"type": "object"}}}))
    assert first.output_schema == {"$ref": "#/$defs/S", "$defs": {"S": {"type": "object"}}}
    assert isinstance(second.output_schema, dict)
    assert second.output_schema["$defs"]["S"] is first.output_schema["$defs"]["S"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"required": [["a"], "b"]}, {"required": ["b"]}),
        ({"type": {"a": 1}, "nullable": True}, {}),
        ({"enum": 7, "nullable": True}, {}),
        ({"items": {"type": [["string"]], "nullable": True}}, {"items": {}}),
        ({"allOf": [], "anyOf": [], "type": "string"}, {"type": "string"}),
    ],
)
def test_invalid_keywords_are_dropped(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read_output_schema(schema, "3.0.3") == expected


@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        (
            {"404": content({"const": 1}), "201": content({"const": 2}), "200": content({"const": 3})},
            {"anyOf": [{"const": 2}, {"const": 3}]},
        ),
        ({"200": content({"const": 2}), "201": content({"const": 2})}, {"const": 2}),
        ({"200": {}, "201": content({"const": 2})}, None),
        ({"200": {"content": {"application/json": {}}}, "201": content({"const": 2})}, None),
        ({"200": content({"const": 2}), "204": {}, "206": content({}, "text/csv")}, {"const": 2}),
        ({"2XX": content({"const": 2})}, {"const": 2}),
        ({"default": content({"const": 2})}, None),
        ({"204": {}, "default": content({"const": 2})}, None),
        ({"200": content({"const": 2}, "text/plain")}, None),
        ({"200": content({"const": 2}, "application/hal+json")}, {"const": 2}),
        (
            {"200": {"content": {"application/hal+json": {"schema": False}, "application/json": {"schema": True}}}},
            True,
        ),
        ({"200": {"$ref": "#/components/responses/R"}}, {"const": 9}),
        ({}, None),
        (None, None),
    ],
)
def test_output_schemas(responses: Any, expected: Any) -> None:
    components = {"responses": {"R": content({"const": 9})}}
    [spec] = read_specs(document(single_operation(responses=responses), BASE_URL, components=components))
    assert spec.output_schema == expected
