"""Clients and servers that mean harm, or are careless: nobody else is affected, and no answer is lost."""

import http.client
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from listening_harness import HttpServer
from serve_harness import upstream_command, write_config
from serve_http_harness import call_tool, connect_as, listen, server_pids, serving_config, serving_http
from waiting import wait_until
from wires import ERAS, LEGACY, MODERN, HttpWire, connect_http, extract_message, make_request

pytestmark = pytest.mark.slow


class Gateway:
    def __init__(self, server: HttpServer, record: Path) -> None:
        self.server, self.port, self._record = server, server.port, record

    @property
    def record(self) -> list[Any]:
        """The messages that the servers have read. Raises `ValueError` if a line is no message."""
        return [json.loads(line) for line in self._record.read_bytes().splitlines()]

    def post(self, wire: HttpWire, body: str) -> bytes:
        """Post bytes that need not be as a client's library would write them."""
        message = json.loads(body)
        headers = dict(wire.headers)
        if "mcp-session-id" not in headers:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
            headers |= {"mcp-name": message["params"]["name"]}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("POST", "/mcp", body, headers)
            return connection.getresponse().read()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with one server for all principals."""
    upstream = {**upstream_command("recording_server.py", str(tmp_path / "record")), "share": "all"}
    with serving_http(tmp_path, {"one": upstream}) as server:
        yield Gateway(server, tmp_path / "record")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    upstream = upstream_command("recording_server.py", str(tmp_path / "record"))
    with serving_http(tmp_path, {"one": upstream}, call_timeout_seconds=20, restart_delay_seconds=0.1) as server:
        yield Gateway(server, tmp_path / "record")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_a_message_in_several_lines_is_one_message(line_break: str, era: str, gateway: Gateway) -> None:
    # The inner lines are messages themselves. They are so deep that they are not parsed on their way.
    inner = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"by":"a line"}}}'
    arguments = "[" * 70 + line_break + inner + line_break + "]" * 70
    call = make_request(7, "tools/call", {"name": "echo", "arguments": {"x": "HERE"}}, era)
    body = json.dumps(call, indent=1).replace("\n", line_break).replace('"HERE"', arguments)
    response = json.loads(extract_message(gateway.post(connect_as(gateway.port, era, "ann"), body)))
    assert '"by": "a line"' in response["result"]["content"][0]["text"]
    assert sum(message.get("method") == "tools/call" for message in gateway.record) == 1


def test_an_answer_to_a_question_cannot_hold_a_call_of_a_disabled_tool(tmp_path: Path) -> None:
    upstream = upstream_command("recording_server.py", str(tmp_path / "record"))
    with serving_http(tmp_path, {"one": upstream}, disable_tools="echo") as server:
        gateway = Gateway(server, tmp_path / "record")
        wire = connect_http(gateway.port, LEGACY, "ann" + "x" * 30)
        with listen(gateway.port, wire) as stream, ThreadPoolExecutor(1) as pool:
            # The call's response is plain JSON, so that the question is on the other stream.
            calling = pool.submit(gateway.post, _accept_json(wire), _make_call("asks"))
            question = stream.next()
            inner = '{"jsonrpc":"2.0","id":777,"method":"tools/call","params":{"name":"echo","arguments":{}}}'
            content = "[" * 70 + f"\r{inner}\n" + "]" * 70
            start = f'{{"jsonrpc":"2.0","id":{question["id"]},"result":{{"action":"accept","content":{{"x":'
            gateway.post(wire, f"{start}{content}}}}}}}")
            assert b"asked" in calling.result(60)
        calls = [message for message in gateway.record if message.get("method") == "tools/call"]
        assert [call["params"]["name"] for call in calls] == ["asks"]


def _accept_json(wire: HttpWire) -> HttpWire:
    wire.headers = {**wire.headers, "accept": "application/json"}
    return wire


def _make_call(tool: str, **arguments: Any) -> str:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


@pytest.mark.parametrize("size", [10_000, 1_000_000, 20_000_000])
def test_a_response_is_not_lost_if_the_server_then_exits(size: int, gateway: Gateway) -> None:
    shown = call_tool(connect_as(gateway.port, LEGACY, "ann"), "answers_and_exits", size=size)
    assert (len(shown) if isinstance(shown, str) else shown["size_bytes"] - 2) == size


def test_nested_batches_of_a_server_cost_one_message(gateway: Gateway) -> None:
    wire = connect_as(gateway.port, LEGACY, "ann")
    lines = ["[" * depth + "]" * depth for depth in (2, 900, 30_000, 60_000)]
    assert call_tool(wire, "writes", lines=[*lines, "[1]", '[{"jsonrpc": "2.0"}, []]']) == "written"
    assert call_tool(wire, "echo", x=1) == {"x": 1}
    assert len(server_pids(gateway.server.process.pid)) == 1


def test_a_dead_server_whose_child_still_writes_is_noticed(gateway: Gateway) -> None:
    wire = connect_as(gateway.port, LEGACY, "ann")
    # The child writes for longer than a call may take.
    assert call_tool(wire, "leaves_a_child")["error"]["code"] == "upstream_failed"
    assert call_tool(wire, "echo", x=1) == {"x": 1}


def test_keys_that_lenient_servers_take_for_an_id_cannot_name_another_request(shared: Gateway) -> None:
    ann, bob = (connect_as(shared.port, LEGACY, name) for name in ("ann", "bob"))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(call_tool, ann, "slow", seconds=1)
        call_tool(bob, "echo")
        assert slow.result() == "slow"
    ids = [message["id"] for message in shared.record if message.get("method") == "tools/call"]
    assert min(ids) > 10_000
    assert abs(ids[0] - ids[1]) > 10_000


def test_updates_go_to_those_whose_subscription_was_accepted(shared: Gateway) -> None:
    ann, bob = (connect_as(shared.port, LEGACY, name) for name in ("ann", "bob"))
    with listen(shared.port, bob) as stream:
        for uri in ("", "k", "known", "known:"):
            bob.request("resources/subscribe", {"uri": uri})
        assert b"result" in ann.request("resources/subscribe", {"uri": "known:secret"})
        assert b"result" in bob.request("resources/subscribe", {"uri": "known:own"})
        for uri in ("known:secret", "known:owner", "known:own/part"):
            call_tool(ann, "update", uri=uri)
        assert stream.next()["params"]["uri"] == "known:own/part"


def test_a_session_has_a_limited_number_of_subscriptions(gateway: Gateway) -> None:
    wire = connect_as(gateway.port, LEGACY, "ann")
    for number in range(1000):
        assert b"result" in wire.request("resources/subscribe", {"uri": f"known:{number}"})
    assert b"at most 1,000 subscriptions" in wire.request("resources/subscribe", {"uri": "known:more"})
    # One that is refused does not count.
    assert b"result" in wire.request("resources/unsubscribe", {"uri": "known:1"})
    assert b"no such resource" in wire.request("resources/subscribe", {"uri": "unknown"})
    assert b"result" in wire.request("resources/subscribe", {"uri": "known:more"})


def test_capabilities_and_uris_may_be_of_any_size(gateway: Gateway) -> None:
    wire = connect_as(gateway.port, LEGACY, "ann")
    capabilities = {"experimental": {"text": "a" * 5000, "number": 10**30}}
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "x", "version": "1"},
    }
    wire.headers.pop("mcp-session-id")
    assert b'"result"' in wire.request("initialize", params)
    uri = "known:" + "u" * 5000
    for method in ("resources/subscribe", "resources/read", "resources/unsubscribe"):
        assert b'"result"' in wire.request(method, {"uri": uri})


def test_a_progress_token_in_a_large_meta_is_replaced(gateway: Gateway) -> None:
    wire = connect_as(gateway.port, LEGACY, "ann")
    meta = {f"member {number}": number for number in range(40_000)}
    wire.request("tools/call", {"name": "echo", "arguments": {}, "_meta": {**meta, "progressToken": "mine"}})
    call = gateway.record[-1]
    assert call["params"]["_meta"]["progressToken"] == call["id"]


@pytest.mark.parametrize("body", ["sys.exit(3)", "raise KeyboardInterrupt", "raise asyncio.CancelledError"])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_cannot_end_the_gateway(kind: str, body: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        f"import asyncio, sys\n{kind} fail() -> str:\n    {body}\ndef fine() -> int:\n    return 1\n"
    )
    (tmp_path / "tokens").unlink(missing_ok=True)
    with serving_config(write_config(tmp_path, {"bad": {"python": "bad"}})) as server:
        wire = connect_http(server.port, LEGACY)
        result = json.loads(extract_message(wire.request("tools/call", {"name": "fail", "arguments": {}})))["result"]
        assert result["isError"]
        assert call_tool(wire, "fine") == 1


def test_an_integer_with_too_many_digits_is_an_error_of_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    with serving_config(write_config(tmp_path, {"some": {"python": "some"}})) as server:
        wire = connect_http(server.port, LEGACY)
        gateway = Gateway(server, tmp_path)
        body = _make_call("double", x=1).replace('"x": 1', '"x": ' + "1" * 5000)
        error = json.loads(extract_message(_post_text(gateway, wire, body)))["error"]
        assert (error["code"], "too many digits" in error["message"]) == (-32602, True)
        assert call_tool(wire, "double", x=2**70) == 2**71


def _post_text(gateway: Gateway, wire: HttpWire, body: str) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)) as connection:
        connection.request("POST", "/mcp", body, wire.headers)
        return connection.getresponse().read()


def test_a_restarted_server_that_answers_badly_is_restarted_again(tmp_path: Path) -> None:
    """Its calls wait for the handshake, which must not fail silently."""
    count = tmp_path / "count"
    count.write_text("0")
    script = (
        "import sys, json, os, pathlib\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "start = int(count.read_text()) + 1; count.write_text(str(start))\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    result = {'tools': [{'name': 'end', 'inputSchema': {'type': 'object'}}], 'content': []}\n"
        "    if message['method'] == 'initialize':\n"
        "        info = {'name': 'x', 'version': '1'}\n"
        "        result = {'protocolVersion': '2025-11-25', 'capabilities': {}, 'serverInfo': info}\n"
        "    if message['method'] == 'tools/call' and start < 3: os._exit(1)\n"
        "    version = {} if start == 2 else {'jsonrpc': '2.0'}\n"
        "    if 'id' in message: print(json.dumps({**version, 'id': message['id'], 'result': result}), flush=True)\n"
    )
    upstream = {"command": sys.executable, "args": ["-c", script]}
    options = {"restart_delay_seconds": 0.1, "call_timeout_seconds": 30}
    with serving_http(tmp_path, {"one": upstream}, **options) as server:
        wire = connect_as(server.port, LEGACY, "ann")
        assert b"upstream_failed" in wire.request("tools/call", {"name": "end"})
        wait_until(lambda: b'"content":[]' in wire.request("tools/call", {"name": "end"}).replace(b" ", b""), 30)
        server.wait_for("session cannot be restored")
