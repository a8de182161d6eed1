"""A minimal, fast HTTP server: `python raw_http.py PORT`.

The tool `text` returns `of`, which identifies the call, padded to `size` bytes.
"""

import asyncio
import json
import sys
from functools import cache
from typing import Any

from raw_answers import make_result

PROPERTIES = {"size": {"type": "integer"}, "of": {"type": "string"}}
RECORD = '{"id": 1, "name": "café", "note": "line\\nline"}, '
UNKNOWN = {"code": -32601, "message": "Method not found"}


@cache
def make_rest(size: int) -> str:
    """Return the padding after `of`."""
    return (" " + RECORD * (size // len(RECORD) + 1))[:size]


@cache
def dump_rest(size: int) -> bytes:
    return json.dumps(make_rest(size), ensure_ascii=False).encode()[1:]


def make_response(message: dict[str, Any]) -> bytes:
    if message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        start = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s'
        head = start % (json.dumps(message["id"]).encode(), arguments["of"].encode())
        return head + dump_rest(arguments["size"] - len(arguments["of"])) + b'}],"isError":false}}'
    result = make_result(message["method"], "raw http server", PROPERTIES)
    body = {"error": UNKNOWN} if result is None else {"result": result}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, after = head.partition(b"content-length:")
            body = await reader.readexactly(int(after.split(b"\r\n")[0])) if after else b""
            if not head.startswith(b"post"):
                writer.write(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            elif "id" not in (message := json.loads(body)):
                writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            else:
                body = make_response(message)
                start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(start % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
