"""Reading of documents: sources, YAML, references and invalid parts."""

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
from http_api import API, Answer, document, single_operation
from openapi_specs import BASE_URL, PETS, content, read_operations, read_output_schema, read_specs


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.0.0", "3.0.4", "3.1.0", "3.1.1"])
@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump, lambda root: json.dumps(root, indent=2)])
def test_every_source_of_a_document(version: str, write: Any, tmp_path: Path, api: API) -> None:
    root = {**PETS, "openapi": version}
    text = write(root)
    (tmp_path / "api.txt").write_text(text)
    api.answers["/api"] = Answer(text.encode(), "text/plain")
    for source in (root, text, text.encode(), bytearray(text.encode()), tmp_path / "api.txt", f"{api.url}/api"):
        [spec] = read_specs(source)
        assert (spec.id, spec.type, spec.description) == ("api.getPet", "query", "One pet")


def nested_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
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
        (" " * (20 * 1024 * 1024 + 1), "at most 20971520 bytes; take out"),
        ({**PETS, "info": {"title": nested_schema(100_000)}}, "nested too deeply"),
        (7, "a document is a dict"),
        (Path("/nowhere/api.json"), "cannot be read"),
        (document({"/x": 7}, BASE_URL), "the path /x must be an object"),
        (document({"/x": {"get": 7}}, BASE_URL), "get /x must be an object"),
        (document(single_operation(parameters=[{"$ref": "#/components/parameters/gone"}]), BASE_URL), "leads nowhere"),
        (document(single_operation(parameters=[{"$ref": "#/a"}]), BASE_URL, a={"$ref": "#/a"}), "leads back to itself"),
        (document(single_operation(requestBody={"$ref": "other.yaml#/Body"}), BASE_URL),
         r"\$ref 'other.yaml#/Body' leads out"),
        (document(single_operation(requestBody=content({"$ref": "http://x.invalid/s"})), BASE_URL),
         r"\$ref 'http://x.invalid/s' leads out"),
    ],
)  # fmt: skip
def test_unusable_documents(source: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_operations(source)


def test_excluded_operation_may_be_invalid() -> None:
    paths = {"/bad": {"get": {"parameters": [{"$ref": "gone.yaml"}]}}, "/good": {"get": {}}, "x-more": 7}
    candidates = []

    def include(method: str, path: str, operation: Any) -> bool:
        candidates.append((method, path, operation))
        return path == "/good"

    [spec] = read_specs(document(paths, BASE_URL), include=include)
    assert spec.name == "get_good"
    assert candidates == [("get", "/bad", paths["/bad"]["get"]), ("get", "/good", {})]  # type: ignore[index]


def test_yaml_scalars_follow_version_1_2() -> None:
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
            - {name: c, in: query, schema: {default: {true: 1, False: 2, null: 3, 1.50: 4}}}
          responses:
            200:
              content: {application/json: {schema: {type: integer}}}
    servers: [{url: "http://127.0.0.1:1"}]
    """
    [spec] = read_specs(text)
    assert spec.name == "on"
    assert isinstance(spec.input_schema, dict)
    properties = spec.input_schema["properties"]
    expected = ["no", "NO", "2020-01-01", "012", "1_000", "1:30", 7, 1.5, 1000.0, True, None, None]
    assert properties["a"]["enum"] == expected
    assert properties["b"] == {"type": "string", "description": "shared", "maxLength": 3}
    assert properties["c"]["default"] == {"true": 1, "false": 2, "null": 3, "1.5": 4}
    assert spec.output_schema == {"type": "integer"}


def test_long_yaml_document() -> None:
    paths = "".join(f"  /{number}: {{get: {{responses: {{}}}}}}\n" for number in range(300))
    assert len(read_specs(f"openapi: 3.1.0\nservers: [{{url: {BASE_URL}}}]\npaths:\n{paths}")) == 300


def alias_bomb(value: str) -> str:
    """Return YAML where each of 40 lines is `value`, with `*aN` replaced by an alias of the line before."""
    return "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {value.replace('N', str(n - 1))}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (alias_bomb("[*aN, *aN]"), "aliases"),
        (alias_bomb("{l: *aN, r: *aN}"), "aliases"),
        ("x: &x {y: *x}", "recursive"),
        ("[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
    ],
)
def test_yaml_alias_and_nesting_bombs(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_operations(text)


def test_yaml_merge_bomb() -> None:
    text = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
    with pytest.raises(InvalidArgument, match="merges"):
        read_operations(text)


def test_too_deeply_nested_schema() -> None:
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        read_output_schema(nested_schema(5000))


def test_fetched_document(api: API) -> None:
    root = document({"/x": {"get": {"operationId": "op"}}}, "../v2")
    api.answers["/docs/old"] = Answer(status=302, headers=[("Location", "/docs/v1/api.json")])
    api.answers["/docs/v1/api.json"] = Answer(json.dumps(root).encode())

    async def run() -> None:
        async with await from_openapi(f"{api.url}/docs/old", headers={"X-Own": "1"}) as operations:
            await operations.register_into(OperationRegistry()).execute("api.op", {})

    asyncio.run(run())
    assert [request.target for request in api.requests] == ["/docs/old", "/docs/v1/api.json", "/docs/v2/x"]
    assert all(request.header("x-own") == "1" for request in api.requests)


@pytest.mark.slow
def test_unfetchable_documents(api: API) -> None:
    api.default_answer = Answer(b"", status=404)
    with pytest.raises(CallError, match="404"):
        read_operations(f"{api.url}/api")
    with pytest.raises(CallError, match="ConnectError"):
        read_operations(f"{BASE_URL}/api")
    api.default_answer = Answer(b" " * (20 * 1024 * 1024 + 1))
    with pytest.raises(InvalidArgument, match="at most 20971520 bytes"):
        read_operations(f"{api.url}/api")

    def hang(_: object) -> None:
        api.released.wait(20)

    api.answers["/api"] = hang
    with pytest.raises(CallError) as caught:
        read_operations(f"{api.url}/api", timeout=0.3)
    assert caught.value.code == "TIMEOUT"


def test_references_into_lists_and_paths() -> None:
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer"}}
    paths = {
        "/a": {"get": {"parameters": [{"name": "x", "in": "query"}, limit]}},
        "/b": {"get": {"parameters": [{"$ref": "#/paths/~1a/get/parameters/1"}]}},
    }
    [_, spec] = read_specs(document(paths, BASE_URL))
    assert isinstance(spec.input_schema, dict)
    assert spec.input_schema["properties"] == {"limit": {"type": "integer"}}


def test_reference_with_a_very_long_index() -> None:
    with pytest.raises(InvalidArgument, match="leads nowhere"):
        read_output_schema({"$ref": "#/components/schemas/S/allOf/" + "9" * 5000}, S={"allOf": [{}]})


def test_invalid_operation_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    paths = {
        "/good": {"get": {"operationId": "good"}},
        "/bad": {"post": {"operationId": "bad", "parameters": [{"$ref": "other.yaml#/x"}]}, "put": 7},
        "/worse": "nothing",
        "/deep": {"get": {"responses": {"200": content(nested_schema(2000))}}},
    }
    assert [spec.name for spec in read_specs(document(paths, BASE_URL))] == ["good"]
    messages = [record.getMessage() for record in caplog.records if record.name == "forebay"]
    assert len(messages) == 4
    assert "PUT /bad" in messages[0]
    assert "POST /bad" in messages[1]
    assert "'other.yaml#/x' leads out of this document" in messages[1]
    assert "/worse" in messages[2]
    assert messages[3] == "forebay: api: GET /deep is left out: this document is nested too deeply"
    del paths["/good"]
    with pytest.raises(InvalidArgument, match="put /bad must be an object"):
        read_specs(document(paths, BASE_URL))


def test_operations_with_the_same_error_have_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    local = {"servers": [{"url": BASE_URL}]}
    paths = {"/a": {"get": {}, "put": {}}, "/b": {"get": {}}, "/c": {"get": {"operationId": "c", **local}}}
    assert [spec.name for spec in read_specs(document(paths, "/"))] == ["c"]
    (message,) = [record.getMessage() for record in caplog.records if record.name == "forebay"]
    assert message.startswith("forebay: api: GET /a and 2 more are left out: an API is at an http or https URL")
    assert message.endswith("; give base_url")
    caplog.clear()
    del paths["/c"]
    with pytest.raises(InvalidArgument, match="give base_url"):
        read_specs(document(paths, "/"))
    assert not caplog.records


def test_reading_a_document_does_not_block_the_event_loop() -> None:
    has_started, loop_has_run = threading.Event(), threading.Event()

    def include(*_: Any) -> bool:
        has_started.set()
        return loop_has_run.wait(10)

    async def use_loop() -> None:
        assert await asyncio.to_thread(has_started.wait, 10)
        loop_has_run.set()

    async def run() -> HTTPOperations:
        operations, _ = await asyncio.gather(
            from_openapi(document(single_operation(), BASE_URL), include=include), use_loop()
        )
        return operations

    assert len(asyncio.run(run())) == 1


def iter_paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from iter_paths(inner, (*path, key))


FULL_DOCUMENT = document(
    single_operation(
        "/x/{id}",
        "post",
        item={"parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}]},
        parameters=[{"$ref": "#/components/parameters/P"}, {"name": "c", "in": "query", "content": {"a/b": {}}}],
        requestBody={
            "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/S"}, "encoding": {}}}
        },
        responses={"200": content({"allOf": [{"$ref": "#/components/schemas/S"}]})},
        security=[{"k": []}],
        servers=[{"url": BASE_URL, "variables": {}}],
    ),
    BASE_URL,
    version="3.0.3",
    components={
        "parameters": {"P": {"name": "p", "in": "query", "schema": {"type": "integer"}}},
        "schemas": {"S": {"type": "object", "properties": {"f": {"type": "array", "items": {"nullable": True}}}}},
        "securitySchemes": {"k": {"type": "apiKey", "in": "query", "name": "k"}},
    },
)


INVALID_VALUES = [
    None,
    True,
    7,
    "x",
    "",
    [],
    [7],
    [None],
    {},
    {"x": 7},
    {"$ref": 7},
    {"$ref": "#/paths"},
    {"x": {"x": None}},
]


@pytest.mark.slow
def test_invalid_values_anywhere_raise_only_invalid_argument() -> None:
    async def run() -> None:
        async with httpx2.AsyncClient() as client:
            for path, value in itertools.product([*iter_paths(FULL_DOCUMENT)][1:], INVALID_VALUES):
                root = json.loads(json.dumps(FULL_DOCUMENT))
                node = root
                for key in path[:-1]:
                    node = node[key]
                node[path[-1]] = value
                with contextlib.suppress(InvalidArgument):
                    await from_openapi(root, client, security={"k": "x"})

    asyncio.run(run())
