"""A server with tools that return and accept large texts: `python refs_server.py stdio|http OPTIONS`.

OPTIONS is JSON and includes `sdk`. The tools answer with a checksum of their argument instead of the argument.
"""

import hashlib
import json
import sys
from typing import Any

from listening import serve_http


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make(size: int = 3, of: str = "x") -> str:
    return of * size


def make_rows(count: int = 3) -> str:
    return json.dumps({"rows": [{"id": number, "text": f"naïve \\ {number}\n"} for number in range(count)]})


def take(content: str, note: str = "") -> str:
    CALLED.append("take")
    return json.dumps({"digest": digest(content), "size": len(content.encode()), "note": note})


def take_rows(rows: list[dict[str, Any]], options: dict[str, Any] | None = None) -> str:
    CALLED.append("take_rows")
    return json.dumps({"ids": sum(row["id"] for row in rows), "count": len(rows), "options": options})


def called() -> str:
    return json.dumps({"called": CALLED})


CALLED: list[str] = []
TOOLS = [make, make_rows, take, take_rows, called]


def make_server(sdk: str, options: dict[str, Any] | None) -> Any:
    server: Any
    if sdk == "mcp":
        from forebay.adapters.mcp import Forebay
        from mcp.server import MCPServer

        server = MCPServer("refs")
        for tool in TOOLS:
            server.tool(structured_output=False)(tool)
        return server if options is None else Forebay(**options).install(server)
    from fastmcp import FastMCP
    from forebay.adapters.fastmcp import ForebayMiddleware

    server = FastMCP("refs")
    for tool in TOOLS:
        server.tool(output_schema=None)(tool)
    if options is not None:
        server.add_middleware(ForebayMiddleware(**options))
    return server


def main() -> None:
    transport, options_json = sys.argv[1:]
    options = json.loads(options_json)
    sdk = options.pop("sdk")
    server = make_server(sdk, options or None)
    if transport == "http":
        serve_http(server.streamable_http_app(json_response=True) if sdk == "mcp" else server.http_app())
    elif sdk == "mcp":
        server.run()
    else:
        server.run("stdio", show_banner=False)


if __name__ == "__main__":
    main()
