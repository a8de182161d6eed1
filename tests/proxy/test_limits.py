"""What a client or a server can make the gateway keep is limited."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import UpstreamFailed
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.pipe_writers import Outbox
from relay_peers import Gateway
from waiting import wait_until


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    policy = OutputPolicy(tmp_path.as_uri(), sweep_interval=0)
    yield Gateway(policy)
    policy.close()


def test_a_client_s_open_requests_are_limited_in_number(gateway: Gateway) -> None:
    for number in range(5000):
        gateway.receive_from_client(id=number, method="prompts/list")
    assert len(gateway.server.received) == 4096
    assert [answer["id"] for answer in gateway.client.received] == [*range(4096, 5000)]
    assert "retry later" in gateway.client.received[0]["error"]["message"]
    gateway.receive_from_server(id=7, result={})
    gateway.receive_from_client(id="next", method="prompts/list")
    assert gateway.server.received[-1]["id"] == "next"


def test_a_server_s_open_requests_are_limited_in_number(gateway: Gateway) -> None:
    for number in range(5000):
        gateway.receive_from_server(id=number, method="ping")
    assert len(gateway.client.received) == 4096
    assert [answer["id"] for answer in gateway.server.received] == [*range(4096, 5000)]
    assert "wait for some of the answers" in gateway.server.received[0]["error"]["message"]
    gateway.receive_from_client(id=7, result={})
    gateway.receive_from_server(id="next", method="ping")
    assert gateway.client.received[-1]["id"] == "next"


@pytest.mark.parametrize("request_id", ["x" * 1100, ["x" * 600] * 2, [0] * 10_000])
def test_a_long_id_is_refused(gateway: Gateway, request_id: Any) -> None:
    gateway.receive_from_client(id=request_id, method="ping")
    (refusal,) = gateway.client.received
    assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
    assert "at most 1024 bytes" in refusal["error"]["message"]
    gateway.receive_from_server(id=request_id, method="ping")
    assert gateway.server.received == [refusal]


@pytest.mark.parametrize("request_id", ["x" * 1000, [[]] * 300, 10**300, 1e100])
def test_an_odd_id_is_returned(gateway: Gateway, request_id: Any) -> None:
    gateway.receive_from_client(id=request_id, method="ping")
    gateway.receive_from_server(id=request_id, method="ping")
    assert gateway.server.received[0]["id"] == gateway.client.received[0]["id"] == request_id
    gateway.receive_from_server(id=request_id, result={})
    gateway.receive_from_client(id=request_id, result={})
    assert gateway.server.received[1]["id"] == gateway.client.received[1]["id"] == request_id
    assert not gateway.relay.is_pending(request_id)


def test_only_a_cancellation_of_an_open_request_overtakes_others(gateway: Gateway) -> None:
    def cancel(request_id: object, **params: Any) -> int:
        before = gateway.wait_count
        params = {"requestId": request_id, **params}
        gateway.receive_from_client(method="notifications/cancelled", params=params)
        return gateway.wait_count - before

    for number in (1, 2):
        gateway.receive_from_client(id=number, method="prompts/list")
    assert gateway.wait_count == 2
    assert cancel(1) == 0
    assert cancel(1) == 1
    assert cancel("unknown") == 1
    assert cancel(2, reason="x" * 5000) == 1
    assert len(gateway.server.received) == 6


def test_an_outbox_is_limited_in_number() -> None:
    ours, theirs = os.pipe()
    outbox, sent = Outbox(theirs), list[int]()

    def send_forever() -> None:
        for number in range(100_000):
            outbox.send(b"{}")
            sent.append(number)

    with pytest.raises(UpstreamFailed, match="does not read"):
        send_forever()
    assert 1000 < len(sent) < 50_000
    os.close(ours)
    assert outbox.close(20)
    os.close(theirs)


@pytest.mark.parametrize("more", [{}, {"x": {"$file": "/x"}}, {"output_mode": "inline"}])
def test_arguments_with_very_many_members_have_no_references(more: dict[str, Any], tmp_path: Path) -> None:
    many = {f"member {number}": "x" * 20 for number in range(20_000)}
    options: dict[str, Any] = {"file_refs": True, "per_call": True, "sweep_interval": 0}
    with contextlib.closing(OutputPolicy((tmp_path / "store").as_uri(), **options)) as policy:
        policy.learn_tools([{"name": "any", "inputSchema": {"type": "object"}}])
        gateway = Gateway(policy)
        params = {"name": "any", "arguments": {**many, **more}}
        gateway.receive_from_client(id=1, method="tools/call", params=params)
        wait_until(lambda: gateway.server.received or gateway.client.received)
        if more:
            (response,) = gateway.client.received
            assert "too many members to be searched" in response["result"]["content"][0]["text"]
        else:
            (sent,) = gateway.server.received
            assert sent["params"] == params
