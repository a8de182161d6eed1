"""One HTTP request and its response: whole, or as a stream of server-sent events that may be resumed."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.http.request_headers import join_headers
from forebay.proxy.message_queue import MessageQueue
from forebay.wire.framing import Message, Spool, count_memory_bytes
from forebay.wire.lazy_json import dump
from forebay.wire.messages import parse

__all__ = ["PING_SECONDS", "BodyTooLarge", "Disconnected", "EventStream", "HTTPExchange"]

if TYPE_CHECKING:
    from forebay.http.connection import Connection
    from forebay.http.tokens import AccessToken

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


NO_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")
"""In JSON, line breaks are space between values, but they would end the event, or the message of a server on stdio."""


class Disconnected(Exception):
    """The client has closed the connection before the request had arrived."""


class BodyTooLarge(Exception):
    """The body of a request is larger than the limit."""


class HTTPExchange:
    """One HTTP request and its response."""

    __slots__ = (
        "_closed",
        "_receive",
        "_refusal",
        "_request_id",
        "_send",
        "_task",
        "client_host",
        "connection",
        "extra_headers",
        "headers",
        "is_complete",
        "is_disconnected",
        "is_started",
        "is_stream",
        "method",
        "on_disconnect",
        "path",
        "query",
        "raw_headers",
        "token",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers = join_headers(self.raw_headers)
        self.client_host: str = (scope.get("client") or ("",))[0]
        self.connection: Connection = scope["state"]["connection"]
        self.token: AccessToken | None = None
        """The verified token of the request."""
        self.extra_headers: list[tuple[bytes, bytes]] = []
        """Headers to add to any response."""
        self.is_started = self.is_stream = self.is_complete = False
        self.is_disconnected = self.connection.is_lost
        self.on_disconnect: Callable[[], None] | None = None
        self._receive, self._send = receive, send
        # With the loop, because finding it costs a system call.
        self._task = asyncio.current_task(self.connection.loop)
        self._refusal: tuple[int, bytes] | None = None
        self._request_id: object = None
        self._closed: asyncio.Event | None = None
        self.connection.on_disconnect = self._on_disconnect

    @property
    def principal(self) -> str | None:
        return None if self.token is None else self.token.principal

    def _on_disconnect(self) -> None:
        self.is_disconnected = True
        if self._closed is not None:
            self._closed.set()
        if self.on_disconnect is not None:
            self.on_disconnect()

    async def read_body(self, max_bytes: int) -> bytes:
        """Return the body. Raises `BodyTooLarge` as soon as it is, and `Disconnected`."""
        length = self.headers.get(b"content-length")
        if length is not None and int(length) > max_bytes:
            raise BodyTooLarge
        chunks: list[bytes] = []
        size = 0
        while True:
            event = await self._receive()
            if event["type"] != "http.request":
                raise Disconnected
            chunk: bytes = event["body"]
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLarge
            if not event["more_body"]:
                return b"".join((*chunks, chunk)) if chunks else chunk
            chunks.append(chunk)

    async def read_message(self, max_bytes: int) -> tuple[Any, bytes]:
        """Return the JSON-RPC message in the body, parsed and in one line; it is `None` if it is not JSON.

        Raises `BodyTooLarge` and `Disconnected`.
        """
        raw = await self.read_body(max_bytes)
        message = parse(raw)
        if message is not None and (b"\n" in raw or b"\r" in raw):
            # Servers on stdio would take what follows a line break for another message.
            raw = raw.translate(NO_LINE_BREAKS)
            message = parse(raw)
        self._request_id = message.get("id") if isinstance(message, dict) else None
        return message, raw

    async def respond(self, status: int, body: Message = b"", headers: Headers = ()) -> None:
        """Send a whole response."""
        if self.method != "HEAD":
            self.connection.join_next_writes()
        await self._start(status, [*headers, (b"content-length", b"%d" % len(body))])
        if isinstance(body, Spool):
            for chunk in body.chunks():
                await self.write(chunk)
            body = b""
        await self.end(body)

    async def start_stream(self, headers: Headers) -> None:
        """Start a response of server-sent events."""
        self.is_stream = True
        await self._start(200, [*_STREAM_HEADERS, *headers])

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.is_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers + self.extra_headers})

    async def write(self, data: bytes) -> None:
        """Send a part of the response, after waiting until the client has read most of the parts before."""
        if not self.is_complete:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes | bytearray = b"") -> None:
        """Send the last part of the response."""
        if not self.is_complete:
            self.is_complete = True
            if self._closed is not None:
                self._closed.set()
            await self._send({"type": "http.response.body", "body": data})

    async def wait_closed(self) -> None:
        """Wait until the response has ended or the client has disconnected."""
        self._closed = asyncio.Event()
        if not self.is_complete and not self.is_disconnected:
            await self._closed.wait()

    def cancel(self, status: int = 500, body: bytes = b"") -> None:
        """Cancel the request. The client gets this response, or the end of one that has started.

        A stream of events ends with the body, a JSON-RPC error, as the response to the request.
        """
        if self._refusal is None and self._task is not None:
            self._refusal = status, body
            self._task.cancel()

    async def end_cancelled(self) -> bool:
        """End the response after `cancel`. Return whether it was called, and not something else cancelled the task."""
        if self._refusal is None or self._task is None:
            return False
        self._task.uncancel()
        if not self.is_started:
            status, body = self._refusal
            await self.respond(status, body, [JSON_TYPE] if body else [])
        else:
            body = self._refusal[1] if self.is_stream and self._request_id is not None else b""
            await self.end(_make_last_event(body, self._request_id) if body else b"")
        return True


def _make_last_event(error: bytes, request_id: object) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % dump({**parse(error), "id": request_id})


PING_SECONDS = 15.0
"""Time without events after which a comment is sent, so that no proxy takes the stream for dead."""

_PING = b": ping\r\n\r\n"

_KEPT_SECONDS = 60.0
"""How long events are kept for a client that may resume a stream."""

_MAX_KEPT_BYTES = 1 << 20
"""Maximum size of the kept events of a stream. The last event is always kept."""


class _Event(NamedTuple):
    number: int
    raw: Message


class EventStream:
    """The messages of one response. Implements `Reply`.

    If no message precedes the response, it is sent as plain JSON; otherwise all are sent as events. `on_unsupported`
    gets a server's request if the client accepts no events. With a `stream_number`, the events have ids and are kept
    for a while: if the connection breaks, another exchange may continue the stream.
    """

    __slots__ = (
        "_accepts_events",
        "_accepts_json",
        "_dropped_through",
        "_event_count",
        "_exchange",
        "_has_initial_event",
        "_is_finishing",
        "_kept",
        "_kept_bytes",
        "_on_open",
        "_on_overflow",
        "_on_unsupported",
        "_queue",
        "active_at",
        "headers",
        "is_finished",
        "is_open",
        "stream_number",
    )

    def __init__(
        self,
        exchange: HTTPExchange,
        headers: Headers,
        accepts: tuple[bool, bool],
        now: float,
        *,
        stream_number: int | None = None,
        has_initial_event: bool = False,
        on_overflow: Callable[[], None] = lambda: None,
        on_unsupported: "Callable[[bytes, str], None]" = lambda _raw, _method: None,
        on_open: "Callable[[EventStream], None]" = lambda _: None,
    ) -> None:
        self._exchange: HTTPExchange | None = exchange
        self.headers = headers
        self._accepts_json, self._accepts_events = accepts
        self.active_at = now
        """When something was last sent, or the client disconnected."""
        self.stream_number = stream_number
        self._has_initial_event = has_initial_event
        self._on_overflow = on_overflow
        self._on_unsupported = on_unsupported
        self._on_open = on_open
        self._queue: MessageQueue | None = None
        self._event_count = 0
        self._dropped_through = 0
        self._kept: deque[_Event] = deque()
        self._kept_bytes = 0
        self.is_open = self.is_finished = self._is_finishing = False

    @property
    def is_attached(self) -> bool:
        return self._exchange is not None

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def send(self, raw: bytes, method: str) -> None:
        """Queue a message that belongs to the request."""
        if not self._accepts_events:
            # A plain response has no room for it. A request of a server may reach the client on another stream.
            if not method.startswith("notifications/"):
                self._on_unsupported(raw, method)
        elif not self._is_finishing:
            self._put(raw, method)

    def _put(self, raw: bytes, method: str) -> None:
        if self._queue is None:
            self._queue = MessageQueue(self._deliver, self._on_overflow)
        self._queue.put(raw, method)

    def tick(self, now: float) -> None:
        """Send a comment if nothing was sent for a while, and drop events that nobody has asked for in time."""
        is_silent = now - self.active_at >= PING_SECONDS
        if is_silent and self.is_attached and self._accepts_events and not self._is_finishing:
            self.active_at = now
            if self._queue is None or not self._queue.is_sending:
                self._put(b"", "")
        if self.is_expired(now):
            self._drop_kept(len(self._kept))

    def is_expired(self, now: float) -> bool:
        """Return whether the client did not resume the stream in time."""
        return (self.is_finished or not self.is_attached) and now - self.active_at >= _KEPT_SECONDS

    async def open(self) -> None:
        """Start the stream now."""
        if self.is_open or self._exchange is None or self._exchange.is_disconnected:
            return
        self.is_open = True
        self._on_open(self)
        exchange = self._exchange
        await exchange.start_stream(self.headers)
        await self._send_initial_event(exchange, 0)

    async def _send_initial_event(self, exchange: HTTPExchange, number: int) -> None:
        """Send the id to resume after as an event without data, if the client knows such events."""
        if self._has_initial_event and self.stream_number is not None:
            await exchange.write(b"id: %d-%d\r\ndata: \r\n\r\n" % (self.stream_number, number))

    async def _deliver(self, raw: bytes) -> None:
        await self.open()
        if not self.is_open:
            # The client has gone before it got anything that it could resume.
            return
        if raw:
            await self._send_event(raw)
        elif self._exchange is not None:
            await self._exchange.write(_PING)

    async def _send_event(self, raw: Message) -> None:
        self._event_count += 1
        event = _Event(self._event_count, raw)
        if self.stream_number is not None:
            self._keep(event)
        if self._exchange is not None:
            self.active_at = time.monotonic()
            await self._write_event(self._exchange, event)

    def _keep(self, event: _Event) -> None:
        self._kept.append(event)
        self._kept_bytes += count_memory_bytes(event.raw)
        while self._kept_bytes > _MAX_KEPT_BYTES and len(self._kept) > 1:
            self._drop_kept(1)

    def _drop_kept(self, count: int) -> None:
        for _ in range(count):
            event = self._kept.popleft()
            self._kept_bytes -= count_memory_bytes(event.raw)
            self._dropped_through = event.number

    async def _write_event(self, exchange: HTTPExchange, event: _Event) -> None:
        head = b"event: message\r\ndata: "
        if self.stream_number is not None:
            head = b"id: %d-%d\r\n%b" % (self.stream_number, event.number, head)
        if isinstance(event.raw, Spool):
            await exchange.write(head)
            for chunk in event.raw.chunks():
                await exchange.write(chunk.translate(NO_LINE_BREAKS))
            await exchange.write(b"\r\n\r\n")
        else:
            await exchange.write(b"%b%b\r\n\r\n" % (head, bytes(event.raw).translate(NO_LINE_BREAKS)))

    async def finish(self, response: Message, status: int = 200) -> None:
        """Send the response to the request, after all messages that were sent before."""
        self._is_finishing = True
        if self._queue is not None:
            await self._queue.flush()
        if self.is_open or not self._accepts_json:
            await self.open()
            await self._send_event(response)
            await self.end()
        elif self._exchange is not None and not self._exchange.is_disconnected:
            await self._exchange.respond(status, response, [JSON_TYPE, *self.headers])

    async def end(self) -> None:
        """End the stream: nothing follows, but kept events may still be asked for."""
        self.is_finished = self._is_finishing = True
        self.active_at = time.monotonic()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            await exchange.end()

    def close(self) -> None:
        """Drop everything that is not sent yet."""
        self._is_finishing = True
        if self._queue is not None:
            self._queue.close()

    def detach(self, exchange: HTTPExchange) -> None:
        """Keep further events, because this exchange has lost its client."""
        if self._exchange is exchange:
            self._exchange = None
            self.active_at = time.monotonic()

    def can_resume_after(self, number: int) -> bool:
        """Return whether all events after this one are still kept."""
        return self._dropped_through <= number <= self._event_count

    async def resume(self, exchange: HTTPExchange, number: int | None) -> None:
        """Go on with another exchange: send the kept events after this one, and then new ones. `None`: only new ones.

        Returns when the stream has ended or the client has disconnected.
        """
        last_number = self._event_count if number is None else number
        exchange.on_disconnect = lambda: self.detach(exchange)
        previous, self._exchange = self._exchange, None
        if previous is not None:
            await previous.end()
        self.is_open = True
        await exchange.start_stream(self.headers)
        if number is None:
            await self._send_initial_event(exchange, last_number)
        while self.can_resume_after(last_number):
            event = next((event for event in self._kept if event.number > last_number), None)
            if event is None:
                break
            await self._write_event(exchange, event)
            last_number = event.number
        else:
            # Events were dropped while the client was slow to read those before.
            self._on_overflow()
            await exchange.end()
            return
        if self.is_finished:
            await exchange.end()
            return
        # Nothing can happen between the last look at the kept events and this.
        previous, self._exchange = self._exchange, exchange
        self.active_at = time.monotonic()
        if previous is not None:
            await previous.end()
        if exchange.is_disconnected:
            self.detach(exchange)
        await exchange.wait_closed()
