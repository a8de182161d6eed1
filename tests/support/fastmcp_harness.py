"""fastmcp servers under test in this process, reached by fastmcp's client."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import fastmcp
from fastmcp import FastMCP
from fastmcp_server import make_server
from forebay.adapters.fastmcp import ForebayMiddleware
from mcp_harness import parse_text

Client = fastmcp.Client[Any]
Test = Callable[[Client, ForebayMiddleware], Coroutine[Any, Any, None]]


def serve(
    test: Test, root: Path, era: str, server: FastMCP | None = None, *, inside: FastMCP | None = None, **options: Any
) -> None:
    """Runs a test against a server in this process, with forebay in it, or `inside` of one that is mounted there."""
    gate = ForebayMiddleware(root.as_uri(), **{"sweep_interval": 0, **options})
    server = make_server() if server is None else server
    (inside or server).add_middleware(gate)

    async def run() -> None:
        async with fastmcp.Client(server, mode=era) as client:
            await test(client, gate)

    try:
        asyncio.run(run())
    finally:
        gate.close()


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    return await client.call_tool(tool, arguments, raise_on_error=False)


def read_stored(gate: ForebayMiddleware, result: Any) -> bytes:
    with gate.store.open(parse_text(result)["output_handle"]) as file:
        return file.read()
