"""Documents: how they are read, and what they become."""

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headgate.operations
import httpx2
import jsonschema_rs
import pytest
import yaml
from headgate import InvalidArgument
from headgate.operations import CallError, OperationRegistry, OperationSpec, from_openapi
from headgate.operations.openapi import HTTPOperations
from http_api import API, Answer, document, http_api, one

HERE = "http://127.0.0.1:1"


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


def read(source: Any, **options: Any) -> HTTPOperations:
    async def run() -> HTTPOperations:
        async with await from_openapi(source, **options) as operations:
            return operations

    return asyncio.run(run())


def specs(source: Any, **options: Any) -> list[OperationSpec]:
    return [operation.spec for operation in read(source, **options)]


def spec_of(version: str = "3.1.0", components: Any = None, **operation: Any) -> OperationSpec:
    more = {"components": {"schemas": components}} if components else {}
    [found] = specs(document(one("/x", "post", **operation), HERE, version=version, **more))
    return found


def output_of(schema: Any, version: str = "3.1.0", **components: Any) -> Any:
    responses = {"200": {"content": {"application/json": {"schema": schema}}}}
    return spec_of(version, components, responses=responses).output_schema


def input_of(schema: Any, version: str = "3.1.0", **components: Any) -> Any:
    content = {"application/json": {"schema": schema}}
    return spec_of(version, components, requestBody={"content": content}).input_schema


PETS = document({"/pets/{id}": {"get": {"operationId": "getPet", "summary": "One pet"}}}, HERE, version="3.0.3")


@pytest.mark.parametrize("version", ["3.0.0", "3.0.4", "3.1.0", "3.1.1"])
@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump, lambda told: json.dumps(told, indent=2)])
def test_every_way_to_give_a_document(version: str, write: Any, tmp_path: Path, api: API) -> None:
    told = {**PETS, "openapi": version}
    text = write(told)
    (tmp_path / "api.txt").write_text(text)
    api.answers["/api"] = Answer(text.encode(), "text/plain")
    for source in (told, text, text.encode(), bytearray(text.encode()), tmp_path / "api.txt", f"{api.url}/api"):
        [found] = specs(source)
        assert (found.id, found.type, found.description) == ("api.getPet", "query", "One pet")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"swagger": "2.0", "paths": {}}, "Swagger '2.0' document; convert it"),
        ({"openapi": "2.0"}, "3.0 and 3.1 are understood"),
        ({"openapi": "4.0"}, "3.0 and 3.1 are understood"),
        ({"openapi": None}, 'has no "openapi"'),
        ({}, 'has no "openapi"'),
        ({"openapi": "3.1.0", "paths": []}, '"paths" must be an object'),
        ("", "no OpenAPI document"),
        ("openapi.yaml", "give a Path for a file"),
        ("ftp://example.com/api.json", "an http or https URL"),
        ('{"openapi": "3.1.0",', "not JSON"),
        ("a: [", "neither JSON nor YAML"),
        ("a: !!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (7, "a document is a dict"),
        (Path("/nowhere/api.json"), "cannot be read"),
        (document({"/x": 7}, HERE), "the path /x must be an object"),
        (document({"/x": {"get": 7}}, HERE), "get /x must be an object"),
        (document(one(parameters=[{"$ref": "#/components/parameters/gone"}]), HERE), "leads nowhere"),
        (document(one(parameters=[{"$ref": "#/a"}]), HERE, a={"$ref": "#/a"}), "leads back to itself"),
        (document(one(requestBody={"$ref": "other.yaml#/Body"}), HERE), r"\$ref 'other.yaml#/Body' leads out"),
        (document(one(requestBody={"content": {"application/json": {"schema": {"$ref": "http://x.invalid/s"}}}}), HERE),
         r"\$ref 'http://x.invalid/s' leads out"),
    ],
)  # fmt: skip
def test_documents_that_cannot_be_used(source: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        read(source)


def test_what_nobody_wants_may_be_broken() -> None:
    paths = {"/bad": {"get": {"parameters": [{"$ref": "gone.yaml"}]}}, "/good": {"get": {}}, "x-more": 7}
    asked = []

    def include(method: str, path: str, operation: Any) -> bool:
        asked.append((method, path, operation))
        return path == "/good"

    [found] = specs(document(paths, HERE), include=include)
    assert found.name == "get_good"
    assert asked == [("get", "/bad", paths["/bad"]["get"]), ("get", "/good", {})]  # type: ignore[index]


def test_yaml_is_that_of_json() -> None:
    text = """
    openapi: 3.1.0
    x-shared: &shared {type: string, description: shared}
    paths:
      /x:
        get:
          operationId: on
          parameters:
            - {name: a, in: query, schema: {enum: [no, NO, 2020-01-01, 012, 1_000, 1:30, 7, 1.5, 1e3, true, null, ~]}}
            - {name: b, in: query, schema: {<<: *shared, maxLength: 3}}
          responses:
            200:
              content: {application/json: {schema: {type: integer}}}
    servers: [{url: "http://127.0.0.1:1"}]
    """
    [found] = specs(text)
    assert found.name == "on"
    assert isinstance(found.input_schema, dict)
    properties = found.input_schema["properties"]
    expected = ["no", "NO", "2020-01-01", "012", "1_000", "1:30", 7, 1.5, 1000.0, True, None, None]
    assert properties["a"]["enum"] == expected
    assert properties["b"] == {"type": "string", "description": "shared", "maxLength": 3}
    assert found.output_schema == {"type": "integer"}


def bomb(of: str) -> str:
    return "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {of.replace('N', str(n - 1))}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (bomb("[*aN, *aN]"), "aliases"),
        (bomb("{l: *aN, r: *aN}"), "aliases"),
        ("x: &x {y: *x}", "recursive"),
        ("[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
    ],
)
def test_yaml_that_grows_without_bounds(text: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        read(text)


def test_merges_that_grow_without_bounds() -> None:
    text = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
    with pytest.raises(InvalidArgument, match="merges"):
        read(text)


def test_schemas_that_are_nested_too_deeply() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        output_of(schema)


def test_fetching_a_document(api: API) -> None:
    told = document({"/x": {"get": {"operationId": "op"}}}, "../v2")
    api.answers["/docs/old"] = Answer(status=302, headers=[("Location", "/docs/v1/api.json")])
    api.answers["/docs/v1/api.json"] = Answer(json.dumps(told).encode())

    async def run() -> None:
        async with await from_openapi(f"{api.url}/docs/old", headers={"X-Own": "1"}) as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    asyncio.run(run())
    assert [each.target for each in api.arrived] == ["/docs/old", "/docs/v1/api.json", "/docs/v2/x"]
    assert all(each.header("x-own") == "1" for each in api.arrived)


def test_documents_that_cannot_be_fetched(api: API) -> None:
    api.usual = Answer(b"", status=404)
    with pytest.raises(CallError, match="404"):
        read(f"{api.url}/api")
    with pytest.raises(CallError, match="ConnectError"):
        read(f"{HERE}/api")
    api.usual = Answer(b" " * (20 * 1024 * 1024 + 1))
    with pytest.raises(InvalidArgument, match="at most 20971520 bytes"):
        read(f"{api.url}/api")

    def never(_: object) -> None:
        api.released.wait(20)

    api.answers["/api"] = never
    with pytest.raises(CallError) as caught:
        read(f"{api.url}/api", timeout=0.3)
    assert caught.value.code == "TIMEOUT"


@pytest.mark.parametrize(
    ("path", "operation_id", "name"),
    [
        ("/users/{id}", "getUser", "getUser"),
        ("/users/{id}", "users/get one!", "users_get_one"),
        ("/users/{id}", None, "get_users_id"),
        ("/", None, "get"),
        ("/ü", "ü", "operation"),
        ("/x", "a" * 1000, "a" * 128),
    ],
)
def test_names(path: str, operation_id: str | None, name: str) -> None:
    operation = {} if operation_id is None else {"operationId": operation_id}
    [found] = specs(document({path: {"get": operation}}, HERE))
    assert found.name == name


def test_names_are_unique_and_methods_have_types() -> None:
    methods = ["get", "head", "post", "put", "patch", "delete", "options", "trace"]
    found = specs(document({"/x": {method: {"operationId": "same"} for method in methods}}, HERE))
    assert len({each.id for each in found}) == len(methods)
    assert sorted(each.type for each in found) == ["mutation"] * 6 + ["query"] * 2
    assert {each.name for each in found} >= {"same", "same_2"}


def test_descriptions() -> None:
    assert spec_of(summary="Short", description="Long").description == "Short\n\nLong"
    assert spec_of(summary="Same", description="Same").description == "Same"
    assert spec_of(deprecated=True, summary="Old").description == "Deprecated.\n\nOld"
    assert spec_of().description == ""


def test_namespaces() -> None:
    told = {**PETS, "info": {"title": "Pet Store! (v2)"}}
    assert specs(told)[0].id == "pet_store_v2.getPet"
    assert specs(told, namespace="pets")[0].id == "pets.getPet"
    assert specs({**PETS, "info": {}})[0].id == "http.getPet"


def test_registering_twice_is_refused() -> None:
    operations = read(PETS)
    registry = operations.register_into(OperationRegistry())
    assert [*registry] == [operation.spec for operation in operations]
    assert len(operations) == 1
    assert operations[0:1] == (operations[0],)
    with pytest.raises(InvalidArgument, match="registered already"):
        operations.register_into(registry)


def test_all_are_registered_or_none() -> None:
    operations = read(document({"/a": {"get": {}}, "/b": {"get": {}}}, HERE), namespace="api")
    registry = OperationRegistry([operations[1]])
    with pytest.raises(InvalidArgument, match=r"api\.get_b is registered already"):
        operations.register_into(registry)
    assert [spec.id for spec in registry] == ["api.get_b"]
    asyncio.run(operations.aclose())
    assert "api.get_b" in registry


def test_closing_leaves_what_others_put_in_its_place() -> None:
    operations = read(document({"/a": {"get": {}}}, HERE), namespace="api")
    registry = operations.register_into(OperationRegistry())
    registry.unregister("api.get_a")
    registry.register(operations[0].spec, lambda *_: 1)
    asyncio.run(operations.aclose())
    assert "api.get_a" in registry


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"security": "s3kret"}, "security is a dict"),
        ({"headers": "s3kret"}, "headers is a dict"),
        ({"headers": {"X": 7}}, "headers is a dict of texts"),
        ({"client": httpx2.Client()}, r"client is an httpx2\.AsyncClient, not Client"),
        *(({"timeout": value}, "timeout is a number") for value in ("3", 0, -1, True, float("nan"))),
        ({"timeout": 10**400}, "a timeout is a number"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told) as caught:
        read(PETS, **options)
    assert "s3kret" not in str(caught.value)


def url_of(told: dict[str, Any], **options: Any) -> str:
    return repr(read(told, **options)[0].handler).split()[2].rstrip(">")


def test_servers() -> None:
    paths = one("/x")
    variables = {"host": {"default": "127.0.0.1"}, "v": {"default": "v1", "enum": ["v1", "v2"]}}
    server = {"url": "http://{host}/{v}/", "variables": variables}
    assert url_of(document(paths, servers=[server, {"url": "http://second"}])) == "http://127.0.0.1/v1/x"
    assert url_of(document(one("/x", item={"servers": [{"url": "https://path"}]}), HERE)) == "https://path/x"
    nearest = one("/x", item={"servers": [{"url": "https://path"}]}, servers=[{"url": "https://operation/"}])
    assert url_of(document(nearest, HERE)) == "https://operation/x"
    assert url_of(document(nearest, HERE), base_url="http://mine/api/") == "http://mine/api/x"


@pytest.mark.parametrize(
    "server", [None, "/v1", "ftp://x", "file:///etc", "http://", "http://{gone}/", "http://[", "javascript:1"]
)
def test_servers_that_nothing_can_be_sent_to(server: str | None) -> None:
    with pytest.raises(InvalidArgument, match="give base_url"):
        read(document(one("/x"), server))
    with pytest.raises(InvalidArgument, match="give base_url"):
        read(PETS, base_url=server or "//x")


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
    ],
)
def test_what_no_schema_can_mean_is_left_out(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert output_of(schema, "3.0.3") == expected


def test_a_reference_with_a_number_of_thousands_of_digits() -> None:
    with pytest.raises(InvalidArgument, match="leads nowhere"):
        output_of({"$ref": "#/components/schemas/S/allOf/" + "9" * 5000}, S={"allOf": [{}]})


def test_an_operation_that_cannot_be_used_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    paths = {
        "/good": {"get": {"operationId": "good"}},
        "/bad": {"post": {"operationId": "bad", "parameters": [{"$ref": "other.yaml#/x"}]}, "put": 7},
        "/worse": "nothing",
        "/deep": {"get": {"responses": {"200": content(nested(2000))}}},
    }
    assert [spec.name for spec in specs(document(paths, HERE))] == ["good"]
    told = [record.getMessage() for record in caplog.records if record.name == "headgate"]
    assert len(told) == 4
    assert "PUT /bad" in told[0]
    assert "POST /bad" in told[1]
    assert "'other.yaml#/x' leads out of this document" in told[1]
    assert "/worse" in told[2]
    assert "GET /deep of this document is left out: this document is nested too deeply" in told[3]
    del paths["/good"]
    with pytest.raises(InvalidArgument, match="put /bad must be an object"):
        specs(document(paths, HERE))


def test_an_error_of_include_is_its_own() -> None:
    def include(*_: Any) -> bool:
        raise InvalidArgument("mine")

    with pytest.raises(InvalidArgument, match="mine"):
        specs(PETS, include=include)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def content(schema: Any, content_type: str = "application/json") -> dict[str, Any]:
    return {"content": {content_type: {"schema": schema}}}


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


def nodes(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from nodes(inner, (*path, key))


RICH = document(
    one(
        "/x/{id}",
        "post",
        item={"parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}]},
        parameters=[{"$ref": "#/components/parameters/P"}, {"name": "c", "in": "query", "content": {"a/b": {}}}],
        requestBody={
            "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/S"}, "encoding": {}}}
        },
        responses={"200": content({"allOf": [{"$ref": "#/components/schemas/S"}]})},
        security=[{"k": []}],
        servers=[{"url": HERE, "variables": {}}],
    ),
    HERE,
    version="3.0.3",
    components={
        "parameters": {"P": {"name": "p", "in": "query", "schema": {"type": "integer"}}},
        "schemas": {"S": {"type": "object", "properties": {"f": {"type": "array", "items": {"nullable": True}}}}},
        "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "k"}},
    },
)


WRONG = [None, True, 7, "x", "", [], [7], [None], {}, {"x": 7}, {"$ref": 7}, {"$ref": "#/paths"}, {"x": {"x": None}}]


def test_a_document_that_is_wrong_somewhere_is_used_or_refused() -> None:
    async def run() -> None:
        async with httpx2.AsyncClient() as client:
            for path, value in itertools.product([*nodes(RICH)][1:], WRONG):
                told = json.loads(json.dumps(RICH))
                node = told
                for key in path[:-1]:
                    node = node[key]
                node[path[-1]] = value
                with contextlib.suppress(InvalidArgument):
                    await from_openapi(told, client, security={"k": "x"})

    asyncio.run(run())


def test_whoever_calls_no_http_api_does_not_wait_for_a_client() -> None:
    heavy = ["httpx2", "yaml", "mcp"]
    code = f"import sys, headgate.operations; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert "from_openapi" in headgate.operations.__all__
    with pytest.raises(AttributeError, match="from_nowhere"):
        _ = headgate.operations.from_nowhere
