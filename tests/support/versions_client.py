"""Call `versions_server.py` with the client of an SDK: `python versions_client.py mcp|fastmcp '{"output_mode": …}'`.

Prints a JSON list of two structured results: of three rows, and of so many that they become a handle. The clients
validate results against the listed schemas. fastmcp's client also builds `data` from them.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import versions_server

SERVER = str(Path(__file__).with_name("versions_server.py"))
COUNTS = (3, 5000)


async def call_with_mcp(options: str) -> list[Any]:
    from mcp import StdioServerParameters

    parameters = StdioServerParameters(command=sys.executable, args=[SERVER, "mcp", options])
    if not versions_server.IS_VERSION_1:
        from mcp import Client
        from mcp.client.stdio import stdio_client

        async with Client(stdio_client(parameters)) as client:
            return [(await client.call_tool("rows", {"count": count})).structured_content for count in COUNTS]
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()
        results: list[Any] = [await session.call_tool("rows", {"count": count}) for count in COUNTS]
        return [result.structuredContent for result in results]


async def call_with_fastmcp(options: str) -> list[Any]:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async with Client(StdioTransport(sys.executable, [SERVER, "fastmcp", options])) as client:
        small, large = [await client.call_tool("rows", {"count": count}) for count in COUNTS]
        # Each item is an object that the client has made for its schema.
        assert len(small.data) == COUNTS[0]
        return [small.structured_content, large.structured_content]


if __name__ == "__main__":
    call = call_with_fastmcp if sys.argv[1] == "fastmcp" else call_with_mcp
    sys.stdout.write(json.dumps(asyncio.run(call(sys.argv[2]))))
