"""A server of the handshake on stdio, without any SDK, that asks its client things in the middle of calls."""

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
_answers: dict[Any, Any] = {}
_answered = threading.Condition()
_heard: dict[str, list[Any]] = {"methods": [], "answers": [], "capabilities": []}
_go = threading.Event()


def say(message: dict[str, Any]) -> None:
    with _writing:
        os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(number: Any, words: object) -> None:
    say({"id": number, "result": {"content": [{"type": "text", "text": json.dumps(words)}]}})


def asked(questions: list[dict[str, Any]]) -> list[int]:
    numbers = [next(_numbers) for _ in questions]
    for number, question in zip(numbers, questions, strict=True):
        say({"id": number, **question})
    return numbers


def awaited(numbers: list[int]) -> list[Any]:
    with _answered:
        _answered.wait_for(lambda: set(numbers) <= set(_answers), 60)
        return [_answers.get(number) for number in numbers]


def call(number: Any, name: str, told: dict[str, Any], token: object) -> None:
    question = {"method": told.get("method", "elicitation/create"), "params": told.get("params", FORM)}
    questions = [question] * told.get("count", 1)
    match name:
        case "asks":
            time.sleep(told.get("delay", 0))
            answer(number, awaited(asked(questions)))
        case "rounds":
            answer(number, [awaited(asked([one]))[0] for one in questions])
        case "early":
            asked(questions)
            time.sleep(told.get("after", 0))
            answer(number, "early")
        case "dies":
            asked(questions)
            time.sleep(told.get("after", 0.3))
            os._exit(3)
        case "large":
            awaited(asked(questions))
            answer(number, "x" * told["size"])
        case "reports":
            for step in range(2):
                say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
                if step == 0:
                    awaited(asked(questions))
            answer(number, "reported")
        case "toils":
            for step in range(told["steps"]):
                time.sleep(0.5)
                say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
            answer(number, "done")
        case "waits":
            _go.wait(60)
            answer(number, "waited")
        case "hangs":
            awaited(asked(questions))
            time.sleep(60)
        case "heard":
            answer(number, _heard)


def handle(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        with _answered:
            _answers[number] = message.get("result", message.get("error"))
            _heard["answers"].append(_answers[number])
            _answered.notify_all()
        return
    _heard["methods"].append(method)
    match method:
        case "initialize":
            _heard["capabilities"].append(params["capabilities"])
            say(
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
            say(
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
            say({"id": number, "error": {"code": -32601, "message": f"no {method}"}})


for line in sys.stdin.buffer:
    handle(json.loads(line))
# Threads that wait do not keep it.
os._exit(0)
