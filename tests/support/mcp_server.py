"""A server of the mcp SDK for tests: `python mcp_server.py stdio|http '{"output_mode": "auto"}'`, or `null` for none.

Over HTTP it prints its port. Flags after the options: `guarded` requires a token (`Bearer NAME`), `stateless` has no
sessions, `events` responds with event streams, and `old` serves the transport of 2024-11-05 at `/sse`.
"""

import base64
import json
import sys
from typing import Any

from listening import serve_http
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import AudioContent, BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, TextContent
from pydantic import AnyHttpUrl

PIXELS = bytes(range(256)) * 400

# The SDK requires an issuer, but no client is sent there.
HERE = AnyHttpUrl("http://127.0.0.1")
AUTH = AuthSettings(issuer_url=HERE, resource_server_url=HERE, validate_token_resource=False)


class TrustingVerifier(TokenVerifier):
    """Accepts every token as the name of its subject; the token `nobody` has no subject."""

    async def verify_token(self, token: str) -> AccessToken | None:
        subject = None if token == "nobody" else token  # noqa: S105
        return AccessToken(token=token, client_id="client", scopes=[], subject=subject, claims={"iss": "test://issuer"})


def make_server(**options: Any) -> MCPServer:
    """Return a server with a tool for every kind of result, in any size."""
    server = MCPServer("tests", instructions="none", **options)

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
    transport, options_json, *flags = sys.argv[1:]
    server = make_server(auth=AUTH, token_verifier=TrustingVerifier()) if "guarded" in flags else make_server()
    if (options := json.loads(options_json)) is not None:
        from forebay.adapters.mcp import Forebay

        Forebay(**options).install(server)
    if transport == "http":
        is_json = "events" not in flags
        streamable = server.streamable_http_app(stateless_http="stateless" in flags, json_response=is_json)
        serve_http(server.sse_app() if "old" in flags else streamable)
    else:
        server.run()


if __name__ == "__main__":
    main()
