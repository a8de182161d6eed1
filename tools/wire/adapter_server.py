"""A server of an SDK with the package in process: `adapter_server.py PACKAGE mcp|lowlevel|fastmcp OPTIONS`.

It runs with the interpreter of the build. `OPTIONS` are those of the adapter, as JSON; `null` leaves the adapter out,
and `"redact": "fail"` is a redaction that raises. Modules are looked up under their present and earlier paths.
"""

import base64
import contextlib
import importlib
import json
import sys
from typing import Any

PACKAGE = sys.argv[1]
PIXELS = bytes(range(256)) * 400
ROWS_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}


def find(attribute: str, *modules: str) -> Any:
    """Return an attribute of the first module of the package that has it."""
    for name in modules:
        with contextlib.suppress(ModuleNotFoundError, AttributeError):
            return getattr(importlib.import_module(f"{PACKAGE}.{name}"), attribute)
    raise LookupError(f"none of {', '.join(modules)} in {PACKAGE} has {attribute}")


def fail_to_redact(_data: bytes) -> bytes:
    raise RuntimeError("no redaction today")


def install_mcp(server: Any, options: dict[str, Any] | None) -> Any:
    """Install the adapter in a server of the mcp SDK."""
    if options is None:
        return server
    return find(PACKAGE.capitalize(), "adapters.mcp", "servers.mcp")(**options).install(server)


def make_rows(count: int, width: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"naïve {number}{'x' * width}"} for number in range(count)]


def make_mcp(options: dict[str, Any] | None) -> Any:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, TextContent

    server = MCPServer("wire", instructions="Instructions.")

    @server.tool()
    def rows(count: int = 3, width: int = 0) -> list[dict[str, Any]]:
        return make_rows(count, width)

    @server.tool()
    def text(size: int = 3, of: str = "x") -> str:
        return of * size

    @server.tool(structured_output=False)
    def json_text(count: int = 3) -> str:
        return json.dumps({"items": make_rows(count), "count": count})

    @server.tool()
    def image(repeat: int = 1) -> CallToolResult:
        data = base64.b64encode(PIXELS[:40] if repeat == 0 else PIXELS * repeat).decode()
        return CallToolResult(content=[ImageContent(type="image", data=data, mime_type="image/png")])

    @server.tool()
    def blob() -> CallToolResult:
        resource = BlobResourceContents(
            uri="wire://b", mime_type="application/gzip", blob=base64.b64encode(PIXELS).decode()
        )
        return CallToolResult(content=[EmbeddedResource(type="resource", resource=resource)])

    @server.tool()
    def several(size: int = 3) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=letter * size) for letter in "abc"])

    @server.tool()
    def failing(size: int = 3) -> str:
        raise ToolError("e" * size)

    @server.tool()
    def breaking() -> str:
        raise LookupError("not for clients")

    @server.tool()
    def with_meta(size: int = 3) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="m" * size)], _meta={"own": "o"})

    @server.tool(structured_output=False)
    def echo(value: Any = None) -> str:
        return json.dumps(value)

    @server.tool(structured_output=False)
    async def progress(ctx: Context) -> str:
        for step in range(2):
            await ctx.report_progress(step, 2)
        return "done"

    add_contract_tool(server.tool())
    return install_mcp(server, options)


def add_contract_tool(tool: Any) -> None:
    """Add a tool that returns a response of the contract itself."""
    contracted = find("contracted", "outputs.contract", "contract")

    def bug_list(count: int = 3) -> list[dict[str, Any]]:
        return make_rows(count)

    tool(contracted(summary=lambda rows: f"Found {len(rows)} bugs")(bug_list))


def make_lowlevel(options: dict[str, Any] | None) -> Any:
    from mcp.server import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        schema: dict[str, Any] = {"type": "object", "properties": {"count": {"type": "integer"}}}
        return ListToolsResult(
            tools=[
                Tool(name="rows", input_schema=schema, output_schema=ROWS_SCHEMA),
                Tool(name="text", input_schema=schema, description="Text"),
                Tool(name="blocks", input_schema=schema),
                Tool(name="failing", input_schema=schema),
            ]
        )

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        count = (params.arguments or {}).get("count", 3)
        match params.name:
            case "rows":
                structured = {"rows": make_rows(count)}
                block = TextContent(type="text", text=json.dumps(structured))
                return CallToolResult(content=[block], structured_content=structured)
            case "text":
                return CallToolResult(content=[TextContent(type="text", text="a line\n" * count)])
            case "blocks":
                return CallToolResult(content=[TextContent(type="text", text=f"block {n}") for n in range(count)])
        return CallToolResult(content=[TextContent(type="text", text="e" * count)], is_error=True)

    server: Server[Any] = Server("wire", version="1.0", on_list_tools=list_tools, on_call_tool=call_tool)
    return install_mcp(server, options)


def make_fastmcp(options: dict[str, Any] | None) -> Any:
    from fastmcp import FastMCP
    from fastmcp.exceptions import ToolError
    from fastmcp.tools import ToolResult
    from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent

    server = FastMCP("wire", version="1.0")

    @server.tool
    def rows(count: int = 3) -> list[dict[str, Any]]:
        return make_rows(count)

    @server.tool
    def text(size: int = 3, of: str = "x") -> str:
        return of * size

    @server.tool(output_schema=None)
    def json_text(count: int = 3) -> str:
        return json.dumps({"items": make_rows(count), "count": count})

    @server.tool
    def image(repeat: int = 1) -> ToolResult:
        data = base64.b64encode(PIXELS[:40] if repeat == 0 else PIXELS * repeat).decode()
        return ToolResult([ImageContent(type="image", data=data, mime_type="image/png")])

    @server.tool
    def blob() -> ToolResult:
        resource = BlobResourceContents(
            uri="wire://b", mime_type="application/gzip", blob=base64.b64encode(PIXELS).decode()
        )
        return ToolResult([EmbeddedResource(type="resource", resource=resource)])

    @server.tool
    def several(size: int = 3) -> ToolResult:
        return ToolResult([TextContent(type="text", text=letter * size) for letter in "abc"])

    @server.tool
    def failing(size: int = 3) -> str:
        raise ToolError("e" * size)

    @server.tool
    def breaking() -> str:
        raise LookupError("not for clients")

    @server.tool
    def with_meta(size: int = 3) -> ToolResult:
        return ToolResult("m" * size, meta={"own": "o"})

    @server.tool(output_schema=None)
    def echo(value: Any = None) -> str:
        return json.dumps(value)

    @server.resource("wire://one")
    def read_resource() -> str:
        return "a resource"

    @server.resource("wire://each/{name}")
    def read_template(name: str) -> str:
        return name

    add_contract_tool(server.tool)
    if options is not None:
        middleware = find(f"{PACKAGE.capitalize()}Middleware", "adapters.fastmcp", "servers.fastmcp")
        server.add_middleware(middleware(**options))
    return server


def main() -> None:
    kind, text = sys.argv[2:]
    options = json.loads(text)
    if options is not None and options.get("redact") == "fail":
        options["redact"] = fail_to_redact
    if kind == "mcp":
        make_mcp(options).run()
    elif kind == "fastmcp":
        make_fastmcp(options).run("stdio", show_banner=False)
    else:
        import anyio
        from mcp.server.stdio import stdio_server

        server = make_lowlevel(options)

        async def run() -> None:
            async with stdio_server() as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())

        anyio.run(run)


if __name__ == "__main__":
    main()
