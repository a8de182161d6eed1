"""Documents: how they are read, and what is wrong with them."""

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from forebay import InvalidArgument
from forebay.operations import CallError, OperationRegistry, from_openapi
from forebay.operations.openapi import HTTPOperations
from http_api import API, Answer, document, http_api, one
from openapi_specs import HERE, PETS, content, output_of, read, specs


@pytest.fixture
def api() -> Iterator[API]:
    with http_api() as started:
        yield started


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_yaml_document_may_be_as_long_as_it_likes() -> None:
    paths = "".join(f"  /{number}: {{get: {{responses: {{}}}}}}\n" for number in range(300))
    assert len(specs(f"openapi: 3.1.0\nservers: [{{url: {HERE}}}]\npaths:\n{paths}")) == 300


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


@pytest.mark.slow
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


def test_references_lead_into_lists_and_to_other_paths() -> None:
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer"}}
    paths = {
        "/a": {"get": {"parameters": [{"name": "x", "in": "query"}, limit]}},
        "/b": {"get": {"parameters": [{"$ref": "#/paths/~1a/get/parameters/1"}]}},
    }
    [_, found] = specs(document(paths, HERE))
    assert isinstance(found.input_schema, dict)
    assert found.input_schema["properties"] == {"limit": {"type": "integer"}}


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
    told = [record.getMessage() for record in caplog.records if record.name == "forebay"]
    assert len(told) == 4
    assert "PUT /bad" in told[0]
    assert "POST /bad" in told[1]
    assert "'other.yaml#/x' leads out of this document" in told[1]
    assert "/worse" in told[2]
    assert "GET /deep of this document is left out: this document is nested too deeply" in told[3]
    del paths["/good"]
    with pytest.raises(InvalidArgument, match="put /bad must be an object"):
        specs(document(paths, HERE))


def test_others_go_on_while_a_document_is_read() -> None:
    has_begun, has_gone_on = threading.Event(), threading.Event()

    def include(*_: Any) -> bool:
        has_begun.set()
        return has_gone_on.wait(10)

    async def go_on() -> None:
        while not has_begun.is_set():
            await asyncio.sleep(0.001)
        has_gone_on.set()

    async def run() -> HTTPOperations:
        operations, _ = await asyncio.gather(from_openapi(document(one(), HERE), include=include), go_on())
        return operations

    assert len(asyncio.run(run())) == 1


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


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


@pytest.mark.slow
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
