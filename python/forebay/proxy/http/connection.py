"""Servers at a URL: credentials, cookies, redirects, and a pool of connections."""

import asyncio
import base64
import email.message
import http.cookiejar
import ssl
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import certifi

import forebay
from forebay._core import Unescaper
from forebay.errors import InvalidArgument, UpstreamFailed
from forebay.proxy.http.client import (
    CONNECT_TIMEOUT_SECONDS,
    Connection,
    Response,
    connect,
    make_basic_authorization,
)
from forebay.proxy.http.urls import URL
from forebay.wire.framing import Message
from forebay.wire.http_bodies import ACCEPT_ENCODING
from forebay.wire.messages import make_id_key
from forebay.wire.protocol import protocol_version

__all__ = ["Endpoint", "OutgoingMessage", "OutgoingRequests", "is_same_server"]

_MAX_REDIRECTS = 5
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)

_MIN_QUERY_SECRET_CHARS = 8
"""Minimum length of a query value to redact: shorter values are probably ordinary words, not secrets."""

_MIN_SECRET_CHARS = 4
"""Minimum length of any secret to redact: shorter ones would match unrelated text."""

_IDLE_TIMEOUT_SECONDS = 2.0
"""Idle connections are closed after this time, before servers usually close them."""


class Endpoint:
    """URL and credentials of a server, with a pool of connections to it. For use in one event loop."""

    def __init__(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        try:
            self.url = URL.parse(url)
        except ValueError:
            raise InvalidArgument("what is given as a URL is none; give one such as https://example.com/mcp") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise InvalidArgument("a URL begins with http:// or https:// and a host")
        self._headers = {
            "accept-encoding": ACCEPT_ENCODING,
            "connection": "keep-alive",
            "user-agent": f"forebay/{forebay.__version__}",
            **_join_headers(headers),
        }
        self.secrets = _find_secrets(self.url, headers)
        """The credentials, as they may appear in a text."""
        self._encoded_secrets = [secret.encode() for secret in self.secrets]
        self._cookies = http.cookiejar.CookieJar()
        self._has_cookies = False
        self._ssl_context: ssl.SSLContext | None = None
        self._idle: list[tuple[float, Connection]] = []
        """Connections that can be used again, with the time at which they became idle."""
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """The URL without user, password, query and fragment, which may be secret."""
        return f"{self.url.origin}{self.url.path}"

    def redact(self, text: str) -> str:
        """Replace credentials, which some servers repeat in their errors."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def has_secret(self, chunks: Iterable[bytes | memoryview]) -> bool:
        """Return whether JSON in chunks contains credentials, also if some of their characters are escaped."""
        overlap_bytes = max(map(len, self._encoded_secrets), default=1) - 1
        unescaper, tail = Unescaper(), b""
        for chunk in chunks:
            text = tail + unescaper.push(chunk)
            if any(secret in text for secret in self._encoded_secrets):
                return True
            tail = text[len(text) - overlap_bytes :] if overlap_bytes < len(text) else text
        return False

    async def open(self, method: str, url: URL, headers: Mapping[str, str], body: Message | None = None) -> Response:
        """Send a request and return the response, which must be closed. Raises `UpstreamFailed`.

        Redirects are followed only within the same server.
        """
        for _ in range(_MAX_REDIRECTS):
            response = await self._exchange(method, url, headers, body)
            location = response.headers.get("location")
            if response.status not in _REDIRECT_STATUSES or location is None:
                return response
            response.close()
            # Redirects other than 307 and 308 would turn the request into a GET without a body.
            if method != "GET" and response.status not in (307, 308):
                break
            try:
                target = url.join(location)
            except ValueError:
                break
            if not is_same_server(url, target) or target.userinfo not in ("", url.userinfo):
                break
            url = target
        raise UpstreamFailed(
            f"{self.name} sends its callers elsewhere, which is not followed; give the URL that it is at"
        )

    async def _exchange(self, method: str, url: URL, headers: Mapping[str, str], body: Message | None) -> Response:
        connection = self._take_idle(url.origin) or await self._connect(url)

        def release(is_reusable: bool) -> None:
            if is_reusable and connection.is_usable and not self._is_closed:
                self._add_idle(connection)
            else:
                connection.abort()

        try:
            all_headers = {"host": url.netloc, **self._headers, **headers, **self._make_url_headers(url)}
            response = await connection.exchange(method, url.target, all_headers, body, release)
        except BaseException:
            connection.abort()
            raise
        if response.cookies:
            self._store_cookies(url, response.cookies)
        return response

    async def _connect(self, url: URL) -> Connection:
        if self._is_closed:
            raise UpstreamFailed("the gateway is about to end")
        try:
            return await connect(url, self._get_ssl_context)
        except UpstreamFailed:
            raise
        except TimeoutError:
            text = f"{self.name} cannot be reached within {CONNECT_TIMEOUT_SECONDS:g} s; try again later"
            raise UpstreamFailed(text) from None
        except (OSError, UnicodeError) as error:
            # Some errors have no text, such as that of a server that ends a TLS handshake.
            reason = str(error) or type(error).__name__
            raise UpstreamFailed(self.redact(f"{self.name} cannot be reached: {reason}; check the URL")) from None

    def _get_ssl_context(self) -> ssl.SSLContext:
        # All connections share one context, because loading the certificates is slow.
        if self._ssl_context is None:
            self._ssl_context = _create_ssl_context()
        return self._ssl_context

    def _take_idle(self, origin: str) -> Connection | None:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index][1].origin != origin:
                continue
            idle_since, connection = self._idle.pop(index)
            if connection.is_usable and time.monotonic() - idle_since < _IDLE_TIMEOUT_SECONDS:
                return connection
            connection.abort()
        return None

    def _add_idle(self, connection: Connection) -> None:
        self._idle.append((time.monotonic(), connection))
        if self._expiry_timer is None:
            self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        loop = asyncio.get_running_loop()
        self._expiry_timer = loop.call_later(_IDLE_TIMEOUT_SECONDS, self._close_expired) if self._idle else None

    def _close_expired(self) -> None:
        expired_before = time.monotonic() - _IDLE_TIMEOUT_SECONDS
        while self._idle and (self._idle[0][0] <= expired_before or not self._idle[0][1].is_usable):
            self._idle.pop(0)[1].abort()
        self._schedule_expiry()

    def _make_url_headers(self, url: URL) -> dict[str, str]:
        """Return the headers with the credentials of a URL and with its cookies."""
        headers = {}
        if url.credentials is not None:
            headers["authorization"] = make_basic_authorization(*url.credentials)
        if self._has_cookies:
            request = urllib.request.Request(f"{url.origin}{url.target}")  # noqa: S310 - only its URL is used
            self._cookies.add_cookie_header(request)
            if (cookie := request.get_header("Cookie")) is not None:
                headers["cookie"] = "; ".join(filter(None, (self._headers.get("cookie"), cookie)))
        return headers

    def _store_cookies(self, url: URL, cookies: Sequence[str]) -> None:
        request = urllib.request.Request(f"{url.origin}{url.target}")  # noqa: S310 - only its URL is used
        self._cookies.extract_cookies(_CookieResponse(cookies), request)  # type: ignore[arg-type]
        self._has_cookies = True

    def close(self) -> None:
        """Close idle connections, and do not open more."""
        self._is_closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        while self._idle:
            self._idle.pop()[1].abort()


class _CookieResponse:
    """The cookies of a response as `http.cookiejar` reads them."""

    def __init__(self, cookies: Sequence[str]) -> None:
        self._headers = email.message.Message()
        for cookie in cookies:
            self._headers["Set-Cookie"] = cookie

    def info(self) -> email.message.Message:
        return self._headers


def _join_headers(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return headers by their names in lower case; values of the same name are joined."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        separator = "; " if key == "cookie" else ", "
        joined[key] = f"{joined[key]}{separator}{value}" if key in joined else value
    return joined


def _create_ssl_context() -> ssl.SSLContext:
    """Return a context that trusts the certificates of the system, or those that `SSL_CERT_FILE` or `_DIR` name."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None:
        # An interpreter that was built for another system may look in folders that this system does not have.
        context.load_verify_locations(certifi.where())
    return context


def is_same_server(url: URL, target: URL) -> bool:
    """Return whether two URLs have the same scheme, host and port; an upgrade from http to https counts as the same."""
    if url.origin == target.origin:
        return True
    is_upgrade = (url.scheme, target.scheme) == ("http", "https")
    return is_upgrade and url.host == target.host and url.explicit_port is None and target.explicit_port is None


def _find_secrets(url: URL, headers: Sequence[tuple[str, str]]) -> list[str]:
    """Return the credentials in headers and URL, longest first, so that none is replaced only in part."""
    secrets = {part for _, value in headers for part in (value, value.rpartition(" ")[2])}
    if url.credentials is not None and url.credentials[1]:
        # The password itself, as quoted in the URL, and in the form sent in the Authorization header.
        encoded = base64.b64encode(":".join(url.credentials).encode()).decode()
        secrets |= {url.credentials[1], url.userinfo.partition(":")[2], encoded}
    secrets |= {value for value in url.query_values if len(value) >= _MIN_QUERY_SECRET_CHARS}
    return sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS), key=len, reverse=True)


class OutgoingMessage:
    """Message to the server, with the task that sends it, so that it can be aborted."""

    def __init__(self, message: object, raw: Message, headers: Mapping[str, str]) -> None:
        fields: Mapping[str, Any] = message if isinstance(message, dict) else {}
        self.raw = raw
        self.headers = headers
        """HTTP headers that repeat parts of the message."""
        method = fields.get("method")
        self.method: str = method if isinstance(method, str) else ""
        params = fields.get("params")
        self.cancelled_id: object = params.get("requestId") if isinstance(params, dict) else None
        self.is_request = bool(self.method) and "id" in fields
        self.is_response = isinstance(message, dict) and "method" not in fields
        self.id: object = fields.get("id") if self.is_request else None
        self.is_modern = protocol_version(params) is not None
        self.task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """End the exchange. Some servers treat this as a cancellation."""
        if self.task is not None:
            self.task.cancel()


class OutgoingRequests:
    """Requests to the server that have no response yet, by id."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, OutgoingMessage] = {}

    def add(self, request: OutgoingMessage) -> None:
        self._by_id[make_id_key(request.id)] = request

    def remove(self, request: OutgoingMessage) -> None:
        key = make_id_key(request.id)
        # The client may have reused the id for another request, which must stay.
        if self._by_id.get(key) is request:
            del self._by_id[key]

    def get(self, request_id: object) -> OutgoingMessage | None:
        return self._by_id.get(make_id_key(request_id))
