"""Responses that are not what the protocol defines are stored when they are too large, and forwarded otherwise."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.relay import Relay
from forebay.store import Store
from forebay.wire.framing import Message
from stores import store_at

LIMIT = 1000
TEXT = "a line of text\n" * 200


class Peer:
    """Keeps the messages that the relay sends."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def send(self, raw: Message) -> None:
        assert isinstance(raw, bytes | bytearray)
        self.received.append(bytes(raw))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


def answer(store: Store, response: dict[str, Any], **options: Any) -> tuple[dict[str, Any], bytes]:
    """Let a server answer a call, and return the client's response and the bytes that it takes."""
    client = Peer()
    policy = OutputPolicy(store, output_inline_limit_bytes=LIMIT, **{"output_mode": "auto", **options})
    relay = Relay(policy, client, Peer())
    relay.receive_from_client(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool"}}')
    relay.receive_from_server(json.dumps({"jsonrpc": "2.0", "id": 7, **response}).encode())
    assert relay.wait_idle(20)
    (message,) = client.received
    received = json.loads(message)
    assert received["id"] == 7
    return received, message


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
