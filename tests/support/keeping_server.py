"""A server on stdio without any SDK, of the handshake, that keeps all it is told for its one connection.

Its tasks have numbers that anyone can guess. One that is told to be `slow` takes its time to end.
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
_told: list[list[Any]] = []
_tasks: dict[str, str] = {}


def say(**message: Any) -> None:
    with _lock:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(words: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(words)}], "isError": False}


def call(name: str, told: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "log" if _level == "debug":
            say(method="notifications/message", params={"level": "warning", "data": os.getpid()})
        case "update" if told["uri"] in _subscribed:
            say(method="notifications/resources/updated", params={"uri": told["uri"]})
        case "grow":
            TOOLS.append(told["name"])
            say(method="notifications/tools/list_changed")
        case "begin":
            _tasks[str(len(_tasks) + 1)] = "working"
        case "takes":
            time.sleep(told["seconds"])
    return text({"pid": os.getpid(), "level": _level, "subscribed": _subscribed, "told": _told, "tasks": _tasks})


def answered(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    global _level
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
            info = {"name": "keeping server (tests)", "version": "1"}
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
        _told.append([method.removeprefix("resources/"), params["uri"]])
    if number is None:
        return

    def call_tool() -> None:
        say(id=number, result=call(params["name"], params.get("arguments") or {}))

    if method == "tools/call":
        threading.Thread(target=call_tool, daemon=True).start()
    elif (result := answered(method, params)) is not None:
        say(id=number, result=result)
    else:
        say(id=number, error={"code": -32602, "message": f"no {method} of {params}"})


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    if "slow" in sys.argv:
        time.sleep(3)
