"""Many concurrent HTTP clients of a gateway: forebay and fastmcp's proxy, in front of the same HTTP server.

The clients are raw, each with its own session and connection. Every response is checked against its request.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import raw_http
from conftest import Measured

CLIENTS, CALLS = 64, 100
SIZES = [1_000, 10_000, 200_000]
HANDLE_MIN_BYTES = 200_000
FOLDER = Path(__file__).parent
ACCEPT = "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
INITIALIZE_PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}


class Client:
    """A client that keeps its connection open."""

    def __init__(self, name: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._name, self._reader, self._writer = name, reader, writer
        self._session = ""

    @classmethod
    async def connect(cls, name: int, port: int) -> "Client":
        client = cls(name, *await asyncio.open_connection("127.0.0.1", port, limit=2**24))
        await client._request(0, "initialize", INITIALIZE_PARAMS)
        await client._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return client

    async def _request(self, number: int, method: str, params: dict[str, Any]) -> Any:
        body = await self._post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        messages = [orjson.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if b"{" in line]
        (response,) = (message for message in messages if message.get("id") == number)
        return response["result"]

    async def _post(self, message: dict[str, Any]) -> bytes:
        body = json.dumps(message).encode()
        head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n{ACCEPT}{self._session}content-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        head_text = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head_text.split()[1] in ("200", "202"), head_text
        if not self._session and (session := _header(head_text, "mcp-session-id")):
            self._session = f"mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n"
        if _header(head_text, "transfer-encoding") != "chunked":
            return await self._reader.readexactly(int(_header(head_text, "content-length") or 0))
        chunks = []
        while size := int(await self._reader.readline(), 16):
            chunks.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readline()
        return b"".join(chunks)

    async def call_all(self, *, has_handles: bool) -> None:
        for number in range(1, CALLS + 1):
            size, of = SIZES[number % len(SIZES)], f"call {number} of {self._name}"
            result = await self._request(number, "tools/call", {"name": "text", "arguments": {"size": size, "of": of}})
            text = result["content"][0]["text"]
            if has_handles and size >= HANDLE_MIN_BYTES:
                descriptor = orjson.loads(text)
                assert descriptor["output_handle"]
                assert descriptor["preview"].startswith(of + " ")
            else:
                assert text == of + raw_http.make_rest(size - len(of))

    def close(self) -> None:
        self._writer.close()


def _header(head: str, name: str) -> str:
    return head.partition(f"\r\n{name}:")[2].partition("\r\n")[0].strip()


async def run_clients(port: int, *, has_handles: bool) -> float:
    """Return the seconds for all calls of all clients, without the time to connect."""
    clients = await asyncio.gather(*(Client.connect(name, port) for name in range(CLIENTS)))
    start = time.perf_counter()
    await asyncio.gather(*(client.call_all(has_handles=has_handles) for client in clients))
    seconds = time.perf_counter() - start
    for client in clients:
        client.close()
    return seconds


@contextmanager
def run_server(command: list[str], port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a server and wait until it listens."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            assert process.poll() is None, f"the server has ended: {command}"
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def gateways(folder: Path, url: str) -> dict[str, tuple[list[str], int]]:
    config = folder / "forebay.toml"
    config.write_text(f'store = "{(folder / "http").as_uri()}"\n[upstreams.server]\nurl = "{url}"\n')
    ours, theirs = free_port(), free_port()
    serve = [sys.executable, "-m", "forebay", "serve", "--config", str(config), "--http", f"127.0.0.1:{ours}"]
    proxy = [sys.executable, str(FOLDER / "fastmcp_http_proxy.py"), str(theirs), url]
    return {"forebay": (serve, ours), "fastmcp proxy": (proxy, theirs)}


@cache
def time_once(folder: Path) -> dict[str, float]:
    """Return the seconds of one run per gateway; fastmcp's takes minutes."""
    server = free_port()
    with ExitStack() as stack:
        stack.enter_context(run_server([sys.executable, str(FOLDER / "raw_http.py"), str(server)], server))
        started = gateways(folder, f"http://127.0.0.1:{server}/mcp")
        for command, port in started.values():
            stack.enter_context(run_server(command, port))
        return {who: asyncio.run(run_clients(port, has_handles=who == "forebay")) for who, (_, port) in started.items()}


@pytest.mark.parametrize("who", ["forebay", "fastmcp proxy"])
def bench_many_clients(measured: Measured, folder: Path, who: str) -> None:
    seconds = time_once(folder)[who]
    rate = f"{CLIENTS * CALLS / seconds:,.0f} calls a second"
    measured("64 clients over HTTP", "mixed sizes", who, CALLS * CLIENTS * sum(SIZES) // 3, [seconds], note=rate)
