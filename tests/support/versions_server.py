"""A server for any version of an SDK: `python versions_server.py mcp|lowlevel|fastmcp '{"output_mode": "auto"}'`.

The options are those of forebay, or `null` for a server without it. A third argument, `http`, serves over HTTP on a free
port, which it prints, and requires a token: `Bearer NAME`. The name and version of each client are logged.
"""

import json
import logging
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from typing_extensions import TypedDict

MCP_VERSION = int(version("mcp").partition(".")[0])

_log = logging.getLogger("versions_server")


class Report(TypedDict):
    title: str
    lines: list[str]


def rows(count: int = 3) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"naïve {number}"} for number in range(count)]


def report(count: int = 3) -> Report:
    return {"title": "report", "lines": [f"line {number}" for number in range(count)]}


def text(size: int = 3) -> str:
    return "x" * size


def echo(value: str = "") -> str:
    return value


def failing(size: int = 3) -> str:
    raise ValueError("e" * size)


TOOLS: list[Callable[..., Any]] = [rows, report, text, echo, failing]


def make_mcp(options: dict[str, Any] | None, **settings: Any) -> Any:
    """Return the high-level server of the mcp SDK."""
    if MCP_VERSION == 1:
        from mcp.server.fastmcp import FastMCP as Server
    else:
        from mcp.server import MCPServer as Server  # type: ignore[assignment]
    server: Any = Server("versions", **settings)
    for tool in TOOLS:
        server.tool()(tool)
    return server if options is None else make_forebay(options).install(server)


def make_lowlevel(options: dict[str, Any] | None, **_: Any) -> Any:
    """Return a low-level server of the mcp SDK, with one tool and no resources; forebay is installed first."""
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}}
    output_schema = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
    definition = {"name": "rows", "inputSchema": schema, "outputSchema": output_schema}
    from mcp.server import Server

    if MCP_VERSION == 1:
        from mcp import types

        server: Any = Server("versions")
        if options is not None:
            make_forebay(options).install(server)

        @server.list_tools()
        async def list_tools() -> list[Any]:
            return [types.Tool.model_validate(definition)]

        @server.call_tool()
        async def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
            return {"rows": rows(**arguments)}

        return server
    import mcp_types

    async def on_list_tools(_ctx: Any, _params: Any) -> Any:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool.model_validate(definition)])

    async def on_call_tool(_ctx: Any, params: Any) -> Any:
        content = {"rows": rows(**params.arguments or {})}
        block = mcp_types.TextContent(type="text", text=json.dumps(content))
        return mcp_types.CallToolResult(content=[block], structured_content=content)

    server = Server("versions", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    return server if options is None else make_forebay(options).install(server)


def make_forebay(options: dict[str, Any]) -> Any:
    from forebay.adapters.mcp import Forebay, get_client

    class LoggingForebay(Forebay):
        async def __call__(self, ctx: Any, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                _log.warning("client %s", json.dumps(get_client(ctx)))
            return await super().__call__(ctx, call_next)

    return LoggingForebay(**options)


def make_fastmcp(options: dict[str, Any] | None, **settings: Any) -> Any:
    """Return a server of fastmcp."""
    from fastmcp import FastMCP
    from fastmcp.exceptions import ToolError

    middleware = []
    if options is not None:
        from forebay.adapters.fastmcp import ForebayMiddleware, get_client

        class LoggingMiddleware(ForebayMiddleware):
            async def on_call_tool(self, context: Any, call_next: Any) -> Any:
                _log.warning("client %s", json.dumps(get_client(context)))
                return await super().on_call_tool(context, call_next)

        middleware.append(LoggingMiddleware(**options))
    server: Any = FastMCP("versions", middleware=middleware, **settings)
    for tool in TOOLS:
        server.tool(tool)
    return server


MAKERS = {"mcp": make_mcp, "lowlevel": make_lowlevel, "fastmcp": make_fastmcp}


def run_stdio(kind: str, server: Any) -> None:
    import anyio

    if kind == "lowlevel":
        from mcp.server.stdio import stdio_server

        async def run() -> None:
            async with stdio_server() as (read_stream, write_stream):
                await server.run(read_stream, write_stream, server.create_initialization_options())

        anyio.run(run)
    elif kind == "mcp":
        server.run("stdio")
    else:
        server.run("stdio", show_banner=False)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    kind, options, *_ = sys.argv[1:]
    run_stdio(kind, MAKERS[kind](json.loads(options)))


if __name__ == "__main__":
    main()
