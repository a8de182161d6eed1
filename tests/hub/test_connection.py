"""Connections of the hub to servers, without clients."""

import asyncio
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from forebay.config.upstreams import UpstreamConfig
from forebay.errors import UpstreamFailed
from forebay.hub.connection import ServerConnection
from forebay.hub.hub import Hub
from forebay.proxy.http.upstream import HttpUpstream
from forebay.proxy.process_group import Grace
from forebay.proxy.stdio import Process, StdioUpstream
from forebay.proxy.workers import ResponseWorkers
from forebay.wire.framing import LineReader, Spool
from hub_client import make_settings
from serve_http_harness import is_running
from waiting import wait_until_async

pytestmark = pytest.mark.slow


def test_a_server_ends_whose_connection_is_closed_while_it_starts(tmp_path: Path) -> None:
    processes: list[Process] = []
    is_starting, may_start = threading.Event(), threading.Event()
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]
    make_reader = partial(LineReader, spool_above_bytes=1 << 20, make_spool=lambda: Spool(str(tmp_path)))

    def start(_: ServerConnection) -> StdioUpstream:
        is_starting.set()
        assert may_start.wait(60)
        processes.append(Process(command))
        return StdioUpstream(processes[0], command, make_reader=make_reader, grace=Grace(0.1))

    async def run() -> None:
        connection = ServerConnection(
            "one", start, ResponseWorkers(), prefers_handshake=True, client_capabilities={}, call_timeout=None
        )
        await wait_until_async(is_starting.is_set)
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        may_start.set()
        await closing
        await wait_until_async(lambda: processes and not is_running(processes[0]._group.server.pid))
        # Nobody has read it.
        processes[0]._stdout.close()

    asyncio.run(run())


def _make_hub(folder: Path, script: str) -> Hub:
    config = UpstreamConfig(name="one", command=sys.executable, args=("-c", script))
    return Hub(make_settings(folder, {"one": config}))


class NoReply:
    def send(self, raw: bytes, method: str, /) -> None:
        raise AssertionError((raw, method))


DEAF_AFTER_A_CHANGE = """
import json, sys
listings = 0
for line in sys.stdin:
    message = json.loads(line)
    method, result = message["method"], {"tools": [], "content": []}
    listings += method == "tools/list"
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    if method == "tools/call":
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
    if "id" in message and (method != "tools/list" or listings != 2):
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_listing_without_an_answer_does_not_block_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        hub = _make_hub(tmp_path, DEAF_AFTER_A_CHANGE)
        session = hub.open_session(None, NoReply())
        await session.start()
        connection = session.connections["one"]
        monkeypatch.setattr("forebay.hub.connection._CONNECT_TIMEOUT_SECONDS", 0.3)
        monkeypatch.setattr("forebay.hub.connection._LISTING_INTERVAL_SECONDS", 0.01)
        await connection.request("tools/call", {"name": "any"})
        await wait_until_async(lambda: "the server does not answer" in caplog.text)
        await connection.request("tools/call", {"name": "any"})
        await wait_until_async(lambda: connection._listing_task is not None and connection._listing_task.done())
        assert caplog.text.count("cannot be listed just now") == 1
        await session.close()
        await hub.close()

    asyncio.run(run())


def test_notifications_to_a_server_that_reads_too_slowly_are_refused() -> None:
    with Spool("/tmp") as spool:  # noqa: S108 - it stays empty
        upstream = HttpUpstream("http://127.0.0.1:9/mcp", spool_above_bytes=1 << 20, make_spool=lambda: spool)

    async def run() -> None:
        connection = ServerConnection(
            "one",
            lambda _: upstream,
            ResponseWorkers(),
            prefers_handshake=True,
            client_capabilities={},
            call_timeout=None,
        )
        connection._connect_task.cancel()
        connection._upstream = upstream
        while upstream.has_room:
            connection.send_notification(b"x" * 100_000)
        with pytest.raises(UpstreamFailed, match="reads too slowly"):
            connection.send_notification(b"x")
        assert 10 < len(upstream._send_queue) < 1000

    asyncio.run(run())


SLOW_TO_START = """
import json, sys, time
time.sleep(SECONDS)
for line in sys.stdin:
    message = json.loads(line)
    answer = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}, "tools": []}}
    if message["method"] == "initialize":
        answer = {"error": {"code": -32600, "message": "there is no handshake"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def test_a_server_that_is_slow_to_start_need_not_have_a_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("forebay.hub.connection._DISCOVER_TIMEOUT_SECONDS", 0.1)

    async def run() -> None:
        hub = _make_hub(tmp_path, SLOW_TO_START.replace("SECONDS", "0.5"))
        tenant = hub._make_stateless(None, {})
        await tenant.start()
        connection = tenant.connections["one"]
        assert (connection.is_connected, connection.is_modern) == (True, True)
        await tenant.close()
        await hub.close()

    asyncio.run(run())
    assert "cannot be used" not in caplog.text


ENDS_AFTER_THE_HANDSHAKE = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"tools": []}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    if message["method"] == "ping":
        os._exit(0)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_requests_that_are_held_back_fail_with_their_server(tmp_path: Path) -> None:
    """Requests of one turn of the event loop are written together, or none of them is."""

    async def run() -> None:
        hub = _make_hub(tmp_path, ENDS_AFTER_THE_HANDSHAKE)
        session = hub.open_session(None, NoReply())
        await session.start()
        connection = session.connections["one"]
        for _ in range(3):
            requests = [connection.request("ping" if number == 5 else "tools/list", {}) for number in range(20)]
            results = await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 60)
            assert all(isinstance(result, dict | UpstreamFailed) for result in results)
            assert [isinstance(result, dict) for result in results[:5]] in (5 * [True], 5 * [False])
            assert isinstance(results[5], UpstreamFailed)
        await session.close()
        await hub.close()

    asyncio.run(run())
