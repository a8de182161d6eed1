"""The uvicorn server of `forebay serve --http`: start, connection limits and graceful shutdown."""

import asyncio
import contextlib
import functools
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from mcp.server import Server
from sse_starlette.sse import AppStatus
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from forebay.errors import InvalidArgument
from forebay.http.app import MCP_PATH, make_app

__all__ = ["HTTPConnection", "run_http"]

if TYPE_CHECKING:
    from forebay.config.options import Settings


_log = logging.getLogger("forebay")

_POLL_INTERVAL_SECONDS = 0.05
_BACKLOG = 1024


def _do_nothing() -> None: ...


def run_http(
    server: Server[Any],
    settings: "Settings",
    *,
    on_shutdown: Callable[[], None] = _do_nothing,
    on_closed: Callable[[], None] = _do_nothing,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    Calls in flight may finish within `shutdown_grace_seconds`. `on_shutdown` is called when the signal arrives, to end
    open streams; `on_closed` when all connections are closed (threads may still run).
    Raises `InvalidArgument` if the address or the token file cannot be used.
    """
    calls = _CallCounter(make_app(server, settings))
    with _open_listener(settings) as listener, _restore_signal_handlers(), _keep_streams_open():
        uvicorn_server = _Server(_make_uvicorn_config(calls, settings), calls, on_shutdown, on_closed)
        _print_address(listener)
        try:
            uvicorn_server.run([listener])
        except SystemExit:
            # The server could not start; uvicorn has logged the reason.
            return 1
        return 0


class _CallCounter:
    """Middleware that counts the POST requests in flight."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_call = scope["type"] == "http" and scope["method"] == "POST"
        self.in_flight += is_call
        try:
            # The client is gone: there is nobody to answer.
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, receive, send)
        finally:
            self.in_flight -= is_call


class _Server(uvicorn.Server):
    """Uvicorn server that, on shutdown, closes notification streams as soon as no call is in flight."""

    def __init__(
        self,
        config: uvicorn.Config,
        calls: _CallCounter,
        on_shutdown: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._calls = calls
        self._on_shutdown = on_shutdown
        self._on_closed = on_closed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_shutdown()
        end_task = asyncio.create_task(self._end_streams())
        await super().shutdown(sockets)
        end_task.cancel()
        self._on_closed()

    async def _end_streams(self) -> None:
        while self._calls.in_flight:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        AppStatus.should_exit = True


def _make_uvicorn_config(app: ASGIApp, settings: "Settings") -> uvicorn.Config:
    connection = functools.partial(
        HTTPConnection, read_timeout=settings.read_timeout_seconds, max_connections=settings.max_connections
    )
    return uvicorn.Config(
        app,
        http=connection,  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        # Our own logging goes to stderr. An access log would show query strings.
        log_config=None,
        access_log=False,
        # X-Forwarded headers are not trusted, because any client could forge them.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(settings.read_timeout_seconds),
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_seconds),
    )


def _open_listener(settings: "Settings") -> socket.socket:
    if settings.http is None:
        raise InvalidArgument("there is no address to listen on; give --http 127.0.0.1:8000")
    host, port = settings.http
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidArgument(f"{host}:{port} cannot be listened on: {error.strerror}; give another --http") from None


def _print_address(listener: socket.socket) -> None:
    """Write the address to stderr; not as a log record, because the default level WARNING would hide it."""
    if _log.isEnabledFor(logging.WARNING) and sys.stderr is not None:
        # stderr may be closed.
        with contextlib.suppress(OSError):
            sys.stderr.write(f"forebay: listening on http://{_format_address(listener.getsockname())}{MCP_PATH}\n")
            sys.stderr.flush()


def _format_address(address: Any) -> str:
    host, port, *_ = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def _keep_streams_open() -> Iterator[None]:
    """Keep sse-starlette from closing streams at SIGTERM or SIGINT: calls in flight still need them."""
    AppStatus.enable_automatic_graceful_drain = False
    try:
        yield
    finally:
        AppStatus.enable_automatic_graceful_drain, AppStatus.should_exit = True, False


@contextlib.contextmanager
def _restore_signal_handlers() -> Iterator[None]:
    """Keep uvicorn from raising the signal again after shutdown: the caller still has to close upstreams."""
    previous_handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


_UNAVAILABLE_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)
_TIMEOUT_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HTTPConnection(H11Protocol):
    """Uvicorn connection with a deadline for reading a request and a limit on open connections."""

    def __init__(self, *args: Any, read_timeout: float, max_connections: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_timeout, self._max_connections = read_timeout, max_connections
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            self._close(_UNAVAILABLE_RESPONSE)
        else:
            self._start_deadline()

    def data_received(self, data: bytes) -> None:
        # Ignore data that arrives after the connection was closed.
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._update_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _update_deadline(self) -> None:
        """Start the deadline at the first byte of a request, and cancel it after the last byte of the body."""
        if not self._is_reading_request() or self.transport.is_closing():
            self._cancel_deadline()
        elif self._deadline is None:
            self._start_deadline()

    def _is_reading_request(self) -> bool:
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self._read_timeout, self._on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        has_response = self.conn.their_state is h11.SEND_BODY and self.cycle.response_started
        # No 408 if the client has sent nothing yet: it would take the 408 for the response to its next request.
        self._close(_TIMEOUT_RESPONSE if self._is_reading_request() and not has_response else b"")

    def _close(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
