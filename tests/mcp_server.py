"""A server for tests: `python mcp_server.py [--http PORT] OPTIONS`, those of headgate as JSON, or `null` without it."""

import base64
import json
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import AudioContent, BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, TextContent

PIXELS = bytes(range(256)) * 400


def make_server() -> MCPServer:
    """Tools of every kind of result, each as large as it is told to be."""
    server = MCPServer("tests", instructions="none")

    @server.tool()
    def rows(count: int = 3) -> list[dict[str, Any]]:
        return [{"id": number, "name": f"naïve {number}"} for number in range(count)]

    @server.tool()
    def text(size: int = 3, of: str = "x") -> str:
        return of * size

    @server.tool(structured_output=False)
    def json_text(count: int = 3) -> str:
        return json.dumps({"items": [{"id": number} for number in range(count)], "count": count})

    @server.tool()
    def image(repeat: int = 1) -> CallToolResult:
        data = base64.b64encode(PIXELS * repeat).decode()
        return CallToolResult(content=[ImageContent(type="image", data=data, mime_type="image/png")])

    @server.tool()
    def audio() -> CallToolResult:
        data = base64.b64encode(PIXELS).decode()
        return CallToolResult(content=[AudioContent(type="audio", data=data, mime_type="audio/wav")])

    @server.tool()
    def blob() -> CallToolResult:
        data = base64.b64encode(b"\x1f\x8b" + PIXELS).decode()
        resource = BlobResourceContents(uri="test://blob", mime_type="application/gzip", blob=data)
        return CallToolResult(content=[EmbeddedResource(type="resource", resource=resource)])

    @server.tool()
    def several(size: int = 3) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text=letter * size) for letter in "abc"])

    @server.tool()
    def failing(size: int = 3) -> str:
        raise ToolError("e" * size)

    @server.tool()
    def breaking() -> str:
        raise LookupError("secret")

    @server.tool()
    def with_meta(size: int = 3) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="m" * 50_000)], _meta={"own": "o" * size})

    @server.tool(structured_output=False)
    def chooses(output_mode: str = "mine") -> str:
        return output_mode * 20_000

    return server


def main() -> None:
    *http, described = sys.argv[1:]
    options = json.loads(described)
    server = make_server()
    if options is not None:
        from headgate.servers.mcp import Headgate

        Headgate(**options).install(server)
    if http:
        server.run("streamable-http", port=int(http[1]), stateless_http=True, json_response=True)
    else:
        server.run()


if __name__ == "__main__":
    main()
