"""A server on stdio with one tool for each output: `get_orders`, `get_plugins`, …"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from evals import payloads

TOOLS = [
    {"name": f"get_{name}", "description": f"Return all {name}.", "inputSchema": {"type": "object"}}
    for name in payloads.NAMES
]
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "evals", "version": "1"},
}


def get_content(name: str) -> dict[str, Any]:
    """Return an output as a block of content. A block of text has no MIME type, so CSV is a resource."""
    text = payloads.dump(name)
    mime_type = payloads.MIME_TYPES.get(name)
    if mime_type is None:
        return {"type": "text", "text": text}
    return {"type": "resource", "resource": {"uri": f"data:{name}", "mimeType": mime_type, "text": text}}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    match message["method"]:
        case "initialize":
            return INITIALIZED
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [get_content(message["params"]["name"].removeprefix("get_"))]}
    raise KeyError(message["method"])


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
            try:
                response["result"] = answer(message)
            except KeyError as error:
                response["error"] = {"code": -32602, "message": f"this server has no {error}"}
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
