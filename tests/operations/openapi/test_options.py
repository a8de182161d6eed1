"""Operations of a document: their names, where they are, and what is asked for."""

import asyncio
import subprocess
import sys
from typing import Any

import forebay.operations
import httpx2
import pytest
from forebay import InvalidArgument
from forebay.operations import OperationRegistry
from http_api import document, one
from openapi_specs import HERE, PETS, read, spec_of, specs


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


def test_closing_takes_them_out_of_every_registry() -> None:
    operations = read(document({"/a": {"get": {}, "put": {}}}, HERE), namespace="api")
    registries = [operations.register_into(OperationRegistry()) for _ in range(2)]
    assert [len(registry) for registry in registries] == [2, 2]
    asyncio.run(operations.aclose())
    assert [len(registry) for registry in registries] == [0, 0]


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
        *(({"timeout": value}, "timeout is a number") for value in ("3", 0, -1, True, float("nan"), 10**400)),
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


def test_an_error_of_include_is_its_own() -> None:
    def include(*_: Any) -> bool:
        raise InvalidArgument("mine")

    with pytest.raises(InvalidArgument, match="mine"):
        specs(PETS, include=include)


def test_whoever_calls_no_http_api_does_not_wait_for_a_client() -> None:
    heavy = ["httpx2", "yaml", "mcp"]
    code = f"import sys, forebay.operations; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert "from_openapi" in forebay.operations.__all__
    with pytest.raises(AttributeError, match="from_nowhere"):
        _ = forebay.operations.from_nowhere
