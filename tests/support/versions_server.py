"""A server for any version of an SDK: `python versions_server.py mcp|lowlevel|fastmcp '{"output_mode": "auto"}'`.

The options are those of forebay, or `null` for a server without it. With a third argument, `http`, it serves over HTTP
on a free port, which it prints, and requires a token of `TOKENS`. With `mounted`, a server of fastmcp is mounted in
another one. Servers log the name and version of clients that call.
"""

import base64
import json
import logging
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from listening import serve_http
from typing_extensions import TypedDict

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
IS_VERSION_1 = version("mcp").startswith("1.")

TOKENS: dict[str, dict[str, Any]] = {
    name: {"client_id": f"app of {name}", "sub": name, "scopes": []} for name in ("ann", "bob")
}

INSTRUCTIONS = "Ask for rows first."

HTTP_OPTIONS = {"json_response": True, "stateless_http": True}

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


def picture(size: int = 3):  # type: ignore[no-untyped-def] # The SDKs would validate results against an annotation.
    if IS_VERSION_1:
        from mcp.types import ImageContent
    else:
        from mcp_types import ImageContent
    data = base64.b64encode(bytes(size)).decode()
    return ImageContent.model_validate({"type": "image", "data": data, "mimeType": "image/png"})


def failing(size: int = 3) -> str:
    raise get_error_type()("e" * size)


def get_error_type() -> type[Exception]:
    """Return the exception whose message the SDK sends to the client."""
    if KIND == "fastmcp":
        from fastmcp.exceptions import ToolError
    elif IS_VERSION_1:
        from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found,no-redef]
    else:
        from mcp.server.mcpserver.exceptions import ToolError  # type: ignore[assignment]
    return ToolError


TOOLS: dict[str, Callable[..., Any]] = {tool.__name__: tool for tool in (rows, report, text, echo, picture, failing)}


def make_forebay(options: dict[str, Any]) -> Any:
    from forebay.adapters.mcp import Forebay, get_client

    class LoggingForebay(Forebay):
        async def __call__(self, ctx: Any, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                _log.warning("client %s", json.dumps(get_client(ctx)))
            return await super().__call__(ctx, call_next)

    return LoggingForebay(**options)


def make_mcp(options: dict[str, Any] | None, **settings: Any) -> Any:
    """Return the high-level server of the mcp SDK."""
    if IS_VERSION_1:
        from mcp.server.fastmcp import FastMCP as Server  # type: ignore[attr-defined]
    else:
        from mcp.server import MCPServer as Server
    server: Any = Server("versions", instructions=INSTRUCTIONS, **settings)
    for tool in TOOLS.values():
        server.tool()(tool)
    return server if options is None else make_forebay(options).install(server)


def make_lowlevel(options: dict[str, Any] | None) -> Any:
    """Return a low-level server of the mcp SDK without resources. In version 1, its handlers are added afterwards."""
    from mcp.server import Server

    definitions = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    definitions[0]["outputSchema"] = {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "object"}}},
        "required": ["result"],
    }
    definitions[1]["outputSchema"] = {"type": "object", "required": ["title", "lines"]}

    def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = TOOLS[name](**arguments)
        if isinstance(result, str):
            return {"content": [{"type": "text", "text": result}]}
        if name == "picture":
            return {"content": [result.model_dump(by_alias=True, exclude_none=True)]}
        structured = {"result": result} if isinstance(result, list) else result
        return {"content": [{"type": "text", "text": json.dumps(structured)}], "structuredContent": structured}

    if IS_VERSION_1:
        from mcp import types

        server: Any = Server("versions", instructions=INSTRUCTIONS)
        if options is not None:
            make_forebay(options).install(server)

        @server.list_tools()  # type: ignore[untyped-decorator]
        async def list_tools() -> list[Any]:
            return [types.Tool.model_validate(definition) for definition in definitions]

        @server.call_tool()  # type: ignore[untyped-decorator]
        async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
            result = types.CallToolResult.model_validate(call(name, arguments))
            structured: Any = result.model_dump(by_alias=True).get("structuredContent")
            return result.content if structured is None else (result.content, structured)

        return server

    import mcp_types

    async def on_list_tools(_ctx: Any, _params: Any) -> Any:
        return mcp_types.ListToolsResult.model_validate({"tools": definitions})

    async def on_call_tool(_ctx: Any, params: Any) -> Any:
        try:
            return mcp_types.CallToolResult.model_validate(call(params.name, params.arguments or {}))
        except get_error_type() as error:
            block = mcp_types.TextContent(type="text", text=str(error))
            return mcp_types.CallToolResult(content=[block], is_error=True)

    server = Server("versions", instructions=INSTRUCTIONS, on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    return server if options is None else make_forebay(options).install(server)


def make_fastmcp(options: dict[str, Any] | None, **settings: Any) -> Any:
    """Return a server of fastmcp."""
    from fastmcp import FastMCP

    middleware = []
    if options is not None:
        from forebay.adapters.fastmcp import ForebayMiddleware, get_client

        class LoggingMiddleware(ForebayMiddleware):
            async def on_call_tool(self, context: Any, call_next: Any) -> Any:
                _log.warning("client %s", json.dumps(get_client(context)))
                return await super().on_call_tool(context, call_next)

        middleware.append(LoggingMiddleware(**options))
    server: Any = FastMCP("versions", INSTRUCTIONS, middleware=middleware, **settings)
    for tool in TOOLS.values():
        server.tool(tool)
    return server


def run_mounted(options: dict[str, Any] | None) -> None:
    """Run a server of fastmcp that has another one with forebay, under the prefix `inner`."""
    from fastmcp import FastMCP

    server: Any = FastMCP("outer")
    server.mount(make_fastmcp(options), "inner")
    server.run("stdio", show_banner=False)


def run_stdio(options: dict[str, Any] | None) -> None:
    if KIND == "mcp":
        make_mcp(options).run("stdio")
    elif KIND == "fastmcp":
        make_fastmcp(options).run("stdio", show_banner=False)
    else:
        import anyio
        from mcp.server.stdio import stdio_server

        server = make_lowlevel(options)

        async def run() -> None:
            async with stdio_server() as (read_stream, write_stream):
                await server.run(read_stream, write_stream, server.create_initialization_options())

        anyio.run(run)


def make_app(options: dict[str, Any] | None) -> Any:
    """Return the server as an ASGI application that requires a token."""
    if KIND == "fastmcp":
        from fastmcp.server.auth.providers.jwt import StaticTokenVerifier

        return make_fastmcp(options, auth=StaticTokenVerifier(TOKENS)).http_app(**HTTP_OPTIONS)
    from mcp.server.auth.provider import AccessToken, TokenVerifier
    from mcp.server.auth.settings import AuthSettings

    class Verifier(TokenVerifier):
        async def verify_token(self, token: str) -> AccessToken | None:
            return AccessToken.model_validate({"token": token, **TOKENS[token]}) if token in TOKENS else None

    settings: dict[str, Any] = {"issuer_url": "http://127.0.0.1", "resource_server_url": "http://127.0.0.1"}
    if IS_VERSION_1:
        auth = AuthSettings(**settings)
        return make_mcp(options, auth=auth, token_verifier=Verifier(), **HTTP_OPTIONS).streamable_http_app()
    auth = AuthSettings(**settings, validate_token_resource=False)
    return make_mcp(options, auth=auth, token_verifier=Verifier()).streamable_http_app(**HTTP_OPTIONS)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    _, options, *flags = sys.argv[1:]
    if "http" in flags:
        serve_http(make_app(json.loads(options)))
    elif "mounted" in flags:
        run_mounted(json.loads(options))
    else:
        run_stdio(json.loads(options))


if __name__ == "__main__":
    main()
