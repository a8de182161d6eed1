"""Responses that are not what the protocol defines are stored when they are too large, and forwarded otherwise."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.modes import Mode
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.relay import Relay
from forebay.proxy.response_handler import ResponseHandler
from forebay.proxy.session import PendingRequest, Session
from forebay.store import Store
from forebay.wire.framing import Message
from forebay.wire.lazy_json import dump
from forebay.wire.messages import parse
from forebay.wire.protocol import SERVER_INFO_KEY
from stores import store_at

LIMIT = 1000
TEXT = "a line of text\n" * 400
TOOL_OUTPUT = {"content": [{"type": "text", "text": TEXT}]}


class Peer:
    """Keeps the messages that the relay sends."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.lines: list[bytes] = []

    def send(self, raw: Message) -> None:
        assert isinstance(raw, bytes | bytearray)
        self.lines.append(bytes(raw))
        self.received.append(json.loads(raw))


SERVER_INFO = {"name": "forebay", "version": "0.1.0"}


@pytest.fixture
def policy(store: Store) -> Iterator[OutputPolicy]:
    with closing(OutputPolicy(store)) as policy:
        yield policy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


def answer(
    store: Store, response: dict[str, Any], method: str = "tools/call", **options: Any
) -> tuple[dict[str, Any], bytes]:
    """Let a server answer a request, and return the client's response and the bytes that it takes."""
    client = Peer()
    policy = OutputPolicy(store, output_inline_limit_bytes=LIMIT, **{"output_mode": "auto", **options})
    relay = Relay(policy, client, Peer())
    params = {"name": "tool"} if method == "tools/call" else {"taskId": "1"}
    relay.receive_from_client(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode())
    relay.receive_from_server(json.dumps({"jsonrpc": "2.0", "id": 7, **response}).encode())
    assert relay.wait_idle(20)
    (received,) = client.received
    assert received["id"] == 7
    return received, client.lines[0]


def read_json(store: Store, handle: str) -> Any:
    with store.open(handle) as file:
        return json.loads(file.read())


@pytest.mark.parametrize("mode", ["auto", "handle"])
@pytest.mark.parametrize(
    "result",
    [
        TEXT,
        [TEXT],
        {"content": TEXT},
        {"content": {"a": TEXT}},
        {"text": TEXT},
        {"structuredContent": [TEXT]},
        [0] * LIMIT,
    ],
    ids=["text", "list", "text as content", "object as content", "unknown key", "no content", "numbers"],
)
def test_a_large_malformed_result_is_stored_whole(store: Store, mode: str, result: Any) -> None:
    received, message = answer(store, {"result": result}, output_mode=mode)
    assert len(message) <= 4096
    stored = read_json(store, json.loads(received["result"]["content"][0]["text"])["output_handle"])
    assert stored == (
        result["structuredContent"] if isinstance(result, dict) and "structuredContent" in result else result
    )


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result"])
@pytest.mark.parametrize("result", [TEXT, [TEXT], TOOL_OUTPUT, {"structuredContent": {"a": TEXT}, "result": {}}])
def test_tool_output_in_place_of_a_task_is_stored(store: Store, method: str, result: Any) -> None:
    received, message = answer(store, {"result": result}, method)
    assert len(message) <= 4096
    with store.open(json.loads(received["result"]["content"][0]["text"])["output_handle"]) as file:
        stored = file.read().decode()
    assert stored == TEXT if result is TOOL_OUTPUT else json.loads(stored) == result


def test_a_task_stays_a_task_when_its_result_is_stored(store: Store) -> None:
    task = {"taskId": "1", "status": "completed"}
    received, _ = answer(store, {"result": {**task, "result": TOOL_OUTPUT}}, "tasks/get")
    stored = received["result"].pop("result")
    assert received["result"] == task
    assert "output_handle" in stored["content"][0]["text"]


SMALL = ["short", [1, 2], {}, {"content": "short"}]


@pytest.mark.parametrize("result", [*SMALL, None, {"task": {"taskId": "1"}}])
def test_a_small_malformed_result_is_forwarded(store: Store, result: Any) -> None:
    received, _ = answer(store, {"result": result})
    assert received["result"] == result


@pytest.mark.parametrize("result", SMALL)
def test_handle_mode_stores_a_malformed_result_of_any_size(store: Store, result: Any) -> None:
    received, _ = answer(store, {"result": result}, output_mode="handle")
    assert read_json(store, json.loads(received["result"]["content"][0]["text"])["output_handle"]) == result


@pytest.mark.parametrize("result", [*SMALL, TEXT, {"content": TEXT}])
def test_a_malformed_result_under_contract_is_wrapped(store: Store, result: Any) -> None:
    received, message = answer(store, {"result": result}, contract=True)
    assert len(message) <= 10_240
    assert json.loads(received["result"]["content"][0]["text"])["success"] is True


@pytest.mark.parametrize("mode", ["auto", "handle"])
@pytest.mark.parametrize(
    "error",
    [{"code": -32001, "message": TEXT}, {"code": 7, "message": "m", "data": {"rows": [TEXT] * 3}}, TEXT],
    ids=["message", "data", "no object"],
)
def test_a_large_error_is_stored_and_keeps_its_code(store: Store, mode: str, error: Any) -> None:
    received, message = answer(store, {"error": error}, output_mode=mode)
    assert len(message) <= 4096
    assert received["error"]["code"] == (error["code"] if isinstance(error, dict) else -32603)
    assert received["error"]["data"]["fetch_with"] == "output_fetch"
    assert read_json(store, received["error"]["data"]["output_handle"]) == error


def test_a_small_error_and_one_in_inline_mode_are_forwarded(store: Store) -> None:
    for error, mode in (({"code": 1, "message": "m"}, "handle"), ({"code": 1, "message": TEXT}, "inline")):
        received, _ = answer(store, {"error": error}, output_mode=mode)
        assert received["error"] == error


def test_an_error_that_cannot_be_stored_is_forwarded_unless_it_may_hold_secrets(tmp_path: Path) -> None:
    error = {"code": 1, "message": TEXT}
    with store_at(tmp_path / "full", quota_bytes=0) as full:
        assert answer(full, {"error": error})[0]["error"] == error
    with store_at(tmp_path / "redacting", quota_bytes=0, redact="line") as redacting:
        received, message = answer(redacting, {"error": error})
        assert received["error"]["code"] == 1
        assert b"a line" not in message


@pytest.mark.parametrize(
    "response",
    [
        {"results": TOOL_OUTPUT},
        {"result": None, "stray": TEXT},
        {"result": {"content": []}, "stray": TEXT},
        {"result": {"content": []}, "error": {"code": 1, "message": TEXT}},
        {"error": {"code": 1, "message": "m"}, "stray": TEXT},
        {"jsonrpc": TEXT, "result": {"content": []}},
    ],
    ids=["no result", "null", "beside a result", "result and error", "beside an error", "version"],
)
def test_a_large_response_with_unknown_members_is_stored_whole(store: Store, response: dict[str, Any]) -> None:
    received, message = answer(store, response)
    assert len(message) <= 4096
    assert received["result"]["isError"] is ("error" in response)
    stored = read_json(store, json.loads(received["result"]["content"][0]["text"])["output_handle"])
    assert stored == response


def test_a_limit_of_nothing_stores_the_result_alone(store: Store) -> None:
    client = Peer()
    relay = Relay(OutputPolicy(store, output_mode="auto", output_inline_limit_bytes=0), client, Peer())
    relay.receive_from_client(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool"}}')
    relay.receive_from_server(json.dumps({"jsonrpc": "2.0", "id": 7, "result": TOOL_OUTPUT}).encode())
    assert relay.wait_idle(20)
    with store.open(json.loads(client.received[0]["result"]["content"][0]["text"])["output_handle"]) as file:
        assert file.read().decode() == TEXT


def test_a_small_unknown_member_stays_beside_a_stored_result(store: Store) -> None:
    received, _ = answer(store, {"result": TOOL_OUTPUT, "stray": 1})
    assert received["stray"] == 1
    assert "output_handle" in received["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("body", ["result", "error"])
@pytest.mark.parametrize("size", [0, 1, 100, 250, 300, 900, 3000])
def test_no_response_with_unknown_members_is_too_large(
    policy: OutputPolicy, size: int, body: str, version: str
) -> None:
    """A response of forebay takes at most 4,096 bytes with them, and less than the server's."""
    for length in (0, 400, 900, 2000, 3800, 4000, 9000):
        content = {"content": [{"type": "text", "text": "x" * length}]}
        error = {"code": 1, "message": "x" * length}
        raw = dump({"jsonrpc": "2.0", "id": 7, body: content if body == "result" else error, "stray": "s" * size})
        pending = PendingRequest("tools/call", 7, version, tool="read", mode=Mode("auto", 100))
        replacement = ResponseHandler(policy, Session(), SERVER_INFO)(pending, parse(raw), raw)
        assert isinstance(replacement, bytes | None)
        sent = raw if replacement is None else replacement
        assert len(sent) <= 4096
        assert replacement is None or len(replacement) < len(raw)


@pytest.mark.parametrize("info", [{}, None, {"name": "db", "version": "1.0"}, {"name": "n" * 900}])
@pytest.mark.parametrize("method", ["tools/call", "tasks/get"])
def test_the_server_info_of_forebay_is_counted(policy: OutputPolicy, info: Any, method: str) -> None:
    meta = {"_meta": {SERVER_INFO_KEY: info}}
    for letter in ("x", "é", '"', "one\n"):
        result = {"content": [{"type": "text", "text": letter * 9000}], **meta}
        task = {"resultType": "task", "taskId": "t", "status": "completed", "result": result, **meta}
        raw = dump({"jsonrpc": "2.0", "id": 7, "result": result if method == "tools/call" else task})
        pending = PendingRequest(method, 7, "2026-07-28", tool="read", mode=Mode("auto", 100))
        replacement = ResponseHandler(policy, Session(), SERVER_INFO)(pending, parse(raw), raw)
        assert isinstance(replacement, bytes)
        assert len(replacement) <= 4096
        assert dump(SERVER_INFO) in replacement


def test_an_unknown_member_is_forwarded_in_inline_mode(store: Store) -> None:
    received, _ = answer(store, {"result": {"content": []}, "stray": TEXT}, output_mode="inline")
    assert received["stray"] == TEXT


@pytest.mark.parametrize("fields", [{"task": {"taskId": "1"}}, {"resultType": "x"}, {"resultType": TEXT}, {"task": {}}])
@pytest.mark.parametrize("output", [TOOL_OUTPUT, {"structuredContent": {"a": TEXT}}])
def test_tool_output_beside_fields_of_the_protocol_is_stored(
    store: Store, fields: dict[str, Any], output: dict[str, Any]
) -> None:
    received, message = answer(store, {"result": {**output, **fields}})
    assert len(message) <= 4096
    assert received["result"].get("resultType", "complete") == "complete"
    stored = read_json(store, json.loads(received["result"]["content"][0]["text"])["output_handle"])
    assert stored == {**output, **fields}


@pytest.mark.parametrize(
    "result",
    [
        {"task": {"taskId": "1", "text": TEXT}, "content": []},
        {"resultType": "input_required", "inputRequests": {"a": TEXT}},
        {"resultType": "x", "data": TEXT},
    ],
)
def test_a_large_result_without_tool_output_is_forwarded(store: Store, result: dict[str, Any]) -> None:
    assert answer(store, {"result": result}, output_mode="handle")[0]["result"] == result


RELATED_TASK = "io.modelcontextprotocol/related-task"


def test_a_related_task_shows_no_secret_and_only_a_short_id(tmp_path: Path) -> None:
    with store_at(tmp_path / "store", redact=r"sk-\d+") as store:
        for related in ({"taskId": "1", "more": "sk-1"}, {"taskId": TEXT}, {"taskId": ["sk-1"]}, "sk-1", [TEXT]):
            received, message = answer(store, {"result": {**TOOL_OUTPUT, "_meta": {RELATED_TASK: related}}})
            assert len(message) <= 4096
            assert b"sk-1" not in message
        received, _ = answer(store, {"result": {**TOOL_OUTPUT, "_meta": {RELATED_TASK: {"taskId": "1"}}}})
        assert received["result"]["_meta"] == {RELATED_TASK: {"taskId": "1"}}


@pytest.mark.parametrize("error", [r'{"\ud800" 1,"message":%s}', r'{"code":{"\ud800" 1},"message":%s,"\ud800":1}'])
def test_an_error_that_cannot_be_parsed_is_stored_without_secrets(tmp_path: Path, error: str) -> None:
    with store_at(tmp_path / "store", redact="line") as store:
        client = Peer()
        relay = Relay(OutputPolicy(store, output_mode="auto", output_inline_limit_bytes=LIMIT), client, Peer())
        relay.receive_from_client(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool"}}')
        relay.receive_from_server(b'{"jsonrpc":"2.0","id":7,"error":%s}' % (error % json.dumps(TEXT)).encode())
        assert relay.wait_idle(20)
        (received,) = client.received
        assert received["error"]["code"] == -32603
        assert "line" not in json.dumps(received["error"]["data"]["preview"])


def test_a_mistake_of_ours_shows_nothing_that_was_to_be_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_with_bug(*_args: object, **_options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("forebay.outputs.pipeline.Pipeline.is_inline", fail_with_bug)
    with store_at(tmp_path / "plain") as store:
        assert answer(store, {"result": TOOL_OUTPUT})[0]["result"] == TOOL_OUTPUT
    with store_at(tmp_path / "redacting", redact="line") as store:
        received, message = answer(store, {"result": TOOL_OUTPUT})
        assert json.loads(received["result"]["content"][0]["text"])["error"]["code"] == "redaction_failed"
        assert b"a line" not in message


def test_the_log_shows_nothing_of_what_cannot_be_redacted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for options in ({}, {"redact": "SECRET"}):
        caplog.clear()
        with store_at(tmp_path / str(len(options)), **options) as store:
            relay = Relay(OutputPolicy(store), Peer(), Peer())
            relay.receive_from_server(b'{"jsonrpc":"2.0","id":7,"result":{"content":NaN,"text":"SECRET"}}')
        assert "not a JSON-RPC message" in caplog.text
        assert ("SECRET" in caplog.text) == (not options)


def test_a_handshake_with_many_members_is_extended_and_repeated(store: Store) -> None:
    client, server, restarted = Peer(), Peer(), Peer()
    relay = Relay(OutputPolicy(store), client, server)
    many = {f"member {number}": "x" * 100 for number in range(200)}
    relay.receive_from_client(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", **many}).encode())
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, **many}
    relay.receive_from_server(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode())
    (received,) = client.received
    assert "output_handle" in received["result"].pop("instructions")
    assert received["result"] == {**result, "capabilities": {"tools": {}, "resources": {}}}

    def send(raw: Message) -> None:
        restarted.send(raw)
        response = {"jsonrpc": "2.0", "id": restarted.received[-1]["id"], "result": {}}
        relay.receive_from_server(json.dumps(response).encode())

    relay.replay_session(send)
    assert [message["method"] for message in restarted.received] == ["initialize"]
