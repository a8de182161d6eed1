"""Processor time of a call to an MCP server at a URL: the gateway's connection, and threads with httpx2.

The server is `benches/load`, another process. There are always 16 requests of 1 KB in flight.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
from bench_gateway_http import free_port, run_server
from bench_hub import FOREBAY, LOAD
from conftest import Measured
from forebay.errors import UpstreamFailed
from forebay.proxy.http.upstream import HttpUpstream
from forebay.wire.framing import Line, Message, Spool

pytestmark = pytest.mark.skipif(not Path(LOAD).exists(), reason="benches/load needs Go")

HTTPX = "httpx2 in threads"
CALLS, IN_FLIGHT, SIZE, ROUNDS = 2000, 16, 1000, 5
VERSION = "2025-11-25"


def make_call(number: int) -> bytes:
    arguments = f'{{"size":{SIZE},"of":"call {number}"}}'
    params = f'{{"name":"text","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}'.encode()


class Caller:
    """Receiver that sends the next call for each response."""

    def __init__(self, upstream: HttpUpstream) -> None:
        self.redact: Callable[[str], str] = str
        self.redact_line: Callable[[Line], Line] = lambda line: line
        self.negotiated_version: str | None = VERSION
        self._upstream = upstream
        self._sent_count = self._received_count = 0
        self._done: asyncio.Future[None] | None = None

    async def run(self) -> None:
        self._sent_count = self._received_count = 0
        self._done = asyncio.get_running_loop().create_future()
        for _ in range(IN_FLIGHT):
            self._send_next()
        await self._done

    def _send_next(self) -> None:
        if self._sent_count < CALLS:
            self._upstream.send(make_call(self._sent_count))
            self._sent_count += 1

    def receive_from_server(self, line: Line, stream_request_id: object = None) -> bool:
        assert isinstance(line, bytes | bytearray)
        assert isinstance(stream_request_id, int)
        assert b'"text":"call %d ' % stream_request_id in line
        self._received_count += 1
        self._send_next()
        if self._received_count == CALLS and self._done is not None:
            self._done.set_result(None)
        return True

    def is_pending(self, request_id: object) -> bool:
        return isinstance(request_id, int)

    def call_when_settled(self, request_id: object, callback: Callable[[], None]) -> None:
        raise AssertionError(f"there is no handshake: {request_id}, {callback}")

    def fail_request(self, request_id: object, error: UpstreamFailed) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(AssertionError(f"{request_id}: {error}"))

    def replay_session(self, send: Callable[[Message], None]) -> None:
        raise AssertionError(send)

    def cancel_server_requests(self, reason: str) -> None:
        raise AssertionError(reason)

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        raise error


def measure_forebay(url: str) -> list[float]:
    async def run() -> list[float]:
        upstream = HttpUpstream(url, spool_above_bytes=1 << 20, make_spool=lambda: Spool(tempfile.gettempdir()))
        caller = Caller(upstream)
        serving = asyncio.create_task(upstream.serve(caller))
        times = []
        for _ in range(ROUNDS):
            start = time.process_time()
            await caller.run()
            times.append((time.process_time() - start) / CALLS)
        upstream.close()
        await serving
        return times

    return asyncio.run(run())


def measure_httpx(url: str) -> list[float]:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    headers["mcp-protocol-version"] = VERSION
    limits = httpx2.Limits(max_keepalive_connections=IN_FLIGHT)
    with httpx2.Client(headers=headers, limits=limits) as client, ThreadPoolExecutor(IN_FLIGHT) as pool:

        def call(number: int) -> None:
            assert b'"text":"call %d ' % number in client.post(url, content=make_call(number)).content

        times = []
        for _ in range(ROUNDS):
            start = time.process_time()
            for _ in pool.map(call, range(CALLS)):
                pass
            times.append((time.process_time() - start) / CALLS)
        return times


@cache
def measure_all() -> dict[str, list[float]]:
    port = free_port()
    measures: dict[str, Any] = {FOREBAY: measure_forebay, HTTPX: measure_httpx}
    with run_server([LOAD, "serve-http", f"127.0.0.1:{port}"], port):
        return {who: measure(f"http://127.0.0.1:{port}/mcp") for who, measure in measures.items()}


@pytest.mark.parametrize("who", [FOREBAY, HTTPX])
def bench_call(measured: Measured, who: str) -> None:
    measured("call to a URL, CPU", "1 KB, 16 at once", who, SIZE, measure_all()[who])
