"""A client that sends faster than the server answers: further messages wait in the pipe."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faulty_server import EVENTS, JSON, Server
from forebay.errors import UpstreamFailed
from forebay.proxy.http import upstream as upstream_module
from forebay.proxy.http.streams import ResponseBuffers
from forebay.proxy.http.upstream import HttpUpstream
from forebay.wire.framing import Spool
from gateway_harness import Gateway, gateway_to, is_working, parse_text
from peak import bounded_growth
from wires import MODERN, make_request


def make_upstream(folder: Path) -> HttpUpstream:
    return HttpUpstream("http://127.0.0.1:9/mcp", spool_above_bytes=1 << 20, make_spool=lambda: Spool(folder))


def test_unfinished_messages_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "_READY_TIMEOUT_SECONDS", 0.01)
    upstream = make_upstream(tmp_path)
    for _ in range(16):
        upstream.wait_ready()
        upstream.send(b"x" * (1 << 20))
    with pytest.raises(UpstreamFailed, match="retry later"):
        upstream.wait_ready()
    upstream._finish(b"x" * (1 << 20))
    upstream.wait_ready()


def test_unfinished_messages_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "_READY_TIMEOUT_SECONDS", 0.01)
    upstream = make_upstream(tmp_path)
    for _ in range(256):
        upstream.wait_ready()
        upstream.send(Spool(tmp_path))
    with pytest.raises(UpstreamFailed):
        upstream.wait_ready()


@pytest.mark.slow
def test_every_pipelined_call_is_answered(server: Server, tmp_path: Path) -> None:
    with gateway_to(server.url, tmp_path) as gateway:
        numbers = set(range(1000, 1400))
        notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}

        def send() -> None:
            for number in numbers:
                gateway.send(make_request(number, "tools/call", {"name": "plain"}, gateway.era))
                gateway.send(notification)

        thread = threading.Thread(target=send)
        thread.start()
        assert {json.loads(gateway.read_line())["id"] for _ in numbers} == numbers
        thread.join()


@contextmanager
def bounded_gateway(server: Server, folder: Path, message_bytes: int = 0, **settings: Any) -> Iterator[Gateway]:
    """Yield a client of a gateway whose memory must stay within its bound."""
    settings = {"spool_above_bytes": 8 << 20, "options": {"output_mode": "auto"}, **settings}
    with gateway_to(server.url, folder, **settings) as gateway:
        assert is_working(gateway)
        with bounded_growth(gateway.process.pid, message_bytes):
            yield gateway


def call_many(gateway: Gateway, count: int, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Return the responses to calls that are sent at once."""

    def send() -> None:
        for _ in range(count):
            gateway.send_request("tools/call", {"name": tool, "arguments": arguments})

    thread = threading.Thread(target=send)
    thread.start()
    answers = [json.loads(gateway.read_line()) for _ in range(count)]
    thread.join()
    return answers


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(300, 1_000_000), (40, 7_000_000)])
def test_calls_that_expire_make_room_for_others(count: int, size: int, server: Server, tmp_path: Path) -> None:
    with bounded_gateway(server, tmp_path, size, call_timeout=1.0) as gateway:
        answers = call_many(gateway, count, "waits", x="x" * size)
        assert all(answer["result"]["isError"] for answer in answers)
        assert gateway.request("ping")["result"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [JSON, EVENTS])
@pytest.mark.parametrize("size", [1_000_000, 8_000_000])
def test_responses_that_come_at_once_are_stored(size: int, kind: str, server: Server, tmp_path: Path) -> None:
    with bounded_gateway(server, tmp_path, size) as gateway:
        answers = call_many(gateway, 64, "sized", size=size, **{"as": kind})
        assert all(parse_text(answer["result"])["size_bytes"] == size for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize("secret", ["", "SECRET"])
def test_a_large_error_is_searched_for_credentials(secret: str, server: Server, tmp_path: Path) -> None:
    data = "[]," * 2_000_000
    body = f'{{"jsonrpc":"2.0","id":ID,"error":{{"code":1,"message":"m","data":[{data}"{secret}"]}}}}'
    with bounded_gateway(server, tmp_path, len(body), headers=["Authorization: Bearer s3cr3t-t0ken"]) as gateway:
        error = gateway.call("refuses", status=200, body=body)["error"]
        handle = error["data"]["output_handle"]
        # The error is read without its message; a secret in it is replaced.
        page = gateway.call("output_fetch", output_handle=handle, format="text", offset=6_000_000)
        assert "s3cr3t" not in json.dumps(page)
        assert ("***" in json.dumps(page)) == bool(secret)


@pytest.mark.slow
def test_arguments_with_very_many_values_are_repeated_in_headers(server: Server, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"values": [[]] * 1_500_000, "region": "north"}
    with bounded_gateway(server, tmp_path, 6_000_000, era=MODERN) as gateway:
        gateway.request("tools/list")
        gateway.call("plain", **arguments)
        assert server.headers_of("tools/call")[-1]["mcp-param-region"] == "north"


def test_buffers_of_responses_share_their_memory(tmp_path: Path) -> None:
    buffers = ResponseBuffers(8 << 20, lambda: Spool(tmp_path))
    used = [buffers.new_buffer() for _ in range(20)]
    assert used[0].spool_above_bytes == 8 << 20
    assert sum(buffer.spool_above_bytes for buffer in used) <= (16 << 20) + 20 * 65536
    del used[0]
    assert buffers.new_buffer().spool_above_bytes >= 2 << 20
    used.clear()
    assert buffers.new_buffer().spool_above_bytes == 8 << 20
