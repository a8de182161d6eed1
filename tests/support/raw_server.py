"""A server without an SDK that sends the results its arguments contain: `python raw_server.py stdio|http [TOOLS]`.

Over HTTP it prints its port. It serves all protocol versions, and lists its tools in pages of two. `TOOLS` is JSON with
more tools to list, valid or not.
"""

import json
import os
import sys
from typing import Any

from plain_http import PostHandler, serve_until_stdin_closes

INFO = {"name": "raw server (tests)", "version": "1"}

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

ANY = {"type": "object"}

# Only `says_a_number` has an output schema.
TOOLS: list[dict[str, Any]] = [
    {
        "name": "says",
        "inputSchema": ANY,
        "description": "What it is told to say.",
        "annotations": {"readOnlyHint": True},
    },
    {"name": "says_a_number", "inputSchema": ANY, "outputSchema": NUMBER},
    {"name": "refuses", "inputSchema": ANY},
    {"name": "waits", "inputSchema": ANY},
    {"name": "told", "inputSchema": ANY},
    {"name": "dies", "inputSchema": ANY},
    {"name": "writes", "inputSchema": ANY, "description": "The lines that it is told to write, and nothing else."},
    {"name": "x" * 300, "inputSchema": ANY},
]

CANCELLED: list[Any] = []
CALLED: list[str] = []
LISTED: list[Any] = []


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response to a message, or `None`."""
    number, method, params = message.get("id"), message["method"], message.get("params") or {}
    if method == "notifications/cancelled":
        CANCELLED.append(params["requestId"])
    if number is None:
        return None
    response = build_response(method, params)
    return response if response is None else {"jsonrpc": "2.0", "id": number, **response}


def build_response(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    match method, params:
        case "initialize", _:
            capabilities = {"tools": {"listChanged": True}}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": INFO}}
        case "server/discover", _:
            stamp = {"io.modelcontextprotocol/serverInfo": INFO}
            versions = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": stamp}
            return {"result": {**complete, **versions}}
        case "tools/list", _:
            LISTED.append(params)
            start = int(params.get("cursor", 0))
            page: dict[str, Any] = {"tools": TOOLS[start : start + 2]}
            # The last page leads back to the first, as with some servers.
            page["nextCursor"] = str(start + 2) if start + 2 < len(TOOLS) else "0"
            page["_meta"] = {"io.modelcontextprotocol/serverInfo": INFO}
            return {"result": {**complete, **page}}
        case "tools/call", {"name": str(name)}:
            CALLED.append(name)
            return call_tool(name, params.get("arguments") or {})
    return {"error": {"code": -32601, "message": f"no {method}"}}


def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    match name:
        case "says" | "says_a_number":
            return {"result": arguments["result"]}
        case "refuses":
            return {"error": arguments["error"]}
        case "waits" | "writes":
            return None
        case "told":
            counts = {tool: CALLED.count(tool) for tool in ("refuses", "waits")}
            state = {**counts, "cancelled": len(CANCELLED), "listed": len(LISTED), "pid": os.getpid()}
            return {"result": {"content": [], "structuredContent": state}}
        case "dies":
            os._exit(1)
    return {"error": {"code": -32602, "message": f"Unknown tool: {name}"}}


class _Handler(PostHandler):
    def on_message(self, message: dict[str, Any]) -> None:
        response = answer(message)
        if response is None and "id" in message:
            # Wait as long as the caller; since 2026-07-28 a caller cancels by disconnecting.
            self.connection.recv(1)
            CANCELLED.append(None)
            self.close_connection = True
            return
        body = b"" if response is None else json.dumps(response).encode()
        self.reply(200 if response is not None else 202, body, "application/json")


def write(message: dict[str, Any]) -> None:
    """Write the lines of the arguments in Latin-1, so that they can be any bytes; `ID` becomes the id of the call."""
    for line in message["params"]["arguments"]["lines"]:
        sys.stdout.buffer.write(line.replace("ID", json.dumps(message["id"])).encode("latin-1") + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    TOOLS.extend(json.loads(sys.argv[2]) if len(sys.argv) > 2 else [])
    if sys.argv[1] == "http":
        serve_until_stdin_closes(_Handler)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message["method"] == "tools/call" and message["params"]["name"] == "writes":
            write(message)
        if (response := answer(message)) is not None:
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
