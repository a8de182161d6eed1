"""Running a server over HTTP, until someone ends it."""

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

import uvicorn
from mcp.server import Server
from sse_starlette.sse import AppStatus
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from forebay.errors import InvalidArgument
from forebay.http.app import PATH, http_app
from forebay.http.connection import Connection

if TYPE_CHECKING:
    from forebay.config.options import Settings

__all__ = ["run_http"]

_log = logging.getLogger("forebay")

_TICK = 0.05
_BACKLOG = 1024


def _nothing() -> None: ...


def run_http(
    server: Server[Any],
    settings: "Settings",
    *,
    ending: Callable[[], None] = _nothing,
    closed: Callable[[], None] = _nothing,
) -> int:
    """Serves until SIGTERM or SIGINT; calls in flight may finish within `shutdown_grace_seconds`. Gives the exit code.

    `ending` is called as soon as it is told to end, to answer whoever only listens, and `closed` when all is closed,
    but for threads that may still run.
    Raises `InvalidArgument` if the address or the file of tokens cannot be used.
    """
    calls = _Calls(http_app(server, settings))
    with _listener(settings) as listener, _returning(), _streams_kept():
        running = _Running(_config(calls, settings), calls, ending, closed)
        _say_where(listener)
        try:
            running.run([listener])
        except SystemExit:
            # A server that could not start, of which uvicorn has logged why.
            return 1
        return 0


class _Calls:
    """Knows how many calls are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_call = scope["type"] == "http" and scope["method"] == "POST"
        self.in_flight += is_call
        try:
            # Nobody is left to be told.
            with contextlib.suppress(ClientDisconnect):
                await self._app(scope, receive, send)
        finally:
            self.in_flight -= is_call


class _Running(uvicorn.Server):
    """Ends the streams on which nothing but news is sent as soon as no call is left: nothing else would end them."""

    def __init__(
        self, config: uvicorn.Config, calls: _Calls, ending: Callable[[], None], closed: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._calls = calls
        self._ending = ending
        self._closed = closed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        ending = asyncio.create_task(self._end_streams())
        await super().shutdown(sockets)
        ending.cancel()
        self._closed()

    async def _end_streams(self) -> None:
        while self._calls.in_flight:
            await asyncio.sleep(_TICK)
        AppStatus.should_exit = True


def _config(app: ASGIApp, settings: "Settings") -> uvicorn.Config:
    connection = functools.partial(
        Connection, read_timeout=settings.read_timeout_seconds, max_connections=settings.max_connections
    )
    return uvicorn.Config(
        app,
        http=connection,  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        # Ours goes to standard error; a list of requests would show what is in their queries.
        log_config=None,
        access_log=False,
        # Anyone could write into them who calls from elsewhere.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=math.ceil(settings.read_timeout_seconds),
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace_seconds),
    )


def _listener(settings: "Settings") -> socket.socket:
    if settings.http is None:
        raise InvalidArgument("there is no address to listen on; give --http 127.0.0.1:8000")
    host, port = settings.http
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidArgument(f"{host}:{port} cannot be listened on: {error.strerror}; give another --http") from None


def _say_where(listener: socket.socket) -> None:
    """On standard error, as whoever starts it waits for that; it is nothing to be warned of, and so is not logged."""
    if _log.isEnabledFor(logging.WARNING) and sys.stderr is not None:
        # Whoever closed it does not want to know.
        with contextlib.suppress(OSError):
            sys.stderr.write(f"forebay: listening on http://{_written(listener.getsockname())}{PATH}\n")
            sys.stderr.flush()


def _written(address: Any) -> str:
    host, port, *_ = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def _streams_kept() -> Iterator[None]:
    """Streams would end with the signal, and with them the answers to calls."""
    AppStatus.enable_automatic_graceful_drain = False
    try:
        yield
    finally:
        AppStatus.enable_automatic_graceful_drain, AppStatus.should_exit = True, False


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """uvicorn ends the process with the signal that ended it; there may be more to close."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
