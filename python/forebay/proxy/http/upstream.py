"""A server reached over HTTP: each message is posted in its own HTTP request, and the response may be a stream."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.http.client import Response, run_in_thread
from forebay.proxy.http.connection import Endpoint, OutgoingMessage, OutgoingRequests
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
from forebay.proxy.http.urls import URL
from forebay.proxy.upstream import Receiver
from forebay.proxy.workers import Capacity
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


def _do_nothing() -> None:
    pass


class HttpUpstream:
    """Server at a URL. Its messages go to the relay.

    All exchanges run in one event loop: one that `run` starts in the calling thread, or the loop that runs `serve`.
    `send`, `wait_ready` and `close` may be called in any thread.
    """

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
        self._send_queue: deque[Message] = deque()
        self._requests = OutgoingRequests()
        self._waiting_requests: deque[OutgoingMessage] = deque()
        """Requests that are sent when others have ended."""
        self._request_count = 0
        self._listener_count = 0
        self._notifications: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        """Exchanges without a response, which are sent one after the other, to keep them in order."""
        self._notify_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._session = _HttpSession(None)
        self._is_modern = False
        self._capacity = Capacity(_MAX_UNFINISHED_MESSAGES, _MAX_UNFINISHED_BYTES)
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._is_dispatch_scheduled = False
        self._hold: asyncio.Future[None] | None = None
        """Set while messages must wait, because the handshake is not over."""
        self._has_ended = threading.Event()

    def send(self, raw: Message) -> None:
        """Queue a message; later failures become error responses. Raises `UpstreamFailed` after `close`."""
        with self._lock:
            if self._is_closed:
                raise UpstreamFailed("the gateway is about to end; retry when it is back")
            self._capacity.add(count_memory_bytes(raw))
            self._send_queue.append(raw)
            if self._is_dispatch_scheduled or self._loop is None:
                return
            self._is_dispatch_scheduled = True
        self._call_in_loop(self._dispatch_queued)

    @property
    def has_room(self) -> bool:
        """Whether few messages are unfinished."""
        return self._capacity.wait_for_room(0)

    def wait_ready(self) -> None:
        """Wait while too many messages are unfinished. Raises `UpstreamFailed` on timeout."""
        if not self._capacity.wait_for_room(_READY_TIMEOUT_SECONDS):
            raise UpstreamFailed("the server reads too slowly: earlier messages are still queued; retry later")

    def _finish(self, raw: Message) -> None:
        self._capacity.release(count_memory_bytes(raw))

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        """Call a function in the loop soon; do nothing if the loop has ended."""
        if self._loop is None:
            return
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(callback)
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def run(self, relay: Receiver) -> int:
        """Send queued messages until `close` is called; return 0, since a server at a URL has no exit code."""
        asyncio.run(self.serve(relay))
        return 0

    async def serve(self, relay: Receiver) -> None:
        """Do the work of `run` in the running event loop. All methods of `relay` must return soon."""
        self._relay = relay
        relay.redact = self._endpoint.redact
        relay.redact_line = lambda line: redact_errors(line, self._endpoint)
        self._streams = ResponseStreams(self._endpoint, relay, self._new_buffer)
        self._renew_lock = asyncio.Lock()
        self._close_event = asyncio.Event()
        with self._lock:
            self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
            if self._is_closed:
                self._close_event.set()
        try:
            self._dispatch_queued()
            await self._close_event.wait()
            await self._shut_down()
        finally:
            self._has_ended.set()

    def _dispatch_queued(self) -> None:
        """Start to send the queued messages."""
        # Before the queue is read: a message that is queued from now on schedules another call.
        self._is_dispatch_scheduled = False
        while self._send_queue and self._hold is None:
            self._dispatch(self._make_outgoing(self._send_queue.popleft()))

    def _make_outgoing(self, raw: Message) -> OutgoingMessage:
        message = parse(raw)
        headers = make_message_headers(message, raw, self._find_schema) if isinstance(message, dict) else {}
        return OutgoingMessage(message, raw, headers)

    def _dispatch(self, message: OutgoingMessage) -> None:
        """Start to send a message."""
        if message.is_request:
            self._is_modern = message.is_modern
            self._requests.add(message)
        match message.method:
            case "initialize":
                # Wait for the response to the handshake, because servers reject all other messages before it. Not for
                # other requests with the same id, which are sent after it.
                release = self._hold_queue()
                self._relay.call_when_settled(message.id, lambda: self._call_in_loop(release))
                self._start_request(message)
            case "notifications/initialized":
                release = self._hold_queue()
                asyncio.get_running_loop().call_later(_ACCEPT_TIMEOUT_SECONDS, release)
                self._start_notification(message, release)
            case "notifications/cancelled":
                self._cancel(message)
            case "subscriptions/listen" if message.is_request:
                # A subscription lasts, so that it must not keep other messages waiting.
                self._finish(message.raw)
                self._start_listening(message)
            case _ if message.is_request:
                self._start_request(message)
            case _:
                self._start_notification(message)

    def _hold_queue(self) -> Callable[[], None]:
        """Let queued messages wait; return the function that ends this."""
        hold = self._hold = asyncio.get_running_loop().create_future()

        def release() -> None:
            if self._hold is hold:
                self._hold = None
                hold.set_result(None)
                self._dispatch_queued()

        return release

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start_request(self, message: OutgoingMessage) -> None:
        if self._request_count >= _MAX_REQUESTS:
            self._waiting_requests.append(message)
            return
        self._request_count += 1
        message.task = self._start_task(self._send_request(message))
        message.task.add_done_callback(partial(self._on_request_end, message))

    def _on_request_end(self, message: OutgoingMessage, task: asyncio.Task[None]) -> None:
        self._end_request(message, task)
        self._finish(message.raw)
        self._request_count -= 1
        if self._waiting_requests:
            self._start_request(self._waiting_requests.popleft())

    def _end_request(self, message: OutgoingMessage, task: asyncio.Task[None]) -> None:
        self._requests.remove(message)
        # The traceback of a cancelled task refers to the message: free both now, not at the next garbage collection.
        message.task = None
        if task.cancelled():
            # Nobody waits for it, or the gateway ends.
            self._relay.fail_request(message.id, UpstreamFailed("the gateway is about to end; retry later"))

    def _start_listening(self, message: OutgoingMessage) -> None:
        if self._listener_count >= _MAX_LISTENERS:
            self._requests.remove(message)
            text = f"there are {_MAX_LISTENERS} subscriptions, and no more at once; end one of them first"
            self._relay.fail_request(message.id, UpstreamFailed(text))
            return
        self._listener_count += 1

        def on_end(task: asyncio.Task[None]) -> None:
            self._listener_count -= 1
            self._end_request(message, task)

        message.task = self._start_task(self._send_request(message))
        message.task.add_done_callback(on_end)

    def _start_notification(self, message: OutgoingMessage, on_end: Callable[[], None] = _do_nothing) -> None:
        async def notify() -> None:
            try:
                await self._send_notification(message)
            finally:
                self._finish(message.raw)
                on_end()

        self._notifications.append(notify)
        if self._notify_task is None or self._notify_task.done():
            self._notify_task = self._start_task(self._send_notifications())

    async def _send_notifications(self) -> None:
        while self._notifications:
            await self._notifications.popleft()()

    def _cancel(self, message: OutgoingMessage) -> None:
        """Cancel a request: since `MODERN_VERSION` by closing its stream, before that by a notification."""
        request = self._requests.get(message.cancelled_id)
        is_modern = self._is_modern if request is None else request.is_modern
        if not is_modern:
            self._start_notification(message, _do_nothing if request is None else request.abort)
            return
        if request is not None:
            request.abort()
        self._finish(message.raw)

    async def _send_request(self, request: OutgoingMessage) -> None:
        try:
            # The request may have been cancelled while it was queued.
            if self._relay.is_pending(request.id):
                await self._exchange(request)
        except UpstreamFailed as error:
            self._relay.fail_request(request.id, error)
        except Exception:
            _log.exception("forebay: a request could not be sent")
            self._relay.fail_request(
                request.id, UpstreamFailed("the request could not be sent, for a fault of the gateway")
            )

    async def _send_notification(self, message: OutgoingMessage) -> None:
        try:
            await self._exchange(message)
        except UpstreamFailed as error:
            _log.warning("forebay: the server was not told of %s: %s", message.method or "an answer", error)
        except Exception:
            _log.exception("forebay: a message could not be sent")

    async def _exchange(self, message: OutgoingMessage, *, is_retry: bool = False) -> None:
        """Send a message and read the response. If the server has forgotten the session, do so in a new session."""
        session = self._session
        if not await self._try_exchange(message, session):
            if is_retry:
                raise UpstreamFailed("the server forgets its sessions at once; retry later")
            await self._renew_session(session)
            # The new session has not asked what a response to the lost one answers.
            if not message.is_response:
                await self._exchange(message, is_retry=True)
        elif message.method == "notifications/initialized" and self._session.legacy_stream is None:
            self._start_task(self._listen(self._session))

    async def _try_exchange(self, message: OutgoingMessage, session: _HttpSession) -> bool:
        """Send a message; return `False` if the server does not know the session and has not processed the message."""
        if session.legacy_stream is not None and message.method != "initialize":
            return await self._post_legacy(message, session.legacy_stream)
        headers = self._make_headers(message, session)
        try:
            async with self._post(message, self._endpoint.url, headers) as response:
                if is_session_lost(response, headers):
                    return False
                if message.method == "initialize" and response.is_success:
                    self._session = _HttpSession(response.headers.get("mcp-session-id"))
                broken_stream = await self._streams.read_response(response, message)
        except HttpStatusError as error:
            if message.method != "initialize" or error.status not in _LEGACY_STATUSES:
                raise
            await self._initialize_legacy(message, error)
            return True
        if broken_stream is not None:
            await self._streams.resume(
                message,
                broken_stream,
                lambda: self._make_headers(message, session),
                lambda: self._on_session_lost(session),
            )
        return True

    @contextlib.asynccontextmanager
    async def _post(self, message: OutgoingMessage, url: URL, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        """Post a message and yield the response. Later notifications wait for this, so it has a limit for them."""
        try:
            async with asyncio.timeout(None if message.is_request else _ACCEPT_TIMEOUT_SECONDS):
                with contextlib.closing(await self._endpoint.open("POST", url, headers, message.raw)) as response:
                    yield response
        except TimeoutError:
            text = f"the server did not accept it within {_ACCEPT_TIMEOUT_SECONDS:g} s; retry later"
            raise UpstreamFailed(text) from None

    async def _initialize_legacy(self, message: OutgoingMessage, error: HttpStatusError) -> None:
        """Send `initialize` over the 2024-11-05 transport; raise `error` if the server does not support that either."""
        stream = LegacyStream(self._endpoint, self._relay, self._new_buffer)
        task = self._start_task(stream.run())
        if await stream.get_post_url() is None:
            task.cancel()
            raise error
        self._session = _HttpSession(None, stream)
        await self._post_legacy(message, stream)

    async def _post_legacy(self, message: OutgoingMessage, stream: LegacyStream) -> bool:
        """Post a message whose response comes on `stream`; return `False` if the stream has ended."""
        url = await stream.get_post_url()
        if stream.is_closed or url is None:
            return False
        headers = self._make_headers(message, self._session)
        async with self._post(message, url, headers) as response:
            if not response.is_success:
                await self._streams.read_response(response, message)
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

    async def _renew_session(self, lost_session: _HttpSession) -> None:
        """Repeat the handshake to a server that has forgotten the session."""
        async with self._renew_lock:
            if self._session is lost_session:
                _log.info("forebay: the server has forgotten the session, and is told again what it knew")
                self._relay.cancel_server_requests("the server has forgotten the session")
                loop = asyncio.get_running_loop()

                async def exchange(raw: Message) -> None:
                    await self._start_task(self._exchange(self._make_outgoing(raw), is_retry=True))

                def resend(raw: Message) -> None:
                    asyncio.run_coroutine_threadsafe(exchange(raw), loop).result()

                try:
                    await run_in_thread(lambda: self._relay.replay_session(resend))
                except UpstreamTimeout as error:
                    raise UpstreamFailed(str(error)) from None
            if self._session is lost_session:
                raise UpstreamFailed("the server has forgotten the session; connect to it again")

    def _on_session_lost(self, session: _HttpSession) -> None:
        """Cancel the requests of a session that the server has forgotten. The next message opens a new session."""
        if self._session is session:
            self._relay.cancel_server_requests("the server has forgotten the session")

    async def _listen(self, session: _HttpSession) -> None:
        """Read the server's stream for messages outside of requests, as long as the session lasts."""
        with contextlib.suppress(UpstreamFailed):
            await self._streams.listen(
                lambda: self._make_headers(None, session),
                lambda: self._session is session,
                lambda: self._on_session_lost(session),
            )

    def close(self) -> None:
        """Send the queued notifications, abort everything else, and end `run`.

        Waits for that, except in the thread of the loop.
        """
        with self._lock:
            self._is_closed = True
            self._capacity.close()
            if self._loop is None:
                return
        self._call_in_loop(self._close_event.set)
        if threading.get_ident() != self._thread_id:
            self._has_ended.wait(4 * _CLOSE_TIMEOUT_SECONDS)

    async def _shut_down(self) -> None:
        if self._hold is not None:
            await asyncio.wait([self._hold], timeout=_CLOSE_TIMEOUT_SECONDS)
        if self._notify_task is not None:
            await asyncio.wait([self._notify_task], timeout=_CLOSE_TIMEOUT_SECONDS)
        # Requests that still wait are started, too, so that they end with an error.
        while self._tasks or self._waiting_requests or self._send_queue:
            self._hold = None
            self._dispatch_queued()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
        if self._session.id is not None:
            # Failing is harmless: the session expires at the server.
            with contextlib.suppress(UpstreamFailed, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                    headers = self._make_headers(None, self._session)
                    (await self._endpoint.open("DELETE", self._endpoint.url, headers)).close()
        self._endpoint.close()
