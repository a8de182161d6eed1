"""Calls of a third-party application with its own OpenAPI document: the OPTIMADE API of crystal structures."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from forebay.envelope import HTTPResponseMeta
from forebay.operations import CallError, OperationRegistry, from_openapi
from support_paths import SUPPORT

pytestmark = pytest.mark.slow

UNREACHABLE = "http://127.0.0.1:1"

# Names of the API's fields in the sample data.
ALIASES = {
    "id": "task_id",
    "immutable_id": "_id",
    "chemical_formula_descriptive": "pretty_formula",
    "chemical_formula_reduced": "pretty_formula",
    "chemical_formula_anonymous": "formula_anonymous",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("optimade")
    config = home / "config.json"
    config.write_text(json.dumps({"aliases": {"structures": ALIASES}, "log_dir": str(home)}))
    # Keeps it from fetching a list of other servers.
    proxies = {"HTTP_PROXY": UNREACHABLE, "HTTPS_PROXY": UNREACHABLE, "NO_PROXY": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, str(SUPPORT.joinpath("optimade_server.py"))],
        env={**os.environ, **proxies, "OPTIMADE_CONFIG_FILE": str(config)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        # It prints other lines before its port.
        port = next(line.strip() for line in process.stdout if line.strip().isdecimal())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def with_operations(url: str, use: Callable[[OperationRegistry], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with await from_openapi(f"{url}/v1/extensions/openapi.json", namespace="crystals") as operations:
            return await use(operations.register_into(OperationRegistry()))

    return asyncio.run(run())


def test_operations_of_the_document(url: str) -> None:
    async def use(registry: OperationRegistry) -> None:
        assert "crystals.get_structures_structures_get" in registry
        spec = registry.get_spec("crystals.get_single_structure_structures__entry_id__get")
        assert spec is not None
        assert isinstance(spec.input_schema, dict)
        assert isinstance(spec.output_schema, dict)
        assert spec.input_schema["required"] == ["entry_id"]
        assert len(spec.output_schema["$defs"]) > 10

    with_operations(url, use)


def test_responses_match_the_output_schemas(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "forebay")

    async def use(registry: OperationRegistry) -> None:
        arguments = {"filter": 'elements HAS ALL "C", "O" AND nelements > 2', "page_limit": 3, "sort": "-nelements"}
        envelope = await registry.execute("crystals.get_structures_structures_get", arguments)
        assert isinstance(envelope.meta, HTTPResponseMeta)
        assert envelope.meta.status_code == 200
        structures = envelope.data["data"]
        assert len(structures) == 3
        assert all({"C", "O"} <= set(structure["attributes"]["elements"]) for structure in structures)
        single = await registry.execute(
            "crystals.get_single_structure_structures__entry_id__get",
            {"entry_id": structures[0]["id"], "response_fields": "nelements"},
        )
        assert single.data["data"]["id"] == structures[0]["id"]
        assert single.data["data"]["attributes"]["nelements"] == structures[0]["attributes"]["nelements"]

    with_operations(url, use)
    assert caplog.text == ""


def test_csv_response_is_text(url: str) -> None:
    async def use(registry: OperationRegistry) -> None:
        envelope = await registry.execute("crystals.get_versions_versions_get", {})
        assert isinstance(envelope.data, str)
        assert envelope.data.splitlines()[0] == "version"

    with_operations(url, use)


@pytest.mark.parametrize(
    ("operation", "arguments", "code", "status"),
    [
        ("get_structures_structures_get", {"filter": "nonsense ="}, "EXECUTION_ERROR", 400),
        ("get_entry_info_info__entry__get", {"entry": "a/b ?"}, "EXECUTION_ERROR", 404),
        ("get_structures_structures_get", {"page_limit": -1}, "VALIDATION_ERROR", None),
        ("get_single_structure_structures__entry_id__get", {}, "VALIDATION_ERROR", None),
    ],
)
def test_invalid_calls_are_errors(
    url: str, operation: str, arguments: dict[str, Any], code: str, status: int | None
) -> None:
    async def use(registry: OperationRegistry) -> None:
        await registry.execute(f"crystals.{operation}", arguments)

    with pytest.raises(CallError) as caught:
        with_operations(url, use)
    assert caught.value.code == code
    assert caught.value.details.get("status") == status
