"""Calls of `from_mcp` to a server behind `forebay wrap`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from forebay.envelope import unwrap
from forebay.operations import CallError, OperationRegistry
from forebay.operations.mcp import from_mcp
from gateway_harness import script, wrap

LARGE = [*script("large_server.py"), "stdio"]
pytestmark = pytest.mark.slow


def call(store: Path, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Return the results of calls to a wrapped server, one after the other."""

    async def run() -> list[Any]:
        registry = OperationRegistry()
        async with from_mcp(wrap(store, server=LARGE), namespace="large") as server:
            server.register_into(registry)
            results: list[Any] = []
            for name, arguments in calls:
                try:
                    results.append(unwrap(await registry.execute(f"large.{name}", arguments)))
                except CallError as error:
                    results.append(error)
            return results

    return asyncio.run(run())


def test_a_program_gets_the_data_itself(tmp_path: Path) -> None:
    blocks, structured = call(tmp_path, ("text", {"size": 300_000}), ("structured", {"size": 300_000}))
    assert len(blocks[0]["text"]) >= 300_000
    assert "output_handle" not in structured
    assert len(structured["result"]) > 1000


def test_a_result_above_the_limit_is_an_error_that_names_the_handle(tmp_path: Path) -> None:
    for name in ("text", "structured"):
        (error,) = call(tmp_path, (name, {"size": 2_000_000}))
        assert isinstance(error, CallError)
        handle = error.details["output_handle"]
        assert error.details["size_bytes"] >= 1_000_000
        assert str(error).endswith(f"read it in pages with output_fetch and output_handle {handle}")
        (page,) = call(tmp_path, ("output_fetch", {"output_handle": handle, "limit": 5}))
        assert json.loads(page[0]["text"])["returned"] == 5
