"""Connections that cannot be made, or are for another server, and what is removed from errors."""

import asyncio
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from faulty_server import Server, faulty_server
from forebay.errors import InvalidArgument, UpstreamFailed
from forebay.proxy.http import client, connection
from forebay.proxy.http.connection import Endpoint
from forebay.proxy.http.headers import make_message_headers
from forebay.proxy.http.streams import redact_errors
from forebay.proxy.http.urls import URL
from forebay.wire.lazy_json import dump
from forebay.wire.messages import parse
from gateway_harness import gateway_to
from waiting import wait_until_async

pytestmark = pytest.mark.slow


def test_a_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="what is given as a URL is none"):
        Endpoint("http://[broken")


def test_an_idle_connection_is_used_for_its_own_server_only(server: Server) -> None:
    async def run(other: Server) -> None:
        endpoint = Endpoint(server.url)
        for url in (endpoint.url, URL.parse(other.url), endpoint.url, URL.parse(other.url)):
            (await endpoint.open("DELETE", url, {})).close()
            assert len(endpoint._idle) <= 2
        endpoint.close()
        with pytest.raises(UpstreamFailed, match="the gateway is about to end"):
            await endpoint.open("GET", endpoint.url, {})

    with faulty_server() as other:
        asyncio.run(run(other))
    assert [len(each.requests) for each in (server, other)] == [2, 2]


def test_a_server_that_does_not_finish_a_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client, connection):
        monkeypatch.setattr(module, "CONNECT_TIMEOUT_SECONDS", 0.3)

    async def run(port: int) -> None:
        endpoint = Endpoint(f"https://127.0.0.1:{port}/mcp")
        with pytest.raises(UpstreamFailed, match=r"cannot be reached within 0\.3 s; try again later"):
            await endpoint.open("GET", endpoint.url, {})
        endpoint.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(run(silent.getsockname()[1]))


def test_a_body_whose_connection_broke_is_an_error() -> None:
    """The break is noticed before the rest of the body is asked for."""

    async def run(listening: socket.socket) -> None:
        endpoint = Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        opening = asyncio.create_task(endpoint.open("GET", endpoint.url, {}))
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        accepted.setblocking(True)
        accepted.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        response = await opening
        # With unread bytes, or with this option, closing resets the connection.
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        stream = response._stream
        await wait_until_async(lambda: stream.is_ended)
        with pytest.raises(UpstreamFailed):
            await anext(aiter(response))
        endpoint.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        asyncio.run(run(listening))


def test_the_result_of_a_cancelled_call_in_a_thread_is_discarded() -> None:
    may_end, discarded = threading.Event(), list[str]()

    def work() -> str:
        may_end.wait(60)
        return "opened"

    async def run() -> None:
        running = asyncio.create_task(client.run_in_thread(work, discarded.append))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        may_end.set()
        await wait_until_async(lambda: discarded == ["opened"])

    asyncio.run(run())


REGION = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
ON = {"properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}}


@pytest.mark.parametrize(
    ("arguments", "schema", "headers"),
    [
        ({"region": "eu"}, REGION, {"mcp-param-Region": "eu"}),
        ({"on": True}, ON, {"mcp-param-On": "true"}),
        ({"on": False}, ON, {"mcp-param-On": "false"}),
        ([1], REGION, {}),
    ],
)
def test_arguments_are_repeated_in_headers(arguments: Any, schema: Any, headers: dict[str, str]) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    message = {"id": 1, "method": "tools/call", "params": {"name": "t", "arguments": arguments, "_meta": meta}}
    made = make_message_headers(message, dump(message), lambda _: schema)
    assert {name: value for name, value in made.items() if name.startswith("mcp-param-")} == headers


def test_a_number_with_too_many_digits_is_in_no_header() -> None:
    schema = {"properties": {"region": {"type": "integer", "x-mcp-header": "Region"}}}
    params = b'"name":"t","arguments":{"region":%s},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}'
    for digits, is_repeated in ((100, True), (5000, False)):
        raw = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s}}' % (params % (b"1" * digits))
        assert ("mcp-param-Region" in make_message_headers(parse(raw), raw, lambda _: schema)) == is_repeated


def test_a_large_tool_error_is_redacted() -> None:
    """A result that is too large to be parsed is an error if it says so."""
    endpoint = Endpoint("http://localhost/mcp", [("X-Key", "s3cr3t")])
    values = b",".join(b'"member %d":"x"' % number for number in range(30_000))
    error = b'{"jsonrpc":"2.0","id":1,"result":{%s,"x":"s3cr3t","isError":%s}}'
    assert redact_errors(error % (values, b"false"), endpoint) == error % (values, b"false")
    assert b"s3cr3t" not in bytes(redact_errors(error % (values, b"true"), endpoint))  # type: ignore[arg-type]


@pytest.mark.parametrize("endpoint", [b"http://[broken", b"http://127.0.0.2:9/x", None])
def test_a_stream_without_an_address_for_messages_is_not_that_transport(
    endpoint: bytes | None, server: Server, tmp_path: Path
) -> None:
    server.is_legacy, server.legacy_endpoint = True, endpoint
    with gateway_to(server.url, tmp_path) as gateway:
        assert b"HTTP 405" in gateway.initialize_response
    assert [verb for verb, _, _ in server.requests].count("GET") >= 1
    assert server.called == []


def test_a_refused_message_of_the_2024_11_05_transport_is_an_error(server: Server, tmp_path: Path) -> None:
    server.is_legacy = True
    with gateway_to(server.url, tmp_path) as gateway:
        refused = gateway.call("refuses", status=500, body="")
        assert "HTTP 500" in str(refused)
