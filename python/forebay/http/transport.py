"""The Streamable HTTP transport of MCP: sessions up to version 2025-11-25, and single requests since 2026-07-28."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from forebay.http.http_exchange import JSON_TYPE, BodyTooLarge, EventStream, HTTPExchange
from forebay.http.limits import get_principal_share
from forebay.http.message_checks import (
    HEADER_MISMATCH,
    find_request_fault,
    get_params,
    is_notification,
    is_request,
    is_response,
)
from forebay.http.request_headers import is_json, parse_accept
from forebay.proxy.message_queue import Reply
from forebay.wire.framing import Message, Spool
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    make_error_message,
    parse,
)
from forebay.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    LEGACY_VERSION,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    UNSUPPORTED_VERSION,
    find_version_fault,
)

__all__ = ["Backend", "BackendSession", "Transport"]

if TYPE_CHECKING:
    from forebay.config.options import Settings

_log = logging.getLogger("forebay")


class BackendSession(Protocol):
    """A client that has done the handshake."""

    async def handle(self, message: Any, raw: Message, reply: Reply) -> Message | None:
        """Return the response to a request; `None` for notifications and responses, and for a cancelled request."""

    async def close(self) -> None:
        """Release everything, after all calls of `handle` were cancelled."""


class Backend(Protocol):
    """What answers the messages of clients, errors included."""

    async def start(self) -> None:
        """Prepare for the first message. An exception keeps the server from starting."""

    async def close(self) -> None:
        """Release everything, after the last message."""

    async def check(self) -> None:
        """Raise `ForebayError` if calls cannot be answered now."""

    def open_session(self, principal: str | None, outbox: Reply) -> BackendSession:
        """Open a session for a client that sends `initialize`. `outbox` is for messages outside of any request."""

    async def handle_stateless(self, principal: str | None, message: Any, raw: Message, reply: Reply) -> Message | None:
        """Return the response to a request of 2026-07-28. It is cancelled if the client disconnects."""

    async def handle_sessionless(
        self, principal: str | None, message: Any, raw: Message, reply: Reply
    ) -> Message | None:
        """Return the response to a request up to 2025-11-25 without a session. Cancelled like the above."""


_HANDSHAKE_VERSIONS = (b"2024-11-05", b"2025-03-26", b"2025-06-18", LEGACY_VERSION.encode())

_MISSING_SESSION = (
    "Bad Request: Missing session ID; send initialize with POST first. Or send requests without a session, with the "
    f"headers Mcp-Protocol-Version: {MODERN_VERSION}, Mcp-Method (and Mcp-Name for a call), and with "
    f"{PROTOCOL_VERSION_KEY} and {CLIENT_CAPABILITIES_KEY} in params._meta"
)

_REQUEST_CANCELLED = -32800

_ERROR_STATUSES: dict[int | None, int] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    -32021: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""HTTP status of an error response since 2026-07-28, by its code; -32021 is for a missing client capability."""

_SHOWN_ID_CHARS = 8
"""How much of a session id is logged: the whole would let a reader of the log take over the session."""

_MAX_KEPT_STREAMS = 32
"""Maximum number of ended streams of a session whose events are kept for a client that may resume them."""

_MAX_SESSION_KEPT_BYTES = 4 << 20

_MAX_KEPT_BYTES = 64 << 20
"""Maximum size of the kept events of all sessions."""

_EVENT_ID_PATTERN = re.compile(rb"(\d{1,18})-(\d{1,18})")

_GET_STREAM_NUMBER = 0


class _HTTPSession:
    """A session of the handshake era: its requests in flight and its streams. Implements `Reply`."""

    def __init__(self, principal: str | None, on_overflow: Callable[[], None]) -> None:
        self.id = uuid.uuid4().hex
        self.principal = principal
        self.headers = [(b"mcp-session-id", self.id.encode())]
        self.backend_session: BackendSession | None = None
        self.exchanges: set[HTTPExchange] = set()
        self.idle_since = 0.0
        self.streams: dict[int, EventStream] = {}
        """Open streams and those that the client may resume."""
        self.on_overflow = on_overflow
        self._stream_count = 0

    @property
    def short_id(self) -> str:
        return f"{self.id[:_SHOWN_ID_CHARS]}…"

    def send(self, raw: bytes, method: str) -> None:
        """Send a message on the stream that the client has opened with GET, if there is one."""
        stream = self.streams.get(_GET_STREAM_NUMBER)
        if stream is not None:
            stream.send(raw, method)

    def next_stream_number(self) -> int:
        self._stream_count += 1
        return self._stream_count

    def keep(self, stream: EventStream) -> None:
        """Keep a stream that may be resumed, and forget the oldest of those that have ended above the limits."""
        if stream.stream_number is None or not stream.is_open:
            return
        self.streams[stream.stream_number] = stream
        ended = [stream for stream in self.streams.values() if stream.is_finished]
        kept_bytes = sum(stream.kept_bytes for stream in ended)
        while len(ended) > _MAX_KEPT_STREAMS or (kept_bytes > _MAX_SESSION_KEPT_BYTES and len(ended) > 1):
            oldest = ended.pop(0)
            kept_bytes -= oldest.kept_bytes
            self.forget(oldest)

    def forget(self, stream: EventStream) -> None:
        if stream.stream_number is not None:
            self.streams.pop(stream.stream_number, None)

    def tick(self, now: float) -> None:
        for stream in [*self.streams.values()]:
            stream.tick(now)
            if stream.is_finished and stream.is_expired(now):
                self.forget(stream)


class Transport:
    """The endpoint for MCP messages. Call `handle` for each request, and `tick` about twice a second."""

    def __init__(self, backend: Backend, settings: "Settings") -> None:
        self._backend = backend
        self._body_limit_bytes = settings.body_limit_bytes
        self._max_sessions = settings.max_sessions
        self._session_idle_seconds = settings.session_idle_seconds
        self._is_stateless = settings.stateless
        self._sessions: dict[str, _HTTPSession] = {}
        self._streams: set[EventStream] = set()
        """The streams of requests in flight."""
        self._closing: dict[asyncio.Task[None], _HTTPSession] = {}

    async def handle(self, exchange: HTTPExchange) -> None:
        """Answer a request, whose token, host and origin are allowed."""
        if exchange.method == "POST" and not is_json(exchange.headers.get(b"content-type", b"")):
            await exchange.respond(400, b"Invalid Content-Type header; send application/json")
            return
        version = exchange.headers.get(b"mcp-protocol-version")
        try:
            if version is not None and version not in _HANDSHAKE_VERSIONS:
                await self._handle_modern(exchange, version)
            elif self._is_stateless:
                await self._handle_sessionless(exchange)
            else:
                await self._handle_handshake(exchange, version or b"")
        except BodyTooLarge:
            text = f"Request body too large; --body-limit-bytes allows {self._body_limit_bytes} bytes"
            await exchange.respond(413, text.encode())

    def tick(self, now: float) -> None:
        """Send comments on silent streams, and end sessions that were idle for too long."""
        for stream in [*self._streams]:
            stream.tick(now)
        for session in [*self._sessions.values()]:
            session.tick(now)
            if not session.exchanges and now - session.idle_since >= self._session_idle_seconds:
                _log.info("Session %s idle timeout", session.short_id)
                self._end_session(session)

        self._limit_kept_events()

    def _limit_kept_events(self) -> None:
        """Forget the oldest ended streams if all of them together keep too much."""
        ended = [
            (stream.active_at, stream.kept_bytes, session, stream)
            for session in self._sessions.values()
            for stream in session.streams.values()
            if stream.is_finished
        ]
        kept_bytes = sum(size for _, size, _, _ in ended)
        for _, size, session, stream in sorted(ended, key=lambda item: item[0]):
            if kept_bytes <= _MAX_KEPT_BYTES:
                break
            session.forget(stream)
            kept_bytes -= size

    async def end_streams(self) -> None:
        """End the streams that would not end by themselves."""
        for session in [*self._sessions.values()]:
            if (stream := session.streams.get(_GET_STREAM_NUMBER)) is not None:
                await stream.end()

    async def close(self) -> None:
        """End all sessions."""
        for session in [*self._sessions.values()]:
            self._end_session(session)
        await asyncio.gather(*self._closing)

    # Since 2026-07-28

    async def _handle_modern(self, exchange: HTTPExchange, version: bytes) -> None:
        if exchange.method != "POST":
            await exchange.respond(405, b"", [(b"allow", b"POST")])
            return
        accepts = parse_accept(exchange.headers.get(b"accept", b"*/*"))
        if not any(accepts):
            await exchange.respond(406)
            return
        message, raw = await exchange.read_message(self._body_limit_bytes)
        if message is None:
            await _respond_error(exchange, 400, PARSE_ERROR, "Parse error")
            return
        if not is_request(message) and not is_notification(message):
            text = "Body must be a single JSON-RPC request or notification object"
            await _respond_error(exchange, 400, INVALID_REQUEST, text)
            return
        if "id" not in message:
            # This version has no notifications of clients, but some clients send them.
            fault = find_version_fault(version.decode("latin-1"))
            await (exchange.respond(202) if fault is None else _respond_modern_error(exchange, None, *fault))
            return
        method = message["method"]
        if method == "subscriptions/listen" and not accepts[1]:
            await exchange.respond(406)
            return
        fault = find_request_fault(message, exchange.headers)
        if fault is not None:
            await _respond_modern_error(exchange, message["id"], *fault)
            return
        stream = EventStream(exchange, (), accepts, time.monotonic(), on_overflow=exchange.connection.abort)
        exchange.on_disconnect = exchange.cancel
        if exchange.is_disconnected:
            return
        handling = self._backend.handle_stateless(exchange.principal, message, raw, stream)
        response = await self._run(stream, handling, message["id"])
        await stream.finish(response, _ERROR_STATUSES.get(_find_error_code(response), 200))

    # Up to 2025-11-25, without sessions

    async def _handle_sessionless(self, exchange: HTTPExchange) -> None:
        if exchange.method != "POST":
            # There is nothing to listen to, and no session to delete.
            await exchange.respond(405, b"", [(b"allow", b"POST")])
            return
        read = await self._read_post(exchange)
        if read is None:
            return
        message, raw, accepts = read
        if not is_request(message):
            await exchange.respond(202, b"", [JSON_TYPE])
            return
        stream = EventStream(exchange, (), accepts, time.monotonic(), on_overflow=exchange.connection.abort)
        exchange.on_disconnect = exchange.cancel
        if exchange.is_disconnected:
            return
        handling = self._backend.handle_sessionless(exchange.principal, message, raw, stream)
        await stream.finish(await self._run(stream, handling, message["id"]))

    # Up to 2025-11-25, with sessions

    async def _handle_handshake(self, exchange: HTTPExchange, version: bytes) -> None:
        session_id = exchange.headers.get(b"mcp-session-id")
        session = None
        if session_id is not None:
            session = self._find_session(session_id.decode("latin-1"), exchange.principal)
            if session is None:
                await _respond_error(exchange, 404, INVALID_REQUEST, "Session not found; send initialize again")
                return
        match exchange.method:
            case "POST":
                await self._handle_post(exchange, session, version)
            case "GET":
                await self._handle_get(exchange, session, version)
            case "DELETE":
                await self._handle_delete(exchange, session)
            case _:
                allow = [(b"allow", b"GET, POST, DELETE")]
                await _respond_error(exchange, 405, INVALID_REQUEST, "Method Not Allowed", allow)

    def _find_session(self, session_id: str, principal: str | None) -> _HTTPSession | None:
        session = self._sessions.get(session_id)
        if session is None:
            _log.info("Rejected request with unknown or expired session ID: %s…", session_id[:_SHOWN_ID_CHARS])
        elif session.principal != principal:
            _log.warning("Rejecting request for session %s: it belongs to another principal", session.short_id)
            return None
        return session

    async def _read_post(self, exchange: HTTPExchange) -> tuple[Any, bytes, tuple[bool, bool]] | None:
        """Return the message of a request, its bytes, and what the client accepts; `None` if it was refused."""
        accepts = parse_accept(exchange.headers.get(b"accept", b"*/*"))
        if not any(accepts):
            text = "Not Acceptable: Client must accept both application/json and text/event-stream"
            await _respond_error(exchange, 406, INVALID_REQUEST, text)
            return None
        message, raw = await exchange.read_message(self._body_limit_bytes)
        if message is None:
            await _respond_error(exchange, 400, PARSE_ERROR, "Parse error: the body is not valid JSON")
            return None
        if not is_request(message) and not is_notification(message) and not is_response(message):
            text = "Validation error: the body must be a single JSON-RPC message"
            await _respond_error(exchange, 400, INVALID_PARAMS, text)
            return None
        return message, raw, accepts

    async def _handle_post(self, exchange: HTTPExchange, session: _HTTPSession | None, version: bytes) -> None:
        read = await self._read_post(exchange)
        if read is None:
            return
        message, raw, accepts = read
        expects_response = is_request(message)
        is_first = expects_response and message["method"] == "initialize"
        if session is None and not is_first:
            await _respond_error(exchange, 400, INVALID_REQUEST, _MISSING_SESSION)
            return
        if session is None:
            session = await self._open_session(exchange)
            if session is None:
                return
        else:
            is_first = False
        session.exchanges.add(exchange)
        try:
            if expects_response:
                await self._answer(exchange, session, version, accepts, message, raw, is_first=is_first)
            else:
                await self._accept(exchange, session, message, raw)
        finally:
            self._release(session, exchange)
            if is_first and not exchange.is_started:
                # Nobody knows the session.
                self._end_session(session)

    async def _open_session(self, exchange: HTTPExchange) -> _HTTPSession | None:
        """Open a session, or answer that there are too many."""
        principal = exchange.principal
        # The servers of a session that was ended count until they have ended, too.
        while not self._is_full(principal) and self._is_full(principal, self._closing.values()):
            await asyncio.wait([*self._closing], return_when=asyncio.FIRST_COMPLETED)
        if self._is_full(principal):
            _log.warning("Refusing to open a new session: %d sessions are already open", len(self._sessions))
            await _respond_error(exchange, 503, INTERNAL_ERROR, "Too many open sessions")
            return None
        session = _HTTPSession(principal, lambda: self._on_overflow(session))
        self._sessions[session.id] = session
        # The limit counts it from now on, and `_release` starts the idle time.
        session.exchanges.add(exchange)
        try:
            session.backend_session = self._backend.open_session(principal, session)
        except Exception:
            _log.exception("forebay: a session could not be opened")
            await _respond_error(exchange, 500, INTERNAL_ERROR, "Internal error")
            return None
        finally:
            if session.backend_session is None:
                del self._sessions[session.id]
        _log.info("Created new session with session ID: %s", session.short_id)
        return session

    def _is_full(self, principal: str | None, closing: Iterable[_HTTPSession] = ()) -> bool:
        sessions = [*self._sessions.values(), *closing]
        own_sessions = sum(session.principal == principal for session in sessions)
        is_share_used = principal is not None and own_sessions >= get_principal_share(self._max_sessions)
        return is_share_used or len(sessions) >= self._max_sessions

    async def _answer(
        self,
        exchange: HTTPExchange,
        session: _HTTPSession,
        version: bytes,
        accepts: tuple[bool, bool],
        message: dict[str, Any],
        raw: bytes,
        *,
        is_first: bool,
    ) -> None:
        """Answer a request. The first one is the `initialize` that has opened the session."""
        if not version:
            params = get_params(message)
            version = str(params.get("protocolVersion", "")).encode() if params else b""
        stream = EventStream(
            exchange,
            session.headers,
            accepts,
            time.monotonic(),
            stream_number=session.next_stream_number(),
            has_initial_event=version == _HANDSHAKE_VERSIONS[-1],
            on_unsupported=session.send,
            # At once, because the client may resume the stream before we notice that it has disconnected.
            on_open=session.keep,
        )
        # The call goes on, for a client that resumes the stream.
        exchange.on_disconnect = lambda: stream.detach(exchange)
        if session.backend_session is None:
            raise RuntimeError("the session was never opened")
        try:
            response = await self._run(stream, session.backend_session.handle(message, raw, stream), message["id"])
        except asyncio.CancelledError:
            session.forget(stream)
            raise
        if is_first and not stream.is_open and _find_error_code(response) is not None:
            # The client does not get the id of the session, so nobody can use it.
            stream.headers = ()
            session.exchanges.discard(exchange)
            self._end_session(session)
        await stream.finish(response)
        session.keep(stream)

    async def _accept(self, exchange: HTTPExchange, session: _HTTPSession, message: Any, raw: bytes) -> None:
        """Pass a notification or a response to the backend."""
        if session.backend_session is not None:
            try:
                await session.backend_session.handle(message, raw, session)
            except Exception:
                _log.exception("forebay: a message of a client failed")
        await exchange.respond(202, b"", [JSON_TYPE, *session.headers])

    async def _run(
        self, stream: EventStream, handling: Coroutine[Any, Any, Message | None], request_id: object
    ) -> Message:
        """Return the response to a request, which may send messages on the stream before."""
        self._streams.add(stream)
        try:
            response = await handling
        except Exception:
            _log.exception("forebay: a request failed")
            return make_error_message(request_id, INTERNAL_ERROR, "Internal error")
        finally:
            self._streams.discard(stream)
        if response is None:
            return make_error_message(request_id, _REQUEST_CANCELLED, "Request cancelled")
        return response

    async def _handle_get(self, exchange: HTTPExchange, session: _HTTPSession | None, version: bytes) -> None:
        if not parse_accept(exchange.headers.get(b"accept", b"*/*"))[1]:
            await _respond_error(exchange, 406, INVALID_REQUEST, "Not Acceptable: Client must accept text/event-stream")
            return
        if session is None:
            await _respond_error(exchange, 400, INVALID_REQUEST, _MISSING_SESSION)
            return
        stream = session.streams.get(_GET_STREAM_NUMBER)
        number = None
        if last_event_id := exchange.headers.get(b"last-event-id"):
            match = _EVENT_ID_PATTERN.fullmatch(last_event_id)
            stream = None if match is None else session.streams.get(int(match[1]))
            number = None if match is None else int(match[2])
            if stream is None or number is None or not stream.can_resume_after(number):
                await self._refuse_resumption(exchange, session, stream)
                return
        elif stream is not None and stream.is_attached:
            await _respond_error(exchange, 409, INVALID_REQUEST, "Conflict: Only one SSE stream is allowed per session")
            return
        session.exchanges.add(exchange)
        try:
            if stream is None or (stream.is_finished and stream.stream_number == _GET_STREAM_NUMBER):
                await self._open_get_stream(exchange, session, version)
            else:
                await stream.resume(exchange, number)
        finally:
            self._release(session, exchange)

    async def _open_get_stream(self, exchange: HTTPExchange, session: _HTTPSession, version: bytes) -> None:
        stream = EventStream(
            exchange,
            session.headers,
            (False, True),
            time.monotonic(),
            stream_number=_GET_STREAM_NUMBER,
            has_initial_event=version == _HANDSHAKE_VERSIONS[-1],
            on_overflow=session.on_overflow,
        )
        session.streams[_GET_STREAM_NUMBER] = stream
        exchange.on_disconnect = lambda: stream.detach(exchange)
        await stream.open()
        await exchange.wait_closed()

    async def _refuse_resumption(
        self, exchange: HTTPExchange, session: _HTTPSession, stream: EventStream | None
    ) -> None:
        if stream is not None and stream.stream_number == _GET_STREAM_NUMBER:
            # The client has missed notifications, and learns it by starting a new session.
            _log.warning("forebay: the session of a client is ended, because it has missed notifications")
            self._end_session(session)
            await _respond_error(exchange, 404, INVALID_REQUEST, "Session not found")
            return
        text = "Bad Request: the stream of this Last-Event-ID cannot be resumed any more; send the request again"
        await _respond_error(exchange, 400, INVALID_REQUEST, text)

    async def _handle_delete(self, exchange: HTTPExchange, session: _HTTPSession | None) -> None:
        if session is None:
            await _respond_error(exchange, 400, INVALID_REQUEST, _MISSING_SESSION)
            return
        self._end_session(session)
        await exchange.respond(200, b"", [JSON_TYPE, *session.headers])

    def _release(self, session: _HTTPSession, exchange: HTTPExchange) -> None:
        session.exchanges.discard(exchange)
        session.idle_since = time.monotonic()

    def _on_overflow(self, session: _HTTPSession) -> None:
        """End the session of a client that does not read: it must not miss notifications without knowing it."""
        _log.warning("forebay: the session of a client is ended, because it does not read its notifications")
        self._end_session(session)

    def _end_session(self, session: _HTTPSession) -> None:
        """Forget a session at once, and close it in the background."""
        if self._sessions.pop(session.id, None) is not None:
            task = asyncio.create_task(self._close_session(session))
            self._closing[task] = session
            task.add_done_callback(self._closing.pop)

    async def _close_session(self, session: _HTTPSession) -> None:
        for stream in session.streams.values():
            stream.close()
        text = "Session terminated before the request completed"
        for exchange in [*session.exchanges]:
            exchange.cancel(500, make_error_message(None, INTERNAL_ERROR, text))
        try:
            if session.backend_session is not None:
                await session.backend_session.close()
        except Exception:
            _log.exception("forebay: a session could not be closed")


async def _respond_error(
    exchange: HTTPExchange, status: int, code: int, text: str, headers: "list[tuple[bytes, bytes]] | None" = None
) -> None:
    """Answer with an HTTP error and a JSON-RPC error that has no id."""
    await exchange.respond(status, make_error_message(None, code, text), [JSON_TYPE, *(headers or [])])


async def _respond_modern_error(exchange: HTTPExchange, request_id: object, code: int, text: str, data: object) -> None:
    """Answer a request of the newest version with an error."""
    await exchange.respond(_ERROR_STATUSES[code], make_error_message(request_id, code, text, data), [JSON_TYPE])


def _find_error_code(response: Message) -> int | None:
    """Return the code of an error response, or `None` for a result."""
    # The name of the member is looked for first, because parsing takes much longer.
    if isinstance(response, Spool) or b'"error"' not in response:
        return None
    match parse(response):
        case {"error": {"code": int() as code}}:
            return code
    return None
