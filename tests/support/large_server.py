"""A server without an SDK that returns results of any size: `python large_server.py stdio|json|sse [known]`.

It serves both protocol eras. A call with `later` returns a task; with `known` the task of that name exists from the
start. Over HTTP it prints its port.
"""

import base64
import itertools
import json
import sys
from typing import Any

from plain_http import PostHandler, serve_until_stdin_closes

INFO = {"name": "large server (tests)", "version": "1"}
KINDS = ["text", "json", "structured", "resource", "blob", "blocks"]
TOOLS = [{"name": kind, "inputSchema": {"type": "object"}} for kind in KINDS]
VERSION = "io.modelcontextprotocol/protocolVersion"
RELATED = "io.modelcontextprotocol/related-task"

TASKS: dict[str, dict[str, Any]] = {}
NUMBERS = itertools.count(1)


def rows(size: int) -> list[dict[str, Any]]:
    row = {"id": 100_000, "name": "a name", "text": "words that are in every row", "tags": ["a", "b"]}
    return [{**row, "id": 100_000 + number} for number in range(size // len(json.dumps(row)))]


def make_call_result(kind: str, size: int) -> dict[str, Any]:
    match kind:
        case "json":
            return {"content": [{"type": "text", "text": json.dumps(rows(size))}]}
        case "structured":
            structured = {"result": rows(size // 2)}
            return {"content": [{"type": "text", "text": json.dumps(structured)}], "structuredContent": structured}
        case "resource":
            resource = {"uri": "test://large", "mimeType": "text/plain", "text": text(size)}
            return {"content": [{"type": "resource", "resource": resource}]}
        case "blob":
            data = base64.b64encode(bytes(range(256)) * (size * 3 // 4 // 256)).decode()
            resource = {"uri": "test://large", "mimeType": "application/zip", "blob": data}
            return {"content": [{"type": "resource", "resource": resource}]}
        case "blocks":
            block = {"type": "text", "text": "a block of many"}
            return {"content": [block] * (size // len(json.dumps(block)))}
    return {"content": [{"type": "text", "text": text(size)}]}


def text(size: int) -> str:
    line = 'a line of "text" with é\n'
    return line * (size // len(line))


def make_result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    is_modern = VERSION in (params.get("_meta") or {})
    complete = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": INFO}} if is_modern else {}
    listed = {"ttlMs": 0, "cacheScope": "private"} if is_modern else {}
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "tasks": {}}
    match method:
        case "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": INFO}
        case "server/discover":
            return {**complete, **listed, "supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        case "tools/list":
            return {**complete, **listed, "tools": TOOLS}
        case "tools/call":
            result = {**complete, **make_call_result(params["name"], params["arguments"]["size"])}
            result |= params["arguments"].get("more", {})
            return task(result, is_modern) if params["arguments"].get("later") else result
        case "tasks/result":
            return {**TASKS[params["taskId"]], "_meta": {RELATED: {"taskId": params["taskId"]}}}
        case "tasks/get":
            state = {**complete, **make_task_state(params["taskId"], "completed")}
            return {**state, "result": TASKS[params["taskId"]]} if is_modern else state
        case "resources/list":
            return {**complete, **listed, "resources": [{"uri": "test://large", "name": "large"}]}
        case "resources/read":
            size = int(params["uri"].rpartition("/")[2])
            return {**complete, **listed, "contents": [{"uri": params["uri"], "text": text(size)}]}
        case "prompts/get":
            size = int(params["arguments"]["size"])
            return {**complete, "messages": [{"role": "user", "content": {"type": "text", "text": text(size)}}]}
        case "completion/complete":
            size = int(params["argument"]["value"])
            return {**complete, "completion": {"values": [text(size)], "total": 1}}
    raise LookupError(method)


def task(result: dict[str, Any], is_modern: bool) -> dict[str, Any]:
    name = f"task-{next(NUMBERS)}"
    TASKS[name] = result
    state = make_task_state(name, "working")
    return {**state, "resultType": "task"} if is_modern else {"task": state}


def make_task_state(name: str, status: str) -> dict[str, Any]:
    return {"taskId": name, "status": status, "createdAt": "2026-01-01T00:00:00Z", "ttl": None}


def make_response(message: dict[str, Any]) -> bytes:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        answer["result"] = make_result(message["method"], message.get("params") or {})
    except LookupError as error:
        answer["error"] = {"code": -32601, "message": f"no {error}"}
    return json.dumps(answer, ensure_ascii=False).encode()


class _Handler(PostHandler):
    def on_message(self, message: dict[str, Any]) -> None:
        body = make_response(message) if "id" in message else b""
        content_type = "application/json"
        if body and sys.argv[1] == "sse":
            body, content_type = b"event: message\ndata: " + body + b"\n\n", "text/event-stream"
        self.reply(200 if body else 202, body, content_type)


def main() -> None:
    if "known" in sys.argv:
        TASKS["known"] = make_call_result("text", 200_000)
    if sys.argv[1] != "stdio":
        serve_until_stdin_closes(_Handler)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.buffer.write(make_response(message) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
