"""Names, servers and registration of operations, and the options of `from_openapi`."""

import asyncio
import subprocess
import sys
from typing import Any

import forebay.operations
import httpx2
import pytest
from forebay import InvalidArgument
from forebay.operations import OperationRegistry
from http_api import document, single_operation
from openapi_specs import BASE_URL, PETS, read_operations, read_spec, read_specs


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
    [spec] = read_specs(document({path: {"get": operation}}, BASE_URL))
    assert spec.name == name


def test_names_are_unique_and_methods_have_types() -> None:
    methods = ["get", "head", "post", "put", "patch", "delete", "options", "trace"]
    specs = read_specs(document({"/x": {method: {"operationId": "same"} for method in methods}}, BASE_URL))
    assert len({spec.id for spec in specs}) == len(methods)
    assert sorted(spec.type for spec in specs) == ["mutation"] * 6 + ["query"] * 2
    assert {spec.name for spec in specs} >= {"same", "same_2"}


def test_descriptions() -> None:
    assert read_spec(summary="Short", description="Long").description == "Short\n\nLong"
    assert read_spec(summary="Same", description="Same").description == "Same"
    assert read_spec(deprecated=True, summary="Old").description == "Deprecated.\n\nOld"
    assert read_spec().description == ""


def test_namespaces() -> None:
    titled = {**PETS, "info": {"title": "Pet Store! (v2)"}}
    assert read_specs(titled)[0].id == "pet_store_v2.getPet"
    assert read_specs(titled, namespace="pets")[0].id == "pets.getPet"
    assert read_specs({**PETS, "info": {}})[0].id == "http.getPet"


def test_registering_twice_is_refused() -> None:
    operations = read_operations(PETS)
    registry = operations.register_into(OperationRegistry())
    assert [*registry] == [operation.spec for operation in operations]
    assert len(operations) == 1
    assert operations[0:1] == (operations[0],)
    with pytest.raises(InvalidArgument, match="registered already"):
        operations.register_into(registry)


def test_registration_is_all_or_nothing() -> None:
    operations = read_operations(document({"/a": {"get": {}}, "/b": {"get": {}}}, BASE_URL), namespace="api")
    registry = OperationRegistry([operations[1]])
    with pytest.raises(InvalidArgument, match=r"api\.get_b is registered already"):
        operations.register_into(registry)
    assert [spec.id for spec in registry] == ["api.get_b"]
    asyncio.run(operations.aclose())
    assert "api.get_b" in registry


def test_closing_unregisters_from_every_registry() -> None:
    operations = read_operations(document({"/a": {"get": {}, "put": {}}}, BASE_URL), namespace="api")
    registries = [operations.register_into(OperationRegistry()) for _ in range(2)]
    assert [len(registry) for registry in registries] == [2, 2]
    asyncio.run(operations.aclose())
    assert [len(registry) for registry in registries] == [0, 0]


def test_closing_keeps_operations_registered_by_others() -> None:
    operations = read_operations(document({"/a": {"get": {}}}, BASE_URL), namespace="api")
    registry = operations.register_into(OperationRegistry())
    registry.unregister("api.get_a")
    registry.register(operations[0].spec, lambda *_: 1)
    asyncio.run(operations.aclose())
    assert "api.get_a" in registry


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"security": "s3kret"}, "security is a dict"),
        ({"headers": "s3kret"}, "headers is a dict"),
        ({"headers": {"X": 7}}, "headers is a dict of texts"),
        ({"client": httpx2.Client()}, r"client is an httpx2\.AsyncClient, not Client"),
        *(({"timeout": value}, "timeout is a number") for value in ("3", 0, -1, True, float("nan"), 10**400)),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        read_operations(PETS, **options)
    assert "s3kret" not in str(caught.value)


def operation_url(source: dict[str, Any], **options: Any) -> str:
    return repr(read_operations(source, **options)[0].handler).split()[2].rstrip(">")


def test_servers() -> None:
    paths = single_operation("/x")
    variables = {"host": {"default": "127.0.0.1"}, "v": {"default": "v1", "enum": ["v1", "v2"]}}
    server = {"url": "http://{host}/{v}/", "variables": variables}
    assert operation_url(document(paths, servers=[server, {"url": "http://second"}])) == "http://127.0.0.1/v1/x"
    assert (
        operation_url(document(single_operation("/x", item={"servers": [{"url": "https://path"}]}), BASE_URL))
        == "https://path/x"
    )
    nearest = single_operation(
        "/x", item={"servers": [{"url": "https://path"}]}, servers=[{"url": "https://operation/"}]
    )
    assert operation_url(document(nearest, BASE_URL)) == "https://operation/x"
    assert operation_url(document(nearest, BASE_URL), base_url="http://mine/api/") == "http://mine/api/x"


@pytest.mark.parametrize(
    "server", [None, "/v1", "ftp://x", "file:///etc", "http://", "http://{gone}/", "http://[", "javascript:1"]
)
def test_unusable_server_urls(server: str | None) -> None:
    with pytest.raises(InvalidArgument, match="give base_url"):
        read_operations(document(single_operation("/x"), server))
    with pytest.raises(InvalidArgument, match="give base_url"):
        read_operations(PETS, base_url=server or "//x")


def test_error_in_include_propagates() -> None:
    def include(*_: Any) -> bool:
        raise InvalidArgument("mine")

    with pytest.raises(InvalidArgument, match="mine"):
        read_specs(PETS, include=include)


def test_importing_operations_does_not_import_an_http_client() -> None:
    heavy = ["httpx2", "yaml", "mcp"]
    code = f"import sys, forebay.operations; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert "from_openapi" in forebay.operations.__all__
    with pytest.raises(AttributeError, match="from_nowhere"):
        _ = forebay.operations.from_nowhere
