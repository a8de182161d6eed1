"""Which connections the server closes when it has too many, and that a refused upload still gets its answer."""

import asyncio
import contextlib
import gc
import http.client
import json
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from forebay.http.connection import Connection, HTTPConnection
from listening_harness import ALICE, BOB, JSON, HttpServer, read_until_closed, run_server, write_token_file
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from waiting import wait_until, wait_until_async
from wires import MODERN, MODERN_META

MAX_CONNECTIONS = 8
BODY_LIMIT_BYTES = 100_000
LARGE_BODY = b" " * (24 << 20)
"""More than the socket buffers of both sides hold."""


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def small(parser: str, tmp_path: Path) -> Iterator[HttpServer]:
    options: dict[str, Any] = {
        "max_connections": MAX_CONNECTIONS,
        "body_limit_bytes": BODY_LIMIT_BYTES,
        "parser": parser,
    }
    with run_server(tmp_path, token_file=write_token_file(tmp_path), **options) as server:
        yield server
        assert "Traceback" not in server.log


def hold(server: HttpServer, opened: contextlib.ExitStack, count: int, sent: bytes) -> list[socket.socket]:
    """Open connections, send the same bytes on each, and keep them open."""
    connections = [opened.enter_context(server.connect()) for _ in range(count)]
    for connection in connections:
        # The server may have closed an earlier one already.
        with contextlib.suppress(OSError):
            connection.sendall(sent)
    return connections


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 9\r\n\r\n",
    ],
)
def test_connections_without_a_token_do_not_keep_others_out(sent: bytes, small: HttpServer) -> None:
    with contextlib.ExitStack() as opened:
        hold(small, opened, 40 * MAX_CONNECTIONS, sent)
        for _ in range(3):
            assert small.list_tools(ALICE).status == 200


HEALTH_REQUESTS = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500


@pytest.mark.slow
def test_requests_without_a_token_that_never_end_do_not_keep_others_out(small: HttpServer) -> None:
    def send_and_read(connection: socket.socket) -> None:
        # Until the connection is closed, by the server or at the end of the test.
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(HEALTH_REQUESTS)
                connection.recv(1 << 20)

    with contextlib.ExitStack() as opened:
        for connection in hold(small, opened, MAX_CONNECTIONS, HEALTH_REQUESTS):
            threading.Thread(target=send_and_read, args=[connection], daemon=True).start()
        for _ in range(3):
            assert small.list_tools(ALICE).status == 200


@pytest.mark.posix
@pytest.mark.slow
def test_responses_that_are_not_read_do_not_keep_others_out(parser: str, tmp_path: Path) -> None:
    def is_waiting() -> bool:
        before = get_cpu_ticks(server.process.pid)
        time.sleep(0.5)
        return get_cpu_ticks(server.process.pid) == before

    with run_server(tmp_path, max_connections=2, parser=parser) as server, contextlib.ExitStack() as opened:
        for _ in range(2):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.settimeout(1)
            # Until the server reads no further request, because it waits until its responses are read.
            with contextlib.suppress(TimeoutError):
                while True:
                    connection.sendall(HEALTH_REQUESTS)
        wait_until(is_waiting, 120)
        for _ in range(3):
            assert server.list_tools().status == 200


def get_cpu_ticks(pid: int) -> int:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
def test_thousands_of_idle_connections_do_not_keep_others_out(tmp_path: Path) -> None:
    with run_server(tmp_path, token_file=write_token_file(tmp_path)) as server, contextlib.ExitStack() as opened:
        hold(server, opened, 3000, b"")
        assert server.list_tools(ALICE).status == 200


@pytest.mark.slow
def test_idle_connections_of_one_principal_do_not_keep_another_out(small: HttpServer) -> None:
    request = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {BOB}\r\ncontent-length: 0\r\n\r\n"
    with contextlib.ExitStack() as opened:
        for _ in range(MAX_CONNECTIONS):
            (connection,) = hold(small, opened, 1, request.encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
        assert small.list_tools(ALICE).status == 200


@pytest.mark.slow
def test_a_connection_with_a_token_outlives_those_without(small: HttpServer) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", small.port, timeout=30)) as connection:
        for _ in range(2):
            connection.request("GET", "/mcp", None, {"authorization": f"Bearer {ALICE}"})
            response = connection.getresponse()
            response.read()
            assert response.status == 400
            with contextlib.ExitStack() as opened:
                hold(small, opened, 5 * MAX_CONNECTIONS, b"")


@pytest.mark.slow
def test_calls_in_flight_are_never_closed_for_a_new_connection(tmp_path: Path) -> None:
    params = {"name": "slow", "arguments": {"seconds": 3}, "_meta": MODERN_META}
    call = http_post(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        "mcp-method: tools/call\r\nmcp-name: slow",
    )
    with run_server(tmp_path, max_connections=3) as server, contextlib.ExitStack() as opened:
        calls = hold(server, opened, 3, call)
        server.wait_for(r"(?s)(slow has begun.*){3}")
        for _ in range(3):
            assert server.send_raw(b"").startswith(b"HTTP/1.1 503 ")
        for connection in calls:
            assert b"at last" in read_to_text(connection, b"at last")


@pytest.mark.slow
def test_a_connection_is_closed_if_the_client_does_not_read_its_response(tmp_path: Path) -> None:
    size = 24_000_000
    params = {"name": "text", "arguments": {"size": size}, "_meta": MODERN_META}
    call = http_post(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        "mcp-method: tools/call\r\nmcp-name: text",
    )
    with (
        run_server(tmp_path, read_timeout_seconds=3.0, output_inline_limit_bytes=2 * size) as server,
        contextlib.ExitStack() as opened,
    ):
        unread, read = hold(server, opened, 2, call)
        # A client that reads slowly gets the whole response, although that takes longer than the timeout.
        file = opened.enter_context(read.makefile("rb"))
        for _ in range(8):
            assert len(file.read(size // 8)) == size // 8
            time.sleep(0.5)
        server.wait_for("its client has read nothing of a response for 3 s")
        assert len(read_until_closed(unread)) < size
        assert server.log.count("has read nothing") == 1


def test_responses_are_sent_without_delay() -> None:
    """The listener is made as `forebay serve` makes it."""

    async def run() -> None:
        config = uvicorn.Config(PlainTextResponse("done"), lifespan="off")
        config.load()
        connection = HTTPConnection(
            config, ServerState(), {}, read_timeout=600.0, max_connections=1, requires_token=False
        )
        listener = socket.create_server(("127.0.0.1", 0))
        server = await asyncio.get_running_loop().create_server(lambda: connection, sock=listener)
        with socket.create_connection(listener.getsockname()):
            await wait_until_async(lambda: connection.transport is not None)
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        server.close()

    asyncio.run(run())


def test_a_connection_that_the_client_resets_is_released() -> None:
    connections: list[weakref.ref[Connection]] = []

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("done")(scope, receive, send)

    async def run() -> None:
        config = uvicorn.Config(respond, lifespan="off", timeout_keep_alive=600)
        config.load()
        state = ServerState()

        def make_connection() -> Connection:
            connection = HTTPConnection(config, state, {}, read_timeout=600.0, max_connections=1, requires_token=False)
            connections.append(weakref.ref(connection))
            return connection

        server = await asyncio.get_running_loop().create_server(make_connection, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            # Closing this socket resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await wait_until_async(lambda: state.total_requests == 1)

        def is_released() -> bool:
            gc.collect()
            return connections[0]() is None

        await wait_until_async(is_released, 10)
        server.close()

    asyncio.run(run())


def http_post(message: dict[str, object], headers: str) -> bytes:
    body = json.dumps(message).encode()
    lines = [f"{name}: {value}" for name, value in JSON.items()]
    lines += ["host: localhost", f"mcp-protocol-version: {MODERN}", headers, f"content-length: {len(body)}"]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body


def read_to_text(connection: socket.socket, text: bytes) -> bytes:
    received = b""
    while text not in received and (chunk := connection.recv(65536)):
        received += chunk
    return received


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["content-length", "chunked"])
@pytest.mark.parametrize("connection_header", ["keep-alive", "close"])
@pytest.mark.parametrize(("token", "status"), [(ALICE, 413), ("unknown" * 5, 401)])
def test_a_body_over_the_limit_is_answered_not_reset(
    token: str, status: int, connection_header: str, framing: str, small: HttpServer
) -> None:
    headers = JSON | {"authorization": f"Bearer {token}", "connection": connection_header}
    for _ in range(3):
        body = LARGE_BODY if framing == "content-length" else iter([LARGE_BODY[: 1 << 20]] * 24)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", small.port, timeout=30)) as connection:
            connection.request("POST", "/mcp", body, headers, encode_chunked=framing == "chunked")
            assert connection.getresponse().status == status


@pytest.mark.slow
def test_a_malformed_request_with_a_large_body_is_answered_not_reset(small: HttpServer) -> None:
    for fault in ("content-length: 5\r\ncontent-length: 6", "content-length: 99999999\r\nhost: user@localhost"):
        lines = ["POST /mcp HTTP/1.1", *(["host: x"] if "host" not in fault else []), fault, "", ""]
        with small.connect() as connection:
            connection.sendall("\r\n".join(lines).encode() + LARGE_BODY)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
