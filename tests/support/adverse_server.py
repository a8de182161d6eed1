"""A server on stdio without any SDK, which does as its tools are told, and most of them do wrong.

Where a line is due it may write anything. `FAIL_STARTS` in its environment names a file: while there is a number in it,
that many more starts fail.
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
_answers: dict[str, Any] = {}
_answered = threading.Condition()
_told: list[Any] = []


def write(line: bytes) -> None:
    with _lock:
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(1, view) :]


def say(message: dict[str, Any]) -> None:
    write(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": False}


def answer(number: Any, result: dict[str, Any]) -> None:
    # As other languages' servers have it: the id comes last.
    say({"result": result, "jsonrpc": "2.0", "id": number})


def call(number: Any, name: str, told: dict[str, Any], token: object = None) -> None:
    match name:
        case "text":
            words = told.get("of", "x") * (told.get("size", 10) // len(told.get("of", "x")))
            answer(number, {**text(words), **told.get("more", {})})
        case "blocks":
            blocks = [{"type": "text", "text": f"block {index}"} for index in range(told["count"])]
            answer(number, {"content": blocks})
        case "dies":
            os.write(1, b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + b"y" * told["after"])
            os._exit(3)
        case "hangs":
            time.sleep(60)
        case "floods":
            sys.stderr.write("e" * told["size"])
            answer(number, text("flooded"))
        case "babbles":
            for line in ("Listening on stdio…", "{not json", "", "[1, 2", '{"jsonrpc": "2.0"'):
                write(line.encode())
            answer(number, text("said"))
        case "invalid":
            write(
                b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' % json.dumps(number).encode()
                + b"\xff\xfe" * (told["size"] // 2)
                + b'"}]}}'
            )
        case "twice":
            for _ in range(2):
                answer(number, text("z" * told["size"]))
        case "late":
            _cancelled.wait(30)
            answer(number, text("w" * told["size"]))
        case "asks":
            ask = f"server-{number}"
            say({"jsonrpc": "2.0", "id": ask, "method": told["method"], "params": {"of": number, "x": 1e3}})
            with _answered:
                _answered.wait_for(lambda: ask in _answers, 30)
            answer(number, text(json.dumps(_answers[ask])))
        case "reports":
            for step in range(told["steps"]):
                params = {"progressToken": told.get("token", token), "progress": step, "total": told["steps"]}
                say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                time.sleep(told.get("every", 0))
            answer(number, text("reported"))
        case "pid":
            answer(number, text(str(os.getpid())))
        case "writes":
            write(told["line"].replace("ID", json.dumps(number)).encode())
        case "told":
            answer(number, text(json.dumps(_told)))
        case _:
            say({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": f"no tool {name}"}})


def handle(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        with _answered:
            _answers[str(number)] = message.get("result", message.get("error"))
            _answered.notify_all()
        return
    _told.append(method)
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
            answer(number, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": INFO})
        case "tools/list":
            answer(number, {"tools": TOOLS, "x-more": [1.0, 2e5]})
        case "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            threading.Thread(target=call, args=(number, params["name"], params.get("arguments") or {}, token)).start()
        case "notifications/cancelled":
            _cancelled.set()
        case "resources/read" | "future/method":
            answer(number, {"as_told": params, "long": "r" * params.get("size", 0)})
        case "logging/setLevel" | "resources/subscribe" | "ping":
            answer(number, {})
        case _ if number is not None:
            say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"no {method}", "data": [1.0]}})


def main() -> None:
    failing = os.environ.get("FAIL_STARTS")
    if failing and Path(failing).exists() and (left := int(Path(failing).read_text())) > 0:
        Path(failing).write_text(str(left - 1))
        sys.exit(7)
    for line in sys.stdin.buffer:
        with contextlib.suppress(*([Exception] if "lenient" in sys.argv else [])):
            handle(json.loads(line))
    # Threads that hang do not keep it.
    os._exit(0)


if __name__ == "__main__":
    main()
