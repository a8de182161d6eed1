"""The uvicorn server of `forebay serve --http`: start, connection limits and graceful shutdown."""

import asyncio
import contextlib
import ctypes
import functools
import logging
import math
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from forebay.errors import InvalidArgument
from forebay.http.app import MCP_PATH, App
from forebay.http.connection import HTTPConnection
from forebay.http.dashboard import DASHBOARD_PATH, Dashboard
from forebay.http.transport import Backend
from forebay.system.processes import STOP_SIGNALS

__all__ = ["run_http"]

if TYPE_CHECKING:
    from forebay.config.options import Settings


_log = logging.getLogger("forebay")

_POLL_INTERVAL_SECONDS = 0.05

_DEFAULT_GRACE_SECONDS = 5.0
"""How long calls in flight may take at shutdown, if no time is configured."""

_BACKLOG = 1024

# `socket` has no names for these.
_SO_ATTACH_FILTER = 26
_BPF_RETURN = 0x06

_BACKLOG_SECONDS = 0.5
"""How long the connections in the backlog have for a request before the server stops, if it waits at all."""


def _do_nothing() -> None: ...


def run_http(
    backend: Backend,
    settings: "Settings",
    *,
    dashboard: Dashboard | None = None,
    on_shutdown: Callable[[], None] = _do_nothing,
    on_closed: Callable[[], None] = _do_nothing,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, and return the exit code.

    After the signal calls are still accepted for `shutdown_delay_seconds`, while `/ready` answers that they should go
    elsewhere. Calls in flight may then finish within `shutdown_grace_seconds`. `on_shutdown` is called when the signal
    arrives, to end open streams; `on_closed` when all connections are closed (threads may still run).
    Raises `InvalidArgument` if the address or the token file cannot be used.
    """
    app = App(backend, settings, dashboard)
    with _open_listener(settings) as listener, _restore_signal_handlers():
        uvicorn_server = _Server(_make_uvicorn_config(app, settings), app, settings, on_shutdown, on_closed)
        # Uvicorn handles the other two. Under `nohup`, SIGHUP stays ignored.
        for number in set(STOP_SIGNALS) - {signal.SIGTERM, signal.SIGINT}:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, uvicorn_server.handle_exit)
        _print_addresses(listener, dashboard)
        try:
            uvicorn_server.run([listener])
        except SystemExit:
            # The server could not start; uvicorn has logged the reason.
            return 1
        return 0


class _Server(uvicorn.Server):
    """Uvicorn server that, on shutdown, closes notification streams as soon as no call is in flight."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: App,
        settings: "Settings",
        on_shutdown: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._app = app
        self._delay_seconds = settings.shutdown_delay_seconds
        self._grace_seconds = _get_grace_seconds(settings)
        self._on_shutdown = on_shutdown
        self._on_closed = on_closed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.readiness.is_draining = True
        if self._delay_seconds:
            await self._wait_for_load_balancers(sockets or [])
        self._on_shutdown()
        tasks = [asyncio.create_task(self._end_streams()), asyncio.create_task(self._end_calls())]
        await super().shutdown(sockets)
        for task in tasks:
            task.cancel()
        self._on_closed()

    async def _wait_for_load_balancers(self, listeners: list[socket.socket]) -> None:
        deadline = time.monotonic() + self._delay_seconds
        # A second signal ends the wait.
        while not self.force_exit and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        self.force_exit = False
        # A balancer that does not ask `/ready` goes on until it is refused. To close a socket resets the connections in
        # its backlog, so no more get there, and those that are there are answered.
        for listener in listeners:
            _drop_new_connections(listener)
        await asyncio.sleep(_BACKLOG_SECONDS)

    async def _end_calls(self) -> None:
        await asyncio.sleep(self._grace_seconds)
        self._app.end_calls()

    async def _end_streams(self) -> None:
        while self._app.calls_in_flight:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        await self._app.end_streams()


def _make_uvicorn_config(app: App, settings: "Settings") -> uvicorn.Config:
    connection = functools.partial(
        HTTPConnection,
        read_timeout=settings.read_timeout_seconds,
        max_connections=settings.max_connections,
        requires_token=settings.has_authentication,
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
        # Before that, `end_calls` answers the calls that are left. Uvicorn would answer with an error of its own.
        timeout_graceful_shutdown=math.ceil(_get_grace_seconds(settings)) + 1,
    )


def _get_grace_seconds(settings: "Settings") -> float:
    """Return how long calls in flight may take at shutdown."""
    seconds = settings.shutdown_grace_seconds
    return _DEFAULT_GRACE_SECONDS if seconds is None else seconds


def _open_listener(settings: "Settings") -> socket.socket:
    if settings.http is None:
        raise InvalidArgument("there is no address to listen on; give --http 127.0.0.1:8000")
    host, port = settings.http
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidArgument(f"{host}:{port} cannot be listened on: {error.strerror}; give another --http") from None


def _drop_new_connections(listener: socket.socket) -> None:
    """Ignore attempts to connect. Clients repeat them, and are refused once the socket is closed."""
    if not sys.platform.startswith("linux"):
        # The backlog may still have a connection or two when the socket is closed.
        listener.listen(0)
        return
    # A filter of one instruction that accepts no packet; connections that are open have none.
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(instruction))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _print_addresses(listener: socket.socket, dashboard: Dashboard | None) -> None:
    """Write the addresses to stderr; not as log records, because the default level WARNING would hide them."""
    base = f"http://{_format_address(listener.getsockname())}"
    lines = [f"forebay: listening on {base}{MCP_PATH}"]
    if dashboard is not None and dashboard.link_token is not None:
        lines = [f"forebay: open {base}{DASHBOARD_PATH}?token={dashboard.link_token.token}"]
    elif dashboard is not None:
        lines.append(f"forebay: the dashboard is at {base}{DASHBOARD_PATH}")
    if _log.isEnabledFor(logging.WARNING) and sys.stderr is not None:
        # stderr may be closed.
        with contextlib.suppress(OSError):
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()


def _format_address(address: Any) -> str:
    host, port, *_ = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextlib.contextmanager
def _restore_signal_handlers() -> Iterator[None]:
    """Keep uvicorn from raising the signal again after shutdown: the caller still has to close upstreams."""
    previous_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
