"""Messages that pass the gateway unchanged, and those that it changes."""

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import UpstreamFailed
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.relay import Relay
from forebay.wire.framing import Message, Spool
from gateway_harness import ADVERSE, TIMEOUT_SECONDS, StdioClient, connect, parse_text, wrap
from waiting import wait_until
from wires import INITIALIZE_PARAMS

pytestmark = pytest.mark.slow

# Messages that forebay forwards unchanged, however unusual they are.
PASSING = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{ "id" : "a\\u0062c" , "method":"future/method", "params": {"n": 1.50, "big": '
    b'123456789012345678901234567890}, "jsonrpc":"2.0" }',
    b'{"jsonrpc":"2.0","id":2,"method":"future/method","params":{"lone":"\\ud800","e":"\xc3\xa9"}}',
    b'{"jsonrpc":"2.0","id":3,"method":"no/such/method","params":{}}',
    b'{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"file:///x","size":100000}}',
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"text","arguments":{"of":"\\u00e9\\"\\\\","size":300},"_meta":{"x":1.0}}}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"no such tool"}}',
    b'{"jsonrpc":"2.0","id":"5","method":"tools/call","params":{"name":"text","arguments":{"more":{"_meta":{"k":1e2},"structuredContent":{"a":1.0},"later":[1.0]}}}}',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
]


@pytest.mark.parametrize("message", PASSING)
def test_forwarded_messages_are_answered_as_without_forebay(message: bytes, tmp_path: Path) -> None:
    answers = []
    for command in (ADVERSE, wrap(tmp_path)):
        with connect(*command) as talk:
            talk.send(message)
            answers.append(talk.read_line())
    assert answers[0] == answers[1]


def test_the_server_receives_the_bytes_of_the_client(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        odd = {"n": 1.50, "s": "é", "deep": [[[{}]]]}
        assert talk.request("future/method", odd)["result"]["as_told"] == odd


def test_server_requests_and_their_responses_are_forwarded(tmp_path: Path) -> None:
    for method in ("sampling/createMessage", "elicitation/create", "roots/list", "future/ask"):
        with connect(*wrap(tmp_path)) as talk:
            number = talk.send_request("tools/call", {"name": "asks", "arguments": {"method": method}})
            asked = talk.read_line()
            assert asked == (
                b'{"jsonrpc": "2.0", "id": "server-%d", "method": "%s", "params": {"of": %d, "x": 1000.0}}\n'
                % (number, method.encode(), number)
            )
            talk.send({"jsonrpc": "2.0", "id": json.loads(asked)["id"], "result": {"well": [1.5]}})
            assert parse_text(talk.read_response(number)["result"]) == {"well": [1.5]}


def test_progress_comes_in_order_before_the_response(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        number = talk.send_request("tools/call", {"name": "reports", "arguments": {"steps": 20, "token": "t"}})
        steps = [json.loads(talk.read_line()) for _ in range(20)]
        assert [step["params"]["progress"] for step in steps] == list(range(20))
        assert json.loads(talk.read_line())["id"] == number


def test_the_pages_of_a_handle_return_every_byte(tmp_path: Path) -> None:
    of = 'é"\\\n😀x'
    with connect(*wrap(tmp_path)) as talk:
        number = talk.send_request("tools/call", {"name": "text", "arguments": {"size": 1_000_000, "of": of}})
        line = talk.read_line()
        assert len(line) <= 4096
        descriptor = parse_text(json.loads(line)["result"])
        assert json.loads(line)["id"] == number
        assert read_handle(talk, descriptor["output_handle"]) == of * (1_000_000 // len(of))


def read_handle(talk: StdioClient, handle: str) -> str:
    text, offset = "", 0
    while offset is not None:
        page = parse_text(talk.call("output_fetch", output_handle=handle, offset=offset, format="text"))
        text += page["content"]
        offset = page["next_offset"]
    return text


def test_many_small_blocks_are_stored_as_one_payload(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        descriptor = parse_text(talk.call("blocks", count=50_000))
        assert descriptor["items_path"] == "/content"
        assert descriptor["item_count"] == 50_000


def test_our_tools_are_appended_to_the_unchanged_list(tmp_path: Path) -> None:
    lists: list[bytes] = []
    for command in (ADVERSE, wrap(tmp_path, "--output-mode", "inline")):
        with connect(*command) as talk:
            talk.send_request("tools/list")
            lists.append(talk.read_line())
    end = lists[0].index(b'], "x-more"')
    assert lists[1].startswith(lists[0][:end])
    assert lists[1].endswith(lists[0][end:])
    ours = json.loads(b"[" + lists[1][end:].removeprefix(b",").removesuffix(lists[0][end:]) + b"]")
    assert [tool["name"] for tool in ours] == ["output_fetch", "output_search", "output_query"]


def test_forebay_s_own_tools_need_no_tool_list(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        result = talk.call("output_fetch", output_handle="oh_AAAAAAAAAAAA")
        assert parse_text(result)["error"]["code"] == "output_handle_not_found"


@pytest.mark.parametrize("batch", [True, False])
def test_batches_are_answered(batch: bool, tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 7, "method": "ping"},
        {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "text", "arguments": {"size": 100_000}}},
    ]
    with connect(*wrap(tmp_path)) as talk:
        for sent in [requests] if batch else requests:
            talk.send(json.dumps(sent).encode())
        answers = {message["id"]: message for message in (json.loads(talk.read_line()) for _ in range(2))}
        assert answers[7]["result"] == {}
        assert parse_text(answers[8]["result"])["size_bytes"] == 100_000


def test_large_resources_are_forwarded_unchanged(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        answer = talk.request("resources/read", {"uri": "file:///x", "size": 20_000_000})
        assert answer["result"]["long"] == "r" * 20_000_000


def test_stored_payloads_are_readable_as_resources(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--resource-links")) as talk:
        link = talk.call("text", size=100_000)["content"][1]
        assert link["type"] == "resource_link"
        read = talk.request("resources/read", {"uri": link["uri"] + "?offset=99990"})
        assert json.loads(read["result"]["contents"][0]["text"])["content"] == "x" * 10
        listed = talk.request("resources/templates/list")["result"]["resourceTemplates"]
        assert [template["uriTemplate"] for template in listed] == ["forebay://output/{output_handle}{?offset,limit}"]
        assert talk.request("resources/list")["result"]["resources"] == []


COUNTING = """
import itertools, json, sys
numbers = itertools.count()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"content": [], "tools": [{"name": "a", "inputSchema": {"type": "object"}}], "capabilities": {}}
        if message["method"] == "tools/call":
            result["structuredContent"] = {"number": next(numbers)}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("option", ["--file-refs", "--per-call", "--disable-tools=core"])
def test_calls_reach_the_server_in_order(option: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_text("x" * 10_000_000)
    options = [option, "--capability", "b=core", "--capability", "a=other"]
    options += ["--file-root", str(tmp_path)] if option == "--file-refs" else []
    with connect(*wrap(tmp_path / "store", *options, server=[sys.executable, "-c", COUNTING])) as talk:
        # The first call takes longer to prepare than the others.
        text = {"$file": "large"} if option == "--file-refs" else "x" * 1_000_000
        calls = [talk.send_request("tools/call", {"name": "a", "arguments": {"text": text}})]
        calls += [talk.send_request("tools/call", {"name": "a", "arguments": {}}) for _ in range(20)]
        answers = [json.loads(talk.read_line()) for _ in calls]
        numbers = {answer["id"]: answer["result"]["structuredContent"]["number"] for answer in answers}
        assert [numbers[call] for call in calls] == list(range(21))


@pytest.mark.posix
def test_non_blocking_pipes_work(tmp_path: Path) -> None:
    # As with clients that run on Node.js, or share their pipes with such a program.
    inward, outward = os.pipe(), os.pipe()
    os.set_blocking(inward[0], False)
    os.set_blocking(outward[1], False)
    process = subprocess.Popen(wrap(tmp_path, "--output-mode", "inline"), stdin=inward[0], stdout=outward[1])
    os.close(inward[0])
    with os.fdopen(outward[0], "rb") as answers, os.fdopen(inward[1], "wb", buffering=0) as requests:
        params = {"name": "text", "arguments": {"size": 3_000_000}}
        for number, (method, told) in enumerate(
            [("initialize", INITIALIZE_PARAMS), ("tools/call", params), ("tools/call", params)]
        ):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": told}
            requests.write(json.dumps(request).encode() + b"\n")
        # There is more output than the pipe holds.
        wait_until(lambda: not select.select([], [outward[1]], [], 0)[1])
        os.close(outward[1])
        lines = [answers.readline() for _ in range(3)]
        assert sorted(json.loads(line)["id"] for line in lines) == [0, 1, 2]
        assert sorted(map(len, lines))[1] > 3_000_000
        requests.close()
        assert process.wait(TIMEOUT_SECONDS) == 0


def test_requests_that_arrive_at_the_end_of_a_server_go_to_the_next_one(tmp_path: Path) -> None:
    def call(number: int) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a"}}' % number

    class BusyClient:
        """Client that sends another request as soon as its own is cancelled."""

        def __init__(self) -> None:
            self.answered: list[int] = []

        def send(self, line: Message) -> None:
            assert not isinstance(line, Spool)
            message = json.loads(line)
            if message.get("method") == "notifications/cancelled":
                relay.receive_from_client(call(2))
            elif "method" not in message:
                self.answered.append(message["id"])

    class EndedServer:
        def send(self, line: Message) -> None:
            pass

    client = BusyClient()
    with contextlib.closing(OutputPolicy(tmp_path.as_uri(), sweep_interval=0)) as policy:
        relay = Relay(policy, client, EndedServer())
        relay.receive_from_client(call(1))
        relay.receive_from_server(b'{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}')
        relay.on_upstream_end(UpstreamFailed("it has ended"))
        assert client.answered == [1]
        relay.receive_from_server(b'{"jsonrpc":"2.0","id":2,"result":{"content":[]}}')
        assert client.answered == [1, 2]
