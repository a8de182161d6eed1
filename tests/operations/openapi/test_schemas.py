"""Schemas of a document, as those of operations."""

from typing import Any

import jsonschema_rs
import pytest
from http_api import document, one
from openapi_specs import HERE, content, input_of, output_of, specs

TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}}


def test_references_are_bundled_and_recursive_ones_stay() -> None:
    for found in (
        output_of({"$ref": "#/components/schemas/Tree"}, Tree=TREE, Unused={}),
        output_of({"$ref": "#/components/schemas/Tree"}, "3.0.3", Tree=TREE, Unused={}),
    ):
        assert found["$ref"] == "#/$defs/Tree"
        assert [*found["$defs"]] == ["Tree"]
        validator = jsonschema_rs.validator_for(found)
        assert validator.is_valid({"children": [{"children": []}]})
        assert not validator.is_valid({"children": [{"children": 7}]})


def test_references_with_names_alike_and_odd_ones() -> None:
    components: dict[str, Any] = {
        "A~B/C": {"type": "string"},
        "Wrap": {"properties": {"A": {"type": "integer"}}},
        "A": {"type": "null"},
    }
    refs = ["#/components/schemas/A~0B~1C", "#/components/schemas/Wrap/properties/A", "#/components/schemas/A"]
    found = output_of({"prefixItems": [{"$ref": ref} for ref in refs]}, **components)
    validator = jsonschema_rs.validator_for(found)
    assert validator.is_valid(["x", 1, None])
    for wrong in ([1], ["x", "y"], ["x", 1, 2]):
        assert not validator.is_valid(wrong)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
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
def test_schemas_of_3_0(schema: Any, right: list[Any], wrong: list[Any]) -> None:
    found = output_of(schema, "3.0.3", N={"type": "integer"})
    jsonschema_rs.meta.validate(found)
    validator = jsonschema_rs.validator_for(found)
    assert all(map(validator.is_valid, right))
    assert not any(map(validator.is_valid, wrong))


def test_what_says_nothing_is_dropped_and_the_discriminator_kept() -> None:
    kept = {"discriminator": {"propertyName": "kind"}, "oneOf": [{"type": "object"}], "x-own": 1}
    noise = {"example": 1, "examples": [1], "xml": {}, "externalDocs": {}, "$id": "http://elsewhere.invalid/"}
    assert output_of({**kept, **noise}) == kept


def test_schemas_of_3_1_are_as_they_are() -> None:
    schema = {"type": ["string", "null"], "exclusiveMinimum": 1, "const": 1, "if": {"nullable": True}}
    assert output_of(schema) == schema


def test_what_is_only_read_need_not_be_sent() -> None:
    schema = {
        "type": "object",
        "required": ["id", "name", "password"],
        "properties": {"id": {"readOnly": True}, "name": {}, "password": {"writeOnly": True}},
    }
    assert input_of(schema)["properties"]["body"]["required"] == ["name", "password"]
    assert output_of(schema)["required"] == ["id", "name"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"id": {"$ref": "#/components/schemas/Id"}, "name": {}}},
        {"properties": {"id": {"allOf": [{"$ref": "#/components/schemas/Id"}]}, "name": {}}},
        {"allOf": [{"$ref": "#/components/schemas/Base"}]},
        {"$ref": "#/components/schemas/Base"},
    ],
)
def test_what_is_only_ever_read_is_so_wherever_that_is_said(schema: dict[str, Any]) -> None:
    components: dict[str, Any] = {
        "Id": {"type": "integer", "readOnly": True},
        "Base": {"properties": {"id": {"$ref": "#/components/schemas/Id"}, "name": {}}},
    }
    told = {**schema, "required": ["id", "name"]}
    assert input_of(told, **components)["properties"]["body"]["required"] == ["name"]
    assert output_of(told, **components)["required"] == ["id", "name"]
    beside = {"allOf": [schema, {"required": ["id", "name"]}]}
    assert input_of(beside, **components)["properties"]["body"]["allOf"][1]["required"] == ["name"]


def fits(schema: Any, value: Any) -> bool:
    return jsonschema_rs.validator_for(schema).is_valid(value)


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_what_is_only_ever_read_is_so_for_all_that_it_is_made_of(version: str) -> None:
    def ref(name: str) -> dict[str, Any]:
        return {"$ref": f"#/components/schemas/{name}"}

    components: dict[str, Any] = {
        "Said": {"properties": {"id": {"type": "integer", "readOnly": True}}},
        "Wanted": {"type": "object", "required": ["id", "name"]},
        "Further": {"allOf": [ref("Wanted"), ref("Further2")]},
        "Further2": {"allOf": [ref("Wanted"), ref("Wanted")]},
    }
    alone = {"type": "object", "properties": {"own": ref("Wanted")}, "required": ["own"]}
    for behind in ("Wanted", "Further"):
        schema = {"allOf": [ref("Said"), ref(behind), alone]}
        found, received = input_of(schema, version, **components), output_of(schema, version, **components)
        own = {"id": 1, "name": "a"}
        assert fits(found, {"body": {"name": "a", "own": own}})
        assert not fits(found, {"body": {"id": 1, "own": own}})
        assert not fits(found, {"body": {"name": "a", "own": {"name": "a"}}})
        assert not fits(received, {"name": "a", "own": own})


def test_a_property_beside_a_reference_tells_what_is_only_read() -> None:
    schema = {"$ref": "#/components/schemas/Wanted", "properties": {"id": {"readOnly": True}}}
    assert fits(input_of(schema, Wanted={"required": ["id"]}), {"body": {}})


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_schemas_made_of_each_other_many_times_over(version: str) -> None:
    """Each by itself they are few; written out they are more than fit anywhere."""
    parts: dict[str, Any] = {
        f"S{number}": {"allOf": [{"$ref": f"#/components/schemas/S{number - 1}"}] * 2} for number in range(1, 60)
    }
    said = {"properties": {"id": {"readOnly": True}}}
    schema = {"allOf": [said, {"$ref": "#/components/schemas/S59"}]}
    found = input_of(schema, version, **parts, S0={"required": ["id"]})
    assert len(found["$defs"]) == 60
    assert found["$defs"]["S0"]["required"] == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_schemas_that_refer_on_and_on(version: str) -> None:
    def ref(number: int) -> dict[str, Any]:
        return {"$ref": f"#/components/schemas/S{number % 5000}"}

    chain = {f"S{number}": {"type": "object", "properties": {"next": ref(number + 1)}} for number in range(5000)}
    assert len(output_of(ref(0), version, **chain)["$defs"]) == 5000
    aliases = {f"S{number}": ref(number + 1) for number in range(4999)}
    found = input_of(ref(0), version, **aliases, S4999={"type": "integer"})
    assert found["$defs"]["S4999"] == {"type": "integer"}


def test_a_schema_is_converted_once_for_all_operations() -> None:
    responses = {"200": content({"$ref": "#/components/schemas/S"})}
    paths = {f"/{number}": {"get": {"responses": responses}} for number in range(2)}
    first, second = specs(document(paths, HERE, components={"schemas": {"S": {"type": "object"}}}))
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
def test_what_no_schema_can_mean_is_left_out(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert output_of(schema, "3.0.3") == expected


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
    [found] = specs(document(one(responses=responses), HERE, components=components))
    assert found.output_schema == expected
