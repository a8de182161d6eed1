"""Notifications and responses for clients that stay connected but do not read use bounded memory."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_client import stepping_server
from listening_harness import JSON, HttpServer
from peak import get_peak_bytes
from serve_harness import upstream_command
from serve_http_harness import connect_as, listen, serving_http, token
from waiting import wait_until
from wires import INITIALIZE_PARAMS, LEGACY, MODERN, MODERN_META

COUNT = 100_000
MAX_GROWTH_BYTES = 64 << 20
LEGACY_VERSION = "2025-11-25"


@pytest.fixture
def done(tmp_path: Path) -> Path:
    return tmp_path / "done"


@pytest.fixture
def server(tmp_path: Path, done: Path) -> Iterator[HttpServer]:
    with serving_http(tmp_path, {"one": upstream_command("flooding_server.py", str(done))}) as server:
        yield server


def connect(server: HttpServer, opened: contextlib.ExitStack) -> socket.socket:
    connection = opened.enter_context(socket.socket())
    # A small buffer fills early.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    return connection


def send(connection: socket.socket, method: str, message: Any = None, **headers: str) -> None:
    body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
    lines = {**JSON, "host": "localhost", "authorization": f"Bearer {token('ann')}", "content-length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    connection.sendall(f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)


def open_session(server: HttpServer) -> dict[str, str]:
    """Initialize a session and return its headers."""
    params = {**INITIALIZE_PARAMS, "protocolVersion": LEGACY_VERSION}
    answer = server.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, token("ann"))
    headers = {"mcp_session_id": answer.headers["mcp-session-id"], "mcp_protocol_version": LEGACY_VERSION}
    server.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, token("ann"), **headers)
    return headers


def make_call(method: str, count: int, meta: dict[str, Any]) -> dict[str, Any]:
    arguments = {"method": method, "count": count}
    params = {"name": "flood", "arguments": arguments, "_meta": {"progressToken": "t", **meta}}
    return {"id": 2, "method": "tools/call", "params": params}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("method", ["notifications/progress", "notifications/message"])
def test_an_unread_response_uses_bounded_memory(method: str, era: str, server: HttpServer, done: Path) -> None:
    with contextlib.ExitStack() as opened:
        if era == LEGACY:
            headers, meta = open_session(server), {}
        else:
            headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "flood"}
            meta = {**MODERN_META, "io.modelcontextprotocol/logLevel": "debug"}
        assert server.list_tools(token("ann")).status == 200
        start = get_peak_bytes(server.process.pid)
        send(connect(server, opened), "POST", make_call(method, COUNT, meta), **headers)
        wait_until(done.exists, 120)
        # Everything that was read before is handled before this is answered.
        assert server.request("GET", "/health").status == 200
        assert get_peak_bytes(server.process.pid) - start <= MAX_GROWTH_BYTES
        assert server.log.count("progress and log messages are dropped") == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_unread_responses_to_many_calls_use_bounded_memory(era: str, tmp_path: Path) -> None:
    call: dict[str, Any] = {
        "method": "tools/call",
        "params": {"name": "text", "arguments": {"size": 30_000}, "_meta": {}},
    }
    with (
        serving_http(tmp_path, {"one": upstream_command("adverse_server.py")}) as server,
        contextlib.ExitStack() as opened,
    ):
        if era == LEGACY:
            headers = open_session(server)
        else:
            headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "text"}
            call["params"]["_meta"] = MODERN_META
        assert server.list_tools(token("ann")).status == 200
        start = get_peak_bytes(server.process.pid)
        connections = [connect(server, opened) for _ in range(300)]
        for number, connection in enumerate(connections):
            send(connection, "POST", {"id": number, **call}, **headers)
        # The responses have begun: all calls were answered, or refused as too many at once.
        assert all(connection.recv(9) == b"HTTP/1.1 " for connection in connections)
        assert get_peak_bytes(server.process.pid) - start <= MAX_GROWTH_BYTES


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_a_session_that_misses_updates_is_ended(server: HttpServer) -> None:
    with contextlib.ExitStack() as opened:
        headers = open_session(server)
        listener = connect(server, opened)
        send(listener, "GET", accept="text/event-stream", **headers)
        assert listener.recv(12) == b"HTTP/1.1 200"
        start = get_peak_bytes(server.process.pid)
        send(connect(server, opened), "POST", make_call("notifications/resources/updated", COUNT, {}), **headers)
        server.wait_for("session of a client is ended")
        ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
        wait_until(lambda: server.post(ping, token("ann"), **headers).status == 404)
        assert server.request("GET", "/health").status == 200
        assert get_peak_bytes(server.process.pid) - start <= MAX_GROWTH_BYTES
        # A client that comes back starts a new session.
        assert open_session(server)["mcp_session_id"] != headers["mcp_session_id"]


@pytest.mark.slow
def test_a_burst_of_notifications_reaches_a_client_that_reads(tmp_path: Path) -> None:
    count = 3000
    with serving_http(tmp_path, {"one": stepping_server(tmp_path)}) as server:
        wire = connect_as(server.port, LEGACY, "ann")
        steps = [{"notify": "notifications/resources/updated", "count": count}]
        with listen(server.port, wire) as stream:
            assert b'"result"' in wire.request("tools/call", {"name": "steps", "arguments": {"steps": steps}})
            assert [stream.next()["params"]["uri"] for _ in range(count)] == [f"x://{at}" for at in range(count)]
        assert b'"result"' in wire.request("ping")
        assert "does not read" not in server.log
