"""Calls that wait for their client, and are continued at another replica."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replicas import Replica, start_replicas
from serve_harness import upstream_command
from wires import MODERN, HttpWire, connect_http, extract_message

UNKNOWN = "requestState"
CAPABILITIES: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@pytest.fixture(params=["redis", "s3"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Replica]]:
    address = request.getfixturevalue(f"{request.param}_address")
    upstreams = {"asking": upstream_command("asking_server.py")}
    with start_replicas(tmp_path, address, count=2, upstreams=upstreams) as running:
        yield running


def ask(replica: Replica, tool: str, arguments: dict[str, Any], **more: Any) -> Any:
    wire: HttpWire = connect_http(replica.port, MODERN)
    params = {"name": tool, "arguments": arguments, "_meta": CAPABILITIES, **more}
    return json.loads(extract_message(wire.request("tools/call", params)))


def answer(result: dict[str, Any], value: str) -> dict[str, Any]:
    """Return the params that answer all questions of a result."""
    content = {"action": "accept", "content": {"value": value}}
    return {"requestState": result["requestState"], "inputResponses": dict.fromkeys(result["inputRequests"], content)}


def test_a_call_is_continued_at_another_replica(replicas: list[Replica]) -> None:
    one, other = replicas
    first = ask(one, "asks", {"count": 2})["result"]
    assert first["resultType"] == "input_required"
    assert len(first["inputRequests"]) == 2
    last = ask(other, "asks", {"count": 2}, **answer(first, "there"))["result"]
    answers = json.loads(last["content"][0]["text"])
    assert [each["content"] for each in answers] == [{"value": "there"}] * 2
    # Each state can be used once.
    for replica in replicas:
        assert UNKNOWN in ask(replica, "asks", {"count": 2}, **answer(first, "again"))["error"]["message"]


def test_each_round_may_go_to_another_replica(replicas: list[Replica]) -> None:
    arguments = {"count": 3}
    result = ask(replicas[0], "rounds", arguments)["result"]
    for number in range(3):
        assert result["resultType"] == "input_required"
        result = ask(replicas[(number + 1) % 2], "rounds", arguments, **answer(result, f"{number}"))["result"]
    answers = json.loads(result["content"][0]["text"])
    assert [each["content"]["value"] for each in answers] == ["0", "1", "2"]


def test_a_large_response_is_stored_by_the_replica_that_has_the_request(replicas: list[Replica]) -> None:
    one, other = replicas
    first = ask(one, "large", {"size": 300_000})["result"]
    last = ask(other, "large", {"size": 300_000}, **answer(first, "x"))["result"]
    descriptor = json.loads(last["content"][0]["text"])
    assert descriptor["size_bytes"] == 300_002
    page = ask(one, "output_fetch", {"output_handle": descriptor["output_handle"], "limit": 10})["result"]
    assert "xxxxxxxxx" in page["content"][0]["text"]


def test_only_the_same_call_is_continued(replicas: list[Replica]) -> None:
    one, other = replicas
    first = ask(one, "asks", {"count": 1})["result"]
    assert UNKNOWN in ask(other, "asks", {"count": 2}, **answer(first, "x"))["error"]["message"]
    assert UNKNOWN in ask(other, "rounds", {"count": 1}, **answer(first, "x"))["error"]["message"]
    forged = {**first, "requestState": "x" * 43}
    assert UNKNOWN in ask(other, "asks", {"count": 1}, **answer(forged, "x"))["error"]["message"]
    last = ask(other, "asks", {"count": 1}, **answer(first, "x"))["result"]
    assert json.loads(last["content"][0]["text"])[0]["content"] == {"value": "x"}


def test_the_calls_of_a_replica_that_was_killed_are_unknown(replicas: list[Replica]) -> None:
    one, other = replicas
    first = ask(one, "asks", {"count": 1})["result"]
    one.kill()
    assert UNKNOWN in ask(other, "asks", {"count": 1}, **answer(first, "x"))["error"]["message"]
