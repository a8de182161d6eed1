"""A server on stdio as fast as Python can be: what it answers with is made before it is asked.

`text` answers with a text of `size` bytes, as JSON records with quotes to escape; the same size is the same text.
"""

import json
import os
import sys
from functools import lru_cache
from typing import Any

INFO = {"name": "raw stdio server", "version": "1"}
SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
TOOLS = [{"name": "text", "description": "A text of some size.", "inputSchema": SCHEMA}]


@lru_cache
def text(size: int) -> str:
    """JSON of about this size."""
    record = '{"id": %d, "name": "café \\"no. %d\\"", "tags": ["a", "b"], "note": "line\\nline", "price": %d.5}'
    rows = [record % (number, number, number % 997) for number in range(size // 85 + 1)]
    return ("[" + ", ".join(rows) + "]")[: size - 1].ljust(size - 1) + "]"


@lru_cache
def result(size: int) -> bytes:
    return json.dumps(
        {"content": [{"type": "text", "text": text(size)}], "isError": False}, ensure_ascii=False
    ).encode()


def answer(message: dict[str, Any]) -> bytes:
    body: dict[str, Any] = {}
    match message["method"]:
        case "initialize":
            body = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
        case "tools/list":
            body = {"tools": TOOLS}
        case "tools/call":
            return result(message["params"]["arguments"]["size"])
    return json.dumps(body).encode()


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            view = memoryview(b'{"jsonrpc":"2.0","id":%d,"result":%s}\n' % (message["id"], answer(message)))
            while view:
                view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
