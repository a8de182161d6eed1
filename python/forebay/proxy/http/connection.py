"""HTTP connections to one server: each carries one exchange at a time and can be aborted from another thread."""

import base64
import contextlib
import http.cookiejar
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import certifi
import httpx

import forebay
from forebay._core import Unescaper
from forebay.errors import InvalidArgument, UpstreamFailed
from forebay.wire.framing import Message, Spool
from forebay.wire.http_bodies import ACCEPT_ENCODING, Inflater, is_compression
from forebay.wire.messages import make_id_key, protocol_version

__all__ = ["Endpoint", "OutgoingMessage", "OutgoingRequests", "UpstreamConnection", "is_same_server", "iter_body"]

_CONNECT_TIMEOUT_SECONDS = 10.0

_MAX_REDIRECTS = 5

_MIN_QUERY_SECRET_CHARS = 8
"""Minimum length of a query value to redact: shorter values are probably ordinary words, not secrets."""

_MIN_SECRET_CHARS = 4
"""Minimum length of any secret to redact: shorter ones would match unrelated text."""

_IDLE_TIMEOUT_SECONDS = 2.0
"""Idle connections are closed after this time, before servers usually close them."""

_KEEPALIVE_OPTIONS = [
    (getattr(socket, level), getattr(socket, name), value)
    for level, name, value in (
        ("SOL_SOCKET", "SO_KEEPALIVE", 1),
        ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
        ("IPPROTO_TCP", "TCP_KEEPINTVL", 15),
        ("IPPROTO_TCP", "TCP_KEEPCNT", 4),
    )
    if hasattr(socket, name)
]
"""Socket options that detect a vanished server on a stream that may be silent for hours."""


class UpstreamConnection:
    """Connection to a server that another thread can abort."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_aborted = False

    def open(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], body: Message | None, read_timeout: float | None
    ) -> httpx.Response:
        """Send a request and return the response, whose body is not read yet."""
        request = self._client.build_request(
            method,
            url,
            headers=_add_content_length(headers, body),
            content=_get_request_content(body),
            timeout=httpx.Timeout(read_timeout, connect=_CONNECT_TIMEOUT_SECONDS),
            extensions={"trace": self._on_trace_event},
        )
        return self._client.send(request, stream=True, follow_redirects=False)

    def _on_trace_event(self, name: str, info: Mapping[str, Any]) -> None:
        """Remember the socket of a new connection, so that `abort` can shut it down."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
            for option in _KEEPALIVE_OPTIONS:
                self._socket.setsockopt(*option)
            if self.is_aborted:
                self.abort()

    def abort(self) -> None:
        """Shut down the socket, which ends a blocked read or write. Some servers treat this as a cancellation."""
        with self._lock:
            self.is_aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # `close` would not wake up the reader. `SSLSocket.shutdown` would drop TLS state that it uses.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self._client.close()


class Endpoint:
    """URL and credentials of a server, with a pool of connections to it."""

    def __init__(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        try:
            self.url = httpx.URL(url)
        except httpx.InvalidURL:
            raise InvalidArgument("what is given as a URL is none; give one such as https://example.com/mcp") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise InvalidArgument("a URL begins with http:// or https:// and a host")
        default_headers = {"user-agent": f"forebay/{forebay.__version__}", "accept-encoding": ACCEPT_ENCODING}
        self._headers = httpx.Headers([*default_headers.items()])
        self._headers.update(httpx.Headers([*headers]))
        self.secrets = _find_secrets(self.url, headers)
        """The credentials, as they may appear in a text."""
        self._cookies = http.cookiejar.CookieJar()
        self._ssl_context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._idle: list[UpstreamConnection] = []
        self._busy: set[UpstreamConnection] = set()
        self._is_closed = False

    @property
    def name(self) -> str:
        """The URL without user, password, query and fragment, which may be secret."""
        return str(self.url.copy_with(userinfo=b"", query=None, fragment=None))

    def redact(self, text: str) -> str:
        """Replace credentials, which some servers repeat in their errors."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def has_secret(self, chunks: Iterable[bytes | memoryview]) -> bool:
        """Return whether JSON in chunks contains credentials, also if some of their characters are escaped."""
        secrets = [secret.encode() for secret in self.secrets]
        overlap_bytes = max(map(len, secrets), default=1) - 1
        unescaper, tail = Unescaper(), b""
        for chunk in chunks:
            text = tail + unescaper.push(chunk)
            if any(secret in text for secret in secrets):
                return True
            tail = text[len(text) - overlap_bytes :] if overlap_bytes < len(text) else text
        return False

    @contextlib.contextmanager
    def borrow_connection(self) -> Iterator[UpstreamConnection]:
        """Borrow a connection from the pool. An HTTP error inside the block becomes `UpstreamFailed`."""
        connection = self._acquire()
        try:
            yield connection
        except httpx.ConnectTimeout:
            text = f"{self.name} cannot be reached within {_CONNECT_TIMEOUT_SECONDS:g} s; try again later"
            raise UpstreamFailed(text) from None
        except (httpx.ConnectError, httpx.ProxyError) as error:
            raise UpstreamFailed(self.redact(f"{self.name} cannot be reached: {error}; check the URL")) from None
        except httpx.HTTPError as error:
            text = f"the server ended the connection before it answered ({error})"
            raise UpstreamFailed(self.redact(f"{text}; it may have done what it was asked to")) from None
        finally:
            self._release(connection)

    def _acquire(self) -> UpstreamConnection:
        with self._lock:
            if self._is_closed:
                raise UpstreamFailed("the gateway is about to end")
            connection = self._idle.pop() if self._idle else self._new_connection()
            self._busy.add(connection)
            return connection

    def _new_connection(self) -> UpstreamConnection:
        if self._ssl_context is None:
            # All connections share one context, because loading the certificates is slow.
            self._ssl_context = _create_ssl_context()
        return UpstreamConnection(
            httpx.Client(
                headers=self._headers,
                cookies=self._cookies,
                verify=self._ssl_context,
                limits=httpx.Limits(max_keepalive_connections=1, keepalive_expiry=_IDLE_TIMEOUT_SECONDS),
            )
        )

    def _release(self, connection: UpstreamConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not connection.is_aborted and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def open(
        self,
        connection: UpstreamConnection,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: Message | None = None,
        read_timeout: float | None = None,
    ) -> httpx.Response:
        """Send a request and return the response; redirects are followed only within the same server."""
        for _ in range(_MAX_REDIRECTS):
            response = connection.open(method, url, headers, body, read_timeout)
            location = response.headers.get("location")
            if not response.has_redirect_location or location is None:
                return response
            response.close()
            # Redirects other than 307 and 308 would turn the request into a GET without a body.
            if method != "GET" and response.status_code not in (307, 308):
                break
            target = url.join(location)
            if not is_same_server(url, target) or target.userinfo not in (b"", url.userinfo):
                break
            url = target
        raise UpstreamFailed(
            f"{self.name} sends its callers elsewhere, which is not followed; give the URL that it is at"
        )

    def abort_all(self) -> None:
        """Abort all exchanges."""
        with self._lock:
            for connection in self._busy:
                connection.abort()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        self.abort_all()
        for connection in idle:
            connection.close()


def _create_ssl_context() -> ssl.SSLContext:
    """Return a context that trusts the certificates of the system, or those that `SSL_CERT_FILE` or `_DIR` name."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None:
        # An interpreter that was built for another system may look in folders that this system does not have.
        context.load_verify_locations(certifi.where())
    return context


def iter_body(response: httpx.Response) -> Iterator[bytes]:
    """Yield the decompressed body. Raises `UpstreamFailed` if it is broken or truncated."""
    chunks: Iterator[bytes] = response.iter_raw()
    for encoding in reversed(response.headers.get_list("content-encoding", split_commas=True)):
        name = encoding.strip().lower()
        if is_compression(name):
            chunks = _inflate(chunks, Inflater(name))
    return chunks


def _inflate(chunks: Iterator[bytes], inflater: Inflater) -> Iterator[bytes]:
    try:
        for chunk in chunks:
            yield from inflater.feed(chunk)
        yield inflater.finish()
    except ValueError as error:
        raise UpstreamFailed(f"the request {error}") from None


def is_same_server(url: httpx.URL, target: httpx.URL) -> bool:
    """Return whether two URLs have the same scheme, host and port; an upgrade from http to https counts as the same."""
    if (url.scheme, url.host, url.port) == (target.scheme, target.host, target.port):
        return True
    is_upgrade = (url.scheme, target.scheme) == ("http", "https")
    return is_upgrade and url.host == target.host and url.port is None and target.port is None


def _find_secrets(url: httpx.URL, headers: Sequence[tuple[str, str]]) -> list[str]:
    """Return the credentials in headers and URL, longest first, so that none is replaced only in part."""
    secrets = {part for _, value in headers for part in (value, value.rpartition(" ")[2])}
    if url.password:
        userinfo = f"{url.username}:{url.password}".encode()
        # The password itself, as quoted in the URL, and in the form sent in the Authorization header.
        secrets |= {url.password, url.userinfo.decode().partition(":")[2], base64.b64encode(userinfo).decode()}
    secrets |= {value for value in url.params.values() if len(value) >= _MIN_QUERY_SECRET_CHARS}
    return sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS), key=len, reverse=True)


def _get_request_content(body: Message | None) -> bytes | Iterator[bytes] | None:
    if isinstance(body, Spool):
        return iter(body.chunks())
    return None if body is None else bytes(body)


def _add_content_length(headers: Mapping[str, str], body: Message | None) -> dict[str, str]:
    return {**headers, "content-length": str(len(body))} if isinstance(body, Spool) else dict(headers)


class OutgoingMessage:
    """Message to the server, with the connection that carries it, so that it can be aborted."""

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
        self._lock = threading.Lock()
        self._connection: UpstreamConnection | None = None
        self.is_aborted = False

    def use_connection(self, connection: UpstreamConnection | None) -> None:
        """Set the connection that `abort` aborts. Raises `UpstreamFailed` if the message was aborted already."""
        with self._lock:
            self._connection = connection
            if self.is_aborted and connection is not None:
                raise UpstreamFailed("nobody waits for it any more")

    def abort(self) -> None:
        with self._lock:
            self.is_aborted = True
            if self._connection is not None:
                self._connection.abort()


class OutgoingRequests:
    """Requests to the server that have no response yet, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[bytes, OutgoingMessage] = {}

    def add(self, request: OutgoingMessage) -> None:
        with self._lock:
            self._by_id[make_id_key(request.id)] = request

    def remove(self, request: OutgoingMessage) -> None:
        with self._lock:
            # The client may have reused the id for another request, which must stay.
            if self._by_id.get(make_id_key(request.id)) is request:
                del self._by_id[make_id_key(request.id)]

    def get(self, request_id: object) -> OutgoingMessage | None:
        with self._lock:
            return self._by_id.get(make_id_key(request_id))
