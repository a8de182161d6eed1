"""What the client sends on standard input: batches, messages that are lost, more requests than are handled at once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_harness import EraClient, serve_command, serving, upstream_command, write_config
from wires import LEGACY

pytestmark = pytest.mark.slow


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EraClient]:
    with serving(write_config(tmp_path, {"one": upstream_command("adverse_server.py")})) as client:
        yield client


def _make_call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_each_message_of_a_batch_is_handled(client: EraClient) -> None:
    batch = [_make_call(70, "text", size=5), _make_call(71, "told"), 5, []]
    client.send(json.dumps(batch).encode())
    responses = [json.loads(client.read_line()) for _ in range(2)]
    assert sorted(response["id"] for response in responses) == [70, 71]
    client.send(json.dumps([{}] * 10_001).encode())
    response = json.loads(client.read_line())
    assert (response["id"], "at most 10,000 messages" in response["error"]["message"]) == (None, True)
    assert client.call("text", size=5)["content"][0]["text"] == "xxxxx"


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.posix
def test_a_request_that_cannot_be_kept_is_an_error(is_answered: bool, tmp_path: Path) -> None:
    """A large message goes to a file, for which the disk of the gateway has no room."""
    path = write_config(tmp_path, {"one": upstream_command("adverse_server.py")}, spool_above_bytes=100_000)
    command = ["bash", "-c", 'ulimit -f 2000; trap "" XFSZ; exec "$@"', "bash", *serve_command(path)]
    client = EraClient(command, LEGACY, {})
    try:
        client.initialize()
        call = _make_call(70, "text", padding="x" * 4_000_000)
        if not is_answered:
            # Without a readable id, no request can get an error response.
            call = {"padding": "x" * 4_000_000, "id": 70, "method": "ping", "more": "x" * 70_000}
        client.send(call)
        if is_answered:
            error = client.read_response(70)["error"]
            assert "disk" in error["message"] or "space" in error["message"], error
        client.wait_for_log("from the client is lost")
        assert client.request("ping")["result"] == {}
    finally:
        client.kill()


def test_requests_that_wait_are_handled_before_the_end(client: EraClient) -> None:
    """The client sends more than are handled at once, and closes its output."""
    for number in range(100, 400):
        client.send(_make_call(number, "reports", steps=1, every=0.001))
    assert client.process.stdin is not None
    client.process.stdin.close()
    answered = set[int]()
    while (line := client._lines.get(timeout=60)) is not None:
        message = json.loads(line)
        if "result" in message:
            answered.add(message["id"])
    assert answered == {*range(100, 400)}
