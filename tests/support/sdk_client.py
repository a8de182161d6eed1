"""A client of the `mcp` SDK in a process of its own: `python sdk_client.py TOOL COMMAND…`.

It starts the server, calls the tool, and disconnects when its own input ends, without waiting for the result.
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters


async def main() -> None:
    tool, command, *args = sys.argv[1:]
    async with Client(StdioServerParameters(command=command, args=args), mode="legacy") as client:
        call = asyncio.create_task(client.call_tool(tool))
        await asyncio.to_thread(sys.stdin.read)
        call.cancel()


if __name__ == "__main__":
    asyncio.run(main())
