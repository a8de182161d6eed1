"""HTTP/1.1 connections in an event loop: each carries one exchange at a time."""

import asyncio
import base64
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar, cast

from forebay.errors import UpstreamFailed
from forebay.proxy.http.urls import URL, find_proxy
from forebay.wire.framing import Message, Spool
from forebay.wire.http_bodies import Inflater, is_compression

__all__ = ["CONNECT_TIMEOUT_SECONDS", "Connection", "Response", "connect", "make_basic_authorization", "run_in_thread"]

CONNECT_TIMEOUT_SECONDS = 10.0

_MAX_HEAD_BYTES = 100 * 1024
"""Maximum bytes of the status line and headers of a response."""

_MAX_LINE_BYTES = 16 * 1024
"""Maximum bytes of a line between chunks."""

_READ_BYTES = 256 * 1024
"""Maximum bytes of a body that are read at once. If there are more in memory, the connection is not read."""

_LINES_PER_TURN = 512
"""How many lines between chunks may be read before other tasks get a turn."""

_SEND_BYTES = 64 * 1024
"""Bytes of a large body that are sent at once."""

_KEEPALIVE_OPTIONS = [
    (getattr(socket, level), getattr(socket, name), value)
    for level, name, value in (
        ("SOL_SOCKET", "SO_KEEPALIVE", 1),
        ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
        ("IPPROTO_TCP", "TCP_KEEPINTVL", 15),
        ("IPPROTO_TCP", "TCP_KEEPCNT", 4),
    )
    if hasattr(socket, name)
]
"""Socket options that detect a vanished server on a stream that may be silent for hours."""

_HEAD_END_PATTERN = re.compile(rb"\r?\n\r?\n")
_LINE_END_PATTERN = re.compile(rb"\r?\n")
_FOLD_PATTERN = re.compile(r"\n[ \t]+")
"""Start of a line that continues a header."""
_STATUS_PATTERN = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?")
_HEADER_PATTERN = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\0]*?)[ \t]*")
_INTERIM_PATTERN = re.compile(rb"HTTP/1\.[01] 1(?!01)")
_REFUSAL_PATTERN = re.compile(rb"HTTP/1\.[01] [3-9]")
_CHUNK_SIZE_PATTERN = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")

_T = TypeVar("_T")


class _Stream(asyncio.Protocol):
    """Bytes of a connection, with waiting and flow control in both directions."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.is_ended = False
        self._loop = asyncio.get_running_loop()
        self._end_error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_reading_paused = self.is_writing_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > _READ_BYTES and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()
        _wake(self._reader)
        _wake(self._writer)

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended = True
        self._end_error = self._end_error or exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        self.is_writing_paused = True

    def resume_writing(self) -> None:
        self.is_writing_paused = False
        _wake(self._writer)

    async def wait_writable(self) -> None:
        """Wait until most of the written bytes are sent, something was received, or the connection has ended."""
        self._writer = self._loop.create_future()
        await self._writer

    async def wait_data(self) -> bool:
        """Wait for more bytes; return `False` if there are no more. Raises `UpstreamFailed` if the connection broke."""
        if self.is_ended:
            if self._end_error is not None:
                raise _make_end_error(str(self._end_error))
            return False
        self._resume_reading()
        self._reader = self._loop.create_future()
        await self._reader
        return True

    def _resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()

    async def read_through(self, end_pattern: re.Pattern[bytes], max_bytes: int) -> bytes:
        """Return the bytes before a match of a pattern, and skip the match. Raises `UpstreamFailed`."""
        start = 0
        while (match := end_pattern.search(self.buffer, start)) is None:
            if len(self.buffer) > max_bytes:
                raise _make_end_error("its headers are too long")
            start = max(len(self.buffer) - 3, 0)
            if not await self.wait_data():
                raise _make_end_error("it was closed")
        data = bytes(memoryview(self.buffer)[: match.start()])
        self._drop(match.end())
        return data

    async def read(self, max_bytes: int) -> bytes:
        """Return some bytes; none at the end of the connection. Raises `UpstreamFailed` if the connection broke."""
        while not self.buffer:
            if not await self.wait_data():
                return b""
        data = bytes(memoryview(self.buffer)[:max_bytes])
        self._drop(max_bytes)
        return data

    def _drop(self, count: int) -> None:
        del self.buffer[:count]
        if not self.buffer:
            # Also behind the last byte of a response, so that the end of an idle connection is noticed.
            self._resume_reading()


def _wake(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _make_end_error(detail: str) -> UpstreamFailed:
    text = f"the server ended the connection before it answered ({detail})"
    return UpstreamFailed(f"{text}; it may have done what it was asked to")


class Response:
    """Response to a request, and an iterator over its decompressed body."""

    def __init__(self, stream: _Stream, release: Callable[[bool], None], head: bytes) -> None:
        """Parse the head of a response. `release` is called with whether the connection can be used again."""
        self._stream = stream
        self._release = release
        self._is_closed = False
        text = _FOLD_PATTERN.sub(" ", head.decode(errors="surrogateescape").replace("\r\n", "\n"))
        first, *lines = text.split("\n")
        status = _STATUS_PATTERN.fullmatch(first)
        if status is None:
            raise _make_end_error("it sent what is no HTTP response")
        self.status = int(status[2])
        self.headers: dict[str, str] = {}
        """The headers by their names in lower case; values of the same name are joined."""
        self.cookies: list[str] = []
        for line in lines:
            header = _HEADER_PATTERN.fullmatch(line)
            if header is None:
                raise _make_end_error("it sent an invalid header")
            name, value = header[1].lower(), header[2]
            if name == "set-cookie":
                self.cookies.append(value)
            self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        options = self.headers.get("connection", "").lower()
        self._is_reusable = "close" not in options and (status[1] == "1" or "keep-alive" in options)
        self._set_framing()
        self._pieces: Iterator[bytes] = iter(())
        self._inflaters = [Inflater(name) for name in self._iter_codings()]

    def _set_framing(self) -> None:
        """Find out how many bytes of the body are left in the stream, and in its current chunk."""
        self._is_chunked = False
        self._line_count = 0
        self._left: int | None = 0
        """Bytes left of the body or of the current chunk; `None` if the body ends with the connection."""
        coding = self.headers.get("transfer-encoding", "").lower()
        lengths = {length.strip() for length in self.headers.get("content-length", "").split(",")} - {""}
        if self.status in (204, 304):
            self.is_complete = True
            return
        if coding:
            if coding != "chunked":
                raise _make_end_error("its transfer-encoding is not supported")
            self._is_chunked = True
            self._is_reusable &= not lengths
        elif not lengths:
            self._left = None
            self._is_reusable = False
        elif len(lengths) == 1 and re.fullmatch(r"[0-9]{1,18}", length := lengths.pop()):
            self._left = int(length)
        else:
            raise _make_end_error("its content-length is invalid")
        self.is_complete = self._left == 0 and not self._is_chunked

    def _iter_codings(self) -> Iterator[str]:
        """Yield the compressions of the body, the outermost first."""
        for coding in reversed(self.headers.get("content-encoding", "").split(",")):
            name = coding.strip().lower()
            if is_compression(name):
                yield name

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def __aiter__(self) -> "Response":
        return self

    async def __anext__(self) -> bytes:
        """Return the next part of the decompressed body. Raises `UpstreamFailed` if it is broken or truncated."""
        if not self._inflaters:
            if chunk := await self._read_raw():
                return chunk
            raise StopAsyncIteration
        while True:
            try:
                if piece := next(self._pieces, b""):
                    # A few bytes may expand to very many, which must not block the loop.
                    await asyncio.sleep(0)
                    return piece
            except ValueError as error:
                raise UpstreamFailed(f"the request {error}") from None
            if self.is_complete:
                raise StopAsyncIteration
            self._pieces = _inflate(self._inflaters, await self._read_raw(), is_last=self.is_complete)

    async def _read_raw(self) -> bytes:
        """Return a part of the body as it was sent; no bytes at its end."""
        if self._is_chunked and not self._left and not self.is_complete:
            await self._begin_chunk()
        if self.is_complete:
            return b""
        chunk = await self._stream.read(_READ_BYTES if self._left is None else min(self._left, _READ_BYTES))
        if self._left is None:
            self.is_complete = not chunk
            return chunk
        if not chunk:
            raise _make_end_error("its response is not complete")
        self._left -= len(chunk)
        self.is_complete = not self._left and not self._is_chunked
        return chunk

    async def _begin_chunk(self) -> None:
        # A line end follows each chunk.
        end = await self._read_line() if self._line_count else b""
        size = _CHUNK_SIZE_PATTERN.fullmatch(await self._read_line())
        if end or size is None:
            raise _make_end_error("it sent an invalid chunk")
        self._left = int(size[1], 16)
        if not self._left:
            # Trailers and an empty line follow.
            while await self._read_line():
                pass
            self.is_complete = True

    async def _read_line(self) -> bytes:
        self._line_count += 1
        if self._line_count % _LINES_PER_TURN == 0:
            # Many small chunks may be in memory, where nothing has to be waited for.
            await asyncio.sleep(0)
        return await self._stream.read_through(_LINE_END_PATTERN, _MAX_LINE_BYTES)

    def close(self) -> None:
        """Give the connection back. If the body is not read to its end, the connection is aborted."""
        if not self._is_closed:
            self._is_closed = True
            self._release(self.is_complete and self._is_reusable)


def _inflate(inflaters: Iterable[Inflater], raw: bytes, *, is_last: bool) -> Iterator[bytes]:
    """Yield the decompressed bytes of a part of a body. Raises `ValueError`."""
    pieces = iter([raw])
    for inflater in inflaters:
        pieces = _feed(inflater, pieces, is_last)
    return pieces


def _feed(inflater: Inflater, pieces: Iterable[bytes], is_last: bool) -> Iterator[bytes]:
    for piece in pieces:
        yield from inflater.feed(piece)
    if is_last:
        yield inflater.finish()


class Connection:
    """Connection to a server, perhaps through a proxy."""

    def __init__(self, stream: _Stream, origin: str, proxy: URL | None = None) -> None:
        """Use a stream. `proxy` is the proxy that forwards each request, which a tunnel does not."""
        self._stream = stream
        self.origin = origin
        """Scheme, host and port of the server."""
        self._target_prefix = "" if proxy is None else origin
        self._proxy_headers = {} if proxy is None else _make_proxy_headers(proxy)

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent: the server has neither ended the connection nor sent more bytes."""
        return not self._stream.is_ended and not self._stream.buffer and not self._stream.transport.is_closing()

    def abort(self) -> None:
        self._stream.transport.abort()

    async def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Message | None,
        release: Callable[[bool], None],
    ) -> Response:
        """Send a request and return the response, whose body is not read yet. Raises `UpstreamFailed`.

        Closing the response calls `release` with whether the connection can be used again.
        """
        lines = [f"{method} {self._target_prefix}{target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**headers, **self._proxy_headers}.items()]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        is_sent = await self._send(("\r\n".join(lines) + "\r\n\r\n").encode(errors="surrogateescape"), body)
        while True:
            head = await self._stream.read_through(_HEAD_END_PATTERN, _MAX_HEAD_BYTES)
            response = Response(self._stream, lambda is_reusable: release(is_reusable and is_sent), head)
            if response.status >= 200 or response.status == 101:
                return response

    async def _send(self, head: bytes, body: Message | None) -> bool:
        """Send a request; return `False` if the server did not want all of it."""
        stream, transport = self._stream, self._stream.transport
        if body is None or (not isinstance(body, Spool) and len(body) <= _SEND_BYTES):
            transport.write(head if body is None else head + body)
            return True
        transport.write(head)
        for chunk in _iter_chunks(body):
            while True:
                if stream.is_ended or self._is_refused():
                    return False
                if not stream.is_writing_paused:
                    break
                await stream.wait_writable()
            transport.write(chunk)
        return True

    def _is_refused(self) -> bool:
        """Return whether an error or a redirect has begun to arrive. A server may succeed before it has read all."""
        buffer = self._stream.buffer
        while _INTERIM_PATTERN.match(buffer) and (end := _HEAD_END_PATTERN.search(buffer)):
            del buffer[: end.end()]
        return _REFUSAL_PATTERN.match(buffer) is not None


def _iter_chunks(body: Message) -> Iterator[bytes | memoryview]:
    if isinstance(body, Spool):
        return body.chunks()
    view = memoryview(body)
    return (view[start : start + _SEND_BYTES] for start in range(0, len(view), _SEND_BYTES))


def _make_proxy_headers(proxy: URL) -> dict[str, str]:
    return {} if proxy.credentials is None else {"proxy-authorization": make_basic_authorization(*proxy.credentials)}


def make_basic_authorization(user: str, password: str) -> str:
    """Return the value of an Authorization header with a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


async def connect(url: URL, get_ssl_context: Callable[[], ssl.SSLContext]) -> Connection:
    """Connect to a server, through a proxy if the environment names one. Raises `OSError` or `UpstreamFailed`."""
    proxy_url = find_proxy(url)
    try:
        proxy = None if proxy_url is None else URL.parse(proxy_url)
    except ValueError:
        proxy = None
    if proxy_url is not None and (proxy is None or proxy.scheme not in ("http", "https") or not proxy.host):
        raise UpstreamFailed(
            "the proxy that the environment names is no http:// or https:// URL; "
            "check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
        )
    hop = proxy or url

    def open_socket() -> tuple[socket.socket, ssl.SSLContext | None]:
        # Loading the certificates is slow.
        context = get_ssl_context() if "https" in (url.scheme, hop.scheme) else None
        return socket.create_connection((hop.host, hop.port), CONNECT_TIMEOUT_SECONDS), context

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
        raw_socket, context = await run_in_thread(open_socket, lambda opened: opened[0].close())
        stream = _Stream()
        try:
            for option in _KEEPALIVE_OPTIONS:
                raw_socket.setsockopt(*option)
            raw_socket.setblocking(False)
            hop_context = context if hop.scheme == "https" else None
            host = hop.host if hop_context else None
            await loop.create_connection(lambda: stream, sock=raw_socket, ssl=hop_context, server_hostname=host)
        except BaseException:
            raw_socket.close()
            raise
        if proxy is None or url.scheme == "http":
            return Connection(stream, url.origin, proxy)
        try:
            await _open_tunnel(stream, url, proxy)
            transport = await loop.start_tls(stream.transport, stream, context, server_hostname=url.host)  # type: ignore[arg-type]
        except BaseException:
            stream.transport.abort()
            raise
        stream.transport = cast("asyncio.Transport", transport)
        return Connection(stream, url.origin)


async def _open_tunnel(stream: _Stream, url: URL, proxy: URL) -> None:
    """Make a proxy forward all bytes to a server. Raises `UpstreamFailed`."""
    authority = f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"
    headers = {"host": authority, **_make_proxy_headers(proxy)}
    response = await Connection(stream, "").exchange("CONNECT", authority, headers, None, lambda _: None)
    if not response.is_success:
        raise UpstreamFailed(f"the proxy answered HTTP {response.status}; check HTTPS_PROXY")


async def run_in_thread(function: Callable[[], _T], discard: Callable[[_T], None] = lambda _: None) -> _T:
    """Return the result of a function that blocks. If the caller is cancelled, `discard` gets the result.

    Threads of an executor would delay the exit of the program, for example because of a slow name server.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
            return
        try:
            future.set_result(result)
        except InvalidStateError:
            discard(result)

    threading.Thread(target=run, name="forebay-http", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancel() and future.exception() is None:
            discard(future.result())
        raise
