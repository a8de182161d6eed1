"""A server reached over HTTP: each message is posted in its own HTTP request, and the response may be a stream."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import httpx

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.http.connection import Endpoint, OutgoingMessage, OutgoingRequests, UpstreamConnection
from forebay.proxy.http.headers import make_message_headers, parse_headers
from forebay.proxy.http.streams import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    HttpStatusError,
    LegacyStream,
    ResponseBuffers,
    ResponseStreams,
    is_session_lost,
    redact_errors,
)
from forebay.proxy.upstream import Receiver
from forebay.proxy.workers import Capacity, WorkerPool
from forebay.wire.framing import Message, Spool, count_memory_bytes
from forebay.wire.messages import parse

__all__ = ["HttpUpstream"]

_log = logging.getLogger("forebay")

_MAX_REQUESTS = 64
_MAX_LISTENERS = 256

_MAX_UNFINISHED_MESSAGES = 256
"""Maximum number of messages that are sent or wait for that. Further messages of the client wait in its pipe."""

_MAX_UNFINISHED_BYTES = 16 << 20
"""Maximum bytes in memory of these messages."""

_READY_TIMEOUT_SECONDS = 30.0
"""How long the client's next message waits while there are too many unfinished messages."""

_ACCEPT_TIMEOUT_SECONDS = 30.0
"""How long a server may take to accept a notification or a response."""

_CLOSE_TIMEOUT_SECONDS = 2.0
"""How long each step of closing may take."""

_LEGACY_STATUSES = (400, 404, 405)
"""Statuses with which servers of the 2024-11-05 transport refuse a posted `initialize`."""


class _HttpSession:
    """Session that the server opened in a handshake, or no session (`id` is `None`)."""

    def __init__(self, session_id: str | None, legacy_stream: LegacyStream | None = None) -> None:
        self.id = session_id
        self.legacy_stream = legacy_stream


class HttpUpstream:
    """Server at a URL. Its messages go to the relay."""

    def __init__(
        self,
        url: str,
        *,
        headers: Sequence[str] = (),
        spool_above_bytes: int,
        make_spool: Callable[[], Spool],
        find_schema: Callable[[str], Mapping[str, Any] | None] = lambda _: None,
    ) -> None:
        self._endpoint = Endpoint(url, parse_headers(headers))
        self._new_buffer = ResponseBuffers(spool_above_bytes, make_spool).new_buffer
        self._find_schema = find_schema
        self._send_queue: SimpleQueue[Message | None] = SimpleQueue()
        self._request_workers = WorkerPool(_MAX_REQUESTS)
        # Subscriptions have workers of their own, because each blocks its worker until it ends.
        self._listen_workers = WorkerPool(_MAX_LISTENERS)
        # A single worker keeps notifications in order.
        self._notify_workers = WorkerPool(1)
        self._requests = OutgoingRequests()
        self._session = _HttpSession(None)
        self._renew_lock = threading.Lock()
        self._is_modern = False
        self._listener_slots = threading.Semaphore(_MAX_LISTENERS)
        self._capacity = Capacity(_MAX_UNFINISHED_MESSAGES, _MAX_UNFINISHED_BYTES)
        self._send_lock = threading.Lock()
        self._is_closed = False
        self._stop_event = threading.Event()
        self._is_drained = threading.Event()

    def send(self, raw: Message) -> None:
        """Queue a message; later failures become error responses. Raises `UpstreamFailed` after `close`."""
        with self._send_lock:
            if self._is_closed:
                raise UpstreamFailed("the gateway is about to end; ask again when it is back")
            self._capacity.add(count_memory_bytes(raw))
            self._send_queue.put(raw)

    def wait_ready(self) -> None:
        """Wait while too many messages are unfinished. Raises `UpstreamFailed` on timeout."""
        if not self._capacity.wait_for_room(_READY_TIMEOUT_SECONDS):
            raise UpstreamFailed("the server has not answered what it was sent before; ask again in a while")

    def _finish(self, raw: Message) -> None:
        self._capacity.release(count_memory_bytes(raw))

    def run(self, relay: Receiver) -> int:
        """Send queued messages until `close` is called; return 0, since a server at a URL has no exit code."""
        self._relay = relay
        relay.redact = self._endpoint.redact
        relay.redact_line = lambda line: redact_errors(line, self._endpoint)
        self._streams = ResponseStreams(self._endpoint, relay, self._new_buffer, self._stop_event)
        while (raw := self._send_queue.get()) is not None:
            self._dispatch(self._make_outgoing(raw), partial(self._finish, raw))
        self._is_drained.set()
        return 0

    def _make_outgoing(self, raw: Message) -> OutgoingMessage:
        message = parse(raw)
        headers = make_message_headers(message, raw, self._find_schema) if isinstance(message, dict) else {}
        return OutgoingMessage(message, raw, headers)

    def _dispatch(self, message: OutgoingMessage, finish: Callable[[], None]) -> None:
        """Start to send a message; `finish` is called when that is done."""
        if message.is_request:
            self._is_modern = message.is_modern
            self._requests.add(message)
        match message.method:
            case "initialize":
                # Wait for the response to the handshake, because servers reject all other messages before it. Not for
                # other requests with the same id, which are sent after it.
                is_settled = threading.Event()
                self._relay.call_when_settled(message.id, is_settled.set)
                self._request_workers.submit(lambda: self._send_request(message), finish)
                is_settled.wait()
            case "notifications/initialized":
                self._notify_workers.submit(lambda: self._send_notification(message), finish)
                self._notify_workers.wait_idle(_ACCEPT_TIMEOUT_SECONDS)
            case "notifications/cancelled":
                self._cancel(message, finish)
            case "subscriptions/listen" if message.is_request:
                # A subscription lasts, so that it must not keep other messages waiting.
                finish()
                self._start_listening(message)
            case _ if message.is_request:
                self._request_workers.submit(lambda: self._send_request(message), finish)
            case _:
                self._notify_workers.submit(lambda: self._send_notification(message), finish)

    def _start_listening(self, message: OutgoingMessage) -> None:
        if self._listener_slots.acquire(blocking=False):
            self._listen_workers.submit(lambda: self._send_request(message), self._listener_slots.release)
            return
        self._requests.remove(message)
        text = f"there are {_MAX_LISTENERS} subscriptions, and no more at once; end one of them first"
        self._relay.fail_request(message.id, UpstreamFailed(text))

    def _cancel(self, message: OutgoingMessage, finish: Callable[[], None]) -> None:
        """Cancel a request: since `MODERN_VERSION` by closing its stream, before that by a notification."""
        request = self._requests.get(message.cancelled_id)
        is_modern = self._is_modern if request is None else request.is_modern

        def notify() -> None:
            self._send_notification(message)
            if request is not None:
                request.abort()

        if not is_modern:
            self._notify_workers.submit(notify, finish)
            return
        if request is not None:
            request.abort()
        finish()

    def _send_request(self, request: OutgoingMessage) -> None:
        try:
            # The request may have been cancelled while it was queued.
            if self._relay.is_pending(request.id):
                self._exchange(request)
        except UpstreamFailed as error:
            self._relay.fail_request(request.id, error)
        except Exception:
            _log.exception("forebay: a request could not be sent")
            self._relay.fail_request(
                request.id, UpstreamFailed("the request could not be sent, for a fault of the gateway")
            )
        finally:
            self._requests.remove(request)

    def _send_notification(self, message: OutgoingMessage) -> None:
        try:
            self._exchange(message)
        except UpstreamFailed as error:
            _log.warning("forebay: the server was not told of %s: %s", message.method or "an answer", error)
        except Exception:
            _log.exception("forebay: a message could not be sent")

    def _exchange(self, message: OutgoingMessage, *, is_retry: bool = False) -> None:
        """Send a message and read the response. If the server has forgotten the session, do so in a new session."""
        session = self._session
        if not self._try_exchange(message, session):
            if is_retry:
                raise UpstreamFailed("the server forgets its sessions at once; ask again in a while")
            self._renew_session(session)
            # The new session has not asked what a response to the lost one answers.
            if not message.is_response:
                self._exchange(message, is_retry=True)
        elif message.method == "notifications/initialized" and self._session.legacy_stream is None:
            threading.Thread(target=self._listen, args=(self._session,), daemon=True).start()

    def _try_exchange(self, message: OutgoingMessage, session: _HttpSession) -> bool:
        """Send a message; return `False` if the server does not know the session and has not processed the message."""
        if session.legacy_stream is not None and message.method != "initialize":
            return self._post_legacy(message, session.legacy_stream)
        headers = self._make_headers(message, session)
        try:
            with self._post(message, self._endpoint.url, headers) as (response, connection):
                if is_session_lost(response, headers):
                    return False
                if message.method == "initialize" and response.is_success:
                    self._session = _HttpSession(response.headers.get("mcp-session-id"))
                broken_stream = self._streams.read_response(response, message, connection)
        except HttpStatusError as error:
            if message.method != "initialize" or error.status not in _LEGACY_STATUSES:
                raise
            self._initialize_legacy(message, error)
            return True
        if broken_stream is not None:
            self._streams.resume(
                message,
                broken_stream,
                lambda: self._make_headers(message, session),
                lambda: self._on_session_lost(session),
            )
        return True

    @contextlib.contextmanager
    def _post(
        self, message: OutgoingMessage, url: httpx.URL, headers: Mapping[str, str]
    ) -> Iterator[tuple[httpx.Response, UpstreamConnection]]:
        read_timeout = None if message.is_request else _ACCEPT_TIMEOUT_SECONDS
        with self._endpoint.borrow_connection() as connection:
            message.use_connection(connection)
            try:
                response = self._endpoint.open(connection, "POST", url, headers, message.raw, read_timeout)
                with contextlib.closing(response):
                    yield response, connection
            finally:
                message.use_connection(None)

    def _initialize_legacy(self, message: OutgoingMessage, error: HttpStatusError) -> None:
        """Send `initialize` over the 2024-11-05 transport; raise `error` if the server does not support that either."""
        stream = LegacyStream(self._endpoint, self._relay, self._new_buffer)
        if stream.get_post_url() is None:
            raise error
        self._session = _HttpSession(None, stream)
        self._post_legacy(message, stream)

    def _post_legacy(self, message: OutgoingMessage, stream: LegacyStream) -> bool:
        """Post a message whose response comes on `stream`; return `False` if the stream has ended."""
        url = stream.get_post_url()
        if stream.is_closed or url is None:
            return False
        with self._post(message, url, self._make_headers(message, self._session)) as (response, connection):
            if not response.is_success:
                self._streams.read_response(response, message, connection)
        return True

    def _make_headers(self, message: OutgoingMessage | None, session: _HttpSession) -> dict[str, str]:
        headers = {"accept": f"{JSON_TYPE}, {EVENT_STREAM_TYPE}", "content-type": JSON_TYPE}
        if message is not None and (message.is_modern or message.method == "initialize"):
            return {**headers, **message.headers}
        if session.id is not None:
            headers["mcp-session-id"] = session.id
        if (version := self._relay.negotiated_version) is not None:
            headers["mcp-protocol-version"] = version
        return headers

    def _renew_session(self, lost_session: _HttpSession) -> None:
        """Repeat the handshake to a server that has forgotten the session."""
        with self._renew_lock:
            if self._session is lost_session:
                _log.info("forebay: the server has forgotten the session, and is told again what it knew")
                self._relay.cancel_server_requests("the server has forgotten the session")
                try:
                    self._relay.replay_session(self._resend)
                except UpstreamTimeout as error:
                    raise UpstreamFailed(str(error)) from None
            if self._session is lost_session:
                raise UpstreamFailed("the server has forgotten the session; connect to it again")

    def _on_session_lost(self, session: _HttpSession) -> None:
        """Cancel the requests of a session that the server has forgotten. The next message opens a new session."""
        with self._renew_lock:
            if self._session is session:
                self._relay.cancel_server_requests("the server has forgotten the session")

    def _resend(self, raw: Message) -> None:
        self._exchange(self._make_outgoing(raw), is_retry=True)

    def _listen(self, session: _HttpSession) -> None:
        """Read the server's stream for messages outside of requests, as long as the session lasts."""
        with contextlib.suppress(UpstreamFailed):
            self._streams.listen(
                lambda: self._make_headers(None, session),
                lambda: self._session is session,
                lambda: self._on_session_lost(session),
            )

    def close(self) -> None:
        """Send the queued notifications, abort everything else, and end `run`."""
        with self._send_lock:
            self._is_closed = True
            self._capacity.close()
            self._send_queue.put(None)
        if self._is_drained.wait(_CLOSE_TIMEOUT_SECONDS):
            self._notify_workers.wait_idle(_CLOSE_TIMEOUT_SECONDS)
        self._stop_event.set()
        self._endpoint.abort_all()
        if self._session.id is not None:
            thread = threading.Thread(target=self._delete_session, daemon=True)
            thread.start()
            thread.join(_CLOSE_TIMEOUT_SECONDS)
        self._endpoint.close()

    def _delete_session(self) -> None:
        # Failing is harmless: the session expires at the server.
        with contextlib.suppress(UpstreamFailed, httpx.HTTPError), self._endpoint.borrow_connection() as connection:
            headers = self._make_headers(None, self._session)
            self._endpoint.open(
                connection, "DELETE", self._endpoint.url, headers, read_timeout=_CLOSE_TIMEOUT_SECONDS
            ).close()
