"""HTTP responses of a server: single messages, resumable event streams, and the stream of the 2024-11-05 transport."""

import asyncio
import contextlib
import email.utils
import logging
import math
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from forebay._core import replace_texts
from forebay.errors import InvalidJSON, UpstreamFailed
from forebay.proxy.http.client import Response
from forebay.proxy.http.connection import Endpoint, OutgoingMessage, is_same_server
from forebay.proxy.http.urls import URL
from forebay.proxy.upstream import Receiver
from forebay.wire.framing import Line, LineBuffer, LostMessage, Spool
from forebay.wire.http_bodies import Event, EventParser
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, dump_size
from forebay.wire.messages import INTERNAL_ERROR, make_error_message, parse

__all__ = [
    "EVENT_STREAM_TYPE",
    "JSON_TYPE",
    "HttpStatusError",
    "LegacyStream",
    "ResponseBuffers",
    "ResponseStreams",
    "is_session_lost",
    "redact_errors",
]

_log = logging.getLogger("forebay")

JSON_TYPE, EVENT_STREAM_TYPE = "application/json", "text/event-stream"

_MAX_ERROR_BODY_BYTES = 64 * 1024
_MAX_SHOWN_CHARS = 300
"""Maximum characters of an error body to show in our own error."""

_MIN_BUFFER_BYTES = 64 * 1024
"""Bytes of a response that are kept in memory, however many responses there are at once."""

_FIRST_RETRY_SECONDS, _MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 1.0, 0.1, 30.0
"""First delay before a stream is opened again if the server sets none, and the shortest and longest delay."""

_MAX_RETRY_AFTER_SECONDS = 300.0
"""Longest delay that a server can set with Retry-After."""

_TRANSIENT_STATUSES = (408, 409, 425, 429)
"""Error statuses below 500 with which a server refuses a stream only for now; 409 if it still serves the last one."""

_MAX_RESUMES = 5
"""Maximum number of times that a stream is resumed without a new event."""

_LINGER_SECONDS = 1.0
"""How long a stream may stay open after the response. If the server ends it in this time, its connection is reused."""

_ENDPOINT_TIMEOUT_SECONDS = 10.0
"""How long a server of 2024-11-05 may take to send the URL for messages."""

_NEWLINES_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")

_MAX_ID_BYTES = 1024

_MakeHeaders = Callable[[], dict[str, str]]


class HttpStatusError(UpstreamFailed):
    """The server answered with an HTTP error status and without a JSON-RPC response."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Unavailable(UpstreamFailed):
    """The server does not open a stream for now."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def _check_available(response: Response) -> None:
    """Raise `_Unavailable` if a response says that another try may succeed."""
    if _is_transient(response.status):
        raise _Unavailable("the server opens no stream just now", _get_retry_after(response))


def _is_transient(status: int) -> bool:
    return status >= 500 or status in _TRANSIENT_STATUSES


def _get_retry_after(response: Response) -> float:
    """Return how many seconds the server wants its callers to wait; 0 if it does not say."""
    value = response.headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def is_session_lost(response: Response, headers: Mapping[str, str]) -> bool:
    """Return whether a response says that the server has forgotten the session that the request headers name."""
    return response.status == 404 and "mcp-session-id" in headers


class ResponseBuffers:
    """Maker of the buffers for responses, of which there may be many at once.

    Each buffer gets half of the memory that no other buffer has, so that a single response is spooled only above
    `spool_above_bytes`, and all of them together take little more than twice as much.
    """

    def __init__(self, spool_above_bytes: int, make_spool: Callable[[], Spool]) -> None:
        self._max_bytes = 2 * spool_above_bytes
        self._min_buffer_bytes = min(_MIN_BUFFER_BYTES, spool_above_bytes)
        self._make_spool = make_spool
        self._buffers: weakref.WeakSet[LineBuffer] = weakref.WeakSet()

    def new_buffer(self) -> LineBuffer:
        unused_bytes = self._max_bytes - sum(buffer.spool_above_bytes for buffer in self._buffers)
        buffer = LineBuffer(max(unused_bytes // 2, self._min_buffer_bytes), self._make_spool)
        self._buffers.add(buffer)
        return buffer


class ResponseStreams:
    """Reader of HTTP responses that passes their messages to the relay."""

    def __init__(self, endpoint: Endpoint, relay: Receiver, new_buffer: Callable[[], LineBuffer]) -> None:
        self._endpoint = endpoint
        self._relay = relay
        self._new_buffer = new_buffer

    def _deliver(self, line: Line, request_id: object = None) -> bool:
        return self._relay.receive_from_server(redact_errors(line, self._endpoint), request_id)

    async def read_response(self, response: Response, message: OutgoingMessage) -> EventParser | None:
        """Read the response to a message. If it is a stream that broke off, return the parser for `resume`."""
        if response.status >= 300:
            await self._on_error_status(response, message)
        elif not message.is_request:
            return None
        elif response.media_type == EVENT_STREAM_TYPE:
            events = EventParser(self._new_buffer())
            if not await self._read_events(response, events, message):
                return events
        elif response.media_type == JSON_TYPE:
            await self._read_json(response, message)
        elif response.status == 202:
            raise UpstreamFailed("the server accepted the request, but does not answer it")
        else:
            media_type = response.media_type[:100]
            raise UpstreamFailed(f"the server answered {media_type or 'nothing'!r}, which is no message; check the URL")
        return None

    async def _read_json(self, response: Response, message: OutgoingMessage) -> None:
        buffer = self._new_buffer()
        try:
            async for chunk in response:
                # The relay expects one line per message; in JSON, newlines are only whitespace.
                has_newline = b"\n" in chunk or b"\r" in chunk
                buffer.append(chunk.translate(_NEWLINES_TO_SPACES) if has_newline else chunk)
        except BaseException:
            buffer.discard()
            raise
        # The connection is for the next request, which the relay may send at once.
        response.close()
        if not self._deliver(buffer.take(), message.id):
            raise UpstreamFailed(
                "the server answered what is no answer to this request; it may have done what it was asked to"
            )

    async def _read_events(self, response: Response, events: EventParser, message: OutgoingMessage) -> bool:
        """Pass the events of a stream to the relay; return whether the response was among them."""
        is_answered = False
        timer: asyncio.TimerHandle | None = None
        try:
            async for chunk in response:
                for event in events.feed(chunk):
                    if event.is_message:
                        is_answered |= self._deliver(event.data, message.id)
                if is_answered and timer is None:
                    timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, response.close)
        except UpstreamFailed as error:
            _log.debug("forebay: a stream of the server broke off: %s", error)
        finally:
            if timer is not None:
                timer.cancel()
            events.discard()
        return is_answered

    async def resume(
        self,
        message: OutgoingMessage,
        events: EventParser,
        make_headers: _MakeHeaders,
        on_session_lost: Callable[[], None],
    ) -> None:
        """Resume a broken stream after its last event. Raises `UpstreamFailed` if the server does not support that.

        `on_session_lost` is called if the server has forgotten the session.
        """
        tries, retry_after = 0, 0.0
        while not message.is_modern and events.last_event_id and tries < _MAX_RESUMES:
            last_event_id = events.last_event_id
            await asyncio.sleep(_get_retry_delay(events, tries, retry_after))
            if not self._relay.is_pending(message.id):
                return
            retry_after = 0.0
            try:
                if await self._try_resume(message, events, make_headers(), on_session_lost):
                    return
            except _Unavailable as error:
                retry_after = error.retry_after_seconds
            tries = tries + 1 if events.last_event_id == last_event_id else 0
        raise UpstreamFailed("the server's stream ended before its answer; it may have done what it was asked to")

    async def _try_resume(
        self,
        message: OutgoingMessage,
        events: EventParser,
        headers: dict[str, str],
        on_session_lost: Callable[[], None],
    ) -> bool:
        try:
            response = await self._open_stream({**headers, "last-event-id": events.last_event_id})
        except UpstreamFailed as error:
            raise _Unavailable(str(error)) from None
        with contextlib.closing(response):
            if is_session_lost(response, headers):
                on_session_lost()
            _check_available(response)
            if response.status != 200 or response.media_type != EVENT_STREAM_TYPE:
                raise UpstreamFailed(
                    "the server's stream broke off and cannot be resumed; it may have done what it was asked to"
                )
            return await self._read_events(response, events, message)

    async def listen(
        self, make_headers: _MakeHeaders, should_listen: Callable[[], bool], on_session_lost: Callable[[], None]
    ) -> None:
        """Read the server's stream for messages outside of requests, if there is one, while `should_listen()`.

        `on_session_lost` is called if the server has forgotten the session.
        """
        events, tries, was_open = EventParser(self._new_buffer()), 0, False
        while should_listen():
            tries += 1
            retry_after = 0.0
            try:
                headers = make_headers()
                resume_headers = {"last-event-id": events.last_event_id} if events.last_event_id else {}
                with contextlib.closing(await self._open_stream({**headers, **resume_headers})) as response:
                    if is_session_lost(response, headers):
                        on_session_lost()
                    if was_open or response.status >= 500:
                        _check_available(response)
                    if response.status != 200 or response.media_type != EVENT_STREAM_TYPE:
                        return
                    was_open = True
                    async for chunk in response:
                        for event in events.feed(chunk):
                            tries = 0
                            if event.is_message:
                                self._deliver(event.data)
            except _Unavailable as error:
                retry_after = error.retry_after_seconds
            except UpstreamFailed as error:
                _log.debug("forebay: the server cannot be listened to just now: %s", error)
            events.discard()
            await asyncio.sleep(_get_retry_delay(events, tries, retry_after))

    async def _open_stream(self, headers: dict[str, str]) -> Response:
        stream_headers = {name: value for name, value in headers.items() if name != "content-type"}
        stream_headers["accept"] = EVENT_STREAM_TYPE
        return await self._endpoint.open("GET", self._endpoint.url, stream_headers)

    async def _on_error_status(self, response: Response, message: OutgoingMessage) -> None:
        """Pass the JSON-RPC error in an HTTP error body to the relay. Raises `UpstreamFailed` if there is none."""
        body = bytearray()
        async for chunk in response:
            body += chunk[: _MAX_ERROR_BODY_BYTES - len(body)]
            if len(body) >= _MAX_ERROR_BODY_BYTES:
                break
        if message.is_request and self._deliver_error(bytes(body), message):
            return
        status = response.status
        if status in (401, 403):
            raise UpstreamFailed(
                f"{self._endpoint.name} lets nobody in like this (HTTP {status}); give what it wants with --header, or "
                "mend what was given"
            )
        excerpt = self._endpoint.redact(" ".join(body.decode(errors="replace").split()))[:_MAX_SHOWN_CHARS]
        detail = f": {excerpt}" if excerpt else ""
        advice = _get_advice(status, _get_retry_after(response))
        raise HttpStatusError(f"{self._endpoint.name} answered HTTP {status}{detail}; {advice}", status)

    def _deliver_error(self, body: bytes, message: OutgoingMessage) -> bool:
        try:
            response = orjson.loads(body)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(response, dict) or not isinstance(response.get("error"), dict) or "jsonrpc" not in response:
            return False
        if response.get("id") == message.id:
            return self._deliver(body.translate(_NEWLINES_TO_SPACES), message.id)
        # Set the id of the request: the server rejected the request before it parsed the id.
        return self._deliver(dump({**response, "id": message.id}), message.id)


def _get_advice(status: int, retry_after_seconds: float) -> str:
    """Return what to do about an error status."""
    if status == 413:
        return "send less"
    if not _is_transient(status):
        return "check the URL"
    advice = f"try again in {math.ceil(retry_after_seconds)} s" if retry_after_seconds else "try again later"
    # With 503, a server refuses a request before it does anything.
    return f"it may have done what it was asked to; {advice}" if status >= 500 and status != 503 else advice


def _get_retry_delay(events: EventParser, attempt_count: int, retry_after_seconds: float) -> float:
    first_delay = (
        _FIRST_RETRY_SECONDS if events.retry_seconds is None else max(events.retry_seconds, _MIN_RETRY_SECONDS)
    )
    delay = min(first_delay * 2.0 ** max(attempt_count - 1, 0), _MAX_RETRY_SECONDS)
    return max(delay, min(retry_after_seconds, _MAX_RETRY_AFTER_SECONDS))


class LegacyStream:
    """Event stream of the 2024-11-05 transport, which carries all messages of a server.

    Messages to the server are posted to another URL. When the stream ends, all pending requests fail.
    """

    def __init__(self, endpoint: Endpoint, relay: Receiver, new_buffer: Callable[[], LineBuffer]) -> None:
        self._endpoint = endpoint
        self._relay = relay
        self._events = EventParser(new_buffer())
        self._post_url: asyncio.Future[URL] = asyncio.get_running_loop().create_future()
        self.is_closed = False

    async def get_post_url(self) -> URL | None:
        """Return the URL to post messages to; `None` if the server does not have this transport."""
        await asyncio.wait([self._post_url], timeout=_ENDPOINT_TIMEOUT_SECONDS)
        return self._post_url.result() if self._post_url.done() and not self._post_url.cancelled() else None

    async def run(self) -> None:
        """Read the stream until it ends."""
        try:
            await self._listen()
        except UpstreamFailed as reason:
            _log.debug("forebay: the server's stream broke off: %s", reason)
        finally:
            self.is_closed = True
            self._events.discard()
            if not self._post_url.cancel():
                text = "the server's stream ended before its answer; it may have done what it was asked to"
                self._relay.on_upstream_end(UpstreamFailed(text))

    async def _listen(self) -> None:
        response = await self._endpoint.open("GET", self._endpoint.url, {"accept": EVENT_STREAM_TYPE})
        with contextlib.closing(response):
            if response.status != 200 or response.media_type != EVENT_STREAM_TYPE:
                return
            async for chunk in response:
                for event in self._events.feed(chunk):
                    self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if event.is_message:
            self._relay.receive_from_server(redact_errors(event.data, self._endpoint))
        elif event.name == "endpoint" and not isinstance(event.data, Spool | LostMessage):
            try:
                url = self._endpoint.url.join(event.data.decode(errors="replace"))
            except ValueError:
                raise UpstreamFailed("the server names no URL for its messages") from None
            if not is_same_server(self._endpoint.url, url):
                raise UpstreamFailed("the server wants its messages sent elsewhere")
            if not self._post_url.done():
                self._post_url.set_result(url)


def redact_errors(line: Line, endpoint: Endpoint) -> Line:
    """Redact secrets in a JSON-RPC error or tool error, because some servers repeat request headers in errors.

    Other results are data of the server and stay unchanged, even if they contain the caller's credentials. An error
    that is too large for memory is replaced by an error that says so.
    """
    if isinstance(line, LostMessage) or not endpoint.secrets:
        return line
    if (
        not isinstance(line, Spool)
        and len(line) <= _MIN_BUFFER_BYTES
        and not endpoint.has_secret([memoryview(line).toreadonly()])
    ):
        # Cheaper than to parse a small message.
        return line
    message = parse(line)
    if not _is_error(message) or not endpoint.has_secret(as_lazy(line).json_chunks()):
        return line
    if isinstance(line, Spool):
        # The relay splits a batch, and calls this function for each of its messages.
        return _make_withheld_error(message, len(line)) if isinstance(message, dict) else line

    def redact(text: bytes) -> bytes:
        return endpoint.redact(text.decode(errors="surrogatepass")).encode(errors="surrogatepass")

    redacted = replace_texts(memoryview(line).toreadonly(), redact)
    return line if redacted is None else redacted


def _make_withheld_error(message: dict[str, Any], size: int) -> bytes:
    error = UpstreamFailed(
        f"the server answered with an error of {size} bytes, which repeats credentials of the gateway and is too large "
        "to remove them; it may have done what it was asked to"
    )
    # Our requests have short ids, so that a response with a long one answers none of them.
    request_id = message.get("id") if dump_size(message.get("id")) <= _MAX_ID_BYTES else None
    return make_error_message(request_id, INTERNAL_ERROR, str(error), error.to_dict()["error"])


def _is_error(message: Any) -> bool:
    if isinstance(message, list):
        return any(map(_is_error, message))
    if not isinstance(message, dict) or "method" in message:
        return False
    result = message.get("result")
    if isinstance(result, LazyJSON):
        try:
            result = {name: member.parse() for name, member in result.members(("isError",)).items()}
        except InvalidJSON:
            return True
    return "error" in message or (isinstance(result, dict) and result.get("isError") is True)
