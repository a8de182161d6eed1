"""The HTTP client of the gateway, against a server that sends whatever bytes a test wants."""

import asyncio
import contextlib
import gzip
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import UpstreamFailed
from forebay.proxy.http import client as client_module
from forebay.proxy.http import connection as connection_module
from forebay.proxy.http.client import Response
from forebay.proxy.http.connection import Endpoint
from forebay.wire.framing import Message, Spool
from waiting import wait_until_async

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# Test ids quote the bytes, and every worker must collect the same ids: no time of day in them.
ZIPPED = gzip.compress(b"hello" * 100, mtime=0)


class RawServer:
    """A server that answers each request with the next of some responses, byte for byte."""

    def __init__(self, responses: Sequence[bytes], *, piece_bytes: int = 1 << 20, is_closing: bool = False) -> None:
        self._responses = list(responses)
        self._piece_bytes = piece_bytes
        self._is_closing = is_closing
        self.ignores_bodies = False
        """Whether it answers before it reads the body of a request."""
        self.reads_on = True
        """Whether it reads what follows the last request that it answers."""
        self.requests: list[bytes] = []
        self.connection_count = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()
        """Set when a client has ended a connection."""

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each request."""
        heads = [request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:] for request in self.requests]
        return [dict(line.split(": ", 1) for line in head) for head in heads]

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self.tasks.append(asyncio.create_task(self._handle(reader, writer)))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while self._responses:
                head = await reader.readuntil(b"\r\n\r\n")
                length = None if self.ignores_bodies else re.search(rb"content-length: (\d+)", head)
                self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
                response = self._responses.pop(0)
                for start in range(0, len(response), self._piece_bytes):
                    writer.write(response[start : start + self._piece_bytes])
                    await writer.drain()
                    # The client reads the piece before the next one is written.
                    await asyncio.sleep(0)
                if self._is_closing:
                    return
            if not self.reads_on:
                await asyncio.Event().wait()
            rest = await reader.read()
            if self.requests:
                self.requests[-1] += rest
        self.ended.set()


@contextlib.asynccontextmanager
async def serve(server: RawServer) -> AsyncIterator[str]:
    """Run a server, and yield its address."""
    async with await asyncio.start_server(server.accept, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        # The transports are closed in the next round of the loop.
        await asyncio.sleep(0)


async def read(response: Response) -> bytes:
    with contextlib.closing(response):
        return b"".join([chunk async for chunk in response])


async def post(endpoint: Endpoint, body: Message = b"{}", headers: Mapping[str, str] | None = None) -> bytes:
    return await read(await endpoint.open("POST", endpoint.url, headers or {}, body))


def run(server: Callable[[], RawServer], test: Callable[[RawServer, Endpoint], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a server and a client in one event loop."""

    async def run() -> None:
        made = server()
        async with serve(made) as address:
            with contextlib.closing(Endpoint(f"{address}/mcp")) as endpoint:
                await test(made, endpoint)

    asyncio.run(run())


BODIES: list[tuple[bytes, bytes]] = [
    (OK, b"ok"),
    (b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok", b"ok"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", b"ok"),
    (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
    (b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n\tb\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
    (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", b""),
    (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", b"ok"),
    (CHUNKED + b"1;a=b\r\no\r\n001 \r\nk\r\n0\r\nTrailer: x\r\n\r\n", b"ok"),
    (CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
    (b"HTTP/1.1 200 OK\r\n\r\nok", b"ok"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(ZIPPED), ZIPPED),
        b"hello" * 100,
    ),
    (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n%b" % gzip.compress(ZIPPED, mtime=0),
        b"hello" * 100,
    ),
]


@pytest.mark.parametrize(("response", "body"), BODIES)
@pytest.mark.parametrize("piece_bytes", [1 << 20, 1])
def test_bodies_are_read_however_they_are_framed_and_cut(response: bytes, body: bytes, piece_bytes: int) -> None:
    async def test(_: RawServer, endpoint: Endpoint) -> None:
        assert await post(endpoint) == body

    run(lambda: RawServer([response], piece_bytes=piece_bytes, is_closing=True), test)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"", "ended the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "ended the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "not complete"),
        (CHUNKED + b"2\r\nok\r\n", "ended the connection"),
        (CHUNKED + b"3\r\nok", "not complete"),
        (CHUNKED + b"-1\r\nok", "chunk"),
        (CHUNKED + b"0x1\r\no\r\n0\r\n\r\n", "chunk"),
        (CHUNKED + b"1\r\nok\r\n0\r\n\r\n", "chunk"),
        (CHUNKED + b"1" * 20_000, "too long"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"HTTP/2 200 OK\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\nSpace : x\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\nMcp-Session-Id: a\rX: b\r\n\r\n", "header"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "content-length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer-encoding"),
    ],
)
def test_invalid_responses_are_errors(response: bytes, words: str) -> None:
    async def test(_: RawServer, endpoint: Endpoint) -> None:
        with pytest.raises(UpstreamFailed, match=words) as raised:
            await post(endpoint)
        assert "it may have done what it was asked to" in str(raised.value)

    run(lambda: RawServer([response], is_closing=True), test)


@pytest.mark.parametrize(
    ("response", "connection_count"),
    [
        (OK, 1),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", 1),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", 1),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 3),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 3),
        # Bytes behind a response could be taken for the next response.
        (OK + OK, 3),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n", 3),
    ],
)
def test_connections_are_used_again_only_if_nothing_is_left_on_them(response: bytes, connection_count: int) -> None:
    async def test(server: RawServer, endpoint: Endpoint) -> None:
        for _ in range(3):
            assert await post(endpoint) == b"ok"
        assert server.connection_count == connection_count

    run(lambda: RawServer([response] * 3), test)


def test_requests_at_once_have_connections_of_their_own() -> None:
    async def test(server: RawServer, endpoint: Endpoint) -> None:
        assert await asyncio.gather(*(post(endpoint) for _ in range(4))) == [b"ok"] * 4
        assert server.connection_count == 4
        assert await asyncio.gather(*(post(endpoint) for _ in range(4))) == [b"ok"] * 4
        assert server.connection_count == 4

    run(lambda: RawServer([OK] * 8), test)


def test_an_idle_connection_that_the_server_ends_is_not_used_again() -> None:
    async def test(server: RawServer, endpoint: Endpoint) -> None:
        for number in range(1, 4):
            assert await post(endpoint) == b"ok"
            while endpoint._idle and endpoint._idle[0][1].is_usable:
                await asyncio.sleep(0)
            assert server.connection_count == number

    run(lambda: RawServer([OK] * 3, is_closing=True), test)


def test_the_end_of_a_connection_is_noticed_after_a_body_that_was_all_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "_READ_BYTES", 100)
    monkeypatch.setattr(connection_module, "_IDLE_TIMEOUT_SECONDS", 600)

    async def test(_: RawServer, endpoint: Endpoint) -> None:
        assert await post(endpoint) == b"x" * 200
        connection = endpoint._idle[0][1]
        await wait_until_async(lambda: not connection.is_usable)

    run(lambda: RawServer([CHUNKED + b"c8\r\n" + b"x" * 200 + b"\r\n0\r\n\r\n"], is_closing=True), test)


@pytest.mark.parametrize("rest", [b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n", b"0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n"])
def test_small_chunks_do_not_block_the_loop(rest: bytes) -> None:
    async def test(_: RawServer, endpoint: Endpoint) -> None:
        response = await endpoint.open("POST", endpoint.url, {}, b"{}")
        await wait_until_async(lambda: len(response._stream.buffer) == len(rest))
        reading = asyncio.create_task(read(response))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 20
        assert set(reading.result()) <= set(b"x")

    run(lambda: RawServer([CHUNKED + rest]), test)


def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_IDLE_TIMEOUT_SECONDS", 0.01)

    async def test(server: RawServer, endpoint: Endpoint) -> None:
        assert await post(endpoint) == b"ok"
        await asyncio.wait_for(server.ended.wait(), 30)

    run(lambda: RawServer([OK]), test)


@pytest.mark.parametrize("response", [b"", b"HTTP/1.1 200 OK\r\n\r\nhe"])
def test_a_cancelled_exchange_ends_its_connection(response: bytes) -> None:
    async def test(server: RawServer, endpoint: Endpoint) -> None:
        task = asyncio.create_task(post(endpoint))
        while not server.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.ended.wait(), 30)

    run(lambda: RawServer([response]), test)


def test_a_server_that_ends_the_tls_handshake_is_an_error_with_a_reason() -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.close()

    async def test() -> None:
        async with await asyncio.start_server(end, "127.0.0.1", 0) as listener:
            url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
            with (
                contextlib.closing(Endpoint(url)) as endpoint,
                pytest.raises(UpstreamFailed, match=r"cannot be reached: [^;]+; check the URL"),
            ):
                await post(endpoint)

    asyncio.run(test())


def test_large_bodies_are_sent_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.write(b"s" * 3_000_000)

    async def test(server: RawServer, endpoint: Endpoint) -> None:
        for body in (spool, b"b" * 3_000_000, bytearray(b"c")):
            assert await post(endpoint, body) == b"ok"
        sent = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
        assert sent == [b"s" * 3_000_000, b"b" * 3_000_000, b"c"]

    run(lambda: RawServer([OK] * 3), test)


TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig"


@pytest.mark.parametrize("response", [TOO_LARGE, b"HTTP/1.1 100 Continue\r\n\r\n" + TOO_LARGE])
@pytest.mark.parametrize("reads_on", [True, False])
def test_a_refusal_before_the_end_of_the_request_is_read(response: bytes, reads_on: bool) -> None:
    async def test(server: RawServer, endpoint: Endpoint) -> None:
        server.ignores_bodies, server.reads_on = True, reads_on
        async with asyncio.timeout(30):
            response = await endpoint.open("POST", endpoint.url, {}, b"x" * 30_000_000)
            assert (response.status, await read(response)) == (413, b"big")
        # The server would take the rest of the body for another request.
        assert endpoint._idle == []

    run(lambda: RawServer([response]), test)


def test_a_request_is_sent_whole_although_its_response_comes_first() -> None:
    body = b"x" * 30_000_000

    async def test(server: RawServer, endpoint: Endpoint) -> None:
        server.ignores_bodies = True
        assert await post(endpoint, body) == b"ok"
        connection = endpoint._idle[0][1]
        await wait_until_async(lambda: not connection._stream.transport.get_write_buffer_size())
        endpoint.close()
        await asyncio.wait_for(server.ended.wait(), 30)
        assert server.requests[0].endswith(b"\r\n\r\n" + body)

    run(lambda: RawServer([OK]), test)


def test_headers_are_merged() -> None:
    async def test() -> None:
        server = RawServer([OK])
        async with serve(server) as address:
            url = f"{address.replace('//', '//user:p%40ss@')}/a b?q=ä".replace(" ", "%20")
            with contextlib.closing(Endpoint(url, [("X-Key", "1"), ("x-key", "2"), ("Accept", "x")])) as endpoint:
                await post(endpoint, headers={"accept": "y", "mcp-session-id": "\udcff"})
        first, *_ = server.requests[0].split(b"\r\n")
        assert first == b"POST /a%20b?q=%C3%A4 HTTP/1.1"
        assert b"\r\nmcp-session-id: \xff\r\n" in server.requests[0]
        server.requests[0] = server.requests[0].replace(b"\xff", b"")
        (headers,) = server.headers
        assert headers["host"] == address.removeprefix("http://")
        assert headers["authorization"] == "Basic dXNlcjpwQHNz"
        assert (headers["x-key"], headers["accept"]) == ("1, 2", "y")
        assert headers["content-length"] == "2"

    asyncio.run(test())


def test_cookies_are_sent_back_where_they_belong() -> None:
    set_cookies = (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: route=a; Path=/mcp; HttpOnly\r\nSet-Cookie: other=b; Path=/elsewhere\r\n"
        b"Set-Cookie: secure=c; Secure\r\nContent-Length: 2\r\n\r\nok"
    )

    async def test(server: RawServer, endpoint: Endpoint) -> None:
        for _ in range(2):
            assert await post(endpoint) == b"ok"
        assert [headers.get("cookie") for headers in server.headers] == [None, "route=a"]

    run(lambda: RawServer([set_cookies, OK]), test)


def set_proxy(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)


def test_a_proxy_forwards_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: RawServer, endpoint: Endpoint) -> None:
        set_proxy(monkeypatch, endpoint.url.origin.replace("//", "//us%20er:pw@"))
        with contextlib.closing(Endpoint("http://user:secret@nowhere.invalid/mcp?a=b")) as proxied:
            for _ in range(2):
                assert await post(proxied) == b"ok"
        assert server.connection_count == 1
        assert server.requests[1].startswith(b"POST http://nowhere.invalid/mcp?a=b HTTP/1.1\r\n")
        headers = server.headers[1]
        assert headers["host"] == "nowhere.invalid"
        assert headers["authorization"] == "Basic dXNlcjpzZWNyZXQ="
        assert headers["proxy-authorization"] == "Basic dXMgZXI6cHc="

    run(lambda: RawServer([OK] * 2), test)


@pytest.mark.parametrize(
    ("proxy", "words"), [("socks5://127.0.0.1:1", "no http://"), ("http://[", "no http://"), ("{}", "HTTP 407")]
)
def test_a_proxy_that_does_not_work_is_an_error(proxy: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(_: RawServer, endpoint: Endpoint) -> None:
        set_proxy(monkeypatch, proxy.format(endpoint.url.origin))
        with (
            contextlib.closing(Endpoint("https://nowhere.invalid/mcp")) as proxied,
            pytest.raises(UpstreamFailed, match=words),
        ):
            await post(proxied)

    run(lambda: RawServer([b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"]), test)
