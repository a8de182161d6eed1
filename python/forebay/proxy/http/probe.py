"""Minimal client for a server at a URL, with the standard library alone."""

import contextlib
import http.client
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from forebay.errors import ForebayError, UpstreamFailed, UpstreamTimeout
from forebay.proxy.http.headers import make_message_headers
from forebay.proxy.probe import Probe
from forebay.wire.framing import LineBuffer, Spool
from forebay.wire.http_bodies import EventParser
from forebay.wire.lazy_json import dump
from forebay.wire.protocol import LEGACY_VERSION

__all__ = ["HttpProbe", "SignInRequired"]

_JSON_TYPE = "application/json"
_EVENTS_TYPE = "text/event-stream"
_SESSION_HEADER = "Mcp-Session-Id"
_SIGN_IN_STATUSES = (401, 403)

_LEGACY_STATUSES = (400, 404, 405)
"""Statuses with which servers of the 2024-11-05 transport, and servers without a handshake, refuse `initialize`."""

_MAX_BODY_BYTES = 64 << 20
_CHUNK_BYTES = 64 * 1024


class SignInRequired(UpstreamFailed):
    """The server refuses the credentials of a request, or wants some."""


class _Refused(UpstreamFailed):
    """The server answered with an HTTP error."""

    def __init__(self, status: int) -> None:
        name = http.client.responses.get(status, "")
        super().__init__(f"the server answered {f'{status} {name}'.strip()}; check the URL")
        self.status = status


class HttpProbe(Probe):
    """Probe of a server at a URL. Messages of errors never have the URL or a header, which may be secret."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        super().__init__(timeout)
        self._url = url
        self._headers = {**(headers or {})}
        self._stream: http.client.HTTPResponse | None = None
        """The stream on which a server of the 2024-11-05 transport answers."""
        self._stream_messages: Iterator[Any] = iter(())
        # Without a handler of redirects: a redirect would send the headers to another host.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPErrorProcessor,
        ):
            self._opener.add_handler(handler())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if _SESSION_HEADER in self._headers:
            # The server ends the session on its own some day.
            with contextlib.suppress(UpstreamFailed, UpstreamTimeout):
                self._open("DELETE", "the end", None, _JSON_TYPE).close()

    def _connect(self) -> None:
        if not self._url.startswith(("http://", "https://")):
            raise UpstreamFailed("the URL does not begin with http:// or https://; check it")

    def _handshake(self) -> None:
        try:
            super()._handshake()
        except _Refused as error:
            if error.status not in _LEGACY_STATUSES:
                raise
            if self._open_event_stream():
                super()._handshake()
            else:
                self._use_modern_version()
        else:
            self._headers.setdefault("MCP-Protocol-Version", LEGACY_VERSION)

    def _open_event_stream(self) -> bool:
        """Open the stream of the 2024-11-05 transport; return whether the server has one."""
        try:
            self._stream = self._open("GET", "initialize", None, _EVENTS_TYPE)
        except _Refused:
            return False
        events = self._iter_events(self._stream, "initialize")
        for name, data in events:
            if name == "endpoint":
                self._url = urllib.parse.urljoin(self._url, data.decode())
                self._stream_messages = _iter_messages(events)
                return True
        return False

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        method = message["method"]
        try:
            for received in self._post(message):
                if isinstance(received, dict) and self._is_response(received):
                    return received
        except orjson.JSONDecodeError:
            raise UpstreamFailed(f"the server answered {method} with what is no JSON; check the URL") from None
        raise UpstreamFailed(f"the server did not answer {method}; check the URL")

    def _send(self, message: Mapping[str, Any]) -> None:
        for _ in self._post({**message}):
            pass

    def _post(self, message: dict[str, Any]) -> Iterator[Any]:
        """Post a message, and yield the messages that answer it."""
        raw = dump({"jsonrpc": "2.0", **message})
        method = str(message.get("method", "a response"))
        with self._open("POST", method, raw, f"{_JSON_TYPE}, {_EVENTS_TYPE}", message) as response:
            if session_id := response.headers.get(_SESSION_HEADER):
                self._headers[_SESSION_HEADER] = session_id
            if self._stream is not None:
                if "method" in message and "id" in message:
                    # Not `yield from`, which would end the stream together with this generator.
                    for received in self._stream_messages:  # noqa: UP028
                        yield received
            elif response.headers.get_content_type() == _EVENTS_TYPE:
                yield from _iter_messages(self._iter_events(response, method))
            elif body := b"".join(self._iter_chunks(response, method)):
                yield orjson.loads(body)

    def _open(
        self, verb: str, method: str, body: bytes | None, accepted_types: str, message: Mapping[str, Any] | None = None
    ) -> http.client.HTTPResponse:
        headers = {**self._headers, "Accept": accepted_types, "User-Agent": "forebay"}
        if body is not None and message is not None:
            headers |= {"Content-Type": _JSON_TYPE, **make_message_headers(message, body, lambda _: None)}
        seconds = self._get_remaining_seconds(method)
        try:
            request = urllib.request.Request(self._url, body, headers, method=verb)  # noqa: S310 - the scheme is checked
            response: http.client.HTTPResponse = self._opener.open(request, None, seconds)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _SIGN_IN_STATUSES:
                raise SignInRequired(f"the server answered {error.code}: it wants other credentials") from None
            raise _Refused(error.code) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._make_failure(method, error) from None
        return response

    def _iter_events(self, response: http.client.HTTPResponse, method: str) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the data of each event."""
        parser = EventParser(LineBuffer(sys.maxsize, lambda: Spool(tempfile.gettempdir())))
        for chunk in self._iter_chunks(response, method):
            for event in parser.feed(chunk):
                if isinstance(event.data, bytes | bytearray):
                    yield event.name, bytes(event.data)

    def _iter_chunks(self, response: http.client.HTTPResponse, method: str) -> Iterator[bytes]:
        size = 0
        try:
            while chunk := response.read1(_CHUNK_BYTES):
                size += len(chunk)
                if size > _MAX_BODY_BYTES:
                    raise UpstreamFailed(f"the server answered {method} with more than {_MAX_BODY_BYTES} bytes")
                yield chunk
                self._get_remaining_seconds(method)
        except ForebayError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise self._make_failure(method, error) from None

    def _make_failure(self, method: str, error: Exception) -> ForebayError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            return UpstreamTimeout(f"the server did not answer {method} within {self._timeout:g} s")
        text = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__
        return UpstreamFailed(f"the server cannot be reached: {text}; check the URL")


def _iter_messages(events: Iterator[tuple[str, bytes]]) -> Iterator[Any]:
    return (orjson.loads(data) for name, data in events if name == "message")
