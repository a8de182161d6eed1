"""A server on stdio whose tool `flood` sends many notifications or requests: `python flooding_server.py FILE`.

It creates FILE when all of them are written, and then answers the call.
"""

import json
import sys
from pathlib import Path
from typing import Any

PARAMS: dict[str, Any] = {
    "notifications/message": {"level": "error", "data": "x" * 1000},
    "notifications/progress": {"progressToken": "p", "progress": 0, "message": "x" * 1000},
    "notifications/resources/updated": {"uri": "one://"},
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def flood(method: str, count: int, token: Any) -> None:
    params = dict(PARAMS[method])
    for number in range(count):
        if "progress" in params:
            params |= {"progress": number, "progressToken": token}
        elif "uri" in params:
            params["uri"] = f"one://{number}/{'x' * 1000}"
        request_id = {} if method.startswith("notifications/") else {"id": number}
        write({**request_id, "method": method, "params": params})


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        result: dict[str, Any] = {}
        match request.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": True}},
                    "serverInfo": {"name": "flooding", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "flood", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                params = request["params"]
                flood(**params["arguments"], token=params.get("_meta", {}).get("progressToken"))
                sys.stdout.flush()
                Path(sys.argv[1]).touch()
                result = {"content": [{"type": "text", "text": "done"}]}
        if "id" in request and "method" in request:
            is_known = request["method"] in ("initialize", "tools/list", "tools/call", "ping", "logging/setLevel")
            outcome = {"result": result} if is_known else {"error": {"code": -32601, "message": "unknown"}}
            write({"id": request["id"], **outcome})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
