"""A fastmcp server for tests: `python fastmcp_server.py stdio|http '{"output_mode": "auto"}'`, or `null` for none.

Over HTTP it prints its port. With `guarded` after the options it accepts only `TOKENS`.
"""

import base64
import json
import sys
from typing import Any

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.tools import ToolResult
from listening import serve_http
from mcp_types import AudioContent, BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, TextContent
from pydantic import BaseModel

PIXELS = bytes(range(256)) * 400

TOKENS = {
    "of-ann": {"client_id": "app", "sub": "ann", "iss": "https://id.test", "scopes": []},
    "of-bob": {"client_id": "app", "sub": "bob", "iss": "https://id.test", "scopes": []},
}


class Report(BaseModel):
    title: str
    lines: list[str]


def make_server(**settings: Any) -> FastMCP:
    """Return a server with a tool for every kind of result, in any size."""
    server = FastMCP("tests", **settings)

    @server.tool
    def rows(count: int = 3) -> list[dict[str, Any]]:
        return [{"id": number, "name": f"naïve {number}"} for number in range(count)]

    @server.tool
    def report(count: int = 3) -> Report:
        return Report(title="t", lines=["l" * 100] * count)

    @server.tool
    def text(size: int = 3, of: str = "x") -> str:
        return of * size

    @server.tool(output_schema=None)
    def json_text(count: int = 3) -> str:
        return json.dumps({"items": [{"id": number} for number in range(count)], "count": count})

    @server.tool
    def image() -> ToolResult:
        data = base64.b64encode(PIXELS).decode()
        return ToolResult([ImageContent(type="image", data=data, mime_type="image/png")])

    @server.tool
    def audio() -> ToolResult:
        data = base64.b64encode(PIXELS).decode()
        return ToolResult([AudioContent(type="audio", data=data, mime_type="audio/wav")])

    @server.tool
    def blob() -> ToolResult:
        data = base64.b64encode(b"\x1f\x8b" + PIXELS).decode()
        resource = BlobResourceContents(uri="test://blob", mime_type="application/gzip", blob=data)
        return ToolResult([EmbeddedResource(type="resource", resource=resource)])

    @server.tool
    def several(size: int = 3) -> ToolResult:
        return ToolResult([TextContent(type="text", text=letter * size) for letter in "abc"])

    @server.tool
    def raising(size: int = 3) -> str:
        raise ToolError("e" * size)

    @server.tool
    def failing(size: int = 3) -> ToolResult:
        return ToolResult("f" * size, is_error=True)

    @server.tool
    def breaking() -> str:
        raise LookupError("lost")

    @server.tool
    def with_meta(size: int = 3) -> ToolResult:
        return ToolResult("m" * 50_000, meta={"own": "o" * size})

    @server.tool
    def raw(size: int = 3) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="r" * size)], _meta={"own": 1})

    @server.tool(output_schema=None)
    def chooses(output_mode: str = "mine") -> str:
        return output_mode * 20_000

    @server.resource("test://one")
    def one() -> str:
        return "theirs"

    @server.resource("test://each/{name}")
    def each(name: str) -> str:
        return name

    return server


def main() -> None:
    transport, options, *guarded = sys.argv[1:]
    server = make_server(auth=StaticTokenVerifier(TOKENS) if guarded else None)
    if (options := json.loads(options)) is not None:
        from forebay.adapters.fastmcp import ForebayMiddleware

        server.add_middleware(ForebayMiddleware(**options))
    if transport == "http":
        serve_http(server.http_app())
    else:
        server.run("stdio", show_banner=False)


if __name__ == "__main__":
    main()
