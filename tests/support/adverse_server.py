"""A server on stdio without an SDK, whose tools misbehave in many ways.

The environment variable `FAIL_STARTS` names a file with a number: that many starts fail.
"""

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

INFO = {"name": "adverse server (tests)", "version": "1"}
ANY = {"type": "object"}
TOOLS: list[dict[str, Any]] = [
    {"name": name, "inputSchema": ANY, "description": f"{name} ✓", "x-unknown": 1.50}
    for name in [
        "text",
        "blocks",
        "dies",
        "hangs",
        "floods",
        "babbles",
        "invalid",
        "twice",
        "late",
        "asks",
        "reports",
        "pid",
        "told",
        "writes",
    ]
]

_lock = threading.Lock()
_cancelled = threading.Event()
_responses: dict[str, Any] = {}
_response_arrived = threading.Condition()
_received: list[Any] = []


def write(line: bytes) -> None:
    with _lock:
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(1, view) :]


def send(message: dict[str, Any]) -> None:
    write(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def send_result(number: Any, result: dict[str, Any]) -> None:
    # The id comes last, as servers in other languages write it.
    send({"result": result, "jsonrpc": "2.0", "id": number})


def call(number: Any, name: str, arguments: dict[str, Any], token: object = None) -> None:
    match name:
        case "text":
            words = arguments.get("of", "x") * (arguments.get("size", 10) // len(arguments.get("of", "x")))
            send_result(number, {**text_result(words), **arguments.get("more", {})})
        case "blocks":
            blocks = [{"type": "text", "text": f"block {index}"} for index in range(arguments["count"])]
            send_result(number, {"content": blocks})
        case "dies":
            os.write(
                1, b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + b"y" * arguments["after"]
            )
            os._exit(3)
        case "hangs":
            time.sleep(60)
        case "floods":
            sys.stderr.write("e" * arguments["size"])
            send_result(number, text_result("flooded"))
        case "babbles":
            for line in ("Listening on stdio…", "{not json", "", "[1, 2", '{"jsonrpc": "2.0"'):
                write(line.encode())
            send_result(number, text_result("said"))
        case "invalid":
            write(
                b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' % json.dumps(number).encode()
                + b"\xff\xfe" * (arguments["size"] // 2)
                + b'"}]}}'
            )
        case "twice":
            for _ in range(2):
                send_result(number, text_result("z" * arguments["size"]))
        case "late":
            _cancelled.wait(30)
            send_result(number, text_result("w" * arguments["size"]))
        case "asks":
            request_id = f"server-{number}"
            send(
                {"jsonrpc": "2.0", "id": request_id, "method": arguments["method"], "params": {"of": number, "x": 1e3}}
            )
            with _response_arrived:
                _response_arrived.wait_for(lambda: request_id in _responses, 30)
            send_result(number, text_result(json.dumps(_responses[request_id])))
        case "reports":
            for step in range(arguments["steps"]):
                params = {"progressToken": arguments.get("token", token), "progress": step, "total": arguments["steps"]}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                time.sleep(arguments.get("every", 0))
            send_result(number, text_result("reported"))
        case "pid":
            send_result(number, text_result(str(os.getpid())))
        case "writes":
            write(arguments["line"].replace("ID", json.dumps(number)).encode())
        case "told":
            send_result(number, text_result(json.dumps(_received)))
        case _:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": f"no tool {name}"}})


def handle(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        with _response_arrived:
            _responses[str(number)] = message.get("result", message.get("error"))
            _response_arrived.notify_all()
        return
    _received.append(method)
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
            send_result(number, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": INFO})
        case "tools/list":
            send_result(number, {"tools": TOOLS, "x-more": [1.0, 2e5]})
        case "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            threading.Thread(target=call, args=(number, params["name"], params.get("arguments") or {}, token)).start()
        case "notifications/cancelled":
            _cancelled.set()
        case "resources/read" | "future/method":
            send_result(number, {"as_told": params, "long": "r" * params.get("size", 0)})
        case "future/write":
            write(params["line"].replace("ID", json.dumps(number)).encode())
        case "logging/setLevel" | "resources/subscribe" | "ping":
            send_result(number, {})
        case _ if number is not None:
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"no {method}", "data": [1.0]}})


def main() -> None:
    failing = os.environ.get("FAIL_STARTS")
    if failing and Path(failing).exists() and (remaining := int(Path(failing).read_text())) > 0:
        Path(failing).write_text(str(remaining - 1))
        sys.exit(7)
    for line in sys.stdin.buffer:
        with contextlib.suppress(*([Exception] if "lenient" in sys.argv else [])):
            handle(json.loads(line))
    # Do not wait for blocked threads.
    os._exit(0)


if __name__ == "__main__":
    main()
