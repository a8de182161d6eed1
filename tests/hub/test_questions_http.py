"""Requests of 2025-11-25 servers during calls of many HTTP clients reach only the client whose call it is."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from listening_harness import ALICE, BOB, HttpServer, write_token_file
from serve_harness import upstream_command, write_config
from serve_http_harness import serving_config
from waiting import wait_until
from wires import MODERN, Wire, connect_http, extract_message, start_server

pytestmark = pytest.mark.slow

CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}
META = {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
ACCEPTED = {"action": "accept", "content": {"name": "Ann"}}


@contextmanager
def _serve(folder: Path, upstream: dict[str, Any], *options: str) -> Iterator[HttpServer]:
    with serving_config(write_config(folder, {"one": upstream}), *options) as listening:
        yield listening
    assert "Traceback" not in listening.log


def _call_tool(wire: Wire, tool: str, required: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its result or error; with `required`, answer the requests of that earlier result."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": META}
    if required is not None:
        answers = dict.fromkeys(required["inputRequests"], ACCEPTED)
        params |= {"inputResponses": answers, "requestState": required["requestState"]}
    answer = json.loads(extract_message(wire.request("tools/call", params)))
    return dict(answer.get("result") or answer["error"])


def _parse_result(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"])


def _message(result: dict[str, Any]) -> str:
    (question,) = result["inputRequests"].values()
    return str(question["params"]["message"])


def test_the_request_state_of_another_principal_is_unknown(tmp_path: Path) -> None:
    with _serve(
        tmp_path, upstream_command("asking_server.py"), "--token-file", write_token_file(tmp_path)
    ) as listening:
        alice, bob = (connect_http(listening.port, MODERN, token) for token in (ALICE, BOB))
        required = _call_tool(alice, "asks")
        refusals = [_call_tool(bob, "asks", required), _call_tool(bob, "asks", {**required, "requestState": "never"})]
        assert refusals[0] == refusals[1]
        assert refusals[0]["code"] == -32602
        assert _parse_result(_call_tool(alice, "asks", required)) == [ACCEPTED]
        # Two unanswered requests do not delay the shutdown.
        _call_tool(alice, "asks")
        _call_tool(alice, "asks")


def test_a_paused_call_keeps_its_tenant_open(tmp_path: Path) -> None:
    options = ("--token-file", write_token_file(tmp_path), "--session-idle-seconds", "0.5")
    with _serve(tmp_path, upstream_command("asking_server.py"), *options) as listening:
        alice = connect_http(listening.port, MODERN, ALICE)
        required = _call_tool(alice, "asks")
        time.sleep(2)
        assert _parse_result(_call_tool(alice, "asks", required)) == [ACCEPTED]


def test_over_http_the_stream_identifies_the_call_of_an_input_request(tmp_path: Path) -> None:
    with start_server("eliciting_server.py", "http", "legacy") as process:
        assert process.stdout
        upstream = {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}
        with _serve(tmp_path, upstream, "--token-file", write_token_file(tmp_path)) as listening:
            names = {"alice": ALICE, "another of alice": ALICE, "bob": BOB}
            wires = {name: connect_http(listening.port, MODERN, token) for name, token in names.items()}
            with ThreadPoolExecutor(3) as pool:
                required = dict(
                    zip(wires, pool.map(lambda of: _call_tool(wires[of], "elicit", of=of), wires), strict=True)
                )
            assert {name: _message(result) for name, result in required.items()} == {
                name: f"Who is {name}?" for name in names
            }
            for name, wire in wires.items():
                assert _parse_result(_call_tool(wire, "elicit", required[name], of=name)) == ACCEPTED


def test_anonymous_clients_do_not_get_input_requests_of_others(tmp_path: Path) -> None:
    with _serve(tmp_path, upstream_command("asking_server.py")) as listening, ThreadPoolExecutor(1) as pool:
        first, second = (connect_http(listening.port, MODERN) for _ in range(2))
        waiting = pool.submit(_call_tool, first, "waits")
        wait_until(lambda: _parse_result(_call_tool(second, "heard"))["methods"].count("tools/call") >= 2, 60)
        (refusal,) = _parse_result(_call_tool(second, "asks"))
        assert "the recipient is ambiguous" in refusal["message"]
        _call_tool(second, "heard", go=True)
        assert _parse_result(waiting.result(30)) == "waited"
        required = _call_tool(second, "asks")
        assert _parse_result(_call_tool(second, "asks", required)) == [ACCEPTED]
