"""A server on stdio that records each line it reads: `python recording_server.py FILE`.

Its tools do what a strange server could: answer and exit, ask, or write any line.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOOLS = ["echo", "asks", "answers_and_exits", "leaves_a_child", "slow", "update", "writes"]
CAPABILITIES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
CHILD = "import sys, time\nfor _ in range(10_000): print('{}', flush=True); time.sleep(0.005)"

_lock = threading.Lock()
_answers: dict[Any, Any] = {}
_has_answer = threading.Condition()


def write(line: str) -> None:
    with _lock:
        view = memoryview(line.encode() + b"\n")
        while view:
            view = view[os.write(1, view) :]


def send(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def answer(number: Any, value: object) -> None:
    send(id=number, result={"content": [{"type": "text", "text": json.dumps(value)}]})


def call(number: Any, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "echo":
            answer(number, arguments)
        case "slow":
            time.sleep(arguments["seconds"])
            answer(number, "slow")
        case "asks":
            question = f"question {number}"
            schema = {"type": "object", "properties": {}}
            send(id=question, method="elicitation/create", params={"message": "?", "requestedSchema": schema})
            with _has_answer:
                _has_answer.wait_for(lambda: question in _answers, 60)
            answer(number, "asked")
        case "answers_and_exits":
            answer(number, "x" * arguments["size"])
            os._exit(0)
        case "leaves_a_child":
            subprocess.Popen([sys.executable, "-c", CHILD])
            os._exit(0)
        case "update":
            send(method="notifications/resources/updated", params={"uri": arguments["uri"]})
            answer(number, "updated")
        case "writes":
            for line in arguments["lines"]:
                write(line)
            answer(number, "written")


def main() -> None:
    with Path(sys.argv[1]).open("ab", buffering=0) as file:
        for line in sys.stdin.buffer:
            file.write(line)
            message = json.loads(line)
            number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
            if method == "initialize":
                info = {"name": "recording server (tests)", "version": "1"}
                version = "2025-11-25"
                send(id=number, result={"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info})
            elif method == "tools/list":
                send(id=number, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
            elif method == "tools/call":
                threading.Thread(target=call, args=(number, params["name"], params.get("arguments") or {})).start()
            elif method == "resources/subscribe" and not params["uri"].startswith("known:"):
                send(id=number, error={"code": -32602, "message": "no such resource"})
            elif method is None:
                with _has_answer:
                    _answers[number] = message
                    _has_answer.notify_all()
            elif number is not None:
                send(id=number, result={"told": params})
    os._exit(0)


if __name__ == "__main__":
    main()
