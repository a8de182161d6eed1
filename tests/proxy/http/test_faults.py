"""A server over HTTP that fails or is too slow: the request gets an error, and the next one works."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from faulty_server import EVENTS, JSON, Server
from gateway_harness import Gateway, gateway_to, is_working, result_error, result_text
from waiting import wait_until
from wires import LEGACY, MODERN

pytestmark = pytest.mark.slow

NAMED = {"name": "plain", "arguments": {}}


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("breaks_off", {"as": EVENTS}, "before its answer"),
    ("breaks_off", {"as": JSON}, "ended the connection"),
    ("breaks_off", {"as": None}, "ended the connection"),
    ("compressed", {"end": -20}, "ends too early"),
    ("moved", {"status": 302, "to": "/there"}, "not followed"),
    ("moved", {"status": 307, "to": "http://127.0.0.2:1/there"}, "not followed"),
    ("moved", {"status": 307, "to": "/mcp"}, "not followed"),
    ("moved", {"status": 307, "to": "http://[broken"}, "not followed"),
    ("refuses", {"status": 401}, "--header"),
    ("refuses", {"status": 403, "body": "x"}, "--header"),
    ("refuses", {"status": 500, "body": "SECRET is wrong " + "x" * 100_000}, "HTTP 500: *** is wrong xx"),
    ("refuses", {"status": 500}, "HTTP 500; it may have done what it was asked to; try again later"),
    ("refuses", {"status": 502, "headers": {"retry-after": "x"}}, "try again later"),
    ("refuses", {"status": 503, "headers": {"retry-after": "7"}}, "HTTP 503; try again in 7 s"),
    ("refuses", {"status": 429, "headers": {"retry-after": "7"}}, "HTTP 429; try again in 7 s"),
    ("refuses", {"status": 409}, "try again later"),
    ("refuses", {"status": 422, "body": '{"error": {"message": "wrong"}}'}, "HTTP 422: {"),
    ("refuses", {"status": 413}, "send less"),
    ("refuses", {"status": 405}, "check the URL"),
    ("refuses", {"status": 404, "body": '{"error": "x"}'}, "forgets its sessions"),
    ("refuses", {"status": 200, "as": "text/html", "body": "<html>"}, "text/html"),
    ("refuses", {"status": 202}, "no answer"),
    ("refuses", {"status": 202, "as": "text/plain"}, "accepted the request, but does not answer it"),
    ("refuses", {"status": 204}, "no answer"),
    ("refuses", {"status": 200, "body": "{not json"}, "no answer"),
    ("refuses", {"status": 200, "body": ""}, "no answer"),
    ("refuses", {"status": 200, "body": '{"jsonrpc": "2.0", "id": 77, "result": {}}'}, "no answer"),
    (
        "refuses",
        {"status": 200, "as": EVENTS, "body": 'data: {"jsonrpc": "2.0", "id": 77, "result": {}}\n\n'},
        "stream",
    ),
    ("refuses", {"status": 200, "as": EVENTS, "body": "data: {not json\n\n"}, "stream"),
    ("refuses", {"status": 200, "as": EVENTS, "body": ""}, "stream"),
]


@pytest.mark.parametrize(("tool", "arguments", "words"), FAULTS)
def test_a_failure_is_an_error_of_one_request_only(
    server: Server, tmp_path: Path, tool: str, arguments: dict[str, Any], words: str
) -> None:
    url = f"{server.url}?key=s3cr3t"
    with gateway_to(url, tmp_path, headers=["Authorization: Bearer s3cr3t-token"]) as gateway:
        error = result_error(gateway.call(tool, **arguments))
        assert error["code"] == "upstream_failed"
        assert words in error["message"]
        assert len(error["message"]) < 600
        assert is_working(gateway)
    assert server.headers_of("tools/call")[0]["authorization"] == "Bearer s3cr3t-token"
    assert "s3cr3t" not in json.dumps(error) + gateway.log


@pytest.mark.parametrize("request_id", ["ID", "null"])
def test_a_json_rpc_error_with_any_http_status_is_the_response(gateway: Gateway, request_id: str) -> None:
    body = f'{{"jsonrpc": "2.0",\n "id": {request_id}, "error": {{"code": -32602, "message": "no"}}}}'
    assert gateway.call("refuses", status=400, body=body)["error"] == {"code": -32602, "message": "no"}


def test_a_redirect_within_the_server_is_followed(gateway: Gateway) -> None:
    assert result_text(gateway.call("moved", status=307, to="/there")) == "moved"
    assert result_text(gateway.call("moved", status=308, to="there")) == "moved"


def test_an_unreachable_server_is_an_error_until_it_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:hunter2@127.0.0.1:{taken.getsockname()[1]}/mcp?key=qu3ry"
        with gateway_to(url, tmp_path, MODERN) as gateway:
            for _ in range(2):
                error = result_error(gateway.call("plain"))
                assert error["code"] == "upstream_failed"
                assert "cannot be reached" in error["message"]
                assert not re.search("hunter2|qu3ry", error["message"])
    assert not re.search("hunter2|qu3ry", gateway.log)


@pytest.mark.parametrize("kind", [JSON, EVENTS])
def test_a_slow_request_times_out_and_is_cancelled(server: Server, tmp_path: Path, era: str, kind: str) -> None:
    with gateway_to(server.url, tmp_path, era, call_timeout=0.5) as gateway:
        result = gateway.call("waits", **{"as": kind})
        assert result_error(result)["code"] == "upstream_timeout"
        assert server.caller_left.wait(30)
        assert is_working(gateway)
    assert len(server.headers_of("notifications/cancelled")) == (era == LEGACY)


def test_an_unanswered_handshake_does_not_block_another(server: Server, tmp_path: Path) -> None:
    server.is_mute = True
    with gateway_to(server.url, tmp_path, call_timeout=0.5) as gateway:
        assert json.loads(gateway.initialize_response)["error"]["data"]["code"] == "upstream_timeout"
        assert server.caller_left.wait(30)
        server.is_mute = False
        gateway.initialize()
        assert "result" in json.loads(gateway.initialize_response)
        assert is_working(gateway)


@pytest.mark.parametrize("second", ["initialize", "ping"])
def test_another_request_with_the_id_of_a_handshake_does_not_block_the_gateway(
    server: Server, tmp_path: Path, second: str
) -> None:
    server.is_slow = True
    with gateway_to(server.url, tmp_path) as gateway:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        for method in ("initialize", second):
            gateway.send({"jsonrpc": "2.0", "id": "same", "method": method, "params": hello})
        assert [json.loads(gateway.read_line())["id"] for _ in range(2)] == ["same", "same"]
        assert is_working(gateway)


@pytest.mark.parametrize("kind", [JSON, EVENTS])
def test_a_modern_request_is_cancelled_by_closing_its_stream(server: Server, tmp_path: Path, kind: str) -> None:
    with gateway_to(server.url, tmp_path, MODERN) as gateway:
        number = gateway.send_request("tools/call", {"name": "waits", "arguments": {"as": kind}})
        assert is_working(gateway)
        # A request that is cancelled before it is sent is never sent.
        wait_until(lambda: "waits" in server.called)
        gateway.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        assert server.caller_left.wait(30)
        gateway.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "another"}})
        assert is_working(gateway)
    assert [method for verb, method, _ in server.requests if method != "tools/call"] == []
