"""The conformance server on stdio with a few more tools."""

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
        """Request the client's roots, as in protocol 2025-11-25 and earlier."""
        return [str(root.uri) for root in (await ctx.session.list_roots()).roots]

    @server.tool()
    async def waits(ctx: Context) -> str:
        """Wait until the call is cancelled."""
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
        """Add a tool and send the change notification of the client's protocol version."""
        server.add_tool(lambda: "grown", name="grown", description="new", structured_output=False)
        await ctx.notify_tools_changed()
        if not ctx.session.protocol_version >= "2026-07-28":
            await ctx.session.send_tool_list_changed()
        return "done"

    server.run()


if __name__ == "__main__":
    main()
