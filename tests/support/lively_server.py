"""A server of the mcp SDK on stdio with all that a client can do: the one that conformance is tried with, and more."""

import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from conformance_server import make_server

FINISHED: list[str] = []


def main() -> None:
    server = make_server()

    @server.tool()
    def rows(count: int = 3) -> list[dict[str, Any]]:
        return [{"id": number, "name": f"naïve {number}"} for number in range(count)]

    @server.tool()
    async def roots(ctx: Context) -> list[str]:
        """Asks for the client's roots, as it was done until 2025-11-25."""
        return [str(root.uri) for root in (await ctx.session.list_roots()).roots]

    @server.tool()
    async def waits(ctx: Context) -> str:
        """Until it is cancelled."""
        try:
            await ctx.report_progress(0)
            await anyio.sleep(60)
        finally:
            FINISHED.append("cancelled")
        return "waited"

    @server.tool()
    def finished() -> list[str]:
        return FINISHED

    @server.tool()
    async def grows(ctx: Context) -> str:
        """There is one more tool, and whoever wants to know is told, in the way of either era."""
        server.add_tool(lambda: "grown", name="grown", description="new", structured_output=False)
        await ctx.notify_tools_changed()
        if not ctx.session.protocol_version >= "2026-07-28":
            await ctx.session.send_tool_list_changed()
        return "done"

    server.run()


if __name__ == "__main__":
    main()
