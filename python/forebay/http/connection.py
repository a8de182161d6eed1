"""One HTTP connection of `forebay serve --http`: deadlines, limit on open connections and polite closing."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import h11
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HTTPConnection"]

_log = logging.getLogger("forebay")

_UNAVAILABLE_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)
_TIMEOUT_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HTTPConnection(H11Protocol):
    """Uvicorn connection with a deadline for reading a request and a limit on open connections.

    A connection whose client does not read its response is closed, since the response is kept in memory.

    At the limit, a new connection replaces the one that has been idle for longest; those that never sent a valid token
    go first. A connection with a request in flight is not replaced, and if there is no other, the new one is answered
    503. A request counts if its token is valid; without tokens, if it has arrived and its client reads the response.
    """

    def __init__(
        self, *args: Any, read_timeout: float, max_connections: int, requires_token: bool, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._read_timeout, self._max_connections = read_timeout, max_connections
        self._requires_token = requires_token
        self._deadline: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._is_authenticated = False
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does it only for sockets that were created with a protocol number, which `create_server` does not set.
        # Without it, the second part of a response waits for the client's delayed acknowledgement: 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(_LingeringTransport(transport, self._must_linger))  # type: ignore[arg-type]
        self._start_deadline()
        if self._count_open() > self._max_connections and not self._replace_another():
            self._close(_UNAVAILABLE_RESPONSE)

    def _count_open(self) -> int:
        return sum(isinstance(other, HTTPConnection) and not other.is_aborted for other in self.connections)

    def _replace_another(self) -> bool:
        """Close the connection that is the least loss. Return whether there is one."""
        others = (other for other in self.connections if isinstance(other, HTTPConnection) and other is not self)
        candidates = [other for other in others if not other.is_aborted and other.is_replaceable]
        if not candidates:
            return False
        min(candidates, key=lambda other: (other._is_authenticated, other._idle_since)).abort()
        return True

    @property
    def is_replaceable(self) -> bool:
        """Whether no request is in flight that counts."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        if self._has_user():
            return False
        return self._requires_token or self.conn.their_state is h11.SEND_BODY or self.flow.write_paused

    @property
    def is_aborted(self) -> bool:
        """Whether the connection is about to be dropped, without any further waiting for its client."""
        return self._transport.is_aborted

    def abort(self) -> None:
        """Close the connection now, even if the client does not read."""
        self._transport.abort()

    @property
    def _transport(self) -> "_LingeringTransport":
        return self.transport  # type: ignore[return-value]

    def _has_user(self) -> bool:
        return self.scope is not None and isinstance(self.scope.get("user"), AuthenticatedUser)

    def on_response_complete(self) -> None:
        self._is_authenticated = self._has_user()
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        # Ignore data that arrives after the connection was closed.
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._update_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_write_timer()

    def _start_write_timer(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self._read_timeout, self._check_writing, unsent_bytes)

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _check_writing(self, earlier_unsent_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < earlier_unsent_bytes:
            self._start_write_timer()
            return
        _log.warning(
            "forebay: a connection is closed: its client has read nothing of a response for %g s", self._read_timeout
        )
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._cancel_write_timer()
        super().connection_lost(exc)
        # After a reset, uvicorn would keep the connection until its keep-alive time is over.
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def shutdown(self) -> None:
        if self.transport.is_closing():
            self.abort()
        else:
            super().shutdown()

    def _must_linger(self) -> bool:
        """Return whether the client may still be sending a request, and would miss the response if we closed."""
        is_sending = self.conn.their_state in (h11.SEND_BODY, h11.ERROR)
        if is_sending and self._deadline is None:
            self._start_deadline()
        return is_sending

    def _update_deadline(self) -> None:
        """Start the deadline at the first byte of a request, and cancel it after the last byte of the body."""
        if self.transport.is_closing():
            # While the transport lingers, the deadline ends it.
            return
        if not self._is_reading_request():
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
        if self.transport.is_closing():
            self.abort()
            return
        has_response = self.conn.their_state is h11.SEND_BODY and self.cycle.response_started
        # No 408 if the client has sent nothing yet: it would take the 408 for the response to its next request.
        self._close(_TIMEOUT_RESPONSE if self._is_reading_request() and not has_response else b"")

    def _close(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self._transport.close_now()


class _LingeringTransport:
    """Transport that, on `close`, sends the response and an end of file, but goes on reading if `must_linger()`.

    Closing a socket with unread data resets the connection, and the reset may overtake the response. The owner drops
    what is read meanwhile, and calls `abort` if the client does not close in time.
    """

    def __init__(self, transport: asyncio.Transport, must_linger: Callable[[], bool]) -> None:
        self._transport = transport
        self._must_linger = must_linger
        self._is_lingering = False
        self.is_aborted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_lingering or self._transport.is_closing()

    def close(self) -> None:
        if self._transport.is_closing() or self._is_lingering:
            return
        if not self._must_linger():
            self.close_now()
            return
        self._is_lingering = True
        self._transport.resume_reading()
        self._transport.write_eof()

    def close_now(self) -> None:
        """Close after sending what is buffered, without reading on."""
        self._transport.close()

    def abort(self) -> None:
        self.is_aborted = True
        self._transport.abort()
