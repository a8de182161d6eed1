"""A server over HTTP behind the gateway: transports, sessions, streams and large results."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faulty_server import EVENTS, JSON, Server
from gateway_harness import Gateway, gateway_to, is_working, result_error, result_text
from waiting import wait_until
from wires import CALLS, LEGACY, MODERN, Servers, connect_http, extract_message, parse_without_note

pytestmark = pytest.mark.slow

SCRIPT = "mcp_server.py"

NAMED = {"name": "plain", "arguments": {}}


@pytest.mark.parametrize("kind", [(), ("events",), ("stateless",), ("stateless", "events")], ids=" ".join)
def test_a_client_gets_the_bytes_that_the_server_sends(
    servers: Servers, tmp_path: Path, era: str, kind: tuple[str, ...]
) -> None:
    port = servers.port(None, *kind)
    direct = connect_http(port, era)
    with gateway_to(f"http://127.0.0.1:{port}/mcp", tmp_path, era) as gateway:
        if era == LEGACY:
            assert parse_without_note(gateway.initialize_response) == json.loads(
                extract_message(direct.initialize_response)
            )
        for name, arguments in CALLS:
            params = {"name": name, "arguments": arguments}
            assert gateway.request_line("tools/call", params).strip() == extract_message(
                direct.request("tools/call", params)
            )
        for method in ("prompts/list", "resources/list", "ping", "no/such"):
            assert gateway.request_line(method).strip() == extract_message(direct.request(method))


def test_the_2024_11_05_transport_works(servers: Servers, tmp_path: Path) -> None:
    direct = connect_http(servers.port(None), LEGACY)
    with gateway_to(f"http://127.0.0.1:{servers.port(None, 'old')}/sse", tmp_path) as gateway:
        assert parse_without_note(gateway.initialize_response) == json.loads(
            extract_message(direct.initialize_response)
        )
        for name, arguments in CALLS:
            params = {"name": name, "arguments": arguments}
            assert gateway.request_line("tools/call", params).strip() == extract_message(
                direct.request("tools/call", params)
            )


def test_the_2024_11_05_transport_reconnects(server: Server, tmp_path: Path) -> None:
    server.is_legacy = True
    with gateway_to(server.url, tmp_path) as gateway:
        assert is_working(gateway)
        assert result_error(gateway.call("ends_stream"))["code"] == "upstream_failed"
        assert is_working(gateway)
        assert is_working(gateway)
    assert server.called == ["plain", "ends_stream", "plain", "plain"]
    assert [verb for verb, _, _ in server.requests].count("GET") == 2


@pytest.mark.parametrize("kind", [(), ("events",)], ids=" ".join)
def test_a_large_result_becomes_a_readable_handle(
    servers: Servers, tmp_path: Path, era: str, kind: tuple[str, ...]
) -> None:
    url = f"http://127.0.0.1:{servers.port(None, *kind)}/mcp"
    with gateway_to(url, tmp_path, era, options={"output_mode": "auto"}) as gateway:
        listed = {tool["name"] for tool in json.loads(gateway.request_line("tools/list"))["result"]["tools"]}
        assert {"text", "output_fetch"} <= listed
        described = json.loads(result_text(gateway.call("text", size=200_000)))
        page = gateway.call("output_fetch", output_handle=described["output_handle"], limit=10)
        assert "xxxxxxxxxx" in result_text(page)


@pytest.mark.parametrize("kind", [JSON, EVENTS])
@pytest.mark.parametrize("size", [5_000_000, 40_000_000])
def test_a_response_may_have_any_size(server: Server, tmp_path: Path, kind: str, size: int) -> None:
    options = {"output_mode": "auto"}
    with gateway_to(server.url, tmp_path, options=options, spool_above_bytes=8_000_000) as gateway:
        result = gateway.call("sized", size=size, **{"as": kind})
        assert json.loads(result_text(result))["size_bytes"] == size


def test_a_large_inline_response_is_complete(gateway: Gateway) -> None:
    for kind in (JSON, EVENTS):
        assert result_text(gateway.call("sized", size=3_000_000, **{"as": kind})) == "y" * 3_000_000


def test_a_formatted_message_is_sent_as_one_line(gateway: Gateway) -> None:
    assert result_text(gateway.call("indented")) == "in\ndented"


def test_a_batch_response_is_split_into_messages(gateway: Gateway) -> None:
    gateway.send_request("tools/call", {"name": "batch"})
    assert json.loads(gateway.read_line())["method"] == "notifications/message"
    assert result_text(json.loads(gateway.read_line())["result"]) == "batch"


def test_a_stream_may_arrive_byte_by_byte(gateway: Gateway) -> None:
    gateway.send_request("tools/call", {"name": "drips"})
    assert json.loads(gateway.read_line())["method"] == "notifications/progress"
    assert result_text(json.loads(gateway.read_line())["result"]) == "dripped"
    assert is_working(gateway)


def test_a_compressed_response_is_decompressed(gateway: Gateway) -> None:
    assert result_text(gateway.call("compressed")) == "z" * 1000


def test_a_server_may_send_requests_during_a_call(gateway: Gateway) -> None:
    gateway.send_request("tools/call", {"name": "elicits"})
    asked = json.loads(gateway.read_line())
    assert asked["method"] == "elicitation/create"
    gateway.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}})
    assert json.loads(result_text(json.loads(gateway.read_line())["result"])) == {"action": "accept"}


def test_requests_do_not_wait_for_each_other(gateway: Gateway, server: Server) -> None:
    waiting = gateway.send_request("tools/call", {"name": "waits"})
    assert is_working(gateway)
    gateway.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}})
    assert server.caller_left.wait(30)


def test_the_session_id_is_sent_from_the_handshake_to_the_end(server: Server, tmp_path: Path) -> None:
    with gateway_to(server.url, tmp_path) as gateway:
        assert is_working(gateway)
        (hello,) = server.headers_of("initialize")
        assert "mcp-session-id" not in hello
        assert "mcp-protocol-version" not in hello
        for method in ("notifications/initialized", "tools/call"):
            (headers,) = server.headers_of(method)
            assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == ("s1", "2025-06-18")
    verb, _, headers = server.requests[-1]
    assert (verb, headers["mcp-session-id"]) == ("DELETE", "s1")


def test_nothing_is_sent_before_the_handshake_is_over(server: Server, tmp_path: Path) -> None:
    server.is_slow = True
    with gateway_to(server.url, tmp_path, MODERN) as gateway:
        gateway.era = LEGACY
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        gateway.send_request("initialize", hello)
        gateway.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        gateway.send_request("tools/call", NAMED)
        gateway.read_line(), gateway.read_line()
        posted = [method for verb, method, _ in server.requests if verb == "POST"]
        assert posted == ["initialize", "notifications/initialized", "tools/call"]


def test_the_stream_outside_of_requests_is_read_and_resumed(server: Server, tmp_path: Path) -> None:
    server.has_stream = True
    with gateway_to(server.url, tmp_path) as gateway:
        assert json.loads(gateway.read_line())["method"] == "notifications/tools/list_changed"
        while len(gets := [headers for verb, _, headers in server.requests if verb == "GET"]) < 2:
            assert is_working(gateway)
    assert "last-event-id" not in gets[0]
    assert gets[1]["last-event-id"] == "said"


def test_the_stream_outside_of_requests_survives_refusals(server: Server, tmp_path: Path) -> None:
    server.has_stream = True
    server.stream_faults = [409, 0, 429, 503]
    with gateway_to(server.url, tmp_path) as gateway:
        assert json.loads(gateway.read_line())["method"] == "notifications/tools/list_changed"
        wait_until(lambda: [verb for verb, _, _ in server.requests].count("GET") == 6, 30)
        assert is_working(gateway)


@pytest.mark.parametrize("faults", [[0], [503, 429, 408], [409, 425, 502, 0]])
def test_a_broken_stream_is_resumed_after_transient_failures(
    faults: list[int], gateway: Gateway, server: Server
) -> None:
    server.stream_faults = faults
    assert result_text(gateway.call("resumes")) == "resumed"
    assert server.called == ["resumes"]


def test_a_broken_stream_is_given_up_after_some_failures(gateway: Gateway, server: Server) -> None:
    server.stream_faults = [503] * 100
    assert "may have done" in result_error(gateway.call("resumes"))["message"]
    assert len(server.stream_faults) == 95


def test_a_broken_stream_is_resumed_without_repeating_the_call(gateway: Gateway, server: Server) -> None:
    assert result_text(gateway.call("resumes")) == "resumed"
    assert server.called == ["resumes"]


def test_a_lost_session_is_renewed_and_the_request_repeated(gateway: Gateway, server: Server) -> None:
    assert result_text(gateway.call("forgets")) == "plain"
    assert is_working(gateway)
    assert is_working(gateway)
    assert server.called == ["forgets", "plain", "plain"]
    sessions = [headers.get("mcp-session-id") for headers in server.headers_of("tools/call")]
    assert sessions == ["s1", "s1", "s3", "s3"]
    assert len(server.headers_of("notifications/initialized")) == 2


def test_modern_requests_have_headers_with_method_and_name(server: Server, tmp_path: Path) -> None:
    with gateway_to(server.url, tmp_path, MODERN) as gateway:
        listed = [tool["name"] for tool in json.loads(gateway.request_line("tools/list"))["result"]["tools"]]
        assert (listed[0], "output_fetch" in listed) == ("plain", True)
        gateway.call("plain", region="näh")
    (headers,) = server.headers_of("tools/call")
    assert (headers["mcp-protocol-version"], headers["mcp-method"], headers["mcp-name"]) == (
        MODERN,
        "tools/call",
        "plain",
    )
    assert headers["mcp-param-region"] == "=?base64?bsOkaA==?="
    assert "mcp-session-id" not in headers


def test_the_sdk_and_other_slow_modules_are_not_imported() -> None:
    code = "import sys, forebay.proxy.http.upstream; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"mcp", "pydantic", "anyio", "httpx"} & set(ran.stdout.split())


def test_the_command_takes_a_url_and_headers(server: Server, tmp_path: Path) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": NAMED}
    options = ["--store", (tmp_path / "store").as_uri(), "--url", server.url, "--header", "X-Key: ${A_KEY}"]
    ran = subprocess.run(
        [sys.executable, "-m", "forebay", "wrap", *options],
        input=json.dumps(asked).encode() + b"\n",
        capture_output=True,
        env={**os.environ, "A_KEY": "k3y"},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert result_text(json.loads(ran.stdout)["result"]) == "plain"
    assert server.headers_of("tools/call")[0]["x-key"] == "k3y"
    assert b"k3y" not in ran.stderr


def test_requests_above_the_limit_wait(gateway: Gateway) -> None:
    numbers = [
        gateway.send_request("tools/call", {"name": "plain", "arguments": {"text": str(at)}}) for at in range(300)
    ]
    answers = [json.loads(gateway.read_line()) for _ in numbers]
    assert {answer["id"]: int(result_text(answer["result"])) for answer in answers} == dict(
        zip(numbers, range(300), strict=True)
    )


def test_the_gateway_ends_during_a_call(server: Server, tmp_path: Path) -> None:
    with gateway_to(server.url, tmp_path, grace=0.2) as gateway:
        gateway.send_request("tools/call", {"name": "waits"})
        assert is_working(gateway)
        assert b"upstream_failed" in gateway.close_and_read()
    assert server.caller_left.wait(30)


def test_the_gateway_ends_before_a_call_is_sent(server: Server, tmp_path: Path) -> None:
    server.ignores_tools_list = True
    with gateway_to(server.url, tmp_path, grace=0.2, options={"file_refs": True}) as gateway:
        gateway.send_request("tools/call", {"name": "plain", "arguments": {}})
        assert b"upstream_failed" in gateway.close_and_read()
    assert server.called == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"url": "ftp://example.com"}, "http://"),
        ({"url": "http://"}, "http://"),
        ({"url": "http://h/", "headers": ["no colon hunter2"]}, "Name: value"),
        ({"url": "http://h/", "headers": ["A b: hunter2"]}, "Name: value"),
        ({"url": "http://h/", "headers": ["A: hunter2\r\nB: x"]}, "characters"),
    ],
)
def test_invalid_urls_and_headers_are_refused_without_secrets(told: dict[str, Any], words: str) -> None:
    from forebay.errors import InvalidArgument
    from forebay.proxy.http.upstream import HttpUpstream

    with pytest.raises(InvalidArgument, match=words) as raised:
        HttpUpstream(**told, spool_above_bytes=1, make_spool=lambda: None)  # type: ignore[arg-type, return-value]
    assert "hunter2" not in str(raised.value)
