"""A server on stdio without an SDK, whose tool takes the steps in its arguments.

`python stepping_server.py ERA RECORD [OPTIONS]`: it records each line that it reads in the file RECORD. OPTIONS is
JSON: the methods that it never answers (`deaf`), refuses (`refused`), answers with an error of this code (`failing`),
or that end it when the first of its starts is asked for them (`fatal`); its capabilities, prompts, and further members
of its tool (`definition`); whether it asks before any call (`asks_at_start`), and whether it ignores SIGTERM and the
end of its input (`stubborn`).
"""

import itertools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

CAPABILITIES = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}}
FORM: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

era, record = sys.argv[1:3]
options: dict[str, Any] = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}

_writing = threading.Lock()
_numbers = itertools.count(1)
_answers: dict[Any, Any] = {}
_earlier_methods: set[str] = set()
"""What earlier starts were asked for."""
_has_answer = threading.Condition()


def write(text: str) -> None:
    with _writing:
        view = memoryview(text.encode())
        while view:
            view = view[os.write(1, view) :]


def send(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def send_result(number: Any, result: dict[str, Any]) -> None:
    modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if era == "modern" else {}
    send(id=number, result={**modern, **result})


def wait_for_answers(questions: list[str]) -> list[Any]:
    with _has_answer:
        _has_answer.wait_for(lambda: {*questions} <= {*_answers}, 60)
        return [_answers.get(question) for question in questions]


def take_steps(number: Any, params: dict[str, Any]) -> None:
    token = (params.get("_meta") or {}).get("progressToken")
    value: Any = params.get("inputResponses")
    for step in params["arguments"].get("steps", []):
        match step:
            case {"wait_for": path}:
                while not Path(path).exists():
                    time.sleep(0.01)
            case {"notify": method, "count": count}:
                lines = [{"jsonrpc": "2.0", "method": method, "params": {"uri": f"x://{at}"}} for at in range(count)]
                write("".join(f"{json.dumps(line)}\n" for line in lines))
            case {"write": text}:
                write(text.replace("ID", json.dumps(number)) + "\n")
            case {"result": result}:
                send_result(number, result)
                return
            case {"progress": progress}:
                send(method="notifications/progress", params={"progressToken": token, "progress": progress})
            case {"ask_without_waiting": question}:
                send(id=question, method="elicitation/create", params=FORM)
            case {"ask": count}:
                questions = [f"question {next(_numbers)}" for _ in range(count)]
                for question in questions:
                    send(id=question, method="elicitation/create", params=FORM)
                value = wait_for_answers(questions)
            case {"require": requests} if value is None:
                fields = {"inputRequests": requests, "requestState": "some state"}
                send(id=number, result={"resultType": "input_required", **fields})
                return
            case {"die": code}:
                os._exit(code)
            case "never":
                return
    send_result(number, {"content": [{"type": "text", "text": json.dumps(value)}]})


def answer(number: Any, method: str, params: dict[str, Any]) -> None:
    capabilities = options.get("capabilities", CAPABILITIES)
    info = {"capabilities": capabilities, "serverInfo": {"name": "stepping server (tests)", "version": "1"}}
    match method:
        case _ if method in options.get("deaf", ()):
            pass
        case _ if method in options.get("refused", ()):
            send(id=number, error={"code": -32601, "message": "refused"})
        case _ if method in options.get("failing", {}):
            send(id=number, error={"code": options["failing"][method], "message": "failed"})
        case _ if method in options.get("fatal", ()) and method not in _earlier_methods:
            os._exit(3)
        case "resources/subscribe" if params["uri"].startswith("refused:"):
            send(id=number, error={"code": -32002, "message": "no such resource"})
        case "subscriptions/listen":
            uris = params["notifications"].get("resourceSubscriptions", [])
            accepted = [uri for uri in uris if not uri.startswith("refused:")]
            honored = {"resourceSubscriptions": accepted} if accepted else {}
            meta = {"io.modelcontextprotocol/subscriptionId": number}
            send(method="notifications/subscriptions/acknowledged", params={"_meta": meta, "notifications": honored})
        case "initialize" if era == "legacy":
            send_result(number, {"protocolVersion": "2025-11-25", **info})
        case "server/discover" if era == "modern":
            send_result(number, {"supportedVersions": ["2026-07-28"], **info})
        case "tools/list":
            tool = {"name": "steps", "inputSchema": {"type": "object"}, **options.get("definition", {})}
            send_result(number, {"tools": [tool]})
        case "tools/call":
            threading.Thread(target=take_steps, args=(number, params), daemon=True).start()
        case "resources/list":
            send_result(number, {"resources": [{"uri": "x://1", "name": "one"}]})
        case "prompts/list":
            send_result(number, {"prompts": [{"name": name} for name in options.get("prompts", ())]})
        case "prompts/get":
            text = f"{options['name']}: {params['name']}"
            send_result(number, {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
        case "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" | "ping":
            send_result(number, {})
        case _:
            send(id=number, error={"code": -32601, "message": f"no {method}"})


def main() -> None:
    if options.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.setrecursionlimit(10_000)
    if Path(record).exists():
        _earlier_methods.update(json.loads(line).get("method", "") for line in Path(record).read_bytes().splitlines())
    with Path(record).open("ab", buffering=0) as file:
        for line in sys.stdin.buffer:
            file.write(line)
            message = json.loads(line)
            if "method" not in message:
                with _has_answer:
                    _answers[message["id"]] = message.get("result", message.get("error"))
                    _has_answer.notify_all()
            elif message["method"] == "notifications/initialized" and options.get("asks_at_start"):
                send(id="question", method="elicitation/create", params=FORM)
            elif "id" in message:
                answer(message["id"], message["method"], message.get("params") or {})
    if options.get("stubborn"):
        time.sleep(60)
    os._exit(0)


if __name__ == "__main__":
    main()
