"""Requests of a server to its client, and their responses after the server was restarted."""

import json
import sys
from pathlib import Path

import pytest
from gateway_harness import connect, wrap

# It numbers its requests from 0, as servers do, cancels one on demand, and returns the responses it gets.
SERVER = [
    sys.executable,
    "-c",
    """
import itertools, json, os, sys
numbers, asked = itertools.count(), {}

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    number, params = message.get("id"), message.get("params", {})
    match message.get("method"), params.get("name"):
        case "initialize", _:
            say(id=number, result={"protocolVersion": "2025-11-25", "capabilities": {}})
        case "tools/call", "dies":
            os._exit(1)
        case "tools/call", "withdraws":
            say(method="notifications/cancelled", params={"requestId": 0})
            say(id=number, result={"content": []})
        case "tools/call", _:
            question = next(numbers)
            asked[question] = number
            say(id=question, method="elicitation/create", params={"message": params["name"]})
        case None, _:
            said = {"type": "text", "text": message["result"]["action"]}
            say(id=asked.pop(number), result={"content": [said]})
""",
]


@pytest.mark.slow
def test_a_restarted_server_gets_no_response_to_an_earlier_request(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=SERVER)) as talk:
        talk.send_request("tools/call", {"name": "may it delete A?"})
        first = json.loads(talk.read_line())
        assert first["id"] == 0
        talk.send_request("tools/call", {"name": "dies"})
        cancelled = json.loads(talk.read_line())
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == 0
        for _ in range(2):
            assert json.loads(talk.read_line())["result"]["isError"]
        call = talk.send_request("tools/call", {"name": "may it delete B?"})
        second = json.loads(talk.read_line())
        assert second["params"] == {"message": "may it delete B?"}
        # The user may answer after the server has ended.
        for question, action in ((first, "accept"), (second, "decline")):
            talk.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}})
        assert talk.read_response(call)["result"]["content"][0]["text"] == "decline"
        # After the response to the abandoned request, its id can be used again, and so can the next one.
        talk.send_request("tools/call", {"name": "more?"})
        assert json.loads(talk.read_line())["id"] == 1


@pytest.mark.slow
def test_a_cancellation_names_the_client_s_id(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=SERVER)) as talk:
        talk.send_request("tools/call", {"name": "a"})
        assert talk.call("dies")["isError"]
        talk.send_request("tools/call", {"name": "b"})
        question = json.loads(talk.read_line())
        assert question["params"] == {"message": "b"}
        talk.send_request("tools/call", {"name": "withdraws"})
        assert json.loads(talk.read_line())["params"]["requestId"] == question["id"] != 0
