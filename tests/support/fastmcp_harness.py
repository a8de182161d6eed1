"""Run tests against fastmcp servers in this process."""

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
    """Run a test with a client of a server in this process. forebay is in the server, or in `inside`, mounted in it."""
    middleware = ForebayMiddleware(root.as_uri(), **{"sweep_interval": 0, **options})
    server = make_server() if server is None else server
    (inside or server).add_middleware(middleware)

    async def run() -> None:
        async with fastmcp.Client(server, mode=era) as client:
            await test(client, middleware)

    try:
        asyncio.run(run())
    finally:
        middleware.close()


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    return await client.call_tool(tool, arguments, raise_on_error=False)


def read_stored(middleware: ForebayMiddleware, result: Any) -> bytes:
    with middleware.store.open(parse_text(result)["output_handle"]) as file:
        return file.read()
