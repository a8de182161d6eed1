"""A server on stdio without an SDK that answers with JSON of any shape and size.

`python shape_server.py [SHAPE SIZE [TOOLS]]`: each listed tool has a member of this shape and size. Arguments of a call
say what the server does; other requests are answered with the shape that their `_meta` names.
"""

import json
import sys
import time
from typing import Any

INFO = {"name": "shape server (tests)", "version": "1"}
UNITS = {"lists": b"[]", "objects": b"{}", "numbers": b"1e5", "texts": b'""'}
MEMBERS = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}


def make_shape(shape: str, size: int) -> bytes:
    """Return about `size` bytes of JSON."""
    if shape == "text":
        return b'"' + b"x" * size + b'"'
    if shape == "deep":
        return b"[" * (size // 2) + b"]" * (size // 2)
    if shape == "members":
        return b"{" + b",".join(b'"%07x":0' % number for number in range(size // 12)) + b"}"
    unit = UNITS[shape]
    return b"[" + b",".join([unit] * (size // (len(unit) + 1))) + b"]"


def write(*chunks: bytes) -> None:
    sys.stdout.buffer.write(b"".join(chunks) + b"\n")
    sys.stdout.buffer.flush()


def respond(request: dict[str, Any], result: bytes, key: bytes = b"result") -> None:
    write(b'{"jsonrpc":"2.0","id":', json.dumps(request["id"]).encode(), b',"', key, b'":', result, b"}")


def make_tools(shape: str = "text", size: str = "1", count: str = "1") -> bytes:
    schema = b'{"type":"object","properties":{"a":{"type":"string"}}}'
    start = b'{"inputSchema":%s,"outputSchema":%s,"x":%s,"name":' % (schema, schema, make_shape(shape, int(size)))
    tools = [start + b'"shape-%d"}' % number for number in range(int(count))]
    return b'{"tools":[{"name":"shape","inputSchema":{"type":"object"}},%s]}' % b",".join(tools)


def call(request: dict[str, Any], line_size: int) -> None:
    arguments: dict[str, Any] = request["params"].get("arguments") or {}
    shape = make_shape(arguments.get("shape", "text"), arguments.get("size", 1))
    match arguments.get("do"):
        case "answer":
            respond(request, b'{"content":[],"structuredContent":{"a":%s}}' % shape)
        case "fail":
            respond(request, b'{"code":1,"message":"m","data":%s}' % shape, b"error")
        case "pad":
            # Members beside the shape that are too long to be parsed at once.
            padding = b",".join(b'"p%d":"%s"' % (number, b"p" * 900) for number in range(12))
            respond(request, b'{"content":[],%s,"_meta":{"a":%s}}' % (padding, shape))
        case "ask":
            write(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % shape)
        case "sleep":
            time.sleep(arguments["seconds"])
        case "ignore":
            pass
        case _:
            respond(request, b'{"content":[{"type":"text","text":"%d"}]}' % line_size)


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message or method is None:
            continue
        if method == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
            respond(message, json.dumps(result).encode())
        elif method == "tools/list":
            respond(message, make_tools(*sys.argv[1:]))
        elif method == "tools/call":
            call(message, len(line))
        else:
            key = MEMBERS.get(method, "capabilities").encode()
            meta = params["_meta"]
            respond(message, b'{"%s":%s}' % (key, make_shape(meta["shape"], meta["size"])))


if __name__ == "__main__":
    main()
