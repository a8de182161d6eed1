"""A server on stdio without an SDK that writes and reads very large messages: `python huge_server.py [TOOLS [PAGES]]`.

It lists `TOOLS` generated tools on each of `PAGES` pages, after its own.
"""

import json
import sys
from typing import Any

CHUNK = b"x" * (1 << 20)
SCHEMA = {"type": "object"}
OWN_TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("batch", "measure")]


def write_result(number: Any, result: Any) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n")


def write_batch(number: Any, size: int, before: int) -> None:
    """Answer in a batch: `before` notifications, and then a text of `size` bytes."""
    out = sys.stdout.buffer
    out.write(b"[" + b'{"jsonrpc":"2.0","method":"notifications/other"},' * before)
    out.write(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' % json.dumps(number).encode())
    for start in range(0, size, len(CHUNK)):
        out.write(CHUNK[: size - start])
    out.write(b'"}]}}]\n')


def write_tools(number: Any, page: int, count: int, pages: int) -> None:
    """Write one page of tools, without building the list in memory."""
    out = sys.stdout.buffer
    out.write(
        b'{"jsonrpc":"2.0","id":%s,"result":{"tools":%s'
        % (json.dumps(number).encode(), json.dumps(OWN_TOOLS)[:-1].encode())
    )
    for index in range(count):
        out.write(b',{"name":"tool-%d-%d","inputSchema":{"type":"object"}}' % (page, index))
    out.write(b"]" + (b"" if page + 1 >= pages else b',"nextCursor":"%d"' % (page + 1)) + b"}}\n")


def handle(message: dict[str, Any], size: int, count: int, pages: int) -> None:
    number, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            info = {"name": "huge server (tests)", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            write_result(number, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
        case "tools/list":
            write_tools(number, int(params.get("cursor", 0)), count, pages)
        case "tools/call" if params["name"] == "batch":
            write_batch(number, params["arguments"]["size"], params["arguments"].get("before", 0))
        case _ if number is not None:
            write_result(number, {"content": [{"type": "text", "text": str(size)}]})


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    pages = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for line in sys.stdin.buffer:
        handle(json.loads(line), len(line), count, pages)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
