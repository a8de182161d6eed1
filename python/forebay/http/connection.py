"""One HTTP connection of `forebay serve --http`: deadlines, limit on open connections and polite closing."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

try:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    # Requests are parsed by h11, which is slower.
    HAS_HTTPTOOLS = False
else:
    HAS_HTTPTOOLS = True

__all__ = ["Connection", "H11Connection", "HTTPConnection"]

_log = logging.getLogger("forebay")

_UNAVAILABLE_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
)
_TIMEOUT_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_MAX_HEAD_BYTES = 16 << 10
"""Maximum size of the request line and the headers. In h11, a larger head is accepted if it arrives at once."""

_PARSE_BYTES = 4096
"""How much to parse at once: pipelined requests in it are kept in memory until they are answered."""

_MAX_JOINED_BYTES = 64 << 10
"""Maximum size of a body that is copied, so that it is sent together with the head of its response."""

_IDLE, _IN_HEAD, _IN_BODY, _MALFORMED = range(4)
"""What httptools expects next, or that it cannot go on."""

if TYPE_CHECKING:
    _Base = H11Protocol
else:
    _Base = object


class Connection(_Base):
    """Part of a uvicorn connection that has a deadline for reading a request and a limit on open connections.

    A connection whose client does not read its response is closed, since the response is kept in memory.

    At the limit, a new connection replaces the longest-idle one, unauthenticated ones first. One is *busy*, and never
    replaced, while a request with a valid token is in flight, or, without tokens, a fully received request whose client
    reads. If all are busy, the new one is answered 503.
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
        # Uvicorn copies this into the scope of each request.
        self.app_state = {**self.app_state, "connection": self}
        self.is_lost = False
        self.has_valid_token = False
        """Whether the token of the current request is valid. The application sets it."""
        self.on_disconnect: Callable[[], None] | None = None
        """Called if the connection is lost during the current request. The application sets it."""

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a request has arrived, and nothing but its client keeps the rest from arriving."""
        raise NotImplementedError

    @property
    def _is_receiving_body(self) -> bool:
        raise NotImplementedError

    @property
    def _is_malformed(self) -> bool:
        """Whether a request could not be parsed."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # asyncio does it only for sockets that were created with a protocol number, which `create_server` does not set.
        # Without it, the second part of a response waits for the client's delayed acknowledgement: 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(_LingeringTransport(transport, self._must_linger))  # type: ignore[arg-type]
        self._start_deadline()
        if self._count_open() > self._max_connections and not self._replace_another():
            self._close(_UNAVAILABLE_RESPONSE)

    def _count_open(self) -> int:
        if len(self.connections) <= self._max_connections:
            return len(self.connections)
        return sum(isinstance(other, Connection) and not other.is_aborted for other in self.connections)

    def _replace_another(self) -> bool:
        """Close the connection that is the least loss. Return whether there is one."""
        others = (other for other in self.connections if isinstance(other, Connection) and other is not self)
        candidates = [other for other in others if not other.is_aborted and not other.is_busy]
        if not candidates:
            return False
        min(candidates, key=lambda other: (other._is_authenticated, other._idle_since)).abort()
        return True

    @property
    def is_busy(self) -> bool:
        if self.cycle is None or self.cycle.response_complete:
            return False
        if self.has_valid_token:
            return True
        return not (self._requires_token or self._is_receiving_body or self.flow.write_paused)

    def join_next_writes(self) -> None:
        """Send the head of the next response together with the start of its body, which must follow."""
        self._transport.join_next_writes()

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

    def on_response_complete(self) -> None:
        self._is_authenticated, self.has_valid_token = self.has_valid_token, False
        self.on_disconnect = None
        self._idle_since = self.loop.time()
        super().on_response_complete()

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
        self.app_state = {}
        self.is_lost = True
        if self.on_disconnect is not None:
            self.on_disconnect()
            self.on_disconnect = None

    def shutdown(self) -> None:
        if self.transport.is_closing():
            self.abort()
        else:
            super().shutdown()

    def _must_linger(self) -> bool:
        """Return whether the client may still be sending a request, and would miss the response if we closed."""
        is_sending = self._is_receiving_body or self._is_malformed
        if is_sending and self._deadline is None:
            self._start_deadline()
        return is_sending

    def _update_deadline(self) -> None:
        """Start the deadline at the first byte of a request, and cancel it after the last byte of the body."""
        if self.transport.is_closing():
            # While the transport lingers, the deadline ends it.
            return
        if not self.is_receiving:
            self._cancel_deadline()
        elif self._deadline is None:
            self._start_deadline()
            # The time for an idle connection may end first, and without a response.
            self._unset_keepalive_if_required()

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
        has_response = self._is_receiving_body and self.cycle.response_started
        # No 408 if the client has sent nothing yet: it would take the 408 for the response to its next request.
        self._close(_TIMEOUT_RESPONSE if self.is_receiving and not has_response else b"")

    def _drop_request(self) -> None:
        """Let the application do without a response to the current request, or without the rest of it."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _close(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self._transport.close_now()


class H11Connection(Connection, H11Protocol):
    """Connection that parses requests with h11."""

    @property
    def is_receiving(self) -> bool:
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))

    @property
    def _is_receiving_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    @property
    def _is_malformed(self) -> bool:
        return self.conn.their_state is h11.ERROR

    def data_received(self, data: bytes) -> None:
        # Ignore data that arrives after the connection was closed.
        if not self.transport.is_closing():
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            # The malformed part is in the body of a request whose response has begun.
            self.transport.close()
        self._drop_request()

    def handle_events(self) -> None:
        super().handle_events()
        self._update_deadline()


HTTPConnection: type[Connection] = H11Connection
"""The connection with the fastest parser that is installed."""

if HAS_HTTPTOOLS:

    class HttpToolsConnection(Connection, HttpToolsProtocol):  # type: ignore[misc]
        """Connection that parses requests with httptools.

        The parser itself has no limits. It does not pause between requests, so only a part of what has arrived is
        parsed while earlier requests wait for their responses.
        """

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._state = _IDLE
            self._head_bytes = 0
            """Bytes of a head, or since the last bytes of a body: trailers and extensions of chunks."""
            self._unparsed = memoryview(b"")
            self._previous_cycle = self.cycle
            """The request before the newest one."""

        @property
        def is_receiving(self) -> bool:
            # A request behind unanswered ones is not read to its end before their responses.
            if self._state == _IN_HEAD:
                return self.cycle is None or self.cycle.response_complete
            return self._state == _IN_BODY and not self.pipeline

        @property
        def _is_receiving_body(self) -> bool:
            return self._state == _IN_BODY

        @property
        def _is_malformed(self) -> bool:
            return self._state == _MALFORMED

        def data_received(self, data: bytes) -> None:
            # Ignore data that arrives after the connection was closed, or after a request that cannot be parsed.
            if self.transport.is_closing() or self._state == _MALFORMED:
                return
            if len(data) <= _PARSE_BYTES and not self._unparsed:
                self._parse(data)
            else:
                self._unparsed = memoryview(b"".join((self._unparsed, data)) if self._unparsed else data)
                self._parse_more()
            self._update_deadline()

        def _parse_more(self) -> None:
            """Parse what has arrived, until a request must wait for the responses to earlier ones."""
            while self._unparsed and not self.pipeline and self._state != _MALFORMED:
                data, self._unparsed = self._unparsed[:_PARSE_BYTES], self._unparsed[_PARSE_BYTES:]
                self._parse(data)
            if self._unparsed:
                self.flow.pause_reading()

        def _parse(self, data: bytes | memoryview) -> None:
            self._unset_keepalive_if_required()
            try:
                self.parser.feed_data(data)
                if self._state in (_IN_HEAD, _IN_BODY):
                    self._head_bytes += len(data)
                    if self._head_bytes > _MAX_HEAD_BYTES:
                        self._refuse()
            except httptools.HttpParserUpgrade as upgrade:
                self._ignore_upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                self._refuse()

        def _ignore_upgrade(self, rest: bytes | memoryview) -> None:
            """Parse a request again without its Upgrade header, which has made the parser skip the body."""
            version = self.parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
            lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._parse(b"\r\n".join([*lines, b"", b""]))
            if rest and self._state != _MALFORMED:
                self._parse(rest)

        def _refuse(self) -> None:
            """Answer 400 and close, but not before the responses to the complete requests before this one."""
            is_body, self._state = self._state == _IN_BODY, _MALFORMED
            self._unparsed = memoryview(b"")
            _log.info("forebay: a request cannot be parsed")
            if is_body and self.pipeline:
                # The newest request, which waits for the responses to earlier ones.
                self.pipeline.popleft()
                self.cycle = self._previous_cycle
                self.cycle.keep_alive = False
            elif is_body and self.cycle.response_started:
                self.transport.close()
                self._drop_request()
            elif is_body or self.cycle is None or self.cycle.response_complete:
                self.send_400_response("Invalid HTTP request received.")
                self._drop_request()
            else:
                self.cycle.keep_alive = False

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._state, self._head_bytes = _IN_HEAD, 0

        def on_header(self, name: bytes, value: bytes) -> None:
            # Trailers arrive after the checks of the headers, so they must not be merged into these (RFC 9110, 6.5.1).
            if self._state == _IN_HEAD:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if not self.url.startswith(b"/"):
                raise ValueError("the target of a request is a path")
            if self.parser.get_http_version() == "1.1" and all(name != b"host" for name, _ in self.headers):
                raise ValueError("a request has a Host header")
            if self.parser.should_upgrade():
                return
            self._state, self._head_bytes = _IN_BODY, 0
            self._previous_cycle = self.cycle
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.parser.should_upgrade():
                self._state = _IDLE
                super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.transport.is_closing():
                return
            if self._unparsed:
                self._parse_more()
            self._update_deadline()

    HTTPConnection = HttpToolsConnection


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
        # Called often, so without the way through `__getattr__`.
        self.write: Callable[[bytes], None] = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def join_next_writes(self) -> None:
        """Hold what is written next back until something else is written."""
        self.write = self._hold

    def _hold(self, head: bytes) -> None:
        self.write = partial(self._write_with, head)

    def _write_with(self, head: bytes, data: bytes | bytearray) -> None:
        self.write = self._transport.write
        if len(data) <= _MAX_JOINED_BYTES:
            self.write(b"".join((head, data)))
        else:
            self.write(head)
            self.write(data)

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
