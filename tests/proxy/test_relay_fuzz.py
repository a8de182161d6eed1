"""The relay forwards what a reference relay forwards, whatever both sides send."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.relay import Relay
from forebay.store import Store
from forebay.wire.framing import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import store_at

SECONDS = 20


class Peer:
    """Keeps the messages that the relay sends."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def send(self, raw: Message) -> None:
        assert isinstance(raw, bytes | bytearray)
        self.received.append(bytes(raw))


class ReferenceRelay:
    """Parses every message with `json`, and forwards it unless it is not one, or no one waits for it."""

    def __init__(self) -> None:
        self.to_server: list[bytes] = []
        self.to_client: list[bytes] = []
        self._cancelled: set[str] = set()
        self._pending: list[str] = []

    def receive_from_client(self, raw: bytes) -> None:
        message = parse(raw)
        self.to_server.append(raw)
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return
        if "id" in message:
            self._pending.append(key(message["id"]))
            self._cancelled.discard(key(message["id"]))
        elif message["method"] == "notifications/cancelled" and isinstance(message.get("params"), dict):
            cancelled = key(message["params"].get("requestId"))
            if cancelled in self._pending:
                self._pending.remove(cancelled)
                self._cancelled.add(cancelled)

    def receive_from_server(self, raw: bytes) -> None:
        message = parse(raw)
        if not isinstance(message, dict):
            return
        if "method" not in message:
            answered = key(message.get("id"))
            if answered in self._cancelled:
                return
            if answered in self._pending:
                self._pending.remove(answered)
        self.to_client.append(raw)


def parse(raw: bytes) -> Any:
    def reject(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(raw, parse_constant=reject)
    except ValueError:
        return None


def key(request_id: Any) -> str:
    return json.dumps(request_id)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


ids = st.sampled_from([0, 1, 2, "1", "a", "é"])
values = st.recursive(
    st.sampled_from([None, True, 0, -1.5, "", "é\n", "x" * 2000, "\\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "name", "é"]), inner, max_size=3),
    max_leaves=6,
)
requests = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": ids, "method": st.sampled_from(["ping", "prompts/get", "x/y", "tools/call"])},
    optional={"params": st.dictionaries(st.sampled_from(["name", "a"]), values, max_size=2)},
)
notifications = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(["notifications/x", "notifications/message"])},
    optional={"params": values},
)
cancellations = st.fixed_dictionaries(
    {
        "jsonrpc": st.just("2.0"),
        "method": st.just("notifications/cancelled"),
        "params": st.fixed_dictionaries({"requestId": ids}),
    }
)
responses = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": ids}, optional={"result": values, "error": values, "extra": values}
)
broken = st.sampled_from([b"{", b"nonsense", b'"text"', b"7", b"{}x", b'{"id":NaN}', b"\xff", b"[1]"])


def dump(message: Any) -> st.SearchStrategy[bytes]:
    layouts: list[dict[str, Any]] = [
        {},
        {"indent": None, "separators": (",", ":")},
        {"ensure_ascii": False},
        {"separators": (" , ", " : ")},
    ]
    return st.sampled_from(layouts).map(lambda layout: json.dumps(message, **layout).encode("utf-8", "surrogatepass"))


client_lines = st.one_of(requests, notifications, cancellations).flatmap(dump)
server_lines = st.one_of(responses, notifications).flatmap(dump) | broken
lines = st.lists(
    st.tuples(st.just("client"), client_lines) | st.tuples(st.just("server"), server_lines), min_size=1, max_size=12
)


@given(lines)
@settings(max_examples=300, deadline=None, suppress_health_check=[*HealthCheck])
def test_every_message_is_forwarded_as_by_the_reference(store: Store, lines: list[tuple[str, bytes]]) -> None:
    client, server, reference = Peer(), Peer(), ReferenceRelay()
    relay = Relay(OutputPolicy(store, output_mode="inline"), client, server)
    for side, line in lines:
        if side == "client":
            relay.receive_from_client(line)
            reference.receive_from_client(line)
        else:
            relay.receive_from_server(line)
            reference.receive_from_server(line)
    assert relay._workers.wait_idle(SECONDS)
    assert relay._store_workers.wait_idle(SECONDS)
    assert server.received == reference.to_server
    assert sorted(client.received) == sorted(reference.to_client)
