"""A client that sends faster than the server answers: further messages wait in the pipe."""

import json
import threading
from pathlib import Path

import pytest
from faulty_server import Server
from forebay.errors import UpstreamFailed
from forebay.proxy.http import upstream as upstream_module
from forebay.proxy.http.upstream import HttpUpstream
from forebay.wire.framing import Spool
from gateway_harness import gateway_to
from peak import get_peak_bytes
from wires import make_request


def make_upstream(folder: Path) -> HttpUpstream:
    return HttpUpstream("http://127.0.0.1:9/mcp", spool_above_bytes=1 << 20, make_spool=lambda: Spool(folder))


def test_unfinished_messages_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "_READY_TIMEOUT_SECONDS", 0.01)
    upstream = make_upstream(tmp_path)
    for _ in range(16):
        upstream.wait_ready()
        upstream.send(b"x" * (1 << 20))
    with pytest.raises(UpstreamFailed, match="ask again in a while"):
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


@pytest.mark.slow
def test_calls_that_expire_make_room_for_others(server: Server, tmp_path: Path) -> None:
    with gateway_to(server.url, tmp_path, call_timeout=1.0) as gateway:
        count = 300

        def send() -> None:
            for _ in range(count):
                gateway.send_request("tools/call", {"name": "waits", "arguments": {"x": "x" * 1_000_000}})

        thread = threading.Thread(target=send)
        thread.start()
        answers = [json.loads(gateway.read_line()) for _ in range(count)]
        thread.join()
        assert all(answer["result"]["isError"] for answer in answers)
        assert gateway.request("ping")["result"] == {}
        assert get_peak_bytes(gateway.process.pid) < 256 << 20
