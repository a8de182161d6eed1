"""A 2025-11-25 server on stdio, without an SDK, that sends requests to its client during calls."""

import itertools
import json
import os
import sys
import threading
import time
from typing import Any

FORM: dict[str, Any] = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
TOOLS = ["asks", "rounds", "early", "dies", "large", "reports", "toils", "waits", "hangs", "heard"]

_writing = threading.Lock()
_numbers = itertools.count(1)
_responses: dict[Any, Any] = {}
_response_arrived = threading.Condition()
_received: dict[str, list[Any]] = {"methods": [], "answers": [], "capabilities": []}
_go = threading.Event()


def send(message: dict[str, Any]) -> None:
    with _writing:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def send_result(number: Any, value: object) -> None:
    send({"id": number, "result": {"content": [{"type": "text", "text": json.dumps(value)}]}})


def send_requests(questions: list[dict[str, Any]]) -> list[int]:
    numbers = [next(_numbers) for _ in questions]
    for number, question in zip(numbers, questions, strict=True):
        send({"id": number, **question})
    return numbers


def wait_for_responses(numbers: list[int]) -> list[Any]:
    with _response_arrived:
        _response_arrived.wait_for(lambda: set(numbers) <= set(_responses), 60)
        return [_responses.get(number) for number in numbers]


def call(number: Any, name: str, arguments: dict[str, Any], token: object) -> None:
    question = {"method": arguments.get("method", "elicitation/create"), "params": arguments.get("params", FORM)}
    questions = [question] * arguments.get("count", 1)
    match name:
        case "asks":
            time.sleep(arguments.get("delay", 0))
            send_result(number, wait_for_responses(send_requests(questions)))
        case "rounds":
            send_result(number, [wait_for_responses(send_requests([question]))[0] for question in questions])
        case "early":
            send_requests(questions)
            time.sleep(arguments.get("after", 0))
            send_result(number, "early")
        case "dies":
            send_requests(questions)
            time.sleep(arguments.get("after", 0.3))
            os._exit(3)
        case "large":
            wait_for_responses(send_requests(questions))
            send_result(number, "x" * arguments["size"])
        case "reports":
            for step in range(2):
                send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
                if step == 0:
                    wait_for_responses(send_requests(questions))
            send_result(number, "reported")
        case "toils":
            for step in range(arguments["steps"]):
                time.sleep(0.5)
                send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
            send_result(number, "done")
        case "waits":
            _go.wait(60)
            send_result(number, "waited")
        case "hangs":
            wait_for_responses(send_requests(questions))
            time.sleep(60)
        case "heard":
            send_result(number, _received)


def handle(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        with _response_arrived:
            _responses[number] = message.get("result", message.get("error"))
            _received["answers"].append(_responses[number])
            _response_arrived.notify_all()
        return
    _received["methods"].append(method)
    match method:
        case "initialize":
            _received["capabilities"].append(params["capabilities"])
            send(
                {
                    "id": number,
                    "result": {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
                        "serverInfo": {"name": "asking server (tests)", "version": "1"},
                    },
                }
            )
        case "tools/list":
            send(
                {
                    "id": number,
                    "result": {"tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in TOOLS]},
                }
            )
        case "tools/call":
            if params["name"] == "heard" and (params.get("arguments") or {}).get("go"):
                _go.set()
            token = (params.get("_meta") or {}).get("progressToken")
            threading.Thread(target=call, args=(number, params["name"], params.get("arguments") or {}, token)).start()
        case "completion/complete" | "future/method":
            threading.Thread(target=call, args=(number, "asks", {}, None)).start()
        case _ if number is not None:
            send({"id": number, "error": {"code": -32601, "message": f"no {method}"}})


for line in sys.stdin.buffer:
    handle(json.loads(line))
# Do not wait for blocked threads.
os._exit(0)
