"""A 2025-11-25 server on stdio without an SDK that keeps state for its connection: log level, subscriptions, tasks.

Its task ids can be guessed. With the argument `slow` it takes three seconds to exit.
"""

import json
import os
import sys
import threading
import time
from typing import Any

ANY = {"type": "object"}
TOOLS = ["state", "log", "update", "grow", "begin", "takes"]
TASK = {"ttl": 60_000, "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}

_lock = threading.Lock()
_level = "debug"
_subscribed: list[str] = []
_received: list[list[Any]] = []
_tasks: dict[str, str] = {}


def send(**message: Any) -> None:
    with _lock:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text_result(value: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}], "isError": False}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "log" if _level == "debug":
            send(method="notifications/message", params={"level": "warning", "data": os.getpid()})
        case "update" if arguments["uri"] in _subscribed:
            send(method="notifications/resources/updated", params={"uri": arguments["uri"]})
        case "grow":
            TOOLS.append(arguments["name"])
            send(method="notifications/tools/list_changed")
        case "begin":
            _tasks[str(len(_tasks) + 1)] = "working"
        case "takes":
            time.sleep(arguments["seconds"])
    return text_result(
        {"pid": os.getpid(), "level": _level, "subscribed": _subscribed, "told": _received, "tasks": _tasks}
    )


def make_result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    global _level
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
            info = {"name": "stateful server (tests)", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": ANY} for name in TOOLS]}
        case "logging/setLevel":
            _level = params["level"]
        case "resources/subscribe":
            _subscribed.append(params["uri"])
        case "resources/unsubscribe":
            _subscribed.remove(params["uri"])
        case "tasks/get" | "tasks/cancel" if params["taskId"] in _tasks:
            if method == "tasks/cancel":
                _tasks[params["taskId"]] = "cancelled"
            return {"taskId": params["taskId"], "status": _tasks[params["taskId"]], **TASK}
        case "ping":
            pass
        case _:
            return None
    return {}


def handle(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message.get("method", ""), message.get("params") or {}
    if method.startswith("resources/"):
        _received.append([method.removeprefix("resources/"), params["uri"]])
    if number is None:
        return

    def call_tool() -> None:
        send(id=number, result=call(params["name"], params.get("arguments") or {}))

    if method == "tools/call":
        threading.Thread(target=call_tool, daemon=True).start()
    elif (result := make_result(method, params)) is not None:
        send(id=number, result=result)
    else:
        send(id=number, error={"code": -32602, "message": f"no {method} of {params}"})


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    if "slow" in sys.argv:
        time.sleep(3)
