"""The end of a session: messages sent before it are delivered."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faulty_server import faulty_server
from gateway_harness import TIMEOUT_SECONDS, connect, gateway_to, wrap
from wires import INITIALIZE_PARAMS

pytestmark = pytest.mark.slow

# The client closes its output before the server has started.
PATIENT = ("--shutdown-grace-seconds", "60")

# With `held`, it answers tools/list only after a cancellation; it answers calls after half a second.
SERVER = [
    sys.executable,
    "-c",
    """
import json, os, sys, threading, time
lock, calls, held = threading.Lock(), [], []

def say(**message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def answer(number):
    time.sleep(0.5)
    say(id=number, result={"content": [], "structuredContent": {"calls": len(calls)}})

for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message["method"]
    if method == "tools/list" and "held" in sys.argv:
        held.append(number)
    elif method == "notifications/cancelled":
        for one in held:
            say(id=one, result={"tools": []})
        sys.argv.remove("held")
    elif method == "tools/call":
        calls.append(number)
        threading.Thread(target=answer, args=(number,), daemon=True).start()
    elif number is not None:
        say(id=number, result={"tools": [], "protocolVersion": "2025-11-25", "capabilities": {}})
if "lively" in sys.argv:
    for number in range(5000):
        say(method="notifications/message", params={"level": "info", "data": number})
os._exit(0)
""",
]


def session_input(*requests: tuple[str, dict[str, Any]]) -> bytes:
    """Return the input of a client that sends these requests and then closes its output."""
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE_PARAMS},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in enumerate(requests, 2)
        ),
    ]
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


@pytest.mark.parametrize("options", [(), ("--file-refs",), ("--disable-tools", "a", "--capability", "b=a")], ids=len)
def test_a_call_is_answered_after_the_client_closed_its_output(options: tuple[str, ...], tmp_path: Path) -> None:
    data = session_input(("tools/call", {"name": "b", "arguments": {}}))
    ended = subprocess.run(
        wrap(tmp_path, *PATIENT, *options, server=SERVER), input=data, capture_output=True, timeout=TIMEOUT_SECONDS
    )
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [1, 2]


@pytest.mark.parametrize("options", [("--file-refs",), ("--tools-only", "core")], ids=len)
def test_a_call_cancelled_during_preparation_is_not_forwarded(options: tuple[str, ...], tmp_path: Path) -> None:
    command = wrap(tmp_path, *options, "--capability", "a=core", server=[*SERVER, "held"])
    with connect(*command) as talk:
        number = talk.send_request("tools/call", {"name": "a", "arguments": {}})
        talk.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        # Twice, so that a cancelled call that was sent late would be counted.
        talk.call("a")
        assert talk.call("a")["structuredContent"] == {"calls": 2}


def test_the_last_messages_of_a_server_reach_the_client(tmp_path: Path) -> None:
    command = wrap(tmp_path, *PATIENT, server=[*SERVER, "lively"])
    ended = subprocess.run(command, input=session_input(), capture_output=True, timeout=TIMEOUT_SECONDS)
    _, *last = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [message["params"]["data"] for message in last] == list(range(5000))


def test_the_last_messages_of_a_client_reach_an_http_server(tmp_path: Path) -> None:
    with faulty_server() as server:
        with gateway_to(server.url, tmp_path) as gateway:
            for _ in range(5):
                gateway.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
            gateway.send({"jsonrpc": "2.0", "id": "asked", "result": {}})
        assert len(server.headers_of("notifications/roots/list_changed")) == 5
        assert [response["id"] for response in server.responses] == ["asked"]
        # The stream outside of requests has a connection of its own, which the server may accept later.
        assert [verb for verb, _, _ in server.requests if verb != "GET"][-1] == "DELETE"
