"""A server of the mcp SDK with tools that add and remove tools: `python changing_server.py stdio|http [PORT]`.

Over HTTP it prints its port, and responds with event streams.
"""

import sys

from listening import serve_http
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS


def make_server() -> MCPServer:
    server = MCPServer("changing")

    async def notify_changed(ctx: Context) -> None:
        # The notification depends on the protocol version.
        if ctx.request_context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await ctx.notify_tools_changed()
        else:
            await ctx.session.send_tool_list_changed()

    @server.tool()
    async def add(name: str, ctx: Context) -> str:
        server.add_tool(lambda: name, name=name)
        await notify_changed(ctx)
        return name

    @server.tool()
    async def remove(name: str, ctx: Context) -> str:
        server.remove_tool(name)
        await notify_changed(ctx)
        return name

    @server.tool(structured_output=False)
    def text(size: int) -> str:
        return "é" * size

    @server.tool(structured_output=False)
    async def ask(ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            params = ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}})
            return InputRequiredResult(input_requests={"who": ElicitRequest(params=params)}, request_state="asked")
        answer = ctx.input_responses["who"]
        return f"{ctx.request_state}: {answer.content if isinstance(answer, ElicitResult) else None}"

    return server


def main() -> None:
    if sys.argv[1] == "http":
        serve_http(make_server().streamable_http_app(), *map(int, sys.argv[2:]))
    else:
        make_server().run()


if __name__ == "__main__":
    main()
